//! The engine of `tiny`: a small log (the front) before a table of sets. It needs very little memory on flash.
//!
//! Owns: the front and its index, the summaries of the sets, the ring for long entries, and the order in which they
//! change. A new entry goes to the front; a long one goes to the long ring, with a stub in the front. When the front's
//! oldest segment is to be reused, each of its entries is moved to its set, together with all other entries of that set
//! in the front, or dropped if that is not worth a write. [`rrip`] chooses which entries stay in a set.
//!
//! Invariants: an entry in the front is newer than one in a set, so the front is searched first, and an entry is
//! dropped from the front only if its set holds no older version. A segment of the front is reused only after the sets
//! written from it are durable. A set whose bytes on the volume differ from its summary in memory is suspect, and not
//! trusted until it is rewritten. No lock is held across I/O.
//!
//! Cost of a hit: one read, two if the entry is longer than half a set. Cost of a miss: a read if a Bloom filter of 3
//! bits per entry gives a false positive (`a_short_entry_is_one_read_a_long_one_two_and_a_dirty_one_none`). Memory: at
//! most nine bits per entry (`a_full_store_takes_at_most_nine_bits_of_memory_an_entry`). Writes:
//! `entries_share_writes_on_their_way_to_the_front_and_into_sets`. Idea: Kangaroo (SOSP 2021); docs/internals/tiny.md
//! lists the differences.

mod append;
mod check;
mod contents;
pub(crate) mod costs;
pub(crate) mod front;
pub(crate) mod layout;
mod moves;
mod outgoing;
mod pauses;
mod read;
mod recovery;
mod retry;
pub(crate) mod ring;
pub(crate) mod rrip;
mod set_in_flight;
mod set_write;
pub(crate) mod sets;
mod snapshot;
mod walk;

use super::{
    Engine, EngineGauges, FlushExtent, Location, ReadExtent,
    kit::{
        state_lock::{CheckedState, LockedState, StateLock},
        suspects::SuspectSets,
    },
};
use crate::{
    Error, ErrorKind, Reader, Result, StoreOptions,
    format::{
        pack::GRANULE_BYTES,
        record::RecordParts,
        superblock::{LogForm, PARAMETER_COUNT, VolumeShape},
    },
    hash::KeyHash,
    sync::atomic::AtomicBool,
    units::{DATA_START_BYTES, SetNumber, last_superblock_bytes},
    volume::{Volume, waiters::TaskWaiters, wakeup::TICK},
};
use front::{FrontIndex, FrontSlot, FrontState};
use layout::{TinyPlan, TinyWishes};
use read::TinyEntryPlace;
use ring::PackRingState;
use set_in_flight::SetInFlight;
use sets::{MayHold, SetSummaries};
use std::{collections::HashMap, sync::Arc, time::Duration};
pub(crate) use walk::walk;

/// Minimum number of free segments of the front, the log before the sets. If fewer are free, the oldest segment is
/// emptied.
const FRONT_RESERVE: u32 = 2;
/// Number of free segments of the front, the log before the sets, that are reserved for entries whose sets the device
/// refuses.
const FRONT_SPARE: u32 = 1;

/// Returns the layout of a new volume of `tiny`.
///
/// # Errors
/// `Invalid` if the options do not suit the policy.
pub(crate) fn shape_of(options: &StoreOptions) -> Result<VolumeShape> {
    let invalid = |place: String| Err(Error::new(ErrorKind::Invalid, place));
    let tuning = &options.tuning;
    let wishes = TinyWishes {
        mean_entry_bytes: options.mean_entry_bytes,
        set_bytes: tuning.tiny_set_bytes,
        front_percent: tuning.tiny_front_percent,
    };
    let end = last_superblock_bytes(options.size_bytes);
    // The snapshot's size depends on the number of sets, and the snapshot leaves less room for sets.
    let plan_behind = |index_bytes: u64| TinyPlan::new(DATA_START_BYTES + index_bytes..end, wishes);
    let index_bytes = plan_behind(0).map(|plan| snapshot::area_bytes(&summaries_of(&plan, options)));
    let plan = index_bytes.and_then(plan_behind);
    let (Some(index_bytes), Some(plan)) = (index_bytes, plan) else {
        return invalid(format!("store size has no room for a front, sets and long entries: {}", options.size_bytes));
    };
    if u64::from(plan.front.segment_count) * plan.front.segment_bytes > FrontIndex::GRANULE_COUNT_MAX * GRANULE_BYTES {
        return invalid(format!("store size asks for a front of more than 64 GiB: {}", options.size_bytes));
    }
    let parameters: [u64; PARAMETER_COUNT] = plan.parameters();
    Ok(VolumeShape {
        row: options.policy.code,
        size_bytes: options.size_bytes,
        segment_bytes: 0,
        index_bytes,
        parameters,
        journal_pages: 0,
        form: LogForm::Plain,
    })
}

