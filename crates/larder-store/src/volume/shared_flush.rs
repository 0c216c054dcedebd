//! Flushes that several tasks share: while one runs, all further callers wait for the next one.
//!
//! Owns: which task runs a flush, and the outcome of recent ones. The engines do the I/O. Invariant: a caller returns
//! only after a flush that began after its call, so the flush covers everything that the caller committed. Cost: a
//! caller alone starts its flush at once; many callers need two flushes at most, however many they are. A timer that
//! collects callers would delay the lone one and save no write here. Source: group commit (`DeWitt` et al., 1984).

use crate::sync::IgnorePoison;
use crate::{
    Error, ErrorKind, Result,
    sync::{Mutex, MutexGuard},
    volume::waiters::{TaskWaiters, wait_for},
};

/// The flushes of one volume, which concurrent callers share.
#[derive(Default)]
pub(crate) struct SharedFlush(Mutex<FlushState>);

#[derive(Default)]
struct FlushState {
    /// Number of the last flush that began. Includes flushes whose task was dropped; no caller waits for these.
    begun: u64,
    /// Number of the last flush that ended.
    ended: u64,
    /// Number of the last flush that failed.
    failed: u64,
    is_running: bool,
    waiting: TaskWaiters,
}

/// The next step of a waiting caller.
enum FlushTurn {
    /// Run the flush with this number.
    Run(u64),
    Ended {
        has_failed: bool,
    },
}

/// A flush that is running. Dropping it ends the flush, so that another task can run one.
struct RunningFlush<'a>(&'a SharedFlush);

impl SharedFlush {
    /// Runs `flush`, or waits for a flush that another task began after this call.
    ///
    /// # Errors
    /// The error of `flush`, or `Unavailable` if the flush of the other task failed.
    pub(crate) async fn join(&self, flush: impl Future<Output = Result<()>>) -> Result<()> {
        let wanted = self.lock().begun + 1;
        match wait_for(|| self.lock(), |state: &mut FlushState| state.turn(wanted)).await {
            FlushTurn::Ended { has_failed: false } => Ok(()),
            FlushTurn::Ended { has_failed: true } => {
                Err(Error::new(ErrorKind::Unavailable, "committed entries could not be written to the store"))
            }
            FlushTurn::Run(number) => {
                let running = RunningFlush(self);
                let outcome = flush.await;
                self.lock().note_end(number, outcome.is_err());
                drop(running);
                outcome
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FlushState> {
        self.0.lock().ignore_poison()
    }
}

impl FlushState {
    /// Returns what a caller that needs the flush with the number `wanted`, or a later one, must do now. `None` means
    /// to wait.
    fn turn(&mut self, wanted: u64) -> Option<FlushTurn> {
        if self.ended >= wanted {
            return Some(FlushTurn::Ended { has_failed: self.failed >= wanted });
        }
        if self.is_running {
            return None;
        }
        self.is_running = true;
        self.begun += 1;
        assert!(self.begun >= wanted, "a flush that begins now covers all callers so far");
        Some(FlushTurn::Run(self.begun))
    }

    fn note_end(&mut self, number: u64, has_failed: bool) {
        assert!(self.is_running && number == self.begun, "one flush runs at a time");
        self.ended = number;
        if has_failed {
            self.failed = number;
        }
    }
}

impl AsMut<TaskWaiters> for FlushState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

impl Drop for RunningFlush<'_> {
    fn drop(&mut self) {
        let woken = {
            let mut state = self.0.lock();
            state.is_running = false;
            state.waiting.take()
        };
        woken.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future::join_all};
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicU32, Ordering},
        task::Poll,
    };

    /// Returns a flush that counts its call in `count` and ends with `outcome` at its second poll.
    fn counted(count: &AtomicU32, outcome: Result<()>) -> impl Future<Output = Result<()>> {
        let mut is_begun = false;
        std::future::poll_fn(move |context| {
            if is_begun {
                return Poll::Ready(outcome.clone());
            }
            is_begun = true;
            count.fetch_add(1, Ordering::Relaxed);
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn callers_that_come_together_share_two_flushes() {
        let flushes = SharedFlush::default();
        let count = AtomicU32::new(0);
        let all = join_all((0..50).map(|_| flushes.join(counted(&count, Ok(())))));
        assert!(crate::device::block_on(all).into_iter().all(|outcome| outcome.is_ok()));
        // All called before the first began to wait, so one flush may be enough, but never one for each.
        assert!((1..=2).contains(&count.load(Ordering::Relaxed)), "{count:?}");
        crate::device::block_on(flushes.join(counted(&count, Ok(())))).unwrap();
        assert!(count.load(Ordering::Relaxed) >= 2, "a later call has a flush of its own");
    }

    #[test]
    fn a_caller_does_not_rely_on_a_flush_that_began_before_it() {
        let flushes = SharedFlush::default();
        let mut first = Box::pin(flushes.join(pending()));
        assert!((&mut first).now_or_never().is_none());
        let count = AtomicU32::new(0);
        let mut second = Box::pin(flushes.join(counted(&count, Ok(()))));
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(count.load(Ordering::Relaxed), 0, "the first is still running");
        // The task of the first is dropped, and the second takes over.
        drop(first);
        crate::device::block_on(second).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_failure_reaches_all_who_waited_for_that_flush_and_nobody_later() {
        let flushes = SharedFlush::default();
        let count = AtomicU32::new(0);
        let failure = || Err(Error::new(ErrorKind::Unavailable, "the device is dead"));
        let all = join_all((0..10).map(|_| flushes.join(counted(&count, failure()))));
        assert!(crate::device::block_on(all).into_iter().all(|outcome| outcome.is_err()));
        crate::device::block_on(flushes.join(ready(Ok(())))).unwrap();
    }
}
