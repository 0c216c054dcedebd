//! The stage: runs actors, the tasks of a cache and a device on one thread, in an order by seed, in virtual time.
//!
//! Invariant: an actor that stands is not polled until all others are done, so if those wait for it, nobody goes on,
//! and law 2 is broken. If nobody goes on although nobody stands, law 8 is.

use crate::drive::Flag;
use larder_device::{FaultyDevice, IgnorePoison};
use larder_store::{Clock, SplitMix64, Store};
use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// Future of an actor, which does one act. Its error is a text that says which law was broken.
pub(super) type ActorFuture = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// The behavior of an actor while its call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The actor waits until its call is done.
    Stays,
    /// The actor cancels its call after this number of polls.
    Leaves(u64),
    /// The actor is not polled any more after this number of polls, until all other actors are done.
    Stands(u64),
}

struct Actor {
    name: String,
    future: ActorFuture,
    flag: Arc<Flag>,
    manner: Manner,
    polls: u64,
    /// Whether a thread of the cache does the first part of the call, so that the result of the first poll depends on
    /// the thread's speed.
    has_thread: bool,
    /// Set by the actor itself when it stops reading until all other actors are done.
    stands: Option<Arc<AtomicBool>>,
}

/// An actor to be started on the stage, and how it behaves.
pub(super) struct Cast {
    pub(super) name: String,
    pub(super) future: ActorFuture,
    pub(super) manner: Manner,
    pub(super) has_thread: bool,
    pub(super) stands: Option<Arc<AtomicBool>>,
}

/// Payload of a panic that the schedule prescribes. It ends only the actor, and breaks no law.
pub(super) struct ScriptedPanic;

/// The actors, the cache's tasks and the device, which one thread advances step by step.
pub(super) struct Stage {
    random: SplitMix64,
    pub(super) device: Arc<FaultyDevice>,
    clock: Clock,
    pub(super) timers: Arc<Timers>,
    actors: Vec<Actor>,
    runtime: Option<Runtime>,
    /// The store of the cache, while the cache is open.
    store: Option<Store>,
    maintained_at: Duration,
    does_maintain: bool,
    idle_count: u32,
}

impl Stage {
    pub(super) fn new(random: SplitMix64, device: Arc<FaultyDevice>, clock: Clock) -> Self {
        let timers = Arc::new(Timers { clock: clock.clone(), waiting: Mutex::default() });
        let maintained_at = clock.since_epoch();
        let actors = Vec::new();
        Self {
            random,
            device,
            clock,
            timers,
            actors,
            runtime: None,
            store: None,
            maintained_at,
            does_maintain: false,
            idle_count: 0,
        }
    }

    /// Begins a life of the cache, after it was opened on `store`.
    pub(super) fn begin_life(&mut self, store: Store) {
        self.store = Some(store);
        self.maintained_at = self.clock.since_epoch();
    }

    /// Returns the tokio runtime of the cache's present life, and creates it if there is none.
    pub(super) fn runtime(&mut self) -> &Runtime {
        self.runtime.get_or_insert_with(|| {
            // One task between two looks, so that the stage decides after each.
            let mut builder = Builder::new_current_thread();
            builder.enable_time().start_paused(true).event_interval(1).global_queue_interval(1);
            builder.build().expect("a runtime without I/O needs nothing of the system")
        })
    }

    /// Drops all actors and tasks at once, as the kill of a process does.
    pub(super) fn end_life(&mut self) {
        self.actors.clear();
        self.does_maintain = false;
        self.store = None;
        self.runtime = None;
        self.timers.waiting.lock().ignore_poison().clear();
    }

    /// Waits until the device of a dropped cache is no longer used by transfers, or by a thread that writes a removal.
    /// Returns the number of users that are left, including this stage.
    pub(super) fn await_users(&self) -> usize {
        for _ in 0..THREAD_ROUNDS {
            while self.device.turn() {}
            if Arc::strong_count(&self.device) == 1 {
                break;
            }
            thread::park_timeout(THREAD_ROUND);
        }
        Arc::strong_count(&self.device)
    }

    pub(super) fn begin(&mut self, cast: Cast) {
        let Cast { name, future, manner, has_thread, stands } = cast;
        self.idle_count = 0;
        self.actors.push(Actor { name, future, flag: Flag::new(), manner, polls: 0, has_thread, stands });
    }

    pub(super) fn actor_count(&self) -> usize {
        self.actors.len()
    }

    /// Returns whether all actors are done, except those that have stopped reading.
    pub(super) fn is_over(&self) -> bool {
        self.actors.iter().all(Actor::stands)
    }

    /// Advances the device or the cache's tasks by one step. Returns `false` if they have nothing to do.
    pub(super) fn work(&mut self) -> bool {
        self.device.turn() || self.let_tasks_run()
    }