/// Creates the summaries of the sets of a volume.
fn summaries_of(plan: &TinyPlan, options: &StoreOptions) -> SetSummaries {
    SetSummaries::new(plan.set_count, plan.entries_per_set(options.mean_entry_bytes))
}

/// The engine of one volume of `tiny`.
pub(crate) struct TinyEngine {
    volume: Arc<Volume>,
    plan: TinyPlan,
    state: StateLock<TinyState>,
    /// Minimum number of new entries for which a full set is written, even if `tiny_threshold` is lower.
    least_to_move: u64,
    /// Whether a task is emptying the oldest segment of the front, the log before the sets.
    moving: AtomicBool,
}

/// The state of the engine, behind its only lock.
struct TinyState {
    front: PackRingState,
    long: PackRingState,
    index: FrontIndex,
    sets: SetSummaries,
    /// Sets whose new content is being written.
    set_writes: HashMap<SetNumber, SetInFlight>,
    /// Sets that the volume may have in an older state than was acknowledged, because a write failed.
    suspects: SuspectSets,
    /// Whether sets were written since the last sync.
    sets_unsynced: bool,
    /// Number of entries in sets.
    set_entries: u64,
    /// Whether the front (the log before the sets) that an earlier run left is loaded.
    ready: bool,
    /// Time of the next attempt to empty the oldest segment; `None` means at once.
    move_at: Option<Duration>,
    /// Sequence of the last pack of the front, the log before the sets, to which records from a refused pack were
    /// moved.
    appended_again_until: u64,
    /// Number of refused packs of the front, the log before the sets, that were given up, because their records were
    /// moved or are no longer needed.
    given_up_count: u64,
    /// Time of the next retry of refused writes; `None` if none waits.
    retry_at: Option<Duration>,
    /// Whether the device may refuse all writes: refused packs were moved to new places, and since then the device has
    /// accepted nothing.
    is_device_suspect: bool,
    /// Keys whose newest record was lost with a damaged pack of the oldest segment. Their sets may have older versions,
    /// which lookups must not find until that segment is reused.
    lost_keys: Vec<KeyHash>,
    /// Number of consecutive failures to empty the oldest segment because the device refused sets.
    failed_moves: u32,
    /// Number of packs of the long ring, the log of long entries, that could not be written.
    failed_packs: u64,
    /// Number of failed packs that a flush has reported to its caller.
    reported_failures: u64,
    waiting: TaskWaiters,
}

impl TinyEngine {
    /// Creates the engine.
    ///
    /// # Errors
    /// `Corrupt` if the superblock's parameters are invalid.
    pub(crate) fn new(volume: Arc<Volume>) -> Result<Self> {
        let data = volume.shape.data_area();
        let plan = TinyPlan::from_parameters(data.start, volume.shape.parameters)
            .filter(|plan| plan.long.end_bytes() <= data.end)
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "the superblock's layout makes no sense"))?;
        let state = TinyState {
            front: PackRingState::new(plan.front, volume.id),
            long: PackRingState::new(plan.long, volume.id),
            index: FrontIndex::new(plan.front_slots(volume.options.mean_entry_bytes)),
            sets: summaries_of(&plan, &volume.options),
            set_writes: HashMap::new(),
            suspects: SuspectSets::new(u64::from(plan.set_count)),
            sets_unsynced: false,
            set_entries: 0,
            ready: false,
            move_at: None,
            appended_again_until: 0,
            given_up_count: 0,
            retry_at: None,
            is_device_suspect: false,
            lost_keys: Vec::new(),
            failed_moves: 0,
            failed_packs: 0,
            reported_failures: 0,
            waiting: TaskWaiters::default(),
        };
        let least_to_move = plan.least_to_move(volume.options.mean_entry_bytes);
        let state = StateLock::new(state, volume.failure.mark());
        Ok(Self { volume, plan, state, least_to_move, moving: AtomicBool::new(false) })
    }

    fn lock(&self) -> LockedState<'_, TinyState> {
        self.state.lock()
    }

    /// Returns the position of a byte in the front, the log before the sets, in granules from the front's start.
    fn granule(&self, offset_bytes: u64) -> u32 {
        assert!(self.plan.front.segment_of(offset_bytes).is_some(), "a place of the front: {offset_bytes}");
        ((offset_bytes - self.plan.front.start_bytes) / GRANULE_BYTES) as u32
    }

    fn front_offset(&self, granule: u32) -> u64 {
        self.plan.front.start_bytes + u64::from(granule) * GRANULE_BYTES
    }
}

