//! Forward mode, tunnels, and refused requests (RFC 9110 7, 9.3.6; RFC 9112 3.2, 6).

use std::io::{Read as _, Write as _};

use larder_proxy::{Outcome, Site};

use crate::support::{Connection, Fixture, Origin, Reply, eventually};

/// Starts a forward proxy without sites, which may connect to loopback.
fn forward(handle: impl Fn(&crate::support::Received, usize) -> Reply + Send + Sync + 'static) -> Fixture {
    Fixture::with(handle, |config| (config.default_origin, config.forward) = (None, true))
}

#[test]
fn trace_and_options_that_go_no_further_are_answered_here() {
    let fixture = Fixture::new(|received, _| Reply::ok(&[], received.field("max-forwards").unwrap_or("none")));
    let mut connection = fixture.connect();
    for method in ["TRACE", "OPTIONS"] {
        assert_eq!(connection.request(method, "/a", &["Max-Forwards: 2"]).text(), "1");
    }
    let secret = "Authorization: Basic eDp5";
    let other = "X-Other: 1";
    let traced = connection.request("TRACE", "/a?b", &["Max-Forwards: 0", secret, "Cookie: a=b", other]);
    assert_eq!((traced.status, traced.field("content-type")), (200, Some("message/http")));
    assert!(traced.text().starts_with("TRACE /a?b HTTP/1.1\r\nhost: site.example\r\n"), "{}", traced.text());
    assert!(traced.text().contains("x-other: 1\r\n") && !traced.text().contains("eDp5"), "{}", traced.text());
    let options = connection.request("OPTIONS", "*", &["Max-Forwards: 0"]);
    assert_eq!((options.status, options.field("content-length")), (200, Some("0")));
    assert!(options.field("allow").is_some_and(|allowed| allowed.contains("GET")));
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn absolute_form_is_forwarded_and_cached() {
    let fixture = forward(|received, _| {
        Reply::ok(&["Cache-Control: max-age=60"], format!("{} {}", received.field("host").unwrap(), received.target))
    });
    let address = fixture.origin.address;
    let ask = || {
        let mut connection = fixture.connect();
        // Host is ignored if the target names a host (RFC 9112 3.2.2).
        connection.send(format!("GET http://{address}/p?q=1 HTTP/1.1\r\nHost: wrong.example\r\n\r\n"));
        connection.read_response("GET")
    };
    assert_eq!(ask().text(), format!("{address} /p?q=1"));
    eventually("it is a hit", || ask().is_hit());
    assert_eq!(fixture.origin.count(), 1);
}

/// Guards against a client whose Host makes the default origin's response count as another origin's.
#[test]
fn what_the_default_origin_says_never_answers_for_the_origin_of_that_name() {
    let other = Origin::start(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "of the name itself"));
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "of the default origin"),
        |config| config.forward = true,
    );
    let name = other.address;
    let ask = |target: String| {
        let mut connection = fixture.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: {name}\r\n\r\n"));
        connection.read_response("GET")
    };
    for _ in 0..2 {
        assert_eq!(ask("/".to_owned()).text(), "of the default origin");
        assert_eq!(ask(format!("http://{name}/")).text(), "of the name itself");
    }
    eventually("both are hits", || ask("/".to_owned()).is_hit() && ask(format!("http://{name}/")).is_hit());
    assert_eq!((fixture.origin.count(), other.count()), (1, 1));
}

#[test]
fn names_are_resolved_and_checked() {
    let fixture = forward(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "by name"));
    let port = fixture.origin.address.port();
    let mut connection = fixture.connect();
    connection.send(format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(connection.read_response("GET").text(), "by name");
}

