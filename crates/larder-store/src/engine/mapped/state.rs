//! The state and decisions of the mapped engine, under its lock: plain data, no I/O.
//!
//! Invariants: every entry of the map has its own room. Room is freed once, when the entry is not in the map and no
//! write of it is in flight. `used_sectors` is the room that is taken or reserved.

use super::{
    action::MapTransfer,
    commit::PendingWrite,
    dirty::DirtyEntries,
    layout::{SpaceLayout, layout_of},
    map::{EntryMap, MapEntry, MapPlace},
    pace::{EvictionPace, EvictionPacer, RunFound, VolumeDemand},
    read::FoundOnMap,
    recovery::{KnownFiles, RecoveryFindings as StartFound},
    resting::RestingRooms,
    schedule::{locality::LocalityBuffers, packets::Packetizer},
};
use crate::{
    MappedRow, SlotSchedule,
    clock::has_expired,
    device::Completion,
    engine::kit::{
        effects::Effects,
        map_checkpoint::{MapCheckpoint, MapCheckpointArea},
        numbers::RunNumbers,
        room::NoRoom,
    },
    hash::KeyHash,
    units::SECTOR_BYTES,
    volume::{Volume, waiters::TaskWaiters},
};
use std::{sync::Arc, time::Duration};

/// Count of write numbers that one reservation adds.
pub(super) const NUMBERS_PER_BATCH: u64 = 1 << 24;

/// The phase of a store, which decides whether entries can be stored now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorePhase {
    Loading,
    Open,
    /// Entries cannot be stored, because the header of this run could not be written.
    Unusable,
    Closed,
}

/// The state of a volume: map, space, buffers and unwritten entries.
pub(crate) struct MappedState {
    pub(super) volume: Arc<Volume>,
    row: MappedRow,
    pub(super) map: EntryMap,
    pub(super) space: Box<dyn SpaceLayout>,
    pub(super) writes: WriteSchedule,
    pacer: Option<EvictionPacer>,
    pub(super) dirty: DirtyEntries,
    pub(super) phase: StorePhase,
    /// Whether the map is being rebuilt after a crash. Until the whole journal is read, the map may contain removed
    /// entries.
    pub(super) is_recovering: bool,
    pub(super) used_sectors: u64,
    /// Sectors of removed entries whose writes are still in flight. Also counted in `used_sectors`.
    pub(super) held_back_sectors: u64,
    /// Sectors of files that could not be removed. Also counted in `used_sectors`.
    pub(super) lost_sectors: u64,
    /// The numbers of writes. The volume stores only their low 32 bits.
    pub(super) numbers: RunNumbers,
    pub(super) failed_writes: u64,
    /// The snapshot and the journal of the map.
    pub(super) checkpoint: MapCheckpoint,
    pub(super) resting: RestingRooms,
    /// Attempts to store entries since the evictions that are due were last computed.
    demand: VolumeDemand,
    pub(super) waiting: TaskWaiters,
    /// The files to keep when unknown files are removed; `None` if unknown files have been removed.
    pub(super) unknown_files: Option<KnownFiles>,
    /// The findings of the start about an earlier run, kept in case the start must be repeated.
    pub(super) found: StartFound,
    pub(super) effects: Effects<MapTransfer>,
}

/// When the bytes of records are written.
pub(super) enum WriteSchedule {
    /// Each record is written at once, and its commit waits for the write.
    Through,
    /// Each record is written at once, and its commit does not wait for the write.
    Asynchronous,
    Packets {
        packetizer: Packetizer,
        locality: Option<LocalityBuffers>,
    },
}

