//! One fetch for many clients, and the outcome if one side fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::{Connection, Fixture, Gate, Received, Reply, eventually};

#[test]
fn fifty_askers_make_one_fetch() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        Reply::default()
            .wait(&held)
            .send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello")
    });
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..50).map(|_| scope.spawn(|| fixture.get("/", &[]))).collect();
        eventually("all but one wait", || fixture.proxy.stats().collapsed_requests == 49);
        gate.open();
        for asker in askers {
            let response = asker.join().unwrap();
            assert_eq!((response.status, response.text().as_str(), response.complete), (200, "hello", true));
        }
    });
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn waiters_get_what_has_arrived_before_the_rest_is_there() {
    let (fixture, gate) = Fixture::held_halfway();
    let mut connections: Vec<_> = (0..3).map(|_| fixture.connect()).collect();
    for connection in &mut connections {
        connection.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
        assert_eq!(connection.read_head().status, 200);
        assert_eq!(connection.read_exact(5), b"01234");
    }
    gate.open();
    for connection in &mut connections {
        assert_eq!(connection.read_exact(5), b"56789");
    }
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn truncated_fetch_is_broken_off_and_never_stored() {
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let fixture = Fixture::new(move |_, number| {
            let body = if head.starts_with('C') { "01234" } else { "5\r\n01234\r\n" };
            match number {
                0 => Reply::head("200 OK", &["Cache-Control: max-age=60", head]).send(body).close(),
                _ => Reply::ok(&["Cache-Control: max-age=60"], "whole"),
            }
        });
        let first = fixture.get("/", &[]);
        assert!(!first.complete, "{head}: {first:?}");
        assert_eq!(fixture.get("/", &[]).text(), "whole", "{head}");
        assert_eq!(fixture.get_hit("/", &[]).text(), "whole", "{head}");
    }
}

#[test]
fn waiters_of_a_truncated_fetch_are_broken_off_too() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| {
        Reply::head("200 OK", &["Cache-Control: max-age=60", "Content-Length: 10"]).send("01234").wait(&held).close()
    });
    let mut connections: Vec<_> = (0..3).map(|_| fixture.connect()).collect();
    for connection in &mut connections {
        connection.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
        assert_eq!(connection.read_head().status, 200);
        // Bytes in transit when the fetch breaks off may be lost.
        assert_eq!(connection.read_exact(5), b"01234");
    }
    gate.open();
    for connection in &mut connections {
        assert!(connection.is_closed());
    }
}

#[test]
fn origin_that_closes_before_a_head_is_an_error_for_all() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, _| Reply::default().wait(&held).close());
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..5).map(|_| scope.spawn(|| fixture.get("/", &[]))).collect();
        eventually("all but one wait", || fixture.proxy.stats().collapsed_requests == 4);
        gate.open();
        for asker in askers {
            assert_eq!(asker.join().unwrap().status, 502);
        }
    });
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn private_response_goes_to_one_asker_and_the_others_ask_themselves_at_once() {
    let first = Gate::default();
    let others = Gate::default();
    let held_first = first.clone();
    let held_others = others.clone();
    let waiting = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waiting);
    let fixture = Fixture::new(move |_, number| {
        let gate = if number == 0 { &held_first } else { &held_others };
        counted.fetch_add(1, Ordering::SeqCst);
        let body = number.to_string();
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        Reply::default().wait(gate).send(head)
    });
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..5).map(|_| scope.spawn(|| fixture.get("/", &[]).text())).collect();
        eventually("all but one wait", || fixture.proxy.stats().collapsed_requests == 4);
        first.open();
        eventually("the others ask together", || waiting.load(Ordering::SeqCst) == 5);
        others.open();
        let mut bodies: Vec<_> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
        bodies.sort();
        assert_eq!(bodies, ["0", "1", "2", "3", "4"]);
    });
}

