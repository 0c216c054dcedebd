//! The pauses and the number of retries of writes that the device refused, see `retry`.

use std::time::Duration;

/// Pause between retries.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Number of retries for one waiting caller.
pub(super) const REWRITES_MAX: u32 = 2;

/// Returns whether the time `at` has come. A clock that is set back does not prolong the pause.
pub(super) fn is_over(at: Option<Duration>, now: Duration) -> bool {
    at.is_none_or(|at| at <= now || at > now + PAUSE)
}
