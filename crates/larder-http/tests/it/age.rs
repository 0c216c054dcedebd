//! Age and Date (RFC 9111 4.2.3, 5.1, RFC 9110 6.6.1).

use http::{HeaderMap, Method};
use larder_http::{Reuse, Settings, Timestamp, reuse};
use proptest::prelude::*;

use crate::support::{RECEIVED, Response, date};

fn age_secs(response: &Response, after_millis: i64) -> u64 {
    let now = RECEIVED.plus_millis(after_millis);
    match reuse::decide(&Method::GET, &HeaderMap::new(), &response.head(), now, &Settings::default()) {
        Reuse::Fresh { age, .. } | Reuse::Stale { age, .. } | Reuse::MustValidate { age, .. } => age.age_secs,
        unusable => panic!("{unusable:?}"),
    }
}

#[test]
fn age_counts_from_receipt_plus_received_age() {
    for lifetime in ["Cache-Control: max-age=3600".to_owned(), format!("Expires: {}", date(3600))] {
        assert_eq!(age_secs(&Response::new(&lifetime), 3000), 3);
        assert_eq!(age_secs(&Response::new(&format!("{lifetime}\nAge: 30")), 3000), 33);
    }
}

#[test]
fn apparent_age_counts_when_it_is_the_greater() {
    let response = |age: &str| Response::new(&format!("Cache-Control: max-age=3600\nDate: {}\n{age}", date(-100)));
    // The response was received half a second after a whole second.
    assert_eq!(age_secs(&response(""), 0), 100);
    assert_eq!(age_secs(&response("Age: 10"), 0), 100);
    assert_eq!(age_secs(&response("Age: 200"), 0), 200);
    let recent = |secs: i64| Response::new(&format!("Cache-Control: max-age=1\nDate: {}", date(-secs)));
    // Date may be truncated by up to a second.
    assert!(recent(0).is_reused(0) && recent(1).is_reused(0) && !recent(2).is_reused(0));
}

#[test]
fn date_in_the_future_counts_as_no_age() {
    let response = Response::new(&format!("Cache-Control: max-age=3600\nDate: {}", date(7200)));
    assert_eq!(age_secs(&response, 5000), 5);
}

#[test]
fn delay_of_the_response_is_part_of_the_age() {
    let mut response = Response::new("Cache-Control: max-age=3600\nAge: 10");
    response.delay_secs = 5;
    assert_eq!(age_secs(&response, 0), 15);
}

#[test]
fn clock_set_back_counts_as_no_time_passed() {
    assert_eq!(age_secs(&Response::new("Cache-Control: max-age=3600\nAge: 7"), -60_000), 7);
}

#[test]
fn valid_date_and_expires_are_kept_unchanged() {
    for made in [date(-50), date(50), "Sunday, 06-Nov-94 08:49:37 GMT".to_owned()] {
        let head = Response::new(&format!("Date: {made}\nExpires: {made}")).head();
        assert_eq!(head.fields().to_map()["date"], made);
        assert_eq!(head.fields().to_map()["expires"], made);
    }
}

#[test]
fn missing_or_invalid_date_is_the_receipt() {
    let mut response = Response::new("Cache-Control: max-age=60");
    response.fields.remove("date");
    assert_eq!(response.head().fields().to_map()["date"], date(0));
    for lines in ["Date: foo".to_owned(), format!("Date: {0}\nDate: {0}", date(-9))] {
        let head = Response::new(&lines).head();
        assert_eq!(head.fields().to_map()["date"], date(0));
        assert_eq!(head.fields().to_map().get_all("date").iter().count(), 1);
    }
}

#[test]
fn hostile_times_do_not_overflow() {
    let response =
        Response::new("Cache-Control: max-age=99999999999\nAge: 99999999999\nDate: Fri, 31 Dec 9999 23:59:59 GMT");
    let head = response.head();
    for now in [i64::MIN, 0, i64::MAX] {
        let now = Timestamp::from_millis(now);
        reuse::decide(&Method::GET, &HeaderMap::new(), &head, now, &Settings::default());
    }
    assert!(head.fresh_until(&Settings::default()) <= RECEIVED);
}

#[test]
fn fresh_until_is_the_moment_the_lifetime_ends() {
    let response = Response::new("Cache-Control: max-age=60\nAge: 10");
    assert_eq!(response.head().fresh_until(&Settings::default()), RECEIVED.plus_secs(50));
}

proptest! {
    #[test]
    fn no_second_is_lost_between_two_hits(
        made in -5i64..5, age in 0u32..5, first in 0i64..10_000, pause_secs in 1i64..10,
    ) {
        let response = Response::new(&format!("Cache-Control: max-age=3600\nAge: {age}\nDate: {}", date(made)));
        let earlier = age_secs(&response, first);
        let later = age_secs(&response, first + pause_secs * 1000);
        prop_assert_eq!(later - earlier, pause_secs.unsigned_abs());
    }
}
