//! The load: a run of a workload against a proxy, in an open or a closed loop.
//!
//! Owns: the times at which requests are due. In an open loop, they are fixed before the run and do not depend on its
//! events. A response time counts from the moment at which the request was due, so that a proxy that stalls is charged
//! for all requests due in the meantime (no coordinated omission). In a closed loop, each user sends one request after
//! the other. Invariant: requests in flight are bounded; further ones count as failed. Cost: one thread.

mod client;
mod record;
mod timer;
mod times;

use crate::{
    cpu,
    undo::EndsEarly,
    workload::{BenchArrival, BenchRequest, Phase, RequestSource, Workload, WorkloadOptions},
};
pub use client::Target;
use client::{Clients, FetchFault, FetchOutcome, FetchResult};
use larder_device::IgnorePoison;
use larder_workload::{Random, Request};
pub use record::{Complaint, PhaseFigures, RequestCounts, SecondFigures};
use record::{DueTime, Recorder};
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use timer::Timer;
pub use times::{RecordedTimes, ResponseTimes};
use tokio::{runtime, task::JoinSet};

/// The way in which requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loop {
    /// Open loop: this many requests per second are sent, whatever their outcome.
    Open(f64),
    /// Closed loop: this many users send requests. Each waits for the response before its next request.
    Closed(usize),
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// The proxy that receives the requests.
    pub target: Target,
    /// The workload that the requests come from.
    pub workload: Workload,
    /// The way in which requests arrive.
    pub loop_kind: Loop,
    /// The phases of the run. A closed loop treats them as a single phase.
    pub phases: Vec<Phase>,
    /// Bytes that must be stored before the filling phase ends. `None` means that it has a fixed duration.
    pub fill_bytes: Option<u64>,
    /// Whether each connection is closed after a few requests, as PolyMix's robots do.
    pub closes_connections: bool,
    /// Share of responses that the origin breaks off, from 0 to 1. The client must know it to judge responses.
    pub origin_abort_share: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct LoadFigures {
    /// The figures of each phase.
    pub phases: Vec<PhaseFigures>,
    /// The figures of each second.
    pub seconds: Vec<SecondFigures>,
    /// The failures, each kind once.
    pub complaints: Vec<Complaint>,
    /// Processor time of the clients' thread, and of the rest of this process, which is the origin. Each is a share of
    /// one processor.
    pub busy: (f64, f64),
}

impl Load {
    /// Maximum number of requests in flight, and of users in a closed loop.
    pub const UNDER_WAY_MAX: usize = 8192;

