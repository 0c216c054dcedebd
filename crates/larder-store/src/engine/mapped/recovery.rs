//! Rebuilds the map after a crash, from a snapshot that is some minutes old and the later changes.
//!
//! An entry is added to the journal once it is on the device, and removed when it leaves the map. So the journal up to
//! any change describes the map at that time. No entry is visible before the whole journal is read. Room is assigned at
//! the end, newest entry first: only on a damaged volume do two entries have the same place. In policies that keep
//! files, files without an entry in the map are then removed in the background. Invariant: an entry is restored only if
//! the last change of its key added it.
//!
//! Cost: one lookup per change, and sorting the entries by age: the journal does not contain the order of use, so after
//! a crash it is the order of writing. Idea: Markatos et al. (USITS'99) on BUDDY; Squid's swap.state.

use super::{
    MappedEngine,
    dirty::DirtyEntry,
    layout::{RecordPlace, files},
    map::{MapEntry, MapPlace},
    state::{MappedState, StorePhase},
};
use crate::{
    engine::kit::{
        map_checkpoint::{self, CheckpointEngine, CheckpointSource, MapCheckpoint, MapPart},
        numbers::RunNumbers,
        state_lock::LockedState,
    },
    format::{
        journal::MapChange,
        snapshot::{SnapshotEntry, SnapshotHeader},
    },
    hash::KeyHash,
    units::SECTOR_BYTES,
    volume::counters::add,
};
use futures_util::future::join_all;
use std::{io, sync::Arc};

/// Number of files that are removed at the same time.
const REMOVED_AT_ONCE: usize = 64;

/// The entries of an earlier run that were found when the store started: all, most or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecoveryFindings {
    Nothing,
    /// Every entry that the snapshot or the journal records. Entries that were not recorded before a crash are lost,
    /// but their files may remain.
    Most,
    All,
}

/// Identifies the files to keep when all other files are removed.
pub(super) struct KnownFiles {
    /// Numbers of the writes that created the files of earlier runs, in ascending order.
    sequences: Vec<u32>,
    /// Number of the first write of this run. Files of this run are always kept.
    first: u32,
}

impl CheckpointEngine for MappedEngine {
    type State = MappedState;

    fn lock_map_state(&self) -> LockedState<'_, MappedState> {
        self.lock()
    }
}

impl CheckpointSource for MappedState {
    fn checkpoint(&mut self) -> &mut MapCheckpoint {
        &mut self.checkpoint
    }

    fn numbers(&mut self) -> &mut RunNumbers {
        &mut self.numbers
    }

    fn gather(&self, cursor: Option<u64>, in_order: bool, count_max: usize) -> MapPart {
        let node = cursor.map(|cursor| cursor as u32);
        let (part, next) = if in_order {
            self.map.part_in_order(node, count_max)
        } else {
            self.map.part(node.unwrap_or(0), count_max)
        };
        // Entries in flight are added to the journal when they are written.
        let is_written = |(_, entry): &&(KeyHash, MapEntry)| !self.dirty.holds(entry.sequence);
        let listings = part.iter().filter(is_written).map(|(key_hash, entry)| entry.listing(*key_hash)).collect();
        MapPart { listings, next: next.map(u64::from) }
    }

    fn entry_count(&self) -> u64 {
        self.map.entry_count()
    }

    fn pointer(&self) -> u64 {
        self.space.pointer()
    }

    fn slot_counts(&self) -> Vec<u32> {
        self.space.slot_counts()
    }
}

impl MapEntry {
    pub(super) fn of(listing: &SnapshotEntry) -> Self {
        let SnapshotEntry { place, sectors, sequence, expires_at, .. } = *listing;
        Self { place: MapPlace(place), sectors, sequence, expires_at }
    }

    fn listing(&self, key_hash: KeyHash) -> SnapshotEntry {
        let Self { place: MapPlace(place), sectors, sequence, expires_at } = *self;
        SnapshotEntry { key_hash, place, sectors, sequence, expires_at }
    }
}

impl MappedState {
    /// Adds a change to the journal: an entry on the device is no longer the current one of its key.
    pub(super) fn note_gone(&mut self, key_hash: KeyHash, entry: &MapEntry) {
        assert!(entry.sectors > 0, "a record has bytes");
        let change = MapChange { listing: entry.listing(key_hash), is_gone: true };
        self.checkpoint.journal.note(change, self.volume.clock.now(), self.space.pointer());
    }

    /// Adds the result of a complete write to the journal: its entry is the current one of its key or, if it was
    /// dropped in the meantime, it is gone. A gone entry is also noted, because its write may have extended a file.
    pub(super) fn note_written(&mut self, sequence: u32, dirty: &DirtyEntry) {
        assert_eq!(dirty.pieces_left, 0, "a write ends with its last piece");
        let Some(place) = dirty.place else { return };
        let stays = !dirty.failed && !dirty.dropped;
        let entry = self.map.find(dirty.key_hash).filter(|entry| stays && entry.sequence == sequence);
        let gone = MapEntry { place, sectors: dirty.sectors, sequence, expires_at: 0 };
        let change = MapChange { listing: entry.unwrap_or(gone).listing(dirty.key_hash), is_gone: entry.is_none() };
        let pointer = self.space.pointer();
        self.checkpoint.journal.note(change, dirty.since, pointer);
        let now = self.volume.clock.now();
        self.checkpoint.journal.seal_after(self.volume.options.flush_interval, now, pointer);
    }

    /// Adds an entry of a snapshot to the map. Changes that are read from the journal later can replace or remove it.
    fn recover_listing(&mut self, listing: &SnapshotEntry) {
        assert!(self.is_recovering, "what may be gone is not shown");
        self.space.note_place(MapPlace(listing.place), listing.sectors.into());
        self.map.remove(listing.key_hash);
        if self.map.is_full() {
            self.checkpoint.note_outdated();
        } else {
            self.map.insert(listing.key_hash, MapEntry::of(listing));
        }
    }

