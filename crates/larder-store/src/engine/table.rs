//! The engine of the disk table: every entry is in a bin of its set. Bytes that do not fit in the bin are in the ring.
//!
//! Owns: the table, the memory of its sets, and the order in which both change. Policies differ in the number of ways
//! per set, and in how many sets are in memory: none (then the set is read), tags and ranks of all sets, or those of
//! the recently used sets. Invariants: one writer at a time changes a set. At most one bin of a set counts for a key.
//! Entries that are being written are served from memory. No lock is held across I/O.
//!
//! After a crash nothing needs to be rebuilt: bins name their entries, so an unknown set is read at its first request
//! and stays known. If memory is wrong about a bin, that only costs a read, because the full key is compared. If
//! a bin may hold an older entry, it is wiped before memory forgets that. A set whose change failed is suspect: it
//! counts as empty until all of it is wiped, which is retried until it succeeds.
//!
//! Cost: without memory of the set, hits and misses take one read, of a bin or of a whole set
//! (`basic_takes_no_memory_and_one_read_for_hit_and_miss_alike`,
//! `set_takes_no_memory_and_one_read_of_the_whole_set_for_hit_and_miss_alike`). With tags in memory, a hit takes one
//! read and few misses take any (`setmem_takes_eleven_bits_and_one_read_for_a_hit`,
//! `setmem_reads_for_three_percent_of_misses_in_full_sets`). A removal is one write. Source: HashCache (NSDI 2009), 3.

mod check;
pub(crate) mod costs;
mod gather;
pub(crate) mod layout;
pub(crate) mod memory;
mod read;
pub(crate) mod resident;
mod rests;
pub(crate) mod ring;
mod session;
pub(crate) mod summary;
mod suspects;
mod walk;
mod write;

use super::{
    Engine, EngineGauges, FlushExtent, Location, ReadExtent,
    kit::{
        numbers::RunNumbers,
        sets::{self, PackedSets, SetPlace, WAYS_MAX, set_of},
        state_lock::{CheckedState, LockedState, StateLock},
        suspects::SuspectSets,
    },
};
use crate::{
    Error, ErrorKind, Reader, Result, StoreOptions, TableRow, Tuning,
    format::{
        record::RecordParts,
        session::{RunSession, SESSION_AREA_BYTES},
        superblock::{LogForm, PARAMETER_COUNT, VolumeShape},
    },
    hash::{FullHash, KeyHash},
    units::{BLOCK_BYTES, SetNumber},
    volume::{
        START_RETRY_PAUSE, Volume, cannot_begin,
        waiters::{TaskWaiters, wait_for},
        wakeup::TICK,
    },
};
use bytes::Bytes;
use gather::GatheredEntries;
use layout::TableLayout;
use memory::SetMemory;
use resident::ResidentSets;
use rests::RecentRests;
use ring::RingState;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};
use summary::RecentSummaries;
pub(crate) use walk::walk;

const BIN_BYTES_MAX: u64 = 1 << 20;
/// Pause before a failed attempt to wipe a set is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Number of change counters. Several sets share each counter.
const CHANGE_COUNT: usize = 1024;

/// Returns the layout of a new volume with a policy that has a disk table.
///
/// # Errors
/// `Invalid` if the options do not suit the policy.
pub(crate) fn shape_of(options: &StoreOptions, row: TableRow) -> Result<VolumeShape> {
    let Tuning { hashcache_bin_bytes: bin_bytes, hashcache_ways, hashcache_ring_share, .. } = options.tuning;
    let invalid = |place: String| Err(Error::new(ErrorKind::Invalid, place));
    if !hashcache_ways.is_power_of_two() {
        return invalid(format!("ways of a set are not 2, 4, 8 or 16: {hashcache_ways}"));
    }
    let ways = match row {
        TableRow::Bins => 1,
        TableRow::Sets | TableRow::TaggedSets | TableRow::RecentlyTaggedSets => u64::from(hashcache_ways),
    };
    let mut shape = VolumeShape {
        row: options.policy.code,
        size_bytes: options.size_bytes,
        segment_bytes: 0,
        index_bytes: SESSION_AREA_BYTES,
        parameters: [0; PARAMETER_COUNT],
        journal_pages: 0,
        form: LogForm::Plain,
    };
    let room = shape.data_area();
    let table_bytes = room.end.saturating_sub(room.start) as f64 * (1.0 - hashcache_ring_share);
    let set_count = table_bytes as u64 / (bin_bytes * ways);
    shape.parameters[..3].copy_from_slice(&[bin_bytes, ways, set_count]);
    match layout_of(&shape) {
        Some(_) => Ok(shape),
        None => invalid(format!("store size has no room for a table of sets: {}", options.size_bytes)),
    }
}

