//! The engine of the policies that keep a map of all their entries, `simple` to `esp`: one executor for all of them.
//!
//! Owns: map, space, buffers and dirty entries of one volume ([`MappedState`], plain data under one lock), and their
//! I/O. Invariants: no lock is held across I/O. An entry that is not yet on the device is served from memory. A place
//! is given to another record only when no write to it is in flight. A record that was read counts only if it is whole,
//! of the requested key, and from exactly the write that the map names. So a lost write causes a miss, not an older
//! version.
//!
//! A reader does not protect its entry's place: if the place was reassigned during the read, the bytes do not match and
//! the lookup is repeated. After a clean stop the map is restored from a snapshot; after a crash, from the last
//! snapshot and the journal of later changes (`engine::kit::map_checkpoint`).
//!
//! Cost: one read per hit, none per miss, a write of the journal per removal, at most 288 bits per entry
//! (`a_hit_is_one_read_a_miss_none_a_removal_one_write_and_the_index_costs_at_most_288_bits_an_entry`). Policies that
//! do not collect writes make one per entry (`rows_that_write_through_and_large_file_make_one_write_an_insert`).
//! Policies with a file per entry create, read and remove it
//! (`a_file_is_made_per_entry_read_per_hit_and_removed_with_it`). Source: Markatos et al. (USITS'99), "Performance
//! Issues in Squid" and ESP (ICS 2002).

mod action;
mod check;
mod commit;
pub(crate) mod costs;
mod dirty;
pub(crate) mod layout;
pub(crate) mod map;
pub(crate) mod pace;
mod read;
mod recovery;
mod resting;
mod room;
pub(crate) mod schedule;
mod snapshot;
mod state;
mod walk;

use super::{
    Engine, EngineGauges, FlushExtent, Location, ReadExtent,
    kit::{
        map_checkpoint::{self, MapCheckpointArea},
        state_lock::{CheckedState, LockedState, StateLock},
    },
};
use crate::{
    Error, ErrorKind, MappedRow, Reader, Result, StoreOptions,
    device::Directory,
    format::{
        record::{RECORD_SECTORS_MAX, RecordParts},
        superblock::{LogForm, PARAMETER_COUNT, VolumeShape},
    },
    hash::KeyHash,
    units::{BLOCK_BYTES, DATA_START_BYTES, SECTOR_BYTES, SUPERBLOCK_BYTES},
    volume::{START_RETRY_PAUSE, Volume, wakeup::TICK},
};
use map::ENTRY_COUNT_MAX;
use state::MappedState;
use std::{sync::Arc, time::Duration};
pub(crate) use walk::{listed_count, walk};

/// A volume must have space for this many records of the maximum length. Otherwise, storing one could evict everything
/// else.
const LONGEST_RECORD_COUNT_MIN: u64 = 2;

/// Returns the layout of a new volume with a policy that maps all its entries.
///
/// # Errors
/// `Invalid` if the options do not suit the policy.
pub(crate) fn shape_of(options: &StoreOptions) -> Result<VolumeShape> {
    let invalid = |place: String| Err(Error::new(ErrorKind::Invalid, place));
    let low = options.tuning.esp_low_percent;
    let high = options.tuning.esp_high_percent;
    if low > high {
        return invalid(format!("esp_low_percent is greater than esp_high_percent ({high}): {low}"));
    }
    let StoreOptions { size_bytes, mean_entry_bytes, policy, .. } = *options;
    let listing_count = (size_bytes / mean_entry_bytes).min(ENTRY_COUNT_MAX);
    let (index_bytes, journal_pages) = MapCheckpointArea::lengths(listing_count, options.tuning.map_journal);
    let fixed_bytes = DATA_START_BYTES + index_bytes + SUPERBLOCK_BYTES + BLOCK_BYTES;
    let needed_bytes = fixed_bytes + LONGEST_RECORD_COUNT_MIN * RECORD_SECTORS_MAX * SECTOR_BYTES;
    if size_bytes < needed_bytes {
        let place =
            format!("store size has no room for two of the longest entries, {needed_bytes} bytes: {size_bytes}");
        return invalid(place);
    }
    let keeps_files = policy.layout.keeps_files();
    let volume_bytes = if keeps_files { fixed_bytes } else { size_bytes };
    let mut shape = VolumeShape {
        row: policy.code,
        size_bytes: volume_bytes,
        segment_bytes: 0,
        index_bytes,
        parameters: [0; PARAMETER_COUNT],
        journal_pages,
        form: LogForm::Plain,
    };
    if keeps_files {
        shape.set_files_bytes(size_bytes - fixed_bytes);
    }
    Ok(shape)
}

