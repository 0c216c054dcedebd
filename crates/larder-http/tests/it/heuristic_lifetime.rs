//! Heuristic freshness (RFC 9111 4.2.2, RFC 9110 15.1).

use std::time::Duration;

use larder_http::{Reason, Reuse};

use crate::support::{DAY_SECS, Response, date};

fn modified_a_day_ago(more: &str) -> Response {
    Response::new(&format!("Last-Modified: {}\n{more}", date(-DAY_SECS)))
}

#[test]
fn statuses_storable_by_default_are_reused_by_last_modified() {
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 451, 501] {
        assert!(modified_a_day_ago("").with_status(status).is_reused(3), "{status}");
    }
}

#[test]
fn other_statuses_get_no_heuristic_lifetime() {
    for status in [201, 202, 302, 303, 307, 400, 403, 499, 500, 502, 503, 504, 599] {
        let response = modified_a_day_ago("ETag: \"a\"").with_status(status);
        assert_eq!(response.refusal(), Some(Reason::Status), "{status}");
    }
}

#[test]
fn public_allows_a_heuristic_lifetime_for_any_status() {
    for status in [201, 403, 599] {
        assert!(modified_a_day_ago("Cache-Control: public").with_status(status).is_reused(3), "{status}");
    }
}

#[test]
fn a_tenth_of_the_age_is_the_lifetime() {
    for (modified_secs, reused) in [(5, false), (29, false), (60, true), (3600, true), (DAY_SECS, true)] {
        let response = Response::new(&format!("Last-Modified: {}", date(-modified_secs)));
        assert_eq!(response.is_reused(3), reused, "{modified_secs}");
    }
    assert!(modified_a_day_ago("").is_reused(DAY_SECS / 10 - 1));
    assert!(!modified_a_day_ago("").is_reused(DAY_SECS / 10));
}

#[test]
fn heuristic_lifetime_is_capped() {
    let old = Response::new(&format!("Last-Modified: {}", date(-1000 * DAY_SECS)));
    assert!(old.is_reused(DAY_SECS - 1));
    assert!(!old.is_reused(DAY_SECS));
}

/// Guards against a resource that appears, hidden for a day by the old file of an error page.
#[test]
fn errors_are_fresh_for_ten_seconds_at_most_whatever_their_last_modified() {
    for status in [404, 405, 410, 414, 451, 501, 200] {
        let mut response = modified_a_day_ago("").with_status(status);
        assert!(response.is_reused(9), "{status}");
        assert_eq!(response.is_reused(10), status == 200, "{status}");
        assert!(!Response::new(&format!("Last-Modified: {}", date(-60))).with_status(status).is_reused(6), "{status}");
        response.settings.heuristic_error_max = Duration::from_secs(60);
        assert!(response.is_reused(59), "{status}");
        response.settings.heuristic_max = Duration::from_secs(5);
        assert!(!response.is_reused(5), "{status}");
    }
    assert!(modified_a_day_ago("Cache-Control: max-age=60").with_status(404).is_reused(59));
    assert!(!modified_a_day_ago("Cache-Control: public").with_status(500).is_reused(10));
}

#[test]
fn heuristic_lifetime_follows_the_settings() {
    let mut response = modified_a_day_ago("");
    response.settings.heuristic_fraction = 0.0;
    assert!(!response.is_reused(0));
    response.settings.heuristic_fraction = 1.0;
    assert!(response.is_reused(DAY_SECS - 1));
    response.settings.heuristic_max = Duration::from_secs(10);
    assert!(!response.is_reused(10));
}

#[test]
fn heuristic_hit_says_so() {
    assert!(matches!(modified_a_day_ago("").reuse(3, ""), Reuse::Fresh { reason: Reason::HeuristicLifetime, .. }));
}

#[test]
fn content_disposition_changes_nothing() {
    assert!(modified_a_day_ago("Content-Disposition: attachment; filename=a").is_reused(3));
    assert!(Response::new("Cache-Control: max-age=60\nContent-Disposition: attachment").is_reused(3));
}

#[test]
fn last_modified_in_the_future_or_invalid_gives_no_lifetime() {
    assert!(!Response::new(&format!("Last-Modified: {}", date(3600))).is_reused(0));
    assert_eq!(Response::new("Last-Modified: yesterday").refusal(), Some(Reason::NothingToReuse));
    let repeated = format!("Last-Modified: {0}\nLast-Modified: {0}", date(-DAY_SECS));
    assert_eq!(Response::new(&repeated).refusal(), Some(Reason::NothingToReuse));
}

#[test]
fn explicit_lifetime_excludes_the_heuristic() {
    assert!(!modified_a_day_ago("Cache-Control: max-age=0").is_reused(3));
    assert!(!modified_a_day_ago("Expires: 0").is_reused(3));
    assert!(!modified_a_day_ago("Cache-Control: max-age=x").is_reused(3));
}

#[test]
fn errors_have_the_lifetime_the_settings_give_them() {
    let negative = |lines: &str, status: u16| {
        let mut response = Response::new(lines).with_status(status);
        response.settings.negative_lifetimes =
            [404, 410, 500, 200].map(|status| (status, Duration::from_secs(10))).into();
        response
    };
    for status in [404, 410] {
        assert!(negative("", status).is_reused(9), "{status}");
        assert!(!negative("", status).is_reused(10), "{status}");
    }
    assert!(matches!(negative("", 404).reuse(3, ""), Reuse::Fresh { reason: Reason::NegativeLifetime, .. }));
    // If no lifetime may be guessed, the settings give none either, unless the response is public.
    assert_eq!(negative("", 500).refusal(), Some(Reason::Status));
    assert!(negative("Cache-Control: public", 500).is_reused(9));
    assert_eq!(negative("", 405).refusal(), Some(Reason::NothingToReuse));
    assert_eq!(negative("", 200).refusal(), Some(Reason::NothingToReuse));
    assert!(!negative("Cache-Control: max-age=2", 404).is_reused(3));
    assert_eq!(negative("Cache-Control: no-store", 404).refusal(), Some(Reason::NoStore));
}
