//! With any field values, no decision panics, and no two decisions contradict each other (RFC 9110 2.3).

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use larder_http::{
    BodyPlace, RangeOutcome, ReceivedHead, Reuse, Settings, Storability, StoredHead, TargetList, Timestamp, VaryRule,
    cache_control::RequestDirectives, conditional, entity_tag::EntityTag, fields::strip_hop_by_hop, interim,
    invalidate, partial, range, reuse, span::Span, storable, validate,
};
use proptest::prelude::*;

use crate::support::RECEIVED;

const NAMES: [&str; 24] = [
    "age",
    "authorization",
    "cache-control",
    "cdn-cache-control",
    "connection",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "pragma",
    "range",
    "vary",
    "warning",
];
/// Fragments that the parsers recognize, so that random values get past the first check.
const PIECES: [&str; 32] = [
    "max-age=",
    "s-maxage=",
    "no-cache",
    "private=\"",
    "\"",
    "W/\"a\"",
    "\"a\"",
    "*",
    ",",
    ", ",
    "=",
    ";",
    "0",
    "60",
    "99999999999999999999",
    "-1",
    "bytes=",
    "bytes ",
    "0-9",
    "-5",
    "5-",
    "/100",
    "/*",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "stale-while-revalidate=9",
    "must-understand",
    "foo",
    "\\",
    " ",
    "\t",
    "http://",
];

fn any_value() -> impl Strategy<Value = HeaderValue> {
    let pieces = proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..8);
    let octets = proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![4 => pieces.prop_map(|pieces| pieces.concat().into_bytes()), 1 => octets]
        .prop_filter_map("no field value", |value| HeaderValue::from_bytes(&value).ok())
}

fn any_fields() -> impl Strategy<Value = HeaderMap> {
    let field = (proptest::sample::select(&NAMES[..]), any_value());
    proptest::collection::vec(field, 0..8).prop_map(|lines| {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(HeaderName::from_static(name), value);
        }
        fields
    })
}

