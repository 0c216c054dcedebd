//! Bodies longer than one entry: fetched once, read at different speeds, served again, repaired.

use larder_cache::chunk_format::chunk_key;
use larder_http::{BodyPlace, Head, TargetList};

use crate::support::{Fixture, Gate, Received, Reply, body, eventually};

const LEN: usize = 20 << 20;
const FIELDS: &[&str] = &["Cache-Control: max-age=600", "ETag: \"v1\"", "Accept-Ranges: bytes"];

/// Answers ranges too, as an origin does.
fn long(received: &Received, len: usize) -> Reply {
    let body = body(len);
    let Some(range) = received.field("range").and_then(|range| range.strip_prefix("bytes=")) else {
        return Reply::ok(FIELDS, body);
    };
    let (first, last) = range.split_once('-').unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap_or(len - 1));
    let content_range = format!("Content-Range: bytes {first}-{last}/{len}");
    let mut fields = FIELDS.to_vec();
    fields.push(&content_range);
    Reply::status("206 Partial Content", &fields, &body[first..=last])
}

#[test]
fn four_readers_of_different_speed_share_one_fetch() {
    let fixture = Fixture::new(|received, _| long(received, LEN));
    let expected = body(LEN);
    std::thread::scope(|scope| {
        for step in [1 << 20, 64 << 10, 8 << 10, 3 << 20] {
            let fixture = &fixture;
            let expected = &expected;
            scope.spawn(move || {
                let mut connection = fixture.connect();
                connection.send("GET /long HTTP/1.1\r\nHost: site.example\r\n\r\n");
                let head = connection.read_head();
                assert_eq!(head.field("content-length"), Some(LEN.to_string().as_str()));
                let mut at = 0;
                while at < LEN {
                    let count = step.min(LEN - at);
                    assert!(connection.read_exact(count) == expected[at..at + count], "wrong bytes near {at}");
                    at += count;
                }
            });
        }
    });
    assert_eq!(fixture.origin.count(), 1);
    let hit = fixture.get_hit("/long", &[]);
    assert!(hit.complete && hit.body == expected);
    let fixture = fixture.restart();
    let hit = fixture.get("/long", &[]);
    assert!(hit.is_hit() && hit.complete && hit.body == expected);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn body_of_unknown_length_is_stored_in_chunks_too() {
    let len = (3 << 20) + 12_345;
    let fixture = Fixture::new(move |_, _| {
        Reply::head("200 OK", &["Cache-Control: max-age=600", "Connection: close"]).send(body(len)).close()
    });
    let first = fixture.get("/", &[]);
    assert!(first.complete && first.body == body(len));
    let hit = fixture.get_hit("/", &[]);
    assert!(hit.complete && hit.body == body(len));
    assert_eq!(hit.field("content-length"), Some(len.to_string().as_str()));
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn first_reader_that_does_not_read_stalls_nobody() {
    let fixture = Fixture::new(|received, _| long(received, LEN));
    let mut stalled = fixture.connect();
    stalled.send("GET /long HTTP/1.1\r\nHost: site.example\r\n\r\n");
    assert_eq!(stalled.read_head().status, 200);
    let other = fixture.get("/long", &[]);
    assert!(other.complete && other.body == body(LEN));
    assert_eq!(fixture.origin.count(), 1);
    // It still receives all bytes once it reads.
    assert!(stalled.read_exact(LEN) == body(LEN));
}

#[test]
fn ranges_over_chunk_boundaries_are_cut_right() {
    let fixture = Fixture::new(|received, _| long(received, 5 << 20));
    let expected = body(5 << 20);
    fixture.get("/long", &[]);
    fixture.get_hit("/long", &["Range: bytes=0-0"]);
    let mut connection = fixture.connect();
    for (first, last) in [(0, 0), ((1 << 20) - 1, 1 << 20), (1 << 20, (3 << 20) + 7), ((5 << 20) - 5, (5 << 20) - 1)] {
        let part = connection.request("GET", "/long", &[&format!("Range: bytes={first}-{last}")]);
        assert_eq!(part.status, 206);
        assert!(part.body == expected[first..=last], "{first}-{last}");
    }
    assert_eq!(fixture.origin.count(), 1);
}

/// Takes one chunk of the only long entry out of the store.
fn lose_chunk(fixture: &Fixture, number: u64) {
    let store = fixture.store.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let primary = fixture.key("/long");
        let entry = store.get(&primary).await.unwrap().expect("the entry is stored");
        let Head::Response(head) = Head::decode(entry.head(), &TargetList::default()).unwrap() else {
            panic!("no response")
        };
        let BodyPlace::Chunks { representation, .. } = head.body() else { panic!("not in chunks") };
        store.remove(&chunk_key(&primary, representation, number)).await.unwrap();
    });
}

