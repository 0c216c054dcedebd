//! Validation towards the origin (RFC 9111 3.2, 4.3.1, 4.3.3, 4.3.4, 4.3.5).

use http::{HeaderMap, StatusCode};
use larder_http::{
    BodyPlace, Reason, Reuse, Settings, Storability, StoredHead, reuse, storable,
    validate::{HeadVerdict, first_askers_own, freshen, judge_head, request_fields, selects},
};

use crate::support::{DAY_SECS, RECEIVED, Response, date, fields, later_answer};

/// Returns the stored response after a 304 with these fields, received 100 seconds later.
fn freshened(stored: &str, not_modified: &str) -> StoredHead {
    freshened_for(&Response::new(stored), "", not_modified)
}

/// As [`freshened`], for a 304 to a request with these fields.
fn freshened_for(stored: &Response, request: &str, not_modified: &str) -> StoredHead {
    let request = fields(request);
    let not_modified = fields(not_modified);
    let answer = later_answer(&request, StatusCode::NOT_MODIFIED, &not_modified);
    freshen(&stored.head(), &answer, &Settings::default())
}

fn value(fields: &HeaderMap, name: &str) -> Option<String> {
    let mut lines = fields.get_all(name).iter();
    let value = lines.next().map(|value| value.to_str().expect("the value is ASCII").to_owned());
    assert!(lines.next().is_none(), "{name} stands twice");
    value
}

#[test]
fn stale_response_is_validated_with_its_tag_as_received() {
    for tag in ["\"abc\"", "W/\"abc\"", "\"a\\b\""] {
        let head = Response::new(&format!("ETag: {tag}")).head();
        let request: HeaderMap = request_fields(&head).into_iter().collect();
        assert_eq!(value(&request, "if-none-match").as_deref(), Some(tag));
        assert_eq!(request.len(), 1);
    }
}

#[test]
fn stale_response_is_validated_with_its_last_modified_as_received() {
    let modified = "Sunday, 06-Nov-94 08:49:37 GMT";
    let head = Response::new(&format!("Last-Modified: {modified}")).head();
    let request: HeaderMap = request_fields(&head).into_iter().collect();
    assert_eq!(value(&request, "if-modified-since").as_deref(), Some(modified));
}

#[test]
fn response_without_a_valid_validator_is_not_validated() {
    for lines in ["", "ETag: abc", "Last-Modified: 0", "ETag: \"a\"\nETag: \"b\""] {
        let head = Response::new(lines).head();
        assert!(request_fields(&head).is_empty(), "{lines}");
        assert!(!head.has_validator(), "{lines}");
    }
}

#[test]
fn not_modified_speaks_of_the_stored_response_when_its_validators_agree() {
    let modified = date(-DAY_SECS);
    let other = date(-9);
    let cases = [
        ("ETag: \"a\"", "ETag: \"a\"", true),
        ("ETag: \"a\"", "ETag: \"b\"", false),
        ("ETag: W/\"a\"", "ETag: \"a\"", false),
        ("ETag: \"a\"", "ETag: W/\"a\"", true),
        ("ETag: W/\"a\"", "ETag: W/\"a\"", true),
        ("ETag: W/\"a\"", "ETag: W/\"b\"", false),
        ("ETag: \"a\"", "", true),
        ("", "ETag: \"a\"", false),
        ("ETag: abc", "ETag: abc", true),
    ];
    for (stored, not_modified, expected) in cases {
        let head = Response::new(stored).head();
        assert_eq!(selects(&fields(not_modified), &head), expected, "{stored} {not_modified}");
    }
    let head = Response::new(&format!("Last-Modified: {modified}")).head();
    assert!(selects(&fields(&format!("Last-Modified: {modified}")), &head));
    assert!(!selects(&fields(&format!("Last-Modified: {other}")), &head));
    assert!(selects(&HeaderMap::new(), &head));
}

#[test]
fn not_modified_adds_and_replaces_fields() {
    let head = freshened(
        "ETag: \"a\"\nX-Old: 1\nX-Same: 1\nSet-Cookie: a\nSet-Cookie: b",
        "ETag: \"a\"\nX-Same: 2\nX-New: 3\nContent-Foo: 4\nSet-Cookie: c\nCache-Control: max-age=60, public",
    );
    for (name, expected) in [
        ("x-old", Some("1")),
        ("x-same", Some("2")),
        ("x-new", Some("3")),
        ("content-foo", Some("4")),
        ("set-cookie", Some("c")),
        ("cache-control", Some("max-age=60, public")),
    ] {
        assert_eq!(value(&head.fields().to_map(), name).as_deref(), expected, "{name}");
    }
}

#[test]
fn all_end_to_end_fields_are_updated_but_content_length() {
    let names = [
        "Content-Type",
        "Content-Encoding",
        "Content-Location",
        "Content-MD5",
        "Content-Range",
        "Content-Security-Policy",
        "Clear-Site-Data",
        "Expires",
        "X-Frame-Options",
    ];
    for name in names {
        let head = freshened(&format!("ETag: \"a\"\n{name}: old"), &format!("{name}: new"));
        assert_eq!(value(&head.fields().to_map(), name).as_deref(), Some("new"), "{name}");
    }
    let head = freshened("ETag: \"a\"\nContent-Length: 100", "Content-Length: 0");
    assert_eq!(head.body(), BodyPlace::Whole { len: 100 });
}

