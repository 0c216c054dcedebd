//! Decides which lookups must find an entry.
//!
//! Owns: the time up to which losses are excused, and the keys lost in policies that may lose a few. [`crate::History`]
//! knows the operations on a key. A cache may evict: a version must be found only until a quarter of the volume may
//! have been written since (with probation, a 32nd). The estimate of bytes written is above what any policy writes.
//! Invariant: a store that works as its policy promises is never accused of a loss.

use super::{Crash, Operation, SEGMENT_BYTES, SITE_COUNT, Trial};
use larder_store::{EngineRow, IndexAxis, LayoutAxis, LogEviction, LogRow, Policy, StoreOptions};
use std::collections::{HashSet, VecDeque};

/// The events that excuse the loss of entries, and the entries that were lost.
#[derive(Debug, Default)]
pub(super) struct LossExcuses {
    /// Time up to which losses are excused: entries that were begun by then need not be found.
    excused_until: u64,
    /// Upper estimate of the bytes written so far. `worn` records past values of the estimate, with their times.
    worn_bytes: u64,
    worn: VecDeque<(u64, u64)>,
    /// Length of the longest body so far, in bytes.
    longest_bytes: u64,
    /// Number of the device's faults at the last check. `known_failed_writes` is the number of failed writes among
    /// them.
    known_faults: u64,
    known_failed_writes: u64,
    /// Whether a fault had struck an operation that was still in progress at the last check.
    is_struck: bool,
    /// Whether a call to clear the store failed, but may have written one of the volume's two superblocks. The next
    /// start of the store may then clear it.
    may_be_invalidated: bool,
    /// Number of entries that the store had evicted at the last check.
    known_evicted: u64,
    /// Whether a removal waited to be written at the last check.
    has_pending_removals: bool,
    /// Time at which the last write failed.
    failed_at: u64,
    /// Keys that were not found although they had to be. Some policies may lose a few.
    lost: HashSet<u64>,
}

impl LossExcuses {
    /// Excuses the loss of all entries that were begun by `now`.
    pub(super) fn excuse(&mut self, now: u64) {
        self.excused_until = self.excused_until.max(now);
    }

    /// Returns the time after which an operation must have begun for its entry to be required. If clearing the store
    /// failed, no entry is required, because the next start may clear everything stored until then.
    fn since(&self) -> u64 {
        if self.may_be_invalidated { u64::MAX } else { self.excused_until }
    }

    /// Notes that a call to clear the store failed at `now`. Entries that are stored before the next start may be gone
    /// after it.
    pub(super) fn note_failed_invalidation(&mut self, now: u64) {
        self.excuse(now);
        self.may_be_invalidated = true;
    }

    /// Notes that the store started again at `now`.
    pub(super) fn restart(&mut self, now: u64) {
        if std::mem::take(&mut self.may_be_invalidated) {
            self.excuse(now);
        }
    }

    /// Notes that up to `bytes` are written at `now`. Entries that were begun before the last `room_bytes` were written
    /// may be overwritten.
    fn wear(&mut self, bytes: u64, now: u64, room_bytes: u64) {
        self.worn_bytes += bytes;
        self.worn.push_back((now, self.worn_bytes));
        while let Some(&(moment, worn)) = self.worn.front()
            && worn + room_bytes < self.worn_bytes
        {
            self.excuse(moment);
            self.worn.pop_front();
        }
    }
}

impl Trial {
    /// Excuses losses for the faults since the last call. They may have destroyed entries, and acknowledged operations
    /// may not become durable.
    pub(super) fn note_faults(&mut self) {
        let faults = self.faults();
        let failed_writes = self.failed_writes();
        let has_panicked = self.panics.has_struck_now();
        if failed_writes != self.excuses.known_failed_writes || has_panicked {
            let durable = self.durable.kill;
            self.histories.values_mut().for_each(|history| history.doubt(durable));
            (self.durable.kill_when_idle, self.durable.power_when_idle) = (0, 0);
            self.excuses.known_failed_writes = failed_writes;
            self.excuses.failed_at = self.now;
        }
        // The volume of an engine that panicked is emptied, or as it was when it panicked.
        if has_panicked {
            self.excuses.excuse(self.now);
        }
        // A store that knows that its device is dead drops pending writes without trying.
        if self.dying.is_none() && self.has_died() {
            self.excuses.excuse(self.now);
        }
        // A device that dies on purpose returns nothing more, but its durable data is there for the next.
        if self.is_dead() {
            return;
        }
        // A waiting misdirected write may land on entries that are stored and acknowledged in the meantime.
        let is_struck = self.device.struck_count() > 0;
        if faults != self.excuses.known_faults || is_struck || self.excuses.is_struck {
            self.excuses.excuse(self.now);
            (self.excuses.known_faults, self.excuses.is_struck) = (faults, is_struck);
        }
    }

    /// Excuses losses while the store has removals to write. If it cannot write them, it clears the volume instead.
    pub(super) fn note_pending_removals(&mut self) {
        let has_pending = self.store.as_ref().is_some_and(|store| store.stats().removals_waiting > 0);
        if has_pending || self.excuses.has_pending_removals {
            self.excuses.excuse(self.now);
        }
        self.excuses.has_pending_removals = has_pending;
    }

    /// Excuses losses after evictions by policies with size classes. Once all room is assigned to classes, a new entry
    /// replaces one of its class even if little was written.
    pub(super) fn note_evictions(&mut self) {
        if self.options.policy.layout != LayoutAxis::SizeClasses {
            return;
        }
        let evicted = self.store.as_ref().map_or(0, |store| store.stats().evicted);
        if evicted != self.excuses.known_evicted {
            self.excuses.excuse(self.now);
            self.excuses.known_evicted = evicted;
        }
    }

