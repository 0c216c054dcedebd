//! Conditional requests from clients (RFC 9111 4.3.2, RFC 9110 13.1, 13.2, 15.4.5).

use http::{HeaderMap, HeaderName, HeaderValue};
use larder_http::{
    Precondition,
    conditional::{evaluate, not_modified_fields},
};
use proptest::prelude::*;

use crate::support::{DAY_SECS, Response, date, fields};

fn outcome(response: &str, request: &str) -> Precondition {
    evaluate(&fields(request), &Response::new(response).head())
}

fn with_tag(tag: &[u8]) -> Response {
    let mut response = Response::new("Cache-Control: max-age=3600");
    response.fields.insert("etag", HeaderValue::from_bytes(tag).expect("the tag is a field value"));
    response
}

#[test]
fn if_modified_since_not_before_last_modified_is_not_modified() {
    let stored = format!("Last-Modified: {}", date(-DAY_SECS));
    for (since, expected) in [
        (-DAY_SECS, Precondition::NotModified),
        (-DAY_SECS + 1, Precondition::NotModified),
        (0, Precondition::NotModified),
        (-DAY_SECS - 1, Precondition::Pass),
    ] {
        assert_eq!(outcome(&stored, &format!("If-Modified-Since: {}", date(since))), expected, "{since}");
    }
}

#[test]
fn if_modified_since_is_read_in_rfc_850_form_too() {
    let stored = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    for (since, expected) in [
        ("Sunday, 06-Nov-94 08:49:37 GMT", Precondition::NotModified),
        ("Sun Nov  6 08:49:37 1994", Precondition::NotModified),
        ("Sunday, 06-Nov-94 08:49:36 GMT", Precondition::Pass),
        ("Sun, 06 Nov 1994 08:49:37 UTC", Precondition::Pass),
        ("0", Precondition::Pass),
    ] {
        assert_eq!(outcome(stored, &format!("If-Modified-Since: {since}")), expected, "{since}");
    }
}

#[test]
fn if_modified_since_is_compared_with_date_when_there_is_no_last_modified() {
    assert_eq!(outcome("", &format!("If-Modified-Since: {}", date(0))), Precondition::NotModified);
    assert_eq!(outcome("", &format!("If-Modified-Since: {}", date(-1))), Precondition::Pass);
}

#[test]
fn if_none_match_matches_weakly_anywhere_in_the_list() {
    for stored in ["ETag: \"abc\"", "ETag: W/\"abc\""] {
        for tags in ["\"abc\"", "W/\"abc\"", "\"abc\", \"d\"", "\"a\", \"abc\", \"d\"", "\"a\",W/\"abc\"", "*"] {
            assert_eq!(outcome(stored, &format!("If-None-Match: {tags}")), Precondition::NotModified, "{tags}");
        }
        for tags in ["\"ab\"", "\"abcd\"", "\"ABC\"", "\"a\", \"b\"", ""] {
            assert_eq!(outcome(stored, &format!("If-None-Match: {tags}")), Precondition::Pass, "{tags}");
        }
    }
    assert_eq!(outcome("ETag: \"b\"", "If-None-Match: \"a\"\nIf-None-Match: \"b\""), Precondition::NotModified);
}

#[test]
fn if_none_match_decides_alone() {
    let stored = format!("ETag: \"a\"\nLast-Modified: {}", date(-DAY_SECS));
    let since = format!("If-Modified-Since: {}", date(0));
    assert_eq!(outcome(&stored, &format!("If-None-Match: \"b\"\n{since}")), Precondition::Pass);
    let before = format!("If-Modified-Since: {}", date(-2 * DAY_SECS));
    assert_eq!(outcome(&stored, &format!("If-None-Match: \"a\"\n{before}")), Precondition::NotModified);
}

#[test]
fn malformed_tags_match_nothing() {
    for (stored, tag) in [("abc", "abc"), ("\"abc\"", "abc"), ("abc", "\"abc\""), ("\"abc\"", "w/\"abc\"")] {
        let head = with_tag(stored.as_bytes()).head();
        let request = fields(&format!("If-None-Match: {tag}"));
        assert_eq!(evaluate(&request, &head), Precondition::Pass, "{stored} {tag}");
    }
}

