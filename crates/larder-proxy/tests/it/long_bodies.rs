//! Long bodies never break off if they can be completed: gaps found before and within a response, a store that fails or
//! stops responding in the middle, incomplete downloads.

use std::time::Duration;

use larder_cache::chunk_format::chunk_key;
use larder_http::{BodyPlace, Head, TargetList};
use larder_proxy::ProxyConfig;
use larder_store::{Hints, Policy};

use crate::support::{Ailment, Connection, Fixture, Gate, Received, Reply, body, eventually, request_text};

const CHUNK: usize = 1 << 20;
/// Longer than what sockets and the proxy buffer of a body in transit.
const LEN: usize = 40 * CHUNK + 12_345;
/// Room for more than four such bodies.
const STORE_BYTES: u64 = 192 << 20;
const TAGGED: &[&str] = &["Cache-Control: max-age=600", "ETag: \"v1\""];
const UNTAGGED: &[&str] = &["Cache-Control: max-age=600"];
/// A request field for hits in tests that count what the origin is asked: a response is stored shortly after its end.
const FROM_STORE: &str = "Cache-Control: only-if-cached";

/// Answers ranges too.
fn ranged(received: &Received, len: usize) -> Reply {
    let range = received.field("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((first, last)) = range else { return Reply::ok(TAGGED, body(len)) };
    let first: usize = first.parse().unwrap();
    let last = last.parse().unwrap_or(len - 1);
    let content_range = format!("Content-Range: bytes {first}-{last}/{len}");
    let fields: Vec<&str> = TAGGED.iter().copied().chain([content_range.as_str()]).collect();
    Reply::status("206 Partial Content", &fields, &body(len)[first..=last])
}

/// Sets a time limit that is long enough for a device in memory, and short for a test that waits for it to pass.
fn patient(config: &mut ProxyConfig) {
    // Longer than a machine that runs all tests at once may delay a thread.
    config.limits.store = Duration::from_millis(1500);
}

/// Returns the ranges that the origin received, request by request.
fn asked_ranges(fixture: &Fixture) -> Vec<String> {
    let received = fixture.origin.received();
    received.iter().map(|received| received.field("range").unwrap_or("all").to_owned()).collect()
}

/// Stores the long body, and begins to read it again.
fn begin(fixture: &Fixture) -> Connection {
    assert!(fixture.get("/long", &[]).body == body(LEN));
    fixture.get_hit("/long", &["Range: bytes=0-0", FROM_STORE]);
    settle(fixture);
    let mut connection = fixture.connect();
    connection.send(request_text("GET", "/long", &[]));
    let head = connection.read_head();
    assert!(head.is_hit(), "{}", head.cache_status());
    assert!(connection.read_exact(CHUNK) == body(LEN)[..CHUNK]);
    connection
}

fn check_rest(mut connection: Connection) {
    assert!(connection.read_exact(LEN - CHUNK) == body(LEN)[CHUNK..]);
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// Waits until everything is on the device.
fn settle(fixture: &Fixture) {
    run(fixture.store.as_ref().unwrap().sync()).unwrap();
}

/// Takes chunks of a long entry out of the store.
pub(crate) fn lose(fixture: &Fixture, target: &str, numbers: impl IntoIterator<Item = u64>) {
    let store = fixture.store.clone().unwrap();
    run(async {
        let primary = fixture.key(target);
        let entry = store.get(&primary).await.unwrap().expect("the entry is stored");
        let Head::Response(head) = Head::decode(entry.head(), &TargetList::default()).unwrap() else {
            panic!("no response")
        };
        let BodyPlace::Chunks { representation, .. } = head.body() else { panic!("not in chunks") };
        for number in numbers {
            store.remove(&chunk_key(&primary, representation, number)).await.unwrap();
        }
    });
}

#[test]
fn gap_that_appears_while_sending_is_filled_by_one_request_for_it() {
    let fixture = Fixture::with(|received, _| ranged(received, LEN), |config| config.hot_bytes = 0);
    let connection = begin(&fixture);
    lose(&fixture, "/long", 33..38);
    check_rest(connection);
    assert_eq!(asked_ranges(&fixture), ["all", "bytes=34603008-39845887"]);
    assert_eq!(fixture.origin.received()[1].field("if-range"), Some("\"v1\""));
    // The stored body is complete again.
    let hit = fixture.get_hit("/long", &[FROM_STORE]);
    assert!(hit.complete && hit.body == body(LEN));
    assert_eq!(fixture.origin.count(), 2);
    assert_eq!(fixture.proxy.stats().broken_responses, [0; 5]);
}

#[test]
fn gap_that_appears_while_sending_is_filled_though_the_origin_knows_no_ranges() {
    for validator in ["ETag: \"v1\"", "Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT"] {
        let answer = move |_: &Received, _: usize| {
            // Old enough that its date distinguishes versions, but still fresh.
            let fields = ["Cache-Control: max-age=999999999", "Date: Sun, 02 Jan 2022 00:00:00 GMT", validator];
            Reply::ok(&fields, body(LEN))
        };
        let fixture = Fixture::with(answer, |config| config.hot_bytes = 0);
        let connection = begin(&fixture);
        lose(&fixture, "/long", [35]);
        check_rest(connection);
        assert_eq!(fixture.origin.count(), 2, "{validator}");
    }
}

#[test]
fn store_that_fails_or_falls_silent_while_sending_is_made_up_for_by_the_origin() {
    for ailment in [Ailment::Unreadable, Ailment::Dead, Ailment::Hung] {
        let (fixture, device) = Fixture::ailing_of(STORE_BYTES, |received, _| ranged(received, LEN), patient);
        let _recovering = device.recovering();
        let connection = begin(&fixture);
        let before = fixture.origin.count();
        device.set(ailment);
        check_rest(connection);
        assert!(fixture.proxy.stats().range_fills > 0);
        assert_eq!(fixture.proxy.stats().broken_responses, [0; 5], "{ailment:?}");
        let asked = &asked_ranges(&fixture)[before..];
        assert!(asked.len() <= 4, "few requests, not one for each chunk: {asked:?}");
    }
}

/// Guards against a download that a failing disk breaks although the needed data has just arrived.
#[test]
fn store_that_dies_behind_a_slow_client_breaks_no_download() {
    let (fixture, device) = Fixture::ailing_of(STORE_BYTES, |_, _| Reply::ok(UNTAGGED, body(LEN)), patient);
    let _recovering = device.recovering();
    let mut connection = fixture.connect();
    connection.send(request_text("GET", "/long", &[]));
    assert_eq!(connection.read_head().status, 200);
    let store = fixture.store.as_ref().unwrap();
    let mut commits = 0;
    let mut unchanged = 0;
    eventually("the fetch is as far ahead of its client as it may be", || {
        let now = store.stats().commits;
        unchanged = if now == commits { unchanged + 1 } else { 0 };
        commits = now;
        commits > 0 && unchanged > 20
    });
    device.set(Ailment::Dead);
    assert!(connection.read_exact(LEN) == body(LEN));
    assert_eq!((fixture.origin.count(), fixture.proxy.stats().broken_responses), (1, [0; 5]));
}

#[test]
fn slow_store_is_waited_for_where_nobody_else_has_the_rest() {
    let (fixture, device) = Fixture::ailing_of(STORE_BYTES, |_, _| Reply::ok(UNTAGGED, body(LEN)), patient);
    let _recovering = device.recovering();
    let connection = begin(&fixture);
    device.set(Ailment::Hung);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| check_rest(connection));
        eventually("it waits for the device", || device.waiting_count() > 0);
        device.set(Ailment::Nothing);
        reading.join().unwrap();
    });
    assert_eq!((fixture.origin.count(), fixture.proxy.stats().broken_responses), (1, [0; 5]));
}

