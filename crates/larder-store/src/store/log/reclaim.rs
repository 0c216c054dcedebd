//! Reclaim: the oldest segment's hit entries are written again, the rest is forgotten.
//!
//! Cost: one read of the trailer and one per entry kept.

use super::{LogEngine, append::Condition, listing};
use crate::{
    eviction,
    format::{
        record::{Kind, Record},
        trailer::Listing,
    },
    layout::log::Appender,
    store::{counters::add, engine::Extent},
    units::{SECTOR_BYTES, Sector, SegmentId},
};
use futures_util::future::join_all;
use std::{sync::Arc, task::Waker};

/// Entries read at once.
const READ_BATCH: usize = 32;

impl LogEngine {
    /// Reclaims the oldest segment; `false` if there is none that can be.
    pub(super) async fn reclaim_oldest(self: &Arc<Self>) -> bool {
        let Some(segment) = self.lock_log().oldest_clean() else { return false };
        let listings = listing::listings(self, segment).await;
        let position = |listing: &Listing| self.listed_position(segment, listing);
        let live: Vec<_> = listings
            .iter()
            .filter(|listing| !listing.tombstone)
            .filter_map(|listing| Some((*listing, self.index.peek(listing.placing)?)))
            .filter(|(listing, slot)| slot.position == position(listing))
            .map(|(listing, slot)| (listing, slot.hits))
            .collect();
        let segment_sectors = self.geometry.segment_bytes / SECTOR_BYTES;
        let kept = if self.volume.options.tuning.reinsertion {
            eviction::keep(&live, segment_sectors, self.volume.clock.now_s())
        } else {
            Vec::new()
        };
        for batch in kept.chunks(READ_BATCH) {
            self.reinsert(segment, batch).await;
        }
        let evicted =
            live.iter().filter(|(listing, _)| self.index.remove_at(listing.placing, position(listing))).count();
        add(&self.volume.counters.evicted, evicted as u64);
        let waiting = self.lock_log().release_oldest(segment);
        waiting.into_iter().for_each(Waker::wake);
        true
    }

    fn listed_position(&self, segment: SegmentId, listing: &Listing) -> Sector {
        Sector(self.geometry.segment_start_bytes(segment) / SECTOR_BYTES + u64::from(listing.sector))
    }

    /// Writes entries of a segment again, unless they moved or are damaged, or there is no room.
    async fn reinsert(self: &Arc<Self>, segment: SegmentId, listings: &[Listing]) {
        let slots = listings.iter().filter_map(|listing| {
            let slot = self.index.peek(listing.placing)?;
            (slot.position == self.listed_position(segment, listing)).then_some(slot)
        });
        let reads = slots.map(async |slot| (slot, self.read_record(slot, Extent::Whole).await));
        for (slot, outcome) in join_all(reads).await {
            let Ok(Some((bytes, decoded))) = outcome else { continue };
            let end = decoded.len_bytes();
            // The body of a head update is in an older segment, which is gone already.
            if decoded.meta.kind != Kind::Entry || end > bytes.len() {
                continue;
            }
            let body = [bytes.slice(decoded.body_start..end)];
            let mut record = Record {
                checksums: &decoded.checksums(&bytes),
                key: &bytes[decoded.key.clone()],
                head: &bytes[decoded.head.clone()],
                body: &body,
                meta: decoded.meta,
            };
            let condition = Condition::StillAt(slot.position);
            if let Ok(Some(_)) = self.try_append(&mut record, Appender::Reclaim, condition, None) {
                add(&self.volume.counters.reinserted, 1);
            }
        }
    }
}
