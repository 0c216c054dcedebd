//! Limits of one site: each takes effect for the site's host, and not for another one at the same time.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use larder_proxy::{OriginUrl, ProxyConfig, Site, SiteLimits, SitePolicy, TargetRules};

use crate::support::{Connection, Fixture, Gate, Received, Reply, eventually};

/// The host whose site has limits of its own, and one without.
const OWN: &str = "own.example";
const OTHER: &str = "other.example";

/// Adds a site for [`OWN`] with other limits.
fn limit(config: &mut ProxyConfig, change: impl FnOnce(&mut SiteLimits)) {
    config.sites.push(Site { hosts: vec![OWN.to_owned()], policy: limited(config, change), ..Site::default() });
}

fn limited(config: &ProxyConfig, change: impl FnOnce(&mut SiteLimits)) -> Option<SitePolicy> {
    let mut policy = config.policy.clone();
    change(&mut policy.limits);
    Some(policy)
}

/// Sends a request for a host on a new connection.
fn ask(fixture: &Fixture, host: &str, more: &str) -> Connection {
    let mut client = fixture.connect();
    send(&mut client, host, more);
    client
}

fn send(client: &mut Connection, host: &str, more: &str) {
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"));
}

#[test]
fn silent_origin_is_given_up_for_the_site_alone() {
    let gate = Gate::default();
    let held = gate.clone();
    let answer = move |_: &Received, number| {
        let reply = Reply::ok(&["Cache-Control: no-store"], "x");
        if number == 0 { reply } else { reply.after(&held) }
    };
    let fixture = Fixture::with(answer, |config| limit(config, |limits| limits.origin_response = Duration::ZERO));
    let mut own = ask(&fixture, OTHER, "");
    assert_eq!(own.read_response("GET").status, 200);
    let mut other = ask(&fixture, OTHER, "");
    eventually("it has reached the origin", || fixture.origin.count() == 2);
    // The connection to the origin was opened by a request with another limit.
    send(&mut own, OWN, "");
    assert_eq!(own.read_response("GET").status, 504);
    gate.open();
    assert_eq!(other.read_response("GET").status, 200);
}

#[test]
fn body_that_stops_is_cut_off_for_the_site_alone() {
    let gate = Gate::default();
    let held = gate.clone();
    let head = Reply::head("200 OK", &["Cache-Control: no-store", "Content-Length: 2"]);
    let fixture = Fixture::with(
        move |_, _| head.clone().send("x").wait(&held).send("y"),
        |config| limit(config, |limits| limits.origin_response = Duration::ZERO),
    );
    let mut other = ask(&fixture, OTHER, "");
    assert_eq!(other.read_head().status, 200);
    let mut own = ask(&fixture, OWN, "");
    assert_eq!(own.read_head().status, 200);
    assert_eq!(own.read_exact(1), b"x");
    assert!(own.is_closed());
    gate.open();
    assert_eq!(other.read_exact(2), b"xy");
}

/// Reads a request's head from a connection that the proxy opens, and answers it.
fn serve_once(listener: &TcpListener) -> TcpStream {
    let (mut socket, _) = listener.accept().unwrap();
    let lines = BufReader::new(socket.try_clone().unwrap()).lines();
    lines.map(Result::unwrap).find(String::is_empty).expect("the head ends");
    socket.write_all(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1\r\n\r\nx").unwrap();
    socket
}

/// Returns a site for a host, whose origin is at `listener`.
fn site_at(scheme: &str, host: &str, listener: &TcpListener) -> Site {
    let url: OriginUrl = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
    Site::of_host(host, Arc::new(url.into()))
}

#[test]
fn handshake_that_takes_too_long_is_given_up_for_the_site_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            let policy = limited(config, |limits| limits.origin_connect = Duration::from_millis(100));
            config.sites.push(Site { policy, ..site_at("https", OWN, &listener) });
            config.sites.push(site_at("https", OTHER, &listener));
        },
    );
    let mut other = ask(&fixture, OTHER, "");
    let (silent, _) = listener.accept().unwrap();
    assert_eq!(ask(&fixture, OWN, "").read_response("GET").status, 504);
    // If it had been given up, its client would have been told so.
    drop(silent);
    assert_eq!(other.read_response("GET").status, 502);
}