#[test]
fn answer_that_can_be_completed_by_nobody_breaks_and_is_counted() {
    let fixture = Fixture::with(|_, _| Reply::ok(UNTAGGED, body(LEN)), |config| config.hot_bytes = 0);
    let mut connection = begin(&fixture);
    lose(&fixture, "/long", [35]);
    let mut rest = Vec::new();
    // A reset at the end of the connection is acceptable.
    let _ = std::io::Read::read_to_end(&mut connection.reader, &mut rest);
    assert!(
        rest.len() < LEN - CHUNK && rest == body(LEN)[CHUNK..CHUNK + rest.len()],
        "what there was, and nothing else"
    );
    eventually("it is counted", || fixture.proxy.stats().broken_responses == [0, 1, 0, 0, 0]);
    // The gap is found before the first byte and makes the request a miss.
    let whole = fixture.get("/long", &[]);
    assert!(whole.complete && whole.body == body(LEN) && !whole.is_hit());
}

#[test]
fn body_with_a_gap_is_no_hit_and_says_what_it_is() {
    let fixture = Fixture::with(|received, _| ranged(received, 8 * CHUNK), |config| config.hot_bytes = 0);
    fixture.get("/long", &[]);
    fixture.get_hit("/long", &[FROM_STORE]);
    lose(&fixture, "/long", [3, 4, 6]);
    let filled = fixture.get("/long", &[]);
    assert!(filled.complete && filled.body == body(8 * CHUNK));
    assert_eq!(filled.cache_status(), "fwd=partial; fwd-status=206; stored");
    // Both gaps are requested at once.
    let mut asked = asked_ranges(&fixture);
    asked.sort();
    assert_eq!(asked, ["all", "bytes=3145728-5242879", "bytes=6291456-7340031"]);
    let hit = fixture.get_hit("/long", &[FROM_STORE]);
    assert!(hit.complete && hit.body == body(8 * CHUNK));
    // A part that is not requested may be missing.
    lose(&fixture, "/long", [5]);
    let part = fixture.get("/long", &["Range: bytes=1000000-2000000"]);
    assert!(part.is_hit() && part.body == body(8 * CHUNK)[1_000_000..=2_000_000]);
    let parts = fixture.get("/long", &["Range: bytes=0-9, 5242870-5242889"]);
    assert_eq!((parts.status, parts.complete), (206, true));
    assert!(parts.cache_status().starts_with("fwd=partial"), "{}", parts.cache_status());
    assert!(parts.body.windows(20).any(|window| *window == body(8 * CHUNK)[5_242_870..5_242_890]));
}

