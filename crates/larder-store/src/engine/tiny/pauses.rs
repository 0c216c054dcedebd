//! The pauses and the number of retries of writes that the device refused, see `retry`.

use std::time::Duration;

/// Pause before refused writes are retried.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of retries for one caller that waits.
pub(super) const REWRITES_MAX: u32 = 2;

/// Returns whether the time `at` has come; `None` stands for a time in the past. If the clock was set back, the pause
/// does not become longer.
pub(super) fn is_over(at: Option<Duration>, now: Duration) -> bool {
    at.is_none_or(|at| at <= now || at > now + PAUSE)
}
