//! Rules that show only end to end, by clause (RFC 9111, RFC 9110).

use crate::support::{Fixture, Reply};

/// Makes a response stale on arrival.
const STALE: &str = "Age: 100";

#[test]
fn newer_response_that_is_not_stored_leaves_the_older_one() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: max-age=60"], "old"),
        _ => Reply::ok(&["Cache-Control: no-store"], "new"),
    });
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    assert_eq!(fixture.get("/", &["Cache-Control: no-cache"]).text(), "new");
    assert_eq!(fixture.get_hit("/", &[]).text(), "old");
}

#[test]
fn stale_response_is_validated_before_a_condition_is_answered() {
    let fixture = Fixture::new(|received, _| match received.field("if-none-match") {
        Some("\"v1\"") => Reply::status("304 Not Modified", &["ETag: \"v1\"", "Cache-Control: max-age=60"], ""),
        _ => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\""], "hello"),
    });
    fixture.get("/", &[]);
    let answer = fixture.get("/", &["If-None-Match: \"v0\", \"v1\""]);
    assert_eq!((answer.status, answer.field("etag"), answer.body.len()), (304, Some("\"v1\""), 0));
    assert_eq!(fixture.origin.received()[1].field("if-none-match"), Some("\"v1\""));
    assert_eq!(fixture.get_hit("/", &[]).text(), "hello");
}

#[test]
fn validating_request_keeps_the_selecting_fields() {
    let fixture = Fixture::new(|received, number| {
        let variant = received.field("foo").unwrap_or("none").to_owned();
        match number {
            0 => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\"", "Vary: Foo"], variant),
            _ => Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "ETag: \"v1\""], ""),
        }
    });
    fixture.get("/", &["Foo: 1"]);
    assert_eq!(fixture.get("/", &["Foo: 1"]).text(), "1");
    let validating = &fixture.origin.received()[1];
    assert_eq!((validating.field("foo"), validating.field("if-none-match")), (Some("1"), Some("\"v1\"")));
}

#[test]
fn interim_response_is_not_stored_and_the_final_one_is() {
    let fixture = Fixture::new(|_, _| {
        let hints = Reply::head("103 Early Hints", &["Link: </a.css>; rel=preload", "X-Hint: yes"]);
        hints.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello")
    });
    let mut connection = fixture.connect();
    let response = connection.request_with_interim("GET", "/", &[]).1;
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    let hit = fixture.get_hit("/", &[]);
    assert_eq!((hit.status, hit.field("link"), hit.field("x-hint")), (200, None, None));
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn targeted_field_rules_what_is_stored_and_is_passed_on() {
    let fixture = Fixture::new(|received, _| match received.target.as_str() {
        "/kept" => Reply::ok(&["CDN-Cache-Control: max-age=60", "Cache-Control: no-store"], "kept"),
        _ => Reply::ok(&["CDN-Cache-Control: no-store", "Cache-Control: max-age=60"], "passed"),
    });
    fixture.get("/kept", &[]);
    let hit = fixture.get_hit("/kept", &[]);
    assert_eq!((hit.text().as_str(), hit.field("cdn-cache-control")), ("kept", Some("max-age=60")));
    fixture.get("/passed", &[]);
    assert!(!fixture.get("/passed", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 3);
}
