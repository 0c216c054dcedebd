//! A store whose device is full, read-only, failing or unresponsive, or whose engine fails: clients receive the origin's response without a
//! long wait.

use crate::support::{Ailment, Connection, Fixture, Received, Reply, eventually};

const AILMENTS: [Ailment; 5] = [Ailment::Full, Ailment::ReadOnly, Ailment::Unreadable, Ailment::Dead, Ailment::Hung];

#[test]
fn device_that_fails_in_any_way_never_fails_a_request() {
    for ailment in AILMENTS {
        let (fixture, device) = Fixture::ailing(answer, |_| {});
        let _recovering = device.recovering();
        for target in ["/short/stored", "/long/stored", "/varies/stored", "/stale/stored"] {
            check(&fixture, target, "");
            settle(&fixture);
        }
        device.set(ailment);
        for round in 0..3 {
            for target in ["/short/stored", "/long/stored", "/varies/stored", "/stale/stored"] {
                check(&fixture, target, "");
            }
            for kind in ["short", "long", "varies", "stale", "private"] {
                let target = format!("/{kind}/{round}");
                check(&fixture, &target, "");
                check(&fixture, &target, "");
            }
            check(&fixture, "/long/stored", "Range: bytes=1500000-1500009");
            check(&fixture, &format!("/long/ranged{round}"), "Range: bytes=0-9");
            let posted = fixture.connect().request("POST", "/short/stored", &["Content-Length: 0"]);
            assert_eq!(posted.status, 200, "{ailment:?}");
        }
    }
}

#[test]
fn what_a_failing_store_does_not_take_is_served_from_memory() {
    let (fixture, device) = Fixture::ailing(answer, |config| config.hot_bytes = 8 << 20);
    let _recovering = device.recovering();
    device.set(Ailment::Hung);
    // More bytes than may be dirty, so that the store has to refuse some. Each is requested once, so none is in memory
    // because it was read.
    for number in 0..100 {
        check(&fixture, &format!("/middle/{number}"), "");
    }
    eventually("a response is in memory", || fixture.proxy.stats().memory_cache_entries > 0);
    let closed = Fixture::new(answer);
    let store = closed.store.clone().unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(store.close()).unwrap();
    check(&closed, "/short/1", "");
    eventually("the response is in memory", || closed.proxy.stats().memory_cache_entries == 1);
    check(&closed, "/short/1", "");
    assert_eq!(closed.origin.count(), 1);
}

/// Guards against the loss of every connection and of the stored responses because of a bug in the engine.
#[test]
fn failed_assertion_of_the_engine_costs_one_volume_a_moment_and_no_request() {
    const TARGET_COUNT: usize = 40;
    let (fixture, device) = Fixture::panicking(answer);
    let store = fixture.store.as_ref().unwrap();
    let asked_for_all = || {
        let before = fixture.origin.count();
        (0..TARGET_COUNT).for_each(|number| check(&fixture, &format!("/short/{number}"), ""));
        fixture.origin.count() - before
    };
    assert_eq!(asked_for_all(), TARGET_COUNT);
    settle(&fixture);
    assert_eq!(asked_for_all(), 0, "all of them are stored");
    device.panic_after(3);
    eventually("an assertion fails", || {
        asked_for_all();
        device.has_panicked()
    });
    for number in 0..20 {
        for kind in ["short", "long", "varies", "stale", "private"] {
            check(&fixture, &format!("/{kind}/new{number}"), "");
        }
    }
    eventually("the volume is back", || store.stats().volumes_out == 0);
    assert_eq!(store.stats().failed_assertions, 1);
    asked_for_all();
    settle(&fixture);
    assert_eq!(asked_for_all(), 0, "all of them are stored");
}

