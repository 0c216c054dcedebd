//! Fields of one connection, and fields that come back from the cache (RFC 9111 3.1, RFC 9110 7.6.1).

use http::Method;
use larder_http::fields::{count_down, strip_hop_by_hop};

use crate::support::{Response, fields};

#[test]
fn fields_of_the_connection_are_neither_passed_on_nor_stored() {
    let lines = "Cache-Control: max-age=60\nConnection: close, X-Hop ,x-other\nX-Hop: 1\nX-Other: 2\nX-End: 3\n\
                 Keep-Alive: timeout=5\nProxy-Authenticate: Basic\nProxy-Authentication-Info: a\n\
                 Proxy-Authorization: b\nProxy-Connection: close\nTE: trailers\nTransfer-Encoding: chunked\nUpgrade: x";
    let response = Response::new(lines);
    assert!(response.is_reused(3));
    let mut passed_on = response.fields.clone();
    strip_hop_by_hop(&mut passed_on);
    for kept in [passed_on, response.head().fields().to_map()] {
        let mut names: Vec<_> = kept.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["cache-control", "date", "x-end"]);
    }
}

#[test]
fn max_forwards_of_trace_and_options_is_counted_down() {
    for (method, lines, goes_on, left) in [
        (Method::TRACE, "Max-Forwards: 5", true, Some("4")),
        (Method::OPTIONS, "Max-Forwards: 1", true, Some("0")),
        (Method::OPTIONS, "Max-Forwards: 0", false, Some("0")),
        (Method::TRACE, "Max-Forwards: 000", false, Some("000")),
        (Method::TRACE, "", true, None),
        (Method::TRACE, "Max-Forwards: -1", true, Some("-1")),
        (Method::TRACE, "Max-Forwards: 99999999999999999999999", true, Some("18446744073709551614")),
        (Method::OPTIONS, "Max-Forwards: 0\nMax-Forwards: 0", true, Some("0")),
        (Method::GET, "Max-Forwards: 0", true, Some("0")),
    ] {
        let mut fields = fields(lines);
        assert_eq!(count_down(&method, &mut fields), goes_on, "{method} {lines}");
        assert_eq!(fields.get("max-forwards").map(|value| value.to_str().unwrap()), left, "{method} {lines}");
    }
}

#[test]
fn every_line_of_connection_counts() {
    let mut fields = fields("Connection: X-A\nConnection: X-B, not a name\nX-A: 1\nX-B: 2");
    strip_hop_by_hop(&mut fields);
    assert!(fields.is_empty(), "{fields:?}");
}

#[test]
fn connection_cannot_remove_what_framing_routing_and_loop_detection_rest_on() {
    let mut fields =
        fields("Connection: Host, Content-Length, Via, CDN-Loop\nHost: a\nContent-Length: 3\nVia: 1.1 a\nCDN-Loop: a");
    strip_hop_by_hop(&mut fields);
    assert_eq!(fields.len(), 4);
}

#[test]
fn end_to_end_fields_come_back_as_received() {
    let names = [
        "Test-Unknown",
        "X-Test",
        "Content-Foo",
        "Cache-Control",
        "Content-Encoding",
        "Content-Location",
        "Content-MD5",
        "Content-Range",
        "Content-Security-Policy",
        "Content-Type",
        "Clear-Site-Data",
        "ETag",
        "Expires",
        "Public-Key-Pins",
        "Set-Cookie",
        "Set-Cookie2",
        "X-Frame-Options",
        "X-XSS-Protection",
    ];
    for name in names {
        let head = Response::new(&format!("{name}: some \"value, as=received")).head();
        assert_eq!(head.fields().to_map()[name], "some \"value, as=received", "{name}");
    }
    let head = Response::new("X-A: 1\nX-A: 2").head();
    assert_eq!(head.fields().to_map().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
}
