//! Finds the segments in use and their order at the start of a store.
//!
//! A checkpoint's root lists all segments of each generation in the order of their next use. Only segments that may
//! have been begun since are probed, from the front of that list. The probe stops after a number of consecutive
//! unchanged segments, which the root gives: no crash can hide a changed segment behind that many. Without a root,
//! every segment is probed. Each probe reads the header of the segment's first unit and its trailer, and the newer of
//! the two counts, because the first unit may have failed to be written. If neither is readable, the root's entry
//! counts.
//!
//! Invariants:
//! - A segment whose use had ended when a newer use began does not count, even if the write that shows this was lost.
//!   Otherwise entries would come back that a lost tombstone had removed.
//! - If a header is certainly damaged and nothing else dates the segment's last use, no segment counts: that use may
//!   have removed anything.
//! - If the superblock vouches for a segment that is not found and whose use had not ended, the segment was erased, and
//!   nothing older counts.
//!
//! Cost: two blocks read per probed segment.

use super::{LogEngine, layout::unknown_count_max, listing::read_blocks};
use crate::{
    format::{
        SegmentRow, SegmentUse,
        checkpoint::{CheckpointRoot, ListedSegment},
        trailer::TrailerFooter,
        unit::UnitHeader,
    },
    units::{BLOCK_BYTES, SegmentId},
    volume::counters::add,
};
use futures_util::{StreamExt, future::join, stream};

/// Number of segments that are read at the same time.
const DEPTH: usize = 64;
/// Maximum number of segments that an earlier run can have skipped in the order of use. Each run sets one segment aside
/// for buffered records before its first reclaim, and another one after it.
const PASSED_OVER: usize = 2;

/// The segments that were found when the store started.
pub(super) struct DiscoveredSegments {
    /// Segments that are not in use, in the order of their next use.
    pub(super) free: Vec<SegmentId>,
    /// Segments in use, oldest first.
    pub(super) used: Vec<(SegmentId, SegmentUse)>,
    /// The greatest sequence that any segment may have had.
    pub(super) last_sequence: u32,
    /// All sequences that were found, in ascending order. Includes the sequences of segment uses that have ended.
    pub(super) sequences: Vec<u32>,
    /// Sequence of the newest main segment that was erased; 0 if none was. Entries in it and in all older segments are
    /// ignored.
    pub(super) void_through: u32,
}

/// The part of a segment from which its last use is known.
#[derive(Clone, Copy)]
enum SegmentEvidence {
    /// The header of the segment's first unit shows the last use. The trailer is older or missing.
    Unit(UnitHeader),
    /// The trailer shows the last use. The header of the first unit is older or unreadable.
    Trailer(SegmentUse),
    /// Neither a header nor a trailer is readable.
    Nothing,
}

/// The result of reading one segment.
#[derive(Clone, Copy)]
struct ProbedSegment {
    shown: SegmentEvidence,
    /// Whether the header of the first unit exists but is damaged.
    is_damaged: bool,
}

