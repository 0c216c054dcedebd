//! The face of responses on stage: an HTTP cache (`larder_tower`) with clients, origins, purges, and a kill.
//!
//! Owns: the acts and how they are drawn. `responses::play` plays the clients, `responses::origin` the origin, and
//! `responses::model` judges: laws 1 to 6, 8, 10, 11 and 12 as far as they can be seen from outside.

mod model;
mod origin;
mod play;

use super::{
    chronicle::Subject,
    plan::{LawPlan, LawTally, one_in},
    stage::{Cast, Manner},
    theatre::{Judge, Setting, Theatre},
};
use larder_device::IgnorePoison;
use larder_http::Timestamp;
use larder_store::SplitMix64;
use larder_tower::HttpCache;
use model::ResponseModel;
use play::ResponseProps;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// An act in a schedule: of a client, of the origin, of an administrator who purges, or of the process.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseAct {
    Get { key: u64, client: Client, shape: Shape, answer: Answer },
    Post { key: u64, client: Client, answer: Answer },
    Change { key: u64, to: Resource },
    Remove { key: u64 },
    Clear,
    Sync,
    Wait { ms: u64 },
    AwaitCalls,
    Kill { is_power_cut: bool },
}

/// The client that sends a request: its identity, the language that it wants, and the way in which it reads the
/// response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    asker: u64,
    language: u64,
    reads: ClientReads,
}

#[derive(Clone, Copy, Debug)]
enum ClientReads {
    Whole,
    /// The client cancels its call after this number of polls.
    Gone(u64),
    /// The client reads this number of frames, and then drops the response.
    Leaves(u64),
    /// The client reads this number of frames, and then stops until all other actors are done.
    Stands(u64),
}

/// The kind of a GET or HEAD request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Plain,
    Range {
        from: u64,
        to: u64,
    },
    /// The request has If-None-Match. The entity tag is that of the present content if `is_current`, otherwise another
    /// one.
    Conditional {
        is_current: bool,
    },
    Head,
    NoCache,
    OnlyIfCached,
    Authorized,
}

/// The answer of the origin if the cache asks it because of this request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    delay_ms: u64,
    end: AnswerEnd,
    has_length: bool,
    has_ranges: bool,
    confirms: Confirms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerEnd {
    Whole,
    /// Sending the body ends with an error.
    Breaks,
    /// The body ends early without an error, so it is shorter than its announced length.
    Short,
    /// The body is longer than its announced length.
    Long,
    /// The origin sends no response, only an error.
    Refuses,
    /// The response has status 503.
    Fails,
}

/// The answer of the origin to a validation, which is a request with If-None-Match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirms {
    Honestly,
    /// With status 304, marked as private to this client.
    Privately,
    /// With status 304 and an entity tag that differs from the one in the request.
    Otherwise,
    /// With the whole response, never with 304.
    Never,
}

/// A resource of the origin. An act replaces it by another one to change it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    len: u64,
    rule: Rule,
    tag: TagKind,
    varies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    MaxAge { secs: u64 },
    NoCache,
    NoStore,
    Private,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagKind {
    Strong,
    Weak,
    None,
}

const KEY_COUNT: u64 = 4;

/// Returns the acts of the schedule of `seed`.
pub(super) fn acts(seed: u64) -> Vec<ResponseAct> {
    let mut random = SplitMix64::new(seed);
    let setting = Setting::draw(seed);
    let count = 8 + random.below(36);
    let key_count = 1 + random.below(KEY_COUNT);
    let changes =
        (0..key_count).map(|key| ResponseAct::Change { key, to: resource(&mut SplitMix64::new(seed ^ key), &setting) });
    let mut acts: Vec<ResponseAct> = changes.collect();
    acts.extend((0..count).map(|_| act(&mut random, key_count, &setting)));
    let at = key_count + random.below(count);
    acts.insert(at as usize, ResponseAct::Kill { is_power_cut: one_in(&mut random, 4) });
    if one_in(&mut random, 3) {
        add_race(&mut random, key_count, &mut acts);
    }
    if !one_in(&mut random, 2) {
        add_overtaking(&mut random, key_count, &mut acts);
    }
    if one_in(&mut random, 2) {
        add_replacement(&mut random, key_count, &mut acts);
    }
    acts
}

/// Adds acts that store two responses of a resource at once, and then request the resource again. The response that
/// they replace is on the device, so the cache has to read it there before it can replace it, which takes time.
fn add_overtaking(random: &mut SplitMix64, key_count: u64, acts: &mut Vec<ResponseAct>) {
    let key = random.below(key_count);
    let change = |secs| {
        let to = Resource { len: 100, rule: Rule::MaxAge { secs }, tag: TagKind::Strong, varies: false };
        ResponseAct::Change { key, to }
    };
    let get = |shape, answer| ResponseAct::Get { key, client: Client::PLAIN, shape, answer };
    // The end of a body without a length arrives later, so the next body can end at the same time.
    let slower = Answer { has_length: false, ..Answer::WHOLE };
    let at = (key_count + random.below(acts.len() as u64 - key_count)) as usize;
    let overtaking = [
        change(5),
        get(Shape::NoCache, Answer::WHOLE),
        ResponseAct::AwaitCalls,
        ResponseAct::Sync,
        ResponseAct::AwaitCalls,
        ResponseAct::Wait { ms: 7000 },
        change(3600),
        get(Shape::Plain, slower),
        change(3600),
        // A reload does not join the fetch that is running.
        get(Shape::NoCache, Answer::WHOLE),
        ResponseAct::AwaitCalls,
        get(Shape::Plain, Answer::WHOLE),
    ];
    acts.splice(at..at, overtaking);
}

