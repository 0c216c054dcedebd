//! Several ranges in one response (RFC 9110 14.2, 14.6, 15.3.7.2).

use http::{HeaderValue, Method};
use larder_http::{
    RangeOutcome,
    multipart::{Multipart, Piece},
    range::{RANGE_COUNT_MAX, RangeRequest, parse, select},
    span::Span,
};
use proptest::prelude::*;

use crate::support::{Response, fields};

fn outcome_of(range: &str, total_len: u64) -> RangeOutcome {
    let head = Response::new("Cache-Control: max-age=60").head();
    select(&Method::GET, &fields(&format!("Range: bytes={range}")), &head, total_len)
}

fn many(spans: &[(u64, u64)]) -> RangeOutcome {
    RangeOutcome::Many(spans.iter().map(|(first, last)| Span { first: *first, last: *last }).collect())
}

/// Returns the body as it is sent, for a representation whose bytes are numbered from 0.
fn body(multipart: &Multipart) -> Vec<u8> {
    let mut body = Vec::new();
    for piece in multipart.pieces() {
        match piece {
            Piece::Text(text) => body.extend_from_slice(text),
            Piece::Part(span) => body.extend((span.first..=span.last).map(|at| at as u8)),
        }
    }
    body
}

#[test]
fn several_ranges_are_answered_in_the_order_of_asking() {
    assert_eq!(outcome_of("0-9, 500-599", 10_000), many(&[(0, 9), (500, 599)]));
    assert_eq!(outcome_of("500-599,0-9,-10", 10_000), many(&[(500, 599), (0, 9), (9990, 9999)]));
}

#[test]
fn unsatisfiable_ranges_among_others_are_left_out() {
    assert_eq!(outcome_of("0-9, 20000-", 10_000), RangeOutcome::Single { first: 0, last: 9 });
    assert_eq!(outcome_of("0-9, 20000-, 500-599, -0", 10_000), many(&[(0, 9), (500, 599)]));
    assert_eq!(outcome_of("20000-, 30000-", 10_000), RangeOutcome::NotSatisfiable);
}

#[test]
fn ranges_that_overlap_or_nearly_touch_become_one() {
    assert_eq!(outcome_of("0-99, 50-149", 10_000), RangeOutcome::Single { first: 0, last: 149 });
    assert_eq!(outcome_of("100-199, 0-99", 10_000), RangeOutcome::Single { first: 0, last: 199 });
    assert_eq!(outcome_of("0-99, 179-300", 10_000), RangeOutcome::Single { first: 0, last: 300 });
    assert_eq!(outcome_of("0-99, 180-300", 10_000), many(&[(0, 99), (180, 300)]));
    assert_eq!(outcome_of("5000-5001, 0-99, 5002-5010", 10_000), many(&[(5000, 5010), (0, 99)]));
}

#[test]
fn abusive_range_sets_get_the_whole() {
    assert_eq!(outcome_of("0-, 0-, 0-", 10_000), RangeOutcome::Whole);
    assert_eq!(outcome_of("0-100, 50-150, 120-200", 10_000), RangeOutcome::Whole);
    let backwards: Vec<_> = (0..20).rev().map(|part| format!("{0}-{0}", part * 400)).collect();
    assert_eq!(outcome_of(&backwards.join(","), 10_000), RangeOutcome::Whole);
    let forwards: Vec<_> = (0..20).map(|part| format!("{0}-{0}", part * 400)).collect();
    assert!(matches!(outcome_of(&forwards.join(","), 10_000), RangeOutcome::Many(parts) if parts.len() == 20));
}

#[test]
fn more_ranges_than_the_bound_get_the_whole() {
    let ranges = |count: u64| (0..count).map(|part| format!("{0}-{0}", part * 400)).collect::<Vec<_>>().join(",");
    let at_most = RANGE_COUNT_MAX as u64;
    assert!(matches!(outcome_of(&ranges(at_most), 1 << 20), RangeOutcome::Many(_)));
    assert_eq!(outcome_of(&ranges(at_most + 1), 1 << 20), RangeOutcome::Whole);
    assert_eq!(parse(&fields(&format!("Range: bytes={}", "0-,".repeat(100_000)))), RangeRequest::Absent);
}

