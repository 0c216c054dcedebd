//! A store on trial: operations are applied to it and to the model, and all its results are judged.
//!
//! Owns: the device, the store on it, and the histories of all keys. Schedules and property tests choose the
//! operations. Invariant: when a law is broken, the trial ends and reports the wrong or missing result, and why it is
//! not allowed.

mod excuses;
mod life;
mod neighbors;
mod panics;
mod tally;
mod task;

use crate::{History, SeenEntry, content, drive, faults::Faults};
use excuses::LossExcuses;
use larder_device::{Device, FaultPlan, FaultStats, FaultyDevice, MemoryDirectory};
use larder_store::{Clock, Error, IndexAxis, Policy, SplitMix64, Store, StoreOptions, Tuning};
use neighbors::PassedEntries;
use panics::PlannedFailure;
use std::{collections::HashMap, sync::Arc, time::Duration};
pub use tally::Tally;
use task::{FoundEntry, Part, TaskOutcome};
pub(crate) use task::{ModelWork, Task};

/// An operation of a trial on its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Stores a new version of a key's entry.
    Insert {
        /// Number of the key.
        key: u64,
        /// Length of the body in bytes.
        body_bytes: u64,
        /// Whether the entry expires within a minute.
        short_lived: bool,
    },
    /// Begins to write an entry, and drops the writer before the commit.
    Abandon {
        /// Number of the key.
        key: u64,
    },
    /// Looks up an entry and reads its whole body.
    Read {
        /// Number of the key.
        key: u64,
    },
    /// Looks up only the front of an entry, and then reads a part of its body.
    ReadPart {
        /// Number of the key.
        key: u64,
        /// Random number that chooses the part of the body.
        part: u64,
    },
    /// Removes the entry of a key.
    Remove {
        /// Number of the key.
        key: u64,
    },
    /// Replaces the head of a key's entry.
    UpdateHead {
        /// Number of the key.
        key: u64,
    },
    /// Makes all operations so far durable (`Store::sync`).
    Sync,
    /// Advances the time and runs the store's maintenance.
    Wait {
        /// The time in milliseconds.
        milliseconds: u64,
    },
    /// Changes the time of day without time passing. Not allowed during lookups, because they are judged by the time of
    /// day at which they began.
    StepClock {
        /// Number of seconds by which the time is changed. Negative values set it back.
        by_s: i64,
    },
    /// Removes all entries (`Store::clear`).
    Clear,
    /// Closes the store and opens it again.
    Reopen,
    /// Ends the store without closing it, and opens it again.
    Crash {
        /// Whether the process is killed or the power fails.
        how: Crash,
        /// Number of device operations after which the recovery crashes in the same way, if set.
        again_after: Option<u64>,
    },
}

/// A sudden end of the store's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed. The device keeps all writes that it has acknowledged.
    Kill,
    /// The power fails. The device keeps the synced writes, and any subset of the others.
    PowerCut,
}

/// Number of sites in the hints of entries. Keys are assigned to the sites in turn.
const SITE_COUNT: u64 = 3;

/// A store under test, with the device below it and a model of what it may return.
pub struct Trial {
    options: StoreOptions,
    plan: FaultPlan,
    device: Arc<FaultyDevice>,
    /// Directory for policies that keep entries in files. Its writes take effect at once and never fail.
    directory: Arc<MemoryDirectory>,
    store: Option<Store>,
    histories: HashMap<u64, History>,
    /// Present logical time. Each call and each result advances it by one.
    now: u64,
    next_version: u64,
    /// Virtual time that has passed since the trial began.
    passed: Duration,
    /// Total seconds by which the time of day was set forward.
    stepped_s: i64,
    /// Counters of the device at the call of [`Trial::die_after`].
    dying: Option<FaultStats>,
    /// Whether reads failed or were wrong when the store was opened, so that its view of the volume may be wrong.
    is_misled: bool,
    /// Number of writes that failed syncs had lost before the store was opened.
    losses_before: u64,
    /// Whether the store ended before it could durably note that a sync had lost writes.
    may_be_unaware: bool,
    /// Whether an operation has failed because the volume was full.
    was_full: bool,
    /// Faults of devices that failed for good because the schedule prescribed it.
    staged: FaultStats,
    /// Times up to which acknowledged operations survive a kill or a power loss.
    durable: Durable,
    excuses: LossExcuses,
    neighbors: Arc<PassedEntries>,
    panics: PlannedFailure,
    tally: Tally,
    tell: Option<fn(&str)>,
}

/// Times up to which acknowledged operations survive a kill (`kill`) or a power loss (`power`).
#[derive(Clone, Copy, Debug, Default)]
struct Durable {
    kill: u64,
    power: u64,
    /// Values that `kill` and `power` take once the device has no work left.
    kill_when_idle: u64,
    power_when_idle: u64,
}