/// The engine of one volume with a policy that maps all its entries.
pub(crate) struct MappedEngine {
    volume: Arc<Volume>,
    row: MappedRow,
    state: StateLock<MappedState>,
}

impl MappedEngine {
    pub(crate) fn new(volume: Arc<Volume>, row: MappedRow) -> Self {
        let state = StateLock::new(MappedState::new(&volume, row), volume.failure.mark());
        Self { volume, row, state }
    }

    fn lock(&self) -> LockedState<'_, MappedState> {
        self.state.lock()
    }

    fn directory(&self) -> &dyn Directory {
        self.volume.directory.as_deref().expect("a store of a row that keeps files is opened with a directory")
    }

    /// Submits the I/O that is due, and evicts entries if that is due. Returns whether more numbers for writes must be
    /// reserved.
    fn do_what_is_due(self: &Arc<Self>) -> bool {
        let now = self.volume.clock.now();
        self.volume.submit_due_reads();
        self.update(|state| {
            state.flush_due(now);
            state.evict_due(now);
            // Commits that wait for room check their deadlines.
            state.wake_waiting();
            state.numbers_are_scarce()
        })
    }
}

impl Engine for MappedEngine {
    /// The number of the write that stored the entry.
    type Found = u32;

    fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    async fn load(self: &Arc<Self>) {
        self.load_snapshot().await;
    }

    async fn find(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<(u32, Option<Reader>)>> {
        if extent == ReadExtent::Key {
            self.volume.check_open()?;
            let entry = self.lock().map.find(self.volume.hash(key).0);
            return Ok(entry.map(|entry| (entry.sequence, None)));
        }
        let found = self.look_up(key).await?;
        Ok(found.map(|(sequence, reader)| (sequence, Some(reader))))
    }

    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool {
        at.is_none_or(|at| at == Location::Known) && self.lock().map.find(key_hash).is_some()
    }

    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<u32>) -> Result<bool> {
        self.store_record(record, found).await
    }

    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.remove_entry(key).await
    }

    fn touch(&self, key_hash: KeyHash) {
        self.lock().touch(key_hash);
    }

    async fn maintain(self: &Arc<Self>) {
        self.retry_start().await;
        let numbers_are_scarce = self.do_what_is_due();
        map_checkpoint::flush_due(self);
        if numbers_are_scarce {
            self.reserve_numbers().await;
        }
        map_checkpoint::keep_snapshot(self, false, || _ = self.do_what_is_due()).await;
        if !self.volume.options.background {
            map_checkpoint::await_room(self).await;
        }
        self.remove_unknown_files().await;
    }

    fn next_due(&self) -> Option<Duration> {
        let state = self.lock();
        let tick = state.is_busy().then_some(TICK);
        let retry = (state.phase == state::StorePhase::Unusable).then_some(START_RETRY_PAUSE);
        tick.into_iter().chain(retry).min()
    }

    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()> {
        match extent {
            FlushExtent::CommittedBy(_) => self.flush_all().await,
            FlushExtent::Closing => self.write_snapshot().await,
        }
    }

    fn check(&self) {
        self.lock().check();
    }

    fn gauges(&self) -> EngineGauges {
        let state = self.lock();
        let index_bytes = state.map.memory_bytes() + state.space_memory_bytes();
        let entries = state.map.entry_count();
        let entries_max = state.map.entries_max();
        let dirty_bytes = state.dirty.len_bytes();
        EngineGauges { entries, counts_all: true, entries_max, index_bytes, dirty_bytes, segments_in_use: 0 }
    }
}