#[test]
fn targets_inside_are_refused_unless_allowed() {
    let fixture = Fixture::with(
        |_, _| panic!("must not be reached"),
        |config| {
            (config.default_origin, config.forward) = (None, true);
            config.targets.allow.clear();
        },
    );
    let port = fixture.origin.address.port();
    for host in ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"] {
        let mut connection = fixture.connect();
        connection.send(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n"));
        let refused = connection.read_response("GET");
        assert_eq!(refused.status, 403, "{host}: {refused:?}");
        assert!(refused.text().contains("not allowed"), "{}", refused.text());
        let mut connection = fixture.connect();
        connection.send(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(connection.read_response("GET").status, 403, "CONNECT {host}");
    }
    assert_eq!(fixture.origin.connections(), 0);
    assert_eq!(fixture.proxy.stats().outcome(Outcome::Denied), 14);
}

#[test]
fn tunnel_carries_bytes_both_ways() {
    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    let echoing = std::thread::spawn(move || {
        let (mut socket, _) = echo.accept().unwrap();
        let mut bytes = [0; 1024];
        loop {
            let count = socket.read(&mut bytes).unwrap();
            if count == 0 {
                return;
            }
            socket.write_all(&bytes[..count]).unwrap();
        }
    });
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.forward = true;
            config.connect_ports.push(port);
        },
    );
    let mut connection = fixture.connect();
    connection.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
    assert_eq!(connection.read_head().status, 200);
    for text in ["one", "two", "three"] {
        connection.send(text);
        assert_eq!(connection.read_exact(text.len()), text.as_bytes());
    }
    assert_eq!(fixture.proxy.stats().connections_open, 1);
    drop(connection);
    echoing.join().unwrap();
    eventually("the tunnel is gone", || fixture.proxy.stats().connections_open == 0);
    assert_eq!(fixture.proxy.stats().outcome(Outcome::Tunnel), 1);
}

#[test]
fn tunnel_to_another_port_is_refused() {
    let fixture = forward(|_, _| Reply::default());
    let mut connection = fixture.connect();
    connection.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", fixture.origin.address));
    let refused = connection.read_response("GET");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("CONNECT ports"), "{}", refused.text());
}

#[test]
fn request_that_comes_round_is_refused() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[], "x"));
    assert_eq!(fixture.get("/", &["Via: 1.1 other, 1.1 larder"]).status, 508);
    assert_eq!(fixture.get("/", &["CDN-Loop: larder"]).status, 508);
    assert_eq!(fixture.get("/", &["Via: 1.1 other"]).status, 200);
}

/// RFC 9111 4.2.3, 5.1: each hop adds to the Age it received.
#[test]
fn proxies_in_a_row_are_no_loop_and_their_ages_add_up() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=1000", "Age: 100"], "x"),
        |config| config.pseudonym = None,
    );
    let outer = Fixture::proxy_to(fixture.proxy.local_addrs()[0], |config| config.pseudonym = None);
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    for expected in ["Larder; fwd=uri-miss", "Larder; hit"] {
        let mut response = Connection::open(outer.local_addrs()[0]).request("GET", "/", &[]);
        eventually("the answer is stored", || {
            let is_there =
                response.fields.iter().any(|(name, value)| name == "cache-status" && value.starts_with(expected));
            if !is_there {
                response = Connection::open(outer.local_addrs()[0]).request("GET", "/", &[]);
            }
            is_there
        });
        let age: u32 = response.field("age").unwrap().parse().unwrap();
        assert!((100..110).contains(&age), "{response:?}");
    }
    assert_eq!(fixture.origin.count(), 1);
    let via = fixture.origin.received()[0].field("via").unwrap().to_owned();
    assert!(via.starts_with("1.1 larder-") && via.len() == "1.1 larder-01234567".len(), "{via}");
}

