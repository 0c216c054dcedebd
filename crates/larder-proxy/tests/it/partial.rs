//! Parts of bodies that are not stored completely: kept, served again, completed (RFC 9111 3.3, 3.4).

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::support::{Connection, Fixture, Gate, Received, Reply, eventually};

const CHUNK: usize = 1 << 20;

/// Returns the bytes of a version of a body.
fn bytes_of(version: usize, span: Range<usize>) -> Vec<u8> {
    span.map(|at| (at / 251 + at % 241 + version * 7) as u8).collect()
}

/// Answers range requests for a body of `len` bytes, and adds each span it sends to `sent`.
fn ranges(received: &Received, len: usize, version: usize, sent: &Mutex<Vec<Range<usize>>>) -> Reply {
    let tag = format!("\"v{version}\"");
    let fields = ["Cache-Control: max-age=60".to_owned(), format!("ETag: {tag}")];
    let holds = received.field("if-range").is_none_or(|asked| asked == tag);
    let range = received.field("range").and_then(|range| range.strip_prefix("bytes=")).filter(|_| holds);
    let span = match range.and_then(|range| range.split_once('-')) {
        None => 0..len,
        Some(("", suffix)) => len - suffix.parse::<usize>().unwrap().min(len)..len,
        Some((first, "")) => first.parse().unwrap()..len,
        Some((first, last)) => first.parse().unwrap()..(last.parse::<usize>().unwrap() + 1).min(len),
    };
    if span.is_empty() {
        return Reply::status("416 Range Not Satisfiable", &[&format!("Content-Range: bytes */{len}")], "");
    }
    sent.lock().unwrap().push(span.clone());
    let content_range = format!("Content-Range: bytes {}-{}/{len}", span.start, span.end - 1);
    let mut lines: Vec<&str> = fields.iter().map(String::as_str).collect();
    if range.is_some() {
        lines.push(&content_range);
    }
    Reply::status(if range.is_some() { "206 Partial Content" } else { "200 OK" }, &lines, bytes_of(version, span))
}

type Sent = Arc<Mutex<Vec<Range<usize>>>>;

/// Starts a proxy in front of a body whose version can be changed.
fn fixture_of(len: usize) -> (Fixture, Sent, Arc<AtomicUsize>) {
    let sent = Sent::default();
    let version = Arc::new(AtomicUsize::new(1));
    let keeping = Arc::clone(&sent);
    let now = Arc::clone(&version);
    let fixture = Fixture::new(move |received, _| ranges(received, len, now.load(Ordering::SeqCst), &keeping));
    (fixture, sent, version)
}

#[test]
fn stored_part_answers_its_own_range_and_those_inside_it() {
    let (fixture, sent, _) = fixture_of(10);
    let first = fixture.get("/", &["Range: bytes=-5"]);
    assert_eq!((first.status, first.field("content-range")), (206, Some("bytes 5-9/10")));
    assert_eq!(first.body, bytes_of(1, 5..10));
    assert_eq!(fixture.origin.received()[0].field("range"), Some("bytes=-5"));
    for (range, span) in [("-5", 5..10), ("6-8", 6..9), ("6-", 6..10), ("-1", 9..10)] {
        let inside = fixture.get("/", &[&format!("Range: bytes={range}")]);
        assert_eq!((inside.status, inside.is_hit(), inside.body), (206, true, bytes_of(1, span)), "{range}");
    }
    assert!(sent.lock().unwrap().iter().eq(&[Range { start: 5, end: 10 }]), "the origin was asked once");
}

#[test]
fn stored_part_is_completed_by_asking_for_the_rest() {
    let (fixture, sent, _) = fixture_of(10);
    for target in ["/head", "/tail"] {
        sent.lock().unwrap().clear();
        let range = if target == "/head" { "Range: bytes=0-4" } else { "Range: bytes=-4" };
        // The proxy requests a whole chunk; this origin sends only the range that the client requested.
        fixture.get(target, &[range]);
        let whole = fixture.get(target, &[]);
        assert_eq!((whole.status, whole.body), (200, bytes_of(1, 0..10)));
        let hit = fixture.get(target, &[]);
        assert_eq!((hit.status, hit.is_hit(), hit.body), (200, true, bytes_of(1, 0..10)));
        let sent = sent.lock().unwrap();
        assert_eq!(sent.iter().map(Range::len).sum::<usize>(), 10, "no byte twice: {sent:?}");
    }
    let rest = fixture.origin.received().pop().unwrap();
    assert_eq!((rest.field("range"), rest.field("if-range")), (Some("bytes=0-5"), Some("\"v1\"")));
}

