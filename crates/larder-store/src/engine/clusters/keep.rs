//! Keeps the hit entries of clusters that are about to be evicted: they are written again in an open cluster.
//!
//! Owns: the choice of such entries, and the free clusters that are made ahead of need, so that there is time to read a
//! cluster. If they are used up, a cluster is evicted at once, with all its entries. UCFS has the hit entries in memory
//! when their cluster is evicted; this store has them on the device only, so one more read of the cluster is the price.
//! Invariant: an entry is written again only if it is sound and still its key's entry. Cost: one read for each cluster
//! with hit entries, and a write of at most half of it. Source: UCFS (IEEE TC 2002), as its abstract lets one conclude.

use super::{
    ClustersEngine, ClustersState,
    entries::EntryPlace,
    read::{FoundInCluster, record_at},
};
use crate::{
    engine::kit::map_checkpoint,
    format::record::{DecodedRecord, RecordKind, RecordParts},
    hash::KeyHash,
    units::SECTOR_BYTES,
    volume::{counters::add, turn::TaskTurn},
};
use bytes::Bytes;
use std::sync::Arc;

/// A cluster to be evicted, and its hit entries.
struct ClusterToEvict {
    cluster: u32,
    sequence: u32,
    /// Newest first.
    hit: Vec<(KeyHash, EntryPlace)>,
}

impl ClustersEngine {
    /// Evicts the least recently used clusters until enough are free, and writes their hit entries again.
    pub(super) async fn evict_ahead(self: &Arc<Self>) {
        if !self.volume.options.tuning.ucfs_keep_hits {
            return;
        }
        let Some(_turn) = TaskTurn::take(&self.is_evicting) else { return };
        for _ in 0..FREE_CLUSTERS_MAX {
            let next = self.lock().next_to_evict(self.area.cluster_bytes);
            let Some(next) = next else { break };
            self.keep_hits(&next).await;
            self.evict_rest(&next);
        }
        map_checkpoint::send(self);
    }

    /// Returns whether clusters must be evicted ahead of need.
    pub(super) fn eviction_is_due(&self) -> bool {
        self.volume.options.tuning.ucfs_keep_hits && self.lock().is_short_of_clusters()
    }

    /// Writes the hit entries of a cluster again, as far as they are sound.
    async fn keep_hits(self: &Arc<Self>, ClusterToEvict { cluster, sequence, hit }: &ClusterToEvict) {
        if hit.is_empty() {
            return;
        }
        let offset_bytes = self.area.offset_bytes(*cluster);
        let Ok(bytes) = self.volume.read(offset_bytes, self.area.cluster_bytes).await else { return };
        // The chain begins with the newest entry.
        for &(key_hash, place) in hit.iter().rev() {
            let found = (place, *sequence);
            if self.is_of(&bytes, found)
                && let Some(record) = record_at(&bytes, place)
            {
                self.keep(key_hash, found, &record);
            }
        }
    }

    /// Writes an entry again if it is still at the place where its record was read.
    fn keep(self: &Arc<Self>, key_hash: KeyHash, found: FoundInCluster, record: &Bytes) {
        let Ok(decoded) = DecodedRecord::decode(self.volume.id, record) else { return };
        let meta = &decoded.meta;
        let key = &record[decoded.key.clone()];
        let is_it = meta.kind == RecordKind::Entry && meta.sequence == found.1 && meta.hash.key_hash() == key_hash;
        // A damaged body would get a valid place.
        if !is_it || !decoded.verifies_here(record) {
            return;
        }
        if self.volume.is_useless(&decoded) || self.volume.pending_removals.hides(key) {
            return;
        }
        let body = [record.slice(decoded.body_start..decoded.len_bytes())];
        let checksums = decoded.checksums(record);
        let mut parts = RecordParts {
            meta: meta.clone(),
            key,
            head: &record[decoded.head.clone()],
            parts: &[],
            checksums: &checksums,
            body: &body,
        };
        // Without room, the entry is evicted with its cluster.
        if self.try_append(&mut parts, Some(found), None).unwrap_or(false) {
            add(&self.volume.counters.reinserted, 1);
        }
    }

    /// Evicts the entries that a cluster still has.
    fn evict_rest(&self, ClusterToEvict { cluster, sequence, .. }: &ClusterToEvict) {
        let mut state = self.lock();
        let is_it = state.clusters.is_full(*cluster) && state.clusters.sequence(*cluster) == *sequence;
        if !is_it || state.checkpoint.journal.check_room().is_err() {
            return;
        }
        let count = state.forget_all(*cluster);
        assert!(count > 0, "a full cluster has entries");
        state.clusters.release(*cluster);
        assert!(!state.clusters.is_full(*cluster), "an evicted cluster is free");
        add(&self.volume.counters.evicted, count);
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }
}

impl ClustersState {
    fn is_short_of_clusters(&self) -> bool {
        let wanted = (self.clusters.count() / CLUSTERS_PER_FREE).clamp(1, FREE_CLUSTERS_MAX);
        self.ready && !self.is_recovering && self.clusters.free_count() < wanted
    }

    /// Returns the least recently used cluster if too few are free, with the hit entries to be written again.
    fn next_to_evict(&self, cluster_bytes: u64) -> Option<ClusterToEvict> {
        let cluster = self.clusters.lru().next().filter(|_| self.is_short_of_clusters())?;
        let mut left_sectors = cluster_bytes / SECTOR_BYTES / KEPT_SHARE;
        // A long entry has clusters of its own, and is evicted with them.
        let is_shared = self.clusters.len_bytes(cluster) == cluster_bytes;
        let hit = self.entries.hit_in(self.clusters.first(cluster).filter(|_| is_shared));
        let hit = hit.take_while(|(_, place)| {
            let sectors = u64::from(place.sectors);
            let fits = sectors <= left_sectors;
            left_sectors = left_sectors.saturating_sub(sectors);
            fits
        });
        Some(ClusterToEvict { cluster, sequence: self.clusters.sequence(cluster), hit: hit.collect() })
    }
}

/// Clusters of the volume for each that is kept free.
const CLUSTERS_PER_FREE: u64 = 32;
const FREE_CLUSTERS_MAX: u64 = 16;
/// At most this fraction (1/n) of a cluster is written again. More would be a cleaner, which UCFS does without.
const KEPT_SHARE: u64 = 2;
