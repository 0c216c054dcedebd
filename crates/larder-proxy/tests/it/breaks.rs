//! Responses that the origin breaks off at once, and connections of HTTP/1.0 clients.

use crate::support::{Fixture, Reply, http2::Http2};

#[test]
fn head_reaches_the_client_though_the_origin_closes_before_any_body() {
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        for control in ["Cache-Control: max-age=60", "Cache-Control: no-store"] {
            let fixture = Fixture::new(move |received, _| match received.target.as_str() {
                "/kept" => Reply::ok(&["Cache-Control: no-store"], "x"),
                _ => Reply::head("200 OK", &[control, head, "X-Here: yes"]).close(),
            });
            let mut connection = fixture.connect();
            for number in 0..20 {
                // Every other one uses a persistent connection.
                if number % 2 == 0 {
                    connection.request("GET", "/kept", &[]);
                }
                let broken = connection.request("GET", &format!("/{number}"), &[]);
                assert_eq!((broken.status, broken.field("x-here")), (200, Some("yes")), "{head} {control}");
                assert!(!broken.complete, "{head} {control}");
                connection = fixture.connect();
            }
        }
    }
}

#[test]
fn response_without_a_body_is_whole_though_the_origin_closes_behind_it() {
    for (status, fields) in [("200 OK", "Content-Length: 0"), ("204 No Content", "X: y"), ("304 Not Modified", "X: y")]
    {
        let fixture = Fixture::new(move |_, _| Reply::head(status, &["Cache-Control: no-store", fields]).close());
        let mut connection = fixture.connect();
        for _ in 0..5 {
            assert!(connection.request("GET", "/", &[]).complete, "{status}");
        }
    }
}

#[test]
fn head_reaches_a_client_of_http2_too() {
    let fixture =
        Fixture::new(|_, _| Reply::head("200 OK", &["Content-Length: 10", "Cache-Control: max-age=60"]).close());
    let mut http2 = Http2::plain(fixture.proxy.local_addrs()[0]);
    for number in 0..5 {
        let broken = http2.get(&format!("http://site.example/{number}"), &[]);
        assert_eq!((broken.status, broken.complete), (200, false));
    }
}

#[test]
fn connection_of_a_client_of_http10_is_kept_if_it_asks_for_that_and_the_length_is_known() {
    let fixture = Fixture::new(|received, _| match received.target.as_str() {
        "/chunks" if received.method == "HEAD" => Reply::head("200 OK", &["Transfer-Encoding: chunked"]),
        "/chunks" => Reply::head("200 OK", &["Transfer-Encoding: chunked"]).send("2\r\nok\r\n0\r\n\r\n"),
        _ if received.method == "HEAD" => {
            Reply::head("200 OK", &["Cache-Control: max-age=60", "ETag: \"v\"", "Content-Length: 2"])
        }
        "/none" => Reply::status("204 No Content", &[], ""),
        "/unchanged" => Reply::status("304 Not Modified", &["ETag: \"v\""], ""),
        "/private" => Reply::ok(&["Cache-Control: no-store"], "ok"),
        "/failing" => Reply::status("500 Internal Server Error", &[], "no"),
        "/gone" => Reply::default().close(),
        _ => Reply::ok(&["Cache-Control: max-age=60", "ETag: \"v\""], "ok"),
    });
    let cases: &[(&str, &str, &str, u16)] = &[
        ("GET", "/", "", 200),
        ("GET", "/", "", 200),
        ("HEAD", "/", "", 200),
        ("GET", "/", "If-None-Match: \"v\"\r\n", 304),
        ("GET", "/", "Range: bytes=0-0\r\n", 206),
        ("GET", "/", "Range: bytes=9-\r\n", 416),
        ("HEAD", "/unknown", "", 200),
        ("HEAD", "/chunks", "", 200),
        ("GET", "/none", "", 204),
        ("GET", "/unchanged", "If-None-Match: \"v\"\r\n", 304),
        ("GET", "/private", "", 200),
        ("POST", "/private", "Content-Length: 0\r\n", 200),
        ("GET", "/failing", "", 500),
        ("GET", "/gone", "", 502),
        ("GET", "/absent", "Cache-Control: only-if-cached\r\n", 504),
    ];
    let asking = ["Connection: keep-alive", "connection: Keep-Alive", "Proxy-Connection: keep-alive"];
    let mut connection = fixture.connect();
    for (method, target, fields, status) in cases {
        for keep in asking {
            connection.send(format!("{method} {target} HTTP/1.0\r\nHost: site.example\r\n{fields}{keep}\r\n\r\n"));
            let response = connection.read_response(method);
            let told = (response.status, response.field("connection"), response.complete);
            assert_eq!(told, (*status, Some("keep-alive"), true), "{method} {target} {keep}");
        }
    }
    for keep in asking {
        let mut connection = fixture.connect();
        connection.send(format!("GET /chunks HTTP/1.0\r\nHost: site.example\r\n{keep}\r\n\r\n"));
        let response = connection.read_response("GET");
        assert_ne!(response.field("connection"), Some("keep-alive"));
        assert_eq!(response.text(), "ok", "its end is the connection's");
    }
    for close in ["", "Connection: close\r\nProxy-Connection: keep-alive\r\n", "Proxy-Connection: close\r\n"] {
        let mut connection = fixture.connect();
        connection.send(format!("GET / HTTP/1.0\r\nHost: site.example\r\n{close}\r\n"));
        assert_eq!(connection.read_response("GET").text(), "ok");
        assert!(connection.is_closed(), "{close}");
    }
}
