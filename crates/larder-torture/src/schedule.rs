//! Whole-engine schedules: several operations in flight at once, polled in an order that follows from the seed.
//!
//! Owns: the random choices. Invariant: a seed, a policy and a kind of faults always give the same result. Cost: some
//! hundred operations on a volume of 3 MiB in memory take a few milliseconds.

use crate::{
    drive::{Flag, PATIENCE_ROUNDS},
    faults::Faults,
    trial::{Crash, Operation, Tally, Task, Trial, varied_options},
};
use larder_store::{Policy, SplitMix64, StoreOptions};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    task::Poll,
};

/// The result of a schedule that broke no law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleEnd {
    /// Counts of what happened.
    pub tally: Tally,
    /// Hash of all bytes on the device at the end. Equal schedules have equal hashes.
    pub digest: u64,
}

/// A schedule of operations on a store, all chosen by a seed.
#[derive(Clone, Debug)]
pub struct SchedulePlan {
    /// The seed, from which the whole schedule follows.
    pub seed: u64,
    /// The options with which the store is created.
    pub options: StoreOptions,
    /// The kind of faults that the device or the engine has.
    pub faults: Faults,
    /// Number of operations.
    pub operations: u64,
    /// Whether the time of day is sometimes set forward or back during the schedule.
    pub steps_clock: bool,
    /// Function that gets a line of text for every event, if set.
    pub tell: Option<fn(&str)>,
}

impl SchedulePlan {
    /// Returns the schedule of `seed` for a policy and a kind of faults. The seed also chooses the store's options, and
    /// whether the time of day is changed.
    pub fn of_seed(seed: u64, policy: &'static Policy, faults: &Faults, operations: u64) -> Self {
        Self {
            seed,
            options: varied_options(policy, seed),
            faults: faults.clone(),
            operations,
            steps_clock: SplitMix64::new(seed.rotate_left(16)).below(CLOCK_STEPS_ONE_IN) == 0,
            tell: None,
        }
    }
}

/// The time of day is changed in one schedule out of this number.
const CLOCK_STEPS_ONE_IN: u64 = 3;

/// Runs the schedule of `plan`.
///
/// # Errors
/// A text that says which law was broken and how.
pub fn run(plan: &SchedulePlan) -> Result<ScheduleEnd, String> {
    let mut random = SplitMix64::new(plan.seed);
    let mut faults = plan.faults.clone();
    if faults.fails_once {
        faults.plan.error_at = Some(SplitMix64::new(!plan.seed).below(ONE_FAILS_WITHIN));
    }
    let mut trial = Trial::new(plan.options.clone(), &faults, random.next_u64())?;
    if faults.panics_once {
        trial.panic_after(SplitMix64::new(!plan.seed).below(PANICS_WITHIN));
    }
    if let Some(tell) = plan.tell {
        trial.tell(tell);
    }
    let character = Character::draw(&mut random);
    // A separate sequence, so that changing the clock does not change the rest of the schedule.
    let clock_dice = plan.steps_clock.then(|| SplitMix64::new(plan.seed.rotate_left(32)));
    let mut schedule = Schedule { trial, random, clock_dice, character, running: Vec::new(), idle_count: 0 };
    for _ in 0..plan.operations {
        schedule.next()?;
    }
    schedule.finish()?;
    let mut hasher = DefaultHasher::new();
    schedule.trial.device().contents().hash(&mut hasher);
    let tally = schedule.trial.tally();
    Ok(ScheduleEnd { tally, digest: hasher.finish() })
}

/// The device operation that [`Faults::fails_once`] makes fail is one of the first operations, up to this number. A
/// schedule makes about as many.
const ONE_FAILS_WITHIN: u64 = 400;

/// The device operation in which the engine panics ([`Faults::panics_once`]) is one of the first operations, up to this
/// number. Most lives of a store make as many.
const PANICS_WITHIN: u64 = 60;

/// The time of day is changed before one operation out of this number. [`CLOCK_STEPS_S`] are the possible steps in
/// seconds.
const CLOCK_STEPS_WITHIN: u64 = 60;
const CLOCK_STEPS_S: [i64; 4] = [2, 61, 3600, 90_000];

/// Time in milliseconds after which every commit that waits for room has given up.
const ROOM_PATIENCE_MS: u64 = 3000;
/// Maximum number of times that [`Schedule::let_time_pass`] may advance the time in one schedule.
const IDLE_COUNT_MAX: u32 = 3;

