//! The read side: finds and verifies a key's entry in one transfer.
//!
//! Invariant: an entry is returned only if its record's checksum matches, its key is the requested one, no possibly
//! newer record of that key is damaged, and no invalidation covers it. Cost: an index lookup and one device read of the
//! size that the slot gives (from memory while the record is dirty), which is that of its group if it is the first of
//! one ([`super::groups`]). Another read is needed if another key has the same address: 0.2% of the hits of a full
//! index.

use super::{
    LogEngine,
    index::{IndexSlot, LogIndex, SizeClass, SlotMatches},
    layout::group_bytes_max,
};
use crate::{
    Reader, Result,
    engine::{
        Location, ReadExtent,
        kit::lookup::{self, LookStep},
    },
    format::{
        LogOrder,
        record::{BodyElsewhere, BodyStretch, DecodedRecord, Glimpse, RecordKind, RecordRefusal},
    },
    hash::{FullHash, KeyHash},
    units::{BLOCK_BYTES, SECTOR_BYTES, Sector, sectors},
    volume::counters::add,
};
use bytes::Bytes;
use std::sync::Arc;

/// Sectors of a long entry that are read for [`ReadExtent::Front`].
const FRONT_SECTORS: u64 = 32;
/// Sectors of a record that are read to compare its key: one block.
pub(super) const RECOGNIZED_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// The age of a record, for comparison with other records: the use of the record's segment, then the position in the
/// segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordAge {
    order: LogOrder,
    pub(super) position: Sector,
}

/// The part of a record to read, and whether the read may wait.
#[derive(Clone, Copy)]
struct RecordRead {
    wanted_sectors: u64,
    /// Whether the read may wait for a batch. Only lookups allow this; reclaim and commits do not.
    waits_for_batch: bool,
}

/// A record that was found: its position, its bytes, and the decoded fields.
type Found = (Sector, Bytes, DecodedRecord);

/// The slots that may belong to a key, divided by what their records show.
#[derive(Debug, Default)]
pub(super) struct RecognizedEntries {
    pub(super) own: Vec<Sector>,
    others: Vec<Sector>,
    /// Positions of records that cannot be read, and whose keys are therefore unknown.
    pub(super) unreadable: Vec<Sector>,
}

impl RecognizedEntries {
    /// Returns whether the records of all slots in `matches` were read, or found unreadable.
    pub(super) fn covers(&self, matches: &SlotMatches) -> bool {
        let known = |position| [&self.own, &self.others, &self.unreadable].iter().any(|list| list.contains(&position));
        matches.iter().all(|slot| known(slot.position))
    }

    /// Treats all slots in `matches` as the key's own, without reading their records.
    pub(super) fn all_own(matches: &SlotMatches) -> Self {
        Self { own: matches.iter().map(|slot| slot.position).collect(), ..Self::default() }
    }
}

impl LogEngine {
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<(Sector, Reader)>> {
        // A check for existence is not a use of the entry. Counting it as a hit would keep the entry at reclaim.
        let counts = extent != ReadExtent::Key;
        let hash = self.volume.hash(key).1;
        let found = lookup::follow(&self.volume, counts, || self.look(key, hash, extent)).await;
        if self.positions.is_some() {
            // Not while the lookup goes on, because the positions that it brought to memory could leave at once.
            self.tend_positions().await;
        }
        let found = found?;
        Ok(found.map(|(position, mut record, decoded)| {
            if self.reads_groups() && counts {
                record = self.hand_over_group(position, record, &decoded);
            }
            (position, Reader::of_front(Arc::clone(self), position, record, decoded))
        }))
    }

    async fn look(&self, key: &[u8], hash: FullHash, extent: ReadExtent) -> Result<LookStep<Found>> {
        let key_hash = hash.key_hash();
        let uses = extent != ReadExtent::Key;
        if uses {
            self.note_request(key_hash);
        }
        let matches = self.index.find(key_hash, uses);
        self.note_overwritten();
        let matches = self.newest_first(matches);
        if matches.is_empty() {
            return Ok(if self.recall(key_hash).await? { LookStep::Moved } else { LookStep::Nothing });
        }
        if let Some(slot) = matches.only()
            && self.is_useless(&slot)
        {
            self.forget_useless(key_hash, slot.position);
            return Ok(LookStep::Nothing);
        }
        self.entry_among(&matches, key, hash, extent).await
    }

