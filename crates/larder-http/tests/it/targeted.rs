//! CDN-Cache-Control (RFC 9213 2.1 to 2.3, 3; RFC 9651 dictionaries).

use http::HeaderValue;
use larder_http::{Reason, Reuse, Settings, TargetList, cache_control::ResponseDirectives, targeted::directives};
use proptest::prelude::*;

use crate::support::{Response, date, fields, is_reused};

fn read(value: &str) -> Option<ResponseDirectives> {
    directives(&fields(&format!("CDN-Cache-Control: {value}")), &TargetList::default())
}

#[test]
fn targeted_max_age_alone_makes_a_response_reusable() {
    for secs in ["3600", "2147483647", "2147483648", "2147483649", "99999999999", "999999999999999"] {
        assert!(is_reused(&format!("CDN-Cache-Control: max-age={secs}")), "{secs}");
    }
    assert!(is_reused("CDN-Cache-Control: max-age=3600, foobar"));
    assert!(is_reused("CDN-Cache-Control: foobar=\"max-age=1\", max-age=3600;ext=1"));
    assert!(is_reused(&format!("CDN-Cache-Control: max-age=3600\nExpires: {}", date(-3600))));
    assert!(is_reused("CDN-Cache-Control: max-age=3600\nExpires: 0"));
}

#[test]
fn targeted_lifetime_of_zero_wins_over_expires_and_max_age() {
    let future = date(3600);
    assert!(!is_reused(&format!("CDN-Cache-Control: max-age=0\nExpires: {future}")));
    assert!(!is_reused("CDN-Cache-Control: max-age=0\nCache-Control: max-age=3600"));
    assert!(!is_reused("CDN-Cache-Control: max-age=-1\nCache-Control: max-age=3600"));
    assert!(!is_reused("CDN-Cache-Control: max-age=1\nCache-Control: max-age=3600"));
    assert!(!is_reused("CDN-Cache-Control: max-age=1\nCache-Control: s-maxage=3600"));
}

#[test]
fn first_valid_field_of_the_target_list_rules() {
    let is_reused_with = |list: &[&str], lines: &str| {
        let names: Vec<_> = list.iter().map(|name| name.parse().unwrap()).collect();
        let settings = Settings { targets: TargetList::new(names), ..Settings::default() };
        Response { settings, ..Response::new(lines) }.is_reused(3)
    };
    let own = &["Own-Cache-Control", "CDN-Cache-Control"][..];
    let cdn = &["CDN-Cache-Control"][..];
    for (list, lines, expected) in [
        (own, "Own-Cache-Control: max-age=60\nCDN-Cache-Control: no-store\nCache-Control: no-store", true),
        (own, "CDN-Cache-Control: max-age=60\nOwn-Cache-Control: no-store", false),
        (own, "CDN-Cache-Control: max-age=60\nOwn-Cache-Control: =", true),
        (own, "CDN-Cache-Control: max-age=60\nOwn-Cache-Control:", true),
        (own, "CDN-Cache-Control: max-age=60\nCache-Control: no-store", true),
        (own, "Cache-Control: max-age=60", true),
        (cdn, "Own-Cache-Control: max-age=60", false),
        (&[], "CDN-Cache-Control: max-age=60", false),
        (&[], "CDN-Cache-Control: no-store\nCache-Control: max-age=60", true),
    ] {
        assert_eq!(is_reused_with(list, lines), expected, "{list:?} {lines}");
    }
}

#[test]
fn longer_targeted_lifetime_wins_over_cache_control() {
    assert!(is_reused("CDN-Cache-Control: max-age=3600\nCache-Control: max-age=1"));
    assert!(is_reused("CDN-Cache-Control: max-age=3600\nCache-Control: s-maxage=0, must-revalidate"));
}

#[test]
fn prohibitions_of_the_targeted_field_win_over_a_fresh_cache_control() {
    let refusal = |value: &str| {
        Response::new(&format!("CDN-Cache-Control: {value}\nCache-Control: max-age=3600\nETag: \"a\"")).refusal()
    };
    assert_eq!(refusal("private"), Some(Reason::Private));
    assert_eq!(refusal("no-store"), Some(Reason::NoStore));
    let response = Response::new("CDN-Cache-Control: no-cache\nCache-Control: max-age=3600\nETag: \"a\"");
    assert_eq!(response.refusal(), None);
    assert!(matches!(response.reuse(3, ""), Reuse::MustValidate { reason: Reason::NoCache, .. }));
}

#[test]
fn targeted_lifetime_wins_over_prohibitions_of_cache_control() {
    for other in ["no-store", "private", "no-cache", "max-age=0, no-store, private"] {
        assert!(is_reused(&format!("CDN-Cache-Control: max-age=3600\nCache-Control: {other}")), "{other}");
    }
}

#[test]
fn received_age_counts_against_the_targeted_lifetime() {
    assert!(is_reused("CDN-Cache-Control: max-age=3600\nAge: 1800"));
    assert!(!is_reused("CDN-Cache-Control: max-age=3600\nAge: 3600\nCache-Control: max-age=99999"));
}

