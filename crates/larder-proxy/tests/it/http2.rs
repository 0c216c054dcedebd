//! HTTP/2 towards clients: every kind of response, and the limits on what a client may request.

use http::{HeaderMap, HeaderValue};
use larder_proxy::{Outcome, ProxyConfig};

use crate::support::{
    Connection, Fixture, Gate, Origin, Received, Reply, eventually,
    http2::{Http2, Sent, head},
    raw_http2::{
        DATA, END_HEADERS, END_STREAM, FrameHead, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, PREFACE, SETTINGS,
        WINDOW_UPDATE, frame, literal, read_frame,
    },
};

fn connect(fixture: &Fixture) -> Http2 {
    Http2::plain(fixture.proxy.local_addrs()[0])
}

fn storable(received: &Received, _: usize) -> Reply {
    Reply::ok(
        &["Cache-Control: max-age=60", "ETag: \"a\"", "Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT"],
        &received.target,
    )
}

#[test]
fn miss_and_hit_from_memory_are_answered() {
    let fixture = Fixture::new(storable);
    let mut client = connect(&fixture);
    let miss = client.get("http://site.example/a", &[]);
    assert_eq!((miss.status, miss.text().as_str()), (200, "/a"));
    assert!(fixture.get_hit("/a", &[]).is_hit());
    let hit = client.get("http://site.example/a", &[]);
    assert!(hit.is_hit(), "{hit:?}");
    assert_eq!((hit.text().as_str(), hit.field("content-length")), ("/a", Some("2")));
    assert_eq!(fixture.origin.count(), 1);
    assert!(fixture.proxy.stats().outcome(Outcome::MemoryHit) >= 1);
}

#[test]
fn hit_from_the_store_range_head_and_conditional_are_answered() {
    let fixture = Fixture::with(storable, |config| config.hot_bytes = 0);
    let target = format!("/stored{}", "-".repeat(1000));
    fixture.get_hit(&target, &[]);
    let mut client = connect(&fixture);
    let url = &format!("http://site.example{target}");
    assert!(client.get(url, &[]).is_hit());
    let part = client.get(url, &[("range", "bytes=1-3")]);
    assert_eq!((part.status, part.text().as_str(), part.field("content-range")), (206, "sto", Some("bytes 1-3/1007")));
    let parts = client.get(url, &[("range", "bytes=0-0,900-904")]);
    assert_eq!(parts.status, 206);
    assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges"));
    assert_eq!(client.get(url, &[("range", "bytes=9000-")]).status, 416);
    let (found, _) = client.request(head("HEAD", url, &[]).body(Sent::default()).unwrap());
    assert_eq!((found.status, found.field("content-length"), found.body.len()), (200, Some("1007"), 0));
    let same = client.get(url, &[("if-none-match", "\"a\"")]);
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn body_of_many_chunks_arrives_whole_and_again_from_the_store() {
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let sent = body.clone();
    let fixture = Fixture::new(move |_, _| Reply::ok(&["Cache-Control: max-age=60"], &sent));
    let mut client = connect(&fixture);
    let first = client.get("http://site.example/big", &[]);
    assert!(first.complete && first.body == body);
    fixture.get_hit("/big", &[]);
    let second = client.get("http://site.example/big", &[]);
    assert!(second.is_hit() && second.complete && second.body == body);
}

#[test]
fn trailers_of_a_shared_response_reach_all_who_wait_for_it_and_are_not_stored() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        let head =
            Reply::head("200 OK", &["Cache-Control: max-age=60", "Transfer-Encoding: chunked", "Trailer: X-Sum"]);
        head.wait(&held).send("2\r\nok\r\n0\r\nX-Sum: 7\r\nConnection: x\r\n\r\n")
    });
    let ask = || {
        let request = head("GET", "http://site.example/", &[]).body(Sent::default()).unwrap();
        connect(&fixture).request(request)
    };
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        eventually("all but one wait", || fixture.proxy.stats().collapsed_requests == 3);
        gate.open();
        for asker in askers {
            let (answer, trailers) = asker.join().unwrap();
            assert_eq!((answer.text().as_str(), answer.complete), ("ok", true));
            assert_eq!(trailers.get("x-sum").map(HeaderValue::as_bytes), Some(&b"7"[..]));
            assert_eq!(trailers.len(), 1, "{trailers:?}");
        }
    });
    assert_eq!(fixture.origin.count(), 1);
    fixture.get_hit("/", &[]);
    let (hit, trailers) = ask();
    assert!(hit.is_hit() && trailers.is_empty(), "{hit:?} {trailers:?}");
}

