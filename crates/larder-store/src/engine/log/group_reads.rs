//! Group reads of `log`: the read of a short entry goes on, and the records of its group that it finds are passed on.
//!
//! Entries that were committed at about the same time are near each other in the log, so one read of
//! `log_group_read_bytes` finds many of a page. Records keep their places: `hashcache-log` moves them instead
//! ([`super::groups`]), which `log` cannot do, because slots, parts and removals name places. Owns: the length of such
//! a read, and the scan of its bytes. Does not: decide which entries form a group, or keep them.
//!
//! Invariant: a record is passed on only if it is a whole entry of the segment's present use and the newest one of its
//! address. Cost: a copy of the requested record and of each neighbor, so that none keeps the memory of the whole
//! read. Source: HashCache (NSDI 2009), grouped prefetch; docs/internals/rfcs/0013-groups-in-log.md.

use super::{LogEngine, index::IndexSlot};
use crate::{
    engine::ReadExtent,
    format::{
        record::{DecodedRecord, RecordKind},
        unit::unit_header_bytes,
    },
    hash::KeyHash,
    units::{BLOCK_BYTES, SECTOR_BYTES, Sector},
};
use bytes::Bytes;

/// A record behind the requested one.
struct FollowingRecord {
    /// Offset of its start in the bytes that were read.
    at: usize,
    position: Sector,
    decoded: DecodedRecord,
}

impl LogEngine {
    /// Returns how many sectors the read of `slot` takes at least, so that it finds other records of its group. Returns
    /// 0 if only the record is read: groups are off, nobody receives neighbors, or the record is as long.
    pub(super) fn group_read_sectors(&self, slot: &IndexSlot, extent: ReadExtent) -> u64 {
        if extent == ReadExtent::Key || !self.reads_on() {
            return 0;
        }
        let sectors = self.volume.group_read_bytes() / SECTOR_BYTES;
        if sectors > slot.size.sectors() { sectors } else { 0 }
    }

    /// Returns whether reads of short entries go on behind them.
    pub(super) fn reads_on(&self) -> bool {
        self.volume.group_read_bytes() > 0 && self.volume.begin_neighbors.get().is_some()
    }

    /// Passes on the entries of `first`'s group among the records behind it. `first` is at `position` and at the start
    /// of `bytes`. Returns the bytes of `first` alone.
    pub(super) fn hand_over_following(&self, position: Sector, bytes: Bytes, first: &DecodedRecord) -> Bytes {
        let len_bytes = first.len_bytes();
        if len_bytes >= bytes.len() {
            return bytes;
        }
        if first.meta.group != 0
            && let Some(start_bytes) = self.start_bytes_of(position, first)
        {
            self.hand_over_group_of(first, start_bytes, &bytes);
        }
        Bytes::copy_from_slice(&bytes[..len_bytes])
    }

    /// Passes on the entries of `first`'s group in `bytes`, which were read from `start_bytes` of the volume on.
    fn hand_over_group_of(&self, first: &DecodedRecord, start_bytes: u64, bytes: &Bytes) {
        let Some(sink) = self.volume.neighbors() else { return };
        let mut end = self.end_of(0, first);
        while let Some(FollowingRecord { at, position, decoded }) = self.record_behind(start_bytes, end, bytes) {
            assert!(at >= end, "a record begins behind the one before it");
            end = self.end_of(at, &decoded);
            let meta = &decoded.meta;
            let len_bytes = decoded.len_bytes();
            let is_whole = meta.kind == RecordKind::Entry && at + len_bytes <= bytes.len();
            if is_whole && meta.group == first.meta.group && self.is_newest_slot(meta.hash.key_hash(), position) {
                let record = Bytes::copy_from_slice(&bytes[at..at + len_bytes]);
                self.volume.neighbor(record, decoded).into_iter().for_each(&sink);
            }
        }
    }

    /// Returns the offset of the end of a record that begins at `at`.
    fn end_of(&self, at: usize, decoded: &DecodedRecord) -> usize {
        at + self.geometry.stepped(decoded.len_bytes() as u64) as usize
    }

    /// Returns the first record at or behind `end`, the offset in `bytes` at which another record ends.
    ///
    /// It begins there, or at the next sector if a gap separates two records whose hashes end alike, or in the next
    /// unit, which begins with a header at the next block. Any other bytes end the scan.
    fn record_behind(&self, start_bytes: u64, end: usize, bytes: &Bytes) -> Option<FollowingRecord> {
        let end_bytes = start_bytes + end as u64;
        let next_unit = end_bytes.next_multiple_of(BLOCK_BYTES) + unit_header_bytes(&self.geometry);
        let places = [end_bytes, end_bytes.next_multiple_of(SECTOR_BYTES), next_unit];
        places.into_iter().find_map(|place| {
            let at = (place - start_bytes) as usize;
            let decoded = DecodedRecord::decode(self.volume.id, bytes.get(at..)?).ok()?;
            let position = Sector(place / SECTOR_BYTES);
            let is_its_place =
                self.belongs(position, &decoded) && self.start_bytes_of(position, &decoded) == Some(place);
            is_its_place.then_some(FollowingRecord { at, position, decoded })
        })
    }

    /// Returns whether the slot at `position` is in the index, and no slot of its address is newer. A newer one may be
    /// the removal or another version of the same key.
    pub(super) fn is_newest_slot(&self, key_hash: KeyHash, position: Sector) -> bool {
        let matches = self.index.peek(key_hash);
        let age = self.age(position);
        matches.at(position).is_some() && matches.iter().all(|slot| self.age(slot.position) <= age)
    }
}
