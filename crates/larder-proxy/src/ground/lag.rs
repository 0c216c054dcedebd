//! Refuses a share of the requests while the processor cannot keep up.
//!
//! Owns: the lag of one worker's thread, which is the time that a ready task waits there until it runs, and the share
//! of requests to refuse. `road::exchange` asks for each request that memory does not answer. Without refusals, each
//! request of an overloaded proxy waits behind all others until its client gives up, so nearly all work is in vain.
//!
//! Invariants: nothing is refused unless the least lag of five windows in a row was above the limit. So neither a pause
//! nor a burst that the proxy can work off refuses anything. Refusals that do not shorten the lag end: a refusal costs
//! half as much as a short response, so refusing may be in vain. Cost: one read of the clock per request, and one
//! spawned task per 10 ms; none without requests.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use larder_device::IgnorePoison;

/// The lag of one worker's thread, which is how long ready tasks wait for it, and the share of requests that it
/// refuses.
#[derive(Debug, Default)]
pub(crate) struct ThreadLag(Mutex<LagState>);

#[derive(Debug, Default)]
struct LagState {
    /// Time at which the current probe was sent: a task that measures how long it waits for the thread. `None` if no
    /// probe is under way.
    probe: Option<Instant>,
    /// Time at which the last probe ran: a task that measures how long it waits for the thread.
    seen: Option<Instant>,
    window: Option<Window>,
    /// Number of consecutive late windows: those whose least lag was above the limit.
    late_windows: u32,
    /// The share of requests to refuse, in 256ths.
    share: u32,
    /// Number of consecutive late windows for which the share was already the largest.
    vain_windows: u32,
    /// Time before which nothing is refused, because refusals did not shorten the lag.
    pause_until: Option<Instant>,
    /// The sum of `share` over the requests since the last refusal. At [`WHOLE`], a request is refused.
    due: u32,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    least: Duration,
}

impl ThreadLag {
    /// Returns whether to refuse a request, because the thread's lag is longer than `limit`. Zero never refuses.
    ///
    /// Must be called on the thread that runs the requests.
    pub(crate) fn refuses(self: &Arc<Self>, limit: Duration) -> bool {
        if limit.is_zero() {
            return false;
        }
        let now = Instant::now();
        let mut state = self.0.lock().ignore_poison();
        if state.begins_probe(now) {
            let lag = Arc::clone(self);
            // The runtime polls it after all tasks that are ready now.
            tokio::spawn(async move { lag.0.lock().ignore_poison().note(now, Instant::now(), limit) });
        }
        state.is_refused()
    }
}

impl LagState {
    /// Returns whether to send a probe now.
    fn begins_probe(&mut self, now: Instant) -> bool {
        if self.probe.is_some() || self.seen.is_some_and(|seen| now < seen + PROBE_INTERVAL) {
            return false;
        }
        if self.seen.is_some_and(|seen| now > seen + MEMORY) {
            // What was seen that long ago says nothing about now.
            *self = Self::default();
        }
        self.probe = Some(now);
        true
    }

    /// Records that a probe, which was sent at `sent`, ran at `now`. The time between is the thread's lag.
    fn note(&mut self, sent: Instant, now: Instant, limit: Duration) {
        let lag = now.saturating_duration_since(sent);
        self.probe = None;
        self.seen = Some(now);
        let window = self.window.get_or_insert(Window { began: sent, least: lag });
        window.least = window.least.min(lag);
        let least = window.least;
        if now < window.began + WINDOW {
            return;
        }
        self.window = None;
        self.late_windows = if least > limit { self.late_windows + 1 } else { 0 };
        if self.pause_until.is_some_and(|until| now < until) {
            return;
        }
        if self.late_windows >= LATE_WINDOWS {
            self.refuse_more(now);
        } else if least < limit / 2 {
            self.share = self.share.saturating_sub(SHARE_STEP / 2);
        }
    }

    /// Reacts to another window with too much lag: increases the share of refused requests, or pauses if the largest
    /// share does not help.
    fn refuse_more(&mut self, now: Instant) {
        self.vain_windows = if self.share == SHARE_MAX { self.vain_windows + 1 } else { 0 };
        self.share = (self.share + SHARE_STEP).min(SHARE_MAX);
        if self.vain_windows == VAIN_WINDOWS {
            (self.share, self.vain_windows) = (0, 0);
            self.pause_until = Some(now + PAUSE);
        }
    }