/// Adds acts that replace a response which is on the device, and request its resource while the newer response is being
/// stored. Either of the two may vary.
fn add_replacement(random: &mut SplitMix64, key_count: u64, acts: &mut Vec<ResponseAct>) {
    let key = random.below(key_count);
    let mut change = || {
        let varies = one_in(random, 3);
        let to = Resource { len: 100, rule: Rule::MaxAge { secs: 3600 }, tag: TagKind::Strong, varies };
        ResponseAct::Change { key, to }
    };
    let get = |shape| ResponseAct::Get { key, client: Client::PLAIN, shape, answer: Answer::WHOLE };
    let older = change();
    let newer = change();
    let at = (key_count + random.below(acts.len() as u64 - key_count)) as usize;
    let replacement = [
        older,
        get(Shape::NoCache),
        ResponseAct::AwaitCalls,
        ResponseAct::Sync,
        ResponseAct::AwaitCalls,
        newer,
        get(Shape::NoCache),
        get(Shape::Plain),
        get(Shape::Plain),
        get(Shape::Plain),
    ];
    acts.splice(at..at, replacement);
}

/// Adds acts that write a response to the device, and remove it while the origin is asked to confirm it.
fn add_race(random: &mut SplitMix64, key_count: u64, acts: &mut Vec<ResponseAct>) {
    let key = random.below(key_count);
    let to = Resource { len: 100, rule: Rule::MaxAge { secs: 3600 }, tag: TagKind::Strong, varies: false };
    let get = |shape| ResponseAct::Get { key, client: Client::PLAIN, shape, answer: Answer::WHOLE };
    let at = (key_count + random.below(acts.len() as u64 - key_count)) as usize;
    let race = [
        ResponseAct::Change { key, to },
        ResponseAct::Remove { key },
        ResponseAct::AwaitCalls,
        get(Shape::Plain),
        ResponseAct::AwaitCalls,
        ResponseAct::Sync,
        ResponseAct::AwaitCalls,
        get(Shape::NoCache),
        ResponseAct::Remove { key },
    ];
    acts.splice(at..at, race);
}

fn act(random: &mut SplitMix64, key_count: u64, setting: &Setting) -> ResponseAct {
    let key = random.below(key_count);
    let frames = random.below(4);
    let client = Client {
        asker: random.below(3),
        language: random.below(2),
        reads: match random.below(12) {
            0 => ClientReads::Gone(1 + frames),
            1 => ClientReads::Leaves(frames),
            2 => ClientReads::Stands(frames),
            _ => ClientReads::Whole,
        },
    };
    let answer = Answer {
        delay_ms: [0, 0, 1, 30, 4000][random.below(5) as usize],
        end: match random.below(24) {
            0 => AnswerEnd::Breaks,
            1 => AnswerEnd::Short,
            2 => AnswerEnd::Long,
            3 => AnswerEnd::Refuses,
            4 => AnswerEnd::Fails,
            _ => AnswerEnd::Whole,
        },
        has_length: !one_in(random, 3),
        has_ranges: !one_in(random, 3),
        confirms: match random.below(8) {
            0 => Confirms::Privately,
            1 => Confirms::Otherwise,
            2 => Confirms::Never,
            _ => Confirms::Honestly,
        },
    };
    match random.below(100) {
        0..70 => ResponseAct::Get { key, client, shape: shape(random), answer },
        70..74 => ResponseAct::Post { key, client, answer },
        74..82 => ResponseAct::Change { key, to: resource(random, setting) },
        82..88 => ResponseAct::Remove { key },
        88..90 => ResponseAct::Clear,
        90..93 => ResponseAct::Sync,
        _ => ResponseAct::Wait { ms: [5, 600, 7000, 40_000][random.below(4) as usize] },
    }
}

fn shape(random: &mut SplitMix64) -> Shape {
    match random.below(20) {
        0 | 1 => {
            let from = random.below(16);
            Shape::Range { from, to: from + random.below(5000) }
        }
        2 | 3 => Shape::Conditional { is_current: one_in(random, 2) },
        4 => Shape::Head,
        5 => Shape::NoCache,
        6 => Shape::OnlyIfCached,
        7 => Shape::Authorized,
        _ => Shape::Plain,
    }
}