/// Finds the last use of every segment. Does not read segments whose use is known from `root`, the root of the last
/// checkpoint.
pub(super) async fn discover(engine: &LogEngine, root: Option<&CheckpointRoot>) -> DiscoveredSegments {
    let listed: Vec<(SegmentId, SegmentUse)> = match root {
        Some(root) => listed_by(root),
        None => engine.geometry.segments().map(|segment| (segment, SegmentUse::default())).collect(),
    };
    let newest_listed = listed.iter().map(|(_, of)| of.sequence).max().unwrap_or(0);
    let window = if root.is_some() { unknown_count_max(&engine.geometry) as usize + PASSED_OVER } else { usize::MAX };
    let mut search = SegmentSearch {
        engine,
        newest_listed,
        window,
        known: Vec::new(),
        damaged: Vec::new(),
        oldest: OldestUse { main: 0, probation: 0 },
        is_any_blank: false,
    };
    // They are reused in the order of the list: the free ones first, then those of either generation in turn.
    let (free, used): (Vec<_>, Vec<_>) = listed.into_iter().partition(|(_, of)| of.sequence == 0);
    let is_main = |(_, of): &(SegmentId, SegmentUse)| of.generation() == SegmentRow::Main;
    let (main, probation): (Vec<_>, Vec<_>) = used.into_iter().partition(is_main);
    let unchanged = search.go_over(&free, 0).await;
    search.go_over(&main, unchanged).await;
    search.go_over(&probation, unchanged).await;
    let SegmentSearch { known, damaged, mut oldest, is_any_blank, .. } = search;
    let mut sequences: Vec<u32> = known.iter().map(|(_, of)| of.sequence).filter(|&sequence| sequence > 0).collect();
    sequences.sort_unstable();
    let stamp = root.map_or(0, |root| root.stamp);
    let written = engine.volume.superblock().written.clone();
    let last_sequence = sequences.last().copied().unwrap_or(0).max(stamp).max(written.last());
    // With two generations, the generation of a missing sequence is unknown: its use may have ended and been
    // overwritten. Only a segment without any use then shows that one was erased.
    let can_miss = is_any_blank || !engine.volume.shape.has_probation();
    let missing = written.newest_missing(&sequences, oldest.main.max(stamp + 1)).filter(|_| can_miss);
    if let Some(missing) = missing {
        let place = "a segment of the store was erased, and may have held removals: nothing older is believed";
        tracing::error!(sequence = missing, "{place}");
        add(&engine.volume.counters.corrupt, 1);
    }
    let void_through = missing.unwrap_or(0).max(written.void_through);
    if is_anything_lost(&known, oldest, &damaged) {
        tracing::error!("a segment of the store is damaged, and removals in it may be lost: the store starts empty");
        oldest = OldestUse { main: u32::MAX, probation: u32::MAX };
    }
    let counts = |of: SegmentUse| is_in_use(of, oldest) && of.order() > SegmentUse::main(void_through).order();
    let (mut used, free): (Vec<_>, Vec<_>) = known.into_iter().partition(|&(_, of)| counts(of));
    used.sort_by_key(|(_, of)| of.order());
    let free = free.into_iter().map(|(segment, _)| segment).collect();
    DiscoveredSegments { free, used, last_sequence, sequences, void_through }
}

/// Returns the segments that `root` lists in their order of use: those in use are listed from the oldest to the newest.
/// The root does not contain anchors. The anchor of a probation segment is the next main segment in this order, or the
/// segment itself if there is none.
fn listed_by(root: &CheckpointRoot) -> Vec<(SegmentId, SegmentUse)> {
    let mut next_main = None;
    let mut listed: Vec<_> = root
        .segments
        .iter()
        .rev()
        .map(|&ListedSegment { segment, sequence, is_probation, .. }| {
            let anchor = if is_probation { next_main.unwrap_or(sequence) } else { 0 };
            if !is_probation && sequence > 0 {
                next_main = Some(sequence);
            }
            (segment, SegmentUse { sequence, anchor })
        })
        .collect();
    listed.reverse();
    listed
}

/// The state of the search for the last uses of segments.
struct SegmentSearch<'a> {
    engine: &'a LogEngine,
    /// The greatest sequence in the checkpoint's root.
    newest_listed: u32,
    /// The search through a list ends after this number of consecutive unchanged segments.
    window: usize,
    known: Vec<(SegmentId, SegmentUse)>,
    /// Last known uses of the segments with a damaged header.
    damaged: Vec<SegmentUse>,
    oldest: OldestUse,
    /// Whether any segment is blank: it shows neither a use nor remains of an earlier use.
    is_any_blank: bool,
}

/// For each generation, the sequence of the oldest use that has not ended.
#[derive(Clone, Copy)]
struct OldestUse {
    main: u32,
    probation: u32,
}