#[test]
fn missing_chunk_is_fetched_again_and_kept() {
    let fixture = Fixture::with(|received, _| long(received, 5 << 20), |config| config.hot_bytes = 0);
    fixture.get("/long", &[]);
    fixture.get_hit("/long", &["Range: bytes=0-0"]);
    lose_chunk(&fixture, 2);
    for _ in 0..2 {
        let whole = fixture.get("/long", &[]);
        assert!(whole.complete && whole.body == body(5 << 20));
    }
    let received = fixture.origin.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].field("range"), Some("bytes=2097152-3145727"));
    assert_eq!(received[1].field("if-range"), Some("\"v1\""));
}

#[test]
fn missing_chunk_that_cannot_be_asked_for_makes_a_miss() {
    let fixture =
        Fixture::with(|_, _| Reply::ok(&["Cache-Control: max-age=600"], body(5 << 20)), |config| config.hot_bytes = 0);
    fixture.get("/long", &[]);
    fixture.get_hit("/long", &["Range: bytes=0-0"]);
    lose_chunk(&fixture, 2);
    let whole = fixture.get("/long", &[]);
    assert!(whole.complete && whole.body == body(5 << 20));
    assert_eq!(fixture.origin.count(), 2);
    let hit = fixture.get_hit("/long", &[]);
    assert!(hit.complete && hit.body == body(5 << 20));
}

#[test]
fn truncated_long_fetch_is_never_served_as_whole() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::head("200 OK", &["Cache-Control: max-age=600", "Content-Length: 5242880"])
            .send(body(3 << 20))
            .close(),
        _ => Reply::ok(&["Cache-Control: max-age=600"], "whole"),
    });
    assert!(!fixture.get("/long", &[]).complete);
    assert_eq!(fixture.get("/long", &[]).text(), "whole");
}

#[test]
fn body_longer_than_may_be_stored_is_passed_through() {
    let fixture =
        Fixture::with(|received, _| long(received, 3 << 20), |config| config.policy.cache.entry_bytes_max = 2 << 20);
    for count in 1..3 {
        let whole = fixture.get("/long", &[]);
        assert!(whole.complete && whole.body == body(3 << 20));
        assert_eq!(fixture.origin.count(), count);
    }
}

#[test]
fn long_body_without_a_store_is_shared_while_it_arrives() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::without_store(move |_, _| {
        let body = body(12 << 20);
        Reply::head("200 OK", &["Cache-Control: max-age=600", "Content-Length: 12582912"]).wait(&held).send(body)
    });
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| fixture.get("/", &[]))).collect();
        eventually("they share", || fixture.proxy.stats().collapsed_requests == 2);
        gate.open();
        for reader in readers {
            let response = reader.join().unwrap();
            assert!(response.complete && response.body == body(12 << 20));
        }
    });
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn store_that_fails_midway_changes_nothing_for_the_readers() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        let body = body(12 << 20);
        Reply::head("200 OK", &["Cache-Control: max-age=600", "Content-Length: 12582912"])
            .send(&body[..3 << 20])
            .wait(&held)
            .send(&body[3 << 20..])
    });
    let mut readers: Vec<_> = (0..2).map(|_| fixture.connect()).collect();
    for reader in &mut readers {
        reader.send("GET /long HTTP/1.1\r\nHost: site.example\r\n\r\n");
        assert_eq!(reader.read_head().status, 200);
        assert!(reader.read_exact(3 << 20) == body(3 << 20));
    }
    let store = fixture.store.clone().unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.close()).unwrap();
    gate.open();
    std::thread::scope(|scope| {
        for mut reader in readers {
            scope.spawn(move || assert!(reader.read_exact(9 << 20) == body(12 << 20)[3 << 20..]));
        }
    });
    assert_eq!(fixture.origin.count(), 1);
}