    /// Reads the records that may be `key`'s, the newest first. Stops at the first one that is the key's entry, the
    /// key's removal, or damaged.
    async fn entry_among(
        &self,
        matches: &SlotMatches,
        key: &[u8],
        hash: FullHash,
        extent: ReadExtent,
    ) -> Result<LookStep<Found>> {
        let key_hash = hash.key_hash();
        for slot in matches.iter() {
            let Some((record, decoded)) = self.read_for_lookup(key_hash, slot, extent).await? else {
                // Reclaim may have moved the entry during the read. Then the bytes prove nothing, and the lookup starts
                // again.
                if !self.still_at(key_hash, slot.position) {
                    return Ok(LookStep::Moved);
                }
                add(&self.volume.counters.corrupt, 1);
                // A damaged newest record may be a removal. An older record of the key must not be served in its place,
                // so the older slots go too.
                self.forget_through(key_hash, slot.position);
                return Ok(LookStep::Nothing);
            };
            if decoded.meta.hash != hash || record[decoded.key.clone()] != *key {
                if !self.still_at(key_hash, slot.position) {
                    return Ok(LookStep::Moved);
                }
                add(&self.volume.counters.false_matches, 1);
                continue;
            }
            if decoded.meta.kind == RecordKind::Tombstone {
                return Ok(LookStep::Nothing);
            }
            let is_only = matches.only().is_some();
            if self.volume.is_useless(&decoded) {
                // An expired entry stays if others share its address. Without it, an older record of the key would
                // count as the newest.
                if is_only {
                    self.forget_useless(key_hash, slot.position);
                }
                return Ok(LookStep::Nothing);
            }
            if extent != ReadExtent::Key {
                self.note_hit(slot.position, decoded.len_sectors());
                if !is_only {
                    self.index.count_hit(key_hash, Some(slot.position));
                }
            }
            return Ok(LookStep::Found((slot.position, record, decoded)));
        }
        Ok(LookStep::Nothing)
    }

    /// Removes an expired or invalidated entry from the index.
    fn forget_useless(&self, key_hash: KeyHash, position: Sector) {
        if self.index.remove(key_hash, &[position]) > 0 {
            self.note_removed(key_hash, self.geometry.segment_of(position), &self.lock_log());
        }
    }

    /// Reads the records of all slots that may be a key's, and divides the slots by what the records show.
    pub(super) async fn recognize(&self, hash: FullHash) -> RecognizedEntries {
        self.recall_all(hash.key_hash()).await;
        self.recognize_among(hash, &self.index.peek(hash.key_hash())).await
    }

    /// Reads records like [`Self::recognize`], but only those of `matches`.
    pub(super) async fn recognize_among(&self, hash: FullHash, matches: &SlotMatches) -> RecognizedEntries {
        let mut recognized = RecognizedEntries::default();
        for slot in matches.iter() {
            match self.read_front(hash.key_hash(), slot, RECOGNIZED_SECTORS).await {
                Ok(Some((_, decoded))) if decoded.meta.hash == hash => recognized.own.push(slot.position),
                Ok(Some(_)) => recognized.others.push(slot.position),
                Ok(None) | Err(_) => recognized.unreadable.push(slot.position),
            }
        }
        recognized
    }

    /// Returns whether the record at `position` is the newest known record of this key.
    pub(super) async fn is_newest(&self, hash: FullHash, position: Sector) -> bool {
        let matches = self.index.peek(hash.key_hash());
        for slot in matches.iter().filter(|slot| self.age(slot.position) > self.age(position)) {
            match self.read_front(hash.key_hash(), slot, RECOGNIZED_SECTORS).await {
                Ok(Some((_, decoded))) if decoded.meta.hash != hash => {}
                _ => return false,
            }
        }
        true
    }

    /// Removes the record at `position`, which is unreadable or lost, and all older records of its address from the
    /// index. An older record may be of the same key, and must not be served in place of the newer record. Returns
    /// whether the index had the record.
    pub(super) fn forget_through(&self, key_hash: KeyHash, position: Sector) -> bool {
        let matches = self.index.peek(key_hash);
        if matches.at(position).is_none() {
            return false;
        }
        let positions = matches.iter().map(|slot| slot.position);
        let older: Vec<Sector> = positions.filter(|other| self.age(*other) <= self.age(position)).collect();
        let was_there = self.index.remove(key_hash, &older) > 0;
        if was_there {
            // The entry, or an older record of the key, is in some segment up to this one.
            self.note_dropped(self.index.address(key_hash), self.geometry.segment_of(position));
        }
        was_there
    }

