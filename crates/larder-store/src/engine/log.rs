//! The engine of the segmented log: appends records, and reclaims the oldest segments first.
//!
//! Owns: index, log and segment table of one volume, and the order in which they change. Invariant: log order is commit
//! order, because index and log change together under the log's lock. Lock order: log, then one index partition; no
//! lock is held across I/O.
//!
//! Cost: one read per hit, none for nearly all misses, and none for data that is not written yet
//! (`a_hit_costs_one_read_and_a_miss_none`, `an_entry_that_waits_for_its_unit_costs_no_read_and_no_write`). HashCache's
//! policies on the log: `rows_with_a_log_take_the_papers_bits_and_write_in_batches`,
//! `log_lru_takes_35_bits_and_a_second_read_for_what_was_not_used_lately`.

pub(crate) mod admission;
mod admit;
mod append;
mod body_source;
mod checkpoint;
pub(crate) mod costs;
mod discovery;
pub(crate) mod eviction;
mod gate;
mod groups;
pub(crate) mod index;
pub(crate) mod layout;
mod listing;
pub(crate) mod located;
mod outgoing;
mod parts;
mod position_file;
mod positions;
mod read;
mod reclaim;
mod recovery;
mod walk;
mod worth;

use super::{
    Engine, EngineGauges, FlushExtent, Location, ReadExtent,
    kit::{
        sets,
        state_lock::{CheckedState, LockedState, StateLock},
    },
};
use crate::{
    Error, ErrorKind, LocatedRow, LogEviction, LogRow, Reader, Result, StoreOptions, Tuning,
    format::{
        record::{BODY_BYTES_MAX, RecordParts},
        superblock::{LogForm, PARAMETER_COUNT, VolumeShape},
    },
    hash::KeyHash,
    options,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    units::{BLOCK_BYTES, SECTOR_BYTES, Sector, SegmentGeometry},
    volume::{START_RETRY_PAUSE, Volume, superblocks, waiters::WokenTasks, wakeup::TICK},
};
use checkpoint::LogCheckpoints;
use gate::LogGate;
use index::{IndexShape, LogIndex, SizeClass, VolumeIndex};
use layout::{
    FlushedGroups, LogState, RESERVE_SEGMENTS_MIN, SequenceTraces, checkpoint::CheckpointArea, segments::SegmentTable,
};
use located::LocatedSets;
use position_file::PositionFile;
use std::{sync::Arc, time::Duration};
pub(crate) use walk::walk;
use worth::LogWorth;

/// About 1/`SEGMENTS_PER_RESERVED` of the segments is kept free for writers, within fixed bounds.
const SEGMENTS_PER_RESERVED: usize = 128;

/// Number of free segments that reclaim needs to rewrite everything in a segment: one, and part of a second, because
/// units start and end at other places in the new segments.
const REWRITE_SEGMENTS: usize = 2;
/// Free segments reserved for reclaim while entries are pinned or protected. Includes a reserve for a start after a
/// kill that interrupted a rewrite. Segments for bodies in parts are added to this number.
const RECLAIM_ONLY_SEGMENTS: usize = REWRITE_SEGMENTS + RESERVE_SEGMENTS_MIN;
/// Minimum number of segments of a volume on which some segments are reserved for reclaim while entries are protected.
/// On smaller volumes, the reserve would cost too much.
const SPARING_SEGMENTS_MIN: u32 = 32;

/// Bits of a position in HashCache's index. The paper's 32 bits suffice for volumes up to 2 TiB. On larger volumes,
/// `POSITION_BITS_LONG` bits suffice up to 16 TiB.
const POSITION_BITS: u32 = 32;
const POSITION_BITS_LONG: u32 = 35;
/// Bits of the length of a group, which is counted in blocks of 8 KiB.
const LENGTH_BITS: u32 = 8;
/// Number of entries of the store for each position that may wait to be written to the position file. This limits
/// waiting positions to 2.5 bits per entry, and lets several of them share the write of a block.
const ENTRIES_PER_WAITING_POSITION: u64 = 256;

