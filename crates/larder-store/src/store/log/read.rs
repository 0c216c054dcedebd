//! The read side: from key to a verified entry in one transfer.
//!
//! Invariant: an entry is returned only if its record's checksum fits, its key is the one asked for,
//! and no invalidation covers it. Cost: index lookup, one device read of the size the slot tells
//! (from memory while the record is dirty).

use super::LogEngine;
use crate::{
    ReadAxis, Reader, Result,
    format::record::{Decoded, Refusal},
    index::{LogIndex, Slot},
    store::{counters::add, engine::Extent},
    units::{SECTOR_BYTES, Sector, sectors},
};
use bytes::Bytes;
use std::sync::Arc;

/// How often a lookup follows an entry that moves while it is being read.
const MOVES_FOLLOWED_MAX: u32 = 3;
/// What [`Extent::Front`] reads of a long entry, in sectors.
const FRONT_SECTORS: u64 = 32;

impl LogEngine {
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8], extent: Extent) -> Result<Option<(Sector, Reader)>> {
        self.volume.check_open()?;
        add(&self.volume.counters.lookups, 1);
        let (placing, hash) = self.volume.hash(key);
        for _ in 0..MOVES_FOLLOWED_MAX {
            let Some(slot) = self.index.find(placing) else {
                if self.recall(placing).await? {
                    continue;
                }
                return Ok(None);
            };
            if self.is_useless(&slot) {
                self.index.remove_at(placing, slot.position);
                return Ok(None);
            }
            let Some((record, decoded)) = self.read_record(slot, extent).await? else {
                if self.still_at(placing, slot.position) {
                    add(&self.volume.counters.corrupt, 1);
                    self.index.remove_at(placing, slot.position);
                    return Ok(None);
                }
                continue;
            };
            if decoded.meta.hash != hash || record[decoded.key.clone()] != *key {
                if self.still_at(placing, slot.position) {
                    add(&self.volume.counters.strangers, 1);
                    return Ok(None);
                }
                continue;
            }
            if self.volume.is_useless(&decoded) {
                self.index.remove_at(placing, slot.position);
                return Ok(None);
            }
            add(&self.volume.counters.hits, 1);
            if self.reads_groups() {
                self.hand_over_group(slot.position, &record, &decoded);
            }
            let reader = Reader::in_log(Arc::clone(self), slot.position, record, decoded);
            return Ok(Some((slot.position, reader)));
        }
        Ok(None)
    }

    /// The record at a slot's position, from memory or the device; `None` if there is no sound one.
    pub(super) async fn read_record(&self, slot: Slot, extent: Extent) -> Result<Option<(Bytes, Decoded)>> {
        let mut want = match extent {
            Extent::Whole => slot.size.sectors(),
            Extent::Front if self.reads_groups() => slot.size.sectors(),
            Extent::Front => slot.size.sectors().min(FRONT_SECTORS),
        };
        // The second round is for heads longer than the front that was read.
        for _ in 0..2 {
            let Some(record) = self.read_sectors(slot.position, want).await? else { return Ok(None) };
            match Decoded::decode(self.volume.id, &record) {
                Ok(decoded) if self.belongs(slot.position, &decoded) => return Ok(Some((record, decoded))),
                Err(Refusal::Short(needed)) if sectors(needed as u64) > want => want = sectors(needed as u64),
                Ok(_) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Whether a record is what was written at `position` in its segment's present use: not left from an earlier use
    /// by a write that was lost, nor come from elsewhere by a transfer that went astray.
    pub(super) fn belongs(&self, position: Sector, decoded: &Decoded) -> bool {
        self.geometry.segment_of(position).is_some_and(|segment| {
            let start = self.geometry.segment_start_bytes(segment) / SECTOR_BYTES;
            decoded.meta.sequence == self.segments.sequence(segment)
                && start + u64::from(decoded.meta.place_sectors) == position.0
        })
    }

    /// `sectors` from `position`, fewer at the end of a dirty unit or of the segment; `None` if the
    /// position lies in no segment.
    pub(crate) async fn read_sectors(&self, position: Sector, sectors: u64) -> Result<Option<Bytes>> {
        let Some(segment) = self.geometry.segment_of(position) else { return Ok(None) };
        if self.segments.is_dirty(segment)
            && let Some(copy) = self.lock_log().dirty_copy(position, sectors)
        {
            return Ok(Some(Bytes::from(copy)));
        }
        let start = position.byte_offset();
        let end = (start + sectors * SECTOR_BYTES).min(self.geometry.segment_end_bytes(segment));
        self.volume.read(start, end - start).await.map(Some)
    }

    pub(super) fn reads_groups(&self) -> bool {
        self.volume.policy.reads == ReadAxis::Groups
    }

    fn is_useless(&self, slot: &Slot) -> bool {
        let now_s = self.volume.clock.now_s();
        let useless = |segment, short_lived| self.segments.is_useless(segment, short_lived, now_s);
        self.geometry.segment_of(slot.position).is_none_or(|segment| match &self.index {
            LogIndex::Buckets(_) => useless(segment, slot.short_lived),
            // It does not keep how long an entry lives.
            LogIndex::Sets(_) => useless(segment, true) && useless(segment, false),
        })
    }

    fn still_at(&self, placing: u64, position: Sector) -> bool {
        self.index.peek(placing).is_some_and(|slot| slot.position == position)
    }
}
