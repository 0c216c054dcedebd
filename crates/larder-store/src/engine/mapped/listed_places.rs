//! Writes that wait until the journal no longer lists the entries at their places.
//!
//! A removed entry's room is free at once, but its removal is in the journal only half a second later. If the room was
//! written before that, a kill would leave a listed entry with bytes of another. It is a miss, but nothing could tell
//! it from damage later. So such a write waits for the journal's next page, which is then written at once.
//!
//! Owns: the listed places of removed entries, and the waiting writes. Invariant: a write waits at most until the
//! journal's next page is written, or its write fails. Cost: a search in a tree per write, and a page more for a write
//! to room that was just freed. Layouts in files need none of this: a listed entry whose slot has another is recognized
//! by that one's head, because both begin at the same place.

use super::schedule::packets::PacketTransfer;
use std::{collections::BTreeMap, ops::Range};

/// The places that the journal still lists, and the writes that wait for them.
#[derive(Default)]
pub(super) struct ListedPlaces {
    /// The places of removed entries, by their first byte.
    removed: BTreeMap<u64, RemovedPlace>,
    waiting: Vec<PacketTransfer>,
}

struct RemovedPlace {
    end_bytes: u64,
    /// The number of changes in the journal up to the removal.
    noted: u64,
}

impl ListedPlaces {
    /// Notes the place of an entry whose removal is the journal's change of the number `noted`.
    pub(super) fn note(&mut self, place: Range<u64>, noted: u64) {
        debug_assert!(place.start < place.end, "an entry takes room: {place:?}");
        self.removed.insert(place.start, RemovedPlace { end_bytes: place.end, noted });
    }

    /// Returns whether no place is listed.
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty()
    }

    /// Returns whether writes wait for the journal.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Keeps a write if its place is listed, and returns it otherwise.
    pub(super) fn keep(&mut self, packet: PacketTransfer) -> Option<PacketTransfer> {
        if self.overlaps(packet.bytes()) {
            self.waiting.push(packet);
            return None;
        }
        Some(packet)
    }

    /// Forgets the places whose removals `is_written` says to be in the journal, and returns all waiting writes. Those
    /// whose places are still listed will be kept again.
    pub(super) fn forget(&mut self, is_written: impl Fn(u64) -> bool) -> Vec<PacketTransfer> {
        self.removed.retain(|_, place| !is_written(place.noted));
        let waiting = std::mem::take(&mut self.waiting);
        debug_assert!(!self.has_waiting(), "every write gets its turn");
        waiting
    }

    fn overlaps(&self, bytes: Range<u64>) -> bool {
        // Listed places do not overlap, so the last one that begins in time is the one that ends last.
        let before = self.removed.range(..bytes.end).next_back();
        before.is_some_and(|(_, place)| place.end_bytes > bytes.start)
    }
}
