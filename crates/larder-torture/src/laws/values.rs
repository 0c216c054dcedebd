//! The face of values on stage: `larder_cache::Cache` with clients, writers, removals, failing fetches, and a kill.
//!
//! Owns: the acts and how they are drawn. `values::play` plays them. Laws 1 to 4 and 6 to 12 are judged here and in the
//! model. Law 5 has no meaning for values: no call names an asker.

mod events;
mod model;
mod play;
mod source;

use super::{
    plan::{LawPlan, LawTally, one_in},
    stage::{Cast, Manner},
    theatre::{Judge, Setting, Theatre},
};
use events::note_event;
use larder_device::IgnorePoison;
use larder_store::SplitMix64;
use model::Model;
use play::Props;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// An act in a schedule: a call of the cache, a wait, or a kill.
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

/// The value that a fetch or a writer delivers, and how long the delivery takes.
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

/// The way in which a value that was found is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reads {
    Whole,
    /// Three ranges, chosen at random with this seed.
    Ranges(u64),
    /// From start to end, with a pause of `ms` after each piece.
    Paced {
        ms: u64,
    },
}

/// Returns the acts of the schedule of `seed`.
pub(super) fn acts(seed: u64) -> Vec<Act> {
    let mut random = SplitMix64::new(seed);
    let setting = Setting::draw(seed);
    if setting.is_crowd {
        return crowd(&mut random);
    }
    let count = 8 + random.below(36);
    let key_count = 1 + random.below(4);
    let mut acts: Vec<Act> = (0..count).map(|_| act(&mut random, key_count, &setting)).collect();
    let at = random.below(count) as usize;
    acts.insert(at, Act::Kill { is_power_cut: one_in(&mut random, 4) });
    acts
}

/// Returns a schedule that stores more values than the memory can keep, and then reads them.
fn crowd(random: &mut SplitMix64) -> Vec<Act> {
    let mut source =
        || Source { len: 40_000 + random.below(20_000), tags: 0, fresh_ms: None, delay_ms: 0, end: SourceEnd::Whole };
    let manner = Manner::Stays;
    let writes = (0..CROWD_KEY_COUNT).map(|key| Act::Insert { key, source: source(), manner });
    let reads = (0..CROWD_KEY_COUNT).map(|key| Act::Get { key, manner });
    writes.chain(reads).collect()
}

/// Number of values whose sum exceeds the memory. Each of them is short enough to be kept there.
const CROWD_KEY_COUNT: u64 = 120;

fn act(random: &mut SplitMix64, key_count: u64, setting: &Setting) -> Act {
    let key = random.below(key_count);
    let manner = match random.below(8) {
        0 => Manner::Leaves(1 + random.below(4)),
        1 => Manner::Stands(1 + random.below(4)),
        _ => Manner::Stays,
    };
    let len_max = 1 + random.below(setting.body_bytes_max);
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

/// Runs the acts of the schedule, and checks all results against the laws.
///
/// # Errors
/// A text that says which law was broken and how.
pub(super) fn run(plan: LawPlan, acts: &[Act]) -> Result<LawTally, String> {
    let mut show = Show::new(plan)?;
    for act in acts {
        show.begin(*act)?;
    }
    show.end()
}

/// A cache of values under test, with its model.
struct Show {
    theatre: Theatre,
    model: Arc<Mutex<Model>>,
}

impl Show {
    fn new(plan: LawPlan) -> Result<Self, String> {
        let setting = Setting::draw(plan.seed);
        let model = Arc::new(Mutex::new(Model::new(setting.chronicle(), setting.room_bytes())));
        let tally: Arc<Mutex<LawTally>> = Arc::default();
        let noted = (Arc::clone(&model), Arc::clone(&tally));
        let looked = Arc::clone(&model);
        let judge = Judge {
            note: Arc::new(move |event| {
                note_event(&mut noted.0.lock().ignore_poison(), &mut noted.1.lock().ignore_poison(), event);
            }),
            look: Box::new(move |facts| looked.lock().ignore_poison().chronicle.look_around(facts)),
        };
        Ok(Self { theatre: Theatre::open(plan, setting, tally, judge)?, model })
    }

    fn begin(&mut self, act: Act) -> Result<(), String> {
        self.theatre.prepare(&format!("{act:?}"))?;
        match act {
            Act::Wait { ms } => self.theatre.stage.advance(Duration::from_millis(ms)),
            Act::Kill { is_power_cut } => {
                self.theatre.kill(is_power_cut)?;
                self.model.lock().ignore_poison().restart(is_power_cut);
                self.theatre.reopen()?;
            }
            _ => {
                let (future, manner) = self.props().play(act);
                let has_thread = matches!(act, Act::RemoveTag { .. } | Act::Clear);
                let name = format!("{act:?}");
                self.theatre.stage.begin(Cast { name, future, manner, has_thread, stands: None });
            }
        }
        Ok(())
    }

    fn props(&self) -> Props {
        Props {
            cache: self.theatre.cache().clone(),
            model: Arc::clone(&self.model),
            tally: Arc::clone(&self.theatre.tally),
            timers: Arc::clone(&self.theatre.stage.timers),
        }
    }

    /// Waits until all calls are done, and looks up every key.
    fn end(mut self) -> Result<LawTally, String> {
        self.theatre.come_to_rest()?;
        for key in 0..4 {
            let (future, manner) = self.props().play(Act::Get { key, manner: Manner::Stays });
            let name = format!("the last look at {key}");
            self.theatre.stage.begin(Cast { name, future, manner, has_thread: false, stands: None });
            self.theatre.stage.run_all()?;
        }
        self.theatre.end()
    }
}
