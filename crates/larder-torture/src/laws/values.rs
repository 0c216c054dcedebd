//! The face of values on stage: `larder_cache::Cache` with clients, writers, removals, failing fetches, and a kill.
//!
//! Owns: the acts and how they are drawn, and the cache that they are played in front of (`values::play`). Laws 1 to 4
//! and 6 to 12 are judged here and in the model. Law 5 has no meaning for values: no call names an asker.

mod events;
mod play;
mod source;

use super::{
    LawPlan, LawTally,
    model::{DIRTY_BYTES, Model},
    one_in,
    stage::{Cast, Manner, Stage},
};
use crate::{faults, faults::Faults};
use events::note_event;
use larder_cache::{Cache, CacheEvent};
use larder_device::{Device, FaultPlan, FaultyDevice, IgnorePoison};
use larder_store::{Clock, SplitMix64};
use play::Props;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// An act of a client, a writer, or the one who removes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    GetOrFetch { key: u64, source: Source, manner: Manner },
    OpenOrFetch { key: u64, source: Source, manner: Manner },
    Get { key: u64, manner: Manner },
    Open { key: u64, reads: Reads, manner: Manner },
    Insert { key: u64, source: Source, manner: Manner },
    Write { key: u64, source: Source, is_conditional: bool },
    Remove { key: u64 },
    RemoveTag { tag: u64 },
    Clear,
    Pin { key: u64 },
    Sync,
    Wait { ms: u64 },
    Kill { is_power_cut: bool },
}

/// The bytes that a fetch or a writer brings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    len: u64,
    tags: u64,
    fresh_ms: Option<u64>,
    delay_ms: u64,
    end: SourceEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceEnd {
    Whole,
    Fails,
    Panics,
}

/// The way in which a found value is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reads {
    Whole,
    /// Parts, chosen by this number.
    Ranges(u64),
    /// From the start to the end, with a pause after each piece.
    Paced {
        ms: u64,
    },
}

/// The stage's setting, which follows from the seed.
struct Setting {
    faults: Faults,
    disk_bytes: u64,
    value_bytes_max: u64,
    is_long: bool,
}

/// Draws the acts of a seed.
pub(super) fn acts(seed: u64) -> Vec<Act> {
    let mut random = SplitMix64::new(seed);
    let setting = Setting::draw(seed);
    let count = 8 + random.below(36);
    let key_count = 1 + random.below(4);
    let mut acts: Vec<Act> = (0..count).map(|_| act(&mut random, key_count, &setting)).collect();
    let at = random.below(count) as usize;
    acts.insert(at, Act::Kill { is_power_cut: one_in(&mut random, 4) });
    acts
}

fn act(random: &mut SplitMix64, key_count: u64, setting: &Setting) -> Act {
    let key = random.below(key_count);
    let manner = match random.below(8) {
        0 => Manner::Leaves(1 + random.below(4)),
        1 => Manner::Stands(1 + random.below(4)),
        _ => Manner::Stays,
    };
    let len_max = 1 + random.below(setting.value_bytes_max);
    let source = Source {
        len: 16 + random.below(len_max),
        tags: random.below(4),
        fresh_ms: one_in(random, 6).then(|| 1000 * random.below(40)),
        delay_ms: [0, 0, 1, 30, 4000][random.below(5) as usize],
        end: match random.below(12) {
            0 => SourceEnd::Fails,
            1 => SourceEnd::Panics,
            _ => SourceEnd::Whole,
        },
    };
    match random.below(100) {
        0..30 => Act::GetOrFetch { key, source, manner },
        30..42 => Act::OpenOrFetch { key, source, manner },
        42..54 => Act::Get { key, manner },
        54..64 => {
            let reads = match random.below(3) {
                0 => Reads::Whole,
                1 => Reads::Ranges(random.next_u64()),
                _ => Reads::Paced { ms: random.below(3000) },
            };
            Act::Open { key, reads, manner }
        }
        64..72 => {
            // A writer holds up others that write its key, so it does not stand.
            let manner = if matches!(manner, Manner::Stands(_)) { Manner::Stays } else { manner };
            Act::Insert { key, source, manner }
        }
        72..78 => Act::Write { key, source, is_conditional: one_in(random, 2) },
        78..84 => Act::Remove { key },
        84..87 => Act::RemoveTag { tag: random.below(2) },
        87..89 => Act::Clear,
        89..91 => Act::Pin { key },
        91..94 => Act::Sync,
        _ => Act::Wait { ms: [5, 600, 7000][random.below(3) as usize] },
    }
}

impl Setting {
    fn draw(seed: u64) -> Self {
        let mut random = SplitMix64::new(!seed);
        let kinds = faults::all();
        let faults = match random.below(2) {
            0 => kinds[random.below(2) as usize].clone(),
            _ => kinds[random.below(kinds.len() as u64 - 1) as usize].clone(),
        };
        let is_long = one_in(&mut random, 16);
        let disk_bytes = if is_long { 32 << 20 } else { 4 << 20 };
        let value_bytes_max = match random.below(3) {
            _ if is_long => 5 << 19,
            0 => 300,
            1 => 10_000,
            _ => 100_000,
        };
        Self { faults, disk_bytes, value_bytes_max, is_long }
    }
}

/// Runs acts, and judges what happens.
///
/// # Errors
/// The law that was broken.
pub(super) fn run(plan: LawPlan, acts: &[Act]) -> Result<LawTally, String> {
    let mut theatre = Theatre::new(plan)?;
    for act in acts {
        theatre.begin(*act)?;
    }
    theatre.end()
}

