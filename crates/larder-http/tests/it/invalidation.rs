//! Invalidation by unsafe requests (RFC 9111 4.4, RFC 9110 9.2.1).

use http::{Method, StatusCode, Uri};
use larder_http::invalidate::{MoveDestination, targets};
use proptest::prelude::*;

use crate::support::fields;

const TARGET: &str = "http://a.example/dir/page?q=1";

fn dropped(method: &str, status: u16, response: &str) -> Vec<String> {
    let method = Method::from_bytes(method.as_bytes()).expect("a test's method is a method");
    let status = StatusCode::from_u16(status).expect("a test's status is a status");
    let targets = targets(&method, &Uri::from_static(TARGET), status, &fields(response));
    targets.iter().map(Uri::to_string).collect()
}

#[test]
fn success_of_an_unsafe_or_unknown_method_drops_the_target() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "FOO", "get"] {
        for status in [200, 201, 204, 301, 303, 307] {
            assert_eq!(dropped(method, status, ""), [TARGET], "{method} {status}");
        }
    }
}

#[test]
fn errors_drop_nothing() {
    for status in [400, 404, 412, 500, 503] {
        assert!(dropped("POST", status, "Location: /x").is_empty(), "{status}");
    }
}

#[test]
fn safe_methods_drop_nothing() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND"] {
        assert!(dropped(method, 200, "Location: /x").is_empty(), "{method}");
    }
}

#[test]
fn location_and_content_location_of_the_same_origin_are_dropped_too() {
    let response = "Location: /new\nContent-Location: ../other?x#frag";
    assert_eq!(dropped("POST", 201, response), [TARGET, "http://a.example/new", "http://a.example/other?x"]);
    assert_eq!(dropped("PUT", 200, "Location: http://A.example:80/b"), [TARGET, "http://A.example:80/b"]);
    assert_eq!(dropped("PUT", 200, "Content-Location: page?q=1"), [TARGET]);
}

#[test]
fn other_origins_are_left_alone() {
    for location in ["http://b.example/", "https://a.example/", "http://a.example:81/", "//b.example/x", "mailto:a@b"] {
        assert_eq!(dropped("POST", 201, &format!("Location: {location}")), [TARGET], "{location}");
    }
}

#[test]
fn malformed_locations_are_passed_over() {
    for location in ["http://", "http://[::1", "caf\u{e9}", "http://user@a.example/", "a b"] {
        assert_eq!(dropped("POST", 201, &format!("Location: {location}")).first().map(String::as_str), Some(TARGET));
    }
    assert_eq!(dropped("POST", 201, "Location: /a\nLocation: /b"), [TARGET]);
}

proptest! {
    #[test]
    fn whatever_is_dropped_is_of_the_same_origin(location in "[ -~]{0,40}") {
        for uri in dropped("POST", 201, &format!("Location: {location}")) {
            prop_assert!(uri.to_ascii_lowercase().starts_with("http://a.example"), "{}", uri);
        }
    }
}

#[test]
fn destination_of_a_move_or_copy_is_of_the_targets_origin() {
    let target = Uri::from_static(TARGET);
    let written = |method: &str, lines: &str| {
        let method = Method::from_bytes(method.as_bytes()).expect("a test's method is a method");
        MoveDestination::of(&method, &target, &fields(lines)).map(|moved| (moved.uri.to_string(), moved.leaves_target))
    };
    let new = || "http://a.example/new".to_owned();
    assert_eq!(written("MOVE", "Destination: http://a.example/new"), Some((new(), true)));
    assert_eq!(written("COPY", "Destination: /new"), Some((new(), false)));
    for (method, lines) in [
        ("PUT", "Destination: /new"),
        ("MOVE", ""),
        ("MOVE", "Destination: http://b.example/new"),
        ("MOVE", "Destination: https://a.example/new"),
        ("MOVE", "Destination: /a\nDestination: /b"),
        ("MOVE", "Destination: http://["),
    ] {
        assert_eq!(written(method, lines), None, "{method} {lines}");
    }
    let is_written = |status| MoveDestination::is_written(StatusCode::from_u16(status).expect("it is a status"));
    assert!(is_written(201) && is_written(204) && is_written(207) && !is_written(200) && !is_written(404));
}