    /// Advances by one step: an actor, a task of the cache, or the device, chosen at random. If none of them can
    /// continue, advances the time.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn go_on(&mut self) -> Result<(), String> {
        let ready: Vec<usize> = (0..self.actors.len()).filter(|&at| self.actors[at].can_go_on()).collect();
        match self.random.below(4) {
            0 if self.device.turn() => return Ok(()),
            1 => {
                self.step_tasks();
                return Ok(());
            }
            _ => {}
        }
        if !ready.is_empty() {
            let at = self.random.below(ready.len() as u64) as usize;
            return self.poll(ready[at]);
        }
        if self.work() || self.is_over() {
            return Ok(());
        }
        self.let_time_pass()
    }

    /// Runs until all actors are done, except those that have stopped reading ([`Manner::Stands`]).
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn run_all(&mut self) -> Result<(), String> {
        while !self.is_over() {
            self.go_on()?;
        }
        Ok(())
    }

    /// Lets the actors that have stopped reading continue, and runs until neither actors, tasks nor the device have
    /// work left.
    ///
    /// # Errors
    /// The broken law.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        self.run_all()?;
        for actor in &mut self.actors {
            actor.manner = Manner::Stays;
            actor.stands = None;
        }
        let mut steps_left = REST_STEPS_MAX;
        loop {
            self.run_all()?;
            if !self.work() {
                let by = match self.timers.next() {
                    Some(by) => by.min(STEP),
                    // A task of the cache may wait for a time-out of its own.
                    None if steps_left > 0 && self.task_count() > 0 => {
                        steps_left -= 1;
                        STEP
                    }
                    None => return Ok(()),
                };
                self.advance(by);
            }
        }
    }

    /// Returns the number of tasks of the cache that are still running.
    pub(super) fn task_count(&mut self) -> usize {
        self.runtime().metrics().num_alive_tasks()
    }

    fn poll(&mut self, at: usize) -> Result<(), String> {
        let context = self.runtime().handle().clone();
        let _context = context.enter();
        let waiting_before = self.device.waiting_count();
        let actor = &mut self.actors[at];
        actor.polls += 1;
        if actor.name != MAINTENANCE {
            self.idle_count = 0;
        }
        let flag = Arc::clone(&actor.flag);
        let future = actor.future.as_mut();
        let outcome = catch_unwind(AssertUnwindSafe(|| flag.poll(future)));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(panic) if panic.is::<ScriptedPanic>() => Poll::Ready(Ok(())),
            Err(_) => return Err(format!("law 8: {} panicked", self.actors[at].name)),
        };
        if let Poll::Ready(outcome) = outcome {
            let actor = self.actors.swap_remove(at);
            self.does_maintain &= actor.name != MAINTENANCE;
            return outcome.map_err(|law| format!("{law}, in {}", actor.name));
        }
        // If the thread has answered already, it waits for the device.
        if actor.has_thread && actor.polls == 1 && self.device.waiting_count() == waiting_before {
            for _ in 0..ANSWER_ROUNDS {
                if flag.is_raised() {
                    break;
                }
                thread::park_timeout(THREAD_ROUND);
            }
        }
        if matches!(self.actors[at].manner, Manner::Leaves(polls) if self.actors[at].polls >= polls) {
            drop(self.actors.swap_remove(at));
        }
        Ok(())
    }

    fn step_tasks(&mut self) {
        self.runtime().block_on(tokio::task::yield_now());
    }

    /// Runs the cache's tasks. Returns whether one of them ended, or woke an actor or the device.
    fn let_tasks_run(&mut self) -> bool {
        let rounds = (2 + self.task_count()) * TASK_ROUNDS;
        for _ in 0..rounds {
            let before = self.task_count();
            self.step_tasks();
            let is_moved = self.actors.iter().any(Actor::can_go_on) || self.device.waiting_count() > 0;
            if is_moved || self.task_count() != before {
                return true;
            }
        }
        false
    }

    /// Advances the time to the next timer. Without a timer, advances it until the store's maintenance has run often
    /// enough to wake any actor.
    ///
    /// # Errors
    /// Law 2 or law 8 is broken if still no actor can continue.
    fn let_time_pass(&mut self) -> Result<(), String> {
        if let Some(by) = self.timers.next() {
            self.idle_count = 0;
            self.advance(by.min(STEP));
            return Ok(());
        }
        self.idle_count += 1;
        if self.idle_count <= IDLE_COUNT_MAX {
            self.advance(STEP);
            return Ok(());
        }
        // A thread of the engine may be at work.
        let waits_for_thread = self.actors.iter().any(|actor| actor.has_thread);
        let rounds = if waits_for_thread { THREAD_ROUNDS } else { ANSWER_ROUNDS };
        for _ in 0..rounds {
            if self.actors.iter().any(Actor::can_go_on) {
                return Ok(());
            }
            thread::park_timeout(THREAD_ROUND);
        }
        let waiting = |stands: bool| {
            let names = self.actors.iter().filter(|actor| actor.stands() == stands).map(|actor| &*actor.name);
            names.collect::<Vec<_>>().join("; ")
        };
        if self.actors.iter().any(Actor::stands) {
            return Err(format!("law 2: [{}] wait for [{}], which stand", waiting(false), waiting(true)));
        }
        Err(format!("law 8: nobody goes on: [{}]", waiting(false)))
    }

    /// Advances the time of the store, the runtime and the timers by `by`, and starts the store's maintenance if it is
    /// due.
    pub(super) fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.runtime().block_on(tokio::time::advance(by));
        self.timers.wake();
        let now = self.clock.since_epoch();
        if now - self.maintained_at < MAINTAINED_EVERY || self.does_maintain {
            return;
        }
        let Some(store) = self.store.clone() else { return };
        self.maintained_at = now;
        self.does_maintain = true;
        let future = Box::pin(async move {
            store.maintain().await;
            Ok(())
        });
        let idle_count = self.idle_count;
        self.begin(Cast {
            name: MAINTENANCE.to_owned(),
            future,
            manner: Manner::Stays,
            has_thread: false,
            stands: None,
        });
        self.idle_count = idle_count;
    }
}

