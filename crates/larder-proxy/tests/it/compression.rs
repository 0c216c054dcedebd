//! Content codings towards clients: the origin's bytes are stored, and each client receives a form that it accepts,
//! with matching validators and ranges.

use std::io::Read as _;

use larder_http::coding::{Compression, ContentCoding};
use larder_proxy::ProxyConfig;

use crate::support::{Fixture, Gate, Received, Reply, Response, http2::Http2};

fn text() -> String {
    "some text that repeats itself, ".repeat(200)
}

fn compressing(config: &mut ProxyConfig) {
    config.policy.cache.http.compression =
        Compression { codings: ContentCoding::ALL.to_vec(), types: vec!["text/*".into()], size_min: 100 };
}

const HTML: &[&str] = &["Content-Type: text/html", "Cache-Control: max-age=60", "ETag: \"a\""];

fn html(_: &Received, _: usize) -> Reply {
    Reply::ok(HTML, text())
}

fn decoded(response: &Response) -> String {
    let mut out = String::new();
    let body = response.body.as_slice();
    match response.field("content-encoding") {
        Some("zstd") => drop(zstd::Decoder::new(body).unwrap().read_to_string(&mut out).unwrap()),
        Some("br") => drop(brotli::Decompressor::new(body, 4096).read_to_string(&mut out).unwrap()),
        Some("gzip") => drop(flate2::read::GzDecoder::new(body).read_to_string(&mut out).unwrap()),
        _ => out = response.text(),
    }
    out
}

#[test]
fn each_client_gets_what_it_accepts_of_one_stored_response() {
    let fixture = Fixture::with(html, compressing);
    fixture.get_hit("/", &[]);
    for (accepted, coding) in
        [("gzip, br, zstd", "zstd"), ("gzip, br", "br"), ("gzip", "gzip"), ("gzip;q=0", "-"), ("", "-")]
    {
        let response = fixture.get("/", &[&format!("Accept-Encoding: {accepted}")]);
        assert!(response.is_hit() && response.complete, "{accepted}");
        assert_eq!(response.field("content-encoding").unwrap_or("-"), coding, "{accepted}");
        assert_eq!(decoded(&response), text(), "{accepted}");
        assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{accepted}");
        let tag = if coding == "-" { "\"a\"" } else { "W/\"a\"" };
        assert_eq!(response.field("etag"), Some(tag), "{accepted}");
        assert!(coding == "-" || response.body.len() * 4 < text().len(), "{accepted}: {}", response.body.len());
    }
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn encoded_form_is_confirmed_and_its_parts_are_of_what_is_stored() {
    let fixture = Fixture::with(html, compressing);
    fixture.get_hit("/", &[]);
    let confirmed = fixture.get("/", &["Accept-Encoding: gzip", "If-None-Match: W/\"a\""]);
    assert_eq!((confirmed.status, confirmed.field("etag")), (304, Some("W/\"a\"")));
    let plain = fixture.get("/", &["If-None-Match: \"a\""]);
    assert_eq!((plain.status, plain.field("etag")), (304, Some("\"a\"")));
    let part = fixture.get("/", &["Accept-Encoding: gzip", "Range: bytes=5-8"]);
    assert_eq!((part.status, part.field("content-encoding"), part.text().as_str()), (206, None, "text"));
    let whole = fixture.get("/", &["Accept-Encoding: gzip", "Range: bytes=5-8", "If-Range: W/\"a\""]);
    assert_eq!((whole.status, whole.field("content-encoding")), (200, Some("gzip")), "a weak tag has no parts");
    let head = fixture.connect().request("HEAD", "/", &["Accept-Encoding: gzip"]);
    assert_eq!((head.field("content-encoding"), head.field("content-length")), (Some("gzip"), None));
}

#[test]
fn what_may_not_be_changed_passes_as_it_is() {
    let lines: [&'static [&'static str]; 3] = [
        &["Content-Type: image/png"],
        &["Content-Type: text/html", "Cache-Control: no-transform"],
        &["Content-Type: text/html", "Content-Encoding: x-own"],
    ];
    let fixture = Fixture::with(
        move |received, _| Reply::ok(lines[usize::from(received.target.as_bytes()[1] - b'0')], text()),
        compressing,
    );
    for number in 0..3 {
        let response = fixture.get(&format!("/{number}"), &["Accept-Encoding: gzip"]);
        assert_ne!(response.field("content-encoding"), Some("gzip"), "{number}");
        assert_eq!(response.text(), text(), "{number}");
    }
    let fixture = Fixture::with(html, compressing);
    let response = fixture.get("/", &["Accept-Encoding: gzip", "Cache-Control: no-transform"]);
    assert_eq!(response.field("content-encoding"), None);
    let off = Fixture::with(html, |_| {});
    let response = off.get("/", &["Accept-Encoding: gzip"]);
    assert_eq!((response.field("content-encoding"), response.field("vary")), (None, None));
}

#[test]
fn what_has_come_of_a_body_is_not_held_back() {
    let gate = Gate::default();
    let held = gate.clone();
    let handle = move |_: &Received, _| {
        let head = Reply::head("200 OK", &["Content-Type: text/plain", "Content-Length: 2000"]);
        head.send("a".repeat(1000)).wait(&held).send("b".repeat(1000))
    };
    let fixture = Fixture::with(handle, compressing);
    let mut connection = fixture.connect();
    connection.send("GET / HTTP/1.1\r\nHost: site.example\r\nAccept-Encoding: gzip\r\n\r\n");
    let head = connection.read_head();
    assert_eq!(head.field("content-encoding"), Some("gzip"));
    let mut size = String::new();
    std::io::BufRead::read_line(&mut connection.reader, &mut size).unwrap();
    assert_ne!(size.trim(), "0", "something comes before the gate opens");
    gate.open();
}

#[test]
fn long_body_is_encoded_from_the_origin_and_from_the_store() {
    let long: String = (0..600_000_u32).map(|number| format!("{number} ")).collect();
    let body = long.clone();
    let handle =
        move |_: &Received, _| Reply::ok(&["Content-Type: text/plain", "Cache-Control: max-age=60"], body.clone());
    let fixture = Fixture::with(handle, compressing);
    for coding in ["zstd", "br", "gzip"] {
        let accepts = format!("Accept-Encoding: {coding}");
        for response in [fixture.get("/", &[&accepts]), fixture.get_hit("/", &[&accepts])] {
            assert_eq!((response.field("content-encoding"), response.complete), (Some(coding), true));
            assert!(response.body.len() * 2 < long.len(), "{coding}: {}", response.body.len());
            assert!(decoded(&response) == long, "{coding}");
        }
    }
    assert_eq!(fixture.origin.count(), 1, "one form is stored");
}

#[test]
fn client_of_http10_gets_what_is_stored() {
    let fixture = Fixture::with(html, compressing);
    let mut connection = fixture.connect();
    connection.send("GET / HTTP/1.0\r\nHost: site.example\r\nAccept-Encoding: gzip\r\n\r\n");
    let response = connection.read_response("GET");
    assert_eq!((response.field("content-encoding"), response.field("vary")), (None, Some("Accept-Encoding")));
    assert_eq!(response.text(), text());
}

#[test]
fn client_of_http2_gets_what_it_accepts() {
    let fixture = Fixture::with(html, compressing);
    let mut http2 = Http2::plain(fixture.proxy.local_addrs()[0]);
    for _ in 0..2 {
        let response = http2.get("http://site.example/", &[("accept-encoding", "zstd, gzip")]);
        assert_eq!(response.field("content-encoding"), Some("zstd"));
        assert_eq!(decoded(&response), text());
    }
}
