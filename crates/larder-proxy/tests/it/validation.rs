//! Conditional requests both ways, and stale responses (RFC 9111 4.2.4, 4.3).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{Ailment, Fixture, Gate, Received, Reply, Response, eventually};

/// Makes a response stale on arrival.
const STALE: &str = "Age: 100";

#[test]
fn client_conditions_are_answered_from_the_cache() {
    let fixture = Fixture::new(|_, _| {
        Reply::ok(
            &["Cache-Control: max-age=60", "ETag: \"v1\"", "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"],
            "hello",
        )
    });
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    let mut connection = fixture.connect();
    let same = connection.request("GET", "/", &["If-None-Match: \"v0\", W/\"v1\""]);
    assert_eq!((same.status, same.field("etag")), (304, Some("\"v1\"")));
    let other = connection.request("GET", "/", &["If-None-Match: \"v2\""]);
    assert_eq!((other.status, other.text().as_str()), (200, "hello"));
    let since = connection.request("GET", "/", &["If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT"]);
    assert_eq!(since.status, 304);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn condition_on_a_miss_reaches_the_origin_and_a_whole_answer_is_stored() {
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: max-age=60", "ETag: \"v1\""], "hello"));
    assert_eq!(fixture.get("/", &["If-None-Match: \"v1\""]).status, 304);
    assert_eq!(fixture.origin.received()[0].field("if-none-match"), Some("\"v1\""));
    assert_eq!(fixture.get_hit("/", &[]).text(), "hello");
}

#[test]
fn stale_response_is_confirmed_and_takes_the_new_fields() {
    let fixture = Fixture::new(|received, number| match received.field("if-none-match") {
        Some("\"v1\"") => Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "X-New: yes"], ""),
        _ => {
            assert_eq!(number, 0);
            Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\"", "X-Old: yes"], "hello")
        }
    });
    fixture.get("/", &[]);
    let confirmed = fixture.get("/", &[]);
    assert_eq!((confirmed.status, confirmed.text().as_str()), (200, "hello"));
    assert_eq!((confirmed.field("x-new"), confirmed.field("x-old")), (Some("yes"), Some("yes")));
    assert!(confirmed.cache_status().contains("fwd-status=304"), "{confirmed:?}");
    let hit = fixture.get_hit("/", &[]);
    assert_eq!((hit.field("x-new"), hit.text().as_str()), (Some("yes"), "hello"));
    assert_eq!(fixture.origin.count(), 2);
    let fixture = fixture.restart();
    let hit = fixture.get("/", &[]);
    assert!(hit.is_hit(), "the new head is in the store: {hit:?}");
    assert_eq!(hit.field("x-new"), Some("yes"));
}

#[test]
fn stale_response_is_replaced_by_a_new_one() {
    let fixture = Fixture::new(|_, number| {
        let tag = format!("ETag: \"v{number}\"");
        let age = if number == 0 { STALE } else { "Age: 0" };
        Reply::ok(&["Cache-Control: max-age=10", age, &tag], number.to_string())
    });
    assert_eq!(fixture.get("/", &[]).text(), "0");
    let replaced = fixture.get("/", &[]);
    assert_eq!(replaced.text(), "1");
    assert_eq!(fixture.origin.received()[1].field("if-none-match"), Some("\"v0\""));
    assert_eq!(fixture.get_hit("/", &[]).text(), "1");
}

#[test]
fn confirmation_of_something_else_leads_to_a_whole_fetch() {
    let fixture = Fixture::new(|received, number| match (number, received.field("if-none-match")) {
        (0, _) => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\""], "old"),
        (_, Some(_)) => Reply::status("304 Not Modified", &["ETag: \"v9\""], ""),
        (_, None) => Reply::ok(&["Cache-Control: max-age=60", "ETag: \"v9\""], "new"),
    });
    fixture.get("/", &[]);
    assert_eq!(fixture.get("/", &[]).text(), "new");
}

#[test]
fn stale_response_stands_in_when_the_origin_fails() {
    let fixture = Fixture::new(|received, number| match (received.target.as_str(), number) {
        (_, 0) => Reply::ok(&["Cache-Control: max-age=10", STALE, "ETag: \"v1\""], "kept"),
        (_, 1) => Reply::default().close(),
        _ => Reply::status("503 Service Unavailable", &[], "sorry"),
    });
    fixture.get("/", &[]);
    for _ in 0..2 {
        let stale = fixture.get("/", &[]);
        assert_eq!((stale.status, stale.text().as_str()), (200, "kept"));
        assert!(stale.field("age").unwrap().parse::<u64>().unwrap() >= 100);
    }
    assert!(fixture.origin.count() >= 3);
}

#[test]
fn stale_response_that_forbids_it_does_not_stand_in() {
    for directive in ["must-revalidate", "proxy-revalidate", "s-maxage=10", "no-cache"] {
        let control = format!("Cache-Control: max-age=10, {directive}");
        let fixture = Fixture::new(move |_, number| match number {
            0 => Reply::ok(&[&control, STALE, "ETag: \"v1\""], "kept"),
            _ => Reply::default().close(),
        });
        fixture.get("/", &[]);
        let failed = fixture.get("/", &[]);
        assert_eq!(failed.status, 502, "{directive}: {failed:?}");
        assert_eq!(failed.field("etag"), None);
    }
}

#[test]
fn origin_error_reaches_the_client_when_nothing_is_stored() {
    let fixture = Fixture::new(|_, _| Reply::status("503 Service Unavailable", &[], "sorry"));
    let response = fixture.get("/", &[]);
    assert_eq!((response.status, response.text().as_str()), (503, "sorry"));
}