    fn newest_first(&self, mut matches: SlotMatches) -> SlotMatches {
        matches.sort_descending(|slot| self.age(slot.position));
        matches
    }

    /// Returns the age of the record at `position`. Newer records have greater ages.
    pub(super) fn age(&self, position: Sector) -> RecordAge {
        let segment = self.geometry.segment_of(position);
        RecordAge { order: segment.map_or_else(LogOrder::default, |segment| self.segments.order(segment)), position }
    }

    /// Reads the record that an index slot points to, from memory or the device. Returns `None` if there is no valid
    /// record. The caller must still compare the key, because different keys can share the bits that the index has.
    async fn read_for_lookup(
        &self,
        key_hash: KeyHash,
        slot: IndexSlot,
        extent: ReadExtent,
    ) -> Result<Option<(Bytes, DecodedRecord)>> {
        let wanted_sectors = match extent {
            ReadExtent::Whole => slot.size.sectors(),
            ReadExtent::Key => RECOGNIZED_SECTORS,
            ReadExtent::Front if self.reads_groups() && slot.size.sectors() <= self.group_sectors_max() => {
                slot.size.sectors()
            }
            ReadExtent::Front => FRONT_SECTORS,
        };
        self.read_by(key_hash, slot, RecordRead { wanted_sectors, waits_for_batch: true }).await
    }

    /// Reads about the first `wanted_sectors` of the record of a slot, from memory or the device. Returns `None` if
    /// there is no valid record of `key_hash`'s address.
    pub(super) async fn read_front(
        &self,
        key_hash: KeyHash,
        slot: IndexSlot,
        wanted_sectors: u64,
    ) -> Result<Option<(Bytes, DecodedRecord)>> {
        self.read_by(key_hash, slot, RecordRead { wanted_sectors, waits_for_batch: false }).await
    }