impl SegmentSearch<'_> {
    /// Searches the segments of a list in the order of their next use. `unchanged` is the number of consecutive
    /// unchanged segments just before the list. Returns the number of consecutive unchanged segments just before the
    /// place where the search ended.
    async fn go_over(&mut self, listed: &[(SegmentId, SegmentUse)], mut unchanged: usize) -> usize {
        let mut probes = stream::iter(listed).map(|(segment, _)| probe(self.engine, *segment)).buffered(DEPTH);
        let mut looked_at = 0;
        while unchanged < self.window {
            let Some(ProbedSegment { shown, is_damaged }) = probes.next().await else { break };
            let (segment, listed_use) = listed[looked_at];
            looked_at += 1;
            let (of, is_as_listed) = match shown {
                SegmentEvidence::Unit(unit) if unit.sequence > self.newest_listed => {
                    let probation = unit.generations.map_or(0, |generations| generations.oldest_probation);
                    self.oldest.main = self.oldest.main.max(unit.oldest_sequence);
                    self.oldest.probation = self.oldest.probation.max(probation);
                    (unit.segment_use(), false)
                }
                SegmentEvidence::Unit(_) => (listed_use, true),
                SegmentEvidence::Trailer(of) if of.sequence > self.newest_listed => (of, false),
                SegmentEvidence::Trailer(_) => (listed_use, false),
                // Never begun, or begun and torn or damaged: the remains of the listed use are still recognized by its
                // sequence.
                SegmentEvidence::Nothing => (listed_use, listed_use.sequence == 0),
            };
            self.is_any_blank |= matches!(shown, SegmentEvidence::Nothing) && !is_damaged;
            unchanged = if is_as_listed { unchanged + 1 } else { 0 };
            if is_damaged {
                self.damaged.push(of);
            }
            self.known.push((segment, of));
        }
        drop(probes);
        self.known.extend_from_slice(&listed[looked_at..]);
        assert!(self.known.len() >= listed.len(), "every listed segment is known");
        unchanged
    }
}

fn is_in_use(of: SegmentUse, oldest: OldestUse) -> bool {
    let oldest = match of.generation() {
        SegmentRow::Main => oldest.main,
        SegmentRow::Probation => oldest.probation,
    };
    of.sequence > 0 && of.sequence >= oldest
}

/// Returns whether the last use of a damaged segment cannot be determined: no use of it is known, or it may have been
/// reused since its known use. A segment cannot have been reused while an older one is in use, because each generation
/// reuses its oldest segment first.
fn is_anything_lost(known: &[(SegmentId, SegmentUse)], oldest: OldestUse, damaged: &[SegmentUse]) -> bool {
    let is_unknown = |damaged: &SegmentUse| {
        let alike = known.iter().map(|&(_, of)| of).filter(|of| of.generation() == damaged.generation());
        let oldest_used = alike.filter(|&of| is_in_use(of, oldest)).map(|of| of.sequence).min();
        oldest_used.is_none_or(|oldest_used| damaged.sequence <= oldest_used)
    };
    damaged.iter().any(is_unknown)
}

/// Reads the parts of `segment` that show its last use. The header of its first unit is the first block that a new use
/// writes.
async fn probe(engine: &LogEngine, segment: SegmentId) -> ProbedSegment {
    let geometry = &engine.geometry;
    let id = engine.volume.id;
    let first = read_blocks(engine, geometry.segment_start_bytes(segment), BLOCK_BYTES);
    let last = read_blocks(engine, geometry.segment_end_bytes(segment) - BLOCK_BYTES, BLOCK_BYTES);
    let (first, last) = join(first, last).await;
    let unit = first.as_ref().and_then(|first| UnitHeader::decode_mended(id, geometry, first));
    let unit = unit.filter(|unit| unit.segment == segment && unit.number == 0);
    let trailer =
        last.and_then(|last| TrailerFooter::decode(id, geometry, segment, &last)).map(|footer| footer.segment_use());
    let is_damaged = unit.is_none() && first.is_none_or(|first| UnitHeader::is_damaged(id, geometry, &first));
    let shown = match (unit, trailer) {
        (Some(unit), trailer) if trailer.is_none_or(|trailer| trailer.sequence <= unit.sequence) => {
            SegmentEvidence::Unit(unit)
        }
        (_, Some(trailer)) => SegmentEvidence::Trailer(trailer),
        (_, None) => SegmentEvidence::Nothing,
    };
    ProbedSegment { shown, is_damaged }
}
