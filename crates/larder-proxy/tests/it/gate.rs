//! The gate: Host and target are checked whichever way a request comes, and no text of a request gets out of its place.

use larder_proxy::{Mirror, MirrorLink};

use crate::support::{Connection, Fixture, Received, Reply};

/// A mirror `/m` of the fixture's origin below `/base`, whose HTML and JSON are rewritten.
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

/// RFC 9112 3.2. At stake: a request that another proxy on the way reads as one for another host.
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

/// At stake: a link that runs a script as a page of the mirror.
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

/// At stake: what the mirror's server has beside the folder that is mirrored.
#[test]
fn no_path_leads_out_of_a_mirror() {
    let fixture = mirrored(|_, _| Reply::ok(&[], "x"));
    for path in [
        "/m/../x",
        "/m/..",
        "/m/%2e%2e/x",
        "/m/.%2E/x",
        "/m/..;/x",
        "/m/..;a=b/x",
        "/m/\\..\\x",
        "/m/..\\x",
        "/m/..%2fx",
        "/m/..%5cx",
        "/m/%252e%252e/x",
        "/m/a/../../x",
        "/m/..?q",
        "/m/..%00/x",
    ] {
        assert_eq!(status(&fixture, &format!("GET {path} HTTP/1.1\r\nHost: a")), 400, "{path}");
    }
    assert_eq!(fixture.origin.count(), 0);
    for path in ["/m/a..b", "/m/.../x", "/m/@scope%2fname", "/m/a?../.."] {
        assert_eq!(status(&fixture, &format!("GET {path} HTTP/1.1\r\nHost: a")), 200, "{path}");
    }
}