#[test]
fn hundreds_of_ranges_are_served_if_they_are_ascending_and_disjoint() {
    let ranges = |count: u64| (0..count).map(|part| (part * 1000, part * 1000 + 99)).collect::<Vec<_>>();
    let text = |ranges: &[(u64, u64)]| {
        ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(",")
    };
    for count in [65, 250, RANGE_COUNT_MAX as u64] {
        let mut asked = ranges(count);
        assert_eq!(outcome_of(&text(&asked), 1 << 20), many(&asked), "{count}");
        asked[1].1 = 2000;
        assert_eq!(outcome_of(&text(&asked), 1 << 20), RangeOutcome::Whole, "two touch");
        asked = ranges(count);
        asked.swap(10, 11);
        assert_eq!(outcome_of(&text(&asked), 1 << 20), RangeOutcome::Whole, "two are in the wrong order");
    }
}

#[test]
fn parts_that_would_be_longer_than_the_whole_get_the_whole() {
    assert_eq!(outcome_of("0-99, 200-299", 300), RangeOutcome::Whole);
    assert_eq!(outcome_of("0-0, 100-100", 200), many(&[(0, 0), (100, 100)]));
}

#[test]
fn multipart_body_is_written_as_rfc_9110_15_3_7_2_shows() {
    let parts = [Span { first: 97, last: 99 }, Span { first: 200, last: 200 }];
    let multipart = Multipart::new(&parts, 300, Some(&HeaderValue::from_static("text/plain")), 0xab);
    let boundary = format!("{:032x}", 0xab);
    let expected = format!(
        "--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 97-99/300\r\n\r\nabc\r\n\
         --{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 200-200/300\r\n\r\n\u{1}\r\n\
         --{boundary}--\r\n"
    );
    let body: Vec<u8> = body(&multipart).into_iter().map(|byte| if byte == 200 { 1 } else { byte }).collect();
    assert_eq!(String::from_utf8(body).unwrap(), expected);
    assert_eq!(multipart.content_type(), format!("multipart/byteranges; boundary={boundary}"));
}

#[test]
fn parts_of_an_untyped_body_have_no_type() {
    let parts = [Span { first: 0, last: 0 }, Span { first: 500, last: 500 }];
    let text = body(&Multipart::new(&parts, 1000, None, 1));
    assert!(!String::from_utf8_lossy(&text).contains("Content-Type"));
}

proptest! {
    #[test]
    fn announced_length_is_that_of_the_body(
        spans in proptest::collection::vec((0u64..1000, 0u64..300), 2..10), typed in any::<bool>(), boundary in any::<u128>(),
    ) {
        let spans: Vec<_> = spans.iter().map(|(first, more)| Span { first: *first, last: first + more }).collect();
        let kind = HeaderValue::from_static("application/octet-stream");
        let multipart = Multipart::new(&spans, 2000, typed.then_some(&kind), boundary);
        prop_assert_eq!(multipart.content_length(), body(&multipart).len() as u64);
    }

    #[test]
    fn several_ranges_give_disjoint_parts_with_every_byte_asked_for(
        ranges in proptest::collection::vec((0u64..6000, 0u64..400), 2..12), total_len in 1u64..5000,
    ) {
        let text: Vec<_> = ranges.iter().map(|(first, more)| format!("{first}-{}", first + more)).collect();
        let parts = match outcome_of(&text.join(","), total_len) {
            RangeOutcome::Many(parts) => parts,
            RangeOutcome::Single { first, last } => vec![Span { first, last }],
            RangeOutcome::NotSatisfiable => {
                prop_assert!(ranges.iter().all(|(first, _)| *first >= total_len));
                return Ok(());
            }
            RangeOutcome::Whole => return Ok(()),
        };
        prop_assert!(parts.iter().all(|part| part.first <= part.last && part.last < total_len));
        for (index, part) in parts.iter().enumerate() {
            prop_assert!(parts[index + 1..].iter().all(|other| !part.overlaps(other)));
        }
        for (first, more) in ranges.iter().filter(|(first, _)| *first < total_len) {
            let asked = Span { first: *first, last: (first + more).min(total_len - 1) };
            prop_assert!(parts.iter().any(|part| part.contains(&asked)), "{:?} in {:?}", asked, parts);
        }
    }

    #[test]
    fn no_list_of_ranges_panics(value in "[0-9, -]{0,80}", total_len in any::<u64>()) {
        outcome_of(&value, total_len);
    }
}
