//! Serving stale (RFC 9111 4.2.4, RFC 5861 3, 4).

use std::time::Duration;

use http::Method;
use larder_http::{
    Reason, Reuse, StoredHead, TargetList,
    reuse::{self, StaleAllowed},
};

use crate::support::{DAY_SECS, RECEIVED, Response, date};

/// Returns whether the response may be served `after_secs` after its receipt if the origin fails.
fn on_error(response: &Response, after_secs: i64) -> bool {
    match response.reuse(after_secs, "") {
        Reuse::Stale { may_serve_on_error, .. } | Reuse::MustValidate { may_serve_on_error, .. } => may_serve_on_error,
        fresh => panic!("{fresh:?}"),
    }
}

#[test]
fn stale_response_may_be_served_when_the_origin_fails_for_a_bounded_time() {
    let response = Response::new("Cache-Control: max-age=10");
    assert!(on_error(&response, 10));
    assert!(on_error(&response, DAY_SECS + 9));
    assert!(!on_error(&response, DAY_SECS + 10));
}

#[test]
fn serving_stale_follows_the_settings() {
    let mut response = Response::new("Cache-Control: max-age=10");
    response.settings.stale_if_error_max = Duration::ZERO;
    assert!(!on_error(&response, 10));
}

#[test]
fn stale_if_error_of_the_response_wins_over_the_settings() {
    let longer = Response::new("Cache-Control: max-age=10, stale-if-error=200000");
    assert!(on_error(&longer, 200_009));
    assert!(!on_error(&longer, 200_010));
    let shorter = Response::new("Cache-Control: max-age=10, stale-if-error=5");
    assert!(on_error(&shorter, 14));
    assert!(!on_error(&shorter, 15));
}

#[test]
fn prohibitions_hold_whatever_else_is_said() {
    for directives in [
        "max-age=1, must-revalidate",
        "max-age=1, proxy-revalidate",
        "s-maxage=1",
        "s-maxage=1, stale-if-error=1000",
        "max-age=1, must-revalidate, stale-if-error=1000",
        "max-age=1, no-cache",
        "max-age=1000, no-cache, stale-if-error=1000",
    ] {
        let response = Response::new(&format!("Cache-Control: {directives}\nETag: \"a\""));
        assert!(!on_error(&response, 3), "{directives}");
    }
}

#[test]
fn stale_response_says_whether_it_can_be_validated() {
    for (lines, expected) in [("ETag: \"a\"", true), ("ETag: a", false), ("", false)] {
        let reuse = Response::new(&format!("Cache-Control: max-age=1\n{lines}")).reuse(3, "");
        let Reuse::Stale { has_validator, .. } = reuse else { panic!("{reuse:?}") };
        assert_eq!(has_validator, expected, "{lines}");
    }
}

/// Returns whether the response may be served `after_secs` after its receipt and validated in the background.
fn meanwhile(response: &Response, after_secs: i64, request: &str) -> bool {
    matches!(response.reuse(after_secs, request), Reuse::Stale { may_serve_meanwhile: true, .. })
}

#[test]
fn stale_while_revalidate_serves_within_its_window_and_never_past_it() {
    let response = Response::new("Cache-Control: max-age=10, stale-while-revalidate=20");
    assert!(matches!(response.reuse(9, ""), Reuse::Fresh { .. }));
    assert!(meanwhile(&response, 10, ""));
    assert!(meanwhile(&response, 29, ""));
    assert!(!meanwhile(&response, 30, ""));
    assert!(!meanwhile(&Response::new("Cache-Control: max-age=10"), 10, ""));
    assert!(!meanwhile(&Response::new("Cache-Control: max-age=10, stale-while-revalidate=0"), 10, ""));
    assert!(!meanwhile(&Response::new("Cache-Control: max-age=10, stale-while-revalidate=x"), 10, ""));
}

#[test]
fn stale_while_revalidate_counts_from_the_end_of_any_lifetime() {
    let expires = format!("Expires: {}\nCache-Control: stale-while-revalidate=20", date(10));
    assert!(meanwhile(&Response::new(&expires), 29, ""));
    assert!(!meanwhile(&Response::new(&expires), 30, ""));
    let aged = Response::new("Cache-Control: max-age=60, stale-while-revalidate=20\nAge: 70");
    assert!(meanwhile(&aged, 9, ""));
    assert!(!meanwhile(&aged, 10, ""));
    assert!(meanwhile(&Response::new("CDN-Cache-Control: max-age=1, stale-while-revalidate=9"), 3, ""));
}

#[test]
fn stale_while_revalidate_yields_to_prohibitions_and_to_the_request() {
    for directives in ["max-age=1, must-revalidate", "max-age=1, proxy-revalidate", "s-maxage=1", "max-age=1, no-cache"]
    {
        let response = Response::new(&format!("Cache-Control: {directives}, stale-while-revalidate=60\nETag: \"a\""));
        assert!(!meanwhile(&response, 3, ""), "{directives}");
    }
    let response = Response::new("Cache-Control: max-age=1, stale-while-revalidate=60");
    for request in
        ["Cache-Control: no-cache", "Cache-Control: max-age=0", "Cache-Control: min-fresh=1", "Pragma: no-cache"]
    {
        assert!(!meanwhile(&response, 3, request), "{request}");
    }
    assert!(meanwhile(&response, 3, "Cache-Control: foo"));
}