#[test]
fn hop_by_hop_fields_of_a_304_are_not_taken_over() {
    let head = freshened(
        "ETag: \"a\"\nX-A: 1",
        "Connection: X-A, close\nX-A: 2\nKeep-Alive: timeout=5\nTransfer-Encoding: chunked",
    );
    assert_eq!(value(&head.fields().to_map(), "x-a").as_deref(), Some("1"));
    for name in ["connection", "keep-alive", "transfer-encoding"] {
        assert_eq!(value(&head.fields().to_map(), name), None, "{name}");
    }
}

#[test]
fn next_request_is_a_hit_with_the_new_lifetime() {
    let head = freshened(
        "ETag: \"a\"\nCache-Control: max-age=1\nAge: 50",
        &format!("Cache-Control: max-age=3600\nDate: {}", date(100)),
    );
    let reuse =
        reuse::decide(&http::Method::GET, &HeaderMap::new(), &head, RECEIVED.plus_secs(110), &Settings::default());
    let Reuse::Fresh { age, .. } = reuse else { panic!("{reuse:?}") };
    assert_eq!((age.age_secs, age.ttl_secs), (10, 3590));
}

#[test]
fn freshened_response_counts_its_age_from_the_304_even_without_a_date() {
    let head = freshened("ETag: \"a\"\nCache-Control: max-age=60\nAge: 50", "");
    let reuse =
        reuse::decide(&http::Method::GET, &HeaderMap::new(), &head, RECEIVED.plus_secs(159), &Settings::default());
    let Reuse::Fresh { age, .. } = reuse else { panic!("{reuse:?}") };
    assert_eq!(age.age_secs, 59);
    assert_eq!(value(&head.fields().to_map(), "date"), Some(date(100)));
}

#[test]
fn age_of_a_304_counts() {
    let head = freshened("ETag: \"a\"\nCache-Control: max-age=60", &format!("Age: 70\nDate: {}", date(100)));
    let now = RECEIVED.plus_secs(100);
    let reuse = reuse::decide(&http::Method::GET, &HeaderMap::new(), &head, now, &Settings::default());
    assert!(matches!(reuse, Reuse::Stale { .. }), "{reuse:?}");
    assert!(!head.fields().to_map().contains_key("age"));
}

#[test]
fn selecting_fields_survive_the_update() {
    let response = Response::new("ETag: \"a\"\nVary: Foo").answering("Foo: 1");
    let head = freshened_for(&response, "Foo: 1", "X-A: 1");
    assert_eq!(head.selecting(), response.head().selecting());
    let narrower = freshened_for(&response, "Foo: 1", "Vary: ");
    assert_eq!(narrower.selecting(), response.head().selecting(), "what it was stored by holds");
}

/// Guards against a page made for one client that is served to all (RFC 9111 4.1, 4.3.4).
#[test]
fn vary_that_an_update_brings_selects_from_then_on() {
    let settings = Settings::default();
    let stored = Response::new("ETag: \"a\"\nVary: Foo").answering("Foo: 1\nCookie: alice");
    let head = freshened_for(&stored, "Foo: 1\nCookie: alice", "Vary: Foo, Cookie");
    assert!(head.matches(&fields("Foo: 1\nCookie: alice"), &settings));
    for other in ["Foo: 1\nCookie: bob", "Foo: 1", "Foo: 2\nCookie: alice", "Cookie: alice"] {
        assert!(!head.matches(&fields(other), &settings), "{other}");
    }
    let dropped = freshened_for(&stored, "Foo: 1\nCookie: alice", "Vary: Cookie");
    assert!(!dropped.matches(&fields("Foo: 2\nCookie: alice"), &settings), "what it was stored by still counts");
    let star = freshened_for(&stored, "Foo: 1", "Vary: *\nCache-Control: max-age=60");
    let refused = Storability::Refuse { reason: Reason::VaryStar };
    assert_eq!(storable::decide_updated(&fields("Foo: 1"), &star, &settings), refused);
}

#[test]
fn vary_that_is_new_needs_an_entity_tag_to_speak_of_the_stored_response() {
    let modified = format!("Last-Modified: {}", date(-DAY_SECS));
    let by_date = Response::new(&format!("{modified}\nVary: Foo")).head();
    assert!(selects(&fields(&format!("{modified}\nVary: foo")), &by_date));
    for vary in ["Vary: Foo, Cookie", "Vary: *"] {
        assert!(!selects(&fields(&format!("{modified}\n{vary}")), &by_date), "{vary}");
        assert!(selects(&fields(vary), &Response::new("ETag: \"a\"").head()), "{vary}");
        assert_eq!(by_head(&modified, 200, &format!("{modified}\n{vary}")), HeadVerdict::Changed, "{vary}");
        assert_eq!(by_head("ETag: \"a\"", 200, vary), HeadVerdict::Changed, "{vary}");
    }
    assert!(matches!(by_head("ETag: \"a\"", 200, "ETag: \"a\"\nVary: Cookie"), HeadVerdict::Holds(_)));
}