#[test]
fn options_by_a_uri_without_a_path_is_about_the_server() {
    let fixture = forward(|received, _| Reply::ok(&[], &received.target));
    let origin = format!("http://{}", fixture.origin.address);
    for (method, path, target) in
        [("OPTIONS", "", "*"), ("OPTIONS", "/", "/"), ("OPTIONS", "?a", "/?a"), ("GET", "", "/")]
    {
        let mut connection = fixture.connect();
        connection.send(format!("{method} {origin}{path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(connection.read_response(method).text(), target, "{method} {path}");
    }
}

#[test]
fn expectation_that_nobody_knows_fails() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[], "x"));
    for expected in ["Expect: more", "Expect: 100-continue, more"] {
        assert_eq!(fixture.get("/", &[expected]).status, 417, "{expected}");
    }
    assert_eq!(fixture.get("/", &["Expect: "]).status, 200);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn proxy_never_leads_to_itself() {
    let fixture = forward(|_, _| Reply::ok(&[], "x"));
    let own = fixture.proxy.local_addrs()[0];
    for host in [own.to_string(), format!("localhost:{}", own.port()), format!("0.0.0.0:{}", own.port())] {
        let mut connection = fixture.connect();
        connection.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: x\r\n\r\n"));
        let refused = connection.read_response("GET");
        assert!(matches!(refused.status, 403 | 508), "{host}: {refused:?}");
    }
}

#[test]
fn connection_fields_stay_on_their_connection() {
    let fixture = Fixture::new(|_, _| {
        Reply::ok(
            &[
                "Cache-Control: max-age=60",
                "Connection: X-Hop",
                "X-Hop: 1",
                "Keep-Alive: timeout=5",
                "X-End: 2",
                "Proxy-Authenticate: Basic",
            ],
            "x",
        )
    });
    let request = [
        "Connection: X-Mine",
        "X-Mine: 1",
        "X-Kept: 2",
        "Proxy-Authorization: Basic eDp5",
        "TE: trailers",
        "Keep-Alive: 1",
        "Proxy-Connection: keep-alive",
    ];
    let first = fixture.get("/", &request);
    let second = fixture.get_hit("/", &[]);
    for response in [&first, &second] {
        for name in ["x-hop", "keep-alive", "proxy-authenticate"] {
            assert_eq!(response.field(name), None, "{name}");
        }
        assert_eq!(response.field("x-end"), Some("2"));
        assert_eq!(response.field("via"), Some("1.1 larder"));
    }
    let received = &fixture.origin.received()[0];
    for name in ["x-mine", "proxy-authorization", "te", "keep-alive", "proxy-connection", "connection"] {
        assert_eq!(received.field(name), None, "{name}");
    }
    assert_eq!(received.field("x-kept"), Some("2"));
    assert_eq!(received.field("via"), Some("1.1 larder"));
    assert_eq!(received.field("cdn-loop"), Some("larder"));
    assert_eq!(received.field("host"), Some("site.example"));
}

#[test]
fn ambiguous_requests_are_refused_and_the_connection_closed() {
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: no-store"], "x"));
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG",
    ] {
        let mut connection = fixture.connect();
        connection.send(request);
        let refused = connection.read_response("GET");
        assert_eq!(refused.status, 400, "{request:?}: {refused:?}");
        assert!(connection.is_closed(), "{request:?}");
    }
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn uploads_are_streamed_with_either_framing() {
    let fixture = Fixture::new(|received, _| Reply::ok(&[], &received.body));
    let mut connection = fixture.connect();
    connection.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    assert_eq!(connection.read_response("PUT").text(), "abcde");
    connection.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(connection.read_head().status, 100);
    connection.send(vec![b'z'; 200_000]);
    assert_eq!(connection.read_response("PUT").body, vec![b'z'; 200_000]);
    let received = fixture.origin.received();
    assert_eq!(received[1].field("content-length"), Some("200000"));
}

#[test]
fn origin_form_without_a_site_says_how_to_use_the_proxy() {
    let fixture = forward(|_, _| Reply::default());
    let page = fixture.get("/", &[]);
    assert_eq!(page.status, 400);
    assert!(page.text().contains("http_proxy="), "{}", page.text());
}

