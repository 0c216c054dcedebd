//! Limits the time that the store may take. A store that does not respond is not used for a while, and a store that
//! falls behind gets no long responses.
//!
//! Owns: the limits and the state of the pause. Invariants: nothing waits for the store longer than the limit. A pause
//! begins only if the store completed no operation for that long. At the end of each pause, one lookup or commit checks
//! whether the store responds again. The number of operations left running is bounded. Time in which the process was
//! stopped does not count, because then it could not have noticed a response.
//!
//! Cost: a timer for each operation that is not complete at its first poll.

use larder_device::IgnorePoison;
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use larder_store::Result;
use tokio::time::{Instant, timeout_at};

use crate::http::{ResponseCache, StoreEvent};

/// Whether the store responds, as its callers have observed. Pauses its use while it does not.
pub struct StorePatience {
    limit: Duration,
    /// Whether the store is paused. Lets callers skip the lock of `rest` while it is not.
    resting: AtomicBool,
    rest: Mutex<StorePause>,
    /// Number of operations that completed after a wait. While a device does not respond, the number does not change.
    answer_count: AtomicU64,
    /// Number of writes that continue in the background, because they took too long to be waited for.
    detached: AtomicUsize,
    /// The pause during which no long response is offered to the store.
    behind: Mutex<StorePause>,
}

/// A pause during which the store is not used.
#[derive(Clone, Copy, Default)]
struct StorePause {
    until: Option<Instant>,
    length: Duration,
    ended: Option<Instant>,
}

impl StorePatience {
    /// Creates the state of a store that responds. `limit` is the time limit for an operation.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            resting: AtomicBool::new(false),
            rest: Mutex::default(),
            answer_count: AtomicU64::new(0),
            detached: AtomicUsize::new(0),
            behind: Mutex::default(),
        }
    }

    /// Returns the time limit for an operation.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns whether the store may be used now. After a pause, one operation may try.
    pub fn admits(&self) -> bool {
        !self.resting.load(Relaxed) || self.lock().admits(Instant::now())
    }

    /// Returns whether the store is paused.
    pub fn is_resting(&self) -> bool {
        self.resting.load(Relaxed)
    }

    /// Records that the store could not keep up with a response. For a while, no long response is stored; each time for
    /// longer.
    pub fn note_behind(&self) {
        self.behind.lock().ignore_poison().begin(Instant::now(), self.limit);
    }

    /// Returns whether the store is so far behind with its writes that it should not get long responses.
    pub fn is_behind(&self) -> bool {
        self.behind.lock().ignore_poison().holds(Instant::now())
    }

    /// Records an operation that took too long. Returns whether the store is paused because of it.
    ///
    /// It is not paused if other operations have completed since this one began: the store is then slow, but it
    /// responds. `answers_before` is the number of completed ones at that time.
    fn note_overdue(&self, answers_before: u64) -> bool {
        let silent = self.answer_count.load(Relaxed) == answers_before;
        if silent {
            self.lock().begin(Instant::now(), self.limit);
            self.resting.store(true, Relaxed);
        }
        silent
    }

    fn note_answer(&self) {
        self.answer_count.fetch_add(1, Relaxed);
        self.end_rest();
    }

    /// Permits another operation to try whether the store responds, because the last one did no I/O.
    fn give_back(&self) {
        if self.resting.load(Relaxed) {
            self.lock().give_back(Instant::now());
        }
    }

    fn end_rest(&self) {
        if self.resting.load(Relaxed) {
            self.lock().end(Instant::now());
            self.resting.store(false, Relaxed);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StorePause> {
        self.rest.lock().ignore_poison()
    }
}

impl StorePause {
    /// Returns whether an operation may be tried at `now`. At the end of a pause, permits one operation, and begins a
    /// longer pause for all others.
    fn admits(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) if now < until => false,
            Some(_) => {
                self.length = (2 * self.length).min(REST_MAX);
                self.until = Some(now + self.length);
                true
            }
            None => true,
        }
    }

    /// Takes back that an operation was tried, so that another one may be tried at once.
    fn give_back(&mut self, now: Instant) {
        self.length = (self.length / 2).max(REST_MIN);
        self.until = self.until.map(|_| now);
    }

    /// Returns whether the pause lasts at `now`. Ends the pause if its time is over.
    fn holds(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) if now < until => true,
            Some(until) => {
                self.end(until);
                false
            }
            None => false,
        }
    }

    /// Begins a pause, unless one has begun. If the last pause ended recently, the new one is longer.
    fn begin(&mut self, now: Instant, limit: Duration) {
        if self.until.is_some() {
            return;
        }
        let relapse = self.ended.is_some_and(|ended| now.saturating_duration_since(ended) <= self.length + 2 * limit);
        self.length = if relapse { (2 * self.length).min(REST_MAX) } else { REST_MIN };
        self.until = Some(now + self.length);
    }

    fn end(&mut self, now: Instant) {
        *self = Self { until: None, ended: Some(now), ..*self };
    }
}

