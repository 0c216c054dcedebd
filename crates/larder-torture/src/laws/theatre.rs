//! A cache on stage: opened above a device that fails, killed and opened again, and looked at when all is over.
//!
//! Owns: what the faces have in common, the setting by seed, and laws 7 and 11.

use super::{
    chronicle::{Chronicle, StageFacts},
    plan::{LawPlan, LawTally, one_in},
    stage::Stage,
};
use crate::{faults, faults::Faults};
use larder_cache::{Cache, CacheEvent};
use larder_device::{Device, FaultPlan, FaultyDevice, IgnorePoison};
use larder_store::{Clock, SplitMix64};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The sizes and faults of a schedule, chosen by its seed.
pub(super) struct Setting {
    faults: Faults,
    disk_bytes: u64,
    /// Length of the longest body in bytes.
    pub(super) body_bytes_max: u64,
    is_long: bool,
    /// Whether the schedule stores more than the memory can keep.
    pub(super) is_crowd: bool,
}

impl Setting {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = SplitMix64::new(!seed);
        let kinds = faults::all();
        let faults = match random.below(2) {
            0 => kinds[random.below(2) as usize].clone(),
            _ => kinds[random.below(kinds.len() as u64 - 1) as usize].clone(),
        };
        let is_long = one_in(&mut random, 16);
        let body_bytes_max = match random.below(3) {
            _ if is_long => 5 << 19,
            0 => 300,
            1 => 10_000,
            _ => 100_000,
        };
        let is_crowd = one_in(&mut random, 64);
        let disk_bytes = if is_long || is_crowd { 32 << 20 } else { 4 << 20 };
        Self { faults, disk_bytes, body_bytes_max, is_long, is_crowd }
    }

    /// Returns the chronicle for a new schedule, without events.
    pub(super) fn chronicle(&self) -> Chronicle {
        let is_harmless = ["none", "slow"].contains(&self.faults.name);
        Chronicle::new(STARTED_UNIX.as_millis() as u64, is_harmless)
    }

    /// Returns the number of bytes that can be stored without evictions: a third of the volume, because a part of it is
    /// always kept free.
    pub(super) fn room_bytes(&self) -> u64 {
        self.disk_bytes / 3
    }
}

/// Two functions through which a face's model learns what happens.
pub(super) struct Judge {
    /// Notes an event of the cache in the model.
    pub(super) note: Arc<dyn Fn(CacheEvent<'_>) + Send + Sync>,
    /// Tells the model the facts of the stage. Returns an error if a law was broken.
    pub(super) look: Box<dyn Fn(StageFacts) -> Result<(), String>>,
}

/// A cache under test, with the stage that runs it.
pub(super) struct Theatre {
    pub(super) stage: Stage,
    pub(super) clock: Clock,
    pub(super) tally: Arc<Mutex<LawTally>>,
    plan: LawPlan,
    setting: Setting,
    random: SplitMix64,
    directory: tempfile::TempDir,
    judge: Judge,
    cache: Option<Cache>,
}

/// Limit of the cache's memory in bytes.
pub(super) const MEMORY_BYTES: u64 = 4 << 20;
/// Limit of the bytes that may wait in memory to be written to the device.
pub(super) const DIRTY_BYTES: u64 = 1 << 20;
const STARTED_UNIX: Duration = Duration::from_secs(1_700_000_000);

impl Theatre {
    /// Creates the device and opens the first cache on it.
    ///
    /// # Errors
    /// A text that says why the cache cannot be opened.
    pub(super) fn open(
        plan: LawPlan,
        setting: Setting,
        tally: Arc<Mutex<LawTally>>,
        judge: Judge,
    ) -> Result<Self, String> {
        let mut random = SplitMix64::new(plan.seed.rotate_left(32));
        let clock = Clock::manual(STARTED_UNIX);
        let device = FaultyDevice::new(setting.disk_bytes, random.next_u64(), FaultPlan::default());
        let stage = Stage::new(random.fork(), Arc::new(device), clock.clone());
        let directory = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let mut theatre = Self { stage, clock, tally, plan, setting, random, directory, judge, cache: None };
        theatre.reopen()?;
        Ok(theatre)
    }

    /// Returns the cache, which is open between acts.
    pub(super) fn cache(&self) -> &Cache {
        self.cache.as_ref().expect("it is open between acts")
    }

