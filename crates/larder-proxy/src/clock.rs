//! The wall clock, for lifetimes.

use larder_http::Timestamp;

/// Returns the time of the coarse wall clock. It lags a few milliseconds at most, and costs a tenth of the exact one.
pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::from_millis(now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000))
}