/// Size of the smallest volume in bytes: twelve of the smallest segments, so that reclaim starts early.
pub const SIZE_BYTES: u64 = (12 << 18) + (68 << 10);
/// Size of the segments of all volumes, in bytes.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Returns options like [`options`] does, but with sizes and tuning values that the seed chooses.
pub fn varied_options(policy: &'static Policy, seed: u64) -> StoreOptions {
    let mut random = SplitMix64::new(!seed);
    let mut pick = |values: &[u64]| values[random.below(values.len() as u64) as usize];
    let mut options = options(policy, seed);
    // Either a dozen segments, so that reclaim is never far, or so many that nothing is reclaimed.
    options.size_bytes = pick(&[SIZE_BYTES, SIZE_BYTES, (20 << 18) + (68 << 10), 12 << 20]);
    if policy.index != IndexAxis::RecentSetPlaces {
        options.mean_entry_bytes = pick(&[1024, 2048, 8192]);
    }
    options.dirty_bytes_max = pick(&[256 << 10, 32 << 20]);
    let tuning = &mut options.tuning;
    tuning.hashcache_bin_bytes = pick(&[4 << 10, 8 << 10]);
    tuning.hashcache_ways = pick(&[2, 4, 8]) as u32;
    tuning.tiny_set_bytes = pick(&[4 << 10, 8 << 10, 16 << 10]);
    tuning.tiny_front_percent = pick(&[1, 5, 20]);
    tuning.tiny_threshold = pick(&[1, 2, 4]);
    tuning.ucfs_cluster_bytes = pick(&[32 << 10, 128 << 10]);
    tuning.esp_level_count = pick(&[3, 7]) as u32;
    tuning.page_bytes = pick(&[8 << 10, 64 << 10]);
    tuning.sorted_reads = pick(&[0, 0, 0, 1]) == 1;
    options
}

/// Returns options for a small store with `policy`. The store runs in virtual time, without threads, and with random
/// numbers that follow from `seed`.
pub fn options(policy: &'static Policy, seed: u64) -> StoreOptions {
    // With few sets and positions in memory, even a short trial writes positions to the file.
    let mean_entry_bytes = if policy.index == IndexAxis::RecentSetPlaces { 32 << 10 } else { 2048 };
    let mut tuning = Tuning::default();
    (tuning.hashcache_positions, tuning.hashcache_positions_waiting) = (1, 2);
    // A trial assumes that entries older than the flush interval are flushed.
    tuning.group_window = Duration::ZERO;
    // Less than the length of the volume. Otherwise `esp` would evict everything.
    tuning.esp_threshold_bytes = 128 << 10;
    StoreOptions {
        policy,
        tuning,
        identity_seed: Some(seed),
        mean_entry_bytes,
        segment_size_bytes: Some(SEGMENT_BYTES),
        clock: Clock::manual(Duration::from_secs(STARTED_UNIX_S)),
        background: false,
        ..StoreOptions::new("", SIZE_BYTES)
    }
}

const STARTED_UNIX_S: u64 = 1_700_000_000;

impl Trial {
    /// Creates a store on a device whose faults follow from `seed`.
    ///
    /// # Errors
    /// A text that says why the store cannot be created.
    pub fn new(options: StoreOptions, faults: &Faults, seed: u64) -> Result<Self, String> {
        let device = FaultyDevice::new(options.size_bytes, seed, FaultPlan::default());
        let directory = Arc::new(MemoryDirectory::new(options.size_bytes));
        let mut trial = Self {
            options,
            plan: faults.plan.clone(),
            device: Arc::new(device),
            directory,
            store: None,
            histories: HashMap::new(),
            now: 1,
            next_version: 1,
            passed: Duration::ZERO,
            stepped_s: 0,
            dying: None,
            is_misled: false,
            losses_before: 0,
            may_be_unaware: false,
            was_full: false,
            staged: FaultStats::default(),
            durable: Durable::default(),
            excuses: LossExcuses::default(),
            neighbors: Arc::default(),
            panics: PlannedFailure::default(),
            tally: Tally::default(),
            tell: None,
        };
        trial.create()?;
        Ok(trial)
    }

    /// Does an operation from call to result, and judges the result.
    ///
    /// # Errors
    /// The broken law.
    pub fn step(&mut self, operation: Operation) -> Result<(), String> {
        let Some(task) = self.begin(operation)? else { return Ok(()) };
        let outcome = drive(&self.device, task.future).map_err(|stuck| format!("{operation:?}: {stuck}"))?;
        self.judge_outcome(task.work, outcome)
    }