/// A cache on stage.
struct Theatre {
    plan: LawPlan,
    setting: Setting,
    random: SplitMix64,
    stage: Stage,
    clock: Clock,
    directory: tempfile::TempDir,
    model: Arc<Mutex<Model>>,
    tally: Arc<Mutex<LawTally>>,
    cache: Option<Cache>,
}

/// Memory of the cache, and of it what values may take.
const MEMORY_BYTES: u64 = 4 << 20;
const STARTED_UNIX: Duration = Duration::from_secs(1_700_000_000);

impl Theatre {
    fn new(plan: LawPlan) -> Result<Self, String> {
        let setting = Setting::draw(plan.seed);
        let mut random = SplitMix64::new(plan.seed.rotate_left(32));
        let clock = Clock::manual(STARTED_UNIX);
        let device = FaultyDevice::new(setting.disk_bytes, random.next_u64(), FaultPlan::default());
        let stage = Stage::new(random.fork(), Arc::new(device), clock.clone());
        let is_harmless = ["none", "slow"].contains(&setting.faults.name);
        // A part of the volume is kept free.
        let room_bytes = setting.disk_bytes / 3;
        let model = Model::new(STARTED_UNIX.as_millis() as u64, room_bytes, is_harmless);
        let directory = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let mut theatre = Self {
            plan,
            setting,
            random,
            stage,
            clock,
            directory,
            model: Arc::new(Mutex::new(model)),
            tally: Arc::default(),
            cache: None,
        };
        theatre.open()?;
        Ok(theatre)
    }

    /// Opens the cache without faults. They begin after that.
    fn open(&mut self) -> Result<(), String> {
        self.stage.device.set_plan(FaultPlan::default());
        let model = Arc::clone(&self.model);
        let tell = self.plan.tell;
        let tally = Arc::clone(&self.tally);
        let note = move |event: CacheEvent<'_>| {
            if let Some(tell) = tell {
                tell(&format!("    {event:?}"));
            }
            note_event(&mut model.lock().ignore_poison(), &mut tally.lock().ignore_poison(), event);
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

    /// Begins an act, after others have gone on for a while.
    fn begin(&mut self, act: Act) -> Result<(), String> {
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
            tell(&format!("{act:?}"));
        }
        match act {
            Act::Wait { ms } => self.stage.advance(Duration::from_millis(ms)),
            Act::Kill { is_power_cut } => self.kill(is_power_cut)?,
            _ => {
                let props = self.props();
                let (future, manner) = props.play(act);
                let has_thread = matches!(act, Act::RemoveTag { .. } | Act::Clear);
                self.stage.begin(Cast { name: format!("{act:?}"), future, manner, has_thread });
            }
        }
        Ok(())
    }

    fn props(&self) -> Props {
        Props {
            cache: self.cache.clone().expect("it is open between acts"),
            model: Arc::clone(&self.model),
            tally: Arc::clone(&self.tally),
            timers: Arc::clone(&self.stage.timers),
        }
    }

    fn go_on(&mut self) -> Result<(), String> {
        self.stage.go_on()?;
        self.look_around()
    }

    /// Judges what holds at any time.
    fn look_around(&mut self) -> Result<(), String> {
        let mut model = self.model.lock().ignore_poison();
        model.now_ms = self.clock.since_epoch().as_millis() as u64;
        let stats = self.stage.device.stats();
        model.has_lied |= stats.lies() > 0 || stats.sync_losses > 0 || stats.bad_reads() > 0;
        model.broken.take().map_or(Ok(()), Err)
    }

    fn kill(&mut self, is_power_cut: bool) -> Result<(), String> {
        self.tally.lock().ignore_poison().kills += 1;
        self.look_around()?;
        self.stage.end_life();
        self.cache = None;
        let next = if is_power_cut { self.stage.device.power_cut() } else { self.stage.device.kill() };
        self.expect_no_user()?;
        self.stage.device = Arc::new(next);
        self.model.lock().ignore_poison().restart(is_power_cut);
        self.open()
    }

    /// Judges law 11 of a cache that is no longer in use.
    fn expect_no_user(&self) -> Result<(), String> {
        // A transfer keeps its volume until it ends.
        while self.stage.device.turn() {}
        match Arc::strong_count(&self.stage.device) {
            1 => Ok(()),
            count => Err(format!("law 11: {} users of the device of a cache that is gone", count - 1)),
        }
    }

    /// Comes to rest, and looks up every key.
    fn end(mut self) -> Result<LawTally, String> {
        self.stage.come_to_rest()?;
        self.look_around()?;
        let task_count = self.stage.task_count();
        if task_count > 0 {
            return Err(format!("law 11: {task_count} tasks at rest"));
        }
        let stats = self.props().cache.stats();
        if stats.memory_bytes > MEMORY_BYTES {
            return Err(format!("law 7: values take {} bytes of {MEMORY_BYTES}", stats.memory_bytes));
        }
        for key in 0..4 {
            let (future, manner) = self.props().play(Act::Get { key, manner: Manner::Stays });
            self.stage.begin(Cast { name: format!("the last look at {key}"), future, manner, has_thread: false });
            self.stage.run_all()?;
        }
        self.look_around()?;
        self.stage.end_life();
        self.cache = None;
        self.expect_no_user()?;
        let tally = *self.tally.lock().ignore_poison();
        Ok(tally)
    }
}