#[test]
fn unused_connections_to_origins_are_kept_as_the_site_says() {
    let changes: [fn(&mut SiteLimits); 2] =
        [|limits| limits.origin_idle = Duration::ZERO, |limits| limits.origin_idle_count_max = 0];
    for change in changes {
        let [at_own, at_other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let fixture = Fixture::with(
            |_, _| Reply::default(),
            |config| {
                let policy = limited(config, change);
                config.sites.push(Site { policy, ..site_at("http", OWN, &at_own) });
                config.sites.push(site_at("http", OTHER, &at_other));
            },
        );
        let serve = |host, listener| {
            let mut client = ask(&fixture, host, "");
            let socket = serve_once(listener);
            assert_eq!(client.read_response("GET").status, 200);
            socket
        };
        let other = serve(OTHER, &at_other);
        let mut own = serve(OWN, &at_own);
        assert_eq!(own.read(&mut [0]).unwrap(), 0, "it is closed");
        other.set_nonblocking(true).unwrap();
        let open = (&other).read(&mut [0]).unwrap_err();
        assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[test]
fn connections_to_an_origin_are_bounded_for_the_site_alone() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::with(
        move |_, _| Reply::ok(&["Cache-Control: no-store"], "x").after(&held),
        |config| limit(config, |limits| limits.origin_connection_count_max = 1),
    );
    let mut clients = vec![fixture.connect(), fixture.connect()];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: {OWN}\r\n\r\n"));
    }
    eventually("one waits", || (fixture.origin.count(), fixture.proxy.stats().origin_waits) == (1, 1));
    for number in 0..2 {
        let mut client = fixture.connect();
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"));
        clients.push(client);
    }
    eventually("the others do not", || fixture.origin.count() == 3);
    assert_eq!(fixture.proxy.stats().origin_waits, 1);
    gate.open();
    for mut client in clients {
        assert_eq!(client.read_response("GET").status, 200);
    }
}

#[test]
fn body_that_comes_too_slowly_is_refused_for_the_site_alone() {
    let cases: [fn(&mut SiteLimits); 2] = [
        |limits| (limits.body_rate, limits.body_grace) = (1 << 30, Duration::from_secs(1)),
        |limits| limits.body_grace = Duration::ZERO,
    ];
    for change in cases {
        let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), |config| limit(config, change));
        let begin = |host| {
            let mut client = fixture.connect();
            client.send(format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\na"));
            client
        };
        let mut other = begin(OTHER);
        assert_eq!(begin(OWN).read_response("POST").status, 408);
        other.send("b");
        assert_eq!(other.read_response("POST").status, 200);
    }
}

#[test]
fn client_that_stands_still_is_dropped_for_the_site_alone() {
    let fixture = Fixture::with(
        |received, _| Reply::ok(&[], &received.body),
        |config| limit(config, |limits| limits.stall = Duration::ZERO),
    );
    let begin = |host| {
        let mut client = fixture.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\na"));
        client
    };
    let mut other = begin(OTHER);
    assert!(begin(OWN).try_read_head().is_none());
    // A later request on a connection has the limit of its own site again.
    let mut both = fixture.connect();
    both.send(format!("POST / HTTP/1.1\r\nHost: {OWN}\r\nContent-Length: 2\r\n\r\nab"));
    assert_eq!(both.read_response("POST").text(), "ab");
    both.send(format!("POST / HTTP/1.1\r\nHost: {OTHER}\r\nContent-Length: 2\r\n\r\na"));
    assert!(begin(OWN).try_read_head().is_none());
    for client in [&mut both, &mut other] {
        client.send("b");
        assert_eq!(client.read_response("POST").text(), "ab");
    }
}

#[test]
fn websocket_that_stands_still_ends_for_the_site_alone() {
    let switched = ["Connection: Upgrade", "Upgrade: chat"];
    let fixture = Fixture::with(
        move |_, _| Reply::head("101 Switching Protocols", &switched).echo(),
        |config| limit(config, |limits| limits.stall = Duration::ZERO),
    );
    let open = |host| {
        let mut client = ask(&fixture, host, "Connection: Upgrade\r\nUpgrade: chat\r\n");
        assert_eq!(client.read_head().status, 101);
        echo(&mut client);
        client
    };
    let mut other = open(OTHER);
    assert!(open(OWN).is_closed());
    echo(&mut other);
}

fn echo(client: &mut Connection) {
    client.send("hello");
    assert_eq!(client.read_exact(5), b"hello");
}

#[test]
fn tunnel_that_stands_still_ends_for_the_site_alone() {
    let [own, other] = ["127.0.0.1:0", "127.0.0.2:0"].map(|address| TcpListener::bind(address).unwrap());
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            limit(config, |limits| limits.stall = Duration::ZERO);
            config.sites[0].hosts = vec!["127.0.0.1".to_owned()];
            (config.forward, config.default_origin) = (true, None);
            config.connect_ports = [&own, &other].map(|listener| listener.local_addr().unwrap().port()).to_vec();
            config.targets = TargetRules { allow: vec!["127.0.0.0/8".parse().unwrap()], deny: Vec::new() };
        },
    );
    let open = |listener: &TcpListener| {
        let mut client = fixture.connect();
        let address = listener.local_addr().unwrap();
        client.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert_eq!(client.read_head().status, 200);
        (client, listener.accept().unwrap().0)
    };
    let (mut other, mut target) = open(&other);
    let (mut own, _target) = open(&own);
    assert!(own.is_closed());
    target.write_all(b"hello").unwrap();
    assert_eq!(other.read_exact(5), b"hello");
}

#[test]
fn reload_changes_the_limits_of_a_site() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| Reply::ok(&["Cache-Control: no-store"], "x").after(&held));
    let mut before = ask(&fixture, OWN, "");
    eventually("it has reached the origin", || fixture.origin.count() == 1);
    let mut config = Fixture::config(&fixture.origin);
    limit(&mut config, |limits| limits.origin_response = Duration::ZERO);
    fixture.proxy.handle().reload(config).unwrap();
    // A request for the same resource would wait for the response to the first one.
    let mut after = fixture.connect();
    after.send(format!("GET /after HTTP/1.1\r\nHost: {OWN}\r\n\r\n"));
    assert_eq!(after.read_response("GET").status, 504);
    gate.open();
    assert_eq!(before.read_response("GET").status, 200, "it began under the configuration before");
}
