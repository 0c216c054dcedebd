//! Storing and combining partial content (RFC 9111 3.3, 3.4, RFC 9110 14.4, 15.3.7).

use http::{HeaderMap, Method, StatusCode};
use larder_http::{
    BodyPlace, Reason, ReceivedHead, SelectingFields, Settings, Storability, StoredHead, TargetList,
    partial::{
        ContentRange, Continuation, Part, combined, continuation, is_same_representation, parse_content_range, part,
        request_fields, whole_head,
    },
    range::{content_range, content_range_unsatisfied},
    span::Span,
    storable::{self, Exchange},
};
use proptest::prelude::*;

use crate::support::{DAY_SECS, RECEIVED, Response, date, fields, later_answer};

const SPAN: Span = Span { first: 10, last: 19 };
const PART: &str = "Cache-Control: max-age=60\nETag: \"a\"\nContent-Range: bytes 10-19/100";

fn read(lines: &str) -> Result<Part, Reason> {
    part(StatusCode::PARTIAL_CONTENT, &Response::new(lines).fields)
}

fn stored(lines: &str) -> StoredHead {
    Response::new(lines).head()
}

fn decide_part(lines: &str, request: &str) -> Storability {
    let response_fields = Response::new(lines).fields;
    let request_fields = fields(request);
    let exchange = Exchange {
        method: &Method::GET,
        request_fields: &request_fields,
        status: StatusCode::PARTIAL_CONTENT,
        response_fields: &response_fields,
        request_time: RECEIVED,
        response_time: RECEIVED,
    };
    storable::decide_part(&exchange, &Part { span: SPAN, total_len: 100 }, &Settings::default())
}

#[test]
fn content_range_is_read_strictly() {
    let part = |first, last, total_len| Some(ContentRange::Part { span: Span { first, last }, total_len });
    for (value, expected) in [
        ("bytes 0-499/1234", part(0, 499, Some(1234))),
        ("BYTES 0-0/1", part(0, 0, Some(1))),
        ("bytes 500-999/*", part(500, 999, None)),
        ("bytes */1234", Some(ContentRange::Unsatisfied { total_len: 1234 })),
    ] {
        assert_eq!(parse_content_range(value.as_bytes()), expected, "{value}");
    }
}

#[test]
fn content_range_that_contradicts_itself_is_invalid() {
    for value in [
        "bytes 0-499/499",
        "bytes 5-4/10",
        "bytes 0-9/0",
        "bytes */*",
        "bytes 0-9",
        "bytes 0-9/",
        "bytes=0-9/10",
        "bytes  0-9/10",
        "bytes 0-9/10 ",
        "bytes 0 - 9/10",
        "bytes -9/10",
        "bytes 0-/10",
        "bytes 0-9/10/11",
        "bytes +0-9/10",
        "bytes 0-9/0x10",
        "items 0-9/10",
        "bytes 0-18446744073709551615/18446744073709551616",
        "bytes 18446744073709551616-18446744073709551617/*",
        "bytes 00000000000000000000000-9/10",
        "bytes",
        "",
    ] {
        assert_eq!(parse_content_range(value.as_bytes()), None, "{value}");
    }
}

#[test]
fn part_with_a_strong_validator_is_taken_for_what_it_says() {
    assert_eq!(read(PART), Ok(Part { span: SPAN, total_len: 100 }));
    assert_eq!(read(&format!("{PART}\nContent-Length: 10")), Ok(Part { span: SPAN, total_len: 100 }));
    let dated = format!("Content-Range: bytes 10-19/100\nLast-Modified: {}", date(-DAY_SECS));
    assert!(read(&dated).is_ok());
}