#[test]
fn post_with_a_body_passes_with_its_answer_and_trailers_both_ways() {
    let fixture = Fixture::new(|_, _| {
        let head = Reply::head("200 OK", &["Transfer-Encoding: chunked", "Trailer: X-Sum"]);
        head.send("2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n")
    });
    let mut client = connect(&fixture);
    let trailers: HeaderMap =
        [(http::HeaderName::from_static("x-up"), HeaderValue::from_static("9"))].into_iter().collect();
    let body = Sent::bytes("hello").with_trailers(trailers);
    let request =
        head("POST", "http://site.example/form", &[("te", "trailers"), ("trailer", "x-up")]).body(body).unwrap();
    let (answer, trailers) = client.request(request);
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    assert_eq!(trailers.get("x-sum").map(HeaderValue::as_bytes), Some(&b"7"[..]));
    let received = fixture.origin.received().remove(0);
    assert_eq!((received.method.as_str(), received.body.as_slice()), ("POST", &b"hello"[..]));
    assert_eq!(received.field("via"), Some("2 larder"));
}

#[test]
fn requests_at_once_on_one_connection_are_all_answered() {
    let fixture = Fixture::new(storable);
    let mut client = connect(&fixture);
    let urls: Vec<String> = (0..300).map(|number| format!("http://site.example/{}", number % 100)).collect();
    for (url, answer) in urls.iter().zip(client.get_all(&urls)) {
        assert!(url.ends_with(&answer.text()) && answer.complete, "{url}: {answer:?}");
    }
    assert_eq!(fixture.origin.count(), 100);
}

#[test]
fn cookie_in_pieces_reaches_the_origin_as_one() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[], ""));
    connect(&fixture).get("http://site.example/", &[("cookie", "a=1"), ("cookie", "b=2")]);
    let received = fixture.origin.received().remove(0);
    let cookies: Vec<_> =
        received.fields.iter().filter(|(name, _)| name == "cookie").map(|(_, value)| value.as_str()).collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

#[test]
fn host_that_is_not_the_authority_is_refused() {
    let fixture = Fixture::new(storable);
    fixture.get_hit("/", &[]);
    let mut client = connect(&fixture);
    let refused = client.get("http://site.example/", &[("host", "other.example")]);
    assert_eq!(refused.status, 400);
    assert_eq!(client.get("http://site.example/", &[("host", "site.example")]).status, 200);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn forward_requests_and_tunnels_are_served() {
    let fixture =
        Fixture::with(storable, |config: &mut ProxyConfig| (config.default_origin, config.forward) = (None, true));
    let other = Origin::start(storable);
    let mut client = connect(&fixture);
    assert_eq!(client.get(&format!("http://{}/there", other.address), &[]).text(), "/there");

    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = echo.accept().unwrap();
        std::io::copy(&mut socket.try_clone().unwrap(), &mut socket)
    });
    let fixture = Fixture::with(storable, |config: &mut ProxyConfig| {
        (config.forward, config.connect_ports) = (true, vec![address.port()]);
    });
    let mut client = connect(&fixture);
    assert_eq!(client.tunnel(&address.to_string(), b"through"), b"through");
    // Other streams of the connection continue.
    assert_eq!(client.get("http://site.example/a", &[]).text(), "/a");
}

#[test]
fn client_that_gives_up_requests_all_the_time_is_cut_off() {
    let fixture = Fixture::with(|_, _| Reply::default(), |config| config.limits.abandoned_count_max = 20);
    let mut client = connect(&fixture);
    let mut given_up = 0;
    eventually("the connection ends", || {
        given_up += 1;
        !client.abandon(&format!("http://site.example/{given_up}"))
    });
    assert!(given_up > 20, "{given_up}");
    // Others are served.
    eventually("it is counted as gone", || fixture.proxy.stats().connections_open == 0);
}