    fn replay(&mut self, change: &MapChange) {
        assert!(self.is_recovering, "what may be gone is not shown");
        let MapChange { listing, is_gone } = change;
        if *is_gone {
            self.space.note_place(MapPlace(listing.place), listing.sectors.into());
            self.map.remove_write(listing.key_hash, listing.sequence);
        } else {
            self.recover_listing(listing);
        }
    }

    /// Takes space for all recovered entries.
    fn settle(&mut self) {
        self.map.order_by_age(self.numbers.next() as u32);
        let mut displaced = Vec::new();
        for (key_hash, entry) in self.map.newest_first() {
            if self.space.take_at(entry.place, entry.sectors.into()) {
                self.used_sectors += self.space.taken_by(entry.sectors.into());
            } else {
                displaced.push(key_hash);
            }
        }
        if !displaced.is_empty() {
            self.checkpoint.note_outdated();
        }
        add(&self.volume.counters.corrupt, displaced.len() as u64);
        displaced.into_iter().for_each(|key_hash| _ = self.map.remove(key_hash));
        assert!(self.used_sectors <= self.space.capacity_sectors(), "places that do not overlap fit the volume");
    }

    /// Notes which files belong to entries, so that all other files can be removed later.
    pub(super) fn note_known_files(&mut self) {
        let mut sequences: Vec<_> = self.map.oldest_first().map(|(_, entry)| entry.sequence).collect();
        sequences.sort_unstable();
        assert!(
            self.phase == StorePhase::Loading || self.phase == StorePhase::Unusable,
            "before this run makes files of its own"
        );
        self.unknown_files = Some(KnownFiles { sequences, first: self.numbers.next() as u32 });
    }
}

impl MappedEngine {
    /// Rebuilds the map from a snapshot and the journal.
    pub(super) async fn recover(self: &Arc<Self>, header: &SnapshotHeader) -> RecoveryFindings {
        let Some(recovery) = header.recovery else { return RecoveryFindings::Nothing };
        {
            let mut state = self.lock();
            state.is_recovering = true;
            if !header.slot_counts.is_empty() && !state.set_slot_counts(&header.slot_counts) {
                return RecoveryFindings::Nothing;
            }
        }
        let take = |listings: Vec<SnapshotEntry>| {
            let mut state = self.lock();
            listings.iter().for_each(|listing| state.recover_listing(listing));
        };
        let listed = map_checkpoint::read_snapshot(&self.volume, header, take, || self.wake_waiting()).await;
        if listed != header.listing_count {
            self.lock().checkpoint.note_outdated();
        }
        let replayed = map_checkpoint::read_journal(&self.volume, recovery, |change| self.lock().replay(&change)).await;
        if replayed.is_broken {
            tracing::error!("the store's journal is damaged: the store starts empty");
            return RecoveryFindings::Nothing;
        }
        self.measure_files().await;
        let mut state = self.lock();
        state.settle();
        state.point_at(replayed.pointer.unwrap_or(header.pointer));
        state.checkpoint.journal.go_on(recovery.journal_from, replayed.next);
        state.is_recovering = false;
        RecoveryFindings::Most
    }

    /// Measures the files of slots. Writes that are not in the journal may have extended them.
    async fn measure_files(self: &Arc<Self>) {
        let Some(directory) = self.volume.directory.as_ref() else { return };
        let slots_of = |sectors| self.lock().space.slot_count(sectors);
        let mut sectors = 1;
        while let Some(slot) = slots_of(sectors) {
            let spot = self.lock().space.spot(MapPlace(slot), sectors, 0);
            let RecordPlace::File(file, start_bytes) = spot else { return };
            let last_bytes = start_bytes + (sectors - 1) * SECTOR_BYTES;
            let is_there = directory.read(file, last_bytes, SECTOR_BYTES as usize).await.is_ok();
            if is_there {
                self.lock().space.note_place(MapPlace(slot), sectors);
            }
            // A file cannot be longer than the limit on all files together.
            if !is_there || slots_of(sectors) == Some(slot) {
                sectors += 1;
            }
        }
    }

    /// Removes the files that belong to no entry. These are files of writes that were not recorded, and of entries that
    /// were removed just before the kill.
    pub(super) async fn remove_unknown_files(self: &Arc<Self>) {
        let Some(directory) = self.volume.directory.as_ref() else { return };
        let known = {
            let mut state = self.lock();
            if state.phase == StorePhase::Closed { None } else { state.unknown_files.take() }
        };
        let Some(KnownFiles { sequences, first }) = known else { return };
        let names = match directory.list().await {
            Ok(names) => names,
            Err(error) => {
                tracing::error!("cannot look for files of an earlier run: {error}");
                return;
            }
        };
        let unknown: Vec<_> = names
            .into_iter()
            .filter(|name| {
                let next = self.lock().numbers.next() as u32;
                let sequence = files::sequence_of(name.as_str());
                sequence.is_some_and(|sequence| {
                    let is_of_this_run = sequence.wrapping_sub(first) < next.wrapping_sub(first);
                    !is_of_this_run && sequences.binary_search(&sequence).is_err()
                })
            })
            .collect();
        for names in unknown.chunks(REMOVED_AT_ONCE) {
            let removed = join_all(names.iter().map(|name| directory.remove(name.clone()))).await;
            let is_left = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
            if let Some(error) = removed.into_iter().filter_map(std::result::Result::err).find(is_left) {
                tracing::error!("cannot remove a file of an earlier run: {error}");
            }
            self.do_what_is_due();
        }
    }
}
