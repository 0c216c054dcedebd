//! Range requests (RFC 9110 13.1.5, 14).

use http::{HeaderMap, HeaderValue, Method};
use larder_http::{
    RangeOutcome,
    range::{RangeRequest, content_range, content_range_unsatisfied, parse, select},
};
use proptest::prelude::*;

use crate::support::{DAY_SECS, Response, date, fields};

fn outcome_of(range: &str, total_len: u64) -> RangeOutcome {
    let head = Response::new("Cache-Control: max-age=60").head();
    select(&Method::GET, &fields(&format!("Range: {range}")), &head, total_len)
}

fn single(first: u64, last: u64) -> RangeOutcome {
    RangeOutcome::Single { first, last }
}

#[test]
fn three_forms_of_a_range_are_selected() {
    for (range, expected) in [
        ("bytes=0-499", single(0, 499)),
        ("bytes=500-999", single(500, 999)),
        ("bytes=500-", single(500, 999)),
        ("bytes=-300", single(700, 999)),
        ("bytes=0-0", single(0, 0)),
        ("bytes=-1", single(999, 999)),
        ("bytes=999-", single(999, 999)),
        ("bytes=900-5000", single(900, 999)),
        ("bytes=-5000", single(0, 999)),
        ("BYTES=0-1", single(0, 1)),
        ("bytes= 0-1 ,", single(0, 1)),
    ] {
        assert_eq!(outcome_of(range, 1000), expected, "{range}");
    }
}

#[test]
fn ranges_beyond_the_end_are_not_satisfiable() {
    for range in ["bytes=1000-", "bytes=1000-2000", "bytes=-0", "bytes=99999999999999999999-"] {
        assert_eq!(outcome_of(range, 1000), RangeOutcome::NotSatisfiable, "{range}");
    }
    assert_eq!(outcome_of("bytes=0-", 0), RangeOutcome::NotSatisfiable);
    assert_eq!(outcome_of("bytes=-5", 0), RangeOutcome::Whole);
}

#[test]
fn invalid_ranges_are_ignored() {
    for range in [
        "bytes=5-4",
        "bytes=a-b",
        "bytes=-",
        "bytes=",
        "bytes",
        "bytes 0-1",
        "bytes =0-1",
        "items=0-1",
        "bytes=0-1x",
        "bytes=+0-1",
        "bytes=0--1",
        "bytes=0 -1",
        "bytes=1.0-2",
        "bytes=0-1,x",
        "",
    ] {
        assert_eq!(outcome_of(range, 1000), RangeOutcome::Whole, "{range}");
    }
}

#[test]
fn hostile_numbers_saturate() {
    assert_eq!(outcome_of("bytes=0-99999999999999999999999999", 10), single(0, 9));
    assert_eq!(outcome_of("bytes=-99999999999999999999999999", 10), single(0, 9));
    assert_eq!(
        outcome_of("bytes=18446744073709551614-18446744073709551615", u64::MAX),
        single(u64::MAX - 1, u64::MAX - 1)
    );
}

#[test]
fn repeated_range_field_is_ignored() {
    assert_eq!(parse(&fields("Range: bytes=0-1\nRange: bytes=5-6")), RangeRequest::Absent);
}

#[test]
fn only_a_get_of_a_200_is_answered_in_part() {
    let request = fields("Range: bytes=0-1");
    let response = Response::new("Cache-Control: max-age=60");
    assert_eq!(select(&Method::HEAD, &request, &response.head(), 10), RangeOutcome::Whole);
    assert_eq!(select(&Method::GET, &HeaderMap::new(), &response.head(), 10), RangeOutcome::Whole);
    assert_eq!(select(&Method::GET, &request, &response.with_status(404).head(), 10), RangeOutcome::Whole);
}

#[test]
fn if_range_needs_the_same_strong_tag() {
    for (stored, tag, part) in [
        ("\"a\"", "\"a\"", true),
        ("\"a\"", "\"b\"", false),
        ("W/\"a\"", "W/\"a\"", false),
        ("\"a\"", "W/\"a\"", false),
        ("\"a\"", "a", false),
        ("\"a\"", "\"a\", \"b\"", false),
        ("\"a\"", "*", false),
    ] {
        let head = Response::new(&format!("ETag: {stored}")).head();
        let request = fields(&format!("Range: bytes=0-1\nIf-Range: {tag}"));
        let expected = if part { single(0, 1) } else { RangeOutcome::Whole };
        assert_eq!(select(&Method::GET, &request, &head, 10), expected, "{stored} {tag}");
    }
}

#[test]
fn if_range_needs_exactly_the_last_modified_date_and_a_strong_one() {
    for (modified, asked, part) in [
        (-DAY_SECS, -DAY_SECS, true),
        (-DAY_SECS, -DAY_SECS + 1, false),
        (-DAY_SECS, 0, false),
        (-1, -1, true),
        (0, 0, false),
    ] {
        let head = Response::new(&format!("Last-Modified: {}", date(modified))).head();
        let request = fields(&format!("Range: bytes=0-1\nIf-Range: {}", date(asked)));
        let expected = if part { single(0, 1) } else { RangeOutcome::Whole };
        assert_eq!(select(&Method::GET, &request, &head, 10), expected, "{modified} {asked}");
    }
    let head = Response::new("").head();
    let request = fields(&format!("Range: bytes=0-1\nIf-Range: {}", date(0)));
    assert_eq!(select(&Method::GET, &request, &head, 10), RangeOutcome::Whole);
}

#[test]
fn failed_if_range_gives_the_whole_even_for_an_unsatisfiable_range() {
    let head = Response::new("ETag: \"a\"").head();
    let request = fields("Range: bytes=100-\nIf-Range: \"b\"");
    assert_eq!(select(&Method::GET, &request, &head, 10), RangeOutcome::Whole);
}

#[test]
fn content_range_is_written_as_rfc_9110_14_4_says() {
    assert_eq!(content_range(0, 499, 1234), "bytes 0-499/1234");
    assert_eq!(
        content_range(u64::MAX - 1, u64::MAX - 1, u64::MAX),
        "bytes 18446744073709551614-18446744073709551614/18446744073709551615"
    );
    assert_eq!(content_range_unsatisfied(47_022), "bytes */47022");
}

proptest! {
    #[test]
    fn whatever_is_selected_lies_inside(first in any::<u64>(), last in any::<u64>(), total_len in any::<u64>(), shape in 0..3) {
        let range = match shape {
            0 => format!("bytes={first}-{last}"),
            1 => format!("bytes={first}-"),
            _ => format!("bytes=-{last}"),
        };
        if let RangeOutcome::Single { first, last } = outcome_of(&range, total_len) {
            prop_assert!(first <= last && last < total_len, "{} of {}", range, total_len);
        }
    }

    #[test]
    fn no_range_panics(value in proptest::collection::vec(32u8..=255, 0..40), prefixed in any::<bool>()) {
        let value = if prefixed { [&b"bytes="[..], &value].concat() } else { value };
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        let mut request = HeaderMap::new();
        request.insert("range", value);
        parse(&request);
    }
}
