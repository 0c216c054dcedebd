//! Reclaim: frees a segment. Its pinned, protected and most useful entries are rewritten to a main segment; the others
//! are forgotten.
//!
//! If an entry has a new head elsewhere and its body in this segment, the whole entry is rewritten. Bodies are verified
//! first: one that is divided again gets checksums of its new parts, which would make a damaged body valid. Cost: one
//! read of the trailer, one per entry kept, one per long entry whose record is elsewhere, and a pass of checksums over
//! the bodies kept.

use super::{
    LogEngine,
    append::AppendAttempt,
    eviction::{self, EvictionCandidate, EvictionChoice, KeptEntry, ReclaimedSegment},
    index::{IndexSlot, LogIndex},
    layout::FlushedGroups,
    listing,
    parts::ReclaimAppender,
    read::RECOGNIZED_SECTORS,
};
use crate::{
    LogRow, Reader,
    format::{
        SegmentRow,
        record::{BODY_BLOCK_BYTES, BodyElsewhere, DecodedRecord, RecordKind, RecordMeta, RecordParts},
        trailer::{ListedKind, TrailerRecord},
    },
    hash::KeyHash,
    units::{SECTOR_BYTES, Sector, SegmentId, sectors},
    volume::{counters::add, turn::TaskTurn},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

/// Maximum share of a probation segment that is rewritten.
const PROBATION_SHARE_MAX: f64 = 0.875;
/// Number of entries that are read at the same time.
const READ_BATCH: usize = 32;

/// A record in the segment being reclaimed, and the slot of the entry to which it belongs. For the first part of a
/// divided entry, the length of the whole entry counts.
#[derive(Clone, Copy)]
pub(super) struct NeededRecord {
    pub(super) listing: TrailerRecord,
    pub(super) slot: IndexSlot,
}

impl LogEngine {
    /// Reclaims one segment. Returns `false` if no segment can be reclaimed, or if another task is reclaiming one.
    pub(super) async fn reclaim_oldest(self: &Arc<Self>) -> bool {
        // Two reclaims at once could free the same segment, or a newer one before an older one.
        let Some(_turn) = TaskTurn::take(&self.reclaiming) else { return false };
        let Some(segment) = self.change(|log| log.next_to_reclaim()) else { return false };
        if matches!(self.index, LogIndex::Sets(_)) {
            // The segment is freed without being read. The index notices by the generation, and counts the entries
            // then.
            self.note_overwritten();
            // This comes last: once released, the segment may be overwritten.
            let woken = self.change(|log| log.release(segment, self.volume.clock.moment()));
            woken.wake();
            return true;
        }
        // Reserved before anything is read. Otherwise clients could take the free segments that rewriting needs.
        self.keep_for_reclaim();
        let listings = listing::listings(self, segment).await.records;
        let elsewhere = self.needed_elsewhere(segment, &listings).await;
        let own = listings.iter().filter_map(|listing| self.needed_here(segment, *listing));
        let mut needed: Vec<_> = own.chain(elsewhere.iter().copied()).collect();
        needed.sort_unstable_by_key(|needed| needed.listing.start_bytes);
        let segment_bytes = self.geometry.segment_bytes;
        self.note_reclaimed(needed.iter().map(|needed| u64::from(needed.listing.len_bytes).min(segment_bytes)).sum());
        let EvictionChoice { kept } = self.choose(segment, &needed);
        let starts: HashSet<u32> = kept.iter().map(|kept| kept.listing.start_bytes).collect();
        self.pass_on(needed.iter().filter(|needed| !starts.contains(&needed.listing.start_bytes)).copied()).await;
        for batch in kept.chunks(READ_BATCH) {
            self.reinsert(segment, &needed, batch).await;
        }
        // Entries of a page that survive together stay together.
        self.change(|log| log.release_rewritten(self.volume.clock.moment()));
        // A pinned entry must survive a kill at any time, so its new copy is on the device before the old segment can
        // be overwritten. Other rewritten entries may be lost.
        if listings.iter().any(|listing| self.volume.pins.contains(listing.key_hash)) {
            self.await_reinserted().await;
        }
        let position = |listing: &TrailerRecord| self.listed_position(segment, listing);
        let gone = listings
            .iter()
            .filter(|listing| {
                self.index.remove(listing.key_hash, &[position(listing)]) > 0 && listing.kind == ListedKind::Entry
            })
            .inspect(|listing| self.note_gone(listing));
        add(&self.volume.counters.evicted, gone.count() as u64);
        // Rewritten entries have other slots by then, so this removes only the dropped ones.
        for NeededRecord { listing, slot } in elsewhere {
            if self.forget_through(listing.key_hash, slot.position) {
                add(&self.volume.counters.evicted, 1);
                self.note_gone(&listing);
            }
        }
        self.forget_dropped(self.segments.segment_use(segment));
        let woken = self.change(|log| log.release(segment, self.volume.clock.moment()));
        woken.wake();
        self.note_segment_reclaimed();
        true
    }

    /// Waits until the rewritten entries are on the device. If the segment were reused before that, a kill of the
    /// process would lose these entries.
    async fn await_reinserted(self: &Arc<Self>) {
        let (last, failed_before) = self.lock_log().last_ticket_and_failures();
        // An entry that could not be written becomes a pending removal, as in any failed unit.
        let _ = self.flush_through(last, failed_before, FlushedGroups::None).await;
    }

    /// Returns which entries to rewrite, chosen by the policy's eviction.
    fn choose(&self, segment: SegmentId, needed: &[NeededRecord]) -> EvictionChoice {
        let LogRow::Packed(eviction) = self.row else { return EvictionChoice::default() };
        let live: Vec<_> = needed.iter().map(|needed| self.candidate(needed)).collect();
        let standard = self.standard(self.segments.segment_use(segment), &live);
        self.note_candidates(&live, &standard);
        let room_bytes = self.room_for_hits_bytes(standard.generation);
        let now_s = self.volume.clock.now_s();
        let reclaimed = ReclaimedSegment { live: &live, room_bytes, standard, now_s };
        eviction::choose(eviction, &reclaimed)
    }

    fn candidate(&self, needed: &NeededRecord) -> EvictionCandidate {
        let NeededRecord { listing, slot } = *needed;
        let held = &self.volume.protected_keys;
        let pinned = &self.volume.pins;
        let held = held.contains(listing.key_hash);
        let pinned = pinned.contains(listing.key_hash);
        EvictionCandidate { listing, hits: slot.hits, held, pinned }
    }

    /// Notes that the entry of a listed record was dropped. Unpins its key, so that no space is reserved for it.
    fn note_gone(&self, listing: &TrailerRecord) {
        self.note_evicted(listing.key_hash, listing.sectors());
        if self.volume.pins.remove(listing.key_hash) {
            add(&self.volume.counters.unpinned, 1);
        }
    }

    /// Returns how many bytes of a segment may be rewritten. Pinned and protected entries are rewritten even beyond
    /// this number.
    ///
    /// No segment takes more than half of the remaining write credit. Otherwise none might be left for the most popular
    /// entries of the next segment. A probation segment also leaves as much as a main segment may need.
    fn room_for_hits_bytes(&self, generation: SegmentRow) -> u64 {
        let tuning = &self.volume.options.tuning;
        if tuning.reinsertion_share == 0.0 {
            return 0;
        }
        let segment_bytes = self.geometry.segment_bytes;
        let (share, left_bytes) = match generation {
            SegmentRow::Main => (tuning.reinsertion_share, 0),
            SegmentRow::Probation => (PROBATION_SHARE_MAX, segment_bytes),
        };
        let of_segment = (segment_bytes as f64 * share) as u64;
        of_segment.min(self.write_credit_bytes().saturating_sub(left_bytes) / 2)
    }

    /// Returns how many more bytes may be rewritten before all bytes written exceed `write_factor_max` times the
    /// admitted ones.
    pub(super) fn write_credit_bytes(&self) -> u64 {
        let counters = &self.volume.counters;
        let admitted = counters.admitted_bytes.load(Ordering::Relaxed) as f64;
        let written = counters.written_bytes.load(Ordering::Relaxed) + self.lock_log().dirty_bytes();
        let allowed = admitted * self.volume.options.tuning.write_factor_max;
        ((allowed - written as f64).max(0.0) as u64).min(self.wear_left_bytes())
    }

    /// Returns a listed record with its slot; `None` if it is not the current record of an entry.
    fn needed_here(&self, segment: SegmentId, listing: TrailerRecord) -> Option<NeededRecord> {
        if listing.kind != ListedKind::Entry {
            return None;
        }
        let slot = self.index.peek(listing.key_hash).at(self.listed_position(segment, &listing))?;
        Some(NeededRecord { listing, slot })
    }

    /// Returns the entries that have their body or a part of it in the segment, but their own record elsewhere.
    async fn needed_elsewhere(&self, segment: SegmentId, listings: &[TrailerRecord]) -> Vec<NeededRecord> {
        let mut found: Vec<NeededRecord> = Vec::new();
        for &listing in listings {
            if found.iter().any(|needed| needed.listing.key_hash == listing.key_hash) {
                continue;
            }
            let matches = self.index.peek(listing.key_hash);
            if matches.at(self.listed_position(segment, &listing)).is_some() {
                continue;
            }
            for slot in matches.iter().filter(|slot| self.may_have_body_in(segment, &listing, slot)) {
                // Read, because the slot can also be that of an entry that was moved or replaced. Rewriting it would
                // take the room that others need.
                if let Some(len_bytes) = self.len_of_entry_with_body_in(segment, listing.key_hash, slot).await {
                    found.push(NeededRecord { listing: TrailerRecord { len_bytes, ..listing }, slot });
                    break;
                }
            }
        }
        found
    }

    /// Returns whether the entry of `slot` may have its body, or a part of it, in the record `listing`.
    fn may_have_body_in(&self, segment: SegmentId, listing: &TrailerRecord, slot: &IndexSlot) -> bool {
        match listing.kind {
            ListedKind::Entry => {
                let is_long = u64::from(listing.len_bytes) > BODY_BLOCK_BYTES;
                is_long && slot.hits > 0 && slot.size.sectors() < listing.sectors()
            }
            ListedKind::Part => self.geometry.segment_of(slot.position) != Some(segment),
            ListedKind::Tombstone => false,
        }
    }

    /// Returns the length in bytes of the entry of a slot, if its body or a part of it is in another record of this
    /// segment. Otherwise `None`.
    async fn len_of_entry_with_body_in(&self, segment: SegmentId, key_hash: KeyHash, slot: IndexSlot) -> Option<u32> {
        let (record, decoded) = self.read_front(key_hash, slot, RECOGNIZED_SECTORS).await.ok().flatten()?;
        let sequence = self.segments.sequence(segment);
        let is_here = |place: BodyElsewhere| {
            let sector = Sector(place.offset_bytes / SECTOR_BYTES);
            (self.geometry.segment_of(sector), place.sequence) == (Some(segment), sequence)
        };
        let has_body_here = match decoded.meta.kind {
            RecordKind::HeadUpdate(place) => is_here(place),
            RecordKind::InParts(_) => decoded.parts(&record).iter().any(|part| is_here(part.place)),
            RecordKind::Entry | RecordKind::Tombstone | RecordKind::Part => false,
        };
        let is_its_own = decoded.meta.hash.key_hash() == key_hash && has_body_here;
        is_its_own.then(|| (decoded.body_start as u64 + decoded.meta.body_bytes) as u32)
    }

    fn listed_position(&self, segment: SegmentId, listing: &TrailerRecord) -> Sector {
        self.geometry.sector_at(segment, listing.start_bytes.into())
    }

    /// Rewrites the entries `kept` of a segment. Skips entries that have changed or are damaged, or for which there is
    /// no space.
    async fn reinsert(self: &Arc<Self>, segment: SegmentId, needed: &[NeededRecord], kept: &[KeptEntry]) {
        let slot_of = |kept: &KeptEntry| {
            let at = needed.binary_search_by_key(&kept.listing.start_bytes, |needed| needed.listing.start_bytes);
            needed[at.expect("what is kept was needed")].slot
        };
        let slots = kept.iter().map(|kept| (slot_of(kept), kept));
        let reads = slots.map(async |(slot, kept)| {
            // Not the remainder of its group. It may begin within a sector.
            let outcome = self.read_front(kept.listing.key_hash, slot, kept.listing.sectors() + 1).await;
            (slot, kept.hits, outcome)
        });
        for (slot, hits, outcome) in join_all(reads).await {
            let Ok(Some((bytes, decoded))) = outcome else { continue };
            let Some(body) = self.body_in(segment, slot.position, &bytes, &decoded).await else { continue };
            let body = [body];
            let checksums = decoded.checksums_in_one_piece(&bytes, &body);
            let mut record = RecordParts {
                parts: &[],
                checksums: &checksums,
                key: &bytes[decoded.key.clone()],
                head: &bytes[decoded.head.clone()],
                body: &body,
                meta: RecordMeta { kind: RecordKind::Entry, ..decoded.meta },
            };
            // An invalidated entry is useless, even if it is pinned.
            if !self.volume.admits(record.meta.epoch) {
                continue;
            }
            // After a crash an older record of the key may still have a slot.
            if !self.is_newest(record.meta.hash, slot.position).await {
                continue;
            }
            let appender = ReclaimAppender { engine: self, from: slot.position, hits };
            if let Ok(AppendAttempt::Appended(_)) = self.append_divided(&mut record, appender).await {
                add(&self.volume.counters.reinserted, 1);
            }
        }
    }

    /// Returns the verified body of the record at `position`. Returns `None` if the body is damaged, not in this
    /// segment, or in parts one of which is lost.
    async fn body_in(
        self: &Arc<Self>,
        segment: SegmentId,
        position: Sector,
        record: &Bytes,
        decoded: &DecodedRecord,
    ) -> Option<Bytes> {
        if decoded.is_in_parts() {
            let reader = Reader::of_front(Arc::clone(self), position, record.clone(), decoded.clone());
            return reader.read(0..reader.len()).await.ok().flatten();
        }
        let body = self.undivided_body_in(segment, position, record, decoded).await?;
        if !decoded.verifies_from(0, record, &body) {
            add(&self.volume.counters.corrupt, 1);
            return None;
        }
        Some(body)
    }

    /// Returns the body of a record that has its body in one piece, without verifying it. Returns `None` if the body is
    /// not in this segment.
    async fn undivided_body_in(
        &self,
        segment: SegmentId,
        position: Sector,
        record: &Bytes,
        decoded: &DecodedRecord,
    ) -> Option<Bytes> {
        let place = self.body_place(position, decoded);
        let first = Sector(place.offset_bytes / SECTOR_BYTES);
        let skip = (place.offset_bytes % SECTOR_BYTES) as usize;
        if self.geometry.segment_of(first) != Some(segment) || self.segments.sequence(segment) != place.sequence {
            return None;
        }
        let len = decoded.meta.body_bytes;
        if decoded.body_is_here() {
            let end = decoded.len_bytes();
            return (end <= record.len()).then(|| record.slice(decoded.body_start..end));
        }
        let read = self.read_sectors(first, sectors(skip as u64 + len)).await;
        let bytes = read.ok().flatten().filter(|bytes| bytes.len() as u64 >= skip as u64 + len)?;
        Some(bytes.slice(skip..skip + len as usize))
    }
}