    /// Makes the next check ignore the faults so far, because they are counted as staged.
    pub(super) fn forget_staged(&mut self) {
        (self.excuses.known_faults, self.excuses.known_failed_writes) = (self.faults(), self.failed_writes());
    }

    /// Returns whether an operation that began at `begun` can have become durable: no write has failed since.
    pub(super) fn is_trusted(&self, begun: u64) -> bool {
        begun > self.excuses.failed_at
    }

    /// Adds the bytes that an operation may write to the estimate that excuses evictions.
    pub(super) fn wear_by(&mut self, operation: &Operation) {
        let layout = self.options.policy.layout;
        let is_clustered = layout == LayoutAxis::Clusters;
        // Clusters are written whole, and a cluster without room for an entry is closed.
        let unit_bytes = if is_clustered { self.options.tuning.ucfs_cluster_bytes } else { PARTIAL_BYTES };
        let times = if is_clustered { 2 } else { 1 };
        let bytes = match *operation {
            Operation::Insert { body_bytes, .. } => {
                self.excuses.longest_bytes = self.excuses.longest_bytes.max(body_bytes);
                body_bytes * times + PARTIAL_BYTES
            }
            Operation::UpdateHead { .. } => self.excuses.longest_bytes * times + PARTIAL_BYTES,
            Operation::Abandon { .. } | Operation::Remove { .. } => PARTIAL_BYTES,
            Operation::Sync | Operation::Wait { .. } => unit_bytes * SITE_COUNT,
            Operation::Reopen | Operation::Crash { .. } => 2 * SEGMENT_BYTES.max(unit_bytes * SITE_COUNT),
            Operation::Read { .. } | Operation::ReadPart { .. } | Operation::Clear | Operation::StepClock { .. } => 0,
        };
        let room_bytes = if self.options.policy.engine == EngineRow::Log(LogRow::Packed(LogEviction::Worth)) {
            // Entries that were not requested again have a tenth, much of which may be waste if entries are long for
            // their segments.
            self.options.size_bytes / 32
        } else {
            self.options.size_bytes / 4 / part_count(&self.options)
        };
        self.excuses.wear(bytes, self.now, room_bytes);
    }

    /// Returns whether a lookup of `key` that began at `begun` and ends now must find an entry.
    pub(super) fn must_hit(&self, key: u64, begun: u64) -> bool {
        let since = self.excuses.since();
        // `esp` evicts as time passes.
        let lasts = self.options.policy.layout != LayoutAxis::MultilevelBitmap || self.passed.is_zero();
        let is_countable = lasts && (!may_lose_a_few(self.options.policy) || self.histories.len() <= FEW_KEYS);
        let must_hit = || self.histories.get(&key).is_some_and(|history| history.must_hit(begun, since));
        is_countable && !self.is_dead() && must_hit()
    }

    /// Returns how many entries may be missing because the store has forgotten where they are. The store reports that
    /// number as evictions, and the trial allows as many.
    fn places_forgotten(&self) -> usize {
        let evicted = self.store.as_ref().map_or(0, |store| store.stats().evicted);
        if self.options.policy.index == IndexAxis::RecentSetPlaces { evicted as usize } else { 0 }
    }

    /// Counts a lookup of `key` that had to find an entry and found none. `begun` is the time at which it began.
    ///
    /// # Errors
    /// A text about the loss, if the policy may not lose this number of entries.
    pub(super) fn judge_loss(&mut self, key: u64, begun: u64) -> Result<(), String> {
        self.tally.missed += 1;
        self.excuses.lost.insert(key);
        let few = if may_lose_a_few(self.options.policy) { 2 + self.histories.len() / 4 } else { 0 };
        let few = few + self.places_forgotten();
        if self.excuses.lost.len() <= few {
            return Ok(());
        }
        let since = self.excuses.since();
        let history = self.history(key).clone();
        Err(format!("key {key} at {begun}: nothing is found of what must be there since {since}: {history:?}"))
    }

    /// Returns whether durable entries must survive a crash of kind `how`.
    pub(super) fn outlives(&self, how: Crash) -> bool {
        // A power loss during the write of a set loses the whole set.
        self.options.policy.layout != LayoutAxis::FrontAndSets || how == Crash::Kill
    }
}

/// Returns whether an entry can displace others long before the volume is full. That is so if the index keeps only a
/// few bits of a key, if a key has only a few possible places, or if one eviction removes many entries.
fn may_lose_a_few(policy: &Policy) -> bool {
    let is_exact = matches!(policy.index, IndexAxis::Buckets | IndexAxis::Map);
    !is_exact || policy.layout == LayoutAxis::MultilevelBitmap
}

/// Returns the number of parts into which a policy divides its volume. Each part takes entries of certain lengths.
fn part_count(options: &StoreOptions) -> u64 {
    let layout = options.policy.layout;
    if layout == LayoutAxis::MultilevelBitmap {
        return u64::from(options.tuning.esp_level_count) + 1;
    }
    if matches!(layout, LayoutAxis::Clusters | LayoutAxis::FrontAndSets) { 2 } else { 1 }
}

/// Maximum number of bytes that storing an entry writes in addition to its body: metadata, and the unused end of a
/// unit.
const PARTIAL_BYTES: u64 = 16 << 10;
/// With at most this number of keys, even policies that may lose entries lose only a few.
const FEW_KEYS: usize = 24;