impl MappedState {
    pub(super) fn new(volume: &Arc<Volume>, row: MappedRow) -> Self {
        let tuning = &volume.options.tuning;
        let shape = &volume.shape;
        let entries = volume.size_bytes() / volume.options.mean_entry_bytes;
        let packetizer = Packetizer::new(tuning.page_bytes);
        let locality = || LocalityBuffers::new(tuning.locality_buffer_count, tuning.locality_buffer_bytes);
        let writes = match row {
            MappedRow::Slots(SlotSchedule::Pages | SlotSchedule::PagesAndSortedReads) => {
                WriteSchedule::Packets { packetizer, locality: None }
            }
            MappedRow::Slots(SlotSchedule::SitePagesAndSortedReads) => {
                WriteSchedule::Packets { packetizer, locality: Some(locality()) }
            }
            MappedRow::Slots(SlotSchedule::Asynchronous) => WriteSchedule::Asynchronous,
            MappedRow::Slots(SlotSchedule::Through)
            | MappedRow::Files(_)
            | MappedRow::SizeClasses
            | MappedRow::Bitmap => WriteSchedule::Through,
        };
        let pace = EvictionPace {
            low_percent: tuning.esp_low_percent.into(),
            high_percent: tuning.esp_high_percent.into(),
            base_per_s: tuning.esp_base_evictions_per_s,
            between_per_s: tuning.esp_evictions_per_s,
        };
        Self {
            map: EntryMap::new(entries.min(MapCheckpointArea::of(shape).listings_max()), volume.clock.now_s()),
            space: layout_of(volume, row),
            writes,
            pacer: (row == MappedRow::Bitmap).then(|| EvictionPacer::new(pace)),
            dirty: DirtyEntries::default(),
            phase: StorePhase::Loading,
            is_recovering: false,
            used_sectors: 0,
            held_back_sectors: 0,
            lost_sectors: 0,
            numbers: RunNumbers::new(0, NUMBERS_PER_BATCH),
            failed_writes: 0,
            checkpoint: MapCheckpoint::new(volume),
            resting: RestingRooms::default(),
            unknown_files: None,
            demand: VolumeDemand::default(),
            waiting: TaskWaiters::default(),
            found: StartFound::Nothing,
            effects: Effects::default(),
            volume: Arc::clone(volume),
            row,
        }
    }

    /// Returns whether more numbers for writes must be reserved.
    pub(super) fn numbers_are_scarce(&self) -> bool {
        self.phase == StorePhase::Open && self.numbers.are_scarce()
    }

    /// Makes `write` the entry of its key, if there is space. With `still_by`, the number of a write, does so only if
    /// that write stored the present entry; otherwise returns `false`. Returns `None` if space becomes free as soon as
    /// the journal is written. `done` is completed when the entry is written.
    pub(super) fn admit(
        &mut self,
        write: &mut PendingWrite,
        still_by: Option<u32>,
        done: &mut Option<Completion<()>>,
    ) -> Result<Option<bool>, NoRoom> {
        // Compared under the lock: the entry may have been replaced while its body was being read.
        let held = self.map.find(write.key_hash).map(|entry| entry.sequence);
        if still_by.is_some() && held != still_by {
            return Ok(Some(false));
        }
        if self.phase == StorePhase::Closed {
            return Err(NoRoom::Ever);
        }
        self.demand.is_any = true;
        let taken = self.space.taken_by(write.sectors.into());
        let used_max = self.space.used_sectors_max();
        if taken > used_max {
            return Err(NoRoom::Ever);
        }
        let dirty_max = self.volume.options.dirty_bytes_max;
        if !self.dirty.is_empty() && self.dirty.len_bytes() + write.record.len() as u64 > dirty_max {
            // Waiting pages are sent at once. Otherwise nothing would ever free the memory that this entry waits for.
            self.send_all(write.now);
            return Err(NoRoom::Now);
        }
        // Checked before anything is removed: an entry that cannot be recorded must not displace another.
        match self.checkpoint.journal.check_room() {
            // Without a maintenance thread, the caller makes room in the journal, unless another task is about to.
            Err(NoRoom::Now) if !self.volume.options.background && self.volume.head_is_free() => return Ok(None),
            outcome => outcome?,
        }
        match still_by {
            // The old entry stays until the new one has room; other entries are evicted first.
            Some(_) => self.map.touch(write.key_hash),
            None => _ = self.remove(write.key_hash),
        }
        while self.used_sectors - self.held_back_sectors + taken > used_max || self.map.is_full() {
            if self.evict_oldest().is_none() {
                break;
            }
        }
        if self.used_sectors + taken > used_max || self.map.is_full() {
            self.send_all(write.now);
            return Err(NoRoom::Now);
        }
        let waits = matches!(self.writes, WriteSchedule::Packets { locality: Some(_), .. });
        let place = if waits { None } else { self.take_place_in_time(write)? };
        if place.is_none() && !waits {
            return Ok(None);
        }
        self.used_sectors += taken;
        self.demand.placed += 1;
        assert!(self.used_sectors <= used_max, "a layout is never fuller than it may be");
        // The old entry is removed in the same step, so a lookup finds one of the two, never none or both.
        self.remove(write.key_hash);
        self.map.insert(write.key_hash, write.entry(place.unwrap_or(MapPlace(0))));
        self.dirty.insert(write.sequence, write.dirty(place, done.take()));
        if place.is_some() {
            self.send(write.sequence, write.now);
        } else if let WriteSchedule::Packets { locality: Some(locality), .. } = &mut self.writes {
            let groups = locality.add(write.site, write.sequence, write.record.len() as u64, write.now);
            groups.iter().for_each(|group| self.place_group(group, write.now));
        }
        Ok(Some(true))
    }