/// The reason that is reported if a change of the store may not be durable because the store took too long.
pub(super) const NO_ANSWER: &str = "the store does not respond";

/// The maximum time that a caller waits for a read of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPatience {
    /// The store's time limit. While the store is paused, nothing is read. For data that the origin also has.
    Short,
    /// The time that a client may wait without progress, even while the store is paused. For data that exists nowhere
    /// else.
    Long,
}

/// Awaits a read of the store. Returns `None` if the store is paused, or if the read takes too long; it is then
/// dropped.
pub async fn read<T>(
    cache: &ResponseCache,
    waiting: ReadPatience,
    work: impl Future<Output = Result<Option<T>>>,
) -> Option<Result<Option<T>>> {
    let patience = &cache.shared.patience;
    let limit = match waiting {
        ReadPatience::Short if !patience.admits() => {
            cache.note(StoreEvent::Bypassed);
            return None;
        }
        ReadPatience::Short => patience.limit,
        ReadPatience::Long => patience.limit.max(cache.stall),
    };
    let answers_before = patience.answer_count.load(Relaxed);
    let mut work = pin!(work);
    if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        // The index knows without I/O that an entry is absent, or that it is still in memory. So only a completed read
        // proves that the device responds.
        match done {
            Ok(Some(_)) => patience.end_rest(),
            Ok(None) if waiting == ReadPatience::Short => patience.give_back(),
            Ok(None) | Err(_) => {}
        }
        return Some(done);
    }
    let started = Instant::now();
    match within(limit, work).await {
        Some(done) => {
            patience.note_answer();
            cache.note(StoreEvent::Read(started.elapsed()));
            Some(done)
        }
        None => {
            overdue(cache, answers_before);
            None
        }
    }
}

/// Awaits a write to the store. Returns `None` if it takes too long. The write then continues in the background, unless
/// `DETACHED_COUNT_MAX` writes already do.
///
/// `held` is dropped when the write has ended.
pub fn write<T: Send + 'static>(
    cache: &Arc<ResponseCache>,
    held: impl Send + 'static,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Option<Result<T>>> + Send {
    // Boxed first, because it would add kilobytes to every future that may write, and each move of it would copy them.
    wait_for_write(cache, held, Box::pin(work))
}

async fn wait_for_write<T: Send + 'static>(
    cache: &Arc<ResponseCache>,
    held: impl Send + 'static,
    mut work: Pin<Box<dyn Future<Output = Result<T>> + Send>>,
) -> Option<Result<T>> {
    let patience = &cache.shared.patience;
    let answers_before = patience.answer_count.load(Relaxed);
    if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        return Some(done);
    }
    if patience.detached.fetch_add(1, Relaxed) >= DETACHED_COUNT_MAX {
        patience.detached.fetch_sub(1, Relaxed);
        overdue(cache, answers_before);
        return None;
    }
    let owner = Arc::clone(cache);
    let task = tokio::spawn(async move {
        let done = work.await;
        drop(held);
        owner.shared.patience.detached.fetch_sub(1, Relaxed);
        // The store knows without I/O that it has no room.
        if done.is_ok() {
            owner.shared.patience.note_answer();
        }
        done
    });
    match within(patience.limit, task).await {
        // An error here means that the runtime is stopping.
        Some(done) => done.ok(),
        None => {
            overdue(cache, answers_before);
            None
        }
    }
}

