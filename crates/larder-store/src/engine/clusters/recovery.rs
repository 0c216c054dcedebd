//! Restores the tables of `ucfs` after a stop or a kill, from a snapshot and the journal of later changes.
//!
//! An entry is added to the journal when the device has it, and removed from the journal after it was removed from the
//! table. The journal up to any change therefore lists the entries that the device had at that time. The entries also
//! determine which clusters are full. Clusters are not read; each is checked at the first lookup of an entry in it.
//! Invariant: the room of a restored entry is free. If two restored entries overlap, the snapshot has them from
//! different moments, and the journal shows which of them was removed. Cost: 24 bytes per entry, read once.

use super::{
    ClustersEngine, ClustersState,
    entries::{EntryPlace, EntryTable},
    layout::ClusterTable,
    session::NUMBERS_PER_BATCH,
};
use crate::{
    engine::kit::{
        map_checkpoint::{self, CheckpointEngine, CheckpointSource, MapCheckpoint, MapPart},
        numbers::RunNumbers,
        state_lock::LockedState,
    },
    format::{
        VolumeId,
        journal::MapChange,
        snapshot::{SnapshotEntry, SnapshotHeader},
    },
    hash::KeyHash,
    units::SECTOR_BYTES,
};
use std::{ops::Range, sync::Arc};

/// Returns the maximum number of listings in a snapshot of `entries` entries. An entry that is replaced while the
/// snapshot is being written may be listed twice.
pub(super) fn listings_max(entries: u64) -> u64 {
    entries + entries / 2
}

impl CheckpointEngine for ClustersEngine {
    type State = ClustersState;

    fn lock_map_state(&self) -> LockedState<'_, ClustersState> {
        self.lock()
    }
}

impl CheckpointSource for ClustersState {
    fn checkpoint(&mut self) -> &mut MapCheckpoint {
        &mut self.checkpoint
    }

    fn numbers(&mut self) -> &mut RunNumbers {
        &mut self.clusters.numbers
    }

    fn gather(&self, cursor: Option<u64>, in_order: bool, count_max: usize) -> MapPart {
        let mut next = match (cursor, in_order) {
            (Some(cursor), _) => Some(cursor as u32),
            (None, true) => self.clusters.lru().next(),
            (None, false) => Some(0),
        };
        let mut listings = Vec::new();
        while let Some(cluster) = next.filter(|&cluster| cluster < self.area.count) {
            if listings.len() >= count_max {
                break;
            }
            let entries = self.entries.chain(self.clusters.first(cluster));
            let written = entries.filter(|(_, place)| self.clusters.is_with_device(cluster, place.offset_sectors));
            listings.extend(written.map(|(key_hash, place)| self.listing(key_hash, place)));
            next = if in_order { self.clusters.next_used(cluster) } else { Some(cluster + 1) };
        }
        MapPart { listings, next: next.filter(|&cluster| cluster < self.area.count).map(u64::from) }
    }

    fn entry_count(&self) -> u64 {
        self.entries.len() as u64
    }

    fn pointer(&self) -> u64 {
        0
    }

    fn slot_counts(&self) -> Vec<u32> {
        Vec::new()
    }
}

impl ClustersState {
    /// Adds the removal of an entry to the journal, if the entry is on the device.
    pub(super) fn note_gone(&mut self, key_hash: KeyHash, place: EntryPlace) {
        debug_assert_eq!(self.entries.find(key_hash), Some(place), "an entry goes from where it stands");
        if self.clusters.is_with_device(place.cluster, place.offset_sectors) {
            let change = MapChange { listing: self.listing(key_hash, place), is_gone: true };
            self.checkpoint.journal.note(change, self.volume.clock.now(), 0);
        }
    }

    /// Adds the removal of all entries of a cluster to the journal.
    pub(super) fn note_all_gone(&mut self, cluster: u32) {
        let entries: Vec<_> = self.entries.chain(self.clusters.first(cluster)).collect();
        assert_eq!(entries.len(), self.clusters.entry_count(cluster), "all of a cluster goes with it");
        entries.into_iter().for_each(|(key_hash, place)| self.note_gone(key_hash, place));
    }

    /// Adds all entries of a cluster to the journal, after the cluster was written.
    pub(super) fn note_written(&mut self, cluster: u32) {
        let now = self.volume.clock.now();
        let listings: Vec<_> = {
            let entries = self.entries.chain(self.clusters.first(cluster));
            entries.map(|(key_hash, place)| self.listing(key_hash, place)).collect()
        };
        assert!(listings.is_empty() || self.clusters.is_full(cluster), "what is written is with the device");
        for listing in listings {
            self.checkpoint.journal.note(MapChange { listing, is_gone: false }, now, 0);
        }
    }

    /// Adds the entries in these sectors of an open cluster to the journal, after the sectors were written.
    pub(super) fn note_partially_written(&mut self, cluster: u32, sectors: &Range<u16>) {
        let now = self.volume.clock.now();
        let entries = self.entries.chain(self.clusters.first(cluster));
        let written = entries.filter(|(_, place)| sectors.contains(&place.offset_sectors));
        let listings: Vec<_> = written.map(|(key_hash, place)| self.listing(key_hash, place)).collect();
        let is_written = listings.is_empty() || self.clusters.is_with_device(cluster, sectors.start);
        assert!(is_written, "only what is written is noted");
        for listing in listings {
            self.checkpoint.journal.note(MapChange { listing, is_gone: false }, now, 0);
        }
    }

    fn sectors_per_cluster(&self) -> u64 {
        self.area.cluster_bytes / SECTOR_BYTES
    }