const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Returns the layout of a new volume with a policy on the log.
///
/// # Errors
/// `Invalid` if the options do not suit the policy.
pub(crate) fn shape_of(options: &StoreOptions, row: LogRow) -> Result<VolumeShape> {
    let invalid = |place: String| Err(Error::new(ErrorKind::Invalid, place));
    let form = if row == LogRow::Packed(LogEviction::Worth) { LogForm::Packed } else { LogForm::Plain };
    let size_bytes = options.size_bytes;
    let segment_bytes = options.segment_size_bytes.unwrap_or_else(|| match form {
        LogForm::Packed => options::segment_bytes_default(size_bytes),
        LogForm::Plain | LogForm::Probation if matches!(row, LogRow::Located(_)) && row.is_grouped() => {
            options::grouped_segment_bytes(size_bytes)
        }
        LogForm::Plain | LogForm::Probation => options::whole_entries_segment_bytes(size_bytes),
    });
    let is_in_range = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes);
    if !segment_bytes.is_multiple_of(BLOCK_BYTES) || !is_in_range {
        return invalid(format!("segment size is not whole blocks of 4 KiB, from 64 KiB to 64 MiB: {segment_bytes}"));
    }
    let parameters = [0; PARAMETER_COUNT];
    let row_code = options.policy.code;
    let index_bytes = 0;
    let journal_pages = 0;
    let mut shape =
        VolumeShape { row: row_code, size_bytes, segment_bytes, index_bytes, parameters, journal_pages, form };
    let without = shape.geometry();
    shape.index_bytes = without.map_or(0, |geometry| match row {
        LogRow::Packed(_) => checkpoint_bytes(options, &geometry),
        LogRow::Located(LocatedRow::Recent) => PositionFile::bytes_for(options),
        LogRow::Located(LocatedRow::Plain | LocatedRow::Grouped) => 0,
    });
    if shape.geometry().is_none() && matches!(row, LogRow::Packed(_)) {
        // A volume this small has no room for a checkpoint. It is recovered from its trailers.
        shape.index_bytes = 0;
    }
    if shape.geometry().is_none() {
        return invalid(format!("store size has no room for eight segments of {segment_bytes} bytes: {size_bytes}"));
    }
    Ok(shape)
}

/// Returns the bytes to reserve for checkpoints of the index on a volume.
fn checkpoint_bytes(options: &StoreOptions, geometry: &SegmentGeometry) -> u64 {
    let shape = IndexShape::new(geometry.size_bytes / SECTOR_BYTES);
    let entries = geometry.size_bytes / options.mean_entry_bytes;
    let table_bytes = shape.bits_per_entry(entries) * entries as f64 / 8.0;
    CheckpointArea::bytes_for(geometry.segment_count, shape.partition_count, table_bytes as u64)
}

/// Creates HashCache's index, which has positions in the log.
fn located_sets(
    volume: &Volume,
    row: LocatedRow,
    segments: &Arc<SegmentTable>,
    geometry: SegmentGeometry,
) -> LocatedSets {
    let options = &volume.options;
    let tuning = &volume.options.tuning;
    let sectors = geometry.size_bytes / SECTOR_BYTES;
    let shape = sets::SetShape {
        ways: tuning.hashcache_ways,
        tag_bits: tuning.hashcache_tag_bits,
        generation_bits: tuning.hashcache_generation_bits,
        position_bits: if sectors > 1 << POSITION_BITS { POSITION_BITS_LONG } else { POSITION_BITS },
        length_bits: if row == LocatedRow::Plain { 0 } else { LENGTH_BITS },
        positions: if row == LocatedRow::Recent {
            tuning.hashcache_positions.min(tuning.hashcache_ways)
        } else {
            tuning.hashcache_ways
        },
    };
    let segments = Arc::clone(segments);
    let generation = move |position| {
        let sequence = geometry.segment_of(position).map_or(0, |segment| segments.sequence(segment));
        // One of the segments may give places to buffered groups, so the others come round sooner.
        u64::from(sequence / (geometry.segment_count - 1))
    };
    let unknown_size = SizeClass::holding(tuning.hashcache_first_read_bytes / SECTOR_BYTES);
    let room = PositionFile::of(volume, row).map_or(u64::MAX, |file| file.entries_max(volume));
    let entries = (geometry.size_bytes / options.mean_entry_bytes).min(room);
    let waiting = positions_waiting(tuning, entries);
    LocatedSets::new(shape, entries, waiting, unknown_size, Box::new(generation))
}

/// Returns how many positions are collected before they are written to the position file, in a store of `entries`.
pub(crate) fn positions_waiting(tuning: &Tuning, entries: u64) -> usize {
    tuning.hashcache_positions_waiting.min((entries / ENTRIES_PER_WAITING_POSITION) as usize).max(1)
}

/// The engine of one volume with a policy on the log.
pub(crate) struct LogEngine {
    pub(crate) volume: Arc<Volume>,
    row: LogRow,
    pub(crate) geometry: SegmentGeometry,
    pub(crate) index: LogIndex,
    pub(crate) segments: Arc<SegmentTable>,
    log: StateLock<LogState>,
    checkpoints: LogCheckpoints,
    /// Place of the position file; `None` in policies that keep all positions in memory.
    positions: Option<PositionFile>,
    /// Decides which entries are admitted; `None` in policies that admit every entry.
    gate: Option<LogGate>,
    /// Data learned about the worth of entries; `None` in policies that do not learn.
    worth: Option<LogWorth>,
    /// Number of failed units that a flush has already reported to its caller.
    reported_failures: AtomicU64,
    /// Whether a task is reclaiming a segment.
    reclaiming: AtomicBool,
    /// Whether a client has stored or removed anything in this run, or tried to. Until then, nothing is reclaimed, so
    /// that the program can first restore its pins.
    has_appended: AtomicBool,
}