fn resource(random: &mut SplitMix64, setting: &Setting) -> Resource {
    let len_max = 1 + random.below(setting.body_bytes_max);
    Resource {
        len: 32 + random.below(len_max),
        rule: match random.below(10) {
            0 => Rule::NoCache,
            1 => Rule::NoStore,
            2 => Rule::Private,
            3 | 4 => Rule::MaxAge { secs: 5 },
            _ => Rule::MaxAge { secs: 3600 },
        },
        tag: match random.below(6) {
            0 => TagKind::Weak,
            1 => TagKind::None,
            _ => TagKind::Strong,
        },
        varies: one_in(random, 5),
    }
}

/// Runs the acts of the schedule, and checks all results against the laws.
///
/// # Errors
/// A text that says which law was broken and how.
pub(super) fn run(plan: LawPlan, acts: &[ResponseAct]) -> Result<LawTally, String> {
    let mut show = ResponseShow::new(plan)?;
    for act in acts {
        show.begin(*act)?;
    }
    show.end()
}

/// An HTTP cache under test, with its model.
struct ResponseShow {
    theatre: Theatre,
    model: Arc<Mutex<ResponseModel>>,
    cache: Option<HttpCache>,
}

impl ResponseShow {
    fn new(plan: LawPlan) -> Result<Self, String> {
        let setting = Setting::draw(plan.seed);
        let model = ResponseModel::new(setting.chronicle(), setting.room_bytes());
        let model = Arc::new(Mutex::new(model));
        let looked = Arc::clone(&model);
        let judge = Judge {
            // Cache-Status is what this face says.
            note: Arc::new(|_| {}),
            look: Box::new(move |facts| looked.lock().ignore_poison().chronicle.look_around(facts)),
        };
        let theatre = Theatre::open(plan, setting, Arc::default(), judge)?;
        let mut show = Self { theatre, model, cache: None };
        show.begin_life();
        Ok(show)
    }

    fn begin_life(&mut self) {
        let clock = self.theatre.clock.clone();
        let now = move || Timestamp::from_millis(clock.since_epoch().as_millis() as i64);
        self.cache = Some(HttpCache::builder(self.theatre.cache().clone()).time(now).build());
    }

    fn begin(&mut self, act: ResponseAct) -> Result<(), String> {
        self.theatre.prepare(&format!("{act:?}"))?;
        match act {
            ResponseAct::AwaitCalls => {
                self.theatre.await_calls()?;
                self.model.lock().ignore_poison().note_rest();
            }
            ResponseAct::Wait { ms } => self.theatre.stage.advance(Duration::from_millis(ms)),
            ResponseAct::Change { key, to } => self.model.lock().ignore_poison().change(key, to),
            ResponseAct::Kill { is_power_cut } => {
                self.cache = None;
                self.theatre.kill(is_power_cut)?;
                self.model.lock().ignore_poison().restart(is_power_cut);
                self.theatre.reopen()?;
                self.begin_life();
            }
            ResponseAct::Get { client, .. } | ResponseAct::Post { client, .. } => {
                let manner = match client.reads {
                    ClientReads::Gone(polls) => Manner::Leaves(polls),
                    ClientReads::Whole | ClientReads::Leaves(_) | ClientReads::Stands(_) => Manner::Stays,
                };
                self.play(act, manner);
            }
            ResponseAct::Remove { .. } | ResponseAct::Clear | ResponseAct::Sync => self.play(act, Manner::Stays),
        }
        Ok(())
    }

    fn play(&mut self, act: ResponseAct, manner: Manner) {
        let props = ResponseProps {
            cache: self.cache.clone().expect("it is open between acts"),
            model: Arc::clone(&self.model),
            tally: Arc::clone(&self.theatre.tally),
            timers: Arc::clone(&self.theatre.stage.timers),
            stands: Arc::default(),
        };
        let stands = Some(Arc::clone(&props.stands));
        let future = props.play(act);
        let has_thread = matches!(act, ResponseAct::Clear);
        self.theatre.stage.begin(Cast { name: format!("{act:?}"), future, manner, has_thread, stands });
    }

    /// Waits until all calls are done, and requests every key once more.
    fn end(mut self) -> Result<LawTally, String> {
        self.theatre.come_to_rest()?;
        self.model.lock().ignore_poison().note_rest();
        for key in 0..KEY_COUNT {
            let shape = Shape::OnlyIfCached;
            let look = ResponseAct::Get { key, client: Client::PLAIN, shape, answer: Answer::WHOLE };
            self.play(look, Manner::Stays);
            self.theatre.stage.run_all()?;
        }
        self.cache = None;
        self.theatre.end()
    }
}

impl Client {
    const PLAIN: Self = Self { asker: 0, language: 0, reads: ClientReads::Whole };
}

impl Answer {
    const WHOLE: Self =
        Self { delay_ms: 0, end: AnswerEnd::Whole, has_length: true, has_ranges: true, confirms: Confirms::Honestly };
}

impl ResponseAct {
    /// Returns what this act purges, or `None` if it is no purge.
    fn subject(self) -> Option<Subject> {
        match self {
            Self::Remove { key } => Some(Subject::Key(key)),
            Self::Clear => Some(Subject::All),
            _ => None,
        }
    }
}