    /// Runs the load.
    ///
    /// Calls `progress` about four times a second with the phase, the completed share of the run from 0 to 1, and the
    /// counts of the phase so far. A signal SIGINT, SIGTERM or SIGHUP ends the run early, and the results until then
    /// are returned.
    ///
    /// # Errors
    /// The system refuses a runtime or a timer, or the proxy does not respond to the first request.
    pub fn run(
        &self,
        requests: &Requests,
        progress: &mut dyn FnMut(&str, f64, RequestCounts),
    ) -> io::Result<LoadFigures> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.run_all(requests, progress))
    }

    fn time(&self) -> Duration {
        self.phases.iter().map(|phase| phase.time).sum()
    }

    async fn run_all(
        &self,
        requests: &Requests,
        progress: &mut dyn FnMut(&str, f64, RequestCounts),
    ) -> io::Result<LoadFigures> {
        let clients = Arc::new(Clients::new(self.target.clone(), self.closes_connections, self.origin_abort_share));
        let early = EndsEarly::begin();
        progress("contacting the proxy", 0.0, RequestCounts::default());
        // The probe uses a client of its own, so that the run starts without connections.
        let probe = Clients::new(self.target.clone(), false, 0.0).probe(&early).await;
        probe.map_err(|fault| io::Error::other(fault.to_string()))?;
        let asked = requests.lock().warm_up();
        warm_up(&clients, asked, &early, progress).await?;
        let shared = Arc::new(RunState {
            clients,
            recorder: Mutex::new(Recorder::new()),
            under_way: AtomicUsize::new(0),
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            early,
        });
        let own_before = cpu::of_thread();
        let all_before = cpu::own();
        match self.loop_kind {
            Loop::Open(rate) => self.open(&shared, requests, rate, progress).await?,
            Loop::Closed(users) => self.closed(&shared, requests, users, progress).await?,
        }
        let own = (cpu::of_thread() - own_before).as_secs_f64();
        let all = (cpu::own() - all_before).as_secs_f64();
        let lasted_s = shared.begun.elapsed().as_secs_f64();
        let mut recorder = shared.lock();
        let recorder = std::mem::replace(&mut *recorder, Recorder::new());
        let (phases, seconds, complaints) = recorder.finish();
        Ok(LoadFigures { phases, seconds, complaints, busy: (own / lasted_s, (all - own) / lasted_s) })
    }

    async fn open(
        &self,
        shared: &Arc<RunState>,
        requests: &Requests,
        rate: f64,
        progress: &mut dyn FnMut(&str, f64, RequestCounts),
    ) -> io::Result<()> {
        let timer = Timer::new()?;
        let mut random = Random::new(ARRIVALS_SEED);
        let time = self.time();
        let mut due = Duration::ZERO;
        let mut told = Duration::ZERO;
        for phase in &self.phases {
            let begun = due;
            shared.lock().begin_phase(phase.name, phase.counts, begun);
            let number = shared.lock().phase();
            let mut filled = 0;
            loop {
                let wanted_fill = self.fill_bytes.filter(|_| phase.fills);
                let is_filled = wanted_fill.is_none_or(|wanted| filled >= wanted);
                let time_max = if wanted_fill.is_some() { phase.time * FILL_TIMES_MAX } else { phase.time };
                let share = (due - begun).as_secs_f64() / phase.time.as_secs_f64();
                if due - begun >= time_max || (share >= 1.0 && is_filled) || shared.early.is_asked() {
                    break;
                }
                let wanted = rate * Phase::at(phase.load, share);
                let recurrence = Phase::at(phase.recurrence, share);
                let specials = Phase::at(phase.specials, share);
                let Some(arrival) = requests.lock().arrival(recurrence, specials) else { break };
                filled += fills(&arrival);
                // An arrival may consist of several requests. The time until the next arrival grows with their number,
                // so that the total rate is the requested one.
                let gap_s = random.exponential((1 + arrival.embedded.len()) as f64 / wanted.max(RATE_MIN));
                due += Duration::from_secs_f64(gap_s.min(GAP_MAX_S));
                shared.wait_until(&timer, due).await?;
                if due - told > PROGRESS_EVERY {
                    told = due;
                    let mut recorder = shared.lock();
                    recorder.want(due, wanted);
                    progress(phase.name, due.as_secs_f64() / time.as_secs_f64(), recorder.so_far());
                }
                shared.start(arrival, DueTime { phase: number, at: due });
            }
            if shared.early.is_asked() {
                break;
            }
        }
        shared.lock().end_phase(due);
        shared.drain(progress).await;
        Ok(())
    }

    async fn closed(
        &self,
        shared: &Arc<RunState>,
        requests: &Requests,
        users: usize,
        progress: &mut dyn FnMut(&str, f64, RequestCounts),
    ) -> io::Result<()> {
        shared.lock().begin_phase("run", true, Duration::ZERO);
        let time = self.time();
        let mut tasks = JoinSet::new();
        for _ in 0..users.clamp(1, Load::UNDER_WAY_MAX) {
            let shared = Arc::clone(shared);
            let requests = requests.clone();
            tasks.spawn(async move {
                while !shared.is_over.load(Ordering::Relaxed) {
                    let Some(arrival) = requests.lock().arrival(1.0, 1.0) else {
                        shared.is_over.store(true, Ordering::Relaxed);
                        break;
                    };
                    for asked in arrival.first.into_iter().chain(arrival.embedded) {
                        if !shared.fetch(&asked, DueTime { phase: 0, at: shared.begun.elapsed() }).await {
                            // Without this pause, a user would repeat requests to a proxy that refuses at once as fast
                            // as the processor permits.
                            tokio::time::sleep(FAILED_PAUSE).await;
                            break;
                        }
                    }
                }
            });
        }
        let timer = Timer::new()?;
        while shared.begun.elapsed() < time && !shared.early.is_asked() && !shared.is_over.load(Ordering::Relaxed) {
            let next = (shared.begun.elapsed() + PROGRESS_EVERY).min(time);
            timer.wait_until(shared.begun + next).await?;
            progress("run", next.as_secs_f64() / time.as_secs_f64(), shared.lock().so_far());
        }
        shared.is_over.store(true, Ordering::Relaxed);
        shared.lock().end_phase(shared.begun.elapsed().min(time));
        while !shared.early.is_asked() && tasks.join_next().await.is_some() {
            progress(&format!("waiting for the last responses to {} users", tasks.len()), 1.0, shared.lock().so_far());
        }
        Ok(())
    }
}