impl LogEngine {
    /// Creates the engine. Returns `None` if the superblock describes no segments.
    pub(crate) fn new(volume: Arc<Volume>, row: LogRow) -> Option<Self> {
        let geometry = volume.shape.geometry()?;
        let segments = Arc::new(SegmentTable::new(geometry.segment_count));
        let (index, positions) = match row {
            LogRow::Packed(_) => {
                let shape = IndexShape::new(geometry.size_bytes / SECTOR_BYTES);
                (LogIndex::Buckets(VolumeIndex::new(shape, volume.options.index_bytes_max)), None)
            }
            LogRow::Located(located) => {
                let sets = located_sets(&volume, located, &segments, geometry);
                (LogIndex::Sets(sets), PositionFile::of(&volume, located))
            }
        };
        index.begin_loading();
        let mut log = LogState::new(geometry, volume.id, Arc::clone(&segments), volume.options.dirty_bytes_max);
        if row.is_grouped() {
            log.group_records(volume.options.tuning.group_window);
        }
        if volume.shape.has_probation() {
            log.keep_probation();
        }
        let checkpoints = LogCheckpoints::new(&volume, &geometry, &index);
        let reported_failures = AtomicU64::new(0);
        let reclaiming = AtomicBool::new(false);
        let objective = volume.options.tuning.objective;
        let (gate, worth) = match row {
            LogRow::Packed(LogEviction::Worth) => {
                let worth = LogWorth::new(&geometry, objective.length_exponent());
                (LogGate::new(&index, &geometry, objective), Some(worth))
            }
            // HashCache's policies admit every entry and learn nothing.
            LogRow::Packed(LogEviction::Clock) | LogRow::Located(_) => (None, None),
        };
        let log = StateLock::new(log, volume.failure.mark());
        Some(Self {
            volume,
            row,
            geometry,
            index,
            segments,
            log,
            checkpoints,
            positions,
            gate,
            worth,
            reported_failures,
            reclaiming,
            has_appended: AtomicBool::new(false),
        })
    }

    pub(crate) fn lock_log(&self) -> LockedState<'_, LogState> {
        self.log.lock()
    }

    /// Writes buffered groups that are complete, and units that have waited for the flush interval. Returns the tasks
    /// that wait for space, so that they check again.
    fn flush_due(self: &Arc<Self>) -> WokenTasks {
        self.change(|log| {
            log.seal_due(self.volume.options.flush_interval, self.volume.clock.moment());
            log.take_waiting()
        })
    }

    /// Syncs if many segments were begun since the last sync.
    async fn sync_segments_begun(&self) {
        if !self.lock_log().needs_sync() {
            return;
        }
        if let Err(error) = self.sync_and_vouch().await {
            self.volume.note_failure(&error);
        }
    }

    /// Makes everything written so far durable, and then records in the superblock which segments a start must find.
    async fn sync_and_vouch(&self) -> Result<()> {
        let (next_sequence, traces) = {
            let log = self.lock_log();
            (log.next_sequence(), log.traces())
        };
        self.volume.sync().await?;
        self.lock_log().synced_before(next_sequence);
        self.vouch_for(&traces).await
    }

    async fn vouch_for(&self, traces: &SequenceTraces) -> Result<()> {
        let id = self.volume.id;
        let before = traces.before;
        let absent = traces.absent.clone();
        let changed = superblocks::change(&self.volume, move |superblock| {
            // A volume that starts over has another identity and none of these sequences.
            if superblock.id == id {
                superblock.written.extend(before, absent.iter().map(|&sequence| sequence..sequence + 1));
            }
        });
        let place = "cannot write the store's superblock";
        changed.await.map_err(|source| Error::io(ErrorKind::Unavailable, place, source))?;
        self.lock_log().vouched(traces);
        Ok(())
    }

    /// Returns the number of segments to keep free, so that writers do not wait for reclaim.
    fn reserve_segments(&self) -> usize {
        self.writer_segments() + self.reclaim_only_segments()
    }

    /// Returns how many of the segments that are kept free clients may use.
    fn writer_segments(&self) -> usize {
        (self.geometry.segment_count as usize).div_ceil(SEGMENTS_PER_RESERVED).clamp(RESERVE_SEGMENTS_MIN, 8)
    }

    /// Returns how many free segments clients may not use, so that reclaim can rewrite pinned and protected entries.
    fn reclaim_only_segments(&self) -> usize {
        // On a volume of few segments, the reserve would cost more than the protected entries are worth.
        let SegmentGeometry { segment_count, segment_bytes, .. } = self.geometry;
        let spares_held = segment_count >= SPARING_SEGMENTS_MIN && !self.volume.protected_keys.is_empty();
        if !spares_held && self.volume.pins.is_empty() {
            return 0;
        }
        // An entry whose first part is in a segment is rewritten with all its other parts.
        let for_parts = (BODY_BYTES_MAX / segment_bytes) as usize;
        (RECLAIM_ONLY_SEGMENTS + for_parts).min(segment_count as usize / 4).max(REWRITE_SEGMENTS + 1)
    }

    /// Reserves the segments that reclaim needs for the entries that are protected now.
    fn keep_for_reclaim(&self) {
        let woken = self.lock_log().keep_for_reclaim(self.reclaim_only_segments());
        woken.wake();
    }

    /// Writes everything that was committed by `time`.
    async fn flush_committed(self: &Arc<Self>, time: Duration) -> Result<()> {
        let (last, failed) = self.lock_log().last_ticket_and_failures();
        // A unit that failed since the last flush has not been reported, so it counts as a failure of this one.
        let told = self.reported_failures.swap(failed, Ordering::AcqRel);
        self.flush_through(last, told, FlushedGroups::BegunBy(time)).await
    }

    /// Writes everything that the next start needs to find all entries quickly.
    async fn finish(self: &Arc<Self>) -> Result<()> {
        // A unit that failed earlier does not concern this stop: the entry it replaced was removed, or the close
        // reports the failure.
        self.reported_failures.store(self.lock_log().failed_units(), Ordering::Release);
        self.seal_and_wait().await;
        self.flush_committed(self.volume.clock.now()).await?;
        self.write_checkpoint().await?;
        let is_begun = self.lock_log().is_barred().is_none();
        if is_begun { self.sync_and_vouch().await } else { Ok(()) }
    }
}

