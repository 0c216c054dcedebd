//! Explicit lifetimes (RFC 9111 3, 4.2, 4.2.1, 5.2.2, 5.3).

use larder_http::Reason;

use crate::support::{Response, date, is_reused};

#[test]
fn no_lifetime_is_invented_for_a_response_without_freshness_and_validator() {
    assert_eq!(Response::new("").refusal(), Some(Reason::NothingToReuse));
    assert_eq!(Response::new("Cache-Control: public").refusal(), Some(Reason::NothingToReuse));
    assert_eq!(Response::new("ETag: \"a\"").refusal(), None);
    assert!(!is_reused("ETag: \"a\""));
}

#[test]
fn max_age_is_reused_while_fresh_and_not_once_older() {
    let response = Response::new("Cache-Control: max-age=3600");
    assert!(response.is_reused(0));
    assert!(response.is_reused(3599));
    assert!(!response.is_reused(3600));
    assert!(!is_reused("Cache-Control: max-age=0"));
    assert!(!is_reused("Cache-Control: max-age=0\nETag: \"a\""));
}

#[test]
fn lifetime_of_one_second_is_not_over_on_arrival() {
    assert!(Response::new("Cache-Control: max-age=1").is_reused(0));
    assert!(!Response::new("Cache-Control: max-age=1").is_reused(1));
}

#[test]
fn negative_lifetime_is_no_lifetime() {
    assert!(!is_reused("Cache-Control: max-age=-3600"));
    assert!(!is_reused("Cache-Control: s-maxage=-3600, max-age=3600"));
}

#[test]
fn lifetimes_around_and_past_31_bits_saturate() {
    for secs in ["2147483647", "2147483648", "2147483649", "99999999999", "99999999999999999999999999"] {
        assert!(is_reused(&format!("Cache-Control: max-age={secs}")), "max-age={secs}");
        assert!(is_reused(&format!("Cache-Control: s-maxage={secs}")), "s-maxage={secs}");
    }
}

#[test]
fn lifetime_is_compared_with_the_received_age() {
    assert!(is_reused("Cache-Control: max-age=3600\nAge: 1800"));
    assert!(!is_reused("Cache-Control: max-age=3600\nAge: 3600"));
    assert!(!is_reused("Cache-Control: max-age=3600\nAge: 7200"));
}

#[test]
fn date_long_past_counts_as_apparent_age() {
    assert!(!is_reused(&format!("Cache-Control: max-age=3600\nDate: {}", date(-7200))));
    assert!(is_reused(&format!("Cache-Control: max-age=3600\nDate: {}", date(-1800))));
}

#[test]
fn max_age_wins_over_expires() {
    for expires in [date(-7200), "0".to_owned(), "never".to_owned()] {
        assert!(is_reused(&format!("Cache-Control: max-age=3600\nExpires: {expires}")), "{expires}");
    }
    assert!(!is_reused(&format!("Cache-Control: max-age=0\nExpires: {}", date(3600))));
}

#[test]
fn unknown_directive_beside_max_age_does_not_disturb() {
    for directives in ["foobar, max-age=3600", "max-age=3600, foobar=\"x, y\"", "foobar=baz, MaX-aGe=3600"] {
        assert!(is_reused(&format!("Cache-Control: {directives}")), "{directives}");
    }
}

#[test]
fn s_maxage_alone_makes_reusable() {
    assert!(is_reused("Cache-Control: s-maxage=3600"));
    assert!(!is_reused("Cache-Control: s-maxage=2"));
}

#[test]
fn s_maxage_wins_over_max_age_and_expires_in_any_order_and_on_any_line() {
    let future = date(3600);
    for shorter in [
        "Cache-Control: max-age=3600, s-maxage=1".to_owned(),
        "Cache-Control: s-maxage=1, max-age=3600".to_owned(),
        "Cache-Control: s-maxage=1\nCache-Control: max-age=3600".to_owned(),
        "Cache-Control: max-age=3600\nCache-Control: s-maxage=1".to_owned(),
        format!("Cache-Control: s-maxage=1\nExpires: {future}"),
    ] {
        assert!(!is_reused(&shorter), "{shorter}");
    }
    for longer in [
        "Cache-Control: max-age=1, s-maxage=3600".to_owned(),
        "Cache-Control: s-maxage=3600, max-age=0".to_owned(),
        format!("Cache-Control: s-maxage=3600, max-age=0\nExpires: {}", date(-3600)),
    ] {
        assert!(is_reused(&longer), "{longer}");
    }
}

#[test]
fn expires_less_date_gives_the_lifetime() {
    let response = Response::new(&format!("Expires: {}", date(3600)));
    assert!(response.is_reused(3599));
    assert!(!response.is_reused(3600));
}

#[test]
fn expires_not_after_date_gives_none_whatever_our_clock_says() {
    for (expires, made) in [(0, 0), (-3600, 0), (3600, 3600), (3600, 7200), (-7200, -3600)] {
        let lines = format!("Expires: {}\nDate: {}", date(expires), date(made));
        assert!(!is_reused(&lines), "{lines}");
        assert!(!is_reused(&format!("{lines}\nLast-Modified: {}", date(-864_000))), "{lines}");
    }
}

#[test]
fn expires_is_measured_from_date_when_the_origins_clock_is_fast() {
    let response = Response::new(&format!("Expires: {}\nDate: {}", date(7260), date(7200)));
    assert!(response.is_reused(59));
    assert!(!response.is_reused(60));
}

#[test]
fn received_age_counts_against_expires_with_any_date() {
    for made in [0, -1800, 1800] {
        let lines = format!("Expires: {}\nDate: {}", date(made + 3600), date(made));
        assert!(is_reused(&format!("{lines}\nAge: 1000")), "{lines}");
        assert!(!is_reused(&format!("{lines}\nAge: 3600")), "{lines}");
    }
}

#[test]
fn expires_with_an_invalid_date_is_measured_from_the_receipt() {
    assert!(is_reused(&format!("Expires: {}\nDate: foo", date(3600))));
    assert!(!is_reused(&format!("Expires: {}\nDate: foo", date(1))));
}

#[test]
fn invalid_expires_means_expired() {
    let future = date(3600);
    for expires in ["0", "-1", "", "tomorrow", &future.replace("GMT", "UTC"), &future.replace(',', "")] {
        assert!(!is_reused(&format!("Expires: {expires}\nLast-Modified: {}", date(-864_000))), "{expires}");
    }
    assert!(!is_reused(&format!("Expires: {future}\nExpires: {future}")));
}