#[test]
fn part_that_cannot_be_trusted_is_not_stored() {
    for lines in [
        "ETag: \"a\"".to_owned(),
        "ETag: \"a\"\nContent-Range: bytes 10-19/*".to_owned(),
        "ETag: \"a\"\nContent-Range: bytes */100".to_owned(),
        format!("{PART}\nContent-Range: bytes 10-19/100"),
        format!("{PART}\nContent-Length: 11"),
        format!("{PART}\nContent-Length: ten"),
        format!("{PART}\nContent-Type: Multipart/ByteRanges; boundary=x"),
    ] {
        assert_eq!(read(&lines), Err(Reason::Partial), "{lines}");
    }
    let whole = part(StatusCode::OK, &Response::new(PART).fields);
    assert_eq!(whole, Err(Reason::Partial));
}

#[test]
fn part_is_storable_as_its_whole_would_be() {
    assert!(matches!(
        decide_part(PART, "Range: bytes=10-19"),
        Storability::Store { reason: Reason::ExplicitLifetime, .. }
    ));
    for (directives, request, reason) in [
        ("no-store", "", Reason::NoStore),
        ("private", "", Reason::Private),
        ("max-age=60", "Authorization: x", Reason::Authorization),
        ("max-age=60", "Cache-Control: no-store", Reason::RequestNoStore),
    ] {
        let lines = format!("Cache-Control: {directives}\nETag: \"a\"\nContent-Range: bytes 10-19/100");
        assert_eq!(decide_part(&lines, request), Storability::Refuse { reason }, "{directives} {request}");
    }
}

#[test]
fn head_of_a_stored_part_is_that_of_the_whole() {
    let response = Response::new(&format!("{PART}\nContent-Length: 10\nContent-Type: text/plain"));
    let received = ReceivedHead {
        status: StatusCode::PARTIAL_CONTENT,
        fields: response.fields,
        request_time: RECEIVED,
        response_time: RECEIVED,
    };
    let head = whole_head(
        received,
        &Part { span: SPAN, total_len: 100 },
        7,
        SelectingFields::default(),
        &TargetList::default(),
    );
    assert_eq!(head.status(), StatusCode::OK);
    assert_eq!(head.body(), BodyPlace::Chunks { len: 100, representation: 7 });
    let fields = head.fields().to_map();
    assert!(!fields.contains_key("content-range"));
    assert_eq!(fields["content-type"], "text/plain");
}

#[test]
fn missing_parts_are_asked_for_with_if_range() {
    let asked =
        |lines: &str| request_fields(&stored(lines), &SPAN).map(|fields| fields.into_iter().collect::<HeaderMap>());
    let request = asked("ETag: \"a\"").expect("the tag is strong");
    assert_eq!((&request["range"], &request["if-range"]), (&"bytes=10-19".parse().unwrap(), &"\"a\"".parse().unwrap()));
    let modified = date(-DAY_SECS);
    let request = asked(&format!("Last-Modified: {modified}")).expect("the date is strong");
    assert_eq!(request["if-range"], modified);
    assert_eq!(asked("ETag: W/\"a\""), None);
    assert_eq!(asked(""), None);
}

#[test]
fn answer_to_if_range_continues_or_shows_a_change() {
    let head = stored("ETag: \"a\"");
    let judge = |status: u16, lines: &str| {
        let status = StatusCode::from_u16(status).expect("a test's status is a status");
        continuation(&head, &SPAN, status, &fields(lines), RECEIVED)
    };
    let same = "ETag: \"a\"\nContent-Range: bytes 10-19/100";
    assert_eq!(judge(206, same), Continuation::Same(SPAN));
    // A server may send less than requested.
    assert_eq!(
        judge(206, "ETag: \"a\"\nContent-Range: bytes 10-12/100"),
        Continuation::Same(Span { first: 10, last: 12 })
    );
    for (status, lines) in [
        (200, "ETag: \"b\""),
        (206, "ETag: \"b\"\nContent-Range: bytes 10-19/100"),
        (206, "ETag: \"a\"\nContent-Range: bytes 10-19/101"),
        (416, "Content-Range: bytes */5"),
        (404, ""),
        (410, ""),
    ] {
        assert_eq!(judge(status, lines), Continuation::Changed, "{status} {lines}");
    }
    for (status, lines) in [
        (206, "ETag: \"a\""),
        (206, "ETag: \"a\"\nContent-Range: bytes 0-19/100"),
        (206, "ETag: W/\"a\"\nContent-Range: bytes 10-19/100"),
        (503, ""),
        (304, ""),
    ] {
        assert_eq!(judge(status, lines), Continuation::Unknown, "{status} {lines}");
    }
}

