//! Which segments are in use, and since when: the first thing a start finds out.
//!
//! A checkpoint's root lists all segments in the order of their next use, so only those are looked at that may
//! have been begun since: from the front of that order, until so many in a row are as the root says that no
//! crash can have hidden one behind them. Without a root every segment is looked at. Invariant: segments whose
//! use was over when a newer one began do not count, even where the write that would have shown it was lost
//! (else what a lost tombstone buried would come back). Cost: one block read per segment looked at.

use super::{LogEngine, listing::read_blocks};
use crate::{
    format::{
        checkpoint::{Root, SegmentState},
        unit::UnitHeader,
    },
    layout::log::unsynced_count_max,
    units::{BLOCK_BYTES, SegmentId},
};
use futures_util::{StreamExt, stream};

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

/// Finds out about all segments; what `root` knows need not be looked at.
pub(super) async fn discover(engine: &LogEngine, root: Option<&Root>) -> Discovered {
    let unknown = |segment| SegmentState { segment, sequence: 0, deadlines: (0, 0) };
    let listed: Vec<_> = match root {
        Some(root) => root.segments.clone(),
        None => engine.geometry.segments().map(unknown).collect(),
    };
    let newest_listed = listed.iter().map(|state| state.sequence).max().unwrap_or(0);
    let window = unsynced_count_max(&engine.geometry) as usize + 1;
    let (mut known, mut unchanged, mut oldest) = (Vec::with_capacity(listed.len()), 0, 0);
    let mut probes = stream::iter(&listed).map(|state| probe(engine, state.segment)).buffered(DEPTH);
    while known.len() < listed.len() && (root.is_none() || unchanged < window) {
        let Some(found) = probes.next().await else { break };
        let state = listed[known.len()];
        let sequence = match found {
            Some(unit) if unit.sequence > newest_listed => {
                unchanged = 0;
                oldest = oldest.max(unit.oldest_sequence);
                unit.sequence
            }
            Some(_) => {
                unchanged += 1;
                state.sequence
            }
            // Never begun, or begun and torn.
            None => {
                unchanged = if state.sequence == 0 { unchanged + 1 } else { 0 };
                0
            }
        };
        known.push((state.segment, sequence));
    }
    known.extend(listed[known.len()..].iter().map(|state| (state.segment, state.sequence)));
    let last_sequence =
        known.iter().map(|&(_, sequence)| sequence).chain(root.map(|root| root.stamp)).max().unwrap_or(0);
    let (mut used, free): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|&(_, sequence)| sequence > 0 && sequence >= oldest);
    used.sort_by_key(|&(_, sequence)| sequence);
    Discovered { free: free.into_iter().map(|(segment, _)| segment).collect(), used, last_sequence }
}

/// The first unit of a segment's last use, if it was used. It rules: it is the first thing written in a new use.
async fn probe(engine: &LogEngine, segment: SegmentId) -> Option<UnitHeader> {
    let first = read_blocks(engine, engine.geometry.segment_start_bytes(segment), BLOCK_BYTES).await?;
    let unit = UnitHeader::decode(engine.volume.id, &engine.geometry, &first)?;
    (unit.segment == segment && unit.number == 0).then_some(unit)
}
