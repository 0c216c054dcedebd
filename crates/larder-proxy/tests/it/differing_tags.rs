//! Ranges of a resource whose servers send the same bytes with different entity tags. A response that has begun is
//! whole, and bytes with different tags are never combined.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::{
    long_bodies::lose,
    support::{Connection, Fixture, Gate, Received, Reply, Response, body, eventually, request_text},
};

const CHUNK: usize = 1 << 20;
const LEN: usize = 6 * CHUNK + 12_345;

/// The reply of a server to If-Range with a tag that is not its own.
#[derive(Clone, Copy, Debug)]
enum Mismatch {
    Whole,
    Refused,
    Unsatisfiable,
}

/// Answers as the server with this tag.
fn serve(received: &Received, tag: &str, len: usize, mismatch: Mismatch) -> Reply {
    let tag_line = format!("ETag: {tag}");
    let fields = ["Cache-Control: max-age=600", "Accept-Ranges: bytes", &tag_line];
    let holds = received.field("if-range").is_none_or(|wanted| wanted == tag);
    let range = received.field("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    match (range, holds, mismatch) {
        (Some(_), false, Mismatch::Refused) => Reply::status("412 Precondition Failed", &[], ""),
        (Some(_), false, Mismatch::Unsatisfiable) => {
            Reply::status("416 Range Not Satisfiable", &[&format!("Content-Range: bytes */{len}")], "")
        }
        (None, ..) | (_, false, Mismatch::Whole) => Reply::ok(&fields, body(len)),
        (Some((first, last)), true, _) => {
            let (first, last) = match (first, last) {
                ("", suffix) => (len - suffix.parse::<usize>().unwrap().min(len), len - 1),
                (first, "") => (first.parse().unwrap(), len - 1),
                (first, last) => (first.parse().unwrap(), last.parse::<usize>().unwrap().min(len - 1)),
            };
            let content_range = format!("Content-Range: bytes {first}-{last}/{len}");
            let fields = [&fields[..], &[&*content_range]].concat();
            Reply::status("206 Partial Content", &fields, &body(len)[first..=last])
        }
    }
}

/// Two servers, which take turns.
fn two_servers(mismatch: Mismatch) -> Fixture {
    Fixture::new(move |received, number| serve(received, ["\"a\"", "\"b\""][number % 2], LEN, mismatch))
}

fn field_of(span: &Range<usize>) -> String {
    format!("Range: bytes={}-{}", span.start, span.end - 1)
}

fn check(part: &Response, span: Range<usize>, len: usize, why: &str) {
    let told = (part.status, part.complete, part.field("content-range"));
    let expected = format!("bytes {}-{}/{len}", span.start, span.end - 1);
    assert_eq!(told, (206, true, Some(expected.as_str())), "{why} {span:?}");
    assert!(part.body == body(len)[span.clone()], "{why} {span:?}");
}

/// Returns the ranges that the origin received, request by request.
fn asked(fixture: &Fixture) -> Vec<String> {
    let received = fixture.origin.received();
    received.iter().map(|received| received.field("range").unwrap_or("all").to_owned()).collect()
}

#[test]
fn range_over_borders_is_requested_at_once() {
    let fixture = Fixture::new(|received, _| serve(received, "\"a\"", LEN, Mismatch::Whole));
    let cases = [
        // Short ranges are extended to whole chunks.
        ("1000000-1500000", 1_000_000..1_500_001, "bytes=0-2097151"),
        ("1048576-2097151", CHUNK..2 * CHUNK, "bytes=1048576-2097151"),
        ("-900000", LEN - 900_000..LEN, "bytes=-900000"),
        // Of long ones, the whole chunks inside are stored, and the ends as parts of chunks.
        ("1000000-3500000", 1_000_000..3_500_001, "bytes=1000000-3500000"),
        ("5000000-", 5_000_000..LEN, "bytes=5000000-"),
        ("3500000-99999999", 3_500_000..LEN, "bytes=3500000-99999999"),
        ("3500000-18446744073709551615", 3_500_000..LEN, "bytes=3500000-18446744073709551615"),
        ("-3000000", LEN - 3_000_000..LEN, "bytes=-3000000"),
    ];
    for (number, (range, span, first)) in cases.into_iter().enumerate() {
        let target = format!("/{number}");
        let field = format!("Range: bytes={range}");
        let count = fixture.origin.count();
        check(&fixture.get(&target, &[&field]), span.clone(), LEN, range);
        assert_eq!(asked(&fixture)[count..], [first], "{range}");
        eventually(range, || fixture.get(&target, &[&field]).is_hit());
        check(&fixture.get_hit(&target, &[&field]), span, LEN, "stored");
        assert_eq!(asked(&fixture)[count..], [first], "{range}");
    }
    let count = fixture.origin.count();
    for (number, range) in ["1000000-1500000", "1048576-2097151", "-900000"].into_iter().enumerate() {
        fixture.get_hit(&format!("/{number}"), &[&format!("Range: bytes={range}")]);
    }
    assert_eq!(fixture.origin.count(), count);
}

