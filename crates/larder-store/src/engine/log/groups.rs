//! Groups: passes the entries that follow a record just read to the store's sink for neighbors.
//!
//! Invariant: an entry is passed on only if its head is verified and it is the newest one of its address. Cost: a copy
//! of each neighbor, so that none keeps the memory of the whole read. Source: HashCache (NSDI 2009), Log.

use super::{
    LogEngine,
    layout::{LogState, MovedRecord},
};
use crate::{
    format::record::DecodedRecord,
    units::{SECTOR_BYTES, Sector},
};
use bytes::Bytes;

impl LogEngine {
    /// Updates the index with the new places of entries whose group was released. Called under the log's
    /// lock, so that no lookup sees the old places. Returns the moves.
    pub(super) fn follow_moves(&self, log: &mut LogState) -> Vec<Vec<MovedRecord>> {
        let steps = log.take_moved();
        for step in &steps {
            let is_in_segment = |moved: &MovedRecord| self.geometry.segment_of(moved.to).is_some();
            assert!(step.iter().all(is_in_segment), "a record moves to a place in a segment");
            self.index.relocate(step);
        }
        steps
    }

    /// Passes on the entries of `first`'s group that follow it in `bytes`. `first` is at `position` and at the start of
    /// `bytes`.
    pub(super) fn hand_over_group(&self, position: Sector, bytes: &Bytes, first: &DecodedRecord) {
        let mut at = first.len_sectors() * SECTOR_BYTES;
        if first.meta.group == 0 || !first.body_is_here() || at >= bytes.len() as u64 {
            return;
        }
        let Some(sink) = self.volume.neighbors() else { return };
        while at < bytes.len() as u64 {
            let record = bytes.slice(at as usize..);
            let Ok(decoded) = DecodedRecord::decode(self.volume.id, &record) else { return };
            let meta = &decoded.meta;
            let position = Sector(position.0 + at / SECTOR_BYTES);
            if meta.group != first.meta.group || !self.belongs(position, &decoded) {
                return;
            }
            at += decoded.len_sectors() * SECTOR_BYTES;
            if decoded.len_bytes() > record.len() {
                return;
            }
            if self.is_newest_slot(meta.hash.key_hash(), position) {
                let record = Bytes::copy_from_slice(&record[..decoded.len_bytes()]);
                self.volume.neighbor(record, decoded).into_iter().for_each(&sink);
            }
        }
    }
}