/// The rates of operations in a schedule, and the number of its keys. The seed chooses them.
struct Character {
    key_count: u64,
    running_max: usize,
    body_bytes_max: u64,
    /// Number of crashes per thousand operations. The following fields are in the same unit.
    crashes: u64,
    removals: u64,
    syncs: u64,
    waits: u64,
}

impl Character {
    fn draw(random: &mut SplitMix64) -> Self {
        Self {
            key_count: [3, 20, 200][random.below(3) as usize],
            running_max: [1, 3, 8][random.below(3) as usize],
            body_bytes_max: [2_000, 30_000, 150_000][random.below(3) as usize],
            crashes: [0, 5, 30][random.below(3) as usize],
            removals: [20, 100][random.below(2) as usize],
            syncs: [5, 50][random.below(2) as usize],
            waits: [30, 100][random.below(2) as usize],
        }
    }

    fn operation(&self, random: &mut SplitMix64) -> Operation {
        let mut left = random.below(1000);
        let mut is_next = |share: u64| {
            let is_it = left < share;
            left = left.saturating_sub(share);
            is_it
        };
        let key = random.below(self.key_count);
        if is_next(self.crashes) {
            let how = if random.below(2) == 0 { Crash::Kill } else { Crash::PowerCut };
            let again_after = (random.below(3) == 0).then(|| random.below(60));
            return Operation::Crash { how, again_after };
        }
        if is_next(self.removals) {
            return Operation::Remove { key };
        }
        if is_next(self.syncs) {
            return Operation::Sync;
        }
        if is_next(self.waits) {
            return Operation::Wait { milliseconds: [100, 700, 6_500, 70_000][random.below(4) as usize] };
        }
        if is_next(60) {
            return Operation::UpdateHead { key };
        }
        if is_next(5) {
            return Operation::Reopen;
        }
        if is_next(2) {
            return Operation::Clear;
        }
        if is_next(10) {
            return Operation::Abandon { key };
        }
        if is_next(350) {
            let bound = 1 + random.below(self.body_bytes_max);
            let body_bytes = random.below(bound);
            return Operation::Insert { key, body_bytes, short_lived: random.below(10) == 0 };
        }
        if is_next(150) { Operation::ReadPart { key, part: random.next_u64() } } else { Operation::Read { key } }
    }
}

/// A running schedule.
struct Schedule {
    trial: Trial,
    random: SplitMix64,
    /// Random numbers for changes of the time of day, if this schedule makes any.
    clock_dice: Option<SplitMix64>,
    character: Character,
    running: Vec<(Task, Arc<Flag>)>,
    /// Number of times that no operation could continue and the device had no work.
    idle_count: u32,
}

impl Schedule {
    /// Chooses an operation and starts it. Before that, advances running operations by a random number of steps.
    ///
    /// # Errors
    /// The broken law.
    fn next(&mut self) -> Result<(), String> {
        while self.running.len() >= self.character.running_max
            || (!self.running.is_empty() && self.random.below(2) == 0)
        {
            self.go_on()?;
        }
        self.step_clock()?;
        let operation = self.character.operation(&mut self.random);
        match operation {
            // The callers end with the process.
            Operation::Crash { .. } => self.running.clear(),
            Operation::Reopen => self.finish_running()?,
            _ => {}
        }
        if let Some(task) = self.trial.begin(operation)? {
            self.running.push((task, Flag::new()));
        }
        Ok(())
    }

    /// Sometimes changes the time of day by an amount from [`CLOCK_STEPS_S`], forward or back.
    ///
    /// # Errors
    /// The broken law.
    fn step_clock(&mut self) -> Result<(), String> {
        let Some(random) = &mut self.clock_dice else { return Ok(()) };
        if random.below(CLOCK_STEPS_WITHIN) > 0 {
            return Ok(());
        }
        let by_s = CLOCK_STEPS_S[random.below(CLOCK_STEPS_S.len() as u64) as usize];
        let by_s = if random.below(2) == 0 { by_s } else { -by_s };
        self.finish_running()?;
        self.trial.begin(Operation::StepClock { by_s }).map(drop)
    }

    /// Advances by one step: either the device or an operation that can continue.
    ///
    /// # Errors
    /// The broken law.
    fn go_on(&mut self) -> Result<(), String> {
        let ready: Vec<usize> = (0..self.running.len()).filter(|&at| self.running[at].1.is_raised()).collect();
        let is_device = ready.is_empty() || self.random.below(3) == 0;
        if is_device && self.trial.device().turn() {
            return Ok(());
        }
        if ready.is_empty() {
            // A thread of the engine may be at work.
            let waits = self.running.iter().any(|(_, flag)| flag.wait(PATIENCE_ROUNDS));
            return if waits { Ok(()) } else { self.let_time_pass() };
        }
        let at = ready[self.random.below(ready.len() as u64) as usize];
        let (task, flag) = &mut self.running[at];
        let flag = Arc::clone(flag);
        if let Poll::Ready(outcome) = flag.poll(task.future.as_mut()) {
            let (task, _) = self.running.swap_remove(at);
            self.trial.judge_outcome(task.work, outcome)?;
        }
        Ok(())
    }