/// Returns where the bins and the ring, the circular log, are on a volume; `None` if the superblock's parameters are
/// invalid.
fn layout_of(shape: &VolumeShape) -> Option<TableLayout> {
    let [bin_bytes, ways, set_count, ..] = shape.parameters;
    let sound = (BLOCK_BYTES..=BIN_BYTES_MAX).contains(&bin_bytes) && bin_bytes.is_power_of_two();
    let sound = sound && (1..=WAYS_MAX as u64).contains(&ways) && ways.is_power_of_two();
    sound.then(|| TableLayout::new(shape.data_area(), bin_bytes, ways, set_count))?
}

/// The engine of one volume with a disk table.
pub(crate) struct TableEngine {
    volume: Arc<Volume>,
    row: TableRow,
    layout: TableLayout,
    state: StateLock<TableState>,
}

struct TableState {
    phase: TablePhase,
    memory: SetMemory,
    recent: RecentSummaries,
    /// Sets that the volume may have in an older state than was acknowledged, because a write failed.
    suspects: SuspectSets,
    /// When wiping a suspect set, whose bytes must not be trusted, is next attempted; `None` if no set waits for that.
    wipe_at: Option<Duration>,
    ring: RingState,
    /// Session block of this run, as it was last written.
    session: RunSession,
    /// The numbers of writes.
    numbers: RunNumbers,
    /// Sets that are being changed. Each has the entry that is being written to the set, if any.
    held: HashMap<SetNumber, Option<DirtySet>>,
    dirty_bytes: u64,
    gathered: GatheredEntries,
    recent_rests: RecentRests,
    /// Counters of changes. A counter grows when the change of one of its sets begins, and when it is done.
    changes: Box<[u32]>,
    waiting: TaskWaiters,
}

/// The phase of a table, which decides whether entries can be stored now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TablePhase {
    Loading,
    Ready,
    /// Entries cannot be stored, because the session block could not be written.
    Failed,
}

/// The write that is changing a set.
struct DirtySet {
    hash: FullHash,
    /// The record of the entry; `None` if an entry is being removed.
    record: Option<Bytes>,
    /// The group in which the entry waits; `None` if its write has begun.
    waits_in: Option<BinGroup>,
}

/// A group of entries that were requested together. Group 0 stands for entries without a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BinGroup(u32);

/// The right to change a set. Dropping it releases the set.
struct SetHold {
    engine: Weak<TableEngine>,
    set: SetNumber,
}

impl Drop for SetHold {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.release(self.set);
        }
    }
}

impl TableEngine {
    /// Creates the engine. Returns `None` if the superblock's parameters do not describe a table.
    pub(crate) fn new(volume: Arc<Volume>, row: TableRow) -> Option<Self> {
        let layout = layout_of(&volume.shape)?;
        let StoreOptions { tuning, dirty_bytes_max, .. } = &volume.options;
        let state = TableState {
            phase: TablePhase::Loading,
            memory: SetMemory::Nothing,
            recent: RecentSummaries::new(),
            suspects: SuspectSets::new(layout.set_count),
            wipe_at: None,
            ring: session::ring(&layout, 0),
            session: RunSession::default(),
            numbers: RunNumbers::new(0, session::NUMBERS_PER_BATCH),
            held: HashMap::new(),
            dirty_bytes: 0,
            gathered: GatheredEntries::new(tuning.group_window, layout.ring_len_bytes, *dirty_bytes_max),
            recent_rests: RecentRests::new(*dirty_bytes_max),
            changes: vec![0; CHANGE_COUNT].into_boxed_slice(),
            waiting: TaskWaiters::default(),
        };
        let state = StateLock::new(state, volume.failure.mark());
        Some(Self { volume, row, layout, state })
    }

