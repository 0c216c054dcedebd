//! Tests of the plan: a state and the wants of clients, and what is done about them.

use super::*;
use crate::object::{CursorId, CursorTerms, ProbeEnd, PromiseRule, RunId};
use smallvec::smallvec;

const TERMS: CursorTerms = CursorTerms { may_ask: true, promise: PromiseRule::All };
const SIZES: Sizes = Sizes { chunk: 4, block: 4, cut: u64::MAX, ahead: 8, lead: 8, gap: 2, kept: 0, least: 4 };

/// A state and the wants of clients.
#[derive(Debug)]
struct Case {
    /// A letter per chunk of four bytes: `.` absent, `s` in the store, `?` unknown, `m` in memory. A digit: as many
    /// of its first bytes are in memory.
    chunks: &'static str,
    runs: &'static [Range<u64>],
    /// Wants of clients without a promise.
    new: &'static [Range<u64>],
    /// Wants of clients with a promise.
    promised: &'static [Range<u64>],
    keep: Option<Range<u64>>,
    room: u64,
}

const EMPTY: Case = Case { chunks: "........", runs: &[], new: &[], promised: &[], keep: None, room: u64::MAX };

fn map_of(chunks: &str) -> ChunkMap {
    let mut map = ChunkMap::unprobed(SIZES, chunks.len() as u64 * 4);
    for (place, chunk) in chunks.bytes().zip(0..) {
        if place != b'?' {
            map.begin_probe(chunk);
            map.end_probe(chunk, &if place == b's' { ProbeEnd::Whole } else { ProbeEnd::Absent });
        }
        let held = match place {
            b'm' => 4,
            b'1'..=b'3' => usize::from(place - b'0'),
            _ => 0,
        };
        if held > 0 {
            map.insert(chunk * 4, &bytes::Bytes::from_static(&b"abcd"[..held]));
        }
    }
    map
}

fn cursors_of(case: &Case) -> Vec<Cursor> {
    let wants = case.new.iter().map(|span| (span, false)).chain(case.promised.iter().map(|span| (span, true)));
    let cursor = |((span, is_promised), id): ((&Range<u64>, bool), u32)| {
        let mut cursor = Cursor::new(CursorId(id), smallvec![span.clone()], TERMS, Tick(0));
        cursor.is_promised = is_promised;
        cursor
    };
    wants.zip(0..).map(cursor).collect()
}

fn planned(case: &Case) -> Plan {
    let map = map_of(case.chunks);
    let runs: Vec<OriginRun> =
        case.runs.iter().zip(0..).map(|(span, id)| OriginRun::open(RunId(id), span.clone())).collect();
    let cursors = cursors_of(case);
    plan(&View {
        sizes: SIZES,
        map: &map,
        runs: &runs,
        cursors: &cursors,
        keep: case.keep.clone(),
        now: Tick(0),
        is_storing: true,
        is_divisible: true,
        may_ask: true,
        may_read: true,
        reach: SIZES.ahead,
        room: case.room,
    })
}

fn spans_of(plan: &Plan, len: u64) -> Vec<Range<u64>> {
    let span = |ask: &OriginAsk| match ask {
        OriginAsk::Whole => 0..len,
        OriginAsk::Range { span, .. } => span.clone(),
    };
    plan.asks.iter().map(span).collect()
}

#[test]
fn requests_cover_what_is_neither_present_nor_coming() {
    let cases: [(Case, &[Range<u64>]); 14] = [
        (Case { new: &[0..32], ..EMPTY }, &[0..32]),
        // The client's whole span, in chunks.
        (Case { new: &[5..15], ..EMPTY }, &[4..16]),
        (Case { chunks: "s..m....", new: &[2..20], ..EMPTY }, &[4..12, 16..20]),
        // More than three gaps are one.
        (Case { chunks: ".s.s.s.s", new: &[0..28], ..EMPTY }, &[0..28]),
        (Case { chunks: ".s.s.sss", new: &[0..28], ..EMPTY }, &[0..4, 8..12, 16..20]),
        // Not before all chunks are probed.
        (Case { chunks: "..?.....", new: &[0..32], ..EMPTY }, &[]),
        // What a run will bring soon is not requested; what it would bring late is.
        (Case { runs: &[0..32], new: &[8..32], ..EMPTY }, &[]),
        (Case { runs: &[0..32], new: &[12..32], ..EMPTY }, &[12..32]),
        // Up to what another run brings.
        (Case { runs: &[20..32], new: &[4..32], ..EMPTY }, &[4..20]),
        // Two clients share one request, unless one of them would wait for long.
        (Case { new: &[0..16, 8..24], ..EMPTY }, &[0..24]),
        (Case { new: &[0..16, 12..24], ..EMPTY }, &[0..12, 12..24]),
        // With a promise: the next gap, when the client comes near.
        (Case { chunks: "s.s....s", promised: &[0..32], ..EMPTY }, &[4..8]),
        (Case { chunks: "sss....s", promised: &[0..32], ..EMPTY }, &[]),
        // Nothing ahead while memory has no room for it.
        (Case { chunks: "s.s....s", promised: &[0..32], room: 7, ..EMPTY }, &[]),
    ];
    for (case, expected) in cases {
        assert_eq!(spans_of(&planned(&case), 32), expected, "{case:?}");
    }
}

