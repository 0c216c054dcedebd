//! HTTP/2 towards origins: by ALPN and by prior knowledge, shared by requests, and repeated requests.

use std::{io::Write as _, net::TcpListener, time::Duration};

use http::HeaderValue;
use larder_proxy::ProxyConfig;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
};

use crate::support::{
    Fixture, Reply,
    certificates::Made,
    gate::PATIENCE,
    http2::{Http2, Sent, head},
    http2_origin::{Deed, Http2Origin},
    raw_http2::{self as raw, read_frame},
    request_text,
};

/// Starts a proxy with one worker in front of an HTTP/2 origin that it contacts by prior knowledge.
fn fixture(deed: impl Fn(usize) -> Deed + Send + Sync + 'static) -> (Fixture, Http2Origin) {
    let origin = Http2Origin::start(None, deed);
    let url = format!("h2c://{}", origin.address).parse().unwrap();
    let change = |config: &mut ProxyConfig| {
        config.default_origin = Some(url);
        config.worker_count = 1;
        config.policy.limits.origin_response = Duration::from_secs(1);
    };
    (Fixture::with(|_, _| Reply::default(), change), origin)
}

#[test]
fn requests_share_a_connection_and_say_what_the_client_meant() {
    let (fixture, origin) = fixture(|_| Deed::Answer);
    assert_eq!(fixture.get("/a?b", &["X-One: 1"]).text(), "/a");
    for number in 0..20 {
        assert_eq!(fixture.get(&format!("/{number}"), &[]).text(), format!("/{number}"));
    }
    assert_eq!(origin.connections(), 1);
    let (first, fields, _) = origin.received().remove(0);
    assert_eq!(first, "GET http://site.example/a?b");
    assert_eq!(fields.get("x-one"), Some(&HeaderValue::from_static("1")));
    assert!(!fields.contains_key("host") && fields.contains_key("via"));
    assert!(fixture.get_hit("/a?b", &[]).is_hit());
}

#[test]
fn body_and_trailers_pass_from_end_to_end() {
    let (fixture, origin) = fixture(|_| Deed::Answer);
    let mut client = Http2::plain(fixture.proxy.local_addrs()[0]);
    let body = vec![b'x'; 3_000_000];
    let (answer, trailers) =
        client.request(head("POST", "http://site.example/up", &[]).body(Sent::bytes(body.clone())).unwrap());
    assert_eq!(answer.text(), "/up");
    assert_eq!(trailers.get("x-sum"), Some(&HeaderValue::from_static("7")));
    assert!(origin.received()[0].2 == body);
    // The same from a client of HTTP/1.1, in chunks.
    let mut old = fixture.connect();
    old.send("POST /chunks HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
    assert_eq!(old.read_response("POST").text(), "/chunks");
    assert_eq!(origin.received()[1].2, "hi");
}

#[test]
fn trailers_name_no_field_with_an_underscore_and_no_user() {
    let (fixture, origin) = fixture(|_| Deed::Answer);
    let names = ["x_forwarded_host", "remote-user", "x-good"];
    let trailers = names.map(|name| (name.parse().unwrap(), HeaderValue::from_static("1"))).into_iter().collect();
    let body = Sent::bytes("x").with_trailers(trailers);
    let request = head("POST", "http://site.example/up", &[("te", "trailers")]).body(body).unwrap();
    assert_eq!(Http2::plain(fixture.proxy.local_addrs()[0]).request(request).0.text(), "/up");
    assert_eq!(origin.trailers().keys().collect::<Vec<_>>(), ["x-good"]);
}

#[test]
fn refused_streams_are_sent_again_once_and_not_with_a_body() {
    let (refusing, origin) = fixture(|number| if number % 2 == 0 { Deed::Refuse } else { Deed::Answer });
    assert_eq!(refusing.get("/a", &[]).text(), "/a");
    assert_eq!(origin.received().len(), 2);
    let mut posting = refusing.connect();
    posting.send("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(posting.read_response("POST").status, 502);
    assert_eq!(origin.received().len(), 3);
    let (always, origin) = fixture(|_| Deed::Refuse);
    assert_eq!(always.get("/a", &[]).status, 502);
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn origin_that_goes_away_is_connected_to_again() {
    let (fixture, origin) = fixture(|number| if number == 1 { Deed::GoAway } else { Deed::Answer });
    for target in ["/a", "/b", "/c"] {
        assert_eq!(fixture.get(target, &[]).text(), target);
    }
    assert_eq!((origin.connections(), origin.received().len()), (2, 4));
}

#[test]
fn silent_stream_ends_alone() {
    let (fixture, origin) = fixture(|number| if number == 0 { Deed::Ignore } else { Deed::Answer });
    let mut silent = fixture.connect();
    silent.send("GET /silent HTTP/1.1\r\nHost: site.example\r\n\r\n");
    crate::support::eventually("it is asked for", || !origin.received().is_empty());
    assert_eq!(fixture.get("/b", &[]).text(), "/b");
    assert_eq!(silent.read_response("GET").status, 504);
}

#[test]
fn origin_over_tls_is_spoken_to_as_it_offers() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "origin", &["localhost"]);
    let key = PrivateKeyDer::from_pem_file(&made.identity.key).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![made.der.clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let origin = Http2Origin::start(Some(config), |_| Deed::Answer);
    let url = format!("https://localhost:{}", origin.address.port()).parse().unwrap();
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.default_origin = Some(url);
            config.origin_ca_file = Some(made.identity.certificate.clone());
        },
    );
    assert_eq!(fixture.get("/secure", &[]).text(), "/secure");
    // The request has the origin's own name, because the origin must know which resource is requested.
    assert_eq!(origin.received()[0].0, format!("GET https://localhost:{}/secure", origin.address.port()));
}

