//! The origin's responses that fill an object.

use super::{Action, Actions, OriginAsk, RunId, Tick, plan::Verdict};
use std::ops::Range;

/// Time in milliseconds after which a paused response is stopped, if another request can continue it.
const PAUSED_MILLIS_MAX: u64 = 30_000;

/// Time in milliseconds after which a response that no client wants is stopped. Until then, a client may come back.
const UNWANTED_MILLIS_MAX: u64 = 1_000;

/// A response of the origin: requested, or in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OriginRun {
    pub(super) id: RunId,
    /// Whether the head of the response has arrived.
    pub(super) is_open: bool,
    /// Whether a range was requested, not the whole body.
    pub(super) is_range: bool,
    /// Position in the body of the first byte that has not arrived.
    pub(super) next: u64,
    /// End of the bytes that the response announced. Before its head arrives, the end of the requested bytes.
    pub(super) end: u64,
    /// Number of bytes of the body that this response has brought.
    pub(super) received: u64,
    /// The time at which the paused response is stopped, if another request can continue it. `None` if it is not
    /// paused.
    pub(super) paused_until: Option<Tick>,
    /// The time at which the response is stopped because no client wants it. `None` while a client wants it.
    pub(super) unwanted_until: Option<Tick>,
}

impl OriginRun {
    /// Creates a run for a request that is about to be sent.
    pub(super) fn asked(id: RunId, ask: &OriginAsk, len: Option<u64>) -> Self {
        let (span, is_range) = match ask {
            OriginAsk::Whole => (0..len.unwrap_or(u64::MAX), false),
            OriginAsk::Range { span, .. } => (span.clone(), true),
        };
        Self { is_open: false, is_range, ..Self::open(id, span) }
    }

    /// Creates a run for a response whose head has arrived and announces `span`.
    pub(super) fn open(id: RunId, span: Range<u64>) -> Self {
        Self {
            id,
            is_open: true,
            is_range: false,
            next: span.start,
            end: span.end,
            received: 0,
            paused_until: None,
            unwanted_until: None,
        }
    }

    /// Returns whether the byte `at` is still to arrive in this response.
    pub(super) fn brings(&self, at: u64) -> bool {
        self.next <= at && at < self.end
    }

    /// Resumes or pauses the response, as `verdict` says. Sets or clears the times at which it is stopped because it is
    /// paused or unwanted.
    pub(super) fn follow(&mut self, verdict: Verdict, now: Tick, actions: &mut Actions) {
        let goes_on = match verdict {
            Verdict::Stop => return,
            Verdict::Go => true,
            Verdict::Hold => false,
            Verdict::Unwanted { goes_on } => goes_on || !self.is_open,
        };
        self.unwanted_until = match verdict {
            Verdict::Unwanted { .. } => self.unwanted_until.or(Some(now.after(UNWANTED_MILLIS_MAX))),
            _ => None,
        };
        match (goes_on, self.paused_until) {
            (true, Some(_)) => {
                self.paused_until = None;
                actions.push(Action::Resume(self.id));
            }
            (false, None) => {
                self.paused_until = Some(now.after(PAUSED_MILLIS_MAX));
                actions.push(Action::Pause(self.id));
            }
            (true, None) | (false, Some(_)) => {}
        }
    }

    /// Returns whether all bytes that the response announced have arrived.
    pub(super) fn is_all_here(&self) -> bool {
        self.is_open && self.next == self.end
    }
}

/// Counts responses of the origin that broke off, so that each repeated request waits longer than the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Retries {
    /// Number of consecutive failures without any bytes.
    failures: u8,
    /// Number of failures since a response brought at least a chunk.
    attempts: u8,
    /// Number of responses with another representation since the last bytes of this one came.
    others: u8,
    /// The time from which a request may be sent again. `None` if no request has to wait.
    pub(super) ask_at: Option<Tick>,
}

impl Retries {
    /// Records that a response broke off; `has_progressed` says whether it brought any bytes. Returns whether another
    /// request may be sent, after a wait.
    pub(super) fn fail(&mut self, now: Tick, has_progressed: bool) -> bool {
        if has_progressed {
            self.failures = 0;
        }
        let wait = RETRY_WAITS_MILLIS.get(usize::from(self.failures)).filter(|_| self.attempts < ATTEMPTS_MAX);
        self.failures += 1;
        self.attempts += 1;
        self.ask_at = wait.map(|&millis| now.after(millis));
        wait.is_some()
    }