#[test]
fn no_cache_is_validated_each_time() {
    let fixture = Fixture::new(|received, _| match received.field("if-none-match") {
        Some(_) => Reply::status("304 Not Modified", &["ETag: \"v1\""], ""),
        None => Reply::ok(&["Cache-Control: no-cache", "ETag: \"v1\""], "x"),
    });
    for count in 1..4 {
        assert_eq!(fixture.get("/", &[]).text(), "x");
        assert_eq!(fixture.origin.count(), count);
    }
    let conditional = fixture.origin.received().iter().filter(|one| one.field("if-none-match").is_some()).count();
    assert_eq!(conditional, 2);
}

#[test]
fn request_no_cache_validates_a_fresh_response() {
    let fixture = Fixture::new(|received, _| match received.field("if-none-match") {
        Some(_) => Reply::status("304 Not Modified", &["ETag: \"v1\"", "Cache-Control: max-age=60"], ""),
        None => Reply::ok(&["Cache-Control: max-age=60", "ETag: \"v1\""], "x"),
    });
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    let reloaded = fixture.get("/", &["Cache-Control: no-cache"]);
    assert_eq!((reloaded.status, reloaded.text().as_str()), (200, "x"));
    assert_eq!(fixture.origin.count(), 2);
}

/// Returns the responses to two requests after a client forced the validation of `/`, which the origin answered this
/// way: one while the origin works, and one while it fails.
fn after_validation(status: &'static str, lines: &'static [&'static str]) -> [Response; 2] {
    let fails = Arc::new(AtomicBool::new(false));
    let fail = Arc::clone(&fails);
    let fixture = Fixture::new(move |_, number| match number {
        _ if fail.load(SeqCst) => Reply::status("503 Service Unavailable", &[], "failing"),
        0 => Reply::ok(&["Cache-Control: max-age=600, stale-if-error=600", "ETag: \"a\""], "old"),
        _ => Reply::status(status, lines, "new"),
    });
    fixture.get("/", &[]);
    fixture.get_hit("/", &[]);
    fixture.get("/", &["Cache-Control: no-cache"]);
    let next = fixture.get("/", &[]);
    fails.store(true, SeqCst);
    [next, fixture.get("/", &[])]
}

#[test]
fn content_that_its_validation_found_to_be_gone_is_not_served_again() {
    for (status, lines) in [
        ("404 Not Found", &[][..]),
        ("410 Gone", &[]),
        ("404 Not Found", &["Cache-Control: no-store"]),
        ("200 OK", &["Cache-Control: no-store"]),
        ("200 OK", &["Cache-Control: private"]),
        ("200 OK", &["Vary: *"]),
    ] {
        for response in after_validation(status, lines) {
            assert_ne!(response.text(), "old", "{status} {lines:?}: {response:?}");
        }
    }
}

/// Clients that wait for the validation of one stored response, and as many that come later.
const ASKER_COUNT: usize = 120;

/// Responses that are for one client, each with the client's name. The first response is for all.
fn named(received: &Received, (age, control): (&str, &str), gate: &Gate) -> Reply {
    let Some(user) = received.field("x-user") else {
        return Reply::ok(&["Cache-Control: max-age=60", age, "ETag: \"v\"", "X-For: all"], "page");
    };
    let fields = [&*format!("Cache-Control: {control}"), "ETag: \"v\"", &*format!("X-For: {user}")];
    match received.field("if-none-match") {
        Some(_) => Reply::status("304 Not Modified", &fields, "").after(gate),
        None => Reply::ok(&fields, "page"),
    }
}

/// Sends requests that wait for one validation, and others once the first has its response. Each must get its own.
fn ask_as_many(fixture: &Fixture, gate: &Gate, fields: &[&str], between: impl FnOnce()) {
    let ask = |number: usize| {
        let user = format!("X-User: {number}");
        let found = fixture.get("/", &[&[&*user], fields].concat());
        assert_eq!((found.status, found.text().as_str()), (200, "page"));
        assert_eq!(found.field("x-for"), Some(number.to_string().as_str()));
    };
    std::thread::scope(|scope| {
        let begin = |number: usize| scope.spawn(move || ask(number));
        let waiting: Vec<_> = (0..ASKER_COUNT).map(begin).collect();
        eventually("nearly all wait", || fixture.proxy.stats().collapsed_requests >= ASKER_COUNT as u64 - 2);
        between();
        gate.open();
        let later: Vec<_> = (ASKER_COUNT..2 * ASKER_COUNT).map(begin).collect();
        waiting.into_iter().chain(later).for_each(|asker| asker.join().unwrap());
    });
}

#[test]
fn what_a_304_says_to_one_client_it_says_to_no_other() {
    for control in ["private", "no-store", "private, max-age=600"] {
        let gate = Gate::default();
        let held = gate.clone();
        let fixture = Fixture::new(move |received, _| named(received, (STALE, control), &held));
        fixture.get("/", &[]);
        eventually("it is stored", || fixture.store.as_ref().unwrap().stats().entries > 0);
        // A proxy that knows that responses to this request are stale on arrival lets nobody wait.
        let fixture = fixture.restart();
        ask_as_many(&fixture, &gate, &[], || {});
    }
}

#[test]
fn what_a_304_says_to_one_client_it_says_to_no_other_while_the_disk_is_slow() {
    let gate = Gate::default();
    let held = gate.clone();
    let (fixture, device) = Fixture::ailing(move |received, _| named(received, ("Age: 0", "private"), &held), |_| {});
    fixture.get("/", &[]);
    // The removal of what the 304 forbids to keep takes a while.
    ask_as_many(&fixture, &gate, &["Cache-Control: no-cache"], || device.slow_down(Duration::from_millis(20)));
    device.set(Ailment::Nothing);
}
