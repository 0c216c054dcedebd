//! Bodies of requests that arrive slowly: the limit, and which side is to blame (RFC 9110 15.5.9).

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use larder_proxy::ProxyConfig;

use crate::support::{
    Connection, Fixture, Reply,
    http2::{Http2, Sent, head},
    http2_origin::{Deed, Http2Origin},
};

const BEGUN: &str = "POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: 100000000\r\n\r\nx";

/// Sets a minimum rate that a client sending single bytes cannot reach.
fn demand_much(config: &mut ProxyConfig) {
    (config.policy.limits.body_rate, config.policy.limits.body_grace) = (1 << 30, Duration::from_secs(1));
}

/// Sends a byte now and then until the connection is closed.
fn drip(client: &Connection) {
    let mut socket = client.reader.get_ref().try_clone().unwrap();
    std::thread::spawn(move || {
        while socket.write_all(b"x").is_ok() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
}

/// Checks that a client that sends single bytes, and one that sends nothing, receive a 408.
fn check_slow(proxy: SocketAddr) {
    for drips in [true, false] {
        let mut client = Connection::open(proxy);
        client.send(BEGUN);
        if drips {
            drip(&client);
        }
        let response = client.read_response("POST");
        assert_eq!((response.status, response.field("connection")), (408, Some("close")), "{}", response.text());
        assert!(client.is_closed());
    }
}

/// Waits until an unused connection has exceeded its idle time.
fn pass_seconds(fixture: &Fixture) {
    assert!(fixture.connect().is_closed());
}

#[test]
fn body_that_comes_too_slowly_is_answered_with_408_and_no_origin_is_blamed() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&[], "x"),
        |config| {
            demand_much(config);
            config.admin = Some("127.0.0.1:0".parse().unwrap());
        },
    );
    check_slow(fixture.proxy.local_addrs()[0]);
    let page = Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]).text();
    assert!(page.contains("larder_origin_failures_total 0\n"), "{page}");
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn same_holds_over_http2_on_either_side() {
    let origin = Http2Origin::start(None, |_| Deed::Answer);
    let url = format!("h2c://{}", origin.address).parse().unwrap();
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            demand_much(config);
            config.default_origin = Some(url);
        },
    );
    check_slow(fixture.proxy.local_addrs()[0]);
    let mut client = Http2::plain(fixture.proxy.local_addrs()[0]);
    let request = head("POST", "http://site.example/", &[]).body(Sent::bytes("x").without_end()).unwrap();
    assert_eq!(client.request(request).0.status, 408);
    assert_eq!(client.get("http://site.example/after", &[]).text(), "/after", "only its stream has ended");
}

#[test]
fn origin_is_not_silent_while_the_client_is_waited_for() {
    let fixture = Fixture::with(
        |received, _| Reply::ok(&[], &received.body),
        |config| (config.policy.limits.origin_response, config.limits.idle) = (Duration::ZERO, Duration::from_secs(3)),
    );
    let mut client = fixture.connect();
    client.send("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: 2\r\n\r\nh");
    pass_seconds(&fixture);
    client.send("i");
    let response = client.read_response("POST");
    assert_eq!((response.status, response.text().as_str()), (200, "hi"));
}

#[test]
fn client_may_take_its_time_once_the_origin_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            demand_much(config);
            (config.default_origin, config.limits.idle) = (Some(url), Duration::from_secs(4));
        },
    );
    let origin = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").unwrap();
        let mut said = [0; 5];
        reader.read_exact(&mut said).unwrap();
        socket.write_all(&said).unwrap();
    });
    let mut client = fixture.connect();
    client.send("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\n\r\nhe");
    let mut response = client.read_head();
    pass_seconds(&fixture);
    client.send("llo");
    client.read_body("POST", &mut response);
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    origin.join().unwrap();
}
