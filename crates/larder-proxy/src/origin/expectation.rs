//! An expectation of 100 on its way to an origin (RFC 9110 10.1.1): the client's body waits for the origin's reply.
//!
//! Owns: the origin's reply. Sending and reading are elsewhere. Invariant: if the origin sends its final response
//! without asking for the body, the body is never read, and none of it is sent. The connection to that origin still
//! lacks a body, so it is closed after the response. Cost: one lock each time the body is polled while it waits.

use larder_device::IgnorePoison;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Waker},
};

/// The reply that a body waits for.
#[derive(Default)]
pub(crate) struct Expectation(Mutex<ExpectationState>);

#[derive(Default)]
struct ExpectationState {
    word: OriginWord,
    waker: Option<Waker>,
}

/// The origin's reply so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OriginWord {
    /// No reply yet.
    #[default]
    Awaited,
    /// The body may be sent: a 100 arrived, or the wait for one timed out.
    Go,
    /// A final response, which is being read.
    Refused,
    /// A final response, which has been read or abandoned.
    Over,
}

/// A final response that came instead of a 100. Dropped when it has been read.
pub(crate) struct ExpectationRefusal(Arc<Expectation>);

impl Expectation {
    /// Releases the body, unless the final response came first.
    pub(crate) fn grant(&self) {
        self.say(OriginWord::Awaited, OriginWord::Go);
    }

    /// Notes a final response. Returns `None` if the body was already released.
    pub(crate) fn refuse(self: &Arc<Self>) -> Option<ExpectationRefusal> {
        self.say(OriginWord::Awaited, OriginWord::Refused).then(|| ExpectationRefusal(Arc::clone(self)))
    }

    /// Returns the reply so far. The caller is woken when it changes.
    pub(crate) fn poll_word(&self, context: &Context<'_>) -> OriginWord {
        let mut state = self.lock();
        state.waker = Some(context.waker().clone());
        state.word
    }

    /// Changes the reply from `last` to `next`. Returns `false` if the reply was not `last`.
    fn say(&self, last: OriginWord, next: OriginWord) -> bool {
        let mut state = self.lock();
        if state.word != last {
            return false;
        }
        state.word = next;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, ExpectationState> {
        self.0.lock().ignore_poison()
    }
}

impl Drop for ExpectationRefusal {
    fn drop(&mut self) {
        self.0.say(OriginWord::Refused, OriginWord::Over);
    }
}