#[test]
fn parallel_ranges_of_a_long_body_fetch_their_chunks_once() {
    let len = 24 * CHUNK + 12_345;
    let (fixture, sent, _) = fixture_of(len);
    let address = fixture.proxy.local_addrs()[0];
    let asked: Vec<Range<usize>> = (0..16)
        .map(|number: usize| {
            let start = number * 7_654_321 % (len - CHUNK / 2);
            start..(start + 1 + number * 31_013).min(len)
        })
        .collect();
    // The first request stores the head; then all others are sent at once.
    let get = move |span: &Range<usize>| {
        let range = format!("Range: bytes={}-{}", span.start, span.end - 1);
        let response = Connection::open(address).request("GET", "/big", &[&range]);
        assert_eq!((response.status, response.complete), (206, true), "{span:?}");
        assert!(response.body == bytes_of(1, span.clone()), "{span:?}");
    };
    get(&asked[0]);
    std::thread::scope(|scope| {
        for span in &asked {
            scope.spawn(move || get(span));
        }
    });
    let mut chunks: Vec<usize> = asked.iter().flat_map(|span| span.start / CHUNK..=(span.end - 1) / CHUNK).collect();
    chunks.sort_unstable();
    chunks.dedup();
    // One request may fetch several adjacent chunks.
    let sent_chunks = |span: &Range<usize>| span.start / CHUNK..span.end.div_ceil(CHUNK);
    let mut fetched: Vec<usize> = sent.lock().unwrap().iter().flat_map(sent_chunks).collect();
    fetched.sort_unstable();
    assert_eq!(fetched, chunks, "each asked chunk once, and no other");
    let several = fixture.get("/big", &["Range: bytes=0-9, 20000000-20000009, -10"]);
    assert_eq!((several.status, several.complete), (206, true));
    assert!(several.field("content-type").is_some_and(|kind| kind.starts_with("multipart/byteranges")));
    for span in [0..10, 20_000_000..20_000_010, len - 10..len] {
        let part = bytes_of(1, span);
        assert!(several.body.windows(10).any(|window| window == part));
    }
}

#[test]
fn changed_body_is_never_mixed_with_its_older_parts() {
    let (fixture, _, version) = fixture_of(4 * CHUNK);
    fixture.get("/", &["Range: bytes=0-9"]);
    fixture.get("/", &["Range: bytes=2097152-2097161"]);
    version.store(2, Ordering::SeqCst);
    let stored = fixture.get("/", &["Range: bytes=5-9"]);
    assert_eq!(stored.body, bytes_of(1, 5..10), "what is fresh is served");
    // A missing part reveals the change: the response is broken off, and the stored parts are removed.
    let missing = fixture.connect().try_request_with("GET", "/", &["Range: bytes=1048570-1048589"]);
    assert!(missing.is_none_or(|response| !response.complete || response.body == bytes_of(2, 1_048_570..1_048_590)));
    eventually("the new body is served", || {
        fixture.get("/", &["Range: bytes=1048570-1048589"]).body == bytes_of(2, 1_048_570..1_048_590)
    });
    assert_eq!(fixture.get("/", &["Range: bytes=0-9"]).body, bytes_of(2, 0..10));
}

#[test]
fn part_without_a_strong_validator_answers_what_is_in_it_and_is_never_put_together() {
    let weak = ["ETag: W/\"a\"", "Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT", "X-None: 1"];
    for (number, validator) in weak.into_iter().enumerate() {
        let fixture = Fixture::new(move |received, _| {
            let fields = ["Cache-Control: max-age=60", validator];
            match received.field("range") {
                Some("bytes=-5") => Reply::status(
                    "206 Partial Content",
                    &[&fields[..], &["Content-Range: bytes 5-9/10"]].concat(),
                    "56789",
                ),
                Some(_) => Reply::ok(&fields, "whatever else"),
                None => Reply::ok(&fields, "9876543210"),
            }
        });
        let part = fixture.get("/", &["Range: bytes=-5"]);
        assert_eq!((part.status, part.text().as_str(), part.is_hit()), (206, "56789", false));
        for (range, expected) in [("bytes=-5", "56789"), ("bytes=6-8", "678"), ("bytes=6-", "6789"), ("bytes=-1", "9")]
        {
            let within = fixture.get_hit("/", &[&format!("Range: {range}")]);
            assert_eq!((within.status, within.text().as_str()), (206, expected), "{range}");
        }
        assert_eq!(fixture.get("/", &["Range: bytes=-5", "Cache-Control: only-if-cached"]).status, 206);
        assert_eq!(fixture.get("/", &["Cache-Control: only-if-cached"]).status, 504);
        let other = fixture.get("/", &["Range: bytes=4-9"]);
        assert!(!other.is_hit() && other.text() == "ever e", "{validator}: {other:?}");
        let whole = fixture.get(&format!("/{number}"), &[]);
        assert_eq!((whole.status, whole.text().as_str()), (200, "9876543210"));
    }
}

