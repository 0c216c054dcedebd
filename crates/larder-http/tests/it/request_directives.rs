//! Request directives and Pragma (RFC 9111 5.2.1, 5.4): honored by default, ignored by option.

use larder_http::{Reason, Reuse, Settings, cache_control::RequestDirectives, reuse};

use crate::support::{Response, fields};

/// Returns the reason why a fresh response of this age and lifetime is not served to a request with these fields.
fn hindrance(response: &str, request: &str) -> Option<Reason> {
    match Response::new(response).reuse(3, request) {
        Reuse::Fresh { .. } => None,
        Reuse::Stale { reason, .. } | Reuse::MustValidate { reason, .. } | Reuse::NotUsable { reason } => Some(reason),
    }
}

fn directives(request: &str) -> RequestDirectives {
    RequestDirectives::from_fields(&fields(request))
}

const FRESH: &str = "Cache-Control: max-age=3600\nETag: \"a\"";
const FRESH_AGED: &str = "Cache-Control: max-age=3600\nAge: 1800\nETag: \"a\"";

#[test]
fn max_age_at_or_below_the_age_goes_to_the_origin() {
    for secs in ["0", "1", "3"] {
        let request = format!("Cache-Control: max-age={secs}");
        assert_eq!(hindrance(FRESH, &request), Some(Reason::RequestMaxAge), "{secs}");
    }
    assert_eq!(hindrance(FRESH, "Cache-Control: max-age=4"), None);
    assert_eq!(hindrance(FRESH_AGED, "Cache-Control: max-age=1800"), Some(Reason::RequestMaxAge));
    assert_eq!(hindrance(FRESH_AGED, "Cache-Control: max-age=1900"), None);
}

#[test]
fn max_age_zero_goes_to_the_origin_in_the_moment_of_receipt() {
    let reuse = Response::new(FRESH).reuse(0, "Cache-Control: max-age=0");
    assert!(matches!(reuse, Reuse::MustValidate { reason: Reason::RequestMaxAge, has_validator: true, .. }));
}

#[test]
fn malformed_request_max_age_goes_to_the_origin() {
    assert_eq!(hindrance(FRESH, "Cache-Control: max-age=x"), Some(Reason::RequestMaxAge));
}

#[test]
fn min_fresh_beyond_the_remaining_lifetime_goes_to_the_origin() {
    assert_eq!(hindrance(FRESH, "Cache-Control: min-fresh=3598"), Some(Reason::RequestMinFresh));
    assert_eq!(hindrance(FRESH, "Cache-Control: min-fresh=3500"), None);
    assert_eq!(hindrance(FRESH_AGED, "Cache-Control: min-fresh=2000"), Some(Reason::RequestMinFresh));
    assert_eq!(hindrance(FRESH_AGED, "Cache-Control: min-fresh=1700"), None);
}

#[test]
fn max_stale_serves_stale_within_it() {
    let stale = "Cache-Control: max-age=1";
    assert_eq!(hindrance(stale, ""), Some(Reason::Expired));
    assert_eq!(hindrance(stale, "Cache-Control: max-stale=1"), Some(Reason::Expired));
    for directives in ["max-stale=2", "max-stale=1000", "max-stale"] {
        assert_eq!(hindrance(stale, &format!("Cache-Control: {directives}")), None, "{directives}");
    }
    let aged = "Cache-Control: max-age=1800\nAge: 3600";
    assert_eq!(hindrance(aged, "Cache-Control: max-stale=1000"), Some(Reason::Expired));
    assert_eq!(hindrance(aged, "Cache-Control: max-stale=2000"), None);
}

#[test]
fn stale_hit_by_max_stale_says_so_and_has_a_negative_ttl() {
    let reuse = Response::new("Cache-Control: max-age=1").reuse(3, "Cache-Control: max-stale");
    let Reuse::Fresh { age, reason: Reason::RequestMaxStale } = reuse else { panic!("{reuse:?}") };
    assert_eq!((age.age_secs, age.ttl_secs), (3, -2));
}

#[test]
fn max_stale_does_not_overrule_the_response() {
    for directives in ["max-age=1, must-revalidate", "max-age=1, proxy-revalidate", "s-maxage=1"] {
        let response = format!("Cache-Control: {directives}");
        assert_eq!(hindrance(&response, "Cache-Control: max-stale"), Some(Reason::MustRevalidate), "{directives}");
    }
}

#[test]
fn no_cache_validates() {
    let reuse = Response::new(FRESH).reuse(3, "Cache-Control: foo, No-Cache");
    assert!(
        matches!(
            reuse,
            Reuse::MustValidate { reason: Reason::RequestNoCache, has_validator: true, may_serve_on_error: true, .. }
        ),
        "{reuse:?}"
    );
}

#[test]
fn no_store_is_not_answered_from_the_cache() {
    assert_eq!(hindrance(FRESH, "Cache-Control: no-store"), Some(Reason::RequestNoStore));
}

#[test]
fn only_if_cached_is_reported() {
    let is_only_if_cached = |line| reuse::is_only_if_cached(&directives(line), &Settings::default());
    assert!(is_only_if_cached("Cache-Control: max-stale, Only-If-Cached"));
    assert!(!is_only_if_cached("Cache-Control: x=\"only-if-cached\""));
    assert!(!is_only_if_cached(""));
    assert_eq!(hindrance(FRESH, "Cache-Control: only-if-cached"), None);
}

#[test]
fn pragma_no_cache_counts_only_without_cache_control() {
    assert_eq!(hindrance(FRESH, "Pragma: no-cache"), Some(Reason::RequestPragma));
    assert_eq!(hindrance(FRESH, "Pragma: foo, No-Cache"), Some(Reason::RequestPragma));
    assert_eq!(hindrance(FRESH, "Pragma: no-cache\nCache-Control: max-age=1000"), None);
    assert_eq!(hindrance(FRESH, "Pragma: foo"), None);
}

#[test]
fn request_directives_are_ignored_when_the_settings_say_so() {
    let mut response = Response::new(FRESH);
    response.settings.honor_request_directives = false;
    for request in
        ["Cache-Control: no-cache", "Cache-Control: max-age=0", "Pragma: no-cache", "Cache-Control: no-store"]
    {
        assert!(matches!(response.reuse(3, request), Reuse::Fresh { .. }), "{request}");
    }
    assert!(!reuse::is_only_if_cached(&directives("Cache-Control: only-if-cached"), &response.settings));
    assert!(!reuse::is_reload(&directives("Cache-Control: no-cache"), &response.settings));
}
