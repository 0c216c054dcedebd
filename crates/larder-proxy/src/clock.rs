//! The time of day, for lifetimes.

use larder_http::Timestamp;

/// Returns the wall clock, coarse: a few milliseconds behind at most, at a tenth of the cost.
pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::from_millis(now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000))
}
