//! Behind a load balancer and in front of origins: who the client is, and which clients are admitted.

use std::{net::SocketAddr, path::PathBuf};

use larder_proxy::{AccessLogTarget, ClientField, Fleet, Listener, ProxyConfig};

use tempfile::TempDir;

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

/// A proxy that logs its requests into a file.
struct Logged {
    fixture: Fixture,
    log: PathBuf,
    _directory: TempDir,
}

impl Logged {
    fn start(change: impl FnOnce(&mut ProxyConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("access.log");
        let target = AccessLogTarget::File(log.clone());
        let fixture = Fixture::with(echo, |config| {
            config.access_log = Some(target);
            change(config);
        });
        Self { fixture, log, _directory: directory }
    }

    fn lines(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

#[test]
fn client_named_by_a_load_balancer_is_the_client_everywhere() {
    let logged = Logged::start(|config| {
        proxied(config);
        config.clients = vec!["192.0.2.0/24".parse().unwrap()];
    });
    let fixture = &logged.fixture;
    let address = fixture.proxy.local_addrs()[0];
    let told = ask(address, "PROXY TCP4 192.0.2.9 198.51.100.1 1000 80\r\n").unwrap();
    assert_eq!(
        told,
        "200 x-forwarded-for: 192.0.2.9\nx-forwarded-proto: http\nx-forwarded-host: site.example\n\
         forwarded: for=192.0.2.9;host=\"site.example\";proto=http"
    );
    assert!(ask(address, "PROXY TCP4 192.0.3.9 198.51.100.1 1000 80\r\n").unwrap().starts_with("403"));
    // Without a header there is no response, because its client is unknown.
    assert_eq!(ask(address, ""), None);
    eventually("the log names the client", || logged.lines().contains(" 192.0.2.9 "));
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
    let right = "Proxy-Authorization: Basic YW5uOnNlY3JldA==";
    let wrong = "Proxy-Authorization: Basic YW5uOndyb25n";
    let refused = fixture.get(&url, &[]);
    assert_eq!(refused.status, 407);
    assert!(refused.field("proxy-authenticate").is_some_and(|challenge| challenge.starts_with("Basic ")));
    assert_eq!(fixture.get(&url, &[wrong]).status, 407);
    let authority = fixture.origin.address.to_string();
    assert_eq!(fixture.connect().request("CONNECT", &authority, &[]).status, 407);
    assert_eq!(fixture.origin.count(), 0);
    assert_eq!(fixture.get_hit(&url, &[right]).text(), "open");
    // Responses in memory are protected like others.
    assert_eq!(fixture.get(&url, &[]).status, 407);
    assert_eq!(fixture.get(&url, &[wrong]).status, 407);
    assert_eq!(fixture.get("/site", &[]).status, 200);
}

#[test]
fn requests_beyond_the_limit_are_told_to_come_back() {
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

fn trusting(config: &mut ProxyConfig) {
    config.fleet.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    config.clients = vec!["192.0.2.0/24".parse().unwrap(), "127.0.0.0/8".parse().unwrap()];
    config.add_x_forwarded = true;
}

#[test]
fn client_that_a_trusted_proxy_names_is_the_client_everywhere() {
    let logged = Logged::start(trusting);
    let fixture = &logged.fixture;
    let told = fixture.get("/a", &["X-Forwarded-For: 203.0.113.9, 192.0.2.9", "X-Forwarded-Proto: https"]);
    assert_eq!(
        told.text(),
        "x-forwarded-for: 203.0.113.9, 192.0.2.9, 127.0.0.1\nx-forwarded-proto: https\n\
         x-forwarded-host: site.example"
    );
    // The allow list applies to the client, also for responses in memory.
    assert_eq!(fixture.get("/b", &["X-Forwarded-For: 192.0.2.9, 203.0.113.9"]).status, 403);
    eventually("the log names the client", || logged.lines().contains(" 192.0.2.9 "));
    eventually("and the one that was refused", || logged.lines().contains(" 203.0.113.9 "));
    // A PROXY header is optional here, and takes precedence over the field.
    let address = fixture.proxy.local_addrs()[0];
    for header in ["PROXY TCP4 192.0.2.7 198.51.100.1 1000 80\r\n", "PROXY UNKNOWN\r\n", ""] {
        assert!(ask(address, header).unwrap().starts_with("200 "), "{header}");
    }
    assert!(ask(address, "PROXY TCP4 192.0.3.7 198.51.100.1 1000 80\r\n").unwrap().starts_with("403"));
}

/// Guards against a client that is not permitted, and sends an octet that nobody can read, so that it counts as its
/// balancer.
#[test]
fn client_that_is_named_unreadably_has_the_rights_of_nobody() {
    let logged = Logged::start(trusting);
    for value in [&b"203.0.113.9"[..], b"\xff203.0.113.9", b"203.0.113.9\xff", b"203.0.113.9, \xff", b"unknown"] {
        let mut connection = logged.fixture.connect();
        connection.send([b"GET /a HTTP/1.1\r\nHost: site.example\r\nX-Forwarded-For: ", value, b"\r\n\r\n"].concat());
        assert_eq!(connection.read_response("GET").status, 403, "{}", value.escape_ascii());
    }
    eventually("each is logged", || logged.lines().lines().count() == 5);
    assert!(!logged.lines().contains("127.0.0.1"), "{}", logged.lines());
    assert!(logged.lines().contains(" 0.0.0.0 "), "{}", logged.lines());
}

#[test]
fn client_of_other_proxies_is_the_proxy_itself() {
    let fixture = Fixture::with(echo, trusting);
    let address = fixture.proxy.local_addrs()[0];
    let mut other = Connection::open_from("127.0.0.2".parse().unwrap(), address);
    let told = other.request("GET", "/", &["X-Forwarded-For: 203.0.113.9"]);
    assert!(told.text().starts_with("x-forwarded-for: 203.0.113.9, 127.0.0.2\n"), "{}", told.text());
    let mut other = Connection::open_from("127.0.0.2".parse().unwrap(), address);
    other.send("PROXY TCP4 192.0.2.9 198.51.100.1 1000 80\r\nGET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    assert!(other.try_read_head().is_none_or(|head| head.status == 400));
    // Only the field that the proxies write counts; the client may have sent the other one.
    assert_eq!(fixture.get("/b", &["Forwarded: for=203.0.113.9"]).status, 200);
    let by_forwarded = Fixture::with(echo, |config| {
        trusting(config);
        config.fleet.client_field = ClientField::Forwarded;
    });
    assert_eq!(by_forwarded.get("/b", &["Forwarded: for=203.0.113.9"]).status, 403);
    assert_eq!(by_forwarded.get("/b", &["X-Forwarded-For: 203.0.113.9"]).status, 200);
}

#[test]
fn balancers_that_send_origin_form_reach_forward_mode_where_told() {
    let forward = |takes| {
        Fixture::with(echo, move |config| {
            let listener = Listener::plain("127.0.0.1:0".parse().unwrap());
            config.listeners = vec![Listener { origin_form: takes, ..listener }];
            (config.default_origin, config.forward, config.add_x_forwarded) = (None, true, true);
            config.fleet.ready_path = Some("/-/ready".to_owned());
        })
    };
    let request = |fixture: &Fixture, path: &str, host: &str| {
        let mut connection = fixture.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        connection.read_response("GET")
    };
    let taking = forward(true);
    let usual = forward(false);
    let origin = taking.origin.address.to_string();
    let other = usual.origin.address.to_string();
    let told = request(&taking, "/x?y", &origin);
    assert_eq!(told.status, 200);
    assert!(told.text().ends_with(&format!("x-forwarded-host: {origin}")), "{}", told.text());
    assert_eq!(request(&usual, "/x?y", &other).status, 400);
    // The absolute form names the same resource, and health checks and loop detection work as usual.
    assert_eq!(taking.get(&format!("http://{origin}/x?y"), &[]).status, 200);
    assert_eq!(request(&taking, "/-/ready", "127.0.0.1").text(), "ok\n");
    let own = taking.proxy.local_addrs()[0].to_string();
    assert!([403, 502, 508].contains(&request(&taking, "/", &own).status));
}

#[test]
fn origin_form_without_forward_mode_is_refused() {
    let listener = Listener { origin_form: true, ..Listener::plain("127.0.0.1:0".parse().unwrap()) };
    let config = ProxyConfig { listeners: vec![listener], ..ProxyConfig::default() };
    assert!(config.check().is_ok());
    let config = ProxyConfig { default_origin: Some("http://127.0.0.1:1".parse().unwrap()), ..config };
    assert!(config.check().unwrap_err().to_string().starts_with("origin_form needs forward mode"));
}

#[test]
fn health_check_on_the_client_port_fails_before_the_listeners_close() {
    let fixture = Fixture::with(echo, |config| {
        config.fleet.ready_path = Some("/healthy".to_owned());
        config.clients = vec!["127.0.0.1/32".parse().unwrap()];
        config.fleet.trusted_proxies = vec!["127.0.0.3/32".parse().unwrap()];
    });
    let address = fixture.proxy.local_addrs()[0];
    let from = |source: &str| Connection::open_from(source.parse().unwrap(), address).request("GET", "/healthy", &[]);
    let ready = fixture.get("/healthy", &[]);
    assert_eq!((ready.status, ready.field("cache-control"), ready.text().as_str()), (200, Some("no-store"), "ok\n"));
    let mut old = fixture.connect();
    old.send("HEAD /healthy HTTP/1.0\r\n\r\n");
    assert_eq!(old.read_response("HEAD").status, 200);
    // A load balancer's checks are answered although it may not use the proxy. Those of a stranger are treated like
    // other requests.
    assert_eq!((from("127.0.0.3").status, from("127.0.0.2").status), (200, 403));
    let before = fixture.proxy.stats().requests();
    assert_eq!(fixture.get("/healthy", &[]).status, 200);
    assert_eq!((fixture.proxy.stats().requests(), fixture.origin.count()), (before, 0));
    let mut open = fixture.connect();
    assert_eq!(open.request("GET", "/x", &[]).status, 200);
    fixture.proxy.handle().announce_stop();
    let draining = fixture.get("/healthy", &[]);
    assert_eq!((draining.status, draining.text().as_str()), (503, "this proxy is about to stop\n"));
    // Requests are answered as before, on old and new connections.
    assert_eq!((open.request("GET", "/x", &[]).status, fixture.get("/y", &[]).status), (200, 200));
}

#[test]
fn name_of_the_node_is_in_what_operators_read_and_in_messages_only_where_told() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    for shows_node in [false, true] {
        let target = AccessLogTarget::File(log.clone());
        let fixture = Fixture::with(
            |_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"),
            |config| {
                (config.pseudonym, config.access_log) = (None, Some(target));
                config.log_format = "json".parse().unwrap();
                config.admin = Some("127.0.0.1:0".parse().unwrap());
                config.fleet = Fleet { node: Some("node-7".into()), shows_node, ..Fleet::default() };
            },
        );
        let response = fixture.get_hit("/", &[]);
        let status = response.field("cache-status").unwrap();
        let via = response.field("via").unwrap();
        assert_eq!((status.starts_with("node-7; hit"), via.contains("node-7")), (shows_node, shows_node));
        let metrics = Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]);
        assert!(metrics.text().contains("larder_node_info{node=\"node-7\"} 1"), "{}", metrics.text());
        eventually("the log names the node", || std::fs::read_to_string(&log).unwrap().contains("\"node\":\"node-7\""));
        std::fs::remove_file(&log).unwrap();
    }
}
