//! Checks that responses of one cache arrive unchanged in another, and that a file from an unknown source adds no false
//! responses.

use crate::{
    origin::{Origin, body_of},
    process::{Larder, Response, errors, refused, run, said},
};
use std::{fs, path::Path};
use tempfile::TempDir;

const SITE: &str = "http://www.example.test";

/// Starts a proxy of this user, on the default store, in front of `origin`.
fn start(home: &TempDir, origin: &Origin, flags: &[&str]) -> Larder {
    let origin = format!("http://{}", origin.address);
    Larder::start(home, &[&["--size", "64MiB", "--memory-cache", "1MB", "--origin", &origin], flags].concat())
}

fn get(larder: &Larder, path: &str, language: &str) -> Response {
    let fields = format!("Host: www.example.test\r\nAccept-Language: {language}\r\nConnection: close\r\n");
    larder.send(&format!("GET {path} HTTP/1.1\r\n{fields}\r\n"))
}

/// Returns paths, each with the language to request: short, empty, long and varying responses.
fn wanted() -> Vec<(String, &'static str)> {
    let plain = ["/a", "/b?x=[1]&y=%20", "/empty?bytes=0", "/film?bytes=2500000"];
    let plain = plain.map(|path| (path.to_owned(), "en"));
    plain.into_iter().chain([("/vary/x".to_owned(), "en"), ("/vary/x".to_owned(), "fr")]).collect()
}

#[test]
fn what_is_packed_here_is_served_there_with_the_same_heads_ages_and_bodies_while_the_line_is_down() {
    for name in ["ship.warc", "ship.warc.gz"] {
        let here = TempDir::new().unwrap();
        let there = TempDir::new().unwrap();
        let origin = Origin::start();
        let larder = start(&here, &origin, &[]);
        wanted().iter().for_each(|(path, language)| assert_eq!(get(&larder, path, language).status, 200));
        larder.get("/else");
        let heads: Vec<_> = wanted().iter().map(|(path, language)| get(&larder, path, language)).collect();
        let file = here.path().join(name);
        let file = file.to_str().unwrap();
        let sources = ["/a", "/b*", "/empty*", "/film*", "/vary/*"].map(|path| format!("{SITE}{path}"));
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        let told = said(&here, &[&["pack", file], &sources[..]].concat());
        assert!(told.starts_with("packed 6 responses with bodies of 2.5 MB, skipped 0: "), "{told}");
        assert!(refused(&here, &["pack", file, SITE], 2).contains("the file already exists"));
        drop(larder);
        let asked = origin.count();
        let larder = start(&there, &origin, &["--offline", "on"]);
        let told = said(&there, &["unpack", file]);
        assert!(told.contains("6 stored (2.5 MB), 0 already stored, 0 refused"), "{told}");
        for ((path, language), before) in wanted().iter().zip(&heads) {
            let after = get(&larder, path, language);
            assert_eq!((after.status, after.is_hit()), (200, true), "{path}");
            assert_eq!(after.body, body_of(path), "{path}");
            for field in ["date", "cache-control", "content-length", "vary"] {
                assert_eq!(after.field(field), before.field(field), "{path} {field}");
            }
            let age = |response: &Response| response.field("age").unwrap().parse::<i64>().unwrap();
            assert!((0..=30).contains(&(age(&after) - age(before))), "{path} is as old there as it is here");
        }
        assert_eq!((larder.get("/else").status, get(&larder, "/vary/x", "de").status), (504, 504));
        assert!(said(&there, &["unpack", file]).contains("0 stored (0 B), 6 already stored, 0 refused"));
        assert_eq!(origin.count(), asked);
        assert_eq!(larder.stop(), Some(0));
    }
}

/// Returns the file with the first occurrence of `from` after `start` replaced by `to`.
fn edited(file: &[u8], start: usize, from: &str, to: &str) -> Vec<u8> {
    let at = file[start..].windows(from.len()).position(|bytes| bytes == from.as_bytes());
    let at = start + at.unwrap_or_else(|| panic!("no {from}"));
    [&file[..at], to.as_bytes(), &file[at + from.len()..]].concat()
}

