//! Serving stale (RFC 9111 4.2.4, RFC 5861 4).

use std::time::Duration;

use larder_http::Reuse;

use crate::support::{DAY_SECS, Response};

/// Whether the response may be served, so many seconds after its receipt, when the origin fails.
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
    response.settings.stale_on_error_max = Duration::ZERO;
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