impl Actor {
    fn stands(&self) -> bool {
        let has_raised = self.stands.as_ref().is_some_and(|stands| stands.load(Relaxed));
        has_raised || matches!(self.manner, Manner::Stands(polls) if self.polls >= polls)
    }

    fn can_go_on(&self) -> bool {
        self.flag.is_raised() && !self.stands()
    }
}

/// Timers in virtual time: they end when the stage advances the clock.
pub(super) struct Timers {
    clock: Clock,
    waiting: Mutex<Vec<(Duration, Waker)>>,
}

impl Timers {
    /// Returns a future that waits for `time`. If `time` is zero, it waits until the stage wakes the timers once.
    pub(super) fn sleep(self: &Arc<Self>, time: Duration) -> Sleep {
        Sleep { timers: Arc::clone(self), until: self.clock.since_epoch() + time, has_waited: false }
    }

    /// Returns the time until the next timer ends, or `None` if no timer is running.
    fn next(&self) -> Option<Duration> {
        let waiting = self.waiting.lock().ignore_poison();
        let now = self.clock.since_epoch();
        waiting.iter().map(|(until, _)| until.saturating_sub(now)).min()
    }

    /// Wakes the futures of all timers that have ended.
    fn wake(&self) {
        let now = self.clock.since_epoch();
        let due: Vec<_> = self.waiting.lock().ignore_poison().extract_if(.., |(until, _)| *until <= now).collect();
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// Future that waits for a time of the virtual clock.
pub(super) struct Sleep {
    timers: Arc<Timers>,
    until: Duration,
    has_waited: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.has_waited && self.timers.clock.since_epoch() >= self.until {
            return Poll::Ready(());
        }
        self.has_waited = true;
        self.timers.waiting.lock().ignore_poison().push((self.until, context.waker().clone()));
        Poll::Pending
    }
}

/// Time of one round in which the stage waits for a thread. It only limits how long a stuck test takes, and no result
/// depends on it.
const THREAD_ROUND: Duration = Duration::from_millis(5);
const THREAD_ROUNDS: u32 = 4000;
/// Maximum number of rounds that the stage waits for a thread to answer. Threads are expected to be faster, so that the
/// order of events follows from the seed.
const ANSWER_ROUNDS: u32 = 40;
const MAINTENANCE: &str = "maintenance";
/// Interval at which the stage runs the store's maintenance, in place of the store's own thread.
const MAINTAINED_EVERY: Duration = Duration::from_millis(100);
/// Maximum time by which the clock is advanced at once. It is short, so that the maintenance runs often enough.
const STEP: Duration = Duration::from_millis(500);
/// Number of times that the clock is advanced by [`STEP`] without a timer. The sum of these steps is longer than any
/// timeout of the cache.
const IDLE_COUNT_MAX: u32 = 40;
/// Maximum number of times that the clock is advanced by [`STEP`]. After this time, a minute, all tasks of the cache
/// must have ended.
const REST_STEPS_MAX: u32 = 120;
/// Number of rounds per task for which the runtime runs the tasks. After that, the tasks that are left count as
/// waiting.
const TASK_ROUNDS: usize = 3;