#[test]
fn a_record_that_is_not_right_is_told_and_left_out_and_the_others_are_stored() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &[]);
    for path in ["/one?bytes=1000", "/two?bytes=1000"] {
        larder.get(path);
    }
    let path = home.path().join("good.warc");
    said(&home, &["pack", path.to_str().unwrap(), "--all"]);
    let good = fs::read(&path).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let first =
        if text.find("/one?").unwrap() < text.find("/two?").unwrap() { "/one?bytes=1000" } else { "/two?bytes=1000" };
    let body = &body_of(first)[..100];
    let digest_at = text.find("WARC-Payload-Digest: sha256:").unwrap();
    let digest = &text[digest_at..digest_at + 60];
    let response_at = text.find("WARC-Type: response").unwrap();
    let date_at = response_at + text[response_at..].find("WARC-Date: ").unwrap();
    let date = &text[date_at..date_at + 30];
    for (from, to, told) in [
        (body, format!("X{}", &body[1..]), "its body does not match the stated digest"),
        (
            digest,
            "X-No-Digest: nothing of any kind that could be compared at ".to_owned(),
            "no digest that can be compared",
        ),
        (date, "WARC-Date: 2999-01-01T00:00:00".to_owned(), "received in the future"),
        ("content-length: 1000", "content-length: 1001".to_owned(), "has another length than stated"),
        ("max-age=3600", "private     ".to_owned(), "may not be stored (private)"),
        ("HTTP/1.1 200", "HTTP/1.1 2x0".to_owned(), "it contains no response"),
    ] {
        check_bad(&home, &edited(&good, response_at, from, &to), told, Some("1 stored"));
    }
    let half = &good[..good.len() - 200];
    check_bad(&home, half, "the file ends within a record", None);
    check_bad(&home, b"this is no archive\n", "bytes are not a record", None);
    check_bad(&home, &[&b"rubbish\n"[..], &good].concat(), "bytes are not a record", Some("2 stored"));
    check_bad(&home, &[0x1f, 0x8b, 8, 0, 1, 2, 3], "cut off: ", None);
    check_bad(&home, b"WARC/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", "does not state its length", None);
    check_bad(&home, b"WARC/1.1\r\nContent-Length: 18446744073709551615\r\n\r\nx", "the file ends within", None);
    assert_eq!(larder.stop(), Some(0));
}

/// Unpacks an invalid file into an empty cache.
fn check_bad(home: &TempDir, bytes: &[u8], told: &str, stored: Option<&str>) {
    let path = home.path().join("bad.warc");
    fs::write(&path, bytes).unwrap();
    said(home, &["purge", "--all"]);
    let output = run(home, &["unpack", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{told}: {}", errors(&output));
    assert!(errors(&output).contains(told) && errors(&output).contains("help: "), "{told}: {}", errors(&output));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stored.is_none_or(|stored| out.contains(stored)), "{told}: {out}");
}

#[test]
fn bad_input_is_told_and_leaves_no_file() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let larder = start(&home, &origin, &[]);
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    assert!(refused(&home, &["pack", &path("x.warc")], 2).contains("missing: "));
    assert!(refused(&home, &["pack", &path("x.warc"), "ftp://a/"], 2).contains("must begin with http://"));
    assert!(refused(&home, &["pack", &path("x.warc"), "--mirror", "pipy"], 2).contains("unknown mirror"));
    assert!(refused(&home, &["pack", &path("none/x.warc"), SITE], 1).contains("cannot write "));
    assert!(refused(&home, &["pack", &path("x.warc"), SITE], 1).contains("no stored response matches"));
    larder.get("/a");
    assert!(
        refused(&home, &["pack", &path("x.warc"), "--all", "--older", "1h"], 1).contains("no stored response matches")
    );
    assert!(said(&home, &["pack", &path("y.warc"), "--all", "--newer", "1h"]).starts_with("packed 1 response with"));
    assert!(refused(&home, &["unpack", &path("none.warc")], 1).contains("cannot read "));
    assert!(refused(&home, &["unpack", home.path().to_str().unwrap()], 1).contains("cannot read "));
    assert!(!Path::new(&path("x.warc")).exists());
    assert_eq!(larder.stop(), Some(0));
    assert!(refused(&home, &["pack", &path("x.warc"), SITE], 1).contains("no larder of yours is running"));
}