#[test]
fn cookie_that_a_304_sets_is_not_stored_for_others_unless_it_is_for_all() {
    let head = freshened("ETag: \"a\"\nCache-Control: max-age=1", "Set-Cookie: a=b");
    assert_eq!(value(&head.fields().to_map(), "set-cookie"), None);
    assert_eq!(value(&first_askers_own(&fields("Set-Cookie: a=b"), &head), "set-cookie").as_deref(), Some("a=b"));
    let head = freshened("ETag: \"a\"\nCache-Control: max-age=1, public", "Set-Cookie: a=b");
    assert_eq!(value(&head.fields().to_map(), "set-cookie").as_deref(), Some("a=b"));
    assert!(first_askers_own(&fields("Set-Cookie: a=b"), &head).is_empty());
}

#[test]
fn update_that_forbids_storing_is_noticed() {
    let settings = Settings::default();
    let request = HeaderMap::new();
    let kept = freshened("ETag: \"a\"", "Cache-Control: max-age=60");
    assert!(matches!(storable::decide_updated(&request, &kept, &settings), Storability::Store { .. }));
    for (directive, reason) in [("no-store", Reason::NoStore), ("private", Reason::Private)] {
        let head = freshened("ETag: \"a\"", &format!("Cache-Control: {directive}"));
        assert_eq!(storable::decide_updated(&request, &head, &settings), Storability::Refuse { reason });
    }
}

fn by_head(stored: &str, status: u16, answer: &str) -> HeadVerdict {
    let status = StatusCode::from_u16(status).expect("a test's status is a status");
    let request = HeaderMap::new();
    let answer = fields(answer);
    judge_head(&Response::new(stored).head(), &later_answer(&request, status, &answer), &Settings::default())
}

#[test]
fn answer_to_head_with_matching_fields_refreshes_the_stored_get() {
    let stored = "ETag: \"a\"\nX-Old: 1\nX-Same: 1\nCache-Control: max-age=1";
    let HeadVerdict::Holds(head) =
        by_head(stored, 200, "ETag: \"a\"\nX-Same: 2\nContent-Length: 100\nCache-Control: max-age=60")
    else {
        panic!("the validators match");
    };
    assert_eq!(
        (value(&head.fields().to_map(), "x-old").as_deref(), value(&head.fields().to_map(), "x-same").as_deref()),
        (Some("1"), Some("2"))
    );
    assert_eq!(head.fresh_until(&Settings::default()), RECEIVED.plus_secs(160));
    assert!(matches!(by_head("ETag: \"a\"", 200, ""), HeadVerdict::Holds(_)));
}

#[test]
fn answer_to_head_that_differs_shows_that_the_stored_get_is_out_of_date() {
    let modified = format!("Last-Modified: {}", date(-DAY_SECS));
    let newer = format!("Last-Modified: {}", date(-9));
    for (stored, answer) in [
        ("ETag: \"a\"", "ETag: \"b\""),
        ("ETag: \"a\"", "ETag: W/\"a\""),
        ("", "ETag: \"a\""),
        (modified.as_str(), newer.as_str()),
        ("ETag: \"a\"", "ETag: \"a\"\nContent-Length: 99"),
        ("ETag: \"a\"", "ETag: \"a\"\nContent-Length: x"),
    ] {
        assert_eq!(by_head(stored, 200, answer), HeadVerdict::Changed, "{stored} {answer}");
    }
}

#[test]
fn answer_to_head_other_than_200_says_nothing() {
    for status in [204, 304, 404, 410, 500, 503] {
        assert_eq!(by_head("ETag: \"a\"", status, "ETag: \"a\""), HeadVerdict::Silent, "{status}");
    }
}

#[test]
fn warnings_about_freshness_do_not_outlive_validation() {
    let head = freshened("ETag: \"a\"\nWarning: 110 - \"stale\"\nWarning: 214 - \"changed\"", "X-A: 1");
    assert_eq!(value(&head.fields().to_map(), "warning").as_deref(), Some("214 - \"changed\""));
    let head = freshened("ETag: \"a\"\nWarning: 110 - \"stale\"", "Warning: 299 - \"new\"");
    assert_eq!(value(&head.fields().to_map(), "warning").as_deref(), Some("299 - \"new\""));
}

#[test]
fn targeted_field_of_a_304_gives_the_new_lifetime() {
    let head =
        freshened("ETag: \"a\"\nCache-Control: max-age=1", "CDN-Cache-Control: max-age=60\nCache-Control: no-store");
    assert_eq!(head.fresh_until(&Settings::default()), RECEIVED.plus_secs(160));
    assert!(matches!(
        storable::decide_updated(&HeaderMap::new(), &head, &Settings::default()),
        Storability::Store { .. }
    ));
}