#[test]
fn waiter_for_another_variant_gets_its_own() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, number| {
        let language = received.field("accept-language").unwrap_or_default().to_owned();
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nVary: Accept-Language\r\nContent-Length: {}\r\n\r\n{language}",
            language.len()
        );
        if number == 0 { Reply::default().wait(&held).send(head) } else { Reply::default().send(head) }
    });
    std::thread::scope(|scope| {
        let english = scope.spawn(|| fixture.get("/", &["Accept-Language: en"]).text());
        eventually("the first fetch is under way", || fixture.origin.count() == 1);
        let german: Vec<_> =
            (0..4).map(|_| scope.spawn(|| fixture.get("/", &["Accept-Language: de"]).text())).collect();
        eventually("they wait", || fixture.proxy.stats().collapsed_requests == 4);
        gate.open();
        assert_eq!(english.join().unwrap(), "en");
        for one in german {
            assert_eq!(one.join().unwrap(), "de");
        }
    });
    assert_eq!(fixture.get_hit("/", &["Accept-Language: en"]).text(), "en");
    assert_eq!(fixture.get_hit("/", &["Accept-Language: de"]).text(), "de");
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn client_that_leaves_does_not_kill_a_small_fetch() {
    let (fixture, gate) = Fixture::held_halfway();
    let mut leaving = fixture.connect();
    leaving.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    leaving.read_head();
    drop(leaving);
    eventually("the client is gone", || fixture.proxy.stats().connections_open == 0);
    gate.open();
    assert_eq!(fixture.get_hit("/", &[]).text(), "0123456789");
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn client_that_leaves_ends_a_large_fetch_that_has_hardly_begun() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, number| match number {
        0 => {
            Reply::head("200 OK", &["Cache-Control: max-age=60", "Content-Length: 50000000"]).send("01234").wait(&held)
        }
        _ => Reply::ok(&["Cache-Control: max-age=60"], "short now"),
    });
    let mut leaving = fixture.connect();
    leaving.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    leaving.read_head();
    drop(leaving);
    eventually("the client is gone", || fixture.proxy.stats().connections_open == 0);
    // A client may come back for a second. Then the next request does not wait for the fetch.
    let begun = Instant::now();
    eventually("the fetch is given up", || begun.elapsed() > Duration::from_millis(1_500));
    assert_eq!(fixture.get("/", &[]).text(), "short now");
    gate.open();
}

#[test]
fn request_on_a_kept_connection_that_died_is_repeated_once() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: no-store"], "one"),
        1 => Reply::default().close(),
        _ => Reply::ok(&["Cache-Control: no-store"], "three"),
    });
    let mut connection = fixture.connect();
    assert_eq!(connection.request("GET", "/1", &[]).text(), "one");
    assert_eq!(connection.request("GET", "/2", &[]).text(), "three");
    assert_eq!((fixture.origin.count(), fixture.origin.connections()), (3, 2));
}