#[test]
fn parts_are_combined_by_the_same_strong_validator_only() {
    let modified = format!("Last-Modified: {}", date(-DAY_SECS));
    for (first, second, same) in [
        ("ETag: \"a\"", "ETag: \"a\"", true),
        ("ETag: \"a\"", "ETag: \"b\"", false),
        ("ETag: W/\"a\"", "ETag: W/\"a\"", false),
        ("ETag: \"a\"", "", false),
        ("", "", false),
        (modified.as_str(), modified.as_str(), true),
        (modified.as_str(), "ETag: \"a\"", false),
    ] {
        let fields = Response::new(second).fields;
        assert_eq!(is_same_representation(&stored(first), &fields, RECEIVED), same, "{first} {second}");
    }
}

#[test]
fn combined_response_has_the_newest_fields_and_its_own_framing() {
    let head = stored("ETag: \"a\"\nX-A: old\nX-B: kept\nContent-Length: 100\nCache-Control: max-age=1");
    let update = "ETag: \"a\"\nX-A: new\nContent-Range: bytes 10-19/100\nContent-Length: 10\nCache-Control: max-age=60";
    let request = HeaderMap::new();
    let update = fields(update);
    let answer = later_answer(&request, StatusCode::PARTIAL_CONTENT, &update);
    let head = combined(&head, &answer, &Settings::default());
    let combined = head.fields().to_map();
    assert_eq!((&combined["x-a"], &combined["x-b"]), (&"new".parse().unwrap(), &"kept".parse().unwrap()));
    assert_eq!(head.body().len(), 100);
    assert!(!combined.contains_key("content-range"));
    assert_eq!(head.fresh_until(&Settings::default()), RECEIVED.plus_secs(160));
}

proptest! {
    #[test]
    fn no_content_range_panics(value in proptest::collection::vec(any::<u8>(), 0..60), prefixed in any::<bool>()) {
        let value = if prefixed { [&b"bytes "[..], &value].concat() } else { value };
        if let Some(ContentRange::Part { span, total_len }) = parse_content_range(&value) {
            prop_assert!(span.first <= span.last && total_len.is_none_or(|len| span.last < len));
        }
    }

    #[test]
    fn no_text_like_a_content_range_panics(value in "bytes [0-9]{0,22}-?[0-9]{0,22}/[0-9*]{0,22}") {
        parse_content_range(value.as_bytes());
    }

    #[test]
    fn written_content_ranges_read_back(first in 0..u64::MAX / 2, more in 0..u64::MAX / 4, rest in 1..u64::MAX / 4) {
        let last = first + more;
        let total_len = first + more + rest;
        let expected = ContentRange::Part { span: Span { first, last }, total_len: Some(total_len) };
        prop_assert_eq!(parse_content_range(content_range(first, last, total_len).as_bytes()), Some(expected));
        let unsatisfied = ContentRange::Unsatisfied { total_len };
        prop_assert_eq!(parse_content_range(content_range_unsatisfied(total_len).as_bytes()), Some(unsatisfied));
    }

    #[test]
    fn every_part_of_a_body_is_taken_where_it_belongs(first in 0u64..1000, more in 0u64..1000, rest in 1u64..1000) {
        let total_len = first + more + rest;
        let lines = format!(
            "ETag: \"a\"\nContent-Range: bytes {first}-{}/{total_len}\nContent-Length: {}", first + more, more + 1,
        );
        let span = Span { first, last: first + more };
        prop_assert_eq!(read(&lines), Ok(Part { span, total_len }));
    }
}