/// The requests of a workload, shared by several runs. Each run continues where the previous one ended, so an object
/// that was requested in an earlier run may be a hit.
#[derive(Clone)]
pub struct Requests(Arc<Mutex<RequestSource>>);

impl Requests {
    /// Returns the requests of `workload` from its beginning. [`Workload::Trace`] replays `trace`.
    pub fn new(workload: Workload, options: WorkloadOptions, trace: Vec<Request>) -> Self {
        Self(Arc::new(Mutex::new(RequestSource::new(workload, options, trace))))
    }

    fn lock(&self) -> MutexGuard<'_, RequestSource> {
        self.0.lock().ignore_poison()
    }
}

/// The state of a run that all its requests share.
struct RunState {
    clients: Arc<Clients>,
    recorder: Mutex<Recorder>,
    under_way: AtomicUsize,
    begun: Instant,
    is_over: AtomicBool,
    early: EndsEarly,
}

impl RunState {
    fn lock(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().ignore_poison()
    }

    /// Starts the requests of an arrival without waiting for their responses.
    fn start(self: &Arc<Self>, arrival: BenchArrival, due: DueTime) {
        let count = 1 + arrival.embedded.len();
        if self.under_way.load(Ordering::Relaxed) + count > Load::UNDER_WAY_MAX {
            let fault = FetchFault::new(
                format!("more than {} requests in flight", Load::UNDER_WAY_MAX),
                format!("{:.1} s after the start", due.at.as_secs_f64()),
            );
            let fetched = FetchResult { outcome: FetchOutcome::Failed(fault), body_bytes: 0 };
            for asked in arrival.first.iter().chain(&arrival.embedded) {
                self.lock().add(due, Duration::ZERO, &fetched, asked.is_offered);
            }
            return;
        }
        self.under_way.fetch_add(count, Ordering::Relaxed);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(first) = &arrival.first {
                shared.lock().add_late(due.phase, shared.begun.elapsed().saturating_sub(due.at));
                let is_there = shared.fetch(first, due).await;
                // Without a response to the request for the page, a client does not know the images in it.
                if !is_there {
                    shared.under_way.fetch_sub(count, Ordering::Relaxed);
                    return;
                }
            }
            // A browser knows the images once it has the page, and then requests several at the same time.
            let due = DueTime { at: shared.begun.elapsed(), ..due };
            let mut rest = arrival.embedded.into_iter();
            let mut asking = JoinSet::new();
            loop {
                while asking.len() < CONNECTIONS_PER_ROBOT
                    && let Some(asked) = rest.next()
                {
                    let shared = Arc::clone(&shared);
                    asking.spawn(async move { shared.fetch(&asked, due).await });
                }
                if asking.join_next().await.is_none() {
                    break;
                }
            }
            shared.under_way.fetch_sub(count, Ordering::Relaxed);
        });
    }

    /// Sends a request, and records its result. Returns whether there was a response, right or wrong.
    async fn fetch(&self, asked: &BenchRequest, due: DueTime) -> bool {
        let fetched = self.clients.fetch(asked).await;
        let took = self.begun.elapsed().saturating_sub(due.at);
        self.lock().add(due, took, &fetched, asked.is_offered);
        !matches!(fetched.outcome, FetchOutcome::Failed(_) | FetchOutcome::BrokenOff)
    }

    /// Waits until the time `at` of the run, or until a signal requests an early end.
    async fn wait_until(&self, timer: &Timer, at: Duration) -> io::Result<()> {
        while !self.early.is_asked() {
            let next = at.min(self.begun.elapsed() + PROGRESS_EVERY);
            timer.wait_until(self.begun + next).await?;
            if next == at {
                break;
            }
        }
        Ok(())
    }

    /// Waits until no request is in flight, or until a signal requests an early end. Each request has its own time
    /// limit.
    async fn drain(&self, progress: &mut dyn FnMut(&str, f64, RequestCounts)) {
        let begun = Instant::now();
        loop {
            let left = self.under_way.load(Ordering::Relaxed);
            if left == 0 || self.early.is_asked() {
                return;
            }
            if begun.elapsed() > PROGRESS_EVERY {
                progress(&format!("waiting for the last {left} responses"), 1.0, self.lock().so_far());
            }
            tokio::time::sleep(DRAIN_PAUSE).await;
        }
    }
}

