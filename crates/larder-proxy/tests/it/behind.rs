//! Behind a load balancer and in front of origins: who the client is, and who may ask.

use std::net::SocketAddr;

use larder_proxy::{AccessLogTarget, Listener, ProxyConfig};

use crate::support::{Connection, Fixture, Received, Reply, eventually};

fn echo(received: &Received, _: usize) -> Reply {
    let told = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
    let lines: Vec<String> =
        told.iter().filter_map(|name| received.field(name).map(|value| format!("{name}: {value}"))).collect();
    Reply::ok(&["Cache-Control: no-store"], lines.join("\n"))
}

fn proxied(config: &mut ProxyConfig) {
    let proxied_by = vec!["127.0.0.1/32".parse().unwrap()];
    config.listeners = vec![Listener { proxied_by, ..Listener::plain("127.0.0.1:0".parse().unwrap()) }];
    config.add_x_forwarded = true;
    config.add_forwarded = true;
}

fn ask(address: SocketAddr, header: &str) -> Option<String> {
    let mut connection = Connection::open(address);
    connection.send(header);
    connection.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    let mut response = connection.try_read_head()?;
    connection.read_body("GET", &mut response);
    Some(format!("{} {}", response.status, response.text()))
}

#[test]
fn client_named_by_a_load_balancer_is_the_client_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let target = AccessLogTarget::File(log.clone());
    let fixture = Fixture::with(echo, |config| {
        proxied(config);
        config.access_log = Some(target);
        config.clients = vec!["192.0.2.0/24".parse().unwrap()];
    });
    let address = fixture.proxy.local_addrs()[0];
    let told = ask(address, "PROXY TCP4 192.0.2.9 198.51.100.1 1000 80\r\n").unwrap();
    assert_eq!(
        told,
        "200 x-forwarded-for: 192.0.2.9\nx-forwarded-proto: http\nx-forwarded-host: site.example\n\
         forwarded: for=192.0.2.9;host=\"site.example\";proto=http"
    );
    assert!(ask(address, "PROXY TCP4 192.0.3.9 198.51.100.1 1000 80\r\n").unwrap().starts_with("403"));
    // Without a header there is no answer, as nobody knows for whom it would be.
    assert_eq!(ask(address, ""), None);
    eventually("the log names the client", || std::fs::read_to_string(&log).unwrap().contains(" 192.0.2.9 "));
}

#[test]
fn others_cannot_name_a_client() {
    let fixture = Fixture::with(echo, proxied);
    let address = fixture.proxy.local_addrs()[0];
    let mut other = Connection::open_from("127.0.0.2".parse().unwrap(), address);
    other.send("PROXY TCP4 192.0.2.9 198.51.100.1 1000 80\r\nGET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    assert!(other.try_read_head().is_none_or(|head| head.status == 400));
    let mut direct = Connection::open_from("127.0.0.2".parse().unwrap(), address);
    assert!(direct.request("GET", "/", &[]).text().starts_with("x-forwarded-for: 127.0.0.2"));
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn listeners_and_origins_of_ipv6_are_served() {
    let origin = std::net::TcpListener::bind("[::1]:0").unwrap();
    let url = format!("http://{}", origin.local_addr().unwrap()).parse().unwrap();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut socket, _) = origin.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]).unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nsix").unwrap();
    });
    let fixture = Fixture::with(echo, |config| {
        config.listeners = vec!["[::1]:0".parse().unwrap()];
        config.default_origin = Some(url);
    });
    assert_eq!(fixture.get("/", &[]).text(), "six");
}

#[test]
fn forward_requests_and_tunnels_need_a_password_and_sites_do_not() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("ann:{}\n", bcrypt::hash("secret", 4).unwrap())).unwrap();
    let fixture = Fixture::with(
        |received, _| {
            assert!(received.field("proxy-authorization").is_none());
            Reply::ok(&["Cache-Control: max-age=60"], "open")
        },
        |config| (config.passwords, config.forward) = (Some(file.path().to_owned()), true),
    );
    let url = format!("http://{}/x", fixture.origin.address);
    // `ann:secret`, and `ann:wrong`.
    let (right, wrong) = ("Proxy-Authorization: Basic YW5uOnNlY3JldA==", "Proxy-Authorization: Basic YW5uOndyb25n");
    let refused = fixture.get(&url, &[]);
    assert_eq!(refused.status, 407);
    assert!(refused.field("proxy-authenticate").is_some_and(|challenge| challenge.starts_with("Basic ")));
    assert_eq!(fixture.get(&url, &[wrong]).status, 407);
    let authority = fixture.origin.address.to_string();
    assert_eq!(fixture.connect().request("CONNECT", &authority, &[]).status, 407);
    assert_eq!(fixture.origin.count(), 0);
    assert_eq!(fixture.get_hit(&url, &[right]).text(), "open");
    // What is in memory is no more open than the rest.
    assert_eq!(fixture.get(&url, &[]).status, 407);
    assert_eq!(fixture.get(&url, &[wrong]).status, 407);
    assert_eq!(fixture.get("/site", &[]).status, 200);
}

#[test]
fn connections_and_requests_beyond_the_limits_are_told_to_come_back() {
    let fixture = Fixture::with(echo, |config| config.limits.connection_count_max = 2);
    let held = [fixture.connect(), fixture.connect()];
    eventually("both are counted", || fixture.proxy.stats().connections_open == 2);
    let mut third = fixture.connect();
    let told = third.read_response("GET");
    assert_eq!((told.status, told.field("retry-after"), told.complete), (503, Some("5"), true));
    drop(held);
    eventually("there is room again", || {
        let mut next = fixture.connect();
        next.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
        next.try_read_head().is_some_and(|head| head.status == 200)
    });

    let gate = crate::support::Gate::default();
    let waiting = gate.clone();
    let fixture = Fixture::with(
        move |received, _| {
            Reply::default().wait(&waiting).send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                received.target.len(),
                received.target
            ))
        },
        |config| config.limits.waiting_count_max = 1,
    );
    let mut first = fixture.connect();
    first.send("GET /first HTTP/1.1\r\nHost: site.example\r\n\r\n");
    eventually("it waits", || fixture.origin.count() == 1);
    let told = fixture.get("/second", &[]);
    assert_eq!((told.status, told.field("retry-after")), (503, Some("1")));
    gate.open();
    assert_eq!(first.read_response("GET").text(), "/first");
}