#[test]
fn request_whose_answer_makes_no_sense_is_not_repeated() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: no-store"], "one"),
        1 => Reply::default().send("no status line\r\n\r\n"),
        _ => Reply::ok(&["Cache-Control: no-store"], "three"),
    });
    let mut connection = fixture.connect();
    assert_eq!(connection.request("GET", "/1", &[]).text(), "one");
    assert_eq!(connection.request("GET", "/2", &[]).status, 502);
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn post_on_a_kept_connection_that_died_is_not_repeated() {
    let fixture = Fixture::new(|_, number| match number {
        0 => Reply::ok(&["Cache-Control: no-store"], "one"),
        _ => Reply::default().close(),
    });
    let mut connection = fixture.connect();
    assert_eq!(connection.request("GET", "/1", &[]).text(), "one");
    connection.send("POST /2 HTTP/1.1\r\nHost: site.example\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(connection.read_response("POST").status, 502);
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn connections_to_the_origin_are_kept() {
    let fixture = Fixture::new(|_, _| Reply::ok(&["Cache-Control: no-store"], "x"));
    let mut connection = fixture.connect();
    for number in 0..20 {
        assert_eq!(connection.request("GET", &format!("/{number}"), &[]).text(), "x");
    }
    assert_eq!((fixture.origin.count(), fixture.origin.connections()), (20, 1));
}

#[test]
fn askers_who_wait_for_anothers_condition_share_the_next_fetch() {
    let first = Gate::default();
    let second = Gate::default();
    let held = [first.clone(), second.clone()];
    let fixture = Fixture::new(move |received, number| match received.field("if-none-match") {
        Some(_) => Reply::default().wait(&held[0]).send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        None => {
            let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\n";
            Reply::default().wait(&held[1]).send(format!("{head}hell{number}"))
        }
    });
    std::thread::scope(|scope| {
        let conditional = scope.spawn(|| fixture.get("/", &["If-None-Match: \"a\""]));
        eventually("the condition is with the origin", || fixture.origin.count() == 1);
        let askers: Vec<_> = (0..20).map(|_| scope.spawn(|| fixture.get("/", &[]))).collect();
        eventually("all wait", || fixture.proxy.stats().collapsed_requests == 20);
        first.open();
        assert_eq!(conditional.join().unwrap().status, 304);
        eventually("all wait again but one", || fixture.proxy.stats().collapsed_requests == 39);
        second.open();
        for asker in askers {
            assert_eq!(asker.join().unwrap().text(), "hell1");
        }
    });
    assert_eq!(fixture.origin.count(), 2);
}

/// Returns a fixture whose responses below `/held/` end when the gate opens.
fn with_held_downloads() -> (Fixture, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    let handle = move |received: &Received, _: usize| {
        let reply = Reply::head("200 OK", &["Cache-Control: max-age=600", "Content-Length: 10"]).send("01234");
        let reply = if received.target.starts_with("/held/") { reply.wait(&held) } else { reply };
        reply.send("56789")
    };
    let fixture = Fixture::with(handle, |config| config.admin = Some("127.0.0.1:0".parse().unwrap()));
    (fixture, gate)
}

/// Begins downloads, runs `meanwhile`, ends them, and checks that all of them are stored.
fn check_downloads_are_stored(fixture: &Fixture, gate: &Gate, meanwhile: impl FnOnce()) {
    let mut downloads: Vec<_> = (0..20).map(|_| fixture.connect()).collect();
    for (number, download) in downloads.iter_mut().enumerate() {
        download.send(format!("GET /held/{number} HTTP/1.1\r\nHost: site.example\r\n\r\n"));
        let head = download.read_head();
        assert!(head.cache_status().contains("stored"), "{}", head.cache_status());
        assert_eq!(download.read_exact(5), b"01234");
    }
    meanwhile();
    gate.open();
    downloads.iter_mut().for_each(|download| assert_eq!(download.read_exact(5), b"56789"));
    (0..downloads.len()).for_each(|number| {
        fixture.wait_for_hit(&format!("/held/{number}"), &[]);
    });
}

/// Guards against long downloads that are said to be stored and are not, because other URLs are changed meanwhile.
#[test]
fn downloads_beside_twenty_thousand_changes_of_other_urls_are_all_stored() {
    let (fixture, gate) = with_held_downloads();
    check_downloads_are_stored(&fixture, &gate, || {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let mut connection = fixture.connect();
                scope.spawn(move || {
                    for number in 0..2500 {
                        let target = format!("/changed/{thread}/{number}");
                        assert_eq!(connection.request("POST", &target, &["Content-Length: 0"]).status, 200);
                    }
                });
            }
        });
    });
}

#[test]
fn purges_of_other_urls_sites_and_tags_keep_running_downloads() {
    let purges: [(&str, &[&str]); 5] = [
        ("http://other.example/", &["Purge-Scope: site"]),
        ("http://other.example/", &["Purge-Scope: site", "Purge-Mode: soft"]),
        ("http://site.example/", &["Purge-Scope: url"]),
        ("http://site.example/other/*", &[]),
        ("/", &["Cache-Tag: other"]),
    ];
    for (target, fields) in purges {
        let (fixture, gate) = with_held_downloads();
        check_downloads_are_stored(&fixture, &gate, || {
            let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
            assert_eq!(admin.request("PURGE", target, fields).status, 200);
            // A request that arrives after the purge still shares the download.
            let mut late = fixture.connect();
            late.send("GET /held/0 HTTP/1.1\r\nHost: site.example\r\n\r\n");
            assert_eq!(late.read_head().status, 200);
            assert_eq!(fixture.origin.count(), 20, "{target} {fields:?}");
        });
    }
}
