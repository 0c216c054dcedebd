//! Which segments are in use, and since when: the first thing a start finds out.
//!
//! A checkpoint's root lists all segments in the order of their next use, so only those are looked at that may
//! have been begun since: from the front of that order, until so many in a row are as the root says that no
//! crash can have hidden one behind them. Without a root every segment is looked at. Of the header of a segment's first
//! unit and its trailer the newer rules (the first unit may be the one that could not be written); where there is neither, the root. Invariants: segments whose use was over when a newer
//! one began do not count, even where the write that would have shown it was lost (else what a lost tombstone buried
//! would come back); where a header is certainly damaged and nothing else tells what the segment's last use is, no
//! segment counts, because that use may have removed anything. Cost: two blocks read per segment looked at.

use super::{LogEngine, layout::unsynced_count_max, listing::read_blocks};
use crate::{
    format::{
        checkpoint::{Root, SegmentState},
        trailer::Footer,
        unit::UnitHeader,
    },
    units::{BLOCK_BYTES, SegmentId},
};
use futures_util::{StreamExt, future::join, stream};

/// Segments looked at together.
const DEPTH: usize = 64;

/// What is known of the segments.
pub(super) struct Discovered {
    /// Those not in use, in the order of their next use.
    pub(super) free: Vec<SegmentId>,
    /// Those in use with their sequences, oldest first.
    pub(super) used: Vec<(SegmentId, u32)>,
    /// The greatest sequence that may have been in use.
    pub(super) last_sequence: u32,
}

/// What a segment shows of its last use.
#[derive(Clone, Copy)]
enum Shown {
    /// The header of its first unit, and no newer trailer.
    Unit(UnitHeader),
    /// A trailer of this sequence, and no header that is as new.
    Trailer(u32),
    /// Neither.
    Nothing,
}

/// What was looked at of a segment.
#[derive(Clone, Copy)]
struct Probed {
    shown: Shown,
    /// Whether there was a first header that can no longer be read.
    is_damaged: bool,
}

/// Finds out about all segments; what `root` knows need not be looked at.
pub(super) async fn discover(engine: &LogEngine, root: Option<&Root>) -> Discovered {
    let unknown = |segment| SegmentState { segment, sequence: 0, deadlines: (0, 0) };
    let listed: Vec<_> = match root {
        Some(root) => root.segments.clone(),
        None => engine.geometry.segments().map(unknown).collect(),
    };
    let newest_listed = listed.iter().map(|state| state.sequence).max().unwrap_or(0);
    let window = unsynced_count_max(&engine.geometry) as usize + 1;
    let (mut known, mut damaged) = (Vec::with_capacity(listed.len()), Vec::new());
    let (mut unchanged, mut oldest) = (0, 0);
    let mut probes = stream::iter(&listed).map(|state| probe(engine, state.segment)).buffered(DEPTH);
    while known.len() < listed.len() && (root.is_none() || unchanged < window) {
        let Some(Probed { shown, is_damaged }) = probes.next().await else { break };
        let state = listed[known.len()];
        let (sequence, is_as_listed) = match shown {
            Shown::Unit(unit) if unit.sequence > newest_listed => {
                oldest = oldest.max(unit.oldest_sequence);
                (unit.sequence, false)
            }
            Shown::Unit(_) => (state.sequence, true),
            Shown::Trailer(sequence) if sequence > newest_listed => (sequence, false),
            Shown::Trailer(_) => (state.sequence, false),
            // Never begun; or begun and torn, or damaged: what is left of the use that is listed is known by its
            // sequence all the same.
            Shown::Nothing => (state.sequence, state.sequence == 0),
        };
        unchanged = if is_as_listed { unchanged + 1 } else { 0 };
        if is_damaged {
            damaged.push(sequence);
        }
        known.push((state.segment, sequence));
    }
    known.extend(listed[known.len()..].iter().map(|state| (state.segment, state.sequence)));
    let last_sequence =
        known.iter().map(|&(_, sequence)| sequence).chain(root.map(|root| root.stamp)).max().unwrap_or(0);
    if is_anything_lost(&known, oldest, &damaged) {
        tracing::error!("a segment of the store is damaged, and may have held removals: the store starts empty");
        oldest = u32::MAX;
    }
    let (mut used, free): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|&(_, sequence)| sequence > 0 && sequence >= oldest);
    used.sort_by_key(|&(_, sequence)| sequence);
    Discovered { free: free.into_iter().map(|(segment, _)| segment).collect(), used, last_sequence }
}

/// Whether the last use of a segment with a damaged header is not known: none is told, or it may have been begun
/// again since. It was not as long as an older one is in use, for segments are used again oldest first.
fn is_anything_lost(known: &[(SegmentId, u32)], oldest: u32, damaged: &[u32]) -> bool {
    let used = known.iter().map(|&(_, sequence)| sequence).filter(|&sequence| sequence > 0 && sequence >= oldest);
    let oldest_used = used.min();
    damaged.iter().any(|&sequence| oldest_used.is_none_or(|oldest_used| sequence <= oldest_used))
}

/// What a segment shows of its last use. The header of the first unit is the first thing written in a new one.
async fn probe(engine: &LogEngine, segment: SegmentId) -> Probed {
    let (geometry, id) = (&engine.geometry, engine.volume.id);
    let first = read_blocks(engine, geometry.segment_start_bytes(segment), BLOCK_BYTES);
    let last = read_blocks(engine, geometry.segment_end_bytes(segment) - BLOCK_BYTES, BLOCK_BYTES);
    let (first, last) = join(first, last).await;
    let unit = first.as_ref().and_then(|first| UnitHeader::decode_mended(id, geometry, first));
    let unit = unit.filter(|unit| unit.segment == segment && unit.number == 0);
    let trailer = last.and_then(|last| Footer::decode(id, geometry, segment, &last)).map(|footer| footer.sequence);
    let is_damaged = unit.is_none() && first.is_none_or(|first| UnitHeader::is_damaged(id, geometry, &first));
    let shown = match (unit, trailer) {
        (Some(unit), trailer) if trailer.is_none_or(|trailer| trailer <= unit.sequence) => Shown::Unit(unit),
        (_, Some(trailer)) => Shown::Trailer(trailer),
        (_, None) => Shown::Nothing,
    };
    Probed { shown, is_damaged }
}
