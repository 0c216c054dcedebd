//! Build caches. Guards against a build that gets a result that is not the one that was sent, and against a writer
//! without a token.

use std::{fs, os::unix::fs::PermissionsExt as _};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use larder_proxy::{BuildCache, Listener, LocalWriters, ProxyConfig};
use ring::digest::{SHA256, digest};
use tempfile::TempDir;

use crate::support::{
    Connection, Fixture, Received, Reply, Response, body,
    certificates::{Made, client_config},
    eventually,
    http2::{Http2, Sent, head},
};

const TOKEN: &str = "0123456789abcdef";

/// A proxy with a build cache at `/c`, in front of an origin that must not be contacted.
fn built() -> Fixture {
    built_with(|_| {})
}

fn built_with(change: impl FnOnce(&mut ProxyConfig)) -> Fixture {
    let origin = |_: &Received, _| Reply::ok(&["Cache-Control: max-age=60"], "from the origin");
    Fixture::with(origin, |config| {
        config.build_caches.push(writable("/c"));
        change(config);
    })
}

/// A build cache that programs on this machine may write.
fn writable(path: &str) -> BuildCache {
    BuildCache { local_writers: LocalWriters::All, ..BuildCache::at(path) }
}

/// A connection of a program on this machine.
fn local(fixture: &Fixture) -> Connection {
    Connection::open_admin(fixture.proxy.local_addrs()[0])
}

fn put(fixture: &Fixture, target: &str, fields: &[&str], body: &[u8]) -> Response {
    let mut connection = local(fixture);
    let length = format!("Content-Length: {}", body.len());
    send_put(&mut connection, target, &[fields, &[&length]].concat());
    connection.send_if_open(body);
    connection.read_response("PUT")
}

fn send_put(connection: &mut Connection, target: &str, fields: &[&str]) {
    let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    connection.send(format!("PUT {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"));
}

fn get(fixture: &Fixture, target: &str, fields: &[&str]) -> Response {
    local(fixture).request("GET", target, fields)
}

fn sha256(body: &[u8]) -> String {
    digest(&SHA256, body).as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
}

