//! The summaries of all sets, written at a clean close and loaded once at the next start.
//!
//! Invariants: a snapshot is loaded only if it is whole and the front has nothing newer (its number is the front's last
//! sequence). It is durably removed before anything else is written. Cost: 4 bytes per set.

use super::{TinyEngine, sets::SetSummaries};
use crate::{
    Result,
    engine::kit::snapshot::{self, SnapshotPage},
};
use std::sync::Arc;

/// Position, in the header's third word, of the number that [`SetSummaries::layout`] returns. The bits below have the
/// high bits of the number of entries.
const LAYOUT_SHIFT: u32 = 24;
const LAYOUT_MASK: u32 = (1 << LAYOUT_SHIFT) - 1;

/// The data about an earlier run that a snapshot contains.
pub(super) struct KnownFront {
    pub(super) words: Vec<u32>,
    pub(super) set_entries: u64,
}

/// Returns the bytes that a snapshot of `sets` takes.
pub(super) fn area_bytes(sets: &SetSummaries) -> u64 {
    snapshot::area_bytes(sets.words().len() as u64)
}

/// Writes the summaries of all sets, when the store is closed.
pub(super) async fn write(engine: &Arc<TinyEngine>) -> Result<()> {
    let (words, set_entries, number, layout) = {
        let state = engine.lock();
        (state.sets.words().to_vec(), state.set_entries, state.front.last_sequence() as u32, state.sets.layout())
    };
    assert!(set_entries >> u32::BITS < 1 << LAYOUT_SHIFT, "entries of at least 64 bytes in at most 16 TiB");
    let says = [words.len() as u32, set_entries as u32, (set_entries >> u32::BITS) as u32 | layout << LAYOUT_SHIFT];
    snapshot::write(&engine.volume, &SnapshotPage { number, words: says }, &words).await
}

/// Loads the snapshot, if its number is the last sequence of the front, the log before the sets. Removes the snapshot
/// in any case.
pub(super) async fn take(engine: &TinyEngine, last_sequence: u64) -> Option<KnownFront> {
    let SnapshotPage { number, words: [word_count, low, high] } = snapshot::read_header(&engine.volume).await?;
    let (expected, layout) = {
        let state = engine.lock();
        (state.sets.words().len() as u64, state.sets.layout())
    };
    let fits = number == last_sequence as u32 && u64::from(word_count) == expected && high >> LAYOUT_SHIFT == layout;
    let words = if fits { snapshot::read_words(&engine.volume, number, expected).await } else { None };
    snapshot::mark_used(&engine.volume, 0).await.ok()?;
    words.map(|words| KnownFront { words, set_entries: u64::from(high & LAYOUT_MASK) << u32::BITS | u64::from(low) })
}