/// Requests everything in `asked` once, [`WARM_UP_COUNT`] requests at a time, so that it is in the cache when the run
/// starts.
async fn warm_up(
    clients: &Arc<Clients>,
    asked: Vec<BenchRequest>,
    early: &EndsEarly,
    progress: &mut dyn FnMut(&str, f64, RequestCounts),
) -> io::Result<()> {
    let count = asked.len().max(1) as f64;
    for (number, some) in asked.chunks(WARM_UP_COUNT).enumerate() {
        progress(
            "bringing into the cache what is to be hit",
            (number * WARM_UP_COUNT) as f64 / count,
            RequestCounts::default(),
        );
        let mut tasks = JoinSet::new();
        for asked in some {
            let clients = Arc::clone(clients);
            let asked = asked.clone();
            tasks.spawn(async move { clients.fetch(&asked).await });
        }
        while let Some(fetched) = tasks.join_next().await {
            if let Ok(FetchResult { outcome: FetchOutcome::Failed(fault) | FetchOutcome::Wrong(fault), .. }) = fetched {
                return Err(io::Error::other(fault.to_string()));
            }
        }
        if early.is_asked() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "a signal ended it before the start"));
        }
    }
    Ok(())
}

/// Returns the number of bytes by which an arrival fills a cache: the lengths of its storable objects that were not
/// requested before.
fn fills(arrival: &BenchArrival) -> u64 {
    let new = arrival.first.iter().chain(&arrival.embedded).filter(|asked| !asked.is_offered);
    new.map(|asked| asked.object.nature()).filter(|nature| nature.is_storable).map(|nature| nature.len_bytes).sum()
}

const CONNECTIONS_PER_ROBOT: usize = 4;
const WARM_UP_COUNT: usize = 8;
/// Maximum duration of the filling phase, as a multiple of its nominal duration.
const FILL_TIMES_MAX: u32 = 20;
/// Seed of the random times at which requests arrive. It is fixed, so that the times are the same in every run.
const ARRIVALS_SEED: u64 = 0x0A71;
const RATE_MIN: f64 = 0.1;
const GAP_MAX_S: f64 = 5.0;
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Time that a user waits after a failed request.
const FAILED_PAUSE: Duration = Duration::from_millis(10);
const DRAIN_PAUSE: Duration = Duration::from_millis(5);