    /// Removes the entry of `key_hash`, and frees its space. Returns whether there was an entry.
    pub(super) fn remove(&mut self, key_hash: KeyHash) -> bool {
        let Some(entry) = self.map.remove(key_hash) else { return false };
        self.detach(key_hash, &entry);
        debug_assert!(self.map.find(key_hash).is_none(), "what is removed is not found");
        true
    }

    /// Removes the entry of `key_hash` if the write with the number `sequence` stored it. Returns whether an entry was
    /// removed.
    pub(super) fn remove_write(&mut self, key_hash: KeyHash, sequence: u32) -> bool {
        let Some(entry) = self.map.remove_write(key_hash, sequence) else { return false };
        assert_eq!(entry.sequence, sequence, "the entry of this write goes, and no later one");
        self.detach(key_hash, &entry);
        true
    }

    pub(super) fn touch(&mut self, key_hash: KeyHash) {
        if self.phase != StorePhase::Closed {
            self.map.touch(key_hash);
        }
    }

    /// Returns the entry of `key_hash`, and makes it the most recently used one.
    pub(super) fn find(&mut self, key_hash: KeyHash, now_s: u32) -> Option<FoundOnMap> {
        let entry = self.map.find(key_hash).filter(|_| self.phase != StorePhase::Closed && !self.is_recovering)?;
        assert!(entry.sectors > 0, "a record has bytes");
        if has_expired(entry.expires_at, now_s) {
            self.remove(key_hash);
            return None;
        }
        self.map.touch(key_hash);
        let MapEntry { place, sectors, sequence, .. } = entry;
        let dirty = self.dirty.record(sequence);
        let spot = self.space.spot(place, sectors.into(), sequence);
        Some(FoundOnMap { sequence, dirty, spot, len_bytes: u64::from(sectors) * SECTOR_BYTES })
    }

    /// Adds an entry of an earlier run. Returns `false` if its space is taken or the map is full.
    pub(super) fn load(&mut self, key_hash: KeyHash, entry: MapEntry) -> bool {
        let taken = self.space.taken_by(entry.sectors.into());
        let fits = !self.map.is_full() && self.map.find(key_hash).is_none();
        if !fits || !self.space.take_at(entry.place, entry.sectors.into()) {
            return false;
        }
        self.used_sectors += taken;
        debug_assert!(self.used_sectors <= self.space.capacity_sectors(), "places that do not overlap fit the volume");
        self.map.insert(key_hash, entry);
        true
    }

    /// Discards everything that was loaded, so that the store starts empty.
    pub(super) fn forget_all(&mut self) {
        assert!(self.dirty.is_empty(), "nothing is stored before it is known what there is");
        self.map = EntryMap::new(self.map.entries_max(), self.volume.clock.now_s());
        self.space = layout_of(&self.volume, self.row);
        self.resting = RestingRooms::default();
        (self.used_sectors, self.lost_sectors, self.is_recovering) = (0, 0, false);
    }