#[test]
fn what_was_put_is_there_for_everybody_until_it_is_deleted() {
    let fixture = built();
    for (number, len) in [0, 1, 70_000, 1 << 20, (1 << 20) + 1, 3_500_000].into_iter().enumerate() {
        let target = format!("/c/a/{number}");
        let sent = body(len);
        assert_eq!(get(&fixture, &target, &[]).status, 404, "{len}");
        let stored = put(&fixture, &target, &["Content-Type: a/b"], &sent);
        assert_eq!((stored.status, stored.text().as_str()), (201, ""), "{len}");
        for _ in 0..3 {
            let found = fixture.get(&target, &["Cache-Control: no-cache", "Accept: x/y"]);
            assert_eq!((found.status, found.body == sent, found.is_hit()), (200, true, true), "{len}");
            assert_eq!(
                (found.field("content-type"), found.field("etag")),
                (Some("a/b"), stored.field("etag")),
                "{len}"
            );
            assert_eq!(found.field("cache-control"), Some("no-cache"));
            assert_eq!(found.field("larder-ruling"), None);
        }
        let head = fixture.connect().request("HEAD", &target, &[]);
        assert_eq!((head.status, head.field("content-length")), (200, Some(len.to_string().as_str())));
        if len > 10 {
            let part = fixture.get(&target, &["Range: bytes=3-9"]);
            assert_eq!((part.status, part.body.as_slice()), (206, &sent[3..10]), "{len}");
        }
        let tag = format!("If-None-Match: {}", stored.field("etag").unwrap());
        assert_eq!(fixture.get(&target, &[&tag]).status, 304, "{len}");
        let again = put(&fixture, &target, &[], b"other");
        assert_eq!((again.status, again.field("etag") == stored.field("etag")), (204, false), "{len}");
        let found = fixture.get(&target, &[]);
        assert_eq!((found.text().as_str(), found.field("content-type")), ("other", Some("application/octet-stream")));
        assert_eq!(local(&fixture).request("DELETE", &target, &[]).status, 204);
        assert_eq!(fixture.get(&target, &[]).status, 404, "{len}");
        assert_eq!(local(&fixture).request("DELETE", &target, &[]).status, 404);
    }
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn what_was_put_is_there_after_a_restart_and_never_becomes_stale() {
    let fixture = built();
    put(&fixture, "/c/short", &[], b"short");
    put(&fixture, "/c/long", &[], &body(2_500_000));
    let fixture = fixture.restart_with(|config| config.build_caches.push(writable("/c")));
    assert_eq!(get(&fixture, "/c/short", &[]).text(), "short");
    let long = get(&fixture, "/c/long", &["Cache-Control: max-age=0", "Pragma: no-cache"]);
    assert!(long.body == body(2_500_000) && long.is_hit());
    let ttl: i64 = long.cache_status().split("ttl=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!(ttl > 30_000_000, "{ttl}");
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn content_must_have_the_digest_in_its_path() {
    let fixture = built();
    for len in [5, 1 << 20, 3_000_000] {
        let content = body(len);
        let target = format!("/c/cas/{}", sha256(&content));
        let mut wrong = content.clone();
        wrong[len - 1] ^= 1;
        for bad in [&wrong[..], &content[1..], &[]] {
            let refused = put(&fixture, &target, &[], bad);
            assert_eq!(refused.status, 400, "{len}");
            assert!(refused.text().contains("does not have the SHA-256 digest"), "{}", refused.text());
            assert_eq!(get(&fixture, &target, &[]).status, 404, "{len}");
        }
        assert_eq!(put(&fixture, &target, &[], &content).status, 201);
        assert_eq!(put(&fixture, &target, &[], &wrong).status, 400);
        let found = get(&fixture, &target, &[]);
        assert!(found.body == content && found.field("cache-control").unwrap().contains("immutable"), "{len}");
    }
    // The action cache is not content by digest.
    assert_eq!(put(&fixture, &format!("/c/ac/{}", sha256(b"key")), &[], b"value").status, 201);
    let refused = put(&fixture, "/c/cas/name", &[], b"x");
    assert!(refused.status == 400 && refused.text().contains("must be a SHA-256 digest"), "{}", refused.text());
}

#[test]
fn upload_that_breaks_off_leaves_what_was_there_before() {
    let fixture = built();
    put(&fixture, "/c/old", &[], b"old");
    for target in ["/c/old", "/c/new"] {
        for sent_len in [0, 10, 2_200_000] {
            for framing in ["Content-Length: 3000000", "Transfer-Encoding: chunked"] {
                let mut connection = local(&fixture);
                send_put(&mut connection, target, &[framing]);
                if framing.starts_with("Transfer") {
                    connection.send("300000\r\n");
                }
                connection.send(body(sent_len));
                drop(connection);
            }
        }
    }
    eventually("the uploads have ended", || fixture.proxy.stats().connections_open == 0);
    let old = get(&fixture, "/c/old", &[]);
    let new = get(&fixture, "/c/new", &[]);
    assert_eq!((old.text().as_str(), new.status), ("old", 404));
}

#[test]
fn body_of_unknown_length_is_stored_too() {
    let fixture = built();
    for len in [0, 9, 1 << 20, 2_200_000] {
        let mut connection = local(&fixture);
        send_put(&mut connection, "/c/x", &["Transfer-Encoding: chunked"]);
        for piece in body(len).chunks(100_000) {
            connection.send(format!("{:x}\r\n", piece.len()));
            connection.send(piece);
            connection.send("\r\n");
        }
        connection.send("0\r\n\r\n");
        assert!(matches!(connection.read_response("PUT").status, 201 | 204), "{len}");
        assert!(get(&fixture, "/c/x", &[]).body == body(len), "{len}");
        // The connection goes on.
        assert_eq!(connection.request("DELETE", "/c/x", &[]).status, 204, "{len}");
    }
}

#[test]
fn entry_that_is_deleted_during_its_upload_stays_deleted() {
    let fixture = built();
    put(&fixture, "/c/x", &[], b"old");
    let mut uploading = local(&fixture);
    send_put(&mut uploading, "/c/x", &["Content-Length: 2000000"]);
    uploading.send(body(1_500_000));
    // The upload has begun when its first chunk is stored.
    eventually("a chunk is stored", || fixture.store.as_ref().unwrap().stats().entries >= 2);
    assert_eq!(local(&fixture).request("DELETE", "/c/x", &[]).status, 204);
    uploading.send(&body(2_000_000)[1_500_000..]);
    let refused = uploading.read_response("PUT");
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert_eq!(get(&fixture, "/c/x", &[]).status, 404);
}

/// A build cache with tokens.
fn guarded(directory: &TempDir) -> Fixture {
    let path = directory.path().join("tokens");
    fs::write(&path, format!("# ci\nwrite {TOKEN}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    built_with(|config| config.build_caches[0] = BuildCache { tokens: Some(path), ..BuildCache::at("/c") })
}

#[test]
fn only_clients_with_a_token_write_and_all_read() {
    let directory = TempDir::new().unwrap();
    let fixture = guarded(&directory);
    let basic = |text: &str| format!("Authorization: Basic {}", BASE64_STANDARD.encode(text));
    let good = [format!("Authorization: Bearer {TOKEN}"), basic(&format!("me:{TOKEN}"))];
    for (number, credentials) in good.iter().enumerate() {
        let target = format!("/c/{number}");
        assert_eq!(put(&fixture, &target, &[credentials], b"x").status, 201);
        // Of a reader's credentials the entry does not depend.
        for fields in [&[][..], &[credentials.as_str()], &["Authorization: Bearer wrong", "Cookie: a=b"]] {
            assert_eq!(fixture.get(&target, fields).text(), "x");
        }
    }
    for (fields, told) in [
        (vec![], "needs a token"),
        (vec!["Authorization: Bearer 0123456789abcdeX".to_owned()], "not one of this build cache's tokens"),
        (vec![basic(&format!("{TOKEN}:me"))], "not one of this build cache's tokens"),
    ] {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        // Longer than what sockets buffer: the client reads only when it has sent everything.
        let refused = put(&fixture, "/c/2", &fields, &body(20_000_000));
        assert_eq!(refused.status, 401, "{fields:?}");
        assert!(refused.text().contains(told) && !refused.text().contains("0123"), "{}", refused.text());
        assert!(refused.field("www-authenticate").is_some());
        for method in ["DELETE", "MKCOL"] {
            assert_eq!(local(&fixture).request(method, "/c/0", &fields).status, 401, "{method}");
        }
    }
    assert_eq!((fixture.get("/c/0", &[]).text().as_str(), fixture.get("/c/2", &[]).status), ("x", 404));
}

/// Guards against a cache behind nginx, as its manual shows it, that the whole world may write.
#[test]
fn without_tokens_nobody_writes_unless_the_operator_permits_it() {
    let fixture = built_with(|config| config.build_caches[0] = BuildCache::at("/c"));
    for fields in [&[][..], &["Connection: close"], &["Authorization: Bearer x"]] {
        let refused = put(&fixture, "/c/x", fields, b"x");
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains("`tokens` for writers, or `local_writers`"), "{}", refused.text());
    }
    assert_eq!(get(&fixture, "/c/x", &[]).status, 404);
}

#[test]
fn local_writers_are_programs_on_this_machine_that_no_proxy_or_page_stands_for() {
    for local_writers in [LocalWriters::OwnUser, LocalWriters::All] {
        let fixture = built_with(|config| {
            config.build_caches[0] = BuildCache { local_writers, ..BuildCache::at("/c") };
            config.fleet.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        });
        assert_eq!(put(&fixture, "/c/x", &[], b"x").status, 201);
        // A page that resolves its name to this machine sends that name.
        let refused = fixture.connect().request("PUT", "/c/x", &["Content-Length: 0"]);
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains("read-only"), "{}", refused.text());
        for fields in [
            &["Origin: http://localhost"][..],
            &["Sec-Fetch-Site: cross-site"],
            &["Via: 1.1 nginx"],
            &["Forwarded: for=127.0.0.1"],
            &["X-Forwarded-For: 127.0.0.1"],
            &["X-Forwarded-For: 127.0.0.1", "Connection: X-Forwarded-For"],
            &["X-Real-IP: 127.0.0.1"],
        ] {
            assert_eq!(put(&fixture, "/c/x", fields, b"y").status, 403, "{fields:?}");
        }
        for header in ["PROXY TCP4 127.0.0.1 127.0.0.1 1000 80\r\n", "PROXY UNKNOWN\r\n"] {
            let mut connection = local(&fixture);
            connection.send(header);
            send_put(&mut connection, "/c/x", &["Content-Length: 1"]);
            connection.send_if_open(b"y");
            assert_eq!(connection.read_response("PUT").status, 403, "{header}");
        }
        assert_eq!(get(&fixture, "/c/x", &[]).text(), "x");
    }
}

#[test]
fn local_writers_write_over_http2_too() {
    let directory = TempDir::new().unwrap();
    let made = Made::new(directory.path(), "a", &["localhost"]);
    let identity = made.identity.clone();
    let fixture = built_with(|config| {
        config.listeners.push(Listener::tls("127.0.0.1:0".parse().unwrap()));
        config.identities = vec![identity];
        (config.default_origin, config.forward) = (None, true);
    });
    let [plain, secure] = fixture.proxy.local_addrs()[..] else { panic!("it has two listeners") };
    for (mut client, url) in [
        (Http2::plain(plain), format!("http://{plain}/c/x")),
        (Http2::plain(plain), format!("http://localhost:{}/c/x", plain.port())),
        (
            Http2::tls(secure, "localhost", client_config(&[&made.der], &["h2"])),
            format!("https://localhost:{}/c/x", secure.port()),
        ),
    ] {
        let (stored, _) = client.request(head("PUT", &url, &[]).body(Sent::bytes(url.clone())).unwrap());
        assert!(matches!(stored.status, 201 | 204), "{url}: {} {}", stored.status, stored.text());
        assert_eq!(client.get(&url, &[]).text(), url);
        let fields = [("x-forwarded-for", "127.0.0.1")];
        let (refused, _) = client.request(head("PUT", &url, &fields).body(Sent::bytes("y")).unwrap());
        assert_eq!(refused.status, 403, "{url}");
    }
}

/// Guards against a page or script in a build cache, which runs with the rights of every site of that host.
#[test]
fn entries_are_no_pages_and_no_scripts_for_browsers() {
    let fixture = built();
    for (target, content_type, sent) in [
        ("/c/page", "text/html", "application/octet-stream"),
        ("/c/image", "image/svg+xml; charset=utf-8", "application/octet-stream"),
        ("/c/script", "text/javascript", "application/octet-stream"),
        ("/c/text", "text/plain", "text/plain"),
    ] {
        put(&fixture, target, &[&format!("Content-Type: {content_type}")], b"<script>");
        // From the store, and from memory.
        for _ in 0..3 {
            let found = fixture.get(target, &[]);
            assert_eq!((found.status, found.field("content-type")), (200, Some(sent)), "{target}");
            assert_eq!(found.field("x-content-type-options"), Some("nosniff"), "{target}");
        }
    }
    assert_eq!(fixture.get("/c/none", &[]).field("x-content-type-options"), Some("nosniff"));
    assert_eq!(fixture.get("/none", &[]).field("x-content-type-options"), None);
}

#[test]
fn client_that_waits_for_a_word_is_told_to_send_only_if_it_may() {
    let directory = TempDir::new().unwrap();
    let fixture = guarded(&directory);
    let mut connection = local(&fixture);
    let credentials = format!("Authorization: Bearer {TOKEN}");
    send_put(&mut connection, "/c/x", &["Expect: 100-continue", "Content-Length: 4", &credentials]);
    assert_eq!(connection.read_head().status, 100);
    connection.send("body");
    assert_eq!(connection.read_response("PUT").status, 201);
    let mut connection = local(&fixture);
    send_put(&mut connection, "/c/x", &["Expect: 100-continue", "Content-Length: 4"]);
    let refused = connection.read_response("PUT");
    assert_eq!((refused.status, refused.field("connection")), (401, Some("close")));
}

#[test]
fn results_and_responses_of_origins_never_mix() {
    let origin = |_: &Received, _| Reply::ok(&["Cache-Control: max-age=60"], "from the origin");
    let fixture = Fixture::with(origin, |config| {
        config.build_caches.push(writable("/c"));
        config.build_caches.push(writable("/c/inner"));
    });
    put(&fixture, "/c/x", &[], b"result");
    put(&fixture, "/c/inner/x", &[], b"inner");
    // Another name of this proxy leads to the same entry.
    assert_eq!(fixture.get("/c/x", &[]).text(), "result");
    for (target, expected) in
        [("/x", "from the origin"), ("/cx", "from the origin"), ("/c/x", "result"), ("/c/inner/x", "inner")]
    {
        for _ in 0..2 {
            assert_eq!(fixture.get(target, &[]).text(), expected, "{target}");
        }
    }
    // The host of the keys is no way to the entries.
    let mut connection = fixture.connect();
    connection.send("GET /x HTTP/1.1\r\nHost: build-cache.invalid\r\n\r\n");
    assert_eq!(connection.read_response("GET").text(), "from the origin");
    for climbing in ["/c/../x", "/c/%2e%2e/x", "/c/a/..%2fx"] {
        assert_eq!(fixture.get(climbing, &[]).status, 400, "{climbing}");
    }
}

#[test]
fn conditions_of_a_write_are_kept() {
    let fixture = built();
    let first = put(&fixture, "/c/x", &["If-None-Match: *"], b"first");
    assert_eq!(first.status, 201);
    let tag = first.field("etag").unwrap().to_owned();
    assert_eq!(put(&fixture, "/c/x", &["If-None-Match: *"], b"second").status, 412);
    assert_eq!(put(&fixture, "/c/x", &["If-Match: \"other\""], b"second").status, 412);
    assert_eq!(put(&fixture, "/c/y", &["If-Match: *"], b"second").status, 412);
    assert_eq!(put(&fixture, "/c/x", &["Content-Range: bytes 0-5/9"], b"second").status, 400);
    assert_eq!(get(&fixture, "/c/x", &[]).text(), "first");
    assert_eq!(put(&fixture, "/c/x", &[&format!("If-Match: {tag}")], b"second").status, 204);
    assert_eq!(get(&fixture, "/c/x", &[]).text(), "second");
}

#[test]
fn what_is_too_long_or_cannot_be_stored_is_refused_with_the_reason() {
    let fixture = built_with(|config| config.policy.cache.entry_bytes_max = 1_500_000);
    let refused = put(&fixture, "/c/x", &[], &body(1_500_001));
    assert_eq!(refused.status, 413);
    assert!(refused.text().contains("object_size_max"), "{}", refused.text());
    let mut connection = local(&fixture);
    send_put(&mut connection, "/c/x", &["Transfer-Encoding: chunked"]);
    connection.send("186a00\r\n");
    connection.send(body(0x0018_6a00));
    connection.send("\r\n0\r\n\r\n");
    assert_eq!(connection.read_response("PUT").status, 413);
    assert_eq!(get(&fixture, "/c/x", &[]).status, 404);
    let fixture =
        Fixture::without_store_with(|_, _| Reply::ok(&[], ""), |config| config.build_caches.push(writable("/c")));
    assert_eq!(put(&fixture, "/c/short", &[], b"short").status, 201);
    assert_eq!(get(&fixture, "/c/short", &[]).text(), "short");
    assert_eq!(put(&fixture, "/c/long", &[], &body(2_000_000)).status, 507);
    assert_eq!(get(&fixture, "/c/long", &[]).status, 404);
}

/// Guards against gigabytes on the network for a response that was certain from the start.
#[test]
fn upload_that_says_it_is_too_long_is_refused_before_its_body() {
    let fixture = built_with(|config| config.policy.cache.entry_bytes_max = 1_500_000);
    let mut connection = local(&fixture);
    send_put(&mut connection, "/c/x", &["Content-Length: 1500001"]);
    let refused = connection.read_response("PUT");
    assert_eq!((refused.status, refused.field("connection")), (413, Some("close")));
    // A client that does not read before it has sent its body gets the response all the same.
    let mut connection = local(&fixture);
    send_put(&mut connection, "/c/x", &["Content-Length: 9000000"]);
    connection.send(body(9_000_000));
    assert_eq!(connection.read_response("PUT").status, 413);
}

#[test]
fn clients_of_webdav_find_collections_and_entries() {
    let fixture = built();
    put(&fixture, "/c/a/b", &[], b"12345");
    let mut connection = local(&fixture);
    let body = "<propfind/>";
    for (target, status, has) in [
        ("/c/", 207, "<D:collection/>"),
        ("/c/any/", 207, "<D:href>/c/any/</D:href>"),
        ("/c/a/b", 207, "<D:getcontentlength>5</D:getcontentlength>"),
        ("/c/a/c", 404, "not in this build cache"),
    ] {
        connection.send(format!(
            "PROPFIND {target} HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let found = connection.read_response("PROPFIND");
        assert_eq!(found.status, status, "{target}");
        assert!(found.text().contains(has), "{target}: {}", found.text());
    }
    assert_eq!(connection.request("MKCOL", "/c/any/", &[]).status, 201);
    assert_eq!(connection.request("OPTIONS", "/c/", &[]).field("dav"), Some("1"));
    for method in ["POST", "PATCH", "MOVE", "TRACE"] {
        let refused = connection.request(method, "/c/a/b", &[]);
        assert_eq!(refused.status, 405, "{method}");
        assert!(refused.field("allow").unwrap().contains("PUT"));
    }
}

#[test]
fn clients_of_turborepo_keep_their_teams_apart_and_their_fields() {
    let fixture = built();
    let fields = ["x-artifact-duration: 1234", "x-artifact-tag: signature", "x-artifact-other: z"];
    put(&fixture, "/c/v8/artifacts/1a2b?slug=one", &fields, b"one");
    put(&fixture, "/c/v8/artifacts/1a2b?slug=two", &[], b"two");
    let one = get(&fixture, "/c/v8/artifacts/1a2b?slug=one", &[]);
    assert_eq!((one.text().as_str(), one.field("x-artifact-duration")), ("one", Some("1234")));
    assert_eq!((one.field("x-artifact-tag"), one.field("x-artifact-other")), (Some("signature"), None));
    assert_eq!(get(&fixture, "/c/v8/artifacts/1a2b?slug=two", &[]).text(), "two");
    assert_eq!(get(&fixture, "/c/v8/artifacts/1a2b", &[]).status, 404);
    assert_eq!(get(&fixture, "/c/v8/artifacts/status?slug=one", &[]).text(), r#"{"status":"enabled"}"#);
    let mut connection = local(&fixture);
    connection.send("POST /c/v8/artifacts/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n[]");
    assert_eq!(connection.read_response("POST").status, 200);
}

/// A build cache that reads from the fixture's origin, below `/up`.
fn reading_through(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Fixture {
    Fixture::with(handle, |config| {
        let url = format!("{}/up", config.default_origin.take().unwrap().to_short_string());
        let origin = Some(url.parse().unwrap());
        config.build_caches.push(BuildCache { origin, ..writable("/c") });
    })
}

#[test]
fn what_is_missing_here_comes_from_the_origin_and_is_kept_if_it_never_changes() {
    let content: &'static [u8] = b"content of the origin";
    let digest = sha256(content);
    let fixture = reading_through(move |received, _| {
        let sent = if received.target.ends_with('0') { &b"wrong"[..] } else { content };
        match received.target.as_str() {
            target if target.starts_with("/up/cas/") => {
                Reply::ok(&["Cache-Control: max-age=31536000, immutable"], sent)
            }
            "/up/ac/1" => Reply::ok(&["Cache-Control: no-cache", "ETag: \"1\""], "action"),
            _ => Reply::status("404 Not Found", &[], "none"),
        }
    });
    let host = fixture.origin.address.to_string();
    let found = get(&fixture, &format!("/c/cas/{digest}"), &["Authorization: Bearer secret"]);
    assert_eq!(found.body, content);
    let received = &fixture.origin.received()[0];
    assert_eq!((received.field("authorization"), received.field("host")), (None, Some(host.as_str())));
    fixture.get_hit(&format!("/c/cas/{digest}"), &[]);
    assert_eq!(fixture.origin.count(), 1);
    assert_eq!(get(&fixture, "/c/ac/1", &[]).text(), "action");
    assert_eq!(get(&fixture, "/c/ac/2", &[]).status, 404);
    // What was put here stays, and the origin is not asked again.
    put(&fixture, "/c/ac/1", &[], b"mine");
    let count = fixture.origin.count();
    assert_eq!(get(&fixture, "/c/ac/1", &[]).text(), "mine");
    assert_eq!(fixture.origin.count(), count);
    // Content with a wrong digest is never a hit.
    let zeros = "0".repeat(64);
    for _ in 0..2 {
        assert!(!get(&fixture, &format!("/c/cas/{zeros}"), &[]).is_hit());
    }
}

#[test]
fn origin_that_does_not_respond_is_a_miss() {
    let fixture = reading_through(|_, _| Reply::default().close());
    let missing = get(&fixture, "/c/ac/1", &[]);
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("origin does not respond"), "{}", missing.text());
}

#[test]
fn entries_are_listed_and_purged_under_the_host_of_build_caches() {
    let fixture = built_with(|config| config.admin = Some("127.0.0.1:0".parse().unwrap()));
    put(&fixture, "/c/x", &[], b"x");
    put(&fixture, "/c/y", &[], b"y");
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    assert_eq!(admin.request("PURGE", "http://build-cache.invalid/c/x", &[]).status, 200);
    assert_eq!((get(&fixture, "/c/x", &[]).status, get(&fixture, "/c/y", &[]).text().as_str()), (404, "y"));
}