    async fn read_by(
        &self,
        key_hash: KeyHash,
        slot: IndexSlot,
        mut read: RecordRead,
    ) -> Result<Option<(Bytes, DecodedRecord)>> {
        read.wanted_sectors = read.wanted_sectors.min(slot.size.sectors());
        // A second round is needed if the head is longer than the front that was read.
        for _ in 0..2 {
            let Some(bytes) = self.read_sectors_by(slot.position, read).await? else { return Ok(None) };
            let Some(at) = self.record_in(slot.position, key_hash, &bytes) else { return Ok(None) };
            let record = bytes.slice(at..);
            let spanned = |needed: usize| sectors((at + needed) as u64);
            match DecodedRecord::decode(self.volume.id, &record) {
                Ok(decoded) if self.belongs(slot.position, &decoded) => return Ok(Some((record, decoded))),
                Err(RecordRefusal::Short(needed)) if spanned(needed) > read.wanted_sectors => {
                    read.wanted_sectors = spanned(needed);
                }
                Ok(_) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns where a record of `key_hash`'s address begins in `bytes`, which were read from `position` on. Only one
    /// such record can begin in this sector (`OpenSegment::gap_before`).
    fn record_in(&self, position: Sector, key_hash: KeyHash, bytes: &[u8]) -> Option<usize> {
        if !self.geometry.is_packed() {
            return Some(0);
        }
        let segment = self.geometry.segment_of(position)?;
        let sequence = self.segments.sequence(segment);
        let step_bytes = self.geometry.step_bytes;
        let start_bytes = position.byte_offset() - self.geometry.segment_start_bytes(segment);
        let is_here = |at: &usize| {
            let place = ((start_bytes + *at as u64) / step_bytes) as u32;
            let is_it = |glimpse: Glimpse| {
                glimpse.key_hash.ends_like(key_hash) && (glimpse.sequence, glimpse.place) == (sequence, place)
            };
            Glimpse::of(&bytes[*at..]).is_some_and(is_it)
        };
        (0..bytes.len().min(SECTOR_BYTES as usize)).step_by(step_bytes as usize).find(is_here)
    }

    /// Returns where the body of the record at `position` is.
    pub(super) fn body_place(&self, position: Sector, decoded: &DecodedRecord) -> BodyElsewhere {
        decoded.body_place(self.start_bytes_of(position, decoded).unwrap_or(position.byte_offset()))
    }

    /// Returns where the pieces of the body of the record at `position` are, in order.
    pub(super) fn stretches(&self, position: Sector, decoded: &DecodedRecord, record: &[u8]) -> Vec<BodyStretch> {
        decoded.stretches(record, self.start_bytes_of(position, decoded).unwrap_or(position.byte_offset()))
    }

    /// Returns the offset on the volume at which a record begins. The record's header states its place in its segment;
    /// `position` is in that segment.
    pub(super) fn start_bytes_of(&self, position: Sector, decoded: &DecodedRecord) -> Option<u64> {
        let segment = self.geometry.segment_of(position)?;
        Some(self.geometry.segment_start_bytes(segment) + u64::from(decoded.meta.place) * self.geometry.step_bytes)
    }

    /// Returns whether a record was written at `position` in the present use of its segment. If not, the record remains
    /// from an earlier use because a write was lost, or because a write went to a wrong position.
    pub(super) fn belongs(&self, position: Sector, decoded: &DecodedRecord) -> bool {
        let start_bytes = self.start_bytes_of(position, decoded);
        self.geometry.segment_of(position).is_some_and(|segment| {
            decoded.meta.sequence == self.segments.sequence(segment)
                && start_bytes.is_some_and(|start_bytes| start_bytes / SECTOR_BYTES == position.0)
        })
    }

    /// Reads `sectors` from `position` on. Reads fewer at the end of the segment, or of a unit in memory. Returns
    /// `None` if `position` is in no segment.
    pub(super) async fn read_sectors(&self, position: Sector, sectors: u64) -> Result<Option<Bytes>> {
        let read = RecordRead { wanted_sectors: sectors, waits_for_batch: false };
        self.read_sectors_by(position, read).await
    }

    async fn read_sectors_by(&self, position: Sector, read: RecordRead) -> Result<Option<Bytes>> {
        let RecordRead { wanted_sectors, waits_for_batch } = read;
        let Some(segment) = self.geometry.segment_of(position) else { return Ok(None) };
        if self.segments.is_dirty(segment)
            && let Some(copy) = self.lock_log().dirty_copy(position, wanted_sectors)
        {
            return Ok(Some(Bytes::from(copy)));
        }
        let start = position.byte_offset();
        let len_of = |sectors: u64| (sectors * SECTOR_BYTES).min(self.geometry.segment_end_bytes(segment) - start);
        let len = len_of(wanted_sectors);
        if !waits_for_batch {
            return self.volume.read(start, len).await.map(Some);
        }
        match self.volume.read_in_batch(start, len).await {
            // A bad block behind the record must not fail the read of the record.
            Err(_) if self.reads_groups() && wanted_sectors > FRONT_SECTORS => {
                self.volume.read(start, len_of(FRONT_SECTORS)).await.map(Some)
            }
            outcome => outcome.map(Some),
        }
    }

    /// Returns the maximum length of a read for a group, in sectors.
    fn group_sectors_max(&self) -> u64 {
        // The first record may begin within a sector.
        SizeClass::holding(group_bytes_max(&self.geometry) / SECTOR_BYTES + 1).sectors()
    }

    pub(super) fn reads_groups(&self) -> bool {
        self.row.is_grouped()
    }

    fn is_useless(&self, slot: &IndexSlot) -> bool {
        let now_s = self.volume.clock.now_s();
        let useless = |segment, short_lived| self.segments.is_useless(segment, short_lived, now_s);
        self.geometry.segment_of(slot.position).is_none_or(|segment| match &self.index {
            LogIndex::Buckets(_) => useless(segment, slot.short_lived),
            // A slot of these sets does not keep the lifetime of its entry.
            LogIndex::Sets(_) => useless(segment, true) && useless(segment, false),
        })
    }

    /// Returns the location of the record at `position`, for [`crate::Store::is_at`].
    pub(crate) fn location_at(&self, position: Sector) -> Location {
        let segment = self.geometry.segment_of(position);
        Location::At { position, sequence: segment.map_or(0, |segment| self.segments.sequence(segment)) }
    }

    pub(super) fn still_at(&self, key_hash: KeyHash, position: Sector) -> bool {
        self.index.peek(key_hash).at(position).is_some()
    }
}
