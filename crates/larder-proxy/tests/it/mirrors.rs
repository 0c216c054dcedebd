//! Mirrors: a path of the proxy stands for another server, and none of its links lead past the proxy.

use larder_proxy::{Mirror, MirrorLink, ProxyConfig};

use crate::support::{Fixture, Received, Reply};

/// Starts a mirror `/m` of the fixture's origin below `/base`, whose HTML is rewritten, and `/files` for the origin's
/// root.
fn mirrored(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Fixture {
    Fixture::with(handle, |config: &mut ProxyConfig| {
        let origin = config.default_origin.take().unwrap();
        let url = origin.to_short_string();
        let link = |url: String, path: &str| MirrorLink { url, path: path.to_owned() };
        let links = vec![link(format!("{url}/base"), "/m"), link(format!("{url}/other"), "/files/other")];
        let based = format!("{url}/base").parse().unwrap();
        let documents = vec!["text/html".to_owned()];
        config.mirrors.push(Mirror { documents, links, ..Mirror::of_files("/m", based) });
        config.mirrors.push(Mirror::of_files("/files", origin));
    })
}

const HTML: &[&str] = &["Content-Type: text/html; charset=utf-8", "Cache-Control: max-age=60", "ETag: \"v1\""];

#[test]
fn request_goes_to_the_servers_path_with_the_servers_host() {
    let fixture = mirrored(|received, _| {
        Reply::ok(&["Cache-Control: max-age=60"], format!("{} {}", received.target, received.field("host").unwrap()))
    });
    let host = fixture.origin.address.to_string();
    for (path, target) in
        [("/m/a?b=c", "/base/a?b=c"), ("/m", "/base/"), ("/m?x", "/base/?x"), ("/files/base/a", "/base/a")]
    {
        assert_eq!(fixture.get(path, &[]).text(), format!("{target} {host}"), "{path}");
    }
    assert_eq!(fixture.get("/mm/a", &[]).status, 400, "only whole segments stand for it");
}

#[test]
fn what_one_mirror_fetched_is_a_hit_by_another_way() {
    let fixture = mirrored(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"));
    fixture.get("/m/a", &[]);
    assert!(fixture.get_hit("/files/base/a", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn links_in_documents_lead_here_and_what_is_stored_is_what_came() {
    let fixture = mirrored(|received, _| {
        let origin = format!("http://{}", received.field("host").unwrap());
        Reply::ok(
            HTML,
            format!(
                "<a href=\"{origin}/base/b\"> {origin}/other/c {origin}/third {origin}/based {}",
                received.field("accept-encoding").unwrap_or("-")
            ),
        )
    });
    let origin = format!("http://{}", fixture.origin.address);
    let expected = format!(
        "<a href=\"http://site.example/m/b\"> http://site.example/files/other/c {origin}/third {origin}/based identity"
    );
    for _ in 0..2 {
        let changed = fixture.get("/m/a", &["Accept-Encoding: gzip", "Range: bytes=0-3"]);
        assert_eq!((changed.status, changed.text().as_str()), (200, expected.as_str()));
        assert_eq!(changed.field("accept-ranges"), None);
    }
    let plain = fixture.get_hit("/files/base/a", &["Accept-Encoding: identity"]);
    assert!(plain.text().contains(&format!("{origin}/base/b")), "{}", plain.text());
    assert_eq!((fixture.origin.count(), plain.field("etag")), (1, Some("\"v1\"")));
}

#[test]
fn changed_document_has_a_validator_of_its_own_by_which_it_is_confirmed() {
    let fixture = mirrored(|received, _| match received.field("if-none-match") {
        Some("\"v1\"" | "W/\"v1\"") => Reply::status("304 Not Modified", &["ETag: \"v1\""], ""),
        _ => Reply::ok(HTML, "x"),
    });
    let tag = fixture.get("/m/a", &[]).field("etag").unwrap().to_owned();
    assert!(tag.starts_with("W/\"v1+larder-"), "{tag}");
    let again = fixture.get("/m/a", &[&format!("If-None-Match: {tag}")]);
    assert_eq!((again.status, again.field("etag")), (304, Some(tag.as_str())));
    let reloaded = fixture.get("/m/a", &[&format!("If-None-Match: {tag}"), "Cache-Control: no-cache"]);
    assert_eq!((reloaded.status, reloaded.field("etag")), (304, Some(tag.as_str())));
    let mut connection = fixture.connect();
    connection.send(format!("GET /m/a HTTP/1.1\r\nHost: other.example\r\nIf-None-Match: {tag}\r\n\r\n"));
    assert_eq!(connection.read_response("GET").status, 200, "by another name of ours it has other links");
}

#[test]
fn redirections_lead_here() {
    let fixture = mirrored(|received, _| {
        let origin = format!("http://{}", received.field("host").unwrap());
        let location = match received.target.as_str() {
            "/base/whole" => format!("{origin}/base/x"),
            "/base/path" => "/base/y".to_owned(),
            "/base/linked" => format!("{origin}/other/z"),
            "/base/near" => "z".to_owned(),
            _ => "http://elsewhere.example/".to_owned(),
        };
        Reply::status("302 Found", &[&format!("Location: {location}")], "")
    });
    for (path, location) in [
        ("/m/whole", "/m/x"),
        ("/m/path", "/m/y"),
        ("/m/linked", "/files/other/z"),
        ("/m/near", "z"),
        ("/m/away", "http://elsewhere.example/"),
    ] {
        assert_eq!(fixture.get(path, &[]).field("location"), Some(location), "{path}");
    }
}

/// Guards against a second client that leaves the mirror by a redirect, or by a list, that was stored for the first.
#[test]
fn stored_references_lead_here_for_every_client() {
    let fixture = mirrored(|received, _| {
        let lasting = "Cache-Control: max-age=60";
        match received.target.as_str() {
            "/moved" => Reply::status("301 Moved Permanently", &[lasting, "Location: /base/y"], ""),
            "/list" => Reply::ok(&[lasting, "Link: </list?2>; rel=next"], "[]"),
            _ => Reply::ok(&[lasting, "Content-Location: /en"], "x"),
        }
    });
    for (path, name, reference) in [
        ("/files/moved", "location", "/files/base/y"),
        ("/files/list", "link", "</files/list?2>; rel=next"),
        ("/files/page", "content-location", "/files/en"),
    ] {
        assert_eq!(fixture.get(path, &[]).field(name), Some(reference), "{path}");
        for _ in 0..3 {
            let response = fixture.get_hit(path, &[]);
            assert!(response.is_hit(), "{path}");
            assert_eq!(response.field(name), Some(reference), "{path}");
        }
    }
    assert_eq!(fixture.origin.count(), 3);
}

/// Guards against a client that leaves the mirror, or gets the pages of another registry, when it follows the pages of
/// a list.
#[test]
fn pages_of_a_list_lead_here_whatever_form_their_links_have() {
    let fixture = mirrored(|received, _| {
        let origin = format!("http://{}", received.field("host").unwrap());
        let lines = match received.target.as_str() {
            "/base/path" => vec!["Link: </base/list?last=b&n=2>; rel=\"next\"".to_owned()],
            "/base/whole" => {
                vec![format!("Link: <{origin}/base/list>; rel=next"), format!("Link: <{origin}/other/a?b>; x")]
            }
            "/base/near" => vec!["Link: <?last=b>; rel=next, </else>; rel=x".to_owned()],
            _ => vec!["Link: <http://elsewhere.example/base/a>; title=\"</base/b>\"".to_owned()],
        };
        Reply::ok(&lines.iter().map(String::as_str).collect::<Vec<_>>(), "[]")
    });
    for (path, links) in [
        ("/m/path", "</m/list?last=b&n=2>; rel=\"next\""),
        ("/m/whole", "</m/list>; rel=next, </files/other/a?b>; x"),
        ("/m/near", "<?last=b>; rel=next, </else>; rel=x"),
        ("/m/away", "<http://elsewhere.example/base/a>; title=\"</base/b>\""),
    ] {
        let response = fixture.get(path, &[]);
        let found: Vec<&str> =
            response.fields.iter().filter(|(name, _)| name == "link").map(|(_, value)| value.as_str()).collect();
        assert_eq!(found.join(", "), links, "{path}");
    }
}

#[test]
fn document_in_a_coding_passes_as_it_is() {
    let lines = [HTML, &["Content-Encoding: gzip"]].concat();
    let fixture = mirrored(move |_, _| Reply::ok(&lines, "\u{1f}\u{8b}..."));
    let response = fixture.get("/m/a", &[]);
    assert_eq!((response.field("content-encoding"), response.field("etag")), (Some("gzip"), Some("\"v1\"")));
}

#[test]
fn requests_through_us_are_not_for_a_mirror() {
    let fixture = Fixture::with(
        |received, _| Reply::ok(&[], format!("at {}", received.target)),
        |config| {
            let origin = config.default_origin.take().unwrap();
            config.mirrors.push(Mirror::of_files("/m", origin));
            config.forward = true;
        },
    );
    let target = format!("http://{}/m/a", fixture.origin.address);
    assert_eq!(fixture.get(&target, &[]).text(), "at /m/a");
    assert_eq!(fixture.get("/m/a", &[]).text(), "at /a");
}