#[test]
fn sites_are_told_apart_by_host() {
    let other = Origin::start(|received, _| Reply::ok(&[], format!("other {}", received.target)));
    let url: larder_proxy::OriginUrl = format!("http://{}/base", other.address).parse().unwrap();
    let fixture = Fixture::with(
        |received, _| Reply::ok(&[], format!("default {}", received.target)),
        |config| config.sites.push(Site::of_host("Other.example", std::sync::Arc::new(url.into()))),
    );
    assert_eq!(fixture.get("/x", &[]).text(), "default /x");
    for host in ["other.example", "OTHER.example:80"] {
        let mut connection = fixture.connect();
        connection.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(connection.read_response("GET").text(), "other /base/x");
    }
}

#[test]
fn every_fault_of_an_origin_has_its_name_and_is_told_in_plain_words() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fixture = forward(|received, _| match &*received.target {
        "/closing" => Reply::default().close(),
        "/other" => Reply::default().send("220 mail.example ESMTP\r\n\r\n").close(),
        _ => Reply::head("200 OK", &[&format!("X: {}", "x".repeat(1 << 20))]),
    });
    let origin = fixture.origin.address;
    for (url, origin, error, words) in [
        (format!("http://{closed}/"), closed.to_string(), "connection_refused", "it refuses connections"),
        ("http://a.invalid/".to_owned(), "a.invalid".to_owned(), "dns_error", "its name has no address"),
        (format!("http://{origin}/closing"), origin.to_string(), "connection_terminated", "it closed the connection"),
        (format!("http://{origin}/other"), origin.to_string(), "http_protocol_error", "it does not speak HTTP"),
        (format!("http://{origin}/long"), origin.to_string(), "http_response_header_section_size", "is too long"),
        (format!("https://{origin}/"), origin.to_string(), "tls_protocol_error", "a secure connection failed"),
    ] {
        let mut connection = fixture.connect();
        connection.send(format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let failed = connection.read_response("GET");
        let expected = format!("larder;error={error};next-hop=\"{origin}\"");
        assert_eq!((failed.status, failed.field("proxy-status")), (502, Some(&*expected)), "{url}");
        let text = failed.text();
        assert!(text.starts_with(&format!("no response from {origin}: ")) && text.contains(words), "{text}");
        assert!(!text.contains(['(', '{', '"']), "{text}");
        assert_eq!(failed.field("cache-control"), Some("no-store"));
    }
}

#[test]
fn client_outside_the_allowed_networks_is_refused() {
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"),
        |config| config.clients = vec!["192.0.2.0/24".parse().unwrap()],
    );
    assert_eq!(fixture.get("/", &[]).status, 403);
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn old_clients_get_bodies_they_can_read() {
    let fixture =
        Fixture::new(|_, _| Reply::head("200 OK", &["Transfer-Encoding: chunked"]).send("5\r\nhello\r\n0\r\n\r\n"));
    let mut connection = Connection::open(fixture.proxy.local_addrs()[0]);
    connection.send("GET / HTTP/1.0\r\n\r\n");
    let response = connection.read_response("GET");
    assert_eq!((response.text().as_str(), response.field("transfer-encoding")), ("hello", None));
}

#[test]
fn target_of_connect_is_an_authority_and_nothing_else() {
    let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), |config| config.forward = true);
    for target in ["http://127.0.0.1:443/", "http://127.0.0.1:443", "https://127.0.0.1:443/x"] {
        let mut connection = fixture.connect();
        connection.send(format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n"));
        assert_eq!(connection.read_head().status, 400, "{target}");
    }
}

#[test]
fn addresses_in_other_forms_than_their_own_are_refused_before_any_look_up() {
    let fixture = forward(|_, _| Reply::ok(&[], "x"));
    let port = fixture.origin.address.port();
    for host in ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "[::1%25lo]"] {
        let mut connection = fixture.connect();
        connection.send(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"));
        assert_eq!(connection.read_head().status, 400, "{host}");
        let mut connection = fixture.connect();
        connection.send(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n"));
        assert_eq!(connection.read_head().status, 400, "{host}");
    }
    assert_eq!(fixture.origin.count(), 0);
}
