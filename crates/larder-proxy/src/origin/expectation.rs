//! An expectation of 100 on its way to an origin (RFC 9110 10.1.1): the client's body waits for the origin's word.
//!
//! Owns: what the origin has said. Does not: send or read. Invariant: a body whose origin gave its final answer without
//! asking for it is never read, so nothing of it crosses the line; its connection to the origin, which owes that body, ends
//! with the response. Cost: one lock each time the body is asked for while it waits.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Waker},
};

/// What a body waits for.
#[derive(Default)]
pub(crate) struct Expectation(Mutex<ExpectationState>);

#[derive(Default)]
struct ExpectationState {
    word: OriginWord,
    waker: Option<Waker>,
}

/// What the origin has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OriginWord {
    /// Nothing.
    #[default]
    Awaited,
    /// 100, or nothing for so long that the body goes without.
    Go,
    /// Its final answer, which is being read.
    Refused,
    /// Its final answer, which has been read, or is not read any more.
    Over,
}

/// A final answer that came instead of a 100. Gone when it has been read.
pub(crate) struct ExpectationRefusal(Arc<Expectation>);

impl Expectation {
    /// Lets the body go, unless the final answer came first.
    pub(crate) fn grant(&self) {
        self.say(OriginWord::Awaited, OriginWord::Go);
    }

    /// Notes a final answer. `None`: the body has been let go.
    pub(crate) fn refuse(self: &Arc<Self>) -> Option<ExpectationRefusal> {
        self.say(OriginWord::Awaited, OriginWord::Refused).then(|| ExpectationRefusal(Arc::clone(self)))
    }

    /// Whether the body was let go.
    pub(crate) fn is_granted(&self) -> bool {
        self.lock().word == OriginWord::Go
    }

    /// What has been said so far; the caller is woken when more is.
    pub(crate) fn poll_word(&self, context: &Context<'_>) -> OriginWord {
        let mut state = self.lock();
        state.waker = Some(context.waker().clone());
        state.word
    }

    /// Says `next` if the last word is `last`; tells whether it was.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ExpectationRefusal {
    fn drop(&mut self) {
        self.0.say(OriginWord::Refused, OriginWord::Over);
    }
}