#[test]
fn operator_is_told_of_a_body_with_a_gap_and_where_the_rest_comes_from() {
    for (fields, way) in [
        (TAGGED, "outcome  from the cache; the origin supplies the missing part of the body"),
        (UNTAGGED, "outcome  fetched again, because part of its body is missing"),
    ] {
        let fixture = Fixture::with(
            move |_, _| Reply::ok(fields, body(4 * CHUNK)),
            |config| {
                config.hot_bytes = 0;
                config.admin = Some("127.0.0.1:0".parse().unwrap());
            },
        );
        fixture.get("/long", &[]);
        fixture.get_hit("/long", &[FROM_STORE]);
        let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
        let mut explain = || admin.request("EXPLAIN", "http://site.example/long", &[]).text();
        let whole = explain();
        assert!(whole.contains("outcome  from the cache ("), "{whole}");
        lose(&fixture, "/long", [2]);
        let told = explain();
        assert!(told.contains(way), "{told}");
        assert_eq!(fixture.origin.count(), 1, "no origin is contacted");
    }
}

#[test]
fn body_with_a_gap_of_a_changed_resource_is_fetched_anew() {
    let fixture = Fixture::with(
        |received, number| match number {
            0 => ranged(received, 8 * CHUNK),
            _ => Reply::ok(&["Cache-Control: max-age=600", "ETag: \"v2\""], "changed"),
        },
        |config| config.hot_bytes = 0,
    );
    fixture.get("/long", &[]);
    fixture.get_hit("/long", &[FROM_STORE]);
    lose(&fixture, "/long", [3]);
    let changed = fixture.get("/long", &[]);
    assert_eq!((changed.complete, changed.text()), (true, "changed".to_owned()));
}

#[test]
fn gap_in_a_body_that_changed_while_it_was_sent_breaks_off_and_forgets() {
    let fixture = Fixture::with(
        |received, number| match number {
            0 => ranged(received, LEN),
            _ => Reply::ok(&["Cache-Control: max-age=600", "ETag: \"v2\""], "changed"),
        },
        |config| config.hot_bytes = 0,
    );
    let mut connection = begin(&fixture);
    lose(&fixture, "/long", [35]);
    let mut rest = Vec::new();
    // A reset at the end of the connection is acceptable.
    let _ = std::io::Read::read_to_end(&mut connection.reader, &mut rest);
    assert!(rest.len() < LEN - CHUNK, "a mixed body must not look whole");
    assert!(rest == body(LEN)[CHUNK..CHUNK + rest.len()]);
    eventually("it is counted", || fixture.proxy.stats().broken_responses == [0, 1, 0, 0, 0]);
    assert_eq!(fixture.get("/long", &[]).text(), "changed");
}