#[test]
fn malformed_or_empty_targeted_field_is_as_if_absent() {
    for value in [
        "max-age=\"3600\"",
        "max-age=3600.0",
        "max-age=abc",
        "max-age",
        "max-age=(1 2)",
        "max-age =3600",
        "max-age= 3600",
        "MaX-aGe=3600",
        "max-age=3600,",
        "max-age=3600 no-store",
        "max-age=3600, ,public",
        "max-age='3600'",
        "max-age=1000000000000000",
        "s-maxage=x, max-age=3600",
        "no-store; , max-age=3600",
        "caf\u{e9}=1",
        "",
    ] {
        assert_eq!(read(value), None, "{value}");
        assert!(!is_reused(&format!("CDN-Cache-Control: {value}\nCache-Control: max-age=1")), "{value}");
        assert!(is_reused(&format!("CDN-Cache-Control: {value}\nCache-Control: max-age=3600")), "{value}");
    }
}

#[test]
fn lines_of_the_targeted_field_are_one_dictionary() {
    assert!(is_reused("CDN-Cache-Control: foo\nCDN-Cache-Control: max-age=3600\nCache-Control: no-store"));
    // The last of repeated keys counts in a dictionary (RFC 9651 4.2.2).
    assert!(is_reused("CDN-Cache-Control: max-age=1, max-age=3600"));
    assert!(!is_reused("CDN-Cache-Control: max-age=3600\nCDN-Cache-Control: max-age=1"));
}

#[test]
fn directives_are_mapped_to_structured_types() {
    let all = "max-age=1, s-maxage=2, stale-while-revalidate=3, stale-if-error=4, public, must-revalidate, \
               proxy-revalidate, must-understand, no-store=?0, private=?0, no-cache=\"x-a\"";
    let read = read(all).expect("the dictionary is valid");
    assert_eq!((read.max_age, read.s_maxage), (Some(1), Some(2)));
    assert_eq!((read.stale_while_revalidate, read.stale_if_error), (Some(3), Some(4)));
    assert!(read.public && read.must_revalidate && read.proxy_revalidate && read.must_understand && read.targeted);
    assert!(!read.no_store && !read.private && !read.no_cache);
    assert_eq!(read.withheld, ["x-a"]);
}

#[test]
fn prohibition_with_an_odd_value_still_holds() {
    for value in
        ["no-store=1", "no-store=x", "no-store=?1", "no-store=()", "private=x", "private=\"a b\"", "private=\"\""]
    {
        let read = read(value).expect("the dictionary is valid");
        assert!(read.no_store || read.private, "{value}");
    }
}

#[test]
fn targeted_field_without_a_lifetime_leaves_a_heuristic_one() {
    let modified = date(-864_000);
    assert!(is_reused(&format!("CDN-Cache-Control: foo\nCache-Control: max-age=0\nLast-Modified: {modified}")));
    assert!(!is_reused(&format!("CDN-Cache-Control: foo\nExpires: {}", date(3600))));
}

#[test]
fn targeted_field_is_passed_on_and_date_and_expires_with_it() {
    let head = Response::new(&format!("CDN-Cache-Control: max-age=60\nExpires: {}", date(9))).head();
    assert_eq!(head.fields().to_map()["cdn-cache-control"], "max-age=60");
    assert_eq!(head.fields().to_map()["expires"], date(9));
}

#[test]
fn sharing_of_authorized_responses_follows_the_targeted_field() {
    let authorized = |lines: &str| Response::new(lines).answering("Authorization: Basic x").refusal();
    assert_eq!(authorized("CDN-Cache-Control: max-age=60, public"), None);
    let other = authorized("CDN-Cache-Control: max-age=60\nCache-Control: public, max-age=60");
    assert_eq!(other, Some(Reason::Authorization));
}

proptest! {
    #[test]
    fn no_targeted_field_panics(lines in proptest::collection::vec(proptest::collection::vec(32u8..=255, 0..60), 0..3)) {
        let mut response = http::HeaderMap::new();
        for line in lines {
            let Ok(line) = HeaderValue::from_bytes(&line) else { continue };
            response.append("cdn-cache-control", line);
        }
        ResponseDirectives::from_fields(&response, &TargetList::default());
    }

    #[test]
    fn targeted_directives_are_read_back_as_written(
        secs in 0u32..=u32::MAX, shared in proptest::option::of(0u32..=u32::MAX), no_store in any::<bool>(), other in "[a-z*][a-z0-9_.*-]{0,8}",
    ) {
        prop_assume!(!["max-age", "s-maxage", "no-store"].contains(&other.as_str()));
        let shared_text = shared.map_or(String::new(), |secs| format!(", s-maxage={secs}"));
        let no_store_text = if no_store { ", no-store" } else { "" };
        let found = read(&format!("x-{other}=(a \"b\");p=1.5, max-age={secs}{shared_text}{no_store_text}"));
        let found = found.expect("the dictionary is valid");
        prop_assert_eq!((found.max_age, found.s_maxage, found.no_store), (Some(secs), shared, no_store));
    }
}