    fn is_refused(&mut self) -> bool {
        self.due += self.share;
        let is_refused = self.due >= WHOLE;
        if is_refused {
            self.due -= WHOLE;
        }
        is_refused
    }
}

/// Minimum time between two probes, the tasks that measure the lag.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Length of a window. Only the least lag within it counts: one ready task that ran at once shows that the thread keeps
/// up.
const WINDOW: Duration = Duration::from_millis(100);
/// Number of consecutive windows with too much lag after which requests are refused.
const LATE_WINDOWS: u32 = 5;
/// Time without a probe after which the results of earlier probes are forgotten.
const MEMORY: Duration = Duration::from_secs(1);
/// Number of consecutive windows in which not even the largest share shortened the lag. After them, nothing is refused
/// for [`PAUSE`].
const VAIN_WINDOWS: u32 = 10;
/// Time without refusals, after refusals did not shorten the lag.
const PAUSE: Duration = Duration::from_secs(10);
/// All requests, in the unit of [`LagState::share`].
const WHOLE: u32 = 256;
/// Largest share of requests to refuse. The remaining requests show whether the proxy keeps up again.
const SHARE_MAX: u32 = WHOLE - WHOLE / 16;
/// Growth of the share of refused requests per window with too much lag. The share falls by half as much per window
/// with little lag.
const SHARE_STEP: u32 = WHOLE / 8;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    /// Sends probes for `time`, each of which returns after `lag`. Returns the share of further requests that is
    /// refused then.
    fn share_after(state: &mut LagState, now: &mut Instant, time: Duration, lag: Duration) -> f64 {
        let end = *now + time;
        while *now < end {
            let sent = *now;
            assert!(state.begins_probe(sent));
            assert!(!state.begins_probe(sent), "one probe at a time");
            state.note(sent, sent + lag, LIMIT);
            *now = sent + lag + PROBE_INTERVAL;
        }
        let refused = (0..1000).filter(|_| state.is_refused()).count();
        refused as f64 / 1000.0
    }

    #[test]
    fn share_grows_while_the_lag_stays_long_and_ends_after_it() {
        let mut state = LagState::default();
        let mut now = Instant::now();
        let mut after =
            |millis, lag| share_after(&mut state, &mut now, Duration::from_millis(millis), Duration::from_millis(lag));
        assert_eq!(after(2000, 40), 0.0, "a lag below the limit refuses nothing");
        assert_eq!(after(500, 60), 0.0, "nor does one that was not long enough");
        let early = after(700, 60);
        assert!(early > 0.1 && early < 0.9, "{early}");
        let late = after(500, 60);
        assert!(late > 0.9 && late < 1.0, "{late}");
        let held = after(2000, 30);
        assert!((held - late).abs() < 0.01, "between half the limit and the limit the share stays: {held}");
        assert_eq!(after(5000, 1), 0.0);
    }

    #[test]
    fn refusals_that_shorten_nothing_pause() {
        let mut state = LagState::default();
        let mut now = Instant::now();
        let mut refusing = 0;
        for _ in 0..300 {
            let share = share_after(&mut state, &mut now, Duration::from_millis(200), LIMIT * 2);
            refusing += i32::from(share > 0.0);
        }
        assert!((20..80).contains(&refusing), "{refusing} of 300, with a lag that stays");
    }

    #[test]
    fn lag_of_the_past_refuses_nothing_now() {
        let mut state = LagState::default();
        let mut now = Instant::now();
        assert!(share_after(&mut state, &mut now, Duration::from_secs(1), LIMIT * 2) > 0.0);
        now += MEMORY * 2;
        assert!(state.begins_probe(now));
        assert!((0..1000).all(|_| !state.is_refused()));
    }

    #[test]
    fn one_quick_probe_in_each_window_shows_that_the_thread_keeps_up() {
        let mut state = LagState::default();
        let mut now = Instant::now();
        for _ in 0..50 {
            let slow = share_after(&mut state, &mut now, Duration::from_millis(60), Duration::from_millis(60));
            assert_eq!(slow, 0.0);
            let quick = share_after(&mut state, &mut now, Duration::from_millis(60), Duration::from_millis(1));
            assert_eq!(quick, 0.0);
        }
    }
}