/// Guards against a missing chunk that counts as present, under a policy whose memory reports every key as possibly
/// present.
#[test]
fn gap_that_memory_does_not_know_of_is_found_before_the_first_byte() {
    let rows = ["log", "hashcache-basic", "hashcache-set", "hashcache-setmem", "hashcache-log", "tiny"];
    for row in rows {
        let policy = Policy::named(row).unwrap();
        let fixture =
            Fixture::with_policy(policy, |_, _| Reply::ok(UNTAGGED, body(4 * CHUNK)), |config| config.hot_bytes = 0);
        for target in ["/a", "/b"] {
            fixture.get(target, &[]);
        }
        let stored = ["/a", "/b"].map(|target| fixture.get(target, &["Range: bytes=4194303-"]).is_hit());
        for (target, stored) in ["/a", "/b"].into_iter().zip(stored) {
            if stored {
                lose(&fixture, target, [2]);
            }
            let whole = fixture.get(target, &[]);
            assert!(whole.complete && whole.body == body(4 * CHUNK), "{row} {target}");
        }
        assert_eq!(fixture.proxy.stats().broken_responses, [0; 5], "{row}");
    }
}

/// Policies whose memory knows an entry by a few bits of its key's hash, or by the place of its key.
const ROWS_WITH_TAGS: [&str; 9] = [
    "log",
    "hashcache-basic",
    "hashcache-set",
    "hashcache-setmem",
    "hashcache-setmem-lru",
    "hashcache-log-n",
    "hashcache-log",
    "hashcache-log-lru",
    "tiny",
];

/// Guards against a download that breaks because small entries displaced its chunks from the index.
#[test]
fn long_body_among_many_small_entries_is_whole_in_every_row_with_tags() {
    for row in ROWS_WITH_TAGS {
        let small_index = |options: &mut larder_store::StoreOptions| {
            (options.policy, options.mean_entry_bytes) = (Policy::named(row).unwrap(), 512 << 10);
        };
        let answer = |received: &Received, _: usize| ranged(received, 24 * CHUNK);
        let fixture = Fixture::with_options(small_index, answer, |config| config.hot_bytes = 0);
        assert!(fixture.get("/long", &[]).body == body(24 * CHUNK));
        settle(&fixture);
        let store = fixture.store.as_ref().unwrap();
        run(async {
            // As many as the index has room for.
            for number in 0_u32..512 {
                let mut writer = store.insert(&number.to_le_bytes(), "small".into(), Hints::default()).unwrap();
                writer.write(vec![number as u8; 600].into()).unwrap();
                let _ = writer.commit().await;
            }
            store.sync().await.unwrap();
        });
        for _ in 0..2 {
            let whole = fixture.get("/long", &[]);
            assert!(whole.complete && whole.body == body(24 * CHUNK), "{row}: {}", whole.cache_status());
        }
        let is_log = row == "log";
        assert!(!is_log || fixture.origin.count() == 1, "an index of entries that can be told apart drops none");
        assert_eq!(fixture.proxy.stats().broken_responses, [0; 5], "{row}");
    }
}

