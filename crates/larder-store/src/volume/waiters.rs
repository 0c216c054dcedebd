//! Tasks that wait for a change of a value under a lock.
//!
//! Owns: the waiting tasks, each once, and the order: check, register the task, release the lock. The value is
//! elsewhere. Invariant: no wakeup is lost, because a task that found nothing was registered under the lock that every
//! change takes.

use std::{
    future::poll_fn,
    ops::DerefMut,
    task::{Poll, Waker},
};

/// Tasks that wait for a change of a value.
#[derive(Default)]
pub(crate) struct TaskWaiters(Vec<Waker>);

/// Tasks that were waiting. Wake them after the lock on the value is released.
#[derive(Default)]
#[must_use = "a waiting task must be woken"]
pub(crate) struct WokenTasks(Vec<Waker>);

/// Waits until `decide` returns a value for the state behind `lock`, and returns that value. Calls `decide` again after
/// each change of the state.
pub(crate) async fn wait_for<S, G, T>(lock: impl Fn() -> G, mut decide: impl FnMut(&mut S) -> Option<T>) -> T
where
    S: AsMut<TaskWaiters>,
    G: DerefMut<Target = S>,
{
    poll_fn(|context| {
        let mut state = lock();
        match decide(&mut state) {
            Some(found) => Poll::Ready(found),
            None => {
                state.as_mut().add(context.waker());
                Poll::Pending
            }
        }
    })
    .await
}

impl TaskWaiters {
    /// Adds the task of `waker`, unless it is already waiting.
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Removes and returns all waiting tasks.
    pub(crate) fn take(&mut self) -> WokenTasks {
        WokenTasks(std::mem::take(&mut self.0))
    }

    /// Returns whether no task waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AsMut<Self> for TaskWaiters {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl WokenTasks {
    /// Adds further tasks to be woken.
    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes the tasks.
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::IgnorePoison;
    use std::{
        future::Future,
        pin::pin,
        sync::{Arc, Mutex, atomic::AtomicU32, atomic::Ordering},
        task::{Context, Wake},
    };

    #[derive(Default)]
    struct CalledFlag(AtomicU32);

    impl Wake for CalledFlag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Counter {
        count: u32,
        waiters: TaskWaiters,
    }

    impl AsMut<TaskWaiters> for Counter {
        fn as_mut(&mut self) -> &mut TaskWaiters {
            &mut self.waiters
        }
    }

    /// Guards against a task that is never woken, or a list of tasks that grows with every poll.
    #[test]
    fn a_task_is_noted_once_and_woken_by_the_change_it_waits_for() {
        let counter = Mutex::new(Counter { count: 0, waiters: TaskWaiters::default() });
        let lock = || counter.lock().ignore_poison();
        let called = Arc::new(CalledFlag::default());
        let waker = Waker::from(Arc::clone(&called));
        let mut context = Context::from_waker(&waker);
        let mut waiting = pin!(wait_for(lock, |counter: &mut Counter| (counter.count > 1).then_some(counter.count)));
        for round in 0..3 {
            assert!(waiting.as_mut().poll(&mut context).is_pending(), "round {round}");
            assert_eq!(lock().waiters.0.len(), 1);
        }
        lock().count = 2;
        lock().waiters.take().wake();
        assert_eq!((called.0.load(Ordering::Relaxed), lock().waiters.is_empty()), (1, true));
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(2));
    }
}
