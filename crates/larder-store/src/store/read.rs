//! The read side: from key to a verified entry in one transfer.
//!
//! Invariant: an entry is returned only if its record's checksum fits, its key is the one asked for,
//! and no invalidation covers it. Cost: index lookup, one device read of the size the slot tells
//! (from memory while the record is dirty).

use super::{Engine, counters::add};
use crate::{
    Error, ErrorKind, Reader, Result,
    device::AlignedBuffer,
    format::record::{Decoded, Refusal},
    index::Slot,
    units::{SECTOR_BYTES, Sector, sectors},
};
use bytes::Bytes;
use std::{io, sync::Arc};

/// How often a lookup follows an entry that moves while it is being read.
const MOVES_FOLLOWED_MAX: u32 = 3;
/// What [`Extent::Front`] reads of a long entry, in sectors.
const FRONT_SECTORS: u64 = 32;

/// How much of an entry a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    Front,
}

impl Engine {
    pub(crate) async fn get(engine: &Arc<Self>, key: &[u8], extent: Extent) -> Result<Option<Reader>> {
        engine.check_open()?;
        add(&engine.counters.lookups, 1);
        let (placing, hash) = engine.placing_and_hash(key);
        for _ in 0..MOVES_FOLLOWED_MAX {
            let Some(slot) = engine.index.find(placing) else { return Ok(None) };
            if engine.is_useless(&slot) {
                engine.index.remove_at(placing, slot.position);
                return Ok(None);
            }
            let Some((record, decoded)) = engine.read_record(slot, extent).await? else {
                if engine.still_at(placing, slot.position) {
                    add(&engine.counters.corrupt, 1);
                    engine.index.remove_at(placing, slot.position);
                    return Ok(None);
                }
                continue;
            };
            if decoded.meta.hash != hash || record[decoded.key.clone()] != *key {
                if engine.still_at(placing, slot.position) {
                    add(&engine.counters.strangers, 1);
                    return Ok(None);
                }
                continue;
            }
            let meta = &decoded.meta;
            let expired = meta.useless_after != 0 && meta.useless_after < engine.clock.now_s();
            if expired || !engine.admits(meta.site, meta.epoch) {
                engine.index.remove_at(placing, slot.position);
                return Ok(None);
            }
            add(&engine.counters.hits, 1);
            return Ok(Some(Reader::new(Arc::clone(engine), slot.position, record, decoded)));
        }
        Ok(None)
    }

    /// The record at a slot's position, from memory or the device; `None` if there is no sound one.
    pub(super) async fn read_record(&self, slot: Slot, extent: Extent) -> Result<Option<(Bytes, Decoded)>> {
        let mut want = match extent {
            Extent::Whole => slot.size.sectors(),
            Extent::Front => slot.size.sectors().min(FRONT_SECTORS),
        };
        // The second round is for heads longer than the front that was read.
        for _ in 0..2 {
            let Some(record) = self.read_sectors(slot.position, want).await? else { return Ok(None) };
            match Decoded::decode(self.volume, &record) {
                Ok(decoded) => return Ok(Some((record, decoded))),
                Err(Refusal::Short(needed)) if sectors(needed as u64) > want => want = sectors(needed as u64),
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
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
        let alignment = u64::from(self.device.alignment_bytes());
        let start = position.byte_offset();
        let end = (start + sectors * SECTOR_BYTES).min(self.geometry.segment_end_bytes(segment));
        let aligned_start = start / alignment * alignment;
        let aligned_len = (end - aligned_start).next_multiple_of(alignment);
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, aligned_len);
        let outcome = self.device.read(aligned_start, aligned_len as usize).await;
        let buffer: AlignedBuffer = outcome.map_err(|source| self.read_failed(aligned_start, source))?;
        let skip = (start - aligned_start) as usize;
        Ok(Some(Bytes::from_owner(buffer).slice(skip..skip + (end - start) as usize)))
    }

    fn read_failed(&self, offset_bytes: u64, source: io::Error) -> Error {
        add(&self.counters.io_errors, 1);
        Error::io(ErrorKind::Unavailable, format!("cannot read the store at byte {offset_bytes}"), source)
    }

    fn is_useless(&self, slot: &Slot) -> bool {
        let now_s = self.clock.now_s();
        self.geometry
            .segment_of(slot.position)
            .is_none_or(|segment| self.segments.is_useless(segment, slot.short_lived, now_s))
    }

    fn still_at(&self, placing: u64, position: Sector) -> bool {
        self.index.peek(placing).is_some_and(|slot| slot.position == position)
    }
}