/// Awaits an operation of the store for the time `limit`. Returns `None` if it takes longer.
///
/// A timer that ends long after its deadline shows that the process was stopped, for example by SIGSTOP, or with its
/// virtual machine. The store may have responded meanwhile, so the operation gets the whole time again.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        let deadline = Instant::now() + limit;
        if let Ok(done) = timeout_at(deadline, work.as_mut()).await {
            return Some(done);
        }
        if Instant::now() < deadline + TIMER_DELAY_MAX {
            return None;
        }
    }
}

fn overdue(cache: &ResponseCache, answers_before: u64) {
    cache.note(StoreEvent::TooSlow);
    if cache.shared.patience.note_overdue(answers_before) {
        tracing::warn!("the store does not respond, continuing without it");
    }
}

/// Delay of a timer that a busy process may have. A longer delay means that the process was stopped.
const TIMER_DELAY_MAX: Duration = Duration::from_secs(1);
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// Maximum number of writes that continue in the background. Each may hold the body of an entry in memory.
const DETACHED_COUNT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    #[test]
    fn store_that_does_not_answer_is_tried_once_per_rest_and_ever_more_rarely() {
        let start = Instant::now();
        let mut rest = StorePause::default();
        rest.begin(start, LIMIT);
        rest.begin(start, LIMIT);
        let tried: Vec<u64> = (0..200).filter(|second| rest.admits(start + Duration::from_secs(*second))).collect();
        assert_eq!(tried, [1, 3, 7, 15, 31, 63, 123, 183]);
    }

    /// Guards against a pause that requests for absent entries prolong, because they use up its attempts.
    #[test]
    fn attempt_that_did_no_io_is_given_back() {
        let start = Instant::now();
        let mut rest = StorePause::default();
        rest.begin(start, LIMIT);
        let now = start + Duration::from_secs(1);
        for _ in 0..10 {
            assert!(rest.admits(now));
            rest.give_back(now);
        }
        assert!(rest.admits(now) && !rest.admits(now + Duration::from_secs(1)));
        assert!(rest.admits(now + Duration::from_secs(2)));
    }

    #[test]
    fn store_that_answers_others_meanwhile_is_slow_and_does_not_rest() {
        let patience = StorePatience::new(LIMIT);
        let before = patience.answer_count.load(Relaxed);
        patience.note_answer();
        assert!(!patience.note_overdue(before) && patience.admits());
        let before = patience.answer_count.load(Relaxed);
        assert!(patience.note_overdue(before) && !patience.admits());
    }

    #[tokio::test(start_paused = true)]
    async fn store_is_not_blamed_for_time_in_which_the_process_was_stopped() {
        let (store, answer) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(within(LIMIT, answer));
        tokio::task::yield_now().await;
        for _ in 0..2 {
            tokio::time::advance(10 * LIMIT).await;
            tokio::task::yield_now().await;
        }
        store.send(()).expect("it still waits");
        assert!(waiting.await.expect("it does not panic").is_some());
        let start = Instant::now();
        assert!(within(LIMIT, std::future::pending::<()>()).await.is_none());
        assert_eq!(start.elapsed(), LIMIT);
    }

    #[test]
    fn store_that_falls_behind_again_is_spared_for_longer() {
        let start = Instant::now();
        let mut rest = StorePause::default();
        let mut spared = Vec::new();
        let mut now = start;
        for _ in 0..8 {
            rest.begin(now, LIMIT);
            let since = now;
            while rest.holds(now) {
                now += Duration::from_secs(1);
            }
            spared.push((now - since).as_secs());
        }
        assert_eq!(spared, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn store_that_answers_again_is_used_at_once() {
        let start = Instant::now();
        let mut rest = StorePause::default();
        assert!(rest.admits(start));
        rest.begin(start, LIMIT);
        assert!(!rest.admits(start));
        rest.end(start);
        assert!(rest.admits(start) && rest.admits(start));
    }

    #[test]
    fn relapse_takes_the_last_rest_up_again_and_a_late_one_begins_anew() {
        let start = Instant::now();
        let mut rest = StorePause { length: Duration::from_secs(8), ended: Some(start), until: None };
        rest.begin(start + Duration::from_secs(10), LIMIT);
        assert_eq!(rest.length, Duration::from_secs(16));
        rest.end(start);
        rest.begin(start + Duration::from_secs(100), LIMIT);
        assert_eq!(rest.length, REST_MIN);
    }
}
