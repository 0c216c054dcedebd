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

/// Holds a client's body back until the origin has replied to `Expect: 100-continue`.
#[derive(Default)]
pub(crate) struct Expectation(Mutex<ExpectationState>);

#[derive(Default)]
struct ExpectationState {
    word: OriginWord,
    waker: Option<Waker>,
}

/// The origin's reply to `Expect: 100-continue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OriginWord {
    /// The origin has not replied yet.
    #[default]
    Awaited,
    /// The body may be sent: a 100 (Continue) arrived, or the origin was silent for so long that nobody waits for one.
    Go,
    /// The origin sent its final response in place of a 100, and the response is being read.
    Refused,
    /// The origin's final response, sent in place of a 100, was read or abandoned.
    Over,
}

/// Marks a final response that came in place of a 100. Dropped when the response was read or abandoned.
pub(crate) struct ExpectationRefusal(Arc<Expectation>);

impl Expectation {
    /// Lets the body be sent, unless a final response came first.
    pub(crate) fn grant(&self) {
        self.say(OriginWord::Awaited, OriginWord::Go);
    }

    /// Records that a final response came. Returns `None` if the body may be sent already.
    pub(crate) fn refuse(self: &Arc<Self>) -> Option<ExpectationRefusal> {
        self.say(OriginWord::Awaited, OriginWord::Refused).then(|| ExpectationRefusal(Arc::clone(self)))
    }

    /// Returns the origin's reply so far, and wakes the caller when it changes.
    pub(crate) fn poll_word(&self, context: &Context<'_>) -> OriginWord {
        let mut state = self.lock();
        state.waker = Some(context.waker().clone());
        state.word
    }

    /// Changes the reply to `next` if it is `last` at present. Returns whether it was.
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
