//! Clients that stand still while they read a stored body: whatever they hold, others read the same body, and other
//! bodies, as if they were alone.

use crate::{
    bounds::Raw,
    support::{Connection, Fixture, Reply, body, eventually, http2::Http2, request_text},
};

const MIB: usize = 1 << 20;
/// Longer than what sockets and the proxy buffer of a body in transit.
const LEN: usize = 40 * MIB + 12_345;
const FIELDS: &[&str] = &["Cache-Control: max-age=600", "ETag: \"v1\""];

/// Starts a proxy that has stored bodies of `len` bytes under these targets, and keeps none of them in memory.
fn stored(targets: &[&str], len: usize, window_bytes: Option<u64>) -> Fixture {
    let fixture = Fixture::with(
        move |_, _| Reply::ok(FIELDS, body(len)),
        |config| (config.hot_bytes, config.window_bytes) = (0, window_bytes),
    );
    for target in targets {
        assert!(fixture.get(target, &[]).body == body(len));
        fixture.wait_for_hit(target, &["Range: bytes=0-0"]);
    }
    fixture
}

/// Waits until the proxy sends no more, because its clients do not read.
fn stand_still(fixture: &Fixture) {
    let mut before = 0;
    let mut unchanged = 0;
    eventually("the clients stand still", || {
        let held = fixture.proxy.stats().window_bytes;
        unchanged = if held == before && held > 0 { unchanged + 1 } else { 0 };
        before = held;
        unchanged > 50
    });
}

fn begin(fixture: &Fixture, target: &str) -> Connection {
    let mut client = fixture.connect();
    client.send(request_text("GET", target, &[]));
    assert!(client.read_head().is_hit());
    client
}

fn check_others(fixture: &Fixture, target: &str, len: usize) {
    let whole = fixture.get(target, &[]);
    assert!(whole.is_hit() && whole.complete && whole.body == body(len));
    for start in (0..len).step_by(3 * MIB) {
        let last = (start + 10).min(len - 1);
        let part = fixture.get(target, &[&format!("Range: bytes={start}-{last}")]);
        assert!(part.complete && part.body == body(len)[start..=last], "{start}");
    }
    let mut http2 = Http2::plain(fixture.proxy.local_addrs()[0]);
    let whole = http2.get(&format!("http://site.example{target}"), &[]);
    assert!(whole.complete && whole.body == body(len));
}

#[test]
fn reader_that_pauses_or_trickles_holds_up_no_other() {
    let fixture = stored(&["/long"], LEN, None);
    let mut client = begin(&fixture, "/long");
    let mut position = 0;
    for step in [MIB, 1000, 3 * MIB + 5] {
        assert!(client.read_exact(step) == body(LEN)[position..position + step]);
        position += step;
        stand_still(&fixture);
        check_others(&fixture, "/long", LEN);
    }
    assert!(client.read_exact(LEN - position) == body(LEN)[position..]);
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn stream_whose_window_is_shut_holds_up_no_other() {
    let fixture = stored(&["/long"], LEN, None);
    // A window of 64 KiB, which is used up at once, and none at all.
    for window in [[0, 4, 0, 1, 0, 0], [0, 4, 0, 0, 0, 0]] {
        let mut raw = Raw::open(&fixture, &window);
        raw.ask(1, "/long");
        stand_still(&fixture);
        check_others(&fixture, "/long", LEN);
    }
    assert_eq!(fixture.origin.count(), 1);
}

#[test]
fn many_standing_readers_leave_memory_and_the_store_to_others() {
    const BUDGET: u64 = 8 << 20;
    const COUNT: usize = 60;
    /// Memory that may be used beyond the budget for each body.
    const BEYOND_BYTES: u64 = 128 << 10;
    let targets = ["/0", "/1", "/2", "/3", "/untouched"];
    let fixture = stored(&targets, 12 * MIB, Some(BUDGET));
    let clients: Vec<Connection> = (0..COUNT).map(|number| begin(&fixture, targets[number % 4])).collect();
    stand_still(&fixture);
    for _ in 0..3 {
        let held = fixture.proxy.stats().window_bytes;
        assert!(held <= BUDGET + COUNT as u64 * BEYOND_BYTES, "{held}");
        check_others(&fixture, "/untouched", 12 * MIB);
        check_others(&fixture, "/0", 12 * MIB);
    }
    drop(clients);
    eventually("everything is given back", || fixture.proxy.stats().window_bytes == 0);
}
