//! The wall clock, for lifetimes and for the Date of responses.

use std::cell::RefCell;

use http::HeaderValue;
use larder_http::{Timestamp, date::format_http_date};

/// Returns the time of the coarse wall clock. It lags by a few milliseconds at most. Reading the exact clock takes ten
/// times longer.
pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp::from_millis(now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000))
}

/// Returns the current time as the value of a Date field. The text is formatted once a second.
pub(crate) fn date() -> HeaderValue {
    thread_local! {
        static FORMATTED: RefCell<(i64, HeaderValue)> = const { RefCell::new((i64::MIN, HeaderValue::from_static(""))) };
    }
    let now = now();
    FORMATTED.with_borrow_mut(|(second, date)| {
        if *second != now.as_secs() {
            (*second, *date) = (now.as_secs(), format_http_date(now));
        }
        date.clone()
    })
}
