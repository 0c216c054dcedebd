//! Downloads that the origin breaks off continue within the same response, if the origin can confirm that the remainder
//! belongs to it.

use crate::support::{Fixture, Received, Reply, body, eventually, http2::Http2, request_text};

const LEN: usize = 3 << 20;
const TAGGED: &[&str] = &["Cache-Control: max-age=600", "ETag: \"v1\""];

/// Returns a reply that ends after `sent` bytes of a body of `len` bytes.
fn broken(fields: &[&str], len: usize, sent: usize) -> Reply {
    Reply::head("200 OK", &[fields, &[&*format!("Content-Length: {len}")]].concat()).send(&body(len)[..sent]).close()
}

/// Returns the requested part, of which at most `sent_max` bytes are sent.
fn part(received: &Received, fields: &[&str], len: usize, sent_max: usize) -> Reply {
    let range = received.field("range").expect("a part is asked for");
    let first: usize = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')).unwrap().parse().unwrap();
    assert_eq!(received.field("if-range"), Some("\"v1\""));
    let named = format!("Content-Range: bytes {first}-{}/{len}", len - 1);
    let length = format!("Content-Length: {}", len - first);
    let rest = &body(len)[first..];
    let reply = Reply::head("206 Partial Content", &[fields, &[&*named, &*length]].concat());
    let reply = reply.send(&rest[..sent_max.min(rest.len())]);
    if sent_max < rest.len() { reply.close() } else { reply }
}

fn ranges(fixture: &Fixture) -> Vec<String> {
    let received = fixture.origin.received();
    received.iter().map(|received| received.field("range").unwrap_or("all").to_owned()).collect()
}

#[test]
fn download_that_breaks_off_goes_on_where_it_broke() {
    for (len, sent) in [(LEN, 1_300_000), (5000, 1234), (5000, 0)] {
        let fixture = Fixture::new(move |received, number| match number {
            0 => broken(TAGGED, len, sent),
            _ => part(received, TAGGED, len, usize::MAX),
        });
        let response = fixture.get("/", &[]);
        assert!(response.complete && response.body == body(len), "{len} {sent}");
        assert_eq!(response.status, 200);
        assert_eq!(ranges(&fixture), ["all".to_owned(), format!("bytes={sent}-")]);
        let hit = fixture.get_hit("/", &[]);
        assert!(hit.body == body(len), "what is stored is whole");
        assert_eq!(fixture.origin.count(), 2);
    }
}

#[test]
fn download_goes_on_as_often_as_it_breaks_off_further_on() {
    let fixture = Fixture::new(|received, number| match number {
        0 => broken(TAGGED, LEN, 100_000),
        _ => part(received, TAGGED, LEN, 1 << 20),
    });
    let response = fixture.get("/", &[]);
    assert!(response.complete && response.body == body(LEN));
    assert_eq!(fixture.origin.count(), 4);
}

#[test]
fn all_who_read_it_get_the_rest_over_http2_too() {
    let gate = crate::support::Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, number| match number {
        0 => {
            let head = Reply::head("200 OK", &[TAGGED, &[&*format!("Content-Length: {LEN}")]].concat());
            head.send(&body(LEN)[..1000]).wait(&held).close()
        }
        _ => part(received, TAGGED, LEN, usize::MAX),
    });
    let mut first = fixture.connect();
    first.send(request_text("GET", "/", &[]));
    assert_eq!(first.read_head().status, 200);
    let mut http2 = Http2::plain(fixture.proxy.local_addrs()[0]);
    let opening = std::thread::spawn(move || gate.open());
    let second = http2.get("http://site.example/", &[]);
    opening.join().unwrap();
    assert!(second.complete && second.body == body(LEN));
    assert!(first.read_exact(LEN) == body(LEN));
    assert_eq!(fixture.origin.count(), 2, "one request for the rest");
}

#[test]
fn origin_without_ranges_sends_all_again_and_the_client_gets_the_rest() {
    let fixture = Fixture::new(|_, number| match number {
        0 => broken(TAGGED, LEN, 1_300_000),
        _ => Reply::ok(TAGGED, body(LEN)),
    });
    let response = fixture.get("/", &[]);
    assert!(response.complete && response.body == body(LEN));
}

#[test]
fn another_representation_is_not_mixed_with_what_was_sent() {
    let other = &["Cache-Control: max-age=600", "ETag: \"v2\""];
    let fixture = Fixture::new(move |_, number| match number {
        0 => broken(TAGGED, LEN, 1_300_000),
        _ => Reply::ok(other, "another"),
    });
    let response = fixture.get("/", &[]);
    assert!(!response.complete && response.body == body(LEN)[..response.body.len()]);
    // Where an origin's servers disagree, the next request may reach another server.
    assert!(fixture.origin.count() <= 4, "{}", fixture.origin.count());
    assert_eq!(fixture.get("/", &[]).text(), "another", "nothing is left of the first");
}

#[test]
fn body_without_a_strong_validator_breaks_off_as_before() {
    for fields in [&["Cache-Control: max-age=600"][..], &["Cache-Control: max-age=600", "ETag: W/\"v1\""]] {
        let fixture = Fixture::new(move |_, _| broken(fields, LEN, 1000));
        assert!(!fixture.get("/", &[]).complete);
        assert_eq!(fixture.origin.count(), 1);
    }
}

#[test]
fn origin_that_is_not_there_for_a_moment_is_asked_again() {
    for is_silent in [false, true] {
        let fixture = Fixture::new(move |received, number| match number {
            0 => broken(TAGGED, LEN, 1000),
            1 if is_silent => Reply::default().close(),
            1 => Reply::status("503 Service Unavailable", &[], "later"),
            _ => part(received, TAGGED, LEN, usize::MAX),
        });
        let response = fixture.get("/", &[]);
        assert!(response.complete && response.body == body(LEN), "{is_silent}");
        assert!(fixture.origin.count() >= 3);
    }
}

#[test]
fn origin_that_breaks_off_each_time_is_asked_twice_more() {
    let fixture = Fixture::new(|received, number| match number {
        0 => broken(TAGGED, LEN, 1000),
        _ => part(received, TAGGED, LEN, 0),
    });
    assert!(!fixture.get("/", &[]).complete);
    assert_eq!(ranges(&fixture), ["all", "bytes=1000-", "bytes=1000-"]);
}

#[test]
fn nobody_is_asked_for_what_nobody_waits_for() {
    let fixture = Fixture::new(|_, number| match number {
        0 => broken(TAGGED, 64 << 20, 1 << 20),
        _ => Reply::status("503 Service Unavailable", &[], "later"),
    });
    let mut leaving = fixture.connect();
    leaving.send(request_text("GET", "/", &[]));
    assert_eq!(leaving.read_head().status, 200);
    leaving.read_exact(1 << 20);
    eventually("it is asked again", || fixture.origin.count() > 1);
    drop(leaving);
    eventually("it is given up", || fixture.proxy.stats().aborted_responses == 1);
    let count = fixture.origin.count();
    // Meanwhile another request is answered: the abandoned fetch delays no other.
    assert_eq!(fixture.get("/other", &[]).status, 503);
    assert!(fixture.origin.count() <= count + 2);
}