#[test]
fn what_the_cache_keeps_is_probed_and_requested() {
    let unknown = Case { chunks: "s.?.", keep: Some(0..16), ..EMPTY };
    assert_eq!(planned(&unknown).probes.as_slice(), [2]);
    let known = Case { chunks: "s.s.", keep: Some(0..16), ..EMPTY };
    assert_eq!(spans_of(&planned(&known), 16), [4..8]);
}

#[test]
fn store_is_probed_before_a_promise_and_read_after_it() {
    let unknown = planned(&Case { chunks: "s?.?ssss", new: &[0..16], ..EMPTY });
    assert_eq!((unknown.probes.as_slice(), unknown.reads.as_slice()), ([1, 3].as_slice(), [].as_slice()));
    let known = planned(&Case { chunks: "ssssssss", promised: &[0..32], ..EMPTY });
    assert_eq!(known.reads.as_slice(), [0..4, 4..8]);
}

#[test]
fn next_chunk_of_each_client_is_read_before_what_follows() {
    let four = Case { chunks: "ssssssss", promised: &[0..32, 12..32, 24..32], ..EMPTY };
    assert_eq!(planned(&four).reads.as_slice(), [0..4, 12..16, 24..28, 4..8]);
    assert_eq!(planned(&Case { room: 8, ..four }).reads.as_slice(), [0..4, 12..16]);
}

#[test]
fn one_chunk_is_read_even_if_the_share_is_smaller() {
    let short = Case { chunks: "ssss", promised: &[0..16], room: 1, ..EMPTY };
    assert_eq!(planned(&short).reads.as_slice(), [0..4]);
    let fed_by_a_run = Case { chunks: ".sss", runs: &[0..4], ..short };
    assert_eq!(planned(&fed_by_a_run).reads.as_slice(), []);
    // Nothing of what is in memory can be read again, so nothing is dropped for the read.
    let held = Case { chunks: "ssms", promised: &[0..16], room: 1, ..EMPTY };
    assert_eq!(planned(&held).reads.as_slice(), [0..4]);
}

#[test]
fn run_goes_on_while_a_client_is_near_behind_it() {
    let cases: [(Case, &[Verdict]); 9] = [
        (Case { runs: &[4..32], promised: &[0..32], chunks: "m.......", ..EMPTY }, &[Verdict::Go]),
        (Case { runs: &[8..32], promised: &[0..32], chunks: "mm......", ..EMPTY }, &[Verdict::Hold]),
        (Case { runs: &[8..32], promised: &[0..32], keep: Some(0..32), chunks: "mm......", ..EMPTY }, &[Verdict::Go]),
        (Case { runs: &[8..32], promised: &[0..32, 4..32], chunks: "mm......", ..EMPTY }, &[Verdict::Go]),
        (Case { runs: &[4..32], promised: &[0..32], room: 4, chunks: "m.......", ..EMPTY }, &[Verdict::Hold]),
        (Case { runs: &[4..32], ..EMPTY }, &[Verdict::Unwanted { goes_on: false }]),
        (Case { runs: &[6..32], ..EMPTY }, &[Verdict::Unwanted { goes_on: true }]),
        // All has come but the end, which nobody awaits.
        (Case { runs: &[8..8], ..EMPTY }, &[Verdict::Unwanted { goes_on: true }]),
        // What the run would bring next is present.
        (Case { runs: &[4..32], promised: &[0..32], chunks: "ms......", ..EMPTY }, &[Verdict::Stop]),
    ];
    for (case, expected) in cases {
        assert_eq!(planned(&case).verdicts.as_slice(), expected, "{case:?}");
    }
}

// Otherwise memory fills with parts of chunks, none is completed, and the body is not stored.
#[test]
fn runs_that_need_the_least_complete_their_chunks_although_memory_is_used_up() {
    let wants: &[Range<u64>] = &[0..4, 8..12, 16..20];
    let full = Case { chunks: "1.1.3...", runs: &[1..4, 9..12, 19..20], promised: wants, room: 5, ..EMPTY };
    assert_eq!(planned(&full).verdicts.as_slice(), [Verdict::Go, Verdict::Hold, Verdict::Go]);
    // The room has become smaller than what is held.
    let shrunk = Case { chunks: "1.1.3mmm", room: 4, ..full };
    assert_eq!(planned(&shrunk).verdicts.as_slice(), [Verdict::Hold, Verdict::Hold, Verdict::Go]);
}

#[test]
fn run_that_reaches_another_one_is_stopped() {
    let behind = Case { runs: &[8..32, 8..20], promised: &[0..32], chunks: "mm......", ..EMPTY };
    assert_eq!(planned(&behind).verdicts[1], Verdict::Stop);
    assert_ne!(planned(&behind).verdicts[0], Verdict::Stop);
}
