//! Files that never change: what is known of their digests, and what happens to bodies that do not have them.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use larder_http::{
    Rules, Ruling,
    rules::{MatchTexts, Rule},
};
use larder_proxy::{Mirror, PackageIndex, ProxyConfig};
use ring::digest::{SHA256, digest};

use crate::support::{Connection, Fixture, Gate, Origin, Received, Reply, body};

const IMMUTABLE: fn() -> Ruling = || Ruling { name: "kept".into(), immutable: true, ..Ruling::default() };

/// Returns a rule for all paths of this form, or for responses of this type.
fn rule(path: &str, types: &[&str], ruling: Ruling) -> Rule {
    let types = types.iter().map(|name| (*name).to_owned()).collect();
    Rule::new(&MatchTexts { paths: vec![path.into()], types, ..MatchTexts::default() }, ruling).unwrap()
}

fn kept(config: &mut ProxyConfig) {
    config.rules = Rules::new(vec![
        rule("/**/*.{deb,whl,tgz,crate,mod}", &[], IMMUTABLE()),
        rule("/**/by-hash/**", &[], IMMUTABLE()),
    ]);
}

fn hex(octets: &[u8]) -> String {
    digest(&SHA256, octets).as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
}

const FILE: &[&str] = &["Content-Type: application/octet-stream", "ETag: \"a\""];

