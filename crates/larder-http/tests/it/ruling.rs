//! The operator's rules: they override the origin, but private data stays private unless a rule names it.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use larder_http::{Reason, Reuse, Ruling, VaryRule, validate};

use crate::support::{DAY_SECS, Response, date, fields, later_answer};

/// Returns a response with these fields, under a rule with a lifetime of 100 s that ignores the parts named by
/// `ignored`.
fn ruled(lines: &str, ignored: &[&str]) -> Response {
    under(lines, &ruling(ignored))
}

fn ruling(ignored: &[&str]) -> Ruling {
    let mut ruling = Ruling { name: "test".into(), fresh: Some(Duration::from_secs(100)), ..Ruling::default() };
    ignored.iter().for_each(|word| ruling.ignored.add(word).expect("a test's word is known"));
    ruling
}

fn under(lines: &str, ruling: &Ruling) -> Response {
    let mut response = Response::new(lines);
    ruling.put(&mut response.fields);
    response
}

#[test]
fn lifetime_of_a_rule_takes_the_place_of_every_other() {
    for lines in [
        "",
        "Cache-Control: max-age=1",
        "Cache-Control: max-age=100000",
        "Cache-Control: no-cache",
        "CDN-Cache-Control: max-age=0",
        "Expires: 0",
    ] {
        let response = ruled(lines, &[]);
        assert!(response.is_reused(99), "{lines}");
        assert!(!response.is_reused(101), "{lines}");
    }
    let found = ruled("Cache-Control: max-age=1", &[]).reuse(99, "");
    assert!(matches!(found, Reuse::Fresh { reason: Reason::RuledLifetime, .. }), "{found:?}");
}

#[test]
fn lifetime_of_a_rule_counts_from_the_receipt() {
    let old = format!("Age: 5000\nDate: {}", date(-DAY_SECS));
    let response = ruled(&old, &[]);
    assert!(response.is_reused(99) && !response.is_reused(101));
    let Reuse::Fresh { age, .. } = response.reuse(10, "") else { panic!("it is fresh") };
    assert!(age.age_secs >= 5000, "but the age that is told is the response's: {}", age.age_secs);
}

#[test]
fn lifetime_alone_makes_nothing_public() {
    assert_eq!(ruled("Cache-Control: private", &[]).refusal(), Some(Reason::Private));
    assert_eq!(ruled("Cache-Control: no-store", &[]).refusal(), Some(Reason::NoStore));
    assert_eq!(ruled("Set-Cookie: a=b", &[]).refusal(), Some(Reason::SetCookie));
    let with_credentials = ruled("", &[]).answering("Authorization: Basic YTpi");
    assert_eq!(with_credentials.refusal(), Some(Reason::Authorization));
    assert_eq!(ruled("Vary: *", &[]).refusal(), Some(Reason::VaryStar));
}

#[test]
fn what_a_rule_ignores_does_not_hinder_and_nothing_else_is_ignored() {
    let cases = [
        ("private", "Cache-Control: private", ""),
        ("no-store", "Cache-Control: no-store", ""),
        ("set-cookie", "Set-Cookie: a=b", ""),
        ("authorization", "", "Authorization: Basic YTpi"),
    ];
    for (word, lines, request) in cases {
        assert!(ruled(lines, &[word]).answering(request).is_reused(50), "{word}");
        for (other, _, _) in cases.iter().filter(|(other, _, _)| *other != word) {
            assert!(ruled(lines, &[other]).answering(request).refusal().is_some(), "{word} by {other}");
        }
    }
}

#[test]
fn cookie_that_is_ignored_is_not_stored() {
    let head = ruled("Set-Cookie: a=b", &["set-cookie"]).head();
    assert!(!head.fields().to_map().contains_key("set-cookie"));
    let response = ruled("Set-Cookie: a=b", &["set-cookie"]);
    let own = larder_http::cache_control::first_askers_own(&response.fields, &response.settings.targets);
    assert_eq!(own["set-cookie"], "a=b", "and goes to who it came for");
}

#[test]
fn clients_cannot_ask_for_validation_where_a_rule_says_so() {
    for asked in ["Cache-Control: no-cache", "Cache-Control: max-age=0", "Pragma: no-cache"] {
        assert!(!ruled("", &[]).is_reused_for(50, asked), "{asked}");
        assert!(ruled("", &["client no-cache"]).is_reused_for(50, asked), "{asked}");
        assert!(!ruled("", &["client no-cache"]).is_reused_for(101, asked), "it is stale: {asked}");
    }
}

