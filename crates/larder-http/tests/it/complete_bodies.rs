//! Whether a body is complete (RFC 9112 6.3, 8; RFC 9113 8.1).

use http::{HeaderMap, HeaderValue, Version, header::TRANSFER_ENCODING};
use larder_http::{
    fields::BodyLength,
    framing::{BodyMeter, EndMark},
};

const MARKS: [EndMark; 4] = [EndMark::EndStream, EndMark::LastChunk, EndMark::Length, EndMark::Close];

#[test]
fn body_is_complete_only_by_the_end_that_its_message_announced() {
    let cases: [(BodyMeter, &[EndMark]); 6] = [
        (BodyMeter::http1(BodyLength::Length(5)), &[EndMark::Length]),
        (BodyMeter::http1(BodyLength::Chunked), &[EndMark::LastChunk]),
        (BodyMeter::http1(BodyLength::Unstated), &[EndMark::Close]),
        (BodyMeter::stream(None), &[EndMark::EndStream]),
        (BodyMeter::stream(Some(5)), &[EndMark::EndStream, EndMark::Length]),
        (BodyMeter::of_len(5), &[EndMark::Length]),
    ];
    for (mut meter, marks) in cases {
        meter.take(2);
        meter.take(3);
        for mark in MARKS {
            let completed = meter.end(mark).ok().map(|completed| completed.len());
            assert_eq!(completed, marks.contains(&mark).then_some(5), "{mark:?} of {meter:?}");
        }
    }
}

#[test]
fn body_of_another_length_than_announced_is_never_complete() {
    for meter in [BodyMeter::http1(BodyLength::Length(5)), BodyMeter::stream(Some(5)), BodyMeter::of_len(5)] {
        for received in [0, 1, 4, 6, u64::MAX] {
            let mut meter = meter.clone();
            meter.take(received);
            assert_eq!(meter.remaining(), Some(5_u64.saturating_sub(received)));
            for mark in MARKS {
                assert!(meter.end(mark).is_err(), "{mark:?} after {received} of {meter:?}");
            }
        }
    }
}

#[test]
fn empty_body_is_complete_like_any_other() {
    assert!(BodyMeter::of_len(0).end(EndMark::Length).unwrap().is_empty());
    assert!(BodyMeter::http1(BodyLength::Chunked).end(EndMark::Length).is_err());
    assert!(BodyMeter::stream(None).end(EndMark::Close).is_err());
}

#[test]
fn end_that_a_library_reports_of_a_stream_counts_only_with_its_mark_or_its_length() {
    let chunked = HeaderMap::from_iter([(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))]);
    let plain = HeaderMap::new();
    let cases = [
        (Version::HTTP_2, &plain, None, [false, true]),
        (Version::HTTP_2, &plain, Some(5), [true, true]),
        (Version::HTTP_2, &plain, Some(6), [false, false]),
        (Version::HTTP_3, &plain, None, [false, true]),
        (Version::HTTP_11, &plain, None, [true, true]),
        (Version::HTTP_11, &chunked, None, [true, true]),
        (Version::HTTP_11, &plain, Some(5), [true, true]),
        (Version::HTTP_10, &plain, Some(6), [false, false]),
    ];
    for (version, fields, len, expected) in cases {
        let mut meter = BodyMeter::of_message(version, fields, len);
        meter.take(5);
        let found = [false, true].map(|has_end_stream| meter.end_reported(has_end_stream).is_ok());
        assert_eq!(found, expected, "{version:?} {len:?}");
    }
}

#[test]
fn incomplete_body_is_reported_with_what_is_missing() {
    let mut meter = BodyMeter::of_len(1_000_000);
    meter.take(3);
    assert_eq!(meter.break_off().to_string(), "the body ended after 3 of 1000000 bytes");
    let mut meter = BodyMeter::stream(None);
    meter.take(3);
    let broken = meter.end(EndMark::Close).unwrap_err();
    assert_eq!(broken.to_string(), "the body ended without its end mark after 3 bytes");
}