#[test]
fn stale_if_error_of_the_request_counts_where_the_response_is_silent() {
    let may = |response: &Response, after_secs: i64, request: &str| {
        matches!(response.reuse(after_secs, request), Reuse::Stale { may_serve_on_error: true, .. })
    };
    let silent = Response::new("Cache-Control: max-age=10");
    assert!(may(&silent, 19, "Cache-Control: stale-if-error=10"));
    assert!(!may(&silent, 20, "Cache-Control: stale-if-error=10"));
    assert!(!may(&silent, 10, "Cache-Control: stale-if-error=x"));
    let stated = Response::new("Cache-Control: max-age=10, stale-if-error=5");
    assert!(!may(&stated, 15, "Cache-Control: stale-if-error=60"));
    let forbidden = Response::new("Cache-Control: max-age=10, must-revalidate");
    assert!(!may(&forbidden, 11, "Cache-Control: stale-if-error=60"));
    let mut deaf = Response::new("Cache-Control: max-age=10");
    deaf.settings.honor_request_directives = false;
    assert!(may(&deaf, 100, "Cache-Control: stale-if-error=10"));
}

/// Returns the decision about a response `after_secs` after its receipt while its origin cannot be reached.
fn disconnected(lines: &str, after_secs: i64, allowed: StaleAllowed) -> Reuse {
    let response = Response::new(lines);
    let now = RECEIVED.plus_secs(after_secs);
    reuse::decide_disconnected(&Method::GET, &response.head(), now, &response.settings, allowed)
}

/// Guards against refusing a response that may be served although nothing else is available, and against serving one
/// that must not be served.
#[test]
fn what_is_stale_is_served_while_disconnected_as_far_as_response_settings_and_operator_allow() {
    use StaleAllowed::{AsOnError, EvenForbidden, HoweverOld};
    let fresh = Some(Reason::ExplicitLifetime);
    let stale = Some(Reason::Offline);
    for (lines, after_secs, on_error, however_old, even_forbidden) in [
        ("Cache-Control: max-age=10", 5, fresh, fresh, fresh),
        ("Cache-Control: max-age=10", 10, stale, stale, stale),
        ("Cache-Control: max-age=10", DAY_SECS + 10, None, stale, stale),
        ("Cache-Control: max-age=10, stale-if-error=5", 20, None, stale, stale),
        ("Cache-Control: max-age=10, stale-if-error=900000", DAY_SECS * 2, stale, stale, stale),
        ("Cache-Control: max-age=10, must-revalidate", 5, fresh, fresh, fresh),
        ("Cache-Control: max-age=10, must-revalidate", 10, None, None, stale),
        ("Cache-Control: s-maxage=10", 10, None, None, stale),
        ("Cache-Control: max-age=10, no-cache\nETag: \"a\"", 5, None, None, stale),
        ("ETag: \"a\"", 5, stale, stale, stale),
        ("ETag: \"a\"\nSet-Cookie: a=b", 5, None, None, None),
    ] {
        for (allowed, expected) in [(AsOnError, on_error), (HoweverOld, however_old), (EvenForbidden, even_forbidden)] {
            let reason = match disconnected(lines, after_secs, allowed) {
                Reuse::Fresh { reason, .. } => Some(reason),
                Reuse::Stale { .. } | Reuse::MustValidate { .. } | Reuse::NotUsable { .. } => None,
            };
            assert_eq!(reason, expected, "{lines:?} after {after_secs} s, {allowed:?}");
        }
    }
}

/// Guards against a purged response that is served as fresh because the clock was set back.
#[test]
fn clock_that_is_set_back_does_not_make_fresh_what_was_purged_softly() {
    let lines = "Cache-Control: max-age=1000, stale-while-revalidate=60, stale-if-error=60\nETag: \"a\"";
    let response = Response::new(lines);
    let head = response.head().stale_since(RECEIVED.plus_secs(100));
    for (after_secs, meanwhile) in
        [(-1000, true), (0, true), (99, true), (100, true), (159, true), (160, false), (5000, false)]
    {
        let now = RECEIVED.plus_secs(after_secs);
        let decision = reuse::decide(&Method::GET, &http::HeaderMap::new(), &head, now, &response.settings);
        let Reuse::Stale { may_serve_meanwhile, may_serve_on_error, has_validator, .. } = decision else {
            panic!("{after_secs}: {decision:?}")
        };
        assert_eq!(
            (may_serve_meanwhile, may_serve_on_error, has_validator),
            (meanwhile, meanwhile, true),
            "{after_secs}"
        );
    }
    // The clock was behind at the purge, so the response has been stale since its receipt.
    let early = response.head().stale_since(RECEIVED.plus_secs(-1000));
    let decision = reuse::decide(&Method::GET, &http::HeaderMap::new(), &early, RECEIVED, &response.settings);
    assert!(matches!(decision, Reuse::Stale { may_serve_meanwhile: true, .. }), "{decision:?}");
}

#[test]
fn count_of_purges_is_stored_with_a_head_and_staleness_is_not() {
    let head = Response::new("Cache-Control: max-age=1000").head();
    assert_eq!(head.purge_count(), 0);
    for count in [0, 1, 300, u64::MAX] {
        let stored = head.clone().after_purges(count);
        let read = StoredHead::decode(stored.encode().into(), &TargetList::default()).unwrap();
        assert_eq!((read.purge_count(), &read), (count, &stored));
        let stale = stored.clone().stale_since(RECEIVED);
        assert_eq!(StoredHead::decode(stale.encode().into(), &TargetList::default()).unwrap(), stored);
    }
}