    /// Starts an operation. Returns `None` if it is done already.
    ///
    /// # Errors
    /// The broken law.
    pub(crate) fn begin(&mut self, operation: Operation) -> Result<Option<Task>, String> {
        self.tally.operations += 1;
        self.note_faults();
        self.judge_neighbors()?;
        self.say(|trial| format!("{} {operation:?}", trial.now + 1));
        self.wear_by(&operation);
        match operation {
            Operation::Reopen => self.reopen()?,
            Operation::Crash { how, again_after } => self.crash(how, again_after)?,
            Operation::Clear => self.clear()?,
            Operation::StepClock { by_s } => {
                self.options.clock.step(by_s);
                self.stepped_s += by_s;
            }
            other => return Ok(self.start(other)),
        }
        Ok(None)
    }

    /// Judges the outcome of an operation, and notes it in the model.
    ///
    /// # Errors
    /// The broken law.
    pub(crate) fn judge_outcome(&mut self, work: ModelWork, outcome: TaskOutcome) -> Result<(), String> {
        self.note_faults();
        self.judge_neighbors()?;
        let ended = self.tick();
        // Memory must be consistent, whatever the device did.
        self.store.iter().for_each(Store::check_invariants);
        self.check_failures()?;
        self.note_pending_removals();
        self.note_evictions();
        self.say(|_| format!("{ended} {work:?}: {outcome:?}"));
        match (work, outcome) {
            (ModelWork::Change { key, begun }, TaskOutcome::Done(Ok(()))) => {
                self.history(key).acknowledge(begun, ended)
            }
            (ModelWork::Head { key, begun }, TaskOutcome::Updated(Ok(true))) => {
                self.history(key).acknowledge(begun, ended)
            }
            (ModelWork::Head { key, begun }, TaskOutcome::Updated(Ok(false))) => self.history(key).withdraw(begun),
            (ModelWork::Look { key, begun, unix_s }, TaskOutcome::Found(Ok(found))) => {
                self.tally.lookups += 1;
                let must_hit = self.must_hit(key, begun);
                self.tally.required += u64::from(must_hit);
                match found {
                    Some(found) => self.judge(key, begun, unix_s, &found)?,
                    None if must_hit => self.judge_loss(key, begun)?,
                    None => {}
                }
            }
            (ModelWork::Sync { begun }, TaskOutcome::Done(Ok(()))) => {
                self.durable.kill = self.durable.kill.max(begun);
                self.durable.power = self.durable.power.max(begun);
            }
            (ModelWork::Wait { flushed, synced }, TaskOutcome::Maintained) if self.is_trusted(flushed) => {
                self.durable.kill_when_idle = self.durable.kill_when_idle.max(flushed);
                self.durable.power_when_idle = self.durable.power_when_idle.max(synced);
            }
            (ModelWork::Wait { .. }, TaskOutcome::Maintained) => {}
            (
                work,
                TaskOutcome::Done(Err(error)) | TaskOutcome::Updated(Err(error)) | TaskOutcome::Found(Err(error)),
            ) => {
                self.excuse(&work, &error)?;
            }
            (work, _) => unreachable!("another operation's outcome for {work:?}"),
        }
        self.note_idle();
        Ok(())
    }

    /// Looks up every key that was ever used, and judges the results.
    ///
    /// # Errors
    /// The broken law.
    pub fn check_all(&mut self) -> Result<(), String> {
        let mut keys: Vec<u64> = self.histories.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().try_for_each(|key| self.step(Operation::Read { key }))
    }

    /// Passes a line of text for every event from now on to `tell`.
    pub fn tell(&mut self, tell: fn(&str)) {
        self.tell = Some(tell);
    }

    /// Returns the counts of what has happened so far.
    pub fn tally(&self) -> Tally {
        Tally { faults: self.faults(), ..self.tally }
    }

    /// Returns the present device of the store.
    pub fn device(&self) -> &FaultyDevice {
        &self.device
    }