impl Engine for LogEngine {
    /// The position of the record that was found.
    type Found = Sector;

    /// Several attempts, because reclaim moves entries, and making space for a head may require a reclaim.
    const HEAD_ATTEMPTS_MAX: u32 = 4;

    fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    async fn load(self: &Arc<Self>) {
        recovery::run(self).await;
    }

    async fn find(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<(Sector, Option<Reader>)>> {
        let found = self.look_up(key, extent).await?;
        Ok(found.map(|(position, reader)| (position, Some(reader))))
    }

    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool {
        match at {
            None => self.index.knows(key_hash),
            Some(at @ Location::At { position, .. }) => {
                self.still_at(key_hash, position) && self.location_at(position) == at
            }
            Some(Location::Known | Location::Passing) => false,
        }
    }

    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<Sector>) -> Result<bool> {
        self.append_entry(record, found).await
    }

    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.remove_entry(key).await
    }

    fn touch(&self, key_hash: KeyHash) {
        self.index.count_hit(key_hash, None);
    }

    async fn maintain(self: &Arc<Self>) {
        recovery::start_over_when_spent(self).await;
        recovery::retry(self).await;
        let woken = self.flush_due();
        self.sync_segments_begun().await;
        self.keep_for_reclaim();
        // The loop ends after one round, because a segment whose entries are all kept frees nothing.
        for _ in 0..self.geometry.segment_count {
            let is_due =
                self.has_appended.load(Ordering::Acquire) && self.lock_log().free_count() < self.reserve_segments();
            if !is_due || !self.reclaim_oldest().await {
                break;
            }
        }
        woken.wake();
        self.advance_checkpoint().await;
        self.write_positions().await;
    }

    fn next_due(&self) -> Option<Duration> {
        let (dirty, is_barred) = {
            let log = self.lock_log();
            (log.has_waiting_records(), log.is_barred().is_some())
        };
        if dirty || self.checkpoints.is_writing() || self.positions_are_due() {
            return Some(TICK);
        }
        is_barred.then_some(START_RETRY_PAUSE)
    }

    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()> {
        match extent {
            FlushExtent::CommittedBy(time) => self.flush_committed(time).await,
            FlushExtent::Closing => self.finish().await,
        }
    }

    fn check(&self) {
        self.lock_log().check();
        self.index.check(&self.geometry);
    }

    fn gauges(&self) -> EngineGauges {
        let log = self.lock_log();
        EngineGauges {
            entries: self.index.entries(),
            counts_all: true,
            entries_max: self.index.entries_max(),
            index_bytes: self.index.memory_bytes()
                + self.gate.as_ref().map_or(0, LogGate::memory_bytes)
                + self.worth.as_ref().map_or(0, LogWorth::memory_bytes),
            dirty_bytes: log.dirty_bytes(),
            segments_in_use: log.segments_in_use(),
        }
    }
}