#[test]
fn backslashes_and_octets_above_0x7f_in_tags_compare_as_octets() {
    for tag in [&b"\"a\\b\""[..], b"\"caf\xe9\"", b"W/\"\xc3\xa9\"", b"\"a,b\"", b"\"\""] {
        let head = with_tag(tag).head();
        let mut request = HeaderMap::new();
        request.insert("if-none-match", HeaderValue::from_bytes(tag).expect("the tag is a field value"));
        assert_eq!(evaluate(&request, &head), Precondition::NotModified, "{tag:?}");
    }
}

#[test]
fn preconditions_do_not_touch_a_stored_error() {
    let head = Response::new("ETag: \"a\"\nCache-Control: max-age=60").with_status(404).head();
    assert_eq!(evaluate(&fields("If-None-Match: \"a\""), &head), Precondition::Pass);
    assert_eq!(evaluate(&fields("If-Match: \"b\""), &head), Precondition::Pass);
}

#[test]
fn if_match_compares_strongly_and_leaves_failure_to_the_origin() {
    assert_eq!(outcome("ETag: \"a\"", "If-Match: \"b\", \"a\""), Precondition::Pass);
    assert_eq!(outcome("ETag: \"a\"", "If-Match: *"), Precondition::Pass);
    for (stored, tag) in
        [("ETag: \"a\"", "\"b\""), ("ETag: W/\"a\"", "W/\"a\""), ("ETag: \"a\"", "W/\"a\""), ("", "\"a\"")]
    {
        assert_eq!(outcome(stored, &format!("If-Match: {tag}")), Precondition::Failed, "{stored} {tag}");
    }
}

#[test]
fn if_unmodified_since_counts_only_without_if_match() {
    let stored = format!("ETag: \"a\"\nLast-Modified: {}", date(-DAY_SECS));
    let before = format!("If-Unmodified-Since: {}", date(-2 * DAY_SECS));
    assert_eq!(outcome(&stored, &before), Precondition::Failed);
    assert_eq!(outcome(&stored, &format!("If-Match: \"a\"\n{before}")), Precondition::Pass);
    assert_eq!(outcome(&stored, &format!("If-Unmodified-Since: {}", date(-DAY_SECS))), Precondition::Pass);
    assert_eq!(outcome(&stored, "If-Unmodified-Since: never"), Precondition::Pass);
}

#[test]
fn preconditions_of_both_kinds_are_taken_in_order() {
    assert_eq!(outcome("ETag: \"a\"", "If-Match: \"a\"\nIf-None-Match: \"a\""), Precondition::NotModified);
    assert_eq!(outcome("ETag: \"a\"", "If-Match: \"b\"\nIf-None-Match: \"a\""), Precondition::Failed);
}

#[test]
fn not_modified_carries_the_fields_of_rfc_9110_15_4_5() {
    let lines = format!(
        "Cache-Control: max-age=60\nContent-Location: /a\nETag: \"a\"\nExpires: {0}\nVary: Foo\n\
         Last-Modified: {0}\nContent-Type: text/plain\nContent-Length: 3\nX-Other: a",
        date(-9)
    );
    let head = Response::new(&lines).head();
    let fields = not_modified_fields(&head);
    let mut names: Vec<_> = fields.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["cache-control", "content-location", "date", "etag", "expires", "vary"]);
}

#[test]
fn not_modified_without_a_tag_carries_last_modified() {
    let head = Response::new(&format!("Last-Modified: {}", date(-9))).head();
    assert!(not_modified_fields(&head).contains_key("last-modified"));
}

proptest! {
    #[test]
    fn no_precondition_panics(value in proptest::collection::vec(32u8..=255, 0..40), which in 0usize..4) {
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        let names = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
        let mut request = HeaderMap::new();
        request.insert(HeaderName::from_static(names[which]), value);
        evaluate(&request, &with_tag(b"\"a\"").head());
    }
}
