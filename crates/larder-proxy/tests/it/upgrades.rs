//! Upgrade: WebSocket and similar protocols pass through, and none of it is cached.

use crate::support::{Fixture, Reply};

const ASK: &[&str] =
    &["Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="];

#[test]
fn switch_is_passed_on_and_bytes_go_both_ways() {
    let fixture = Fixture::new(|received, _| {
        assert_eq!(received.field("connection"), Some("upgrade"));
        assert_eq!(received.field("upgrade"), Some("websocket"));
        let fields =
            ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Accept: HSmrc0sMlYUkAGmm5OPpG2HaGWk="];
        // The origin speaks first, then echoes one line.
        Reply::head("101 Switching Protocols", &fields).send("hello").echo()
    });
    let mut client = fixture.connect();
    client.send(crate::support::request_text("GET", "/chat", ASK));
    let head = client.read_head();
    assert_eq!((head.status, head.field("upgrade")), (101, Some("websocket")));
    assert_eq!(head.field("sec-websocket-accept"), Some("HSmrc0sMlYUkAGmm5OPpG2HaGWk="));
    assert_eq!(client.read_exact(5), b"hello");
    let bytes = b"POST / HTTP/1.1\nTransfer-Encoding: x\n\nbytes that are no HTTP\0";
    client.send(bytes);
    assert_eq!(client.read_exact(bytes.len()), bytes);
}

#[test]
fn origin_that_declines_answers_over_http_and_the_connection_goes_on() {
    let fixture = Fixture::new(|received, _| Reply::ok(&["Cache-Control: max-age=60"], &received.target));
    let mut client = fixture.connect();
    for target in ["/a", "/a", "/b"] {
        let answer = client.request("GET", target, ASK);
        assert_eq!((answer.status, answer.text().as_str()), (200, target));
    }
    assert_eq!(fixture.origin.count(), 3);
}

#[test]
fn version_of_websocket_that_there_is_not_is_told_which_there_is() {
    let fixture = Fixture::new(|_, _| Reply::ok(&[], "http"));
    for (version, status) in [("8", 426), ("13, 8", 426), ("", 426), ("13", 200)] {
        let version = format!("Sec-WebSocket-Version: {version}");
        let answer = fixture.get("/", &[ASK, &[&version]].concat());
        assert_eq!(answer.status, status, "{version}");
        assert_eq!(answer.field("sec-websocket-version"), (status == 426).then_some("13"), "{version}");
    }
    assert_eq!(fixture.get("/", ASK).status, 200, "without a version it is the origin's to say");
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn interim_response_says_nothing_of_a_length() {
    let fixture = Fixture::new(|_, _| {
        let hint = "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nLink: </a>\r\n\r\n";
        Reply::default().send(hint).send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    });
    let (interim, last) = fixture.connect().request_with_interim("GET", "/", &[]);
    let hints: Vec<_> = interim.iter().map(|hint| (hint.field("link"), hint.field("content-length"))).collect();
    assert_eq!((hints, last.text().as_str()), (vec![(Some("</a>"), None)], "hello"));
}

#[test]
fn upgrade_to_h2c_is_answered_without_it() {
    let fixture = Fixture::new(|received, _| {
        assert!(received.field("upgrade").is_none());
        Reply::ok(&["Cache-Control: max-age=60"], "plain")
    });
    for offer in
        ["Upgrade: h2c", "Upgrade: H2C", "Upgrade: websocket, h2c", "Upgrade: h2c,foo/1", "Upgrade: a\r\nUpgrade: h2c"]
    {
        let fields = ["Connection: Upgrade, HTTP2-Settings", offer, "HTTP2-Settings: AAMAAABkAAQAAP__"];
        assert_eq!(fixture.get("/", &fields).text(), "plain", "{offer}");
    }
}