    fn lock(&self) -> LockedState<'_, TableState> {
        self.state.lock()
    }

    fn set_of(&self, key_hash: KeyHash) -> SetNumber {
        set_of(key_hash, self.layout.set_count)
    }

    /// Creates the part of the sets that is kept in memory. `fresh` means that the volume was never used, so all sets
    /// are empty.
    fn memory(&self, fresh: bool) -> SetMemory {
        let tuning = &self.volume.options.tuning;
        let shape = sets::SetShape {
            ways: self.layout.ways as u32,
            tag_bits: tuning.hashcache_tag_bits,
            generation_bits: 0,
            position_bits: 0,
            length_bits: 0,
            positions: 0,
        };
        let set_count = self.layout.set_count;
        match self.row {
            TableRow::TaggedSets => SetMemory::All(PackedSets::new(shape, set_count, fresh)),
            TableRow::RecentlyTaggedSets => {
                let resident = (set_count as f64 * tuning.hashcache_resident_share) as u64;
                SetMemory::Recent(ResidentSets::new(shape, set_count, resident))
            }
            TableRow::Bins | TableRow::Sets => SetMemory::Nothing,
        }
    }

    /// Waits until no other task is changing `set`, and takes the right to change it.
    async fn hold(self: &Arc<Self>, set: SetNumber) -> Result<SetHold> {
        loop {
            let waits_in = self.wait(|state| match state.phase {
                TablePhase::Loading => None,
                TablePhase::Failed => Some(Err(cannot_begin())),
                TablePhase::Ready => match state.held.get(&set) {
                    Some(held) => held.as_ref().and_then(|dirty| dirty.waits_in).map(|group| Ok(Some(group))),
                    None => {
                        state.held.insert(set, None);
                        Some(Ok(None))
                    }
                },
            });
            match waits_in.await? {
                Some(group) => self.write_group(group).await,
                None => return Ok(SetHold { engine: Arc::downgrade(self), set }),
            }
        }
    }

    /// Takes the right to change a set. Returns `None` if another task has it.
    fn try_hold(self: &Arc<Self>, set: SetNumber) -> Option<SetHold> {
        let mut state = self.lock();
        if state.phase != TablePhase::Ready || state.held.contains_key(&set) {
            return None;
        }
        state.held.insert(set, None);
        drop(state);
        Some(SetHold { engine: Arc::downgrade(self), set })
    }

    fn release(&self, set: SetNumber) {
        let mut state = self.lock();
        state.held.remove(&set);
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }

    /// Waits until `decide` returns a value for the state, and returns that value.
    async fn wait<T>(&self, decide: impl FnMut(&mut TableState) -> Option<T>) -> T {
        wait_for(|| self.lock(), decide).await
    }
}

impl TableState {
    fn changes(&self, set: SetNumber) -> u32 {
        self.changes[set.0 as usize % CHANGE_COUNT]
    }

    fn note_change(&mut self, set: SetNumber) {
        let count = &mut self.changes[set.0 as usize % CHANGE_COUNT];
        *count = count.wrapping_add(1);
    }

    /// Returns whether a set is unchanged since its change counter was `changes`, and is not being written now.
    fn is_settled(&self, set: SetNumber, changes: u32) -> bool {
        self.changes(set) == changes && !self.is_being_written(set)
    }

    fn is_being_written(&self, set: SetNumber) -> bool {
        self.held.get(&set).is_some_and(|held| held.as_ref().is_some_and(|dirty| dirty.waits_in.is_none()))
    }

