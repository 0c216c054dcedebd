//! The memory of bodies on their way to clients: one budget for all, and every body makes progress.

use crate::support::{Connection, Fixture, Gate, Reply, body, eventually, request_text};

const MIB: usize = 1 << 20;
const TAGGED: &[&str] = &["Cache-Control: max-age=600", "ETag: \"v1\""];

/// Memory that may be used beyond the budget for each body: its smallest share, in every place that can hold a piece of
/// it.
const BEYOND_BYTES: u64 = 128 << 10;

#[test]
fn long_hits_that_nobody_reads_stay_within_the_budget_and_arrive_once_they_are_read() {
    const LEN: usize = 10 * MIB + 12_345;
    const BUDGET: u64 = 2 << 20;
    let sent = body(LEN);
    let fixture = Fixture::with(
        move |received, _| match received.target.as_str() {
            "/small" => Reply::ok(&[], "x"),
            _ => Reply::ok(TAGGED, &sent),
        },
        |config| (config.window_bytes, config.hot_bytes) = (Some(BUDGET), 0),
    );
    for number in 0..4 {
        assert!(fixture.get(&format!("/{number}"), &[]).body == body(LEN));
        fixture.wait_for_hit(&format!("/{number}"), &["Range: bytes=0-0"]);
    }
    eventually("nothing is held", || fixture.proxy.stats().window_bytes == 0);
    let mut clients: Vec<Connection> = (0..24).map(|_| fixture.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request_text("GET", &format!("/{}", number % 4), &[]));
    }
    for client in &mut clients {
        let head = client.read_head();
        assert!(head.is_hit(), "{}", head.cache_status());
    }
    let most = BUDGET + 24 * BEYOND_BYTES;
    eventually("what is on its way is counted", || fixture.proxy.stats().window_bytes > 0);
    for _ in 0..200 {
        let held = fixture.proxy.stats().window_bytes;
        assert!(held <= most, "{held}");
        assert_eq!(fixture.get("/small", &[]).status, 200);
    }
    for client in clients.drain(..12).collect::<Vec<_>>().iter_mut() {
        assert!(client.read_exact(LEN) == body(LEN));
    }
    // The others leave.
    drop(clients);
    eventually("everything is given back", || fixture.proxy.stats().window_bytes == 0);
}

/// Whether the rest of a response waits in the store or at the origin depends on how busy the machine is.
#[test]
fn responses_that_are_read_in_part_wait_outside_of_memory_when_it_is_short() {
    const LEN: usize = 12 * MIB;
    const COUNT: usize = 12;
    const BUDGET: u64 = 1 << 20;
    let sent = body(LEN);
    let fixture = Fixture::with(
        move |_, _| Reply::ok(TAGGED, &sent),
        |config| (config.window_bytes, config.hot_bytes) = (Some(BUDGET), 0),
    );
    let mut clients: Vec<Connection> = (0..COUNT).map(|_| fixture.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request_text("GET", &format!("/{number}"), &[]));
    }
    // Each stops within a chunk.
    for (number, client) in clients.iter_mut().enumerate() {
        client.read_head();
        let len = 3 * MIB / 2 + number * 10_000;
        assert!(client.read_exact(len) == body(LEN)[..len]);
    }
    // Four bodies at a time may have a whole chunk each, so that all of them complete one at some time.
    let most = BUDGET + 4 * MIB as u64 + COUNT as u64 * BEYOND_BYTES;
    eventually("nothing more is in memory than may be", || fixture.proxy.stats().window_bytes <= most);
    for (number, client) in clients.iter_mut().enumerate() {
        let len = 3 * MIB / 2 + number * 10_000;
        assert!(client.read_exact(LEN - len) == body(LEN)[len..]);
    }
    drop(clients);
    eventually("everything is given back", || fixture.proxy.stats().window_bytes == 0);
}

#[test]
fn fetches_from_slow_origins_go_on_when_there_is_no_memory_at_all() {
    const HALF: usize = 300_000;
    const COUNT: usize = 6;
    let gate = Gate::default();
    let held = gate.clone();
    let sent = body(2 * HALF);
    let fixture = Fixture::with(
        move |_, _| {
            let length = format!("Content-Length: {}", sent.len());
            let head = Reply::head("200 OK", &["Cache-Control: max-age=600", &length]);
            head.send(&sent[..HALF]).wait(&held).send(&sent[HALF..])
        },
        |config| config.window_bytes = Some(0),
    );
    let mut clients: Vec<Connection> = (0..COUNT).map(|_| fixture.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request_text("GET", &format!("/{number}"), &[]));
    }
    for client in &mut clients {
        assert_eq!(client.read_head().status, 200);
        assert!(client.read_exact(HALF) == body(2 * HALF)[..HALF]);
    }
    gate.open();
    for client in &mut clients {
        assert!(client.read_exact(HALF) == body(2 * HALF)[HALF..]);
    }
    drop(clients);
    eventually("everything is given back", || fixture.proxy.stats().window_bytes == 0);
}

#[test]
fn idle_connections_serve_further_requests_however_long_they_were_idle() {
    let fixture = Fixture::without_store(|_, _| Reply::ok(&["Cache-Control: max-age=600"], "x"));
    let mut client = fixture.connect();
    assert_eq!(client.request("GET", "/", &[]).status, 200);
    eventually("it is parked", || fixture.proxy.stats().connections_parked == 1);
    client.send(&request_text("GET", "/", &[])[..10]);
    eventually("its next request has begun", || fixture.proxy.stats().connections_parked == 0);
    client.send(&request_text("GET", "/", &[])[10..]);
    assert!(client.read_response("GET").is_hit());
    eventually("it is parked again", || fixture.proxy.stats().connections_parked == 1);
    // A request and its end in one segment, and two requests at once.
    client.send(request_text("GET", "/", &[]).repeat(2));
    assert!(client.read_response("GET").is_hit() && client.read_response("GET").is_hit());
    drop(client);
    eventually("its end is seen", || fixture.proxy.stats().connections_open == 0);
    assert_eq!(fixture.proxy.stats().connections_parked, 0);
}

#[test]
fn many_connections_in_use_keep_no_state_between_requests_when_memory_is_short() {
    const COUNT: usize = 100;
    const FULL_MAX: u64 = 32;
    let fixture = Fixture::with(
        |_, _| Reply::ok(&["Cache-Control: max-age=600"], "x"),
        |config| (config.memory_bytes, config.worker_count) = (Some(1 << 20), 1),
    );
    let mut clients: Vec<Connection> = (0..COUNT).map(|_| fixture.connect()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            assert_eq!(client.request("GET", "/", &[]).text(), "x");
        }
        // None was idle for a second. Those of the last requests may not be parked yet.
        let parked = fixture.proxy.stats().connections_parked;
        assert!(parked >= COUNT as u64 - FULL_MAX - 10, "{parked}");
    }
    for client in &mut clients {
        client.send(request_text("GET", "/", &[]).repeat(2));
        assert!(client.read_response("GET").is_hit() && client.read_response("GET").is_hit());
    }
}
