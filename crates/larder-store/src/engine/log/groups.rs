//! Groups: passes the entries that follow a record just read to the store's sink for neighbors.
//!
//! Invariant: an entry is passed on only if its head is verified and it is the newest one of its address. Cost: a copy
//! of each neighbor, so that none keeps the memory of the whole read. Source: HashCache (NSDI 2009), Log.

use super::{
    LogEngine,
    layout::{LogState, MovedRecord},
};
use crate::{
    format::record::{DecodedRecord, RecordKind},
    hash::KeyHash,
    units::{SECTOR_BYTES, Sector},
};
use bytes::Bytes;

impl LogEngine {
    /// Updates the index with the new positions of records whose group was written. Must be called under the log's
    /// lock, so that no lookup sees the old positions. Returns the moves.
    pub(super) fn follow_moves(&self, log: &mut LogState) -> Vec<Vec<MovedRecord>> {
        let steps = log.take_moved();
        for step in &steps {
            let is_in_segment = |moved: &MovedRecord| self.geometry.segment_of(moved.to).is_some();
            assert!(step.iter().all(is_in_segment), "a record moves to a place in a segment");
            self.note_released(&self.index.relocate(step));
        }
        steps
    }

    /// Passes the other entries of `first`'s group in `bytes` to the receiver of neighbors, entries that were read
    /// along with the requested one. `first` begins at `position` and at the start of `bytes`. Returns the bytes of
    /// `first`. If there are other entries, copies these bytes, so that the memory of the whole group can be freed.
    pub(super) fn hand_over_group(&self, position: Sector, bytes: Bytes, first: &DecodedRecord) -> Bytes {
        let len_bytes = first.len_bytes();
        if first.meta.group == 0 || !first.body_is_here() || len_bytes >= bytes.len() {
            return bytes;
        }
        let others: Vec<_> = self.others_of_group(position, &bytes, first).collect();
        if others.is_empty() {
            return bytes;
        }
        let own = Bytes::copy_from_slice(&bytes[..len_bytes]);
        let Some(sink) = self.volume.neighbors() else { return own };
        for (position, at, decoded) in others {
            if self.is_newest_slot(decoded.meta.hash.key_hash(), position) {
                let record = Bytes::copy_from_slice(&bytes[at..at + decoded.len_bytes()]);
                self.volume.neighbor(record, decoded).into_iter().for_each(&sink);
            }
        }
        own
    }

    /// Returns the complete entries of `first`'s group that follow it in `bytes`, each with its position and its start
    /// in `bytes`.
    fn others_of_group<'a>(
        &'a self,
        position: Sector,
        bytes: &'a Bytes,
        first: &'a DecodedRecord,
    ) -> impl Iterator<Item = (Sector, usize, DecodedRecord)> + 'a {
        let start_bytes = self.start_bytes_of(position, first).unwrap_or(position.byte_offset());
        let stepped = |decoded: &DecodedRecord| self.geometry.stepped(decoded.len_bytes() as u64) as usize;
        let mut next = stepped(first);
        std::iter::from_fn(move || {
            let at = next;
            let decoded = DecodedRecord::decode(self.volume.id, bytes.get(at..)?).ok()?;
            let place = start_bytes + at as u64;
            let position = Sector(place / SECTOR_BYTES);
            let is_its_place =
                self.belongs(position, &decoded) && self.start_bytes_of(position, &decoded) == Some(place);
            let is_whole = decoded.meta.kind == RecordKind::Entry && at + decoded.len_bytes() <= bytes.len();
            next = at + stepped(&decoded);
            (is_its_place && is_whole && decoded.meta.group == first.meta.group).then_some((position, at, decoded))
        })
    }

    /// Returns whether the slot at `position` is in the index, and is the newest slot of its address. A newer slot may
    /// be that of the key's removal, or of another version of the entry.
    fn is_newest_slot(&self, key_hash: KeyHash, position: Sector) -> bool {
        let matches = self.index.peek(key_hash);
        let age = self.age(position);
        matches.at(position).is_some() && matches.iter().all(|slot| self.age(slot.position) <= age)
    }
}