fn one(name: &'static str, value: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static(name), value)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn no_fields_make_a_decision_panic(
        request in any_fields(), response in any_fields(), later in any_fields(), answer in any_fields(),
        status in 100u16..1000, after in any::<i64>(), total_len in any::<u64>(),
    ) {
        let settings = Settings::default();
        let status = StatusCode::from_u16(status).expect("the number is a status");
        let exchange = storable::Exchange {
            method: &Method::GET, request_fields: &request, status, response_fields: &response,
            request_time: RECEIVED, response_time: RECEIVED,
        };
        let decided = storable::decide(&exchange, &settings);
        let target = Uri::from_static("http://a.example/x");
        storable::decide_post(&storable::Exchange { method: &Method::POST, ..exchange }, &target, &settings);
        invalidate::targets(&Method::POST, &target, status, &response);
        let selecting = VaryRule::from_fields(&response).select(&request, &settings).unwrap_or_default();
        let received = ReceivedHead { status, fields: response.clone(), request_time: RECEIVED, response_time: RECEIVED };
        let mut stripped = received.clone();
        strip_hop_by_hop(&mut stripped.fields);
        let end_to_end = storable::Exchange { response_fields: &stripped.fields, ..exchange };
        if let Storability::Store { rule, facts, .. } = storable::decide(&end_to_end, &settings) {
            let split = |facts| {
                let selecting = rule.select(&request, &settings).expect("nothing is stored that no request selects");
                let place = BodyPlace::Whole { len: total_len };
                StoredHead::split(stripped.clone(), facts, place, selecting, &settings.targets)
            };
            prop_assert_eq!(split(Some(facts)), split(None), "the decision has read the same fields");
        }
        let head = StoredHead::new(received, BodyPlace::Whole { len: total_len }, selecting, &TargetList::default());
        let earlier = RECEIVED;
        let now = Timestamp::from_millis(after);
        let reused = reuse::decide(&Method::GET, &later, &head, now, &settings);
        if let (Storability::Store { .. }, Reuse::Fresh { .. }) = (&decided, reused) {
            prop_assert!(!head.freshness().no_cache);
        }
        conditional::evaluate(&later, &head);
        if let RangeOutcome::Single { first, last } = range::select(&Method::GET, &later, &head, total_len) {
            prop_assert!(first <= last && last < total_len);
        }
        let update = storable::Exchange {
            request_fields: &later,
            status: StatusCode::OK,
            response_fields: &answer,
            request_time: earlier,
            response_time: earlier,
            ..exchange
        };
        if validate::selects(&answer, &head) {
            let fresh = validate::freshen(&head, &update, &settings);
            prop_assert_eq!(fresh.body(), head.body());
            if let Storability::Store { rule, .. } = storable::decide_updated(&later, &fresh, &settings) {
                prop_assert!(fresh.selecting().cover(&VaryRule::from_fields(&fresh.fields().to_map())));
                prop_assert!(fresh.selecting().cover(&rule) || !fresh.selecting().cover_what_is_told(&later));
            }
        }
        validate::judge_head(&head, &update, &settings);
        if let Ok(part) = partial::part(StatusCode::PARTIAL_CONTENT, &answer) {
            prop_assert!(part.span.last < part.total_len);
        }
        partial::continuation(&head, &Span { first: 0, last: 9 }, status, &answer, RECEIVED);
        partial::combined(&head, &update, &settings);
        prop_assert_eq!(StoredHead::decode(head.encode().into(), &TargetList::default()).ok(), Some(head));
    }

    #[test]
    fn no_vary_panics(value in any_value(), request in any_fields()) {
        let rule = VaryRule::from_fields(&one("vary", value));
        if let Some(selecting) = rule.select(&request, &Settings::default()) {
            prop_assert!(selecting.matches(&request, &Settings::default()));
            prop_assert_eq!(selecting.rule(), rule);
        }
    }

    #[test]
    fn no_request_directives_panic(value in any_value()) {
        RequestDirectives::from_fields(&one("cache-control", value.clone()));
        RequestDirectives::from_fields(&one("pragma", value.clone()));
        interim::expects_continue(&one("expect", value));
    }

    #[test]
    fn written_tags_read_back(weak in any::<bool>(), opaque in "[!#-~]{0,20}") {
        let text = format!("{}\"{opaque}\"", if weak { "W/" } else { "" });
        prop_assert_eq!(EntityTag::parse(text.as_bytes()), Some(EntityTag { weak, opaque: opaque.as_bytes() }));
        let list = format!("\"x\" ,{text}, W/\"y\"");
        let found: Vec<_> = EntityTag::list(list.as_bytes()).map(|tag| tag.opaque).collect();
        prop_assert_eq!(found, [&b"x"[..], opaque.as_bytes(), b"y"]);
    }

    #[test]
    fn written_ranges_read_back(ranges in proptest::collection::vec((any::<u32>(), proptest::option::of(any::<u16>())), 1..20)) {
        let written: Vec<_> = ranges.iter().map(|(first, more)| match more {
            Some(more) => range::ByteRange::From { first: u64::from(*first), last: Some(u64::from(*first) + u64::from(*more)) },
            None => range::ByteRange::Suffix { len: u64::from(*first) },
        }).collect();
        let text: Vec<_> = written.iter().map(|range| match range {
            range::ByteRange::From { first, last } => format!("{first}-{}", last.map_or(String::new(), |last| last.to_string())),
            range::ByteRange::Suffix { len } => format!("-{len}"),
        }).collect();
        let value = HeaderValue::try_from(format!("bytes={}", text.join(", "))).expect("the text is a field value");
        let read = range::parse(&one("range", value));
        let expected = match written[..] {
            [range] => range::RangeRequest::Single(range),
            _ => range::RangeRequest::Many(written),
        };
        prop_assert_eq!(read, expected);
    }
}
