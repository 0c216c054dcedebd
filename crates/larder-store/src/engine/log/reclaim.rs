//! Reclaim: a segment's entries that are pinned or held, or worth it, are written again to a main one, the rest is forgotten.
//!
//! An entry with a new head whose body stands in the segment is written again as a whole. Bodies are copied with
//! their checksums, which readers compare, not this. Cost: one read of the trailer and one per entry kept.

use super::{
    LogEngine,
    append::{Attempt, Condition},
    eviction::{self, Candidate, Choice, Kept, Reclaimed},
    index::{LogIndex, Slot},
    layout::Appender,
    listing,
};
use crate::{
    LogRow,
    engine::Extent,
    format::{
        Generation,
        record::{BODY_BLOCK_BYTES, Decoded, Kind, Meta, Record},
        trailer::Listing,
    },
    units::{SECTOR_BYTES, Sector, SegmentId, sectors},
    volume::{counters::add, turn::Turn},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::{Arc, atomic::Ordering};

/// Most of a probation segment that is written again.
const PROBATION_SHARE_MAX: f64 = 0.875;
/// Entries read at once.
const READ_BATCH: usize = 32;

/// A record of the segment that is reclaimed, and the slot through which it is needed.
struct Needed {
    listing: Listing,
    slot: Slot,
}

impl LogEngine {
    /// Reclaims the next segment; `false` if there is none that can be, or somebody is at it.
    pub(super) async fn reclaim_oldest(self: &Arc<Self>) -> bool {
        let Some(_turn) = Turn::take(&self.reclaiming) else { return false };
        let mut actions = Vec::new();
        let next = self.lock_log().next_to_reclaim(&mut actions);
        self.perform(actions);
        let Some(segment) = next else { return false };
        if matches!(self.index, LogIndex::Sets(_)) {
            // Overwritten without being read: the index finds out by the generation, and is counted then.
            self.note_overwritten();
            let woken = self.lock_log().release(segment);
            woken.wake();
            return true;
        }
        self.keep_for_reclaim();
        let listings = listing::listings(self, segment).await.records;
        let needed: Vec<_> = listings.iter().filter_map(|listing| self.needed(segment, *listing)).collect();
        self.note_reclaimed(needed.iter().map(|needed| u64::from(needed.listing.sectors)).sum());
        let Choice { kept } = self.choose(segment, &needed);
        for batch in kept.chunks(READ_BATCH) {
            self.reinsert(segment, batch).await;
        }
        if listings.iter().any(|listing| self.volume.pins.contains(listing.key_hash)) {
            self.await_reinserted().await;
        }
        let position = |listing: &Listing| self.listed_position(segment, listing);
        // What needs only a body from here is found out when it is read.
        let gone = listings
            .iter()
            .filter(|listing| self.index.remove(listing.key_hash, &[position(listing)]) > 0 && !listing.tombstone)
            .inspect(|listing| self.note_gone(listing));
        add(&self.volume.counters.evicted, gone.count() as u64);
        self.forget_dropped(self.segments.segment_use(segment));
        let woken = self.lock_log().release(segment);
        woken.wake();
        true
    }

    /// Waits until what was written again is with the device: else the segment could be overwritten first, and a killed process would have
    /// lost what was to be spared.
    async fn await_reinserted(self: &Arc<Self>) {
        let (last, failed_before) = self.lock_log().last_ticket_and_failures();
        // What could not be written is owed, as any unit that failed.
        let _ = self.flush_through(last, failed_before).await;
    }

    /// Asks the row's eviction which of the records that are needed are written again.
    fn choose(&self, segment: SegmentId, needed: &[Needed]) -> Choice {
        let LogRow::Packed(eviction) = self.row else { return Choice::default() };
        let live: Vec<_> = needed.iter().map(|needed| self.candidate(needed)).collect();
        let standard = self.standard(self.segments.segment_use(segment));
        let room_sectors = self.room_for_hit_sectors(standard.generation).min(self.write_credit_sectors());
        let now_s = self.volume.clock.now_s();
        let reclaimed = Reclaimed { live: &live, room_sectors, standard, now_s };
        eviction::choose(eviction, &reclaimed)
    }

    fn candidate(&self, needed: &Needed) -> Candidate {
        let Needed { listing, slot } = *needed;
        let (held, pinned) = (&self.volume.holds, &self.volume.pins);
        let (held, pinned) = (held.contains(listing.key_hash), pinned.contains(listing.key_hash));
        Candidate { listing, hits: slot.hits, held, pinned }
    }

    /// Remembers an entry that is no longer there, and unpins it, so that nothing is spared for it.
    fn note_gone(&self, listing: &Listing) {
        self.note_evicted(listing.key_hash, listing.sectors.into());
        if self.volume.pins.remove(listing.key_hash) {
            add(&self.volume.counters.unpinned, 1);
        }
    }

    /// What of a segment may be written again because it is worth it. Of one on probation few entries were hit, and those go to a main one
    /// only once: most of it may be.
    fn room_for_hit_sectors(&self, generation: Generation) -> u64 {
        let segment_sectors = self.geometry.segment_bytes / SECTOR_BYTES;
        let tuning = &self.volume.options.tuning;
        let share = match generation {
            _ if !tuning.reinsertion => 0.0,
            Generation::Main => tuning.reinsertion_share,
            Generation::Probation => PROBATION_SHARE_MAX,
        };
        (segment_sectors as f64 * share) as u64
    }

    /// Returns how many sectors may be written again while all bytes written stay within `write_factor_max` times those
    /// admitted.
    fn write_credit_sectors(&self) -> u64 {
        let counters = &self.volume.counters;
        let admitted = counters.admitted_bytes.load(Ordering::Relaxed) as f64;
        let written = counters.written_bytes.load(Ordering::Relaxed) + self.lock_log().dirty_bytes();
        let allowed = admitted * self.volume.options.tuning.write_factor_max;
        (allowed - written as f64).max(0.0) as u64 / SECTOR_BYTES
    }

    /// The slot that needs a listed record: its own, or possibly that of a new head for its body.
    fn needed(&self, segment: SegmentId, listing: Listing) -> Option<Needed> {
        if listing.tombstone {
            return None;
        }
        let own = self.listed_position(segment, &listing);
        let may_have_new_head = |slot: &Slot| {
            slot.hits > 0
                && u64::from(listing.sectors) > sectors(BODY_BLOCK_BYTES)
                && slot.size.sectors() < u64::from(listing.sectors)
        };
        let matches = self.index.peek(listing.key_hash);
        let slot = matches.at(own).or_else(|| matches.iter().find(may_have_new_head))?;
        Some(Needed { listing, slot })
    }

    fn listed_position(&self, segment: SegmentId, listing: &Listing) -> Sector {
        Sector(self.geometry.segment_start_bytes(segment) / SECTOR_BYTES + u64::from(listing.sector))
    }

    /// Writes entries of a segment again, unless they changed or are damaged, or there is no room.
    async fn reinsert(self: &Arc<Self>, segment: SegmentId, kept: &[Kept]) {
        let slots = kept.iter().filter_map(|kept| Some((self.needed(segment, kept.listing)?.slot, kept.hits)));
        let reads = slots.map(async |(slot, hits)| (slot, hits, self.read_record(slot, Extent::Whole).await));
        for (slot, hits, outcome) in join_all(reads).await {
            let Ok(Some((bytes, decoded))) = outcome else { continue };
            let Some(body) = self.body_in(segment, slot.position, &bytes, &decoded).await else { continue };
            let mut record = Record {
                checksums: &decoded.checksums(&bytes),
                key: &bytes[decoded.key.clone()],
                head: &bytes[decoded.head.clone()],
                body: &[body],
                meta: Meta { kind: Kind::Entry, ..decoded.meta },
            };
            // Once invalidated it is nobody's, however long it is to be spared.
            if !self.volume.admits(record.meta.site, record.meta.epoch) {
                continue;
            }
            // After a crash an older record of the key may still have a slot.
            if !self.is_newest(record.meta.hash, slot.position).await {
                continue;
            }
            let condition = Condition::Reinserted { from: slot.position, hits };
            if let Ok(Attempt::Appended(_)) = self.try_append(&mut record, Appender::Reclaim, condition, None) {
                add(&self.volume.counters.reinserted, 1);
            }
        }
    }

    /// The body of the record at `position`, if it stands in this segment.
    async fn body_in(&self, segment: SegmentId, position: Sector, record: &Bytes, decoded: &Decoded) -> Option<Bytes> {
        let place = decoded.body_place(position);
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
