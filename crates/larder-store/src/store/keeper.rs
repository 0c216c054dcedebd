//! The store's own thread: loads the index at start, then flushes, syncs and reclaims what is due.
//!
//! Invariant: asleep while nothing is dirty; everything it does is in [`Engine::maintain`], so that a
//! simulation does the same in virtual time.

use super::{Engine, recovery};
use crate::{Error, ErrorKind, Result, device::Completion, device::Transfer};
use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

/// Free segments below which reclaim begins, whatever the volume's size.
pub(super) const RESERVE_SEGMENTS_MIN: usize = 3;
/// How often the keeper looks while something is dirty.
const TICK: Duration = Duration::from_millis(50);

/// The running thread; dropping it finishes what is dirty and joins it.
pub(super) struct Keeper {
    engine: Arc<Engine>,
    thread: Option<thread::JoinHandle<()>>,
}

/// How the keeper is called, and what it must remember to sync.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
    /// Whether the keeper sleeps until it is called.
    idle: AtomicBool,
}

#[derive(Default)]
struct BellState {
    called: bool,
    stop: bool,
    /// Bytes were written that no sync covers yet, since when it is counted.
    unsynced: bool,
    sync_in_flight: bool,
    last_sync: Duration,
}

impl Keeper {
    pub(super) fn start(engine: &Arc<Engine>, background: bool) -> Result<Self> {
        if !background {
            block_on(recovery::run(engine));
            return Ok(Self { engine: Arc::clone(engine), thread: None });
        }
        let own = Arc::clone(engine);
        let spawned = thread::Builder::new().name("larder-keeper".into()).spawn(move || run(&own));
        let thread =
            spawned.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot start the store's thread", source))?;
        Ok(Self { engine: Arc::clone(engine), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.engine.bell.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's thread panicked");
        }
    }
}

fn run(engine: &Arc<Engine>) {
    block_on(recovery::run(engine));
    while !engine.bell.stopped() {
        block_on(engine.maintain());
        engine.bell.wait(|| engine.lock_log().unit_opened_at().is_some());
    }
    if !engine.closed.load(Ordering::Acquire)
        && let Err(error) = block_on(engine.finish())
    {
        tracing::error!("cannot finish the store: {error}");
    }
}

impl Engine {
    /// One round of what is due now.
    pub(super) async fn maintain(self: &Arc<Self>) {
        let now = self.clock.now();
        let waiting = self.flush_due(now);
        while self.lock_log().free_count() < self.reserve_segments() {
            if !self.reclaim_oldest().await {
                break;
            }
        }
        waiting.into_iter().for_each(Waker::wake);
        if self.bell.sync_is_due(now, self.sync_interval) {
            let engine = Arc::downgrade(self);
            let done = move |outcome: std::io::Result<()>| {
                let Some(engine) = engine.upgrade() else { return };
                if let Err(error) = &outcome {
                    engine.counters.io_errors.fetch_add(1, Ordering::Relaxed);
                    tracing::error!("cannot sync the store: {error}");
                }
                engine.bell.synced(outcome.is_ok());
            };
            self.device.submit(Transfer::Sync { completion: Completion::callback(done) });
        }
    }

    /// Sends off the open unit if it is due. Returns those that wait for room, to look at the time again.
    fn flush_due(self: &Arc<Self>, now: Duration) -> Vec<Waker> {
        let mut actions = Vec::new();
        let mut log = self.lock_log();
        if log.unit_opened_at().is_some_and(|opened_at| now >= opened_at + self.flush_interval) {
            log.seal_unit(&mut actions);
        }
        let waiting = log.take_waiting();
        drop(log);
        self.perform(actions);
        waiting
    }

    /// Segments kept free, so that writers do not wait for reclaim.
    pub(super) fn reserve_segments(&self) -> usize {
        (self.geometry.segment_count as usize / 64).clamp(RESERVE_SEGMENTS_MIN, 8)
    }
}

impl Bell {
    /// Calls the keeper.
    pub(super) fn ring(&self) {
        self.lock().called = true;
        self.rung.notify_one();
    }

    /// Calls the keeper if it sleeps until called. Cost: one relaxed load otherwise.
    pub(super) fn ring_if_idle(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Notes that bytes were written.
    pub(super) fn written(&self) {
        self.lock().unsynced = true;
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.ring();
    }

    fn stopped(&self) -> bool {
        self.lock().stop
    }

    /// Whether a sync is to be made now; then it counts as on its way.
    fn sync_is_due(&self, now: Duration, interval: Duration) -> bool {
        let mut state = self.lock();
        if !state.unsynced || state.sync_in_flight || now < state.last_sync + interval {
            return false;
        }
        *state = BellState { unsynced: false, sync_in_flight: true, last_sync: now, ..*state };
        true
    }

    fn synced(&self, ok: bool) {
        let mut state = self.lock();
        state.sync_in_flight = false;
        state.unsynced |= !ok;
    }

    /// Sleeps for a tick, or until called if there is nothing to look after.
    fn wait(&self, is_dirty: impl Fn() -> bool) {
        // In this order: whoever makes the log dirty after this looked finds `idle` set, and calls.
        self.idle.store(true, Ordering::Release);
        let dirty = is_dirty();
        let mut state = self.lock();
        let busy = dirty || state.unsynced || state.sync_in_flight;
        self.idle.store(!busy, Ordering::Release);
        if !state.called {
            state = if busy {
                self.rung.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.rung.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
        state.called = false;
        self.idle.store(false, Ordering::Release);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `future` on this thread, sleeping while it waits.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