#[test]
fn what_arrived_of_a_download_that_everybody_left_is_kept_and_gone_on_with() {
    let gate = Gate::default();
    let held = gate.clone();
    let arrived = 5 * CHUNK + 300_000;
    let fixture = Fixture::with(
        move |received, number| match number {
            0 => Reply::head("200 OK", &[TAGGED, &[&*format!("Content-Length: {LEN}")]].concat())
                .send(&body(LEN)[..arrived])
                .wait(&held),
            _ => ranged(received, LEN),
        },
        |config| config.hot_bytes = 0,
    );
    let mut leaving = fixture.connect();
    leaving.send(request_text("GET", "/long", &[]));
    assert_eq!(leaving.read_head().status, 200);
    assert!(leaving.read_exact(arrived) == body(LEN)[..arrived]);
    drop(leaving);
    // During the fetch, the stored part is not visible.
    let shown = || fixture.connect().request("HEAD", "/long", &["Cache-Control: only-if-cached"]).status == 200;
    eventually("it is kept", shown);
    let whole = fixture.get("/long", &[]);
    assert!(whole.complete && whole.body == body(LEN));
    assert_eq!(whole.cache_status(), "fwd=partial; fwd-status=206; stored");
    let asked = asked_ranges(&fixture);
    assert_eq!(asked, ["all".to_owned(), format!("bytes={arrived}-")]);
    let hit = fixture.get_hit("/long", &[FROM_STORE]);
    assert!(hit.complete && hit.body == body(LEN));
    gate.open();
}

#[test]
fn download_that_was_left_is_not_kept_without_a_validator() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |_, number| match number {
        0 => Reply::head("200 OK", &[UNTAGGED, &[&*format!("Content-Length: {LEN}")]].concat())
            .send(&body(LEN)[..3 * CHUNK])
            .wait(&held)
            .close(),
        _ => Reply::ok(UNTAGGED, "another"),
    });
    let mut leaving = fixture.connect();
    leaving.send(request_text("GET", "/long", &[]));
    assert_eq!(leaving.read_head().status, 200);
    leaving.read_exact(3 * CHUNK);
    drop(leaving);
    eventually("it is noticed", || fixture.proxy.stats().aborted_responses == 1);
    gate.open();
    eventually("nothing is left of it", || fixture.get("/long", &[]).text() == "another");
}

#[test]
fn store_that_cannot_keep_up_slows_nobody_down() {
    let (fixture, device) = Fixture::ailing_of(
        STORE_BYTES,
        |received, _| ranged(received, LEN),
        |config| config.limits.store = Duration::from_secs(20),
    );
    let _recovering = device.recovering();
    // Much slower than a client, however busy the machine is.
    device.slow_down(Duration::from_secs(4));
    let whole = fixture.get("/long", &[]);
    assert!(whole.complete && whole.body == body(LEN));
    assert_eq!(whole.cache_status(), "fwd=uri-miss; fwd-status=200; stored", "nobody knew");
    assert!(
        device.written_bytes() < LEN as u64 / 2,
        "the client had it all before the device: {}",
        device.written_bytes()
    );
    eventually("the store is given up", || fixture.proxy.stats().store_aborts == 1);
    // The failure is known for a time that grows with each failure.
    let is_spared = |number: u32| {
        let next = fixture.get(&format!("/next/{number}"), &[]);
        assert!(next.complete && next.body == body(LEN));
        next.cache_status() == "fwd=uri-miss; fwd-status=200; detail=store-behind"
    };
    assert!((0..6).any(is_spared), "the store gets no long responses while it is behind");
    // No part is mistaken for the whole. Chunks that were stored in time may be used for their own bytes.
    device.set(Ailment::Nothing);
    settle(&fixture);
    let first = fixture.get("/long", &["Range: bytes=0-0"]);
    assert!(first.status == 206 && first.body == body(LEN)[..1]);
    let again = fixture.get("/long", &[]);
    assert!(!again.is_hit() && again.complete && again.body == body(LEN), "{}", again.cache_status());
}

#[test]
fn body_that_is_being_read_is_not_reclaimed_under_its_reader() {
    let (fixture, _device) = Fixture::ailing_of(STORE_BYTES, |_, _| Reply::ok(UNTAGGED, body(LEN)), patient);
    let connection = begin(&fixture);
    let store = fixture.store.as_ref().unwrap();
    let evicted = store.stats().evicted;
    run(async {
        // More than the store has room for.
        for number in 0..300 {
            let mut writer = store.insert(format!("filler {number}").as_bytes(), "".into(), Hints::default()).unwrap();
            writer.write(vec![0; CHUNK].into()).unwrap();
            writer.commit().await.unwrap();
        }
    });
    assert!(store.stats().evicted > evicted + 50);
    check_rest(connection);
    assert_eq!((fixture.origin.count(), fixture.proxy.stats().broken_responses), (1, [0; 5]));
}