#[test]
fn only_a_reload_reaches_past_a_file_that_never_changes_and_none_past_one_that_was_verified() {
    let immutable = Ruling { name: "test".into(), immutable: true, ..Ruling::default() };
    let verified = Ruling { is_verified: true, ..immutable.clone() };
    let told = Ruling { ignored: ruling(&["client no-cache"]).ignored, ..immutable.clone() };
    for (asked, is_reload) in [
        ("Cache-Control: no-cache", true),
        ("Pragma: no-cache", true),
        ("Cache-Control: max-age=0", false),
        ("Cache-Control: no-cache, no-store, max-age=0", false),
    ] {
        let reused = |ruling: &Ruling| under("Cache-Control: max-age=1", ruling).is_reused_for(300 * DAY_SECS, asked);
        assert_eq!(reused(&immutable), !is_reload, "{asked}");
        assert!(reused(&verified) && reused(&told), "{asked}");
    }
}

#[test]
fn web_page_in_place_of_a_file_is_not_stored_whatever_it_says() {
    let page = Ruling { name: "test".into(), contradicts_url: true, ..Ruling::default() };
    for lines in ["", "Cache-Control: max-age=60", "ETag: \"a\"\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT"] {
        assert_eq!(under(lines, &page).refusal(), Some(Reason::PageForFile), "{lines}");
    }
}

#[test]
fn stale_windows_of_a_rule_hold_unless_the_response_forbids_to_be_served_stale() {
    let windows = |ignored: &[&str]| Ruling {
        stale_while_revalidate: Some(Duration::from_secs(50)),
        stale_if_error: Some(Duration::from_secs(200)),
        ..ruling(ignored)
    };
    let served = |lines: &str, ignored: &[&str], after_secs| match under(lines, &windows(ignored)).reuse(after_secs, "")
    {
        Reuse::Stale { may_serve_meanwhile, may_serve_on_error, .. } => (may_serve_meanwhile, may_serve_on_error),
        other => panic!("{other:?}"),
    };
    assert_eq!(served("", &[], 120), (true, true));
    assert_eq!(served("", &[], 200), (false, true));
    assert_eq!(served("", &[], 400), (false, false));
    for lines in ["Cache-Control: must-revalidate", "Cache-Control: s-maxage=5", "Cache-Control: proxy-revalidate"] {
        assert_eq!(served(lines, &[], 120), (false, false), "{lines}");
        assert_eq!(served(lines, &["must-revalidate"], 120), (true, true), "{lines}");
    }
}

#[test]
fn fields_of_vary_that_a_rule_ignores_select_nothing() {
    let response = ruled("Vary: Accept, User-Agent", &["vary: user-agent"]);
    assert_eq!(VaryRule::from_fields(&response.fields), VaryRule::from_fields(&fields("Vary: Accept")));
    assert_eq!(response.head().fields().to_map()["vary"], "Accept, User-Agent", "but it is told as it came");
}

#[test]
fn nothing_is_stored_where_a_rule_says_so() {
    let never = Ruling { name: "test".into(), is_never_stored: true, ..Ruling::default() };
    for lines in
        ["Cache-Control: max-age=60", "Cache-Control: no-store, must-understand", "CDN-Cache-Control: max-age=60"]
    {
        assert_eq!(under(lines, &never).refusal(), Some(Reason::NoStore), "{lines}");
    }
}

#[test]
fn confirmed_response_goes_by_the_rule_that_holds_then() {
    let head = ruled("Cache-Control: max-age=1\nETag: \"a\"", &[]).head();
    let request = HeaderMap::new();
    for (answer, lifetime_secs) in [(fields("ETag: \"a\""), 1), (fields("ETag: \"a\"\nlarder-ruling: fresh=7"), 7)] {
        let exchange = later_answer(&request, StatusCode::NOT_MODIFIED, &answer);
        let settings = larder_http::Settings::default();
        let updated = validate::freshen(&head, &exchange, &settings);
        assert_eq!(updated.freshness().lifetime_millis(&settings), lifetime_secs * 1000);
    }
}

#[test]
fn ruling_is_stored_with_the_head() {
    let head = ruled("Vary: Accept", &["vary: accept"]).head();
    let bytes = head.encode();
    let larder_http::Head::Response(read) =
        larder_http::Head::decode(bytes.into(), &larder_http::TargetList::default()).expect("it was just written")
    else {
        panic!("it is a response")
    };
    assert_eq!(read, head);
    assert_eq!(read.ruling().map(|ruling| ruling.name), Some("test".to_owned()));
    assert!(!read.fields().to_map().contains_key(larder_http::ruling::FIELD), "no response has it as a field");
}
