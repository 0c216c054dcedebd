//! Writes that wait until the journal no longer lists the entries at their places.
//!
//! A removed entry's room is free at once, but its removal is in the journal only half a second later. If the room was
//! written before that, a kill would leave a listed entry with bytes of another. It is a miss, but nothing could tell it
//! from damage later. So such a write waits for the journal's next page, which is then written at once.
//!
//! Owns: the listed places of removed entries, and the waiting writes. Invariant: a write waits at most until the
//! journal's next page is written, or its write fails. Cost: a search in a tree per write, and a page more for a write
//! to room that was just freed. Layouts in files need none of this: a listed entry whose slot has another is recognized
//! by that one's head, because both begin at the same place.

use super::{
    action::MapTransfer, layout::RecordPlace, map::MapEntry, schedule::packets::PacketTransfer, state::MappedState,
};
use crate::units::SECTOR_BYTES;
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
    fn overlaps(&self, bytes: Range<u64>) -> bool {
        // Listed places do not overlap, so the last one that begins in time is the one that ends last.
        let before = self.removed.range(..bytes.end).next_back();
        before.is_some_and(|(_, place)| place.end_bytes > bytes.start)
    }
}

impl MappedState {
    /// Notes that an entry was removed, and that its removal is the last change of the journal.
    pub(super) fn note_listed(&mut self, entry: &MapEntry) {
        let journal = &self.checkpoint.journal;
        let noted = journal.noted();
        let spot = self.space.spot(entry.place, entry.sectors.into(), entry.sequence);
        if let (RecordPlace::Volume(start_bytes), false) = (spot, journal.is_written_until(noted)) {
            let end_bytes = start_bytes + u64::from(entry.sectors) * SECTOR_BYTES;
            self.listed.removed.insert(start_bytes, RemovedPlace { end_bytes, noted });
        }
    }

    /// Takes the transfers to submit now. Others wait for the journal.
    pub(super) fn take_due(&mut self) -> Vec<MapTransfer> {
        if self.listed.removed.is_empty() || self.checkpoint.journal.is_stalled() {
            return std::mem::take(&mut self.outbox);
        }
        let mut due = Vec::with_capacity(self.outbox.len());
        for transfer in std::mem::take(&mut self.outbox) {
            match transfer {
                MapTransfer::Write(packet) if self.listed.overlaps(packet.bytes()) => self.listed.waiting.push(packet),
                transfer => due.push(transfer),
            }
        }
        if !self.listed.waiting.is_empty() {
            let pointer = self.space.pointer();
            self.checkpoint.journal.seal(pointer);
        }
        due
    }

    /// Lets the writes go whose places are no longer listed; after a failed write of the journal, all.
    pub(super) fn release_unlisted(&mut self) {
        let journal = &self.checkpoint.journal;
        let is_stalled = journal.is_stalled();
        self.listed.removed.retain(|_, place| !is_stalled && !journal.is_written_until(place.noted));
        self.outbox.extend(self.listed.waiting.drain(..).map(MapTransfer::Write));
    }
}