/// Guards against a network's login page that apt gets for a package, for a year.
#[test]
fn login_page_in_place_of_a_file_reaches_its_client_and_is_not_stored() {
    let handle = |received: &Received, number| match number {
        // Whatever the page says of itself.
        0 => Reply::ok(&["Content-Type: text/html"], "<html>log in"),
        1 => Reply::ok(
            &["Content-Type: TEXT/HTML; charset=x", "Cache-Control: max-age=600", "ETag: \"p\""],
            "<html>log in",
        ),
        2 => Reply::ok(
            &["Content-Type: application/xhtml+xml", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"],
            "<html>log in",
        ),
        _ => Reply::ok(FILE, received.target.as_bytes()),
    };
    let fixture = Fixture::with(handle, kept);
    let path = "/pool/x.deb";
    for _ in 0..3 {
        let page = fixture.get(path, &[]);
        assert_eq!(page.text(), "<html>log in");
        assert!(!page.is_hit() && page.cache_status().ends_with("detail=page-for-file"), "{}", page.cache_status());
    }
    assert_eq!(fixture.get(path, &[]).text(), path);
    assert_eq!(fixture.get_hit(path, &[]).text(), path);
    assert_eq!(fixture.origin.count(), 4);
}

#[test]
fn reload_repairs_a_file_that_was_stored_wrongly_and_a_page_does_not_spoil_it() {
    let handle = |_: &Received, number| match number {
        0 => Reply::ok(&["Content-Type: text/plain"], "log in"),
        1 => Reply::ok(FILE, "file"),
        _ => Reply::ok(&["Content-Type: text/html"], "<html>log in"),
    };
    let fixture = Fixture::with(handle, kept);
    let path = "/pool/x.deb";
    fixture.get(path, &[]);
    assert_eq!(fixture.get_hit(path, &[]).text(), "log in");
    // Maven says this with every request, and is answered from the cache.
    let habit = ["Cache-Control: no-cache, no-store", "Pragma: no-cache"];
    assert!(fixture.get(path, &habit).is_hit() && fixture.get(path, &["Cache-Control: max-age=0"]).is_hit());
    assert_eq!(fixture.get(path, &["Cache-Control: no-cache"]).text(), "file");
    assert_eq!(fixture.get_hit(path, &[]).text(), "file");
    assert_eq!(fixture.get(path, &["Cache-Control: no-cache"]).text(), "<html>log in");
    assert_eq!(fixture.get_hit(path, &[]).text(), "file");
}

/// Bodies on both sides of a chunk's end, and of the part that is held back.
const LENGTHS: [usize; 7] = [0, 100, 64 << 10, 70 << 10, 1 << 20, (2 << 20) + 10, (3 << 20) + (40 << 10)];

#[test]
fn file_with_the_digest_in_its_url_is_stored_if_it_has_it_however_long_it_is() {
    for len in LENGTHS {
        let content = body(len);
        let path = format!("/by-hash/SHA256/{}", hex(&content));
        let sent = content.clone();
        let handle = move |_: &Received, number| {
            let mut sent = sent.clone();
            match number {
                0 => sent.push(b'x'),
                1 => sent = [&sent[..sent.len() / 2], &b"wrong"[..], &sent[sent.len() / 2..]].concat(),
                _ => {}
            }
            if number % 2 == 0 {
                return Reply::ok(FILE, &sent);
            }
            let head = Reply::head("200 OK", &[FILE, &["Transfer-Encoding: chunked"]].concat());
            let chunk = |octets: &[u8]| [format!("{:x}\r\n", octets.len()).as_bytes(), octets, b"\r\n"].concat();
            head.send(chunk(&sent)).send("0\r\n\r\n")
        };
        let fixture = Fixture::with(handle, kept);
        for number in 0..2 {
            let broken = fixture.get(&path, &[]);
            assert!(!broken.complete && !broken.is_hit(), "{len} {number}");
            let held_back = 64 << 10;
            assert!(broken.body.len() <= (len + 5).saturating_sub(held_back), "{len} {number} {}", broken.body.len());
        }
        let right = fixture.get(&path, &[]);
        assert!(right.complete && right.body == content && !right.is_hit(), "{len}");
        let hit = fixture.get_hit(&path, &["Cache-Control: no-cache"]);
        assert!(hit.body == content, "a reload cannot make it better: {len}");
        assert_eq!(fixture.proxy.stats().files, [1, 0, 2], "{len}");
    }
}

/// Guards against a fetch that waits for its reader, while the reader waits for bytes that are held back.
#[test]
fn reader_and_fetch_of_a_checked_body_do_not_wait_for_each_other_without_memory() {
    for len in [300 << 10, (2 << 20) + 10] {
        let content = body(len);
        let path = format!("/by-hash/SHA256/{}", hex(&content));
        for lines in [FILE, &[FILE, &["Connection: close"]].concat()] {
            let sent = content.clone();
            let lines = lines.join("\r\n");
            let is_counted = !lines.contains("close");
            let handle = move |_: &Received, _| {
                let lines: Vec<&str> = lines.split("\r\n").collect();
                if is_counted { Reply::ok(&lines, &sent) } else { Reply::head("200 OK", &lines).send(&sent).close() }
            };
            let fixture = Fixture::with(handle, |config| {
                kept(config);
                config.window_bytes = Some(0);
            });
            let right = fixture.get(&path, &[]);
            assert!(right.complete && right.body == content, "{len} {is_counted}");
        }
    }
}

#[test]
fn range_of_a_file_with_a_known_digest_is_passed_through_until_the_file_is_stored() {
    let content = body(3 << 20);
    let path = format!("/by-hash/SHA256/{}", hex(&content));
    let sent = content.clone();
    let handle = move |received: &Received, _| match received.field("range") {
        Some(_) => {
            Reply::status("206 Partial Content", &[FILE, &["Content-Range: bytes 5-9/3145728"]].concat(), &sent[5..10])
        }
        None => Reply::ok(FILE, &sent),
    };
    let fixture = Fixture::with(handle, kept);
    for number in 1..=2 {
        let part = fixture.get(&path, &["Range: bytes=5-9"]);
        assert_eq!((part.status, &part.body[..]), (206, &content[5..10]));
        assert_eq!(fixture.origin.count(), number, "no part is stored");
        assert_eq!(fixture.origin.received().pop().unwrap().field("range"), Some("bytes=5-9"));
    }
    assert!(fixture.get(&path, &[]).body == content);
    assert_eq!(fixture.get_hit(&path, &["Range: bytes=5-9"]).body, &content[5..10]);
}

/// Guards against a client that fetches a file in many ranges, for each of which a listing of megabytes is parsed.
#[test]
fn listing_is_read_once_for_all_ranges_of_a_file() {
    let page = format!("<a href=\"/packages/six-1.0-py3-none-any.whl#sha256={}\">six</a>", hex(b"0123456789"));
    let handle = move |received: &Received, _| match received.field("range") {
        Some(_) => Reply::status("206 Partial Content", &[FILE, &["Content-Range: bytes 5-9/10"]].concat(), "56789"),
        None => Reply::ok(&["Content-Type: text/html", "Cache-Control: max-age=60"], &page),
    };
    let fixture = Fixture::with(handle, |config| {
        kept(config);
        config.admin = Some("127.0.0.1:0".parse().unwrap());
    });
    let path = "/packages/six-1.0-py3-none-any.whl";
    fixture.get("/simple/six/", &[]);
    fixture.get_hit("/simple/six/", &[]);
    for _ in 0..2 {
        fixture.get(path, &["Range: bytes=5-9"]);
        assert_eq!(fixture.origin.received().pop().unwrap().field("range"), Some("bytes=5-9"));
        // The next range must not need the listing.
        let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
        admin.request("PURGE", "http://site.example/simple/six/", &[]);
        assert_eq!(fixture.get("/simple/six/", &["Cache-Control: only-if-cached"]).status, 504);
    }
}

/// The listing and the path of each kind of package, for these contents.
fn packages(content: &[u8]) -> [(&'static str, &'static str, &'static str, String, &'static str); 5] {
    let sha256 = hex(content);
    let integrity = format!("sha256-{}", BASE64_STANDARD.encode(digest(&SHA256, content)));
    let record = digest(&SHA256, format!("{sha256}  go.mod\n").as_bytes());
    let record = BASE64_STANDARD.encode(record);
    [
        (
            "/simple/six/",
            "text/html",
            "",
            format!("<a href=\"/packages/six-1.0-py3-none-any.whl#sha256={sha256}\">six</a>"),
            "/packages/six-1.0-py3-none-any.whl",
        ),
        (
            "/simple/six/",
            "application/vnd.pypi.simple.v1+json",
            "Accept: application/vnd.pypi.simple.v1+json",
            format!(
                "{{\"files\":[{{\"filename\":\"six-1.0-py3-none-any.whl\",\"hashes\":{{\"sha256\":\"{sha256}\"}}}}]}}"
            ),
            "/packages/six-1.0-py3-none-any.whl",
        ),
        (
            "/@a%2fb",
            "application/json",
            "Accept: application/json",
            format!(
                "{{\"versions\":{{\"1.0.0\":{{\"dist\":{{\"tarball\":\"http://x/@a/b/-/b-1.0.0.tgz\",\"integrity\":\"{integrity}\"}}}}}}}}"
            ),
            "/@a/b/-/b-1.0.0.tgz",
        ),
        (
            "/index/it/oa/itoa",
            "text/plain",
            "",
            format!("{{\"name\":\"itoa\",\"vers\":\"1.0.0\",\"cksum\":\"{sha256}\"}}\n"),
            "/crates/itoa/itoa-1.0.0.crate",
        ),
        (
            "/sumdb/sum.golang.org/lookup/a.example/b@v1.0.0",
            "text/plain",
            "",
            format!("1\na.example/b v1.0.0 h1:x\na.example/b v1.0.0/go.mod h1:{record}\n"),
            "/a.example/b/@v/v1.0.0.mod",
        ),
    ]
}

#[test]
fn file_has_the_digest_that_its_stored_listing_names_or_is_not_stored() {
    let content = body(100 << 10);
    for (listing, kind, accept, text, path) in packages(&content) {
        let sent = content.clone();
        let fixture_kind = format!("Content-Type: {kind}");
        let handle = move |received: &Received, number| match received.target.as_str() {
            target if target == listing => {
                Reply::ok(&[&fixture_kind, "Cache-Control: max-age=60", "Vary: Accept"], &text)
            }
            _ if number % 2 == 0 => Reply::ok(FILE, &sent),
            _ => Reply::ok(FILE, [&sent[..], b"wrong"].concat()),
        };
        let fixture = Fixture::with(handle, |config| {
            kept(config);
            let listings = Ruling { name: "listings".into(), ..Ruling::default() };
            config.rules.extend([rule("/**", &[], listings)]);
        });
        let accept: &[&str] = if accept.is_empty() { &[] } else { &[accept] };
        fixture.get(listing, accept);
        fixture.get_hit(listing, accept);
        let wrong = fixture.get(path, &[]);
        assert!(!wrong.complete && wrong.body.len() < 64 << 10, "{path} {kind}");
        let right = fixture.get(path, &[]);
        assert!(right.complete && !right.is_hit() && right.body == content, "{path} {kind}");
        assert!(fixture.get_hit(path, &["Accept: */*"]).body == content, "{path} {kind}");
        assert_eq!(fixture.proxy.stats().files, [1, 0, 1], "{path} {kind}");
    }
}

#[test]
fn file_without_a_listing_is_stored_and_counted_as_unverified() {
    let fixture = Fixture::with(|_, _| Reply::ok(FILE, "file"), kept);
    fixture.get("/packages/six-1.0-py3-none-any.whl", &[]);
    fixture.get_hit("/packages/six-1.0-py3-none-any.whl", &[]);
    assert_eq!(fixture.proxy.stats().files, [0, 1, 0]);
}

/// Checks PyPI, crates.io and Go, whose listings are on another host than their files.
#[test]
fn listing_on_another_server_names_the_digests_of_files() {
    let content = body(100 << 10);
    let sha256 = hex(&content);
    // Clients of a forward proxy name both servers, and those of mirrors neither.
    for is_mirrored in [false, true] {
        let page = format!("<a href=\"http://files.example/six-1.0-py3-none-any.whl#sha256={sha256}\">six</a>");
        let index =
            Origin::start(move |_, _| Reply::ok(&["Content-Type: text/html", "Cache-Control: max-age=60"], &page));
        let sent = content.clone();
        let files = Origin::start(move |_, number| match number {
            0 => Reply::ok(FILE, [&sent[1..], b"x"].concat()),
            _ => Reply::ok(FILE, &sent),
        });
        let [index_url, files_url] = [&index, &files].map(|origin| format!("http://{}", origin.address));
        let fixture = Fixture::with(
            |_, _| Reply::status("404 Not Found", &[], ""),
            |config| {
                kept(config);
                config.default_origin = None;
                config.forward = true;
                config.package_indexes =
                    vec![PackageIndex { files: files_url.parse().unwrap(), index: index_url.parse().unwrap() }];
                let mirrors = [("/pypi", &index_url), ("/files", &files_url)];
                config.mirrors.extend(mirrors.map(|(path, url)| Mirror::of_files(path, url.parse().unwrap())));
            },
        );
        let base = if is_mirrored { [String::from("/pypi"), String::from("/files")] } else { [index_url, files_url] };
        let [listing, file] = [format!("{}/simple/six/", base[0]), format!("{}/six-1.0-py3-none-any.whl", base[1])];
        fixture.get(&listing, &[]);
        fixture.get_hit(&listing, &[]);
        let wrong = fixture.get(&file, &[]);
        assert!(!wrong.complete && wrong.body.len() < content.len(), "mirrored: {is_mirrored}");
        assert!(fixture.get(&file, &[]).body == content, "mirrored: {is_mirrored}");
        assert!(fixture.get_hit(&file, &[]).body == content, "mirrored: {is_mirrored}");
        assert_eq!(fixture.proxy.stats().files, [1, 0, 1], "mirrored: {is_mirrored}");
        assert_eq!((index.count(), files.count()), (1, 2), "mirrored: {is_mirrored}");
    }
}

#[test]
fn listing_of_a_site_is_not_that_of_the_server_with_its_url() {
    let handle = |received: &Received, _| match received.target.as_str() {
        "/index/simple/six/" => {
            let page = format!("<a href=\"/six-1.0-py3-none-any.whl#sha256={}\">six</a>", hex(b"file"));
            Reply::ok(&["Content-Type: text/html", "Cache-Control: max-age=60"], page)
        }
        _ => Reply::ok(FILE, "other"),
    };
    let fixture = Fixture::with(handle, |config| {
        kept(config);
        let files = "http://site.example";
        let index = "http://site.example/index";
        config.package_indexes = vec![PackageIndex { files: files.parse().unwrap(), index: index.parse().unwrap() }];
    });
    // The mark of the fixture's origin is in the keys of responses from it, but an index is found under its own name.
    fixture.get("/index/simple/six/", &[]);
    fixture.get_hit("/index/simple/six/", &[]);
    let answered = fixture.get("/six-1.0-py3-none-any.whl", &[]);
    assert!(answered.complete, "the index is another server's, so nothing is known of it");
    assert_eq!(fixture.proxy.stats().files, [0, 1, 0]);
}

#[test]
fn body_that_contradicts_its_own_digest_is_passed_on_and_not_stored() {
    let right = format!("Repr-Digest: sha-256=:{}:", BASE64_STANDARD.encode(digest(&SHA256, b"body")));
    let handle = move |received: &Received, _| {
        let lines = ["Cache-Control: max-age=60", "Content-Encoding: gzip", &right];
        match received.target.as_str() {
            "/chunked" => Reply::head("200 OK", &[&lines[..], &["Transfer-Encoding: chunked"]].concat())
                .send("4\r\nbodx\r\n0\r\n\r\n"),
            "/wrong" => Reply::ok(&lines, "bodx"),
            _ => Reply::ok(&lines, "body"),
        }
    };
    let fixture = Fixture::new(handle);
    for path in ["/wrong", "/chunked"] {
        for _ in 0..2 {
            let passed = fixture.get(path, &[]);
            assert!(passed.complete && passed.text() == "bodx" && !passed.is_hit(), "{path}");
        }
    }
    fixture.get("/right", &[]);
    assert_eq!(fixture.get_hit("/right", &[]).text(), "body");
    assert_eq!(fixture.proxy.stats().files, [0, 0, 4]);
}

#[test]
fn part_of_a_stored_body_has_no_digest_of_the_whole_content() {
    let digests = ["Content-Digest: sha-256=:YQ==:", "Repr-Digest: sha-256=\"unchecked\"", "Content-MD5: YQ=="];
    let fixture =
        Fixture::new(move |_, _| Reply::ok(&[&digests[..], &["Cache-Control: max-age=60"]].concat(), "0123456789"));
    fixture.get("/", &[]);
    let whole = fixture.get_hit("/", &[]);
    assert!(whole.field("content-digest").is_some() && whole.field("content-md5").is_some());
    for range in ["bytes=1-2", "bytes=1-2,5-6", "bytes=50-"] {
        let part = fixture.get("/", &[&format!("Range: {range}")]);
        assert!(
            part.status >= 206 && part.field("content-digest").is_none() && part.field("content-md5").is_none(),
            "{range}"
        );
        assert!(part.field("repr-digest").is_some(), "{range}");
    }
}

/// Guards against clients that all wait for a listing that is being looked up while the file already arrives.
#[test]
fn clients_of_one_checked_fetch_share_it() {
    let gate = Gate::default();
    let content = body(200 << 10);
    let path = format!("/by-hash/SHA256/{}", hex(&content));
    let sent = content.clone();
    let held = gate.clone();
    let handle = move |_: &Received, _| {
        let head = Reply::head("200 OK", &[FILE, &["Content-Length: 204800"]].concat());
        head.send(&sent[..100]).wait(&held).send(&sent[100..])
    };
    let fixture = Fixture::with(handle, kept);
    let mut clients: Vec<_> = (0..3).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: site.example\r\n\r\n"));
        client.read_head();
    }
    gate.open();
    for client in &mut clients {
        assert!(client.read_exact(200 << 10) == content);
    }
    assert_eq!(fixture.origin.count(), 1);
}
