//! Start and end of a run: the map is restored from the last close's snapshot, or from an older one and the journal.
//!
//! At start, the valid header names the snapshot. Its listings are loaded. Only then is the header replaced by one that
//! marks the close's snapshot as outdated (`engine::kit::map_checkpoint`), and only after that is the store opened for
//! writing. The header also reserves the numbers of future writes. A run after a crash continues after them, so no
//! number is used twice, and a record that the crashed run had not recorded is never trusted. Closing writes the pages,
//! syncs, then writes the headers. Cost: 24 bytes read and written per entry. Until its entry is loaded, a lookup
//! misses; commits wait.

use super::{
    MappedEngine,
    map::MapEntry,
    recovery::RecoveryFindings,
    state::{MappedState, NUMBERS_PER_BATCH, StorePhase},
};
use crate::{
    Error, ErrorKind, Result,
    engine::kit::{map_checkpoint, numbers::RunNumbers},
    format::snapshot::{SnapshotEntry, SnapshotHeader},
    volume::waiters::wait_for,
};
use std::sync::Arc;

impl MappedEngine {
    pub(super) async fn load_snapshot(self: &Arc<Self>) {
        let header = map_checkpoint::read_header(&self.volume).await;
        let next_write =
            header.as_ref().map_or(self.volume.clock.since_epoch().as_millis() as u32, |header| header.next_write);
        {
            let mut state = self.lock();
            state.numbers = RunNumbers::new(next_write.into(), NUMBERS_PER_BATCH);
            if let Some(header) = &header {
                state.checkpoint.take_over(header.clone());
            }
        }
        let found = self.load_entries(header.as_ref()).await;
        // If the snapshot cannot be marked as outdated, entries can be read but not changed.
        let begun = self.begin(found).await;
        if let Err(error) = &begun {
            tracing::error!("the store accepts no entries: {error}");
            self.volume.note_failed_start();
            self.lock().found = found;
        }
        self.enter(if begun.is_ok() { StorePhase::Open } else { StorePhase::Unusable });
    }

    /// Tries again to begin the run, if that failed when the store was opened.
    pub(super) async fn retry_start(self: &Arc<Self>) {
        if self.lock().phase != StorePhase::Unusable {
            return;
        }
        let Some(_turn) = self.volume.start_turn() else { return };
        // Read again under the lock, because another task may just have finished.
        let (phase, found) = {
            let state = self.lock();
            (state.phase, state.found)
        };
        if phase == StorePhase::Unusable && self.begin(found).await.is_ok() {
            self.enter(StorePhase::Open);
        }
    }

    /// Writes everything that must be durable before the first entry of this run is stored.
    async fn begin(self: &Arc<Self>, found: RecoveryFindings) -> Result<()> {
        map_checkpoint::begin_run(self).await?;
        map_checkpoint::renew(self).await?;
        match (&self.volume.directory, found) {
            (None, _) | (Some(_), RecoveryFindings::All) => Ok(()),
            (Some(_), RecoveryFindings::Most) => {
                self.lock().note_known_files();
                if !self.volume.options.background {
                    self.remove_unknown_files().await;
                }
                Ok(())
            }
            (Some(directory), RecoveryFindings::Nothing) => {
                let failed =
                    |source| Error::io(ErrorKind::Unavailable, "cannot remove the files of an earlier run", source);
                directory.clear().await.map_err(failed)
            }
        }
    }

    /// Loads the entries of an earlier run, from the snapshot alone if the store was closed, otherwise also from the
    /// journal.
    async fn load_entries(self: &Arc<Self>, header: Option<&SnapshotHeader>) -> RecoveryFindings {
        let is_newer =
            |header: &SnapshotHeader| header.recovery.is_some_and(|recovery| recovery.epoch > self.volume.epoch());
        let found = match header {
            // A superblock was lost, and its invalidations with it.
            Some(header) if is_newer(header) => RecoveryFindings::Nothing,
            Some(header) if header.whole => self.load_whole(header).await,
            Some(header) if header.recovery.is_some() => self.recover(header).await,
            _ => RecoveryFindings::Nothing,
        };
        if found == RecoveryFindings::Nothing {
            let mut state = self.lock();
            state.forget_all();
            let next = state.checkpoint.first_page_never_used();
            state.checkpoint.start_over(next);
        }
        found
    }

    /// Loads a snapshot that was written when the store was closed.
    async fn load_whole(self: &Arc<Self>, header: &SnapshotHeader) -> RecoveryFindings {
        let is_sound = {
            let mut state = self.lock();
            if let Some(recovery) = header.recovery {
                state.checkpoint.journal.go_on(recovery.journal_from, recovery.journal_from);
            }
            state.set_slot_counts(&header.slot_counts)
        };
        let mut loaded = 0;
        let take = |listings: Vec<SnapshotEntry>| {
            let mut state = self.lock();
            let mut load = |listing: &SnapshotEntry| state.load(listing.key_hash, MapEntry::of(listing));
            loaded += listings.iter().filter(|listing| load(listing)).count() as u64;
        };
        map_checkpoint::read_snapshot(&self.volume, header, take, || self.wake_waiting()).await;
        let mut state = self.lock();
        state.point_at(header.pointer);
        let are_all = is_sound && loaded == header.listing_count;
        if !are_all {
            state.checkpoint.note_outdated();
        }
        match (&self.volume.directory, are_all) {
            (_, true) => RecoveryFindings::All,
            (None, false) => RecoveryFindings::Most,
            // If the number of slots is unknown, files could become longer than allowed.
            (Some(_), false) if is_sound => RecoveryFindings::Most,
            (Some(_), false) => RecoveryFindings::Nothing,
        }
    }

    /// Reserves more numbers for writes.
    pub(super) async fn reserve_numbers(self: &Arc<Self>) {
        let Some(turn) = self.volume.head_turn() else { return };
        if let Err(error) = map_checkpoint::begin_run(self).await {
            tracing::error!("{error}");
        }
        drop(turn);
        self.wake_waiting();
    }

    /// Waits until everything is written, then writes the snapshot for the next start.
    pub(super) async fn write_snapshot(self: &Arc<Self>) -> Result<()> {
        self.wait_loaded().await;
        // The order matters: everything committed before the phase changes is flushed, and nothing is committed after
        // it.
        let was_open = self.lock().phase == StorePhase::Open;
        self.enter(StorePhase::Closed);
        let flushed = self.flush_all().await;
        if !was_open {
            return flushed;
        }
        map_checkpoint::close(self).await?;
        flushed
    }

    /// Waits until the entries of an earlier run are loaded.
    pub(super) async fn wait_loaded(&self) {
        wait_for(|| self.lock(), |state: &mut MappedState| (state.phase != StorePhase::Loading).then_some(())).await;
    }

    /// Wakes waiting commits, so that they check whether their deadlines have passed.
    pub(super) fn wake_waiting(&self) {
        let woken = self.lock().waiting.take();
        woken.wake();
    }

    fn enter(&self, phase: StorePhase) {
        let mut state = self.lock();
        state.phase = phase;
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }
}