    /// Forgets all failures, because the origin sent what was requested, or because no retry is needed any more.
    pub(super) fn forget_failures(&mut self) {
        self.failures = 0;
        self.attempts = 0;
        self.ask_at = None;
    }

    /// Records that the origin sent a representation of the resource other than this one.
    pub(super) fn see_other(&mut self) {
        self.others = self.others.saturating_add(1);
    }

    /// Records that the origin sent bytes of this representation.
    pub(super) fn see_same(&mut self) {
        self.others = 0;
    }

    /// Returns whether the origin may be asked again for this representation. No more requests are sent after three
    /// responses with another one.
    pub(super) fn may_find_same(&self) -> bool {
        self.others <= 2
    }
}

/// Waits in milliseconds before the requests that continue a response that broke off.
///
/// The first wait is short, because a connection that was cut can be reopened at once. After about two seconds, it is
/// better for the client to learn that its response broke off.
const RETRY_WAITS_MILLIS: [u64; 2] = [100, 1_500];

/// Maximum number of consecutive failed requests that each bring less than a chunk.
const ATTEMPTS_MAX: u8 = 6;

/// Counts failed reads from the store. After a failure, the origin serves the next bytes, if it can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Trouble {
    /// Number of failed reads since the last read that succeeded.
    failures: u8,
    /// The time from which the store may be read again. `None` if reads need not wait.
    pub(super) read_at: Option<Tick>,
}

impl Trouble {
    /// Records a failed read of bytes that the origin can serve. Returns how many bytes the origin serves from there
    /// on: twice as many after each failure.
    pub(super) fn avoid(&mut self, lead: u64) -> u64 {
        let doublings = u32::from(self.failures).min(32);
        self.failures = self.failures.saturating_add(1);
        lead.saturating_mul(2).saturating_mul(1 << doublings)
    }

    /// Records a failed read of bytes that the origin cannot serve. Returns whether the store may be read again after a
    /// wait.
    pub(super) fn wait(&mut self, now: Tick) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.read_at = Some(now.after(READ_WAIT_MILLIS));
        self.failures < READS_MAX
    }

    /// Forgets all failed reads, because a read succeeded, or because no client waits any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Time in milliseconds before a failed read is repeated.
const READ_WAIT_MILLIS: u64 = 1_000;

/// Maximum number of consecutive failed reads of bytes that the origin cannot serve. After that, the clients that need
/// them are disconnected.
const READS_MAX: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_brings_nothing_is_continued_twice() {
        let mut retries = Retries::default();
        let waits: Vec<_> = (0..3).map(|_| (retries.fail(Tick(5), false), retries.ask_at)).collect();
        assert_eq!(waits, [(true, Some(Tick(105))), (true, Some(Tick(1_505))), (false, None)]);
        retries.forget_failures();
        assert!(retries.fail(Tick(9), false));
    }

    #[test]
    fn run_that_brings_little_each_time_is_not_continued_for_ever() {
        let mut retries = Retries::default();
        let count = (0..100).take_while(|_| retries.fail(Tick(0), true)).count();
        assert_eq!(count, usize::from(ATTEMPTS_MAX));
    }

    #[test]
    fn representation_is_looked_for_twice_after_another_came() {
        let mut retries = Retries::default();
        let found: Vec<bool> = (0..4)
            .map(|_| {
                let may_find = retries.may_find_same();
                retries.see_other();
                may_find
            })
            .collect();
        assert_eq!(found, [true, true, true, false]);
        retries.see_same();
        assert!(retries.may_find_same());
    }

    #[test]
    fn origin_serves_twice_as_much_after_each_trouble() {
        let mut trouble = Trouble::default();
        assert_eq!([trouble.avoid(4), trouble.avoid(4), trouble.avoid(4)], [8, 16, 32]);
        trouble.forget();
        assert_eq!(trouble.avoid(4), 8);
    }

    #[test]
    fn read_is_repeated_three_times() {
        let mut trouble = Trouble::default();
        assert_eq!([0; 4].map(|_| trouble.wait(Tick(0))), [true, true, true, false]);
    }
}