    /// Opens the cache on the device. The device has faults only after that.
    ///
    /// # Errors
    /// Law 10 is broken if the cache cannot be opened.
    pub(super) fn reopen(&mut self) -> Result<(), String> {
        self.stage.device.set_plan(FaultPlan::default());
        let tell = self.plan.tell;
        let note = Arc::clone(&self.judge.note);
        let note = move |event: CacheEvent<'_>| {
            if let Some(tell) = tell {
                tell(&format!("    {event:?}"));
            }
            note(event);
        };
        let Setting { is_long, disk_bytes, .. } = self.setting;
        let clock = self.clock.clone();
        let seed = self.plan.seed;
        let opened = Cache::builder(self.directory.path())
            .disk(disk_bytes)
            .memory(MEMORY_BYTES)
            .on_event(note)
            .configure_store(move |options| {
                options.clock = clock;
                options.background = false;
                options.dirty_bytes_max = DIRTY_BYTES;
                options.identity_seed = Some(seed);
                options.segment_size_bytes = (!is_long).then_some(256 << 10);
            })
            .device(Arc::clone(&self.stage.device) as Arc<dyn Device>)
            .open();
        let cache = opened.map_err(|error| format!("law 10: the cache cannot be opened: {error}"))?;
        self.stage.begin_life(cache.store().clone());
        self.cache = Some(cache);
        let mut plan = self.setting.faults.plan.clone();
        if self.setting.faults.fails_once {
            plan.error_at = Some(self.stage.device.stats().transfers + self.random.below(80));
        }
        self.stage.device.set_plan(plan);
        Ok(())
    }

    /// Runs a random number of steps, so that earlier acts are in progress when the next one, `act`, begins.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn prepare(&mut self, act: &str) -> Result<(), String> {
        for _ in 0..self.random.below(12) {
            self.go_on()?;
        }
        while self.stage.actor_count() > 8 {
            let before = self.stage.actor_count();
            self.go_on()?;
            // Those that stand stay.
            if self.stage.actor_count() == before && one_in(&mut self.random, 40) {
                break;
            }
        }
        self.tally.lock().ignore_poison().acts += 1;
        if let Some(tell) = self.plan.tell {
            tell(act);
        }
        Ok(())
    }

    /// Runs until all calls are done, except those whose clients have stopped reading, and their work is done, too.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn await_calls(&mut self) -> Result<(), String> {
        loop {
            while !self.stage.is_over() {
                self.go_on()?;
            }
            if !self.stage.work() {
                return Ok(());
            }
        }
    }

    fn go_on(&mut self) -> Result<(), String> {
        self.stage.go_on()?;
        self.look_around()
    }

    /// Tells the model the time and whether the device has lied.
    ///
    /// # Errors
    /// The broken law, if the model noted one.
    fn look_around(&mut self) -> Result<(), String> {
        let stats = self.stage.device.stats();
        let has_lied = stats.lies() > 0 || stats.sync_losses > 0 || stats.bad_reads() > 0;
        let now_ms = self.clock.since_epoch().as_millis() as u64;
        (self.judge.look)(StageFacts { now_ms, has_lied })
    }

    /// Kills the cache, with a power loss if `is_power_cut`. The face has to drop its clones of the cache first.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn kill(&mut self, is_power_cut: bool) -> Result<(), String> {
        self.tally.lock().ignore_poison().kills += 1;
        self.look_around()?;
        self.stage.end_life();
        self.cache = None;
        let next = if is_power_cut { self.stage.device.power_cut() } else { self.stage.device.kill() };
        self.expect_no_user()?;
        self.stage.device = Arc::new(next);
        Ok(())
    }

    /// Checks law 11 after the cache was dropped: nothing uses its device any more.
    fn expect_no_user(&self) -> Result<(), String> {
        match self.stage.await_users() {
            1 => Ok(()),
            count => Err(format!("law 11: {} users of the device of a cache that is gone", count - 1)),
        }
    }

    /// Runs until all work is done. Then checks law 7, that the memory limit holds, and law 11, that no task is left.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        self.stage.come_to_rest()?;
        self.look_around()?;
        let task_count = self.stage.task_count();
        if task_count > 0 {
            return Err(format!("law 11: {task_count} tasks at rest"));
        }
        let stats = self.cache().stats();
        if stats.memory_bytes > MEMORY_BYTES {
            return Err(format!("law 7: values take {} bytes of {MEMORY_BYTES}", stats.memory_bytes));
        }
        Ok(())
    }

    /// Drops the cache at the end of the schedule, and returns the counts. The face has to drop its clones of the cache
    /// first.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn end(mut self) -> Result<LawTally, String> {
        self.look_around()?;
        self.stage.end_life();
        self.cache = None;
        self.expect_no_user()?;
        let tally = *self.tally.lock().ignore_poison();
        Ok(tally)
    }
}