impl TinyState {
    /// Returns whether the oldest segment of the front, the log before the sets, should be emptied now.
    fn move_is_due(&self) -> bool {
        self.ready && (self.front.free_count() < FRONT_RESERVE || self.index.is_full())
    }

    /// Returns the newest entry in the front, the log before the sets, whose key's hash begins with `prefix`.
    fn newest(&self, prefix: u32) -> Option<FrontSlot> {
        self.index.range(prefix, prefix).last()
    }

    /// Drops the content of a set from memory, because a newer record of its keys may be lost. Marks the set as
    /// suspect: it must be written before entries that replace its content leave the front, the log before the sets.
    fn forget_set(&mut self, set: SetNumber) {
        self.sets.forget(set);
        if let Some(write) = self.set_writes.get_mut(&set) {
            write.is_believed = false;
        }
        self.suspects.insert(set);
        debug_assert!(self.sets.holds_nothing(set), "what is suspect is hidden");
    }

    fn is_suspect(&self, set: SetNumber) -> bool {
        self.suspects.contains(set)
    }
}

impl AsMut<TaskWaiters> for TinyState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

/// Returns the part of a key's hash that the index of the front, the log before the sets, uses.
fn prefix_of(key_hash: KeyHash) -> u32 {
    key_hash.prefix()
}

impl Engine for TinyEngine {
    type Found = TinyEntryPlace;

    fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    async fn load(self: &Arc<Self>) {
        recovery::run(self).await;
    }

