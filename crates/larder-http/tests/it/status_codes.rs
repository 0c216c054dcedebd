//! Methods and status codes (RFC 9111 3, RFC 9110 9.2.3, 15.1).

use http::{HeaderMap, Method, StatusCode, Uri};
use larder_http::{
    Reason, Reuse, Settings, Storability, reuse,
    storable::{self, Exchange},
};

use crate::support::{RECEIVED, Response, date, fields};

const FINAL: [u16; 20] =
    [200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 403, 404, 410, 418, 499, 500, 502, 503, 504, 599];

#[test]
fn any_final_status_with_explicit_freshness_is_reused() {
    for status in FINAL {
        assert!(Response::new("Cache-Control: max-age=3600").with_status(status).is_reused(3), "{status}");
        let expires = format!("Expires: {}", date(3600));
        assert!(Response::new(&expires).with_status(status).is_reused(3), "{status}");
    }
}

#[test]
fn no_status_is_reused_when_stale() {
    let lines = format!("Expires: {}\nLast-Modified: {}", date(-3600), date(-86_400));
    for status in FINAL {
        assert!(!Response::new(&lines).with_status(status).is_reused(3), "{status}");
    }
}

#[test]
fn interim_and_not_modified_and_partial_responses_are_not_stored() {
    for (status, reason) in [
        (100, Reason::Status),
        (101, Reason::Status),
        (103, Reason::Status),
        (304, Reason::Status),
        (206, Reason::Partial),
    ] {
        let response = Response::new("Cache-Control: max-age=3600").with_status(status);
        assert_eq!(response.refusal(), Some(reason), "{status}");
    }
}

#[test]
fn responses_to_other_methods_than_get_are_not_stored() {
    let response_fields = fields("Cache-Control: max-age=3600");
    for method in ["HEAD", "POST", "PUT", "OPTIONS", "M-SEARCH", "get"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let exchange = Exchange {
            method: &method,
            request_fields: &HeaderMap::new(),
            status: StatusCode::OK,
            response_fields: &response_fields,
            request_time: RECEIVED,
            response_time: RECEIVED,
        };
        let refused = Storability::Refuse { reason: Reason::Method };
        assert_eq!(storable::decide(&exchange, &Settings::default()), refused, "{method}");
    }
}

#[test]
fn get_and_head_are_answered_from_a_stored_get_and_no_other_method_is() {
    let head = Response::new("Cache-Control: max-age=3600").head();
    let decide = |method: &Method| reuse::decide(method, &HeaderMap::new(), &head, RECEIVED, &Settings::default());
    assert!(matches!(decide(&Method::GET), Reuse::Fresh { .. }));
    assert!(matches!(decide(&Method::HEAD), Reuse::Fresh { .. }));
    for method in [Method::POST, Method::OPTIONS, Method::DELETE] {
        assert_eq!(decide(&method), Reuse::NotUsable { reason: Reason::Method }, "{method}");
    }
}

#[test]
fn response_with_a_head_beyond_the_bounds_is_not_stored() {
    let many = "X-Many: a\n".repeat(600);
    assert_eq!(Response::new(&format!("Cache-Control: max-age=60\n{many}")).refusal(), Some(Reason::HeadTooLarge));
    let long = "x".repeat(70_000);
    assert_eq!(
        Response::new(&format!("Cache-Control: max-age=60\nX-Long: {long}")).refusal(),
        Some(Reason::HeadTooLarge)
    );
}

fn decide_post(status: u16, response: &str, target: &'static str) -> Storability {
    let response_fields = fields(response);
    let exchange = Exchange {
        method: &Method::POST,
        request_fields: &HeaderMap::new(),
        status: StatusCode::from_u16(status).expect("a test's status is a status"),
        response_fields: &response_fields,
        request_time: RECEIVED,
        response_time: RECEIVED,
    };
    storable::decide_post(&exchange, &Uri::from_static(target), &Settings::default())
}

#[test]
fn response_to_post_that_stands_for_its_target_is_stored() {
    for location in ["http://a.example/x?q", "/x?q", "x?q", "//A.example/x?q", "?q"] {
        let response = format!("Cache-Control: max-age=60\nContent-Location: {location}");
        let decided = decide_post(200, &response, "http://a.example/x?q");
        assert!(
            matches!(decided, Storability::Store { reason: Reason::ExplicitLifetime, .. }),
            "{location}: {decided:?}"
        );
    }
}

#[test]
fn response_to_post_without_its_own_location_or_lifetime_is_not_stored() {
    for (status, response, reason) in [
        (200, "Cache-Control: max-age=60", Reason::PostWithoutLocation),
        (200, "Cache-Control: max-age=60\nContent-Location: /y", Reason::PostWithoutLocation),
        (200, "Cache-Control: max-age=60\nContent-Location: /x\nContent-Location: /x", Reason::PostWithoutLocation),
        (200, "Cache-Control: max-age=60\nContent-Location: http://b.example/x", Reason::PostWithoutLocation),
        (200, "ETag: \"a\"\nContent-Location: /x", Reason::NothingToReuse),
        (200, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\nContent-Location: /x", Reason::NothingToReuse),
        (200, "Cache-Control: no-store, max-age=60\nContent-Location: /x", Reason::NoStore),
        (206, "Cache-Control: max-age=60\nContent-Location: /x", Reason::Partial),
        (404, "Cache-Control: max-age=60\nContent-Location: /x", Reason::Method),
    ] {
        let decided = decide_post(status, response, "http://a.example/x");
        assert_eq!(decided, Storability::Refuse { reason }, "{status} {response}");
    }
}

#[test]
fn statuses_about_one_clients_requests_are_never_stored() {
    for status in [428, 429, 431, 511] {
        let response = Response::new("Cache-Control: max-age=3600, public").with_status(status);
        assert_eq!(response.refusal(), Some(Reason::Status), "{status}");
    }
}

#[test]
fn answers_to_a_range_or_a_precondition_say_nothing_to_others() {
    let answer = |status: u16, request: &str| {
        Response::new("Cache-Control: max-age=3600").with_status(status).answering(request).refusal()
    };
    assert_eq!(answer(416, "Range: bytes=5-"), Some(Reason::Status));
    assert_eq!(answer(412, "If-Match: \"a\""), Some(Reason::Status));
    assert_eq!(answer(412, "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"), Some(Reason::Status));
    assert_eq!(answer(416, ""), None);
    assert_eq!(answer(412, ""), None);
}
