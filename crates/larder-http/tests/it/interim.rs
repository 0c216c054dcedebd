//! Interim responses (RFC 9110 10.1.1, 15.2, RFC 8297).

use http::{StatusCode, Version};
use larder_http::interim::{expects_continue, goes_on};

use crate::support::fields;

fn passes(status: u16, version: Version, awaits_continue: bool) -> bool {
    goes_on(StatusCode::from_u16(status).expect("a test's status is a status"), version, awaits_continue)
}

#[test]
fn interim_responses_go_on_to_clients_that_know_them() {
    for status in [102, 103, 104, 150, 199] {
        assert!(passes(status, Version::HTTP_11, false), "{status}");
        assert!(passes(status, Version::HTTP_2, false), "{status}");
        assert!(!passes(status, Version::HTTP_10, false), "{status}");
        assert!(!passes(status, Version::HTTP_09, false), "{status}");
    }
}

#[test]
fn continue_goes_only_to_a_client_that_awaits_it() {
    assert!(passes(100, Version::HTTP_11, true));
    assert!(!passes(100, Version::HTTP_11, false));
    assert!(!passes(100, Version::HTTP_10, true));
}

#[test]
fn switching_protocols_and_final_responses_are_no_interim_ones() {
    for status in [101, 200, 204, 304, 404, 503] {
        assert!(!passes(status, Version::HTTP_11, true), "{status}");
    }
}

#[test]
fn expectation_is_read_in_any_case() {
    assert!(expects_continue(&fields("Expect: 100-Continue")));
    assert!(expects_continue(&fields("Expect: foo, 100-continue")));
    assert!(!expects_continue(&fields("Expect: 100-continue-not")));
    assert!(!expects_continue(&fields("")));
}