#[test]
fn store_that_does_not_answer_holds_nobody_up() {
    let (fixture, device) = Fixture::ailing(answer, |config| config.worker_count = 1);
    let _recovering = device.recovering();
    let mut connections: Vec<Connection> = (0..20).map(|_| fixture.connect()).collect();
    for number in 0..20 {
        check(&fixture, &format!("/short/{number}"), "");
    }
    settle(&fixture);
    device.set(Ailment::Hung);
    // All at once. None may wait for the store longer than its limit.
    for (number, connection) in connections.iter_mut().enumerate() {
        connection.send(format!("GET /short/{number} HTTP/1.1\r\nHost: site.example\r\n\r\n"));
    }
    for (number, connection) in connections.iter_mut().enumerate() {
        assert_eq!(connection.read_response("GET").body, body(&format!("/short/{number}")));
    }
    let stats = fixture.proxy.stats();
    assert!(stats.store_timeouts > 0);
    // While the store is paused, it receives no operations.
    let waiting = device.waiting_count();
    for number in 0..20 {
        check(&fixture, &format!("/short/{number}"), "");
    }
    assert!(fixture.proxy.stats().store_bypassed > stats.store_bypassed);
    assert!(device.waiting_count() <= waiting + 5, "{} after {waiting}", device.waiting_count());
}

#[test]
fn store_that_answers_again_is_used_again() {
    let (fixture, device) = Fixture::ailing(answer, |_| {});
    let _recovering = device.recovering();
    check(&fixture, "/short/stored", "");
    settle(&fixture);
    device.set(Ailment::Hung);
    eventually("it is left alone", || {
        check(&fixture, "/short/stored", "");
        fixture.proxy.stats().store_bypassed > 0
    });
    device.set(Ailment::Nothing);
    eventually("hits come from the store again", || {
        let asked = fixture.origin.count();
        check(&fixture, "/short/new", "");
        check(&fixture, "/short/new", "");
        fixture.origin.count() == asked
    });
}

#[test]
fn what_a_failing_store_could_not_replace_is_not_served_later() {
    for ailment in [Ailment::Full, Ailment::Dead, Ailment::Hung] {
        let numbered =
            |_: &Received, number: usize| Reply::ok(&["Cache-Control: max-age=60"], format!("{number:>60000}"));
        let (fixture, device) = Fixture::ailing(numbered, |_| {});
        let _recovering = device.recovering();
        fixture.get("/", &[]);
        settle(&fixture);
        device.set(ailment);
        for number in 0..100 {
            fixture.get(&format!("/{number}"), &[]);
        }
        let reloaded = fixture.get("/", &["Cache-Control: no-cache"]).text();
        device.set(Ailment::Nothing);
        let later = fixture.get("/", &[]).text();
        let number = |text: &str| text.trim().parse::<usize>().unwrap();
        assert!(number(&later) >= number(&reloaded), "{ailment:?}: {} after {}", number(&later), number(&reloaded));
    }
}

#[test]
fn invalidation_counts_although_the_store_does_not_answer() {
    let (fixture, device) = Fixture::ailing(answer, |_| {});
    let _recovering = device.recovering();
    check(&fixture, "/short/stored", "");
    settle(&fixture);
    let asked = fixture.origin.count();
    check(&fixture, "/short/stored", "");
    assert_eq!(fixture.origin.count(), asked, "it is stored");
    device.set(Ailment::Hung);
    eventually("it is left alone", || {
        check(&fixture, "/short/stored", "");
        fixture.proxy.stats().store_bypassed > 0
    });
    assert_eq!(fixture.connect().request("POST", "/short/stored", &["Content-Length: 0"]).status, 200);
    device.set(Ailment::Nothing);
    eventually("the store is used again", || {
        let asked = fixture.origin.count();
        check(&fixture, "/short/new", "");
        check(&fixture, "/short/new", "");
        fixture.origin.count() == asked
    });
    let asked = fixture.origin.count();
    check(&fixture, "/short/stored", "");
    assert_eq!(fixture.origin.count(), asked + 1);
}