    /// Advances the time by [`ROOM_PATIENCE_MS`] and runs the store's maintenance, so that commits that wait for room
    /// give up.
    ///
    /// # Errors
    /// A text that says that no operation continues, if this was done too often.
    fn let_time_pass(&mut self) -> Result<(), String> {
        self.idle_count += 1;
        if self.idle_count > IDLE_COUNT_MAX {
            let works: Vec<_> = self.running.iter().map(|(task, _)| task.work).collect();
            return Err(format!("nobody goes on: {works:?}"));
        }
        let wait = self.trial.begin(Operation::Wait { milliseconds: ROOM_PATIENCE_MS })?;
        self.running.extend(wait.map(|task| (task, Flag::new())));
        Ok(())
    }

    fn finish_running(&mut self) -> Result<(), String> {
        while !self.running.is_empty() {
            self.go_on()?;
        }
        Ok(())
    }

    /// Waits until all running operations are done, and looks up every key.
    ///
    /// # Errors
    /// The broken law.
    fn finish(&mut self) -> Result<(), String> {
        self.finish_running()?;
        self.trial.check_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{faults, trial};
    use larder_store::Policy;

    /// Guards against removed entries that were found again. Each of these schedules once failed that way.
    #[test]
    fn schedules_that_broke_the_law_once_keep_it() {
        for (row, faults, seed) in [
            ("hashcache-basic", "misdirected", 894),
            ("hashcache-set", "misdirected", 724),
            ("hashcache-setmem-lru", "all", 249),
            ("stream-pack", "errors", 1536),
            ("lazy-reads-loc", "errors", 1066),
            ("hashcache-log-n", "misdirected", 744),
            ("tiny", "errors", 100_326),
        ] {
            let policy = Policy::named(row).expect("it is in the table");
            let faults = faults::named(faults).expect("they are in the list");
            let options = trial::options(policy, seed);
            let plan = SchedulePlan { seed, options, faults, operations: 300, steps_clock: false, tell: None };
            assert_eq!(run(&plan).err(), None, "{row} at {seed}");
        }
        for (row, faults, seed) in [
            // An entry of a length whose room was already used up.
            ("buddy", "torn", 5_006_972),
            ("buddy", "once", 500_001_863),
            // The writes of a start failed, and two tasks retried them at the same time.
            ("multiple-dirs", "errors", 5_013_754),
            // A long entry replaced another. The clusters of the old one were freed between searching for room and
            // taking it.
            ("ucfs", "none", 5_037_667),
            // Removals on a full disk were acknowledged while the data that hid the entries was only in memory.
            ("tiny", "full", 15),
            ("tiny", "full", 128),
            ("tiny", "full", 910),
            ("tiny", "full", 2_000_388),
            // The first unit of a segment failed, and only that unit showed that the others are in use.
            ("log-clock", "errors", 300_051_802),
            // A misdirected read of the session block returned blanks, and the volume was taken for a new one.
            ("hashcache-setmem", "misdirected", 300_148_100),
            // Entries whose positions found no room before they were written to the file. The policy reports how many
            // it dropped.
            ("hashcache-log-lru", "slow", 300_059_337),
            // One copy of the superblock lost its last write, and the other one was misread once.
            ("esp", "all", 300_077_537),
            // A misdirected write that lands on an entry stored in the meantime: excused.
            ("large-file", "misdirected", 5_016_490),
            ("large-file", "misdirected", 7_032_196),
            // A new head waited for room, and the entry that it belonged to was evicted to make that room.
            ("lazy-reads-loc", "once", 90_750),
            // The position of an entry was written to the file while its record was in an open unit. An older version
            // moved to that position when the unit was sorted.
            ("hashcache-log-lru", "torn", 1454),
            ("hashcache-log-lru", "none", 2651),
            // A damaged body was divided again at reclaim, and its parts got valid checksums.
            ("log", "misdirected", 21_949),
        ] {
            let policy = Policy::named(row).expect("it is in the table");
            let faults = faults::named(faults).expect("they are in the list");
            assert_eq!(run(&SchedulePlan::of_seed(seed, policy, &faults, 300)).err(), None, "{row} at {seed}");
        }
    }
}