#[test]
fn ranges_are_whole_though_servers_disagree_in_their_tag() {
    for mismatch in [Mismatch::Whole, Mismatch::Refused, Mismatch::Unsatisfiable] {
        let fixture = two_servers(mismatch);
        let why = format!("{mismatch:?}");
        for start in (0..LEN).step_by(777_777) {
            let span = start..(start + 500_000).min(LEN);
            check(&fixture.get("/small", &[&field_of(&span)]), span, LEN, &why);
        }
        for span in [900_000..1_200_000, CHUNK - 1..CHUNK + 1, 100..5 * CHUNK, 1_900_000..2_200_000, 0..LEN] {
            check(&fixture.get("/long", &[&field_of(&span)]), span, LEN, &why);
        }
        for target in ["/small", "/long"] {
            let whole = fixture.get(target, &[]);
            assert!((whole.status, whole.complete) == (200, true) && whole.body == body(LEN), "{why} {target}");
        }
        let several = fixture.get("/long", &["Range: bytes=0-9, 3000000-3000009"]);
        assert_eq!((several.status, several.complete), (206, true), "{why}");
        assert_eq!(fixture.proxy.stats().broken_responses, [0; 5], "{why}");
    }
}

#[test]
fn ranges_of_a_resource_with_differing_tags_are_forwarded_until_all_of_it_is_stored() {
    let fixture = two_servers(Mismatch::Whole);
    let spans: Vec<Range<usize>> = (0..12).map(|number| number * 500_000..number * 500_000 + 500_000).collect();
    for span in &spans {
        check(&fixture.get("/", &[&field_of(span)]), span.clone(), LEN, "first");
    }
    let last = spans.last().unwrap();
    assert_eq!(Some(format!("Range: {}", asked(&fixture).pop().unwrap())), Some(field_of(last)), "the client's own");
    let count = fixture.origin.count();
    assert!(count <= spans.len() + 3, "once it is known, one request each: {count}");
    assert!(fixture.get("/", &[]).body == body(LEN));
    fixture.wait_for_hit("/", &[]);
    for span in &spans {
        check(&fixture.get("/", &[&field_of(span)]), span.clone(), LEN, "stored");
    }
    assert_eq!(fixture.origin.count(), count + 1);
}

#[test]
fn every_gap_is_confirmed_before_a_response_begins() {
    let changed = Arc::new(AtomicUsize::new(usize::MAX));
    let since = Arc::clone(&changed);
    let fixture = Fixture::with(
        move |received, number| {
            let tag = if number < since.load(SeqCst) { "\"a\"" } else { "\"b\"" };
            serve(received, tag, LEN, Mismatch::Whole)
        },
        |config| config.hot_bytes = 0,
    );
    fixture.get("/", &[]);
    fixture.wait_for_hit("/", &[]);
    lose(&fixture, "/", [1, 3, 5]);
    // All gaps are requested at once. The first one is confirmed; for the others, the origin has another tag.
    changed.store(2, SeqCst);
    check(&fixture.get("/", &["Range: bytes=10-5999999"]), 10..6_000_000, LEN, "over three gaps");
    let mut requested = asked(&fixture);
    requested[1..4].sort();
    let gaps = ["bytes=1048576-2097151", "bytes=3145728-4194303", "bytes=5242880-6291455"];
    assert_eq!(requested, [&["all"], &gaps[..], &["bytes=10-5999999"]].concat());
    assert_eq!(fixture.proxy.stats().broken_responses, [0; 5]);
}