    fn listing(&self, key_hash: KeyHash, place: EntryPlace) -> SnapshotEntry {
        SnapshotEntry {
            key_hash,
            place: u64::from(place.cluster) * self.sectors_per_cluster() + u64::from(place.offset_sectors),
            sectors: place.sectors.into(),
            sequence: self.clusters.sequence(place.cluster),
            expires_at: 0,
        }
    }

    /// Restores an entry, and its cluster if this is the cluster's first entry. If there is no space for the entry,
    /// leaves it out and notes that the snapshot is outdated.
    fn take_up(&mut self, listing: &SnapshotEntry) {
        let per_cluster = self.sectors_per_cluster();
        let Ok(cluster) = u32::try_from(listing.place / per_cluster) else { return };
        let offset_sectors = (listing.place % per_cluster) as u16;
        let sectors = listing.sectors as u16;
        let span = (u64::from(offset_sectors) + u64::from(listing.sectors)).div_ceil(per_cluster);
        if self.entries.find(listing.key_hash).is_some() || self.entries.is_full() || cluster >= self.area.count {
            return self.checkpoint.note_outdated();
        }
        let is_there = self.clusters.is_full(cluster) && self.clusters.sequence(cluster) == listing.sequence;
        let own = EntryPlace { cluster, offset_sectors, sectors };
        let Some(span) = u8::try_from(span).ok().filter(|_| own.has_length()) else { return };
        if !is_there && !self.clusters.resume(cluster, listing.sequence, span) {
            return self.checkpoint.note_outdated();
        }
        let first = self.clusters.first(cluster);
        let id = self.entries.insert(listing.key_hash, own, first);
        self.clusters.set_first(cluster, Some(id));
        self.clusters.count_entry(cluster, sectors);
        assert_eq!(self.entries.find(listing.key_hash), Some(own), "what was taken up is found");
    }

    fn replay(&mut self, MapChange { listing, is_gone }: &MapChange) {
        assert!(self.is_recovering, "what may be gone is not shown");
        let found = self.entries.find(listing.key_hash);
        let is_it = found.filter(|place| self.clusters.sequence(place.cluster) == listing.sequence);
        match (is_gone, is_it) {
            (true, Some(place)) => self.forget(listing.key_hash, place),
            (false, None) => {
                if let Some(place) = found {
                    self.forget(listing.key_hash, place);
                }
                self.take_up(listing);
            }
            (true, None) | (false, Some(_)) => {}
        }
    }

    fn clear(&mut self, volume_id: VolumeId, capacity: u64) {
        assert!(!self.ready, "nothing is stored before it is known what there is");
        let numbers = self.clusters.numbers;
        self.clusters = ClusterTable::new(self.area, volume_id, self.groups, numbers);
        self.entries = EntryTable::new(capacity);
    }
}

impl ClustersEngine {
    pub(super) fn keeps_journal(&self) -> bool {
        self.volume.shape.journal_pages > 0
    }

    /// Restores the tables from the snapshot and the journal of an earlier run.
    pub(super) async fn recover(self: &Arc<Self>) {
        let header = map_checkpoint::read_header(&self.volume).await;
        let next =
            header.as_ref().map_or(self.volume.clock.since_epoch().as_millis() as u32, |header| header.next_write);
        // The options may assume larger entries than the store has.
        let listed = header.as_ref().map_or(0, |header| header.listing_count);
        {
            let mut state = self.lock();
            let capacity = (state.entries.capacity() as u64).max(listed);
            state.clusters.numbers = RunNumbers::new(next.into(), NUMBERS_PER_BATCH);
            state.clear(self.volume.id, capacity);
            if let Some(header) = &header {
                state.checkpoint.take_over(header.clone());
                state.is_recovering = !header.whole;
            }
        }
        let next_page = match &header {
            Some(header) => self.read_checkpoint(header).await,
            None => None,
        };
        let mut state = self.lock();
        state.is_recovering = false;
        match (header.and_then(|header| header.recovery), next_page) {
            (Some(recovery), Some(next_page)) => state.checkpoint.journal.go_on(recovery.journal_from, next_page),
            _ => {
                let capacity = state.entries.capacity() as u64;
                state.clear(self.volume.id, capacity);
                let next = state.checkpoint.first_page_never_used();
                state.checkpoint.start_over(next);
            }
        }
    }

    /// Fills the tables from the snapshot and the journal. Returns the number of the page after the journal's last one,
    /// or `None` if nothing can be trusted.
    async fn read_checkpoint(self: &Arc<Self>, header: &SnapshotHeader) -> Option<u64> {
        let recovery = header.recovery?;
        if recovery.epoch > self.volume.epoch() {
            // A superblock was lost, and its invalidations with it.
            return None;
        }
        let take = |listings: Vec<SnapshotEntry>| {
            let mut state = self.lock();
            listings.iter().for_each(|listing| state.take_up(listing));
        };
        let listed = map_checkpoint::read_snapshot(&self.volume, header, take, || ()).await;
        if listed != header.listing_count {
            self.lock().checkpoint.note_outdated();
        }
        if header.whole {
            return Some(recovery.journal_from);
        }
        let replayed = map_checkpoint::read_journal(&self.volume, recovery, |change| self.lock().replay(&change)).await;
        if replayed.is_broken {
            tracing::error!("the store's journal is damaged: the store starts empty");
            return None;
        }
        let mut state = self.lock();
        let next = state.clusters.numbers.next() as u32;
        state.clusters.order_by_age(next);
        Some(replayed.next)
    }
}