    async fn find(
        self: &Arc<Self>,
        key: &[u8],
        extent: ReadExtent,
    ) -> Result<Option<(TinyEntryPlace, Option<Reader>)>> {
        if extent == ReadExtent::Key {
            return Ok(self.sees(key).await?.map(|place| (place, None)));
        }
        Ok(self.look_up(key).await?.map(|(place, reader)| (place, Some(reader))))
    }

    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool {
        let state = self.lock();
        at.is_none()
            && match state.newest(prefix_of(key_hash)) {
                Some(slot) => slot.state != FrontState::Removed,
                None => state.sets.may_hold(key_hash) != MayHold::No,
            }
    }

    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<TinyEntryPlace>) -> Result<bool> {
        self.append_entry(record, found).await
    }

    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.remove_entry(key).await
    }

    fn touch(&self, key_hash: KeyHash) {
        self.note_hit(key_hash);
    }

    async fn maintain(self: &Arc<Self>) {
        let now = self.volume.clock.now();
        let woken = self.flush_due(now);
        if self.retry_is_due(now) {
            self.retry_failed();
            self.wipe_suspects().await;
        }
        while self.move_may_begin(now) {
            if !self.move_oldest().await {
                break;
            }
        }
        woken.wake();
    }

    fn next_due(&self) -> Option<Duration> {
        let state = self.lock();
        let dirty = state.front.opened_at().is_some() || state.long.opened_at().is_some();
        let is_busy = dirty || !state.waiting.is_empty() || state.move_is_due();
        let has_failed = !state.front.failed_packs().is_empty() || !state.suspects.is_empty();
        is_busy.then_some(TICK).or_else(|| has_failed.then_some(pauses::PAUSE))
    }

    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()> {
        self.flush_all().await?;
        if extent != FlushExtent::Closing {
            return Ok(());
        }
        self.volume.sync().await?;
        while self.wipe_suspects().await {}
        if !self.lock().suspects.is_empty() {
            // The next start reads all sets. A snapshot would state that suspect sets are empty, without marking them
            // as suspect.
            return Ok(());
        }
        snapshot::write(self).await
    }

    fn check(&self) {
        self.lock().check();
    }

    fn gauges(&self) -> EngineGauges {
        let state = self.lock();
        let mean_entry_bytes = self.volume.options.mean_entry_bytes;
        let in_sets_max = u64::from(self.plan.set_count) * self.plan.entries_per_set(mean_entry_bytes);
        EngineGauges {
            entries: state.index.len() as u64 + state.set_entries,
            counts_all: true,
            entries_max: self.plan.front_slots(mean_entry_bytes) + in_sets_max,
            index_bytes: state.index.memory_bytes() + state.sets.memory_bytes() + state.suspects.memory_bytes(),
            dirty_bytes: state.front.dirty_bytes() + state.long.dirty_bytes(),
            segments_in_use: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Clock, Hints, Policy, Store,
        device::{MemoryDevice, block_on},
        families::AnyEngine,
    };
    use bytes::Bytes;
    use futures_util::future::join_all;
    use std::collections::HashMap;

    const KEY_COUNT: u64 = 12;

    pub(super) fn options() -> StoreOptions {
        StoreOptions {
            policy: Policy::named("tiny").unwrap(),
            mean_entry_bytes: 1024,
            identity_seed: Some(1),
            background: false,
            clock: Clock::manual(Duration::from_secs(1_700_000_000)),
            ..StoreOptions::new("", 4 << 20)
        }
    }

    /// Returns two keys that the index of the front, the log before the sets, cannot distinguish.
    pub(super) fn keys_alike(volume: &Volume) -> [u64; 2] {
        let mut seen = HashMap::new();
        let alike = (0_u64..2_000_000).find_map(|key| {
            let prefix = prefix_of(volume.hash(&key.to_le_bytes()).0);
            seen.insert(prefix, key).map(|other| [other, key])
        });
        alike.expect("two of two million hashes of 32 bits are equal")
    }

    fn put(store: &Store, key: u64, round: u64) {
        let len = if round.is_multiple_of(4) { 12_000 } else { 700 };
        let mut writer = store.insert(&key.to_le_bytes(), round.to_string().into(), Hints::default()).unwrap();
        writer.write(vec![round as u8; len].into()).unwrap();
        block_on(writer.commit()).unwrap();
    }

    fn versions(store: &Store) -> Vec<Option<Bytes>> {
        let get = |key: u64| block_on(store.get(&key.to_le_bytes())).unwrap().map(|reader| reader.head());
        (0..KEY_COUNT).map(get).collect()
    }

    /// Guards against a process that aborts after 4 billion packs, and against a start that takes the newest pack for
    /// the oldest.
    #[test]
    fn nothing_is_lost_and_nothing_old_is_found_when_sequences_on_the_volume_begin_again() {
        let options = options();
        let device = Arc::new(MemoryDevice::new(options.size_bytes));
        let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
        let AnyEngine::Tiny(engine) = store.first_engine() else { panic!("another engine") };
        engine.lock().front.begin_at(u64::from(u32::MAX) - 60);
        engine.lock().long.begin_at(u64::from(u32::MAX) - 10);
        let mut expected = vec![None; KEY_COUNT as usize];
        for round in 1..=240 {
            let key = round * 7 % KEY_COUNT;
            if round.is_multiple_of(5) {
                block_on(store.remove(&key.to_le_bytes())).unwrap();
                expected[key as usize] = None;
            } else {
                put(&store, key, round);
                expected[key as usize] = Some(Bytes::from(round.to_string()));
            }
            block_on(store.sync()).unwrap();
            if round.is_multiple_of(12) {
                assert_eq!(versions(&store), expected, "round {round}");
                let killed = Store::open_on(Arc::new(device.snapshot()), &options).unwrap();
                assert_eq!(versions(&killed), expected, "killed in round {round}");
            }
        }
        let ends = {
            let state = engine.lock();
            [state.front.last_sequence(), state.long.last_sequence()]
        };
        assert!(ends.iter().all(|&end| end > u64::from(u32::MAX)), "{ends:?}");
        block_on(store.close()).unwrap();
        let again = Store::open_on(Arc::new(device.snapshot()), &options).unwrap();
        assert_eq!(versions(&again), expected);
    }

    /// Guards against a removed entry that comes back after a kill, because a key with the same hash bits was removed
    /// at the same time.
    #[test]
    fn keys_that_look_alike_in_the_front_stay_removed() {
        let options = options();
        let device = Arc::new(MemoryDevice::new(options.size_bytes));
        let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
        let alike = keys_alike(store.first_engine().volume());
        // So many other entries that those of the front are moved into sets.
        let fill = |first: u64| {
            for key in first..first + 600 {
                put(&store, u64::MAX - key, 1);
                block_on(store.maintain());
            }
            block_on(store.sync()).unwrap();
        };
        for (number, key) in alike.into_iter().enumerate() {
            put(&store, key, 1);
            fill(600 * number as u64);
        }
        let found = |store: &Store| alike.map(|key| block_on(store.get(&key.to_le_bytes())).unwrap().is_some());
        assert_eq!(found(&store), [true, true], "each is in its set");
        // The second removal begins while the first one's tombstone waits for the device.
        let remove = async |key: u64| store.remove(&key.to_le_bytes()).await;
        let removals = alike.map(remove);
        block_on(join_all(removals)).into_iter().for_each(|outcome| outcome.unwrap());
        let killed = Store::open_on(Arc::new(device.snapshot()), &options).unwrap();
        block_on(killed.ready());
        assert_eq!(found(&killed), [false, false], "after a kill");
        fill(1200);
        assert_eq!(found(&store), [false, false], "when the tombstones are in their sets");
    }
}
