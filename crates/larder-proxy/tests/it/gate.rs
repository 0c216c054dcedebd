//! The gate: Host and target are checked on every way in, and no part of a request is interpreted as something else.

use std::sync::Arc;

use larder_proxy::{AccessLogTarget, Mirror, MirrorLink, OriginUrl, Site};

use crate::support::{
    Connection, Fixture, Received, Reply, eventually,
    raw_http2::{Outcome, RawHttp2},
    request_text,
};

/// Starts a mirror `/m` of the fixture's origin below `/base`, whose HTML and JSON are rewritten.
fn mirrored(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Fixture {
    Fixture::with(handle, |config| {
        let origin = config.default_origin.take().unwrap();
        let based = format!("{}/base", origin.to_short_string());
        let links = vec![MirrorLink { url: based.clone(), path: "/m".to_owned() }];
        let documents = vec!["text/html".to_owned(), "application/json".to_owned()];
        config.mirrors.push(Mirror { documents, links, ..Mirror::of_files("/m", based.parse().unwrap()) });
        config.forward = true;
    })
}

fn status(fixture: &Fixture, head: &str) -> u16 {
    let mut connection: Connection = fixture.connect();
    connection.send(format!("{head}\r\n\r\n"));
    connection.read_response("GET").status
}

/// RFC 9112 3.2. Guards against a request that another proxy on the way would read as one for another host.
#[test]
fn request_by_a_mirrors_path_has_one_well_formed_host() {
    let fixture = mirrored(|_, _| Reply::ok(&[], "x"));
    for lines in
        ["", "Host: a\r\nHost: a", "Host: a\r\nHost: b", "Host: a b", "Host: u@a", "Host: a:b", "Host: a\"b", "Host:"]
    {
        let lines = if lines.is_empty() { String::new() } else { format!("\r\n{lines}") };
        assert_eq!(status(&fixture, &format!("GET /m/a HTTP/1.1{lines}")), 400, "{lines}");
    }
    assert_eq!(status(&fixture, "CONNECT 127.0.0.1:443 HTTP/1.1"), 400);
    assert_eq!(status(&fixture, "CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: a\r\nHost: b"), 400);
    assert_eq!(fixture.origin.count(), 0);
    assert_eq!(status(&fixture, "GET /m/a HTTP/1.1\r\nHost: a"), 200);
}

/// Guards against an operator who sees clients fail and finds no request in the log.
#[test]
fn no_request_is_refused_without_a_line_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let target = AccessLogTarget::File(log.clone());
    let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), |config| config.access_log = Some(target));
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(1 << 20));
    let cases = [
        ("GET / HTTP/1.1", 400),
        ("GET / HTTP/1.1\r\nHost: a b", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
        ("GET /a#b HTTP/1.1\r\nHost: a", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400),
        ("GET * HTTP/1.1\r\nHost: a", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a", 400),
        ("G@T / HTTP/1.1\r\nHost: a", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX y: z", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \u{1}", 400),
        ("GET / HTTP/x\r\nHost: a", 400),
        (&long, 431),
        (&format!("GET /{}", "x".repeat(1 << 20)), 414),
        ("GET / HTTP/2.0\r\nHost: a", 505),
    ];
    for (number, (head, status)) in cases.into_iter().enumerate() {
        let mut connection = fixture.connect();
        connection.send_if_open(format!("{head}\r\n\r\n").as_bytes());
        let found = connection.try_read_head_or_end().unwrap();
        assert_eq!((found.status, found.field("proxy-status").is_some()), (status, true), "{head:.60}");
        assert!(found.field("content-length").is_some_and(|length| length != "0"), "{head:.60}");
        let ended = format!("/{status} ");
        eventually(&format!("{head:.60} is logged"), || {
            let lines = std::fs::read_to_string(&log).unwrap();
            lines.lines().count() == number + 1 && lines.lines().last().unwrap().contains(&ended)
        });
    }
    assert_eq!(fixture.origin.count(), 0);
}

/// Guards against a link that runs a script in a page of the mirror.
#[test]
fn text_of_a_request_cannot_end_a_string_in_a_document_of_a_mirror() {
    let fixture = mirrored(|received, _| {
        let link = format!("http://{}/base/b", received.field("host").unwrap());
        let kind = if received.target.ends_with("json") { "application/json" } else { "text/html" };
        Reply::ok(&[&format!("Content-Type: {kind}")], format!("'{link}' \"{link}\""))
    });
    for target in ["/m/html", "/m/json"] {
        let mut connection = fixture.connect();
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: a'onload=alert(1)&lt;x\r\n\r\n"));
        let text = connection.read_response("GET").text();
        let link = "http://a%27onload%3Dalert%281%29%26lt%3Bx/m/b";
        assert_eq!(text, format!("'{link}' \"{link}\""));
    }
}

/// Paths that some server reads as ones that begin with `/x`, below `prefix`.
fn climbing(prefix: &str) -> Vec<String> {
    let ends = [
        "/../x",
        "/..",
        "/%2e%2e/x",
        "/.%2E/x",
        "/..;/x",
        "/..;a=b/x",
        "/\\..\\x",
        "/..\\x",
        "/..%2fx",
        "/..%5cx",
        "/%252e%252e/x",
        "/a/../../x",
        "/..?q",
        "/..%00/x",
        "/%u002e%u002e/x",
        "/%c0%ae%c0%ae/x",
    ];
    ends.map(|end| format!("{prefix}{end}")).to_vec()
}

/// Guards against access to files of the server outside the mirrored folder.
#[test]
fn no_path_leads_out_of_a_mirror() {
    let fixture = mirrored(|_, _| Reply::ok(&[], "x"));
    for path in climbing("/m") {
        assert_eq!(status(&fixture, &format!("GET {path} HTTP/1.1\r\nHost: a")), 400, "{path}");
    }
    assert_eq!(fixture.origin.count(), 0);
    for path in ["/m/a..b", "/m/.../x", "/m/@scope%2fname", "/m/a?../.."] {
        assert_eq!(status(&fixture, &format!("GET {path} HTTP/1.1\r\nHost: a")), 200, "{path}");
    }
}

/// Guards against access to files of an origin outside the site's folder.
#[test]
fn no_path_leads_out_of_the_folder_of_a_site() {
    let fixture = Fixture::with(
        |received, _| Reply::ok(&["Cache-Control: max-age=60"], &received.target),
        |config| {
            let origin = config.default_origin.take().unwrap().to_short_string();
            let based: OriginUrl = format!("{origin}/base").parse().unwrap();
            config.sites = vec![Site::of_host("site.example", Arc::new(based.into()))];
        },
    );
    let mut http2 = RawHttp2::open(fixture.proxy.local_addrs()[0]);
    for path in climbing("").into_iter().chain(climbing("/a")) {
        assert_eq!(status(&fixture, &format!("GET {path} HTTP/1.1\r\nHost: site.example")), 400, "{path}");
        // The HTTP library resets requests that it cannot parse.
        let outcome = http2.request(&head_of("GET", &path), "");
        assert!(matches!(outcome, Outcome::Status(400) | Outcome::Reset(_)), "{path}: {outcome:?}");
    }
    assert_eq!(fixture.origin.count(), 0);
    assert_eq!(fixture.get("/a..b/.../c?../..", &[]).text(), "/base/a..b/.../c?../..");
}

fn head_of<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", "site.example"), (":path", path)]
}