#[test]
fn gap_within_a_response_is_requested_again_if_one_server_denies_it() {
    let lost = [1, 3, 5, 7, 9, 11];
    const LEN: usize = 40 * CHUNK;
    let fixture = Fixture::with(
        |received, number| {
            let tag = if number < 4 || number % 2 == 1 { "\"a\"" } else { "\"b\"" };
            serve(received, tag, LEN, Mismatch::Whole)
        },
        |config| config.hot_bytes = 0,
    );
    fixture.get("/", &[]);
    fixture.wait_for_hit("/", &["Range: bytes=0-0"]);
    lose(&fixture, "/", lost);
    let whole = fixture.get("/", &[]);
    assert!(whole.complete && whole.body == body(LEN), "{:?}", asked(&fixture));
    assert_eq!(fixture.proxy.stats().broken_responses, [0; 5]);
}

/// Guards against a running fetch that ends where another one begins, although that one then brings nothing.
#[test]
fn fetch_goes_on_if_one_that_began_within_its_range_brings_nothing() {
    const LEN: usize = 60 * CHUNK;
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, number| match number {
        0 => {
            let fields = ["Cache-Control: max-age=600", "ETag: \"a\"", "Content-Range: bytes 0-52428799/62914560"];
            let head = Reply::head("206 Partial Content", &[&fields[..], &["Content-Length: 52428800"]].concat());
            head.send(&body(LEN)[..CHUNK]).wait(&held).send(&body(LEN)[CHUNK..50 * CHUNK])
        }
        _ => serve(received, "\"b\"", LEN, Mismatch::Whole),
    });
    let mut first = fixture.connect();
    first.send(request_text("GET", "/", &["Range: bytes=0-52428799"]));
    assert_eq!(first.read_head().status, 206);
    assert!(first.read_exact(CHUNK) == body(LEN)[..CHUNK]);
    let within = 40 * CHUNK..41 * CHUNK;
    check(&fixture.get("/", &[&field_of(&within)]), within, LEN, "within");
    gate.open();
    assert!(first.read_exact(49 * CHUNK) == body(LEN)[CHUNK..50 * CHUNK]);
    assert_eq!(fixture.proxy.stats().broken_responses, [0; 5]);
}

#[test]
fn clients_of_one_fetch_get_their_own_ranges_though_servers_disagree() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, number| {
        if number == 0 {
            held.wait();
        }
        serve(received, ["\"a\"", "\"b\""][number % 2], LEN, Mismatch::Refused)
    });
    let address = fixture.proxy.local_addrs()[0];
    let spans = [500_000..2_500_000, 0..10, 3_000_000..5_000_000, CHUNK - 5..CHUNK + 5, 5 * CHUNK..LEN];
    std::thread::scope(|scope| {
        let get = |span: Range<usize>| {
            let part = Connection::open(address).request("GET", "/", &[&field_of(&span)]);
            check(&part, span, LEN, "shared");
        };
        for span in spans {
            scope.spawn(move || get(span));
        }
        eventually("they share a fetch", || fixture.proxy.stats().collapsed_requests == 4);
        gate.open();
    });
    assert_eq!(fixture.proxy.stats().broken_responses, [0; 5]);
}

#[test]
fn request_whose_if_range_names_the_other_tag_gets_the_whole_or_its_range() {
    let fixture = two_servers(Mismatch::Whole);
    for number in 0..6 {
        let target = format!("/{number}");
        let response = fixture.get(&target, &["Range: bytes=2000000-2999999", "If-Range: \"b\""]);
        let expected = match response.status {
            206 => 2_000_000..3_000_000,
            _ => 0..LEN,
        };
        assert!(response.complete && response.body == body(LEN)[expected], "{number} {}", response.status);
        if response.status == 206 {
            assert_eq!(response.field("etag"), Some("\"b\""), "{number}");
        }
    }
    assert_eq!(fixture.proxy.stats().broken_responses, [0; 5]);
}