    /// Notes the end of a write to the device that contained pieces of `writes`. Returns the completions to call, each
    /// with its outcome.
    pub(super) fn written(&mut self, writes: &[u32], ok: bool) -> Vec<(Completion<()>, bool)> {
        let mut done = Vec::new();
        for &sequence in writes {
            let entry = self.dirty.entry_mut(sequence).expect("an entry is dirty until its last piece is written");
            assert!(entry.pieces_left > 0, "what is written was on its way");
            entry.failed |= !ok;
            entry.pieces_left -= 1;
            if entry.pieces_left > 0 {
                continue;
            }
            let Some(mut entry) = self.dirty.remove(sequence) else { continue };
            if entry.failed {
                self.failed_writes += 1;
            }
            if entry.failed && !entry.dropped {
                self.map.remove_write(entry.key_hash, sequence);
            }
            self.note_written(sequence, &entry);
            if entry.dropped {
                let taken = self.space.taken_by(entry.sectors.into());
                assert!(taken <= self.held_back_sectors, "the room of what was dropped is held back");
                self.held_back_sectors -= taken;
            }
            if let (true, Some(place)) = (entry.failed || entry.dropped, entry.place) {
                self.release_room(place, entry.sectors, sequence);
            }
            done.extend(entry.done.take().map(|done| (done, !entry.failed)));
        }
        self.wake_waiting();
        done
    }

    /// Wakes the tasks that wait for space, so that they check again.
    pub(super) fn wake_waiting(&mut self) {
        self.effects.wake(self.waiting.take());
    }

    /// Submits the writes of all buffers.
    pub(super) fn send_all(&mut self, now: Duration) {
        self.send_opened_before(Duration::MAX, now);
    }

    /// Submits the writes of buffers that have waited for the flush interval.
    pub(super) fn flush_due(&mut self, now: Duration) {
        let before = now.saturating_sub(self.volume.options.flush_interval);
        self.send_opened_before(before, now);
    }

    /// Returns whether entries are evicted as time passes, so that space is usually free before an entry needs it.
    pub(super) fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    /// Notes that no free run was found for an entry.
    pub(super) fn note_unplaced(&mut self) {
        self.demand.unplaced += 1;
    }

    /// Evicts as many entries as time and demand require.
    pub(super) fn evict_due(&mut self, now: Duration) {
        let Some(pacer) = &mut self.pacer else { return };
        let used_percent = self.used_sectors * 100 / self.space.capacity_sectors();
        let run = self.space.last_run();
        let run = run.map(|run| RunFound { len: run.len_blocks, threshold: run.threshold_blocks });
        assert!(used_percent <= 100, "no more is used than there is: {used_percent}%");
        let count = pacer.due(now, used_percent, run, std::mem::take(&mut self.demand));
        (0..count).take_while(|_| self.evict_oldest().is_some()).for_each(drop);
    }

    /// Returns whether there is work that will become due as time passes.
    pub(super) fn is_busy(&self) -> bool {
        let buffered = match &self.writes {
            WriteSchedule::Packets { packetizer, locality } => {
                packetizer.opened_at().is_some() || locality.as_ref().is_some_and(|locality| !locality.is_empty())
            }
            WriteSchedule::Through | WriteSchedule::Asynchronous => false,
        };
        buffered
            || !self.waiting.is_empty()
            || (self.pacer.is_some() && self.demand.is_any)
            || self.numbers_are_scarce()
            || self.checkpoint.is_due()
            || self.unknown_files.is_some()
    }

    pub(super) fn point_at(&mut self, pointer: u64) {
        self.space.point_at(pointer);
    }

    /// Takes over the files of slots of an earlier run, given the number of slots in each file. Returns `false` if
    /// these numbers are not valid.
    pub(super) fn set_slot_counts(&mut self, counts: &[u32]) -> bool {
        self.space.set_slot_counts(counts)
    }

    pub(super) fn space_memory_bytes(&self) -> u64 {
        self.space.memory_bytes()
    }

    fn send_opened_before(&mut self, before: Duration, now: Duration) {
        let WriteSchedule::Packets { packetizer, locality } = &mut self.writes else { return };
        if packetizer.opened_at().is_some_and(|at| at <= before) {
            self.effects.transfers.extend(packetizer.take().map(MapTransfer::Write));
        }
        let groups = locality.as_mut().map(|locality| locality.take_opened_before(before)).unwrap_or_default();
        groups.iter().for_each(|group| self.place_group(group, now));
        // A write that waited in a locality buffer must not wait in a page again.
        if let WriteSchedule::Packets { packetizer, .. } = &mut self.writes
            && (before == Duration::MAX || !groups.is_empty())
        {
            self.effects.transfers.extend(packetizer.take().map(MapTransfer::Write));
            debug_assert!(packetizer.opened_at().is_none(), "no page is open once it was sent");
        }
    }
}

impl AsMut<TaskWaiters> for MappedState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}
