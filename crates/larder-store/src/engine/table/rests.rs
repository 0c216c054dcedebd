//! Reads of remainders: one read brings those of a whole group, and keeps them for the group's other entries.
//!
//! Invariant: a place in the ring is used once, so the bytes kept for a place are those of its entry for all time. They
//! are used only while the ring has not overwritten the remainder. Cost: the bytes of the groups that were read last,
//! up to an eighth of the bytes that may be dirty.

use super::{TableEngine, TableState};
use crate::{Result, format::bin::BinHeader, units::BLOCK_BYTES};
use bytes::Bytes;
use std::collections::VecDeque;

/// Remainders that were read recently. A remainder is the part of a record in the ring, the circular log. Each item has
/// all remainders of one group, and their place in the ring.
pub(super) struct RecentRests {
    groups: VecDeque<(u64, Bytes)>,
    bytes: u64,
    bytes_max: u64,
}

/// The bytes to read from the ring, the circular log, to get a remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RestsExtent {
    place: u64,
    len_bytes: u64,
    /// Number of bytes between `place` and the remainder.
    skip_bytes: u64,
}

impl RecentRests {
    pub(super) fn new(dirty_bytes_max: u64) -> Self {
        Self { groups: VecDeque::new(), bytes: 0, bytes_max: dirty_bytes_max / 8 }
    }

    fn find(&self, place: u64) -> Option<&Bytes> {
        self.groups.iter().rev().find(|(at, _)| *at == place).map(|(_, bytes)| bytes)
    }

    fn keep(&mut self, place: u64, bytes: Bytes) {
        self.bytes += bytes.len() as u64;
        self.groups.push_back((place, bytes));
        while self.bytes > self.bytes_max
            && let Some((_, oldest)) = self.groups.pop_front()
        {
            self.bytes -= oldest.len() as u64;
        }
    }
}

impl TableEngine {
    /// Returns the last `len_bytes` of the record of `header`, which are in the ring, the circular log. Returns `None`
    /// if the ring has overwritten them.
    pub(super) async fn rest(&self, header: &BinHeader, len_bytes: u64) -> Result<Option<Bytes>> {
        let own = RestsExtent { place: header.rest_at, len_bytes, skip_bytes: 0 };
        let (extent, offset_bytes) = {
            let state = self.lock();
            if state.offset_of(own).is_none() {
                return Ok(None);
            }
            let group = RestsExtent::of_group(header, len_bytes).filter(|group| state.offset_of(*group).is_some());
            if let Some((group, bytes)) = group.and_then(|group| Some((group, state.recent_rests.find(group.place)?))) {
                return Ok(group.own_of(bytes, len_bytes));
            }
            let extent = group.unwrap_or(own);
            let Some(offset_bytes) = state.offset_of(extent) else { return Ok(None) };
            (extent, offset_bytes)
        };
        let bytes = self.volume.read_in_batch(offset_bytes, extent.len_bytes).await?;
        let mut state = self.lock();
        // If it was overwritten during the read, the bytes are not valid.
        if state.offset_of(own).is_none() {
            return Ok(None);
        }
        let rest = extent.own_of(&bytes, len_bytes);
        if extent.has_others(len_bytes) && state.offset_of(extent).is_some() {
            state.recent_rests.keep(extent.place, bytes);
        }
        Ok(rest)
    }
}

impl TableState {
    fn offset_of(&self, extent: RestsExtent) -> Option<u64> {
        self.ring.offset_bytes(extent.place, extent.len_bytes)
    }
}

impl RestsExtent {
    /// Returns where the remainders of all records in `header`'s group are; `None` if the entry belongs to no group.
    fn of_group(header: &BinHeader, len_bytes: u64) -> Option<Self> {
        let skip_bytes = u64::from(header.rests.blocks_before) * BLOCK_BYTES;
        let group_bytes = u64::from(header.rests.blocks) * BLOCK_BYTES;
        let place = header.rest_at.checked_sub(skip_bytes)?;
        (skip_bytes + len_bytes <= group_bytes).then_some(Self { place, len_bytes: group_bytes, skip_bytes })
    }

    fn own_of(self, bytes: &Bytes, len_bytes: u64) -> Option<Bytes> {
        let own = self.skip_bytes as usize..(self.skip_bytes + len_bytes) as usize;
        bytes.get(own.clone()).map(|_| bytes.slice(own))
    }

    fn has_others(self, len_bytes: u64) -> bool {
        len_bytes.next_multiple_of(BLOCK_BYTES) < self.len_bytes
    }
}
