//! The bytes of stored heads: decoding returns what was encoded, and no input does harm.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use larder_http::{
    BodyPlace, DecodeError, Head, ReceivedHead, Settings, StoredHead, TargetList, Timestamp, VaryMarker, VaryRule,
};
use proptest::prelude::*;

use crate::support::{RECEIVED, Response, date, fields};

const USUAL: &str = "Cache-Control: public, max-age=3600\nContent-Type: text/html; charset=utf-8\n\
                     Content-Length: 12345\nETag: \"5f3c-1a2b3c4d\"\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n\
                     Server: nginx\nVary: Accept-Encoding\nContent-Encoding: gzip\nAccept-Ranges: bytes\nX-Own: a\nX-Own: b";

fn round_trip(head: &StoredHead) -> StoredHead {
    assert!(head.encode().len() <= head.encoded_len_max());
    StoredHead::decode(Bytes::from(head.encode()), &TargetList::default()).expect("what is written is read")
}

#[test]
fn head_is_read_back_as_written() {
    let mut response = Response::new(&format!("{USUAL}\nAge: 77")).answering("Accept-Encoding: gzip, br");
    response.delay_secs = 2;
    let head = response.head();
    assert_eq!(round_trip(&head), head);
    assert_eq!(head.freshness().initial_age_millis, 79_000);
    let chunked = head.with_body(BodyPlace::Chunks { len: u64::MAX, representation: u64::MAX });
    assert_eq!(round_trip(&chunked), chunked);
}

#[test]
fn encoded_head_is_little_more_than_its_lines() {
    let head = Response::new(USUAL).answering("Accept-Encoding: gzip").head();
    let plain = head.fields().octets().len();
    let encoded = head.encode().len();
    assert!(encoded < plain + 64, "{encoded} for {plain} octets");
    let most = head.encoded_len_max();
    assert!((encoded..encoded + 128).contains(&most), "{most} for {encoded} bytes");
}

#[test]
fn fields_share_the_buffer_they_were_read_from() {
    let buffer = Bytes::from(Response::new(USUAL).head().encode());
    let range = buffer.as_ptr_range();
    let head = StoredHead::decode(buffer.clone(), &TargetList::default()).unwrap();
    assert!(range.contains(&head.fields().octets().as_ptr()));
    assert!(head.fields().to_map().values().all(|value| range.contains(&value.as_bytes().as_ptr())));
}

#[test]
fn octets_above_0x7f_survive() {
    let mut response = Response::new("Cache-Control: max-age=60");
    response.fields.insert("etag", HeaderValue::from_bytes(b"\"caf\xe9\"").unwrap());
    assert_eq!(round_trip(&response.head()).fields().to_map()["etag"].as_bytes(), b"\"caf\xe9\"");
}

#[test]
fn absent_and_empty_selecting_fields_stay_apart() {
    let settings = Settings::default();
    for (request, other) in [("Foo:", ""), ("", "Foo:")] {
        let head = round_trip(&Response::new("Vary: Foo").answering(request).head());
        assert!(head.matches(&fields(request), &settings));
        assert!(!head.matches(&fields(other), &settings));
    }
}

#[test]
fn marker_is_read_back_as_written() {
    let rule = |vary: &str| VaryRule::from_fields(&fields(vary));
    let marker = VaryMarker::new(rule("Vary: Accept-Encoding")).with(rule("Vary: *")).with(rule("Vary: X-Own, Cookie"));
    let head = Head::VaryMarker(marker.clone());
    assert_eq!(Head::decode(Bytes::from(head.encode()), &TargetList::default()), Ok(head));
    assert_eq!(StoredHead::decode(Bytes::from(marker.encode()), &TargetList::default()), Err(DecodeError::Version));
}

#[test]
fn every_shortened_head_is_refused() {
    let bytes = Bytes::from(Response::new(USUAL).answering("Accept-Encoding: gzip").head().encode());
    for length in 0..bytes.len() {
        assert!(Head::decode(bytes.slice(..length), &TargetList::default()).is_err(), "{length}");
    }
}

#[test]
fn bytes_after_the_end_and_unknown_versions_are_refused() {
    let mut bytes = Response::new(USUAL).head().encode();
    bytes.push(0);
    assert_eq!(Head::decode(Bytes::from(bytes.clone()), &TargetList::default()), Err(DecodeError::Trailing));
    bytes[0] = 0x7f;
    assert_eq!(Head::decode(Bytes::from(bytes), &TargetList::default()), Err(DecodeError::Version));
    assert_eq!(Head::decode(Bytes::new(), &TargetList::default()), Err(DecodeError::Truncated));
}

#[test]
fn counts_beyond_their_bounds_are_refused() {
    // A marker that claims 2^63 rules, and one rule of 2^63 names.
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    assert_eq!(
        Head::decode(Bytes::from([&[0x21][..], &huge].concat()), &TargetList::default()),
        Err(DecodeError::Bound)
    );
    assert_eq!(
        Head::decode(Bytes::from([&[0x21, 1, 1][..], &huge].concat()), &TargetList::default()),
        Err(DecodeError::Bound)
    );
    // A number of more than 64 bits.
    let long = [0xff; 11];
    assert_eq!(
        Head::decode(Bytes::from([&[0x21][..], &long].concat()), &TargetList::default()),
        Err(DecodeError::Invalid)
    );
}

