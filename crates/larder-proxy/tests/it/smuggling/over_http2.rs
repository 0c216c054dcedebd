//! HTTP/2 requests that would be ambiguous when forwarded over HTTP/1.1 (RFC 9113 8.2, 8.3, 10.3).

use super::recording::Recording;
use crate::support::{
    Fixture,
    raw_http2::{Outcome, RawHttp2},
};

type Fields = &'static [(&'static str, &'static str)];

/// Changes to a POST of `/`: replaced pseudo-fields, then added fields, then the body.
type Case = (&'static str, Fields, Fields, &'static str);

/// Requests that must all be refused, with 400 or with a reset by the HTTP library.
const REFUSED: &[Case] = &[
    ("transfer-encoding", &[], &[("transfer-encoding", "chunked")], "0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"),
    ("transfer-encoding in upper case", &[], &[("Transfer-Encoding", "chunked")], "0\r\n\r\n"),
    ("transfer-encoding, another", &[], &[("transfer-encoding", "identity")], "abc"),
    ("length of 0 and a body", &[], &[("content-length", "0")], "GET /x HTTP/1.1\r\n\r\n"),
    ("length too short", &[], &[("content-length", "3")], "abcdef"),
    ("length too long", &[], &[("content-length", "9")], "abcdef"),
    ("length and no body", &[], &[("content-length", "9")], ""),
    ("two lengths", &[], &[("content-length", "3"), ("content-length", "6")], "abcdef"),
    ("length that is no number", &[], &[("content-length", "6x")], "abcdef"),
    ("length with a sign", &[], &[("content-length", "+6")], "abcdef"),
    ("value with CR and LF", &[], &[("x-a", "b\r\ntransfer-encoding: chunked")], "0\r\n\r\n"),
    ("value with LF", &[], &[("x-a", "b\nx-b: c")], ""),
    ("value with CR", &[], &[("x-a", "b\rx-b: c")], ""),
    ("value with NUL", &[], &[("x-a", "b\0c")], ""),
    ("value that splits the request", &[], &[("x-a", "b\r\n\r\nGET /x HTTP/1.1\r\nhost: a")], ""),
    ("value with a space in front", &[], &[("x-a", " b")], ""),
    ("name with CR and LF", &[], &[("x-a: b\r\nx-b", "c")], ""),
    ("name with a colon", &[], &[("x-a:", "c")], ""),
    ("name with a space", &[], &[("x-a ", "c")], ""),
    ("name in upper case", &[], &[("X-A", "c")], ""),
    ("name that is empty", &[], &[("", "c")], ""),
    ("connection", &[], &[("connection", "close")], ""),
    ("connection that names a field", &[], &[("connection", "content-length")], "abc"),
    ("keep-alive", &[], &[("keep-alive", "1")], ""),
    ("proxy-connection", &[], &[("proxy-connection", "close")], ""),
    ("upgrade", &[], &[("upgrade", "h2c")], ""),
    ("te", &[], &[("te", "chunked")], ""),
    ("method with a request line", &[(":method", "GET /x HTTP/1.1\r\nhost: a\r\n\r\nGET")], &[], ""),
    ("method with a space", &[(":method", "GET /x")], &[], ""),
    ("method that is empty", &[(":method", "")], &[], ""),
    ("path with a request line", &[(":path", "/ HTTP/1.1\r\nhost: a\r\n\r\nGET /x")], &[], ""),
    ("path with a space", &[(":path", "/ HTTP/1.1")], &[], ""),
    ("path with a control character", &[(":path", "/\u{1}")], &[], ""),
    ("path that is empty", &[(":path", "")], &[], ""),
    ("path in absolute form", &[(":path", "http://b/x")], &[], ""),
    ("path that is an authority", &[(":path", "b:80")], &[], ""),
    ("scheme with a request line", &[(":scheme", "http://b/x HTTP/1.1\r\n\r\n")], &[], ""),
    ("scheme with an authority", &[(":scheme", "http://b")], &[], ""),
    ("scheme of another protocol", &[(":scheme", "ftp")], &[], ""),
    ("authority with CR and LF", &[(":authority", "a\r\nx-a: b")], &[], ""),
    ("authority with a path", &[(":authority", "a/x")], &[], ""),
    ("authority with a user", &[(":authority", "u@a")], &[], ""),
    ("authority with a space", &[(":authority", "a b")], &[], ""),
    ("authority with a port that is no number", &[(":authority", "a:b")], &[], ""),
    ("host that is another", &[], &[("host", "b")], ""),
    ("two hosts", &[], &[("host", "a"), ("host", "a")], ""),
    ("two hosts and no authority", &[(":authority", "-")], &[("host", "a"), ("host", "b")], ""),
    ("neither host nor authority", &[(":authority", "-")], &[], ""),
    ("two paths", &[], &[(":path", "/x")], ""),
    ("two methods", &[], &[(":method", "GET")], ""),
    ("no path", &[(":path", "-")], &[], ""),
    ("no method", &[(":method", "-")], &[], ""),
    ("no scheme", &[(":scheme", "-")], &[], ""),
    ("a pseudo-field of a response", &[], &[(":status", "200")], ""),
    ("a pseudo-field that there is none", &[], &[(":x", "y")], ""),
    ("a pseudo-field behind a field", &[(":path", "-")], &[("x-a", "b"), (":path", "/x")], ""),
];

/// These are sent on as one request.
const SENT_ON: &[Case] = &[
    ("length that is right", &[], &[("content-length", "6")], "abcdef"),
    ("no length", &[], &[], "abcdef"),
    ("body that looks like a request", &[], &[], "GET /x HTTP/1.1\r\nhost: a\r\n\r\n"),
    ("trailers are welcome", &[], &[("te", "trailers")], "abcdef"),
    ("host that is the same", &[], &[("host", "a")], ""),
    ("host alone", &[(":authority", "-")], &[("host", "a")], ""),
];

/// Returns the fields of a case, without pseudo-fields whose value is `-`.
fn fields_of(changed: Fields, added: Fields) -> Vec<(&'static str, &'static str)> {
    let usual = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let pseudo = usual
        .into_iter()
        .map(|(name, value)| changed.iter().find(|(of, _)| *of == name).copied().unwrap_or((name, value)));
    pseudo.filter(|(_, value)| *value != "-").chain(added.iter().copied()).collect()
}

#[test]
fn requests_over_http2_that_http1_would_read_in_two_ways_are_refused() {
    let origin = Recording::start();
    let proxy = Fixture::proxy_to(origin.address, |config| (config.forward, config.worker_count) = (false, 1));
    let open = || RawHttp2::open(proxy.local_addrs()[0]);
    let mut wrong = Vec::new();
    for (name, changed, added, body) in REFUSED {
        let outcome = open().request(&fields_of(changed, added), body);
        if outcome == Outcome::Status(200) {
            wrong.push(format!("{name}: {outcome:?}"));
        }
        let got = origin.take();
        let next = open().request(&fields_of(&[(":method", "GET")], &[]), "");
        if !got.is_empty() || next != Outcome::Status(200) || origin.take().len() != 1 {
            wrong.push(format!("{name}: the origin got {got:?}, and what followed was {next:?}"));
        }
    }
    for (name, changed, added, body) in SENT_ON {
        let outcome = open().request(&fields_of(changed, added), body);
        let got = origin.take();
        let is_right = matches!(&got[..], [Ok(got)] if got.body == body.as_bytes() && got.method == "POST");
        if outcome != Outcome::Status(200) || !is_right {
            wrong.push(format!("{name}: {outcome:?}, {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), REFUSED.len() + SENT_ON.len(), wrong.join("\n"));
}