    /// Returns the store, or `None` if it could not be opened again.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    fn judge(&mut self, key: u64, begun: u64, unix_s: u32, found: &FoundEntry) -> Result<(), String> {
        let Some((own_key, version)) = content::parse_head(&found.head) else {
            return Err(format!("key {key}: a head that was never stored: {:?}", found.head));
        };
        if own_key != key {
            return Err(format!("key {key}: the entry of key {own_key}"));
        }
        let seen = SeenEntry { head: version, body_bytes: found.body_bytes };
        let lies = self.device.stats().lies();
        let history = self.histories.entry(key).or_default();
        let is_excused = lies > 0 && !remembers_writes(self.options.policy) && history.existed(seen, unix_s);
        if let Err(why) = history.allows(seen, begun, unix_s)
            && !is_excused
        {
            return Err(format!("key {key} at {begun}: {why} (the device lied {lies} times)"));
        }
        let Some(Part { range, bytes }) = &found.read else { return Ok(()) };
        let is_right = |&version: &u64| content::is_body(key, version, range.clone(), bytes);
        let bodies = if is_excused { history.any_bodies(seen) } else { history.bodies(seen) };
        if !bodies.iter().any(is_right) {
            return Err(format!("key {key}: wrong bytes in {range:?} of version {version}"));
        }
        self.tally.hits += 1;
        if !self.is_misled {
            history.narrow(seen);
        }
        Ok(())
    }

    /// Checks that an operation may fail: the device has failed, or the volume is full.
    ///
    /// # Errors
    /// A text about the error, if it has no excuse.
    fn excuse(&mut self, work: &ModelWork, error: &Error) -> Result<(), String> {
        self.tally.failures += 1;
        let is_full = error.kind() == larder_store::ErrorKind::Full;
        if is_full && let ModelWork::Change { key, begun } | ModelWork::Head { key, begun } = work {
            self.history(*key).withdraw(*begun);
            // An entry that found no room may have removed the older version.
            self.excuses.excuse(self.now);
        }
        // A store keeps refusing for some time after a fault, even one in an earlier life.
        let may_recover = self.plan.error_at.is_some();
        // A removal that found no room is pending, and while it is, nothing is stored.
        self.was_full |= is_full;
        let has_pending = self.store.as_ref().is_some_and(|store| store.stats().removals_waiting > 0);
        if is_full || (self.was_full && has_pending) || may_recover || self.faults() > 0 {
            Ok(())
        } else {
            Err(format!("{work:?} on a device without faults: {error}"))
        }
    }

    fn say(&self, what: impl FnOnce(&Self) -> String) {
        if let Some(tell) = self.tell {
            tell(&what(self));
        }
    }

    fn history(&mut self, key: u64) -> &mut History {
        self.histories.entry(key).or_default()
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.neighbors.set_now(self.now);
        self.now
    }

    /// Advances the time of the store and of the trial by `time`.
    fn pass_time(&mut self, time: Duration) {
        self.options.clock.advance(time);
        self.passed += time;
    }

    fn unix_s(&self) -> u32 {
        (STARTED_UNIX_S + self.passed.as_secs()).saturating_add_signed(self.stepped_s) as u32
    }

    fn failed_writes(&self) -> u64 {
        let failed = |stats: &FaultStats| stats.write_errors + stats.sync_errors;
        failed(&self.device.stats()) - failed(&self.staged)
    }

    pub(crate) fn faults(&self) -> u64 {
        let stats = self.device.stats();
        stats.lies() + stats.bad_reads() - self.staged.bad_reads() + self.failed_writes() + self.panics.count()
    }

    fn note_idle(&mut self) {
        if self.device.waiting_count() == 0 {
            let Durable { kill, power, kill_when_idle, power_when_idle } = &mut self.durable;
            *kill = (*kill).max(*kill_when_idle);
            *power = (*power).max(*power_when_idle);
        }
    }
}

/// Returns whether a policy's index distinguishes an entry from an older one of the same key. Without that, the store
/// cannot detect that the device lost the newer one, and returns the older.
fn remembers_writes(policy: &Policy) -> bool {
    use IndexAxis::{FrontAndFilters, Nothing, RecentSetPlaces, RecentSetTags, SetTags};
    !matches!(policy.index, Nothing | SetTags | RecentSetTags | RecentSetPlaces | FrontAndFilters)
}

/// Returns the device in the form in which the store takes it.
fn as_device(device: &Arc<FaultyDevice>) -> Arc<dyn Device> {
    Arc::clone(device) as Arc<dyn Device>
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    /// Guards against a store that passes all tests because it loses every entry.
    #[test]
    fn a_store_that_loses_everything_breaks_the_law_in_every_row() {
        for policy in Policy::all() {
            let none = faults::named("none").expect("it is in the list");
            let options = StoreOptions { size_bytes: 8 * SIZE_BYTES, ..options(policy, 1) };
            let mut trial = Trial::new(options, &none, 1).unwrap();
            for key in 0..8 {
                trial.step(Operation::Insert { key, body_bytes: 1000, short_lived: false }).unwrap();
            }
            trial.step(Operation::Reopen).unwrap();
            trial.check_all().unwrap_or_else(|broken| panic!("{policy}: {broken}"));
            assert!(trial.tally().required >= 8, "{policy}");
            // The same, but the store that is opened after the crash is empty.
            trial.device = Arc::new(FaultyDevice::new(8 * SIZE_BYTES, 2, FaultPlan::default()));
            trial.directory = Arc::new(MemoryDirectory::new(8 * SIZE_BYTES));
            trial.store = None;
            trial.create().unwrap();
            let broken = trial.check_all().expect_err("everything is lost");
            assert!(broken.contains("must be there"), "{policy}: {broken}");
        }
    }
}
