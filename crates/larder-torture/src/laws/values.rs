//! The face of values on stage: `larder_cache::Cache` with clients, writers, removals, failing fetches, and a kill.
//!
//! Laws 1 to 4, 6 to 12 are judged here or in the model. Law 5 has no meaning for values: no call names an asker.

use super::{
    LawPlan, LawTally,
    model::{Look, Model, Subject, Version, VersionOrigin},
    one_in,
    stage::{ActorFuture, Cast, Manner, ScriptedPanic, Stage, Timers},
};
use crate::{content, faults, faults::Faults};
use bytes::Bytes;
use larder_cache::{Cache, CacheEvent, EntryRequest, Error, Value};
use larder_device::{Device, FaultPlan, FaultyDevice, IgnorePoison};
use larder_store::{Clock, Policy, SplitMix64};
use std::{
    panic::resume_unwind,
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

/// What a fetch or a writer brings.
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

/// How a found value is read.
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
    policy: &'static Policy,
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
        Self { faults, policy: Policy::default_policy(), disk_bytes, value_bytes_max, is_long }
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

/// What all acts share.
#[derive(Clone)]
struct Props {
    cache: Cache,
    model: Arc<Mutex<Model>>,
    tally: Arc<Mutex<LawTally>>,
    timers: Arc<Timers>,
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
        let Setting { policy, is_long, disk_bytes, .. } = self.setting;
        let clock = self.clock.clone();
        let seed = self.plan.seed;
        let opened = Cache::builder(self.directory.path())
            .disk(disk_bytes)
            .memory(MEMORY_BYTES)
            .on_event(note)
            .configure_store(move |options| {
                options.policy = policy;
                options.clock = clock;
                options.background = false;
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

/// Judges law 12 of an event: what it says has happened.
fn note_event(model: &mut Model, tally: &mut LawTally, event: CacheEvent<'_>) {
    let find = |model: &Model, key: &[u8], len: u64| {
        let key = content::key_number(key);
        let found = model.versions.iter().find(|version| Some(version.key) == key && version.len == len);
        found.filter(|version| version.complete.is_some()).map(|version| version.number)
    };
    match event {
        CacheEvent::Stored { key, len_bytes } => match find(model, key, len_bytes) {
            Some(number) => model.settle(number, true),
            None => model.break_law(format!("law 12: {len_bytes} bytes are stored that were never complete")),
        },
        CacheEvent::Fetched { key, len_bytes } if find(model, key, len_bytes).is_none() => {
            model.break_law(format!("law 12: {len_bytes} bytes are fetched that were never complete"));
        }
        CacheEvent::NotAdmitted { key } => {
            let key = content::key_number(key);
            let is_open = |version: &&Version| {
                Some(version.key) == key
                    && version.origin == VersionOrigin::Fetched
                    && version.complete.is_some()
                    && version.settled.is_none()
            };
            let open: Vec<u64> = model.versions.iter().filter(is_open).map(|version| version.number).collect();
            let refused = open.iter().copied().find(|number| model.may_refuse(*number));
            match refused.or(open.first().copied()) {
                Some(number) => {
                    if refused.is_none() {
                        model.break_law(format!("law 10: version {number} is not stored without a reason"));
                    }
                    model.settle(number, false);
                }
                None => model.break_law("law 12: a value is not stored that was not fetched".to_owned()),
            }
        }
        CacheEvent::StoreFailed { error, .. } if model.is_harmless && model.has_room() => {
            model.break_law(format!("law 10: the store fails although its device does not: {error}"));
        }
        CacheEvent::MemoryHit { key } | CacheEvent::DiskHit { key } => {
            tally.hits += 1;
            let key = content::key_number(key);
            if !model.versions.iter().any(|version| Some(version.key) == key && version.complete.is_some()) {
                model.break_law("law 12: a hit on a key without a value".to_owned());
            }
        }
        _ => {}
    }
}

impl Props {
    /// Returns what an act does.
    fn play(self, act: Act) -> (ActorFuture, Manner) {
        let mut how = Manner::Stays;
        let future: ActorFuture = match act {
            Act::GetOrFetch { key, source, manner } => {
                how = manner;
                Box::pin(async move { self.get_or_fetch(key, source).await })
            }
            Act::OpenOrFetch { key, source, manner } => {
                how = manner;
                Box::pin(async move { self.open_or_fetch(key, source).await })
            }
            Act::Get { key, manner } => {
                how = manner;
                Box::pin(async move { self.get(key).await })
            }
            Act::Open { key, reads, manner } => {
                how = manner;
                Box::pin(async move { self.open(key, reads).await })
            }
            Act::Insert { key, source, manner } => {
                how = manner;
                Box::pin(async move { self.insert(key, source).await })
            }
            Act::Write { key, source, is_conditional } => {
                Box::pin(async move { self.write(key, source, is_conditional).await })
            }
            Act::Remove { key } => Box::pin(async move { self.purge(Subject::Key(key)).await }),
            Act::RemoveTag { tag } => Box::pin(async move { self.purge(Subject::Tag(tag)).await }),
            Act::Clear => Box::pin(async move { self.purge(Subject::All).await }),
            Act::Pin { key } => Box::pin(async move {
                let _ = self.cache.pin(content::key_bytes(key)).await;
                Ok(())
            }),
            Act::Sync => Box::pin(async move {
                let called = self.model(Model::tick);
                if self.cache.sync().await.is_ok() {
                    self.model(|model| model.note_sync(called));
                }
                Ok(())
            }),
            Act::Wait { .. } | Act::Kill { .. } => unreachable!("these happen at once"),
        };
        (future, how)
    }

    fn model<T>(&self, use_it: impl FnOnce(&mut Model) -> T) -> T {
        use_it(&mut self.model.lock().ignore_poison())
    }

    fn entry(&self, key: u64, source: Source) -> EntryRequest {
        let mut entry = self.cache.entry(content::key_bytes(key));
        if let Some(fresh_ms) = source.fresh_ms {
            entry = entry.fresh_for(Duration::from_millis(fresh_ms));
        }
        for tag in (0..2).filter(|tag| source.tags & 1 << tag != 0) {
            entry = entry.tag(&tag_name(tag));
        }
        entry
    }

    async fn get_or_fetch(self, key: u64, source: Source) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        let fetch = || {
            let fetched = Fetch::begin(&self, source, &look);
            async move { fetched.bytes().await }
        };
        let outcome = self.entry(key, source).get_or_fetch(fetch).await;
        match outcome {
            Ok(bytes) => self.answered(&look, &bytes),
            Err(error) => self.failed(&error),
        }
    }

    async fn open_or_fetch(self, key: u64, source: Source) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        let fetch = |mut writer: larder_cache::ValueWriter| {
            let fetched = Fetch::begin(&self, source, &look);
            async move {
                let bytes = fetched.whole();
                for piece in pieces(&bytes) {
                    fetched.wait().await;
                    writer.write(piece).await.map_err(|error| error.to_string())?;
                }
                fetched.end()?;
                Ok::<_, String>(writer)
            }
        };
        match self.entry(key, source).open_or_fetch(fetch).await {
            Ok(value) => self.read(&look, &value, Reads::Paced { ms: source.delay_ms }).await,
            Err(error) => self.failed(&error),
        }
    }

    async fn get(self, key: u64) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        self.tally.lock().ignore_poison().required += u64::from(look.is_required);
        match self.cache.get(content::key_bytes(key)).await {
            Ok(Some(bytes)) => {
                self.model(|model| model.judge_freshness(&look, bytes.len() as u64))?;
                self.answered(&look, &bytes)
            }
            Ok(None) => self.model(|model| model.judge_miss(&look)),
            Err(error) => self.failed(&error),
        }
    }

    async fn open(self, key: u64, reads: Reads) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        match self.cache.open(content::key_bytes(key)).await {
            Ok(Some(value)) => self.read(&look, &value, reads).await,
            Ok(None) => self.model(|model| model.judge_miss(&look)),
            Err(error) => self.failed(&error),
        }
    }

    /// Reads a found value. Law 9: it can be read to its end unless it is removed, replaced or evicted.
    async fn read(&self, look: &Look, value: &Value, reads: Reads) -> Result<(), String> {
        let len = value.len();
        let judge =
            |range: std::ops::Range<u64>, bytes: &[u8]| self.model(|model| model.judge(look, len, range, bytes));
        let outcome = async {
            match reads {
                Reads::Whole => judge(0..len, &value.bytes().await?),
                Reads::Ranges(number) => {
                    let mut random = SplitMix64::new(number);
                    for _ in 0..3 {
                        let from = random.below(len + 1);
                        let to = from + random.below(len - from + 1);
                        if let Err(law) = judge(from..to, &value.read(from..to).await?) {
                            return Ok(Err(law));
                        }
                    }
                    Ok(())
                }
                Reads::Paced { ms } => {
                    let mut reader = value.reader();
                    let mut at = 0;
                    while let Some(bytes) = reader.next().await? {
                        let end = at + bytes.len() as u64;
                        if let Err(law) = judge(at..end, &bytes) {
                            return Ok(Err(law));
                        }
                        at = end;
                        self.timers.sleep(Duration::from_millis(ms)).await;
                    }
                    if at == len { Ok(()) } else { Err(format!("law 3: {at} of {len} bytes and no error")) }
                }
            }
            .map_or_else(|law| Ok(Err(law)), |()| Ok(Ok(())))
        };
        match outcome.await {
            Ok(judged) => {
                self.tally.lock().ignore_poison().answers += 1;
                judged
            }
            Err(Error::Gone) => {
                let number = self.model(|model| {
                    let is_it = |version: &&Version| version.key == look.key && version.len == len;
                    model.versions.iter().find(is_it).map(|version| version.number)
                });
                match number {
                    Some(number) if !self.model(|model| model.may_refuse(number)) => {
                        Err(format!("law 9: version {number} of key {} is gone while it is read", look.key))
                    }
                    _ => Ok(()),
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn insert(self, key: u64, source: Source) -> Result<(), String> {
        let number = self.begin_write(key, source, VersionOrigin::Written);
        let settled = Settled { props: self.clone(), number };
        let len = self.model(|model| model.version(number).len);
        self.model(|model| model.complete(number));
        let entry = self.entry(key, source);
        match entry.insert(content::body(key, number, len)).await {
            Ok(()) => self.expect_stored(number),
            Err(error) => {
                drop(settled);
                self.failed(&error)
            }
        }
    }

    async fn write(self, key: u64, source: Source, is_conditional: bool) -> Result<(), String> {
        let origin = if is_conditional { VersionOrigin::Conditional } else { VersionOrigin::Written };
        let number = self.begin_write(key, source, origin);
        let _settled = Settled { props: self.clone(), number };
        let len = self.model(|model| model.version(number).len);
        let body = content::body(key, number, len);
        let mut writer = self.entry(key, source).writer().map_err(|error| format!("law 10: no writer: {error}"))?;
        for piece in pieces(&body) {
            self.timers.sleep(Duration::from_millis(source.delay_ms)).await;
            if let Err(error) = writer.write(piece).await {
                return self.failed(&error);
            }
        }
        if source.end != SourceEnd::Whole {
            return Ok(());
        }
        self.model(|model| {
            model.complete(number);
            if !is_conditional {
                // It takes effect between this call and its end.
                model.version(number).effect_from = model.tick();
            }
        });
        let outcome = match is_conditional {
            true => writer.finish_if_unchanged().await,
            false => writer.finish().await.map(|()| true),
        };
        match outcome {
            Ok(true) => self.expect_stored(number),
            Ok(false) if self.model(|model| model.may_refuse(number)) => Ok(()),
            Ok(false) => Err(format!("law 10: version {number} is not stored without a reason")),
            Err(error) => self.failed(&error),
        }
    }

    fn begin_write(&self, key: u64, source: Source, origin: VersionOrigin) -> u64 {
        self.model(|model| {
            let asked = model.tick();
            model.begin(source.version(key, origin, asked))
        })
    }

    /// Law 12: a write that succeeded was announced as stored.
    fn expect_stored(&self, number: u64) -> Result<(), String> {
        self.model(|model| {
            if !model.version(number).is_stored {
                return Err(format!("law 12: version {number} is stored without an event"));
            }
            model.settle(number, true);
            Ok(())
        })
    }

    async fn purge(self, subject: Subject) -> Result<(), String> {
        let purge = self.model(|model| model.begin_purge(subject));
        let outcome = match subject {
            Subject::Key(key) => self.cache.remove(content::key_bytes(key)).await,
            Subject::Tag(tag) => self.cache.remove_tag(&tag_name(tag)).await,
            Subject::All => self.cache.clear().await,
        };
        match outcome {
            Ok(()) => {
                self.model(|model| model.acknowledge(purge));
                self.tally.lock().ignore_poison().purges += 1;
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    fn answered(&self, look: &Look, bytes: &[u8]) -> Result<(), String> {
        self.tally.lock().ignore_poison().answers += 1;
        let len = bytes.len() as u64;
        self.model(|model| model.judge(look, len, 0..len, bytes))
    }

    /// Judges an error: a source may fail at any time, a store only with its device or without room.
    fn failed(&self, error: &Error) -> Result<(), String> {
        let is_excused = match error {
            Error::Store(_) | Error::Gone => self.model(|model| !model.is_harmless || !model.has_room()),
            _ => true,
        };
        if is_excused { Ok(()) } else { Err(format!("law 10: an error although the device is well: {error}")) }
    }
}

impl Source {
    fn version(self, key: u64, origin: VersionOrigin, asked: u64) -> Version {
        Version {
            key,
            number: 0,
            len: self.len,
            tags: self.tags,
            origin,
            asked,
            began: 0,
            effect_from: 0,
            complete: None,
            settled: None,
            is_stored: false,
            fresh_ms: self.fresh_ms,
            fresh_until_ms: None,
            life: 0,
        }
    }
}

/// A running fetch. Its end, by whatever way, is noted in the model.
struct Fetch {
    model: Arc<Mutex<Model>>,
    timers: Arc<Timers>,
    source: Source,
    key: u64,
    number: u64,
    len: u64,
}

impl Fetch {
    fn begin(props: &Props, source: Source, look: &Look) -> Self {
        props.tally.lock().ignore_poison().fetches += 1;
        let version = source.version(look.key, VersionOrigin::Fetched, look.began);
        let (number, len) = props.model(|model| {
            let number = model.begin_fetch(version, look);
            (number, model.version(number).len)
        });
        let model = Arc::clone(&props.model);
        let timers = Arc::clone(&props.timers);
        Self { model, timers, source, key: look.key, number, len }
    }

    async fn bytes(self) -> Result<Bytes, String> {
        self.wait().await;
        let bytes = self.whole();
        self.end()?;
        Ok(bytes)
    }

    fn whole(&self) -> Bytes {
        content::body(self.key, self.number, self.len)
    }

    async fn wait(&self) {
        self.timers.sleep(Duration::from_millis(self.source.delay_ms)).await;
    }

    fn end(&self) -> Result<(), String> {
        match self.source.end {
            SourceEnd::Whole => self.model.lock().ignore_poison().complete(self.number),
            SourceEnd::Fails => return Err("it was to fail".to_owned()),
            SourceEnd::Panics => resume_unwind(Box::new(ScriptedPanic)),
        }
        Ok(())
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut model = self.model.lock().ignore_poison();
        if model.version(self.number).complete.is_none() {
            model.settle(self.number, false);
        }
    }
}

/// A write of a caller, which has ended when this is dropped.
struct Settled {
    props: Props,
    number: u64,
}

impl Drop for Settled {
    fn drop(&mut self) {
        self.props.model(|model| model.settle(self.number, false));
    }
}

fn tag_name(tag: u64) -> String {
    format!("tag {tag}")
}

/// Divides a body in up to three pieces.
fn pieces(bytes: &Bytes) -> [Bytes; 3] {
    let third = bytes.len() / 3;
    [bytes.slice(..third), bytes.slice(third..2 * third), bytes.slice(2 * third..)]
}
