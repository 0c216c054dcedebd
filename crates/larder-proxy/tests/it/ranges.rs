//! Single ranges of stored and arriving bodies (RFC 9110 14, 15.3.7, 15.5.17).

use crate::support::{Fixture, Reply};

const FIELDS: &[&str] = &["Cache-Control: max-age=60", "ETag: \"v1\""];

fn stored() -> Fixture {
    let fixture = Fixture::new(|_, _| Reply::ok(FIELDS, "0123456789"));
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    fixture
}

#[test]
fn ranges_are_cut_from_a_stored_body() {
    let fixture = stored();
    let mut connection = fixture.connect();
    for (range, body, content_range) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=5-100", "56789", "bytes 5-9/10"),
    ] {
        let part = connection.request("GET", "/", &[&format!("Range: {range}")]);
        assert_eq!((part.status, part.text().as_str()), (206, body), "{range}");
        assert_eq!(part.field("content-range"), Some(content_range));
        assert_eq!(part.field("etag"), Some("\"v1\""));
    }
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn range_beyond_the_end_is_refused() {
    let fixture = stored();
    let part = fixture.get("/", &["Range: bytes=10-"]);
    assert_eq!((part.status, part.field("content-range")), (416, Some("bytes */10")));
    assert!(part.body.is_empty());
}

#[test]
fn if_range_that_does_not_hold_gets_the_whole() {
    let fixture = stored();
    let whole = fixture.get("/", &["Range: bytes=2-4", "If-Range: \"v0\""]);
    assert_eq!((whole.status, whole.text().as_str()), (200, "0123456789"));
    let part = fixture.get("/", &["Range: bytes=2-4", "If-Range: \"v1\""]);
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
}

#[test]
fn range_on_a_miss_that_brings_the_whole_stores_it() {
    let fixture = Fixture::new(|_, _| Reply::ok(FIELDS, "0123456789"));
    let part = fixture.get("/", &["Range: bytes=2-4"]);
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert_eq!(fixture.origin.received()[0].field("range"), Some("bytes=0-1048575"), "a chunk is asked for");
    assert_eq!(fixture.get_hit("/", &[]).text(), "0123456789");
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn far_range_of_what_cannot_be_kept_in_parts_is_passed_on() {
    let fixture = Fixture::new(|received, _| match received.field("range") {
        Some("bytes=5000000-5000002") => Reply::status(
            "206 Partial Content",
            &["Content-Range: bytes 5000000-5000002/9000000", "Cache-Control: max-age=60"],
            "far",
        ),
        Some("bytes=4194304-5242879") => {
            Reply::status("206 Partial Content", &["Content-Range: bytes 4194304-4194307/9000000"], "none")
        }
        other => panic!("{other:?}"),
    });
    for count in 2..=3 {
        let part = fixture.get("/", &["Range: bytes=5000000-5000002"]);
        assert_eq!((part.status, part.text().as_str()), (206, "far"));
        assert_eq!(fixture.origin.count(), count, "what it was told once it remembers");
    }
}

#[test]
fn range_of_a_response_that_is_not_stored_comes_from_the_origin() {
    let fixture = Fixture::new(|received, _| match received.field("range") {
        Some(_) => {
            Reply::status("206 Partial Content", &["Content-Range: bytes 2-4/10", "Cache-Control: no-store"], "234")
        }
        None => Reply::ok(&["Cache-Control: no-store"], "0123456789"),
    });
    for _ in 0..3 {
        let part = fixture.get("/", &["Range: bytes=2-4"]);
        assert_eq!((part.status, part.text().as_str()), (206, "234"));
    }
}