    /// Makes the entry in `way` the most recently used one of its set, if it has `key_hash`'s tag. Without `way`, does
    /// this for the entry with the tag if there is only one.
    fn promote(&mut self, set: SetNumber, key_hash: KeyHash, way: Option<usize>) {
        let Some(shape) = self.memory.shape() else { return };
        let Some(mut contents) = self.memory.read(set) else { return };
        let ways: Vec<usize> = contents.ways_with(shape.tag(key_hash)).collect();
        let only = if let [only] = ways[..] { Some(only) } else { None };
        let Some(way) = way.or(only).filter(|way| ways.contains(way)) else { return };
        if contents.ways()[way].rank > 0 {
            contents.promote(way, SetPlace::default());
            assert_eq!(contents.ways()[way].rank, 0, "what was promoted was used last");
            self.memory.write(set, &contents);
        }
    }
}

impl AsMut<TaskWaiters> for TableState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

impl Engine for TableEngine {
    /// The change counter of the entry's set, as it was when the entry was found.
    type Found = u32;

    fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    async fn load(self: &Arc<Self>) {
        self.begin_session().await;
    }

    async fn find(self: &Arc<Self>, key: &[u8], extent: ReadExtent) -> Result<Option<(u32, Option<Reader>)>> {
        if extent == ReadExtent::Key {
            return Ok(self.sees(key).await?.map(|changes| (changes, None)));
        }
        Ok(self.look_up(key).await?.map(|(changes, reader)| (changes, Some(reader))))
    }

    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool {
        let state = self.lock();
        let set = self.set_of(key_hash);
        let known = state.memory.shape().zip(state.memory.peek(set));
        at.is_none()
            && !state.suspects.contains(set)
            && known.is_none_or(|(shape, contents)| contents.find(shape.tag(key_hash)).is_some())
    }

    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<u32>) -> Result<bool> {
        self.put(record, found).await
    }

    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.wipe(key).await
    }

    fn touch(&self, key_hash: KeyHash) {
        self.lock().promote(self.set_of(key_hash), key_hash, None);
    }

    async fn maintain(self: &Arc<Self>) {
        self.release_complete().await;
        self.keep_session().await;
        self.wipe_suspects().await;
    }

    fn next_due(&self) -> Option<Duration> {
        let (phase, waits, suspects) = {
            let state = self.lock();
            (state.phase, state.gathered.waiting.bytes() > 0, !state.suspects.is_empty())
        };
        match phase {
            TablePhase::Failed => Some(START_RETRY_PAUSE),
            _ => (waits || self.session_is_due()).then_some(TICK).or_else(|| suspects.then_some(RETRY_PAUSE)),
        }
    }

    /// Writes the groups that wait in memory, and wipes suspect sets, whose bytes must not be trusted. Nothing else
    /// waits for a flush, because every other commit waits for its own writes.
    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()> {
        match extent {
            FlushExtent::CommittedBy(time) => {
                self.volume.check_open()?;
                let written = self.flush_groups(time).await;
                self.wipe_all_suspects().await.and(written)
            }
            FlushExtent::Closing => {
                // A group that fails now leaves suspect sets, which are wiped below.
                let is_over = |state: &mut TableState| {
                    let waits = state.gathered.waiting.bytes() > 0;
                    (waits || state.held.is_empty()).then_some(!waits)
                };
                while !self.wait(is_over).await {
                    let _ = self.flush_groups(Duration::MAX).await;
                }
                let wiped = self.wipe_all_suspects().await;
                self.end_session().await.and(wiped)
            }
        }
    }

    fn check(&self) {
        self.lock().check();
    }

    fn gauges(&self) -> EngineGauges {
        let state = self.lock();
        EngineGauges {
            entries: state.memory.entries(),
            counts_all: state.memory.counts_all(),
            entries_max: self.layout.bin_count(),
            index_bytes: state.memory.memory_bytes() + state.suspects.memory_bytes(),
            dirty_bytes: state.dirty_bytes,
            segments_in_use: 0,
        }
    }
}
