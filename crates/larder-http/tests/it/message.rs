//! Framing, the route of a message, and its destination (RFC 9112 3.2, 6; RFC 9110 7.2, 7.6.3; RFC 8586).

use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version};
use larder_http::fields::{
    BodyLength, FramingError, HostError, check_host, check_request, check_response, effective_authority,
    settle_response,
    via::{HOP_COUNT_MAX, Pseudonym, append_cdn_loop, append_via, loops},
};
use proptest::prelude::*;

use crate::support::fields;

#[test]
fn plain_framing_is_understood() {
    for (lines, expected) in [
        ("", BodyLength::Unstated),
        ("Content-Length: 0", BodyLength::Length(0)),
        ("Content-Length: 42", BodyLength::Length(42)),
        ("Content-Length: 42\nContent-Length: 42", BodyLength::Length(42)),
        ("Transfer-Encoding: chunked", BodyLength::Chunked),
        ("Transfer-Encoding: Chunked", BodyLength::Chunked),
    ] {
        assert_eq!(check_request(&fields(lines), Version::HTTP_11), Ok(expected), "{lines}");
        assert_eq!(check_response(&fields(lines), Version::HTTP_11), Ok(expected), "{lines}");
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    use FramingError::{Encoding, Length, LengthAndEncoding};
    for (lines, expected) in [
        ("Content-Length: 5\nTransfer-Encoding: chunked", LengthAndEncoding),
        ("Content-Length: x\nTransfer-Encoding: identity", LengthAndEncoding),
        ("Content-Length: 5\nContent-Length: 6", Length),
        ("Content-Length: 5, 5", Length),
        ("Content-Length: +5", Length),
        ("Content-Length: -5", Length),
        ("Content-Length: 0x5", Length),
        ("Content-Length: 5.0", Length),
        ("Content-Length:", Length),
        ("Content-Length: 18446744073709551615", Length),
        ("Content-Length: 99999999999999999999999", Length),
        ("Content-Length: 000000000000000000000000000000000005", Length),
        ("Transfer-Encoding: gzip, chunked", Encoding),
        ("Transfer-Encoding: chunked, chunked", Encoding),
        ("Transfer-Encoding: chunked\nTransfer-Encoding: chunked", Encoding),
        ("Transfer-Encoding: identity", Encoding),
        ("Transfer-Encoding: xchunked", Encoding),
        ("Transfer-Encoding: \"chunked\"", Encoding),
        ("Transfer-Encoding:", Encoding),
    ] {
        assert_eq!(check_request(&fields(lines), Version::HTTP_11), Err(expected), "{lines}");
        assert_eq!(check_response(&fields(lines), Version::HTTP_11), Err(expected), "{lines}");
    }
}

#[test]
fn settled_response_states_its_length_once_in_plain_digits() {
    for (lines, length) in [
        ("Content-Length: 5", "5"),
        ("Content-Length: 0", "0"),
        ("Content-Length: 00", "0"),
        ("Content-Length: 005", "5"),
        ("Content-Length: 5\nContent-Length: 05", "5"),
    ] {
        let mut fields = fields(lines);
        settle_response(StatusCode::OK, &mut fields, Version::HTTP_11).unwrap();
        assert_eq!(fields.get_all("content-length").iter().collect::<Vec<_>>(), [length], "{lines}");
    }
}

#[test]
fn transfer_encoding_in_http_1_0_is_refused() {
    let chunked = fields("Transfer-Encoding: chunked");
    assert_eq!(check_request(&chunked, Version::HTTP_10), Err(FramingError::EncodingInHttp10));
    assert_eq!(check_response(&chunked, Version::HTTP_10), Err(FramingError::EncodingInHttp10));
}

#[test]
fn own_name_in_via_or_cdn_loop_is_a_loop() {
    let larder = Pseudonym::new("larder-a1").unwrap();
    for lines in [
        "Via: 1.1 larder-a1",
        "Via: 1.0 other, HTTP/1.1 Larder-A1 (comment)",
        "Via: 1.1 other\nVia: 2 larder-a1",
        "CDN-Loop: larder-a1",
        "CDN-Loop: foo; a=b, LARDER-A1;x=y",
    ] {
        assert!(loops(&fields(lines), &larder), "{lines}");
    }
    for lines in ["", "Via: 1.1 larder-a12", "Via: larder-a1", "Via: 1.1 other (larder-a1)", "CDN-Loop: x-larder-a1"] {
        assert!(!loops(&fields(lines), &larder), "{lines}");
    }
}

#[test]
fn appended_members_are_found_again_and_keep_the_others() {
    let larder = Pseudonym::new("larder").unwrap();
    let mut via = fields("Via: 1.1 first");
    append_via(&mut via, Version::HTTP_10, &larder);
    assert_eq!(via.get_all("via").iter().collect::<Vec<_>>(), ["1.1 first", "1.0 larder"]);
    assert!(loops(&via, &larder));
    let mut cdn_loop = fields("CDN-Loop: first");
    append_cdn_loop(&mut cdn_loop, &larder);
    assert!(loops(&cdn_loop, &larder));
}

#[test]
fn endless_via_is_a_loop() {
    let larder = Pseudonym::new("larder").unwrap();
    let hops = |count: usize| fields(&format!("Via: {}", vec!["1.1 x"; count].join(", ")));
    assert!(!loops(&hops(HOP_COUNT_MAX), &larder));
    assert!(loops(&hops(HOP_COUNT_MAX + 1), &larder));
}

#[test]
fn pseudonym_is_a_plain_word() {
    for bad in ["", "a b", "a,b", "a\"", "a;b", "caf\u{e9}", "a(b)"] {
        assert_eq!(Pseudonym::new(bad), None, "{bad}");
    }
}

fn authority(target: &'static str, lines: &str, version: Version) -> Result<Option<String>, HostError> {
    let target = Uri::from_static(target);
    effective_authority(&target, &fields(lines), version).map(|authority| authority.map(str::to_owned))
}

#[test]
fn absolute_target_names_the_host_and_host_is_ignored() {
    let authority = authority("http://a.example:81/x", "Host: b.example", Version::HTTP_11);
    assert_eq!(authority, Ok(Some("a.example:81".to_owned())));
}

#[test]
fn host_names_the_host_of_an_origin_form_target() {
    assert_eq!(authority("/x", "Host: a.example", Version::HTTP_11), Ok(Some("a.example".to_owned())));
    assert_eq!(authority("/x", "Host: [::1]:80", Version::HTTP_11), Ok(Some("[::1]:80".to_owned())));
    assert_eq!(authority("/x", "", Version::HTTP_10), Ok(None));
}

/// Guards against a tunnel for a request that another proxy on the way would read as a request to another host.
#[test]
fn connect_has_one_well_formed_host() {
    let checked = |lines: &str, version| check_host(&Uri::from_static("a.example:443"), &fields(lines), version);
    assert_eq!(checked("Host: a.example:443", Version::HTTP_11), Ok(()));
    assert_eq!(checked("Host:", Version::HTTP_11), Ok(()), "some clients send an empty one");
    assert_eq!(checked("", Version::HTTP_10), Ok(()));
    assert_eq!(checked("", Version::HTTP_2), Ok(()));
    assert_eq!(checked("", Version::HTTP_11), Err(HostError::Missing));
    assert_eq!(checked("Host: a\nHost: a", Version::HTTP_11), Err(HostError::Repeated));
    assert_eq!(checked("Host: a b", Version::HTTP_11), Err(HostError::Invalid));
}

#[test]
fn missing_repeated_or_malformed_host_is_refused() {
    assert_eq!(authority("/x", "", Version::HTTP_11), Err(HostError::Missing));
    assert_eq!(authority("http://a.example/", "", Version::HTTP_11), Err(HostError::Missing));
    assert_eq!(authority("/x", "", Version::HTTP_2), Err(HostError::Missing));
    assert_eq!(authority("http://a.example/", "", Version::HTTP_2), Ok(Some("a.example".to_owned())));
    assert_eq!(authority("/x", "Host: a", Version::HTTP_2), Ok(Some("a".to_owned())));
    assert_eq!(authority("/x", "Host: a\nHost: a", Version::HTTP_11), Err(HostError::Repeated));
    assert_eq!(authority("/x", "A: 1\nHost: a\nB: 2\nHost: b", Version::HTTP_11), Err(HostError::Repeated));
    for host in [
        "",
        "a b",
        "user@a",
        "a/b",
        "a:b",
        "a:99999",
        "[::1",
        "a,b@c",
        "a\\b",
        "a?b",
        ":80",
        "caf\u{e9}",
        "a\"b",
        "a<b>",
        "a`b",
        "a{b}",
        "a|b",
        "a^b",
        "a[b]",
        "[a]",
        "[::1%lo]",
        "[v1.a]",
    ] {
        let refused = authority("/x", &format!("Host: {host}"), Version::HTTP_11);
        assert_eq!(refused, Err(HostError::Invalid), "{host}");
    }
    assert_eq!(authority("http://user:pass@a.example/", "Host: a.example", Version::HTTP_11), Err(HostError::Invalid));
}

proptest! {
    #[test]
    fn only_plain_digits_are_a_length(value in "[0-9a-f+, .x-]{0,24}") {
        let checked = check_request(&fields(&format!("Content-Length: {value}")), Version::HTTP_11);
        let plain = value.trim().parse::<u64>().ok().filter(|_| !value.contains('+'));
        prop_assert_eq!(checked.ok(), plain.filter(|length| *length < u64::MAX && value.trim().len() <= 20).map(BodyLength::Length));
    }

    #[test]
    fn no_via_panics(value in proptest::collection::vec(32u8..=255, 0..60)) {
        let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
        let mut fields = HeaderMap::new();
        fields.insert("via", value.clone());
        fields.insert("cdn-loop", value);
        loops(&fields, &Pseudonym::new("larder").unwrap());
    }
}