#[test]
fn interim_responses_reach_clients_of_both_versions_before_the_final_one() {
    let (fixture, origin) = fixture(|_| Deed::Hint);
    let (interim, last) = fixture.connect().request_with_interim("GET", "/one", &[]);
    let hints: Vec<_> = interim.iter().map(|hint| (hint.status, hint.field("link"))).collect();
    assert_eq!((hints, last.text().as_str()), (vec![(103, Some("</a.css>; rel=preload"))], "/one"));
    let mut client = Http2::plain(fixture.proxy.local_addrs()[0]);
    let request = head("GET", "http://site.example/two", &[]).body(Sent::default()).unwrap();
    let (interim, last, _) = client.request_with_interim(request);
    let hints: Vec<_> = interim.iter().map(|(status, fields)| (status.as_u16(), fields.get("link"))).collect();
    assert_eq!(hints, [(103, Some(&HeaderValue::from_static("</a.css>; rel=preload")))]);
    assert_eq!((last.text().as_str(), last.field("link")), ("/two", None));
    assert!(fixture.get_hit("/two", &[]).is_hit());
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn client_that_expects_a_100_is_asked_for_its_body_at_once() {
    let (fixture, origin) = fixture(|_| Deed::Answer);
    let mut client = fixture.connect();
    client.send("PUT /up HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_head().status, 100);
    client.send("hello");
    assert_eq!(client.read_response("PUT").text(), "/up");
    let (_, fields, body) = origin.received().remove(0);
    assert_eq!((fields.get("expect"), &body[..]), (None, &b"hello"[..]));
}

/// RFC 9113 6.8: streams above the last one that a GOAWAY names were not processed.
#[test]
fn request_that_a_goaway_excludes_is_sent_again_on_another_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("h2c://{}", listener.local_addr().unwrap()).parse().unwrap();
    let origin = std::thread::spawn(move || {
        for number in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            std::io::Read::read_exact(&mut socket, &mut [0; raw::PREFACE.len()]).unwrap();
            socket.write_all(&raw::frame(raw::SETTINGS, 0, 0, &[])).unwrap();
            let stream = loop {
                let (head, _) = read_frame(&mut socket).unwrap();
                if head.kind == raw::HEADERS {
                    break head.stream;
                }
            };
            if number == 0 {
                socket.write_all(&raw::frame(raw::GOAWAY, 0, 0, &[0; 8])).unwrap();
                continue;
            }
            let block = raw::literal(":status", "200");
            socket.write_all(&raw::frame(raw::HEADERS, raw::END_HEADERS, stream, &block)).unwrap();
            socket.write_all(&raw::frame(raw::DATA, raw::END_STREAM, stream, b"again")).unwrap();
            // Until the proxy has read it.
            while read_frame(&mut socket).is_ok_and(|(head, _)| head.kind != raw::GOAWAY) {}
        }
    });
    let fixture = Fixture::with(|_, _| Reply::default(), |config| config.default_origin = Some(url));
    let mut client = fixture.connect();
    let answer = client.request("POST", "/order", &["Content-Length: 0"]);
    assert_eq!((answer.status, answer.text().as_str()), (200, "again"));
    drop(fixture);
    origin.join().unwrap();
}

/// RFC 8441.
#[test]
fn websocket_passes_to_an_origin_of_http2_from_clients_of_both_versions() {
    let (fixture, origin) = fixture(|_| Deed::Echo);
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut client = Http2::plain(fixture.proxy.local_addrs()[0]);
    let fields = [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")];
    let (opened, mut tunnel) = client.open_protocol("websocket", "http://site.example/chat?room=1", &fields);
    assert_eq!((opened.status, opened.field("sec-websocket-accept")), (200, None));
    tunnel.send(&bytes);
    assert!(tunnel.read(bytes.len()) == bytes);
    tunnel.end();
    assert_eq!(tunnel.read(1), b"", "the origin's end is the stream's");
    let ask = [
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==",
    ];
    let mut old = fixture.connect();
    old.send(request_text("GET", "/chat", &ask));
    let head = old.read_head();
    assert_eq!((head.status, head.field("upgrade")), (101, Some("websocket")));
    assert_eq!(head.field("sec-websocket-accept"), Some("HSmrc0sMlYUkAGmm5OPpG2HaGWk="));
    old.send(b"hello");
    assert_eq!(old.read_exact(5), b"hello");
    let denied = fixture.get("/denied", &ask);
    assert_eq!((denied.status, denied.text().as_str()), (403, "no"));
    assert_eq!(origin.connections(), 1);
    for (first, fields, _) in origin.received() {
        assert!(first.starts_with("CONNECT http://site.example/"), "{first}");
        assert_eq!(fields.get("sec-websocket-version"), Some(&HeaderValue::from_static("13")));
        assert!(["upgrade", "connection", "sec-websocket-key"].iter().all(|name| !fields.contains_key(*name)));
    }
}

#[test]
fn origin_of_http2_whose_settings_permit_no_other_protocol_is_not_asked_for_one_that_way() {
    let (fixture, origin) = fixture(|_| Deed::Answer);
    let ask = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="];
    assert_eq!(fixture.get("/chat", &ask).status, 502, "it speaks no HTTP/1.1");
    assert_eq!(origin.received().len(), 0);
    assert_eq!(fixture.get("/a", &[]).text(), "/a");
}