/// Guards against an operator who is told that a response is purged, while the next start serves it again.
#[test]
fn purge_that_cannot_be_written_is_refused_and_what_it_is_about_is_not_served() {
    for ailment in [Ailment::Full, Ailment::ReadOnly, Ailment::Dead, Ailment::Hung] {
        let (fixture, device) = Fixture::ailing(answer, |config| config.admin = Some("127.0.0.1:0".parse().unwrap()));
        let _recovering = device.recovering();
        let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
        let targets = ["/short/purged", "/short/posted", "/short/gone"];
        for target in targets {
            check(&fixture, target, "");
        }
        // A purge of a response that is not stored yet has nothing to write, and succeeds.
        eventually("they are stored", || fixture.store.as_ref().unwrap().stats().entries >= targets.len() as u64);
        settle(&fixture);
        device.set(ailment);
        let purged = admin.request("PURGE", "http://site.example/short/purged", &[]);
        assert_eq!(purged.status, 503, "{ailment:?}: {}", purged.text());
        assert!(purged.text().starts_with("not purged permanently: "), "{}", purged.text());
        let posted = fixture.connect().request("POST", "/short/posted", &["Content-Length: 0"]);
        assert_eq!(posted.status, 200, "{ailment:?}");
        // Its record is a file beside the store, which can be written. With so short a limit it may still be refused.
        let all = admin.request("PURGE", "http://site.example/", &["Purge-Scope: all"]);
        assert!(matches!(all.status, 200 | 503), "{ailment:?}: {}", all.text());
        for target in targets {
            let asked = fixture.origin.count();
            check(&fixture, target, "");
            assert!(fixture.origin.count() > asked, "{ailment:?}: {target} is served from the store");
        }
        device.set(Ailment::Nothing);
        eventually("what was removed is written", || fixture.store.as_ref().unwrap().stats().removals_waiting == 0);
        eventually("a purge works again", || {
            admin.request("PURGE", "http://site.example/short/purged", &[]).status == 200
        });
    }
}

/// Answers for the origin. The first part of the path selects the kind of response.
fn answer(received: &Received, _: usize) -> Reply {
    let lifetime = match kind(&received.target) {
        "private" => "Cache-Control: private",
        "stale" => "Cache-Control: max-age=0",
        _ => "Cache-Control: max-age=60",
    };
    let vary = if kind(&received.target) == "varies" { "Vary: Accept-Language" } else { "X-Other: 1" };
    let fields = [lifetime, vary, "ETag: \"1\"", "Accept-Ranges: bytes"];
    if received.field("if-none-match").is_some() {
        return Reply::status("304 Not Modified", &fields, "");
    }
    let whole = body(&received.target);
    let range = received.field("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let end = whole.len() - 1;
    let range = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().unwrap_or(end).min(end))));
    match range {
        Some((first, last)) => {
            let place = format!("Content-Range: bytes {first}-{last}/{}", whole.len());
            let fields: Vec<&str> = fields.into_iter().chain([place.as_str()]).collect();
            Reply::status("206 Partial Content", &fields, &whole[first..=last])
        }
        None => Reply::ok(&fields, whole),
    }
}

fn kind(target: &str) -> &str {
    target.split('/').nth(1).unwrap_or_default()
}

/// Returns the body of a target, with the length of its kind.
fn body(target: &str) -> Vec<u8> {
    let len = match kind(target) {
        "long" => 2_500_000,
        "middle" => 60_000,
        _ => 1000,
    };
    target.bytes().cycle().take(len).collect()
}

/// Sends a request, and compares the response with the origin's.
fn check(fixture: &Fixture, target: &str, field: &str) {
    let fields: &[&str] = if field.is_empty() { &[] } else { &[field] };
    let response = fixture.get(target, fields);
    let whole = body(target);
    let range = field.strip_prefix("Range: bytes=").and_then(|range| range.split_once('-'));
    let range = range.map(|(first, last)| first.parse().unwrap()..last.parse::<usize>().unwrap() + 1);
    let expected = range.clone().map_or(&whole[..], |range| &whole[range]);
    assert_eq!((response.status, response.complete), (if range.is_some() { 206 } else { 200 }, true), "{target}");
    assert!(response.body == expected, "{target}: other bytes");
}

/// Waits until everything is on the device, so that reads use it.
fn settle(fixture: &Fixture) {
    let store = fixture.store.as_ref().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.sync()).unwrap();
}
