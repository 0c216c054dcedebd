//! The write side of `ucfs`: entries are collected in their site's open cluster; a full cluster is written to the
//! device.
//!
//! Invariant: a record and its entry become visible together, under the state's lock. Cost: a copy of the record; one
//! write for all entries of a cluster, and one more for each [`OPEN_WAIT`] in which it is filled; eviction changes only
//! memory.

use super::{ClustersEngine, ClustersState, entries::EntryPlace, layout::NoRun, read::FoundInCluster};
use crate::{
    Result,
    engine::kit::{
        effects::completion_for,
        map_checkpoint,
        pack::{PackRecord, SealedPack},
        room::{NoRoom, append_with_room, flushed},
    },
    format::{pack::PackedKind, record::RecordParts},
    volume::{cannot_begin, counters::add, waiters::wait_for, wakeup::TICK},
};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Duration,
};

/// Maximum time that an entry waits in an open cluster before its write begins. Together with the entry's wait for the
/// journal, this is less than five seconds.
const OPEN_WAIT: Duration = Duration::from_secs(3);
/// An entry may take at most 1/`SHARE_OF_CLUSTERS` of the volume's clusters.
const SHARE_OF_CLUSTERS: u64 = 4;

impl ClustersEngine {
    /// Appends an entry. With `found`, the place where a lookup found the key's entry, appends only if that entry is
    /// still there. Returns whether the entry was appended.
    pub(super) async fn append(
        self: &Arc<Self>,
        mut record: RecordParts<'_>,
        found: Option<FoundInCluster>,
    ) -> Result<bool> {
        if self.is_barred() {
            return Err(cannot_begin());
        }
        if !self.volume.options.background {
            // Without a maintenance thread, no other task does this.
            map_checkpoint::make_room(self).await;
        }
        let too_long = "the entry is longer than the store has clusters for";
        append_with_room(self, too_long, self.flush_all(), |waker| self.try_append(&mut record, found, waker)).await
    }

    /// Returns whether every entry is rejected: the volume is loaded, but the header that reserves sequences for this
    /// run could not be written.
    fn is_barred(&self) -> bool {
        self.volume.counters.loaded.load(Ordering::Acquire) && !self.lock().ready
    }

    /// Appends an entry if there is space now. Returns `false` if `found` is given and the key's entry is no longer
    /// there.
    fn try_append(
        self: &Arc<Self>,
        record: &mut RecordParts<'_>,
        found: Option<FoundInCluster>,
        waker: Option<&Waker>,
    ) -> std::result::Result<bool, NoRoom> {
        let key_hash = record.meta.hash.key_hash();
        let mut sealed = Vec::new();
        let mut state = self.lock();
        let unchanged = found.is_none_or(|(place, sequence)| {
            state.entries.find(key_hash) == Some(place) && state.clusters.sequence(place.cluster) == sequence
        });
        if !unchanged {
            return Ok(false);
        }
        let outcome = self.append_locked(&mut state, record, &mut sealed);
        if outcome == Err(NoRoom::Now) {
            waker.into_iter().for_each(|waker| state.waiting.add(waker));
        }
        debug_assert!(outcome.is_err() || state.entries.find(key_hash).is_some(), "what is appended is found");
        drop(state);
        self.perform(sealed);
        map_checkpoint::send(self);
        if outcome.is_err() {
            self.volume.wakeup.wake();
        } else {
            self.volume.wakeup.wake_if_idle();
        }
        outcome.map(|()| true)
    }

    fn append_locked(
        &self,
        state: &mut ClustersState,
        record: &mut RecordParts<'_>,
        sealed: &mut Vec<SealedPack>,
    ) -> std::result::Result<(), NoRoom> {
        let len_bytes = record.len_bytes();
        let area = &self.area;
        if len_bytes + area.directory_bytes() > u64::from(area.count) / SHARE_OF_CLUSTERS * area.cluster_bytes {
            return Err(NoRoom::Ever);
        }
        if !state.ready || state.clusters.numbers.are_spent() {
            return Err(NoRoom::Now);
        }
        state.checkpoint.journal.check_room()?;
        if state.clusters.dirty_bytes() + len_bytes > self.volume.options.dirty_bytes_max {
            if !state.clusters.is_writing() {
                state.seal_all(sealed);
            }
            return Err(NoRoom::Now);
        }
        let group = (record.meta.site.0 % state.groups as u64) as usize;
        while state.entries.is_full() {
            self.evict(state, 1)?;
        }
        while let Err(NoRun(span)) = state.clusters.prepare(group, len_bytes, sealed) {
            self.evict(state, span)?;
        }
        assert!(!state.entries.is_full(), "an entry that comes has room in the table");
        let key_hash = record.meta.hash.key_hash();
        if let Some(old) = state.entries.find(key_hash) {
            state.forget(key_hash, old);
        }
        let expires_at = record.meta.expires_at;
        let parcel = PackRecord { key_hash, len_bytes, expires_at, kind: PackedKind::Entry };
        let now = self.volume.clock.now();
        let place = state.clusters.append(group, parcel, sealed, |target, sequence| {
            record.meta.sequence = sequence;
            record.encode(self.volume.id, target);
        });
        state.clusters.note_waiting(group, now);
        let first = state.clusters.first(place.cluster);
        let offset_sectors = place.offset_sectors;
        let sectors = place.sectors;
        let own = EntryPlace { cluster: place.cluster, offset_sectors, sectors };
        let id = state.entries.insert(key_hash, own, first);
        state.clusters.set_first(place.cluster, Some(id));
        debug_assert_eq!(state.entries.find(key_hash), Some(own), "what was appended is found");
        Ok(())
    }