#[test]
fn too_many_fields_and_too_long_heads_are_refused() {
    let fixture = Fixture::new(storable);
    let names: Vec<String> = (0..450).map(|number| format!("x-{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(connect(&fixture).get("http://site.example/", &many).status, 400);
    let long = "x".repeat(70_000);
    assert_eq!(connect(&fixture).get("http://site.example/", &[("x", &long)]).status, 431);
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn preface_that_comes_in_pieces_is_understood_and_another_is_not() {
    let fixture = Fixture::new(storable);
    let mut raw = fixture.connect();
    for piece in ["PRI * HT", "TP/2.0\r\n\r\nSM", "\r\n\r\n"] {
        raw.send(piece);
    }
    // An empty SETTINGS frame, answered by ours.
    raw.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!(raw.read_exact(4)[3], 4);
    let mut other = Connection::open(fixture.proxy.local_addrs()[0]);
    other.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    assert!(other.try_read_head().is_none_or(|head| head.status >= 400));
}

#[test]
fn idle_connection_is_told_and_closed_though_it_pings() {
    let fixture = Fixture::with(storable, |config| {
        config.limits.idle = std::time::Duration::from_secs(1);
        // Without this limit, the following would also count as a flood.
        config.limits.control_count_max = u32::MAX;
    });
    let mut raw = fixture.connect();
    raw.send(PREFACE);
    raw.send(frame(SETTINGS, 0, 0, &[]));
    let mut kinds = Vec::new();
    // A PING follows every frame, so that a response always arrives.
    while let Ok((frame, _)) = read_frame(&mut raw.reader) {
        kinds.push(frame.kind);
        let _ = std::io::Write::write_all(raw.reader.get_mut(), &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    eventually("it is counted as gone", || fixture.proxy.stats().connections_open == 0);
}

/// Guards against gathered output that is lost, repeated, or never sent after the socket was full.
#[test]
fn responses_at_once_arrive_whole_though_the_socket_is_full_in_between() {
    let reply = |received: &Received, _: usize| Reply::ok(&["Cache-Control: max-age=60"], received.target.repeat(5000));
    let fixture = Fixture::with(reply, |config| config.limits.stream_count_max = 300);
    let paths: Vec<String> = (0..300).map(|number| format!("/{}", 10 + number % 20)).collect();
    for path in &paths[..20] {
        fixture.get_hit(path, &[]);
    }
    let mut raw = fixture.connect();
    socket2::SockRef::from(raw.reader.get_ref()).set_recv_buffer_size(64 << 10).unwrap();
    raw.send(PREFACE);
    // Only the socket limits the output: the windows are 1 MiB for each stream, and 16 MiB for the connection.
    let setting = [&[0, INITIAL_WINDOW_SIZE][..], &(1_u32 << 20).to_be_bytes()].concat();
    raw.send(frame(SETTINGS, 0, 0, &setting));
    raw.send(frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes()));
    for (number, path) in paths.iter().enumerate() {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "site.example"), (":path", path)];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        raw.send(frame(HEADERS, END_HEADERS | END_STREAM, number as u32 * 2 + 1, &block));
    }
    let mut bodies = vec![Vec::new(); paths.len()];
    let mut missing = paths.len();
    while missing > 0 {
        let (FrameHead { kind, flags, stream }, payload) = read_frame(&mut raw.reader).unwrap();
        if kind == DATA {
            bodies[(stream as usize - 1) / 2].extend(payload);
            missing -= usize::from(flags & END_STREAM != 0);
        }
    }
    for (path, body) in paths.iter().zip(bodies) {
        assert!(body == path.repeat(5000).as_bytes(), "{path}: {} bytes", body.len());
    }
}

#[test]
fn connection_that_begins_with_no_request_is_closed_without_an_answer() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[], "x"));
    for (line, is_answered) in
        [("INVALID CONNECTION PREFACE", false), ("GET / HTTQ/1.1", true), ("GET x HTTP/1.1", true)]
    {
        let mut connection = fixture.connect();
        connection.send(format!("{line}\r\n\r\n"));
        let status = connection.try_read_head_or_end().map(|response| response.status);
        assert_eq!(status, is_answered.then_some(400), "{line}");
    }
    assert_eq!(fixture.origin.count(), 0);
}

/// RFC 9113 8.2.1, 8.1.1: the request is malformed, which is an error of its stream, not of the connection.
#[test]
fn request_with_white_space_around_a_value_is_reset() {
    let fixture = Fixture::new(storable);
    let mut client = connect(&fixture);
    for value in [" x", "x ", "\tx", "x\t", " "] {
        let request = head("GET", "http://site.example/", &[("x-test", value)]).body(Sent::default()).unwrap();
        assert_eq!(client.reset_of(request), Some(h2::Reason::PROTOCOL_ERROR), "{value:?}");
    }
    assert_eq!(client.get("http://site.example/", &[("x-test", "x y")]).status, 200);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn interim_response_of_an_origin_of_http1_reaches_the_client_before_the_final_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        let hints = Reply::head("103 Early Hints", &["Link: </a.css>; rel=preload", "Connection: X-Hop", "X-Hop: 1"]);
        hints.wait(&held).send("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\n\r\nhello")
    });
    let ask = || head("GET", "http://site.example/", &[]).body(Sent::default()).unwrap();
    let (status, fields) = connect(&fixture).interim_of(ask());
    assert_eq!((status.as_u16(), fields.get("link")), (103, Some(&HeaderValue::from_static("</a.css>; rel=preload"))));
    assert_eq!((fields.contains_key("x-hop"), fields.contains_key("connection")), (false, false));
    gate.open();
    let (interim, last, _) = connect(&fixture).request_with_interim(ask());
    assert_eq!((interim.len(), last.text().as_str(), last.field("link")), (1, "hello", None));
}