#[test]
fn only_if_cached_gets_what_is_stored_of_a_part_and_nothing_else() {
    let (fixture, ..) = fixture_of(4 * CHUNK);
    let stored = format!("Range: bytes=0-{}", CHUNK - 1);
    let beyond = format!("Range: bytes={CHUNK}-{}", CHUNK + 9);
    fixture.get("/", &[&stored]);
    fixture.get_hit("/", &[&stored]);
    let count = fixture.origin.count();
    let only = "Cache-Control: only-if-cached";
    for (fields, status) in [(&[&*stored, only][..], 206), (&[&*beyond, only], 504), (&[only], 504)] {
        assert_eq!(fixture.get("/", fields).status, status, "{fields:?}");
    }
    assert_eq!(fixture.origin.count(), count);
    assert_eq!(fixture.get("/", &[&beyond]).status, 206);
}

#[test]
fn those_who_wait_for_a_part_that_cannot_be_completed_ask_for_what_they_want() {
    let gate = Gate::default();
    let held = gate.clone();
    let fixture = Fixture::new(move |received, _| match received.field("range") {
        Some("bytes=-5") => {
            let head = "HTTP/1.1 206 Partial Content\r\nCache-Control: max-age=60\r\nContent-Range: bytes 5-9/10\r\n";
            Reply::default().wait(&held).send(format!("{head}Content-Length: 5\r\n\r\n56789"))
        }
        _ => Reply::ok(&["Cache-Control: no-store"], "0123456789"),
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| fixture.get("/", &["Range: bytes=-5"]));
        eventually("the part is asked for", || fixture.origin.count() == 1);
        let whole = scope.spawn(|| fixture.get("/", &[]));
        let within = scope.spawn(|| fixture.get("/", &["Range: bytes=7-8"]));
        eventually("the others wait", || fixture.proxy.stats().collapsed_requests == 2);
        gate.open();
        assert_eq!(first.join().unwrap().text(), "56789");
        assert_eq!(whole.join().unwrap().text(), "0123456789");
        assert_eq!(within.join().unwrap().text(), "78");
    });
}

#[test]
fn part_whose_range_disagrees_with_its_length_is_not_kept() {
    let fixture = Fixture::new(|_, _| {
        Reply::status(
            "206 Partial Content",
            &["Cache-Control: max-age=60", "Content-Range: bytes 4-9/10", "ETag: \"a\""],
            "56789",
        )
    });
    fixture.get("/", &["Range: bytes=-5"]);
    assert!(!fixture.get("/", &["Range: bytes=-5"]).is_hit());
}

#[test]
fn broken_off_part_is_not_kept() {
    let fixture = Fixture::new(|_, number| {
        let fields = ["Cache-Control: max-age=60", "Content-Range: bytes 5-9/10", "Content-Length: 5", "ETag: \"a\""];
        let head = Reply::head("206 Partial Content", &fields);
        if number == 0 { head.send("56").close() } else { head.send("56789") }
    });
    // A client that has no bytes yet gets the origin's response to a request of its own.
    let first = fixture.get("/", &["Range: bytes=-5"]);
    assert!(!first.complete || first.text() == "56789", "{first:?}");
    let again = fixture.get("/", &["Range: bytes=-5"]);
    assert_eq!((again.is_hit(), again.text().as_str()), (false, "56789"));
}

#[test]
fn condition_reaches_the_origin_where_nothing_is_stored() {
    let fixture = Fixture::new(|received, _| match received.field("if-none-match") {
        Some("\"a\"") => Reply::status("304 Not Modified", &["ETag: \"a\"", "Cache-Control: max-age=60"], ""),
        _ => Reply::ok(&["ETag: \"a\"", "Cache-Control: max-age=60"], "hello"),
    });
    for _ in 0..2 {
        assert_eq!(fixture.get("/", &["If-None-Match: \"a\""]).status, 304);
    }
    assert_eq!(fixture.origin.received()[0].field("if-none-match"), Some("\"a\""));
    assert_eq!(fixture.origin.count(), 2, "a 304 is nothing to store");
    assert_eq!(fixture.get("/", &[]).text(), "hello");
    let hit = fixture.get("/", &["If-None-Match: \"a\""]);
    assert_eq!((hit.status, hit.is_hit()), (304, true));
    assert_eq!(fixture.origin.count(), 3);
    let other = fixture.get("/other", &["If-None-Match: bare"]);
    assert_eq!((other.status, fixture.origin.received()[3].field("if-none-match")), (200, Some("bare")));
}