/// Checks that clients may send JSON or comparisons in a query as they are, which direct connections accept.
#[test]
fn octets_that_no_uri_has_reach_the_origin_escaped() {
    let echo = |received: &Received, _: usize| Reply::ok(&["Cache-Control: max-age=60"], &received.target);
    let reverse = Fixture::new(echo);
    let forward = Fixture::with(echo, |config| (config.default_origin, config.forward) = (None, true));
    for (target, escaped) in [
        ("/q?f={\"a\":\"b\"}", "/q?f={%22a%22:%22b%22}"),
        ("/q?a<5&b>3", "/q?a%3C5&b%3E3"),
        ("/a`b", "/a%60b"),
        // What the HTTP library accepts stays as it is.
        ("/a<b>\"?`", "/a%3Cb%3E\"?`"),
    ] {
        // Two requests at once on one connection, of which the first has a target without such octets.
        let mut connection = reverse.connect();
        connection.send(request_text("GET", "/-", &[]) + &request_text("GET", target, &[]));
        assert_eq!(connection.read_response("GET").text(), "/-");
        assert_eq!(connection.read_response("GET").text(), escaped);
        assert_eq!(reverse.get_hit(escaped, &[]).text(), escaped, "both are one resource");
        let authority = forward.origin.address;
        let mut connection = forward.connect();
        connection.send(format!("GET http://{authority}{target} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        assert_eq!(connection.read_response("GET").text(), escaped);
    }
}

/// RFC 9113 8.3.1. Guards against a request for another host than the one that was checked.
#[test]
fn path_over_http2_is_never_part_of_the_host() {
    for forward in [false, true] {
        let fixture = Fixture::with(
            |received, _| Reply::ok(&["Cache-Control: max-age=60"], format!("{received:?}")),
            |config| config.forward = forward,
        );
        let address = fixture.proxy.local_addrs()[0];
        for path in ["*", "*.evil.example/", "x", "?q", "", "@evil.example/", ":81/", ".evil.example/"] {
            for method in ["GET", "HEAD", "POST", "DELETE"] {
                let outcome = RawHttp2::open(address).request(&head_of(method, path), "");
                let is_refused = matches!(outcome, Outcome::Status(400) | Outcome::Reset(_));
                // An empty query belongs to the path `/`, as over HTTP/1.1.
                assert!(is_refused || path == "?q", "{method} {path:?}: {outcome:?}");
            }
        }
        let received = fixture.origin.received();
        assert!(received.iter().all(|received| received.field("host") == Some("site.example")), "{received:?}");
        let asked = RawHttp2::open(address).request(&head_of("OPTIONS", "*"), "");
        assert_eq!(asked, Outcome::Status(200));
        let received = fixture.origin.received();
        let options = received.last().unwrap();
        assert_eq!((options.method.as_str(), options.target.as_str()), ("OPTIONS", "*"), "forward: {forward}");
        assert_eq!(options.field("host"), Some("site.example"));
    }
}

/// RFC 9112 3.2.4. Guards against a request about the server that its origin reads as one about a resource.
#[test]
fn request_about_a_server_reaches_an_origin_with_a_base_path_as_it_is() {
    let fixture = Fixture::with(
        |received, _| Reply::ok(&[], &received.target),
        |config| {
            let origin = config.default_origin.take().unwrap().to_short_string();
            let based = |path: &str| Arc::new(format!("{origin}{path}").parse::<OriginUrl>().unwrap().into());
            let of_all_paths = Site { paths: vec!["/".to_owned()], ..Site::of_host("b.example", based("/all")) };
            config.sites = vec![Site::of_host("site.example", based("/base")), of_all_paths];
        },
    );
    for host in ["site.example", "b.example"] {
        let mut connection = fixture.connect();
        connection.send(format!("OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(connection.read_response("OPTIONS").text(), "*", "{host}");
    }
    let outcome = RawHttp2::open(fixture.proxy.local_addrs()[0]).request(&head_of("OPTIONS", "*"), "");
    assert_eq!(outcome, Outcome::Status(200));
    assert!(fixture.origin.received().iter().all(|received| received.target == "*"));
}

/// RFC 9110 9.3.7: where no one origin is the server, Larder is.
#[test]
fn request_about_a_server_without_one_origin_is_answered_here() {
    let of_a_path = Fixture::with(
        |_, _| Reply::ok(&[], "x"),
        |config| {
            let origin = Arc::new(config.default_origin.take().unwrap().into());
            config.sites = vec![Site { paths: vec!["/app".to_owned()], ..Site::of_host("site.example", origin) }];
        },
    );
    let outcome = RawHttp2::open(of_a_path.proxy.local_addrs()[0]).request(&head_of("OPTIONS", "*"), "");
    assert_eq!(outcome, Outcome::Status(200));
    let forward_only =
        Fixture::with(|_, _| Reply::ok(&[], "x"), |config| (config.default_origin, config.forward) = (None, true));
    let mirror = mirrored(|_, _| Reply::ok(&[], "x"));
    for (fixture, what) in [(of_a_path, "a path"), (mirror, "a mirror"), (forward_only, "forwarding")] {
        let response = fixture.connect().request("OPTIONS", "*", &[]);
        assert_eq!((response.status, response.field("content-length")), (200, Some("0")), "{what}");
        assert!(response.field("allow").is_some_and(|allowed| allowed.contains("GET")), "{what}");
        assert_eq!(fixture.origin.count(), 0, "{what}");
    }
}

/// The HTTP library removes a fragment before Larder sees the request. Guards against a fragment that reaches a key or
/// an origin.
#[test]
fn fragment_over_http2_is_neither_in_a_key_nor_sent_on() {
    let fixture = Fixture::new(|received, _| Reply::ok(&["Cache-Control: max-age=60"], &received.target));
    let mut http2 = RawHttp2::open(fixture.proxy.local_addrs()[0]);
    for path in ["/a#b", "/a#", "/a#?q", "/a#/../x"] {
        assert_eq!(http2.request(&head_of("GET", path), ""), Outcome::Status(200), "{path}");
    }
    assert_eq!(fixture.get_hit("/a", &[]).text(), "/a");
    assert_eq!(http2.request(&head_of("GET", "/a?q#b"), ""), Outcome::Status(200));
    let targets: Vec<String> = fixture.origin.received().into_iter().map(|received| received.target).collect();
    assert_eq!(targets, ["/a", "/a?q"]);
    assert_eq!(status(&fixture, "GET /a#b HTTP/1.1\r\nHost: site.example"), 400);
}