/// RFC 9110 10.1.1.
#[test]
fn body_that_waits_for_a_100_is_asked_for_when_the_origin_wants_it() {
    let fixture = Fixture::new(|received, _| {
        assert_eq!(received.field("expect"), Some("100-continue"));
        Reply::ok(&[], "taken")
    });
    let put = |body: Sent| {
        let fields = [("expect", "100-continue"), ("content-length", "5")];
        head("PUT", "http://site.example/", &fields).body(body).unwrap()
    };
    let (status, _) = connect(&fixture).interim_of(put(Sent::default().without_end()));
    assert_eq!(status, 100);
    assert_eq!(connect(&fixture).request(put(Sent::bytes("hello"))).0.text(), "taken");
}

/// Returns an origin's acceptance of a WebSocket (RFC 6455 4.2.2).
fn accepted(received: &Received) -> String {
    let key = received.field("sec-websocket-key").unwrap().to_owned() + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, digest)
}

/// RFC 8441.
#[test]
fn websocket_passes_from_an_extended_connect_to_an_upgrade_and_back() {
    let fixture = Fixture::new(|received, _| {
        if received.target == "/plain" {
            return Reply::ok(&["Cache-Control: max-age=60"], "/plain");
        }
        assert_eq!((received.method.as_str(), received.target.as_str()), ("GET", "/chat?room=1"));
        assert_eq!((received.field("upgrade"), received.field("connection")), (Some("websocket"), Some("upgrade")));
        assert_eq!(received.field("sec-websocket-version"), Some("13"));
        assert_eq!((received.field("transfer-encoding"), received.field("content-length")), (None, None));
        let accept = format!("Sec-WebSocket-Accept: {}", accepted(received));
        let fields = ["Connection: Upgrade", "Upgrade: websocket", &accept, "Sec-WebSocket-Protocol: chat"];
        Reply::head("101 Switching Protocols", &fields).send("hello").echo()
    });
    let mut client = connect(&fixture);
    assert_eq!(client.get("http://site.example/plain", &[]).text(), "/plain");
    let fields = [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")];
    let (opened, mut tunnel) = client.open_protocol("websocket", "http://site.example/chat?room=1", &fields);
    assert_eq!((opened.status, opened.field("sec-websocket-protocol")), (200, Some("chat")));
    for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
        assert_eq!(opened.field(name), None, "{name}");
    }
    assert_eq!(tunnel.read(5), b"hello");
    // More than the windows take at once.
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    tunnel.send(&bytes);
    assert!(tunnel.read(bytes.len()) == bytes);
    tunnel.end();
    assert_eq!(tunnel.read(1), b"", "the origin's end is the stream's");
    assert!(client.get("http://site.example/plain", &[]).is_hit());
}

#[test]
fn origin_that_does_not_switch_opens_no_stream_for_another_protocol() {
    let fixture = Fixture::new(|received, _| match received.target.as_str() {
        "/denied" => Reply::status("403 Forbidden", &[], "no"),
        "/page" => Reply::ok(&[], "a page"),
        _ => Reply::head("101 Switching Protocols", &["Upgrade: websocket", "Sec-WebSocket-Accept: x"]).echo(),
    });
    let mut client = connect(&fixture);
    for (target, status) in [("/denied", 403), ("/page", 502), ("/wrong", 502)] {
        let (answer, _) = client.open_protocol("websocket", &format!("http://site.example{target}"), &[]);
        assert_eq!(answer.status, status, "{target}");
    }
    let (answer, _) = client.open_protocol("websocket", "http://site.example/", &[("sec-websocket-version", "8")]);
    assert_eq!(answer.status, 426);
    assert_eq!(fixture.origin.count(), 3);
}

/// RFC 9218.
#[test]
fn more_urgent_response_ends_before_a_less_urgent_one_is_half_sent() {
    const LEN: usize = 1 << 20;
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: max-age=60"], vec![7; LEN]));
    for target in ["/first", "/second"] {
        fixture.get_hit(target, &[]);
    }
    let ask = |target: &str, priority| {
        let url = format!("http://site.example{target}");
        head("GET", &url, &[("priority", priority)]).body(Sent::default()).unwrap()
    };
    let received = connect(&fixture).race([ask("/first", "u=0"), ask("/second", "u=7")]);
    assert!(received < LEN / 2, "{received}");
    // The window of the more urgent stream stays shut, because nobody reads its body.
    let mut client = Http2::with_wide_connection(fixture.proxy.local_addrs()[0]);
    let _unread = client.leave_unread(ask("/first", "u=0"));
    assert_eq!(client.request(ask("/second", "u=7")).0.body.len(), LEN);
}