    /// Evicts entries until `span` adjacent clusters are free.
    fn evict(&self, state: &mut ClustersState, span: u32) -> std::result::Result<(), NoRoom> {
        for victim in state.clusters.victims(span).ok_or(NoRoom::Now)? {
            let count = state.forget_all(victim);
            assert!(count > 0, "a full cluster has entries");
            state.clusters.release(victim);
            add(&self.volume.counters.evicted, count);
        }
        Ok(())
    }

    /// Writes all open clusters, and waits until the device has them.
    pub(super) async fn flush_all(self: &Arc<Self>) -> Result<()> {
        let mut sealed = Vec::new();
        let failed_before = {
            let mut state = self.lock();
            state.seal_all(&mut sealed);
            state.failed
        };
        self.perform(sealed);
        let failed = |state: &mut ClustersState| (!state.clusters.is_writing()).then_some(state.failed);
        let all_written = flushed(wait_for(|| self.lock(), failed).await == failed_before);
        map_checkpoint::write_down(self).await.and(all_written)
    }

    /// Writes the open clusters in which an entry has waited for [`OPEN_WAIT`]. Entries can still be added to these
    /// clusters afterwards.
    pub(super) fn write_waiting(self: &Arc<Self>) {
        let until = self.volume.clock.now().checked_sub(OPEN_WAIT).filter(|_| self.keeps_journal());
        let copies = until.map(|until| self.lock().clusters.copy_waiting(until));
        for SealedPack { sequence, offset_bytes, buffer, .. } in copies.into_iter().flatten() {
            let written = completion_for(self, move |engine, outcome| engine.open_cluster_written(sequence, &outcome));
            self.volume.submit_write(offset_bytes, buffer, written);
        }
    }

    /// Returns the time until an open cluster must be written; `None` if no entry waits in an open cluster.
    pub(super) fn waiting_due(&self) -> Option<Duration> {
        let since = self.lock().clusters.oldest_waiting().filter(|_| self.keeps_journal())?;
        Some((since + OPEN_WAIT).saturating_sub(self.volume.clock.now()).max(TICK))
    }

    fn open_cluster_written(self: &Arc<Self>, sequence: u32, outcome: &io::Result<()>) {
        self.volume.note_write(outcome);
        let mut state = self.lock();
        let written = state.clusters.partially_written(sequence, outcome.is_ok(), self.volume.clock.now());
        let mut completed = Vec::new();
        if let Some(written) = written {
            state.note_partially_written(written.cluster, &written.sectors);
            completed.extend(written.completed);
        }
        drop(state);
        self.perform(completed);
        map_checkpoint::send(self);
    }

    /// Submits the writes of clusters that are complete.
    fn perform(self: &Arc<Self>, sealed: Vec<SealedPack>) {
        for SealedPack { sequence, offset_bytes, buffer, .. } in sealed {
            let written = completion_for(self, move |engine, outcome| engine.cluster_written(sequence, &outcome));
            self.volume.submit_write(offset_bytes, buffer, written);
        }
    }

    fn cluster_written(self: &Arc<Self>, sequence: u32, outcome: &io::Result<()>) {
        self.volume.note_write(outcome);
        let mut state = self.lock();
        let written = state.clusters.written(sequence);
        if outcome.is_err() {
            state.failed += 1;
            if let Some(cluster) = written {
                let lost = state.forget_all(cluster);
                if lost > 0 {
                    state.clusters.release(cluster);
                }
            }
        } else if let Some(cluster) = written {
            state.note_written(cluster);
        }
        let woken = state.waiting.take();
        drop(state);
        map_checkpoint::send(self);
        woken.wake();
    }
}

impl ClustersState {
    fn seal_all(&mut self, sealed: &mut Vec<SealedPack>) {
        sealed.extend((0..self.groups).filter_map(|group| self.clusters.seal(group)));
        assert!(!self.clusters.is_any_open(), "nothing is left open");
    }
}