#[test]
fn released_formats_are_still_read() {
    // A 200: received at 1000 ms, requested 7 ms earlier, Age 5, body of 3 bytes, Foo absent.
    let of_all = b"\xc8\x01\xd0\x0f\x0e\x05\x00\x03\x01\x00\x03foo\x00\x00";
    // Versions 1 and 2 have the fields by name and value, with a ruling among them.
    let named = b"\x03\x01\x0amax-age=60\x09\x03foo\x00\x0dlarder-ruling\x08rule=\"a\"";
    let lines = b"cache-control: max-age=60\r\nvary: foo\r\n";
    let in_lines = [&[lines.len() as u8, lines.len() as u8 + 8][..], lines, b"rule=\"a\""].concat();
    for (version, purges, fields) in [(0x11, &b""[..], &named[..]), (0x12, b"\x09", named), (0x13, b"\x09", &in_lines)]
    {
        let bytes = [&[version], purges, of_all, fields].concat();
        let head = StoredHead::decode(Bytes::from(bytes.clone()), &TargetList::default()).unwrap();
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(
            (head.request_time(), head.response_time()),
            (Timestamp::from_millis(993), Timestamp::from_millis(1000))
        );
        assert_eq!(head.freshness().initial_age_millis, 5007);
        assert_eq!(head.body(), BodyPlace::Whole { len: 3 });
        assert_eq!((head.fields().octets(), head.purge_count()), (&lines[..], if purges.is_empty() { 0 } else { 9 }));
        assert_eq!(head.ruling().map(|ruling| ruling.name).as_deref(), Some("a"));
        assert_eq!(round_trip(&head), head, "version {version:#x}");
        assert_eq!(head.encode() == bytes, version == 0x13, "only the newest version is written");
    }
}

#[test]
fn packed_head_and_body_are_the_same_in_one_buffer() {
    let mut response = Response::new(&format!("{USUAL}\nLarder-Ruling: rule=\"a\"")).answering("Accept-Encoding: gzip");
    response.delay_secs = 2;
    let head = response.head();
    let bytes = Bytes::from(head.encode());
    let read = StoredHead::decode(bytes.clone(), &TargetList::default()).unwrap();
    let mut packed = read.pack();
    packed.extend_from_slice(b"some body");
    drop(read);
    let (packed, body) = StoredHead::unpack(packed.into(), &TargetList::default());
    assert_eq!((&packed, &body[..]), (&head, &b"some body"[..]));
    assert!(bytes.is_unique(), "something still refers to what was read");
    assert!(packed.matches(&fields("Accept-Encoding: gzip"), &Settings::default()));
}

fn any_fields() -> impl Strategy<Value = HeaderMap> {
    let name = prop_oneof!["[a-z][a-z0-9-]{0,12}", Just("etag".to_owned()), Just("expires".to_owned())];
    let value = proptest::collection::vec(prop_oneof![Just(9u8), 32u8..127, 128u8..=255], 0..30);
    proptest::collection::vec((name, value), 0..12).prop_map(|lines| {
        let parsed = lines.into_iter().map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("the pattern makes names");
            (name, HeaderValue::from_bytes(&value).expect("the pattern makes values"))
        });
        parsed.fold(HeaderMap::new(), |mut fields, (name, value)| {
            fields.append(name, value);
            fields
        })
    })
}

proptest! {
    #[test]
    fn any_head_is_read_back_as_written(
        fields in any_fields(), request in any_fields(), status in 100u16..1000,
        millis in any::<i64>(), delay in 0i64..100_000, len in any::<u64>(), chunked in any::<Option<u64>>(),
    ) {
        let body = match chunked {
            None => BodyPlace::Whole { len },
            Some(representation) => BodyPlace::Chunks { len, representation },
        };
        let rule = VaryRule::from_fields(&fields);
        let selecting = rule.select(&request, &Settings::default()).unwrap_or_default();
        let response_time = Timestamp::from_millis(millis / 2);
        let received = ReceivedHead {
            status: StatusCode::from_u16(status).unwrap(),
            fields,
            request_time: response_time.plus_millis(-delay),
            response_time,
        };
        let head = StoredHead::new(received, body, selecting, &TargetList::default());
        prop_assert_eq!(round_trip(&head), head.clone());
        let packed = [&head.pack()[..], b"body"].concat().into();
        prop_assert_eq!(StoredHead::unpack(packed, &TargetList::default()), (head, Bytes::from("body")));
    }

    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..4) {
        if let Some(first) = bytes.first_mut() {
            *first = [0x11, 0x13, 0x21, *first][kind];
        }
        let _ = Head::decode(Bytes::from(bytes), &TargetList::default());
    }

    #[test]
    fn no_damaged_head_panics(at in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut bytes = Response::new(USUAL).answering("Accept-Encoding: gzip").head().encode();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(Head::Response(head)) = Head::decode(Bytes::from(bytes), &TargetList::default()) {
            head.freshness().age_millis(RECEIVED);
            head.fields().to_map();
            head.encode();
        }
    }
}

#[test]
fn fields_withheld_at_storing_do_not_come_back() {
    let lines = format!("Cache-Control: private=\"x-secret\", max-age=60\nX-Secret: a\nExpires: {}", date(9));
    let head = round_trip(&Response::new(&lines).head());
    assert!(!head.fields().to_map().contains_key("x-secret"));
}
