//! Logs failing origins at `warn`, at a limited rate.
//!
//! Owns: the decision which failures are logged, and the count of those that are not. The text comes from elsewhere.
//! Invariants: the same fault of the same origin is logged at most once in [`TELL_EVERY`]. At most [`TOLD_COUNT_MAX`]
//! faults are logged in that time, whatever clients request. Cost: one lock per failure, none for a success.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use larder_http::proxy_status::ProxyError;

use crate::ground::{errors::Failure, target::Origin};

/// The faults of origins that were logged recently, to limit the rate of log lines.
#[derive(Default)]
pub(crate) struct ComplaintLog(Mutex<HashMap<OriginFault, ComplaintCount>>);

/// One kind of fault of one origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OriginFault {
    origin: String,
    error: ProxyError,
}

/// Time at which a fault of an origin was last logged, and the number of later occurrences.
struct ComplaintCount {
    at: Instant,
    /// Number of failures since `at` that were not logged.
    untold_count: u64,
}

impl ComplaintLog {
    /// Logs `failure`, if an origin is at fault and the rate limit allows.
    pub(crate) fn note(&self, failure: &Failure) {
        let Some((host, error, why)) = failure.origin_fault() else { return };
        if let Some(untold_count) = self.admit(OriginFault { origin: host.to_owned(), error }, Instant::now()) {
            let error = error.token();
            match untold_count {
                0 => tracing::warn!(origin = host, error, why, "a request to an origin failed"),
                more => {
                    tracing::warn!(origin = host, error, why, failures = more, "requests to an origin keep failing")
                }
            }
        }
    }

    /// Logs that requests wait for one of `count_max` connections to `origin`, if the rate limit allows.
    pub(crate) fn note_full(&self, origin: &Origin, count_max: usize) {
        let origin = origin.to_string();
        let fault = OriginFault { origin: origin.clone(), error: ProxyError::ConnectionLimitReached };
        if let Some(untold_count) = self.admit(fault, Instant::now()) {
            let waiting = untold_count + 1;
            tracing::warn!(
                origin,
                waiting,
                "limits.origin_connections" = count_max,
                "requests wait for a connection to an origin: raise limits.origin_connections if the origin can serve more"
            );
        }
    }

    /// Decides whether to log a fault now.
    ///
    /// Returns the number of its occurrences since it was last logged, or `None` if the rate limit forbids logging it.
    fn admit(&self, fault: OriginFault, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().ignore_poison();
        let is_recent = |told: &ComplaintCount| now.saturating_duration_since(told.at) < TELL_EVERY;
        if let Some(known) = told.get_mut(&fault) {
            if is_recent(known) {
                known.untold_count += 1;
                return None;
            }
            let untold_count = known.untold_count;
            *known = ComplaintCount { at: now, untold_count: 0 };
            return Some(untold_count);
        }
        if told.len() >= TOLD_COUNT_MAX {
            told.retain(|_, told| is_recent(told));
        }
        if told.len() >= TOLD_COUNT_MAX {
            return None;
        }
        told.insert(fault, ComplaintCount { at: now, untold_count: 0 });
        assert!(told.len() <= TOLD_COUNT_MAX, "what is remembered is bounded");
        Some(0)
    }
}

/// Minimum time between two log lines about the same fault of the same origin.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of remembered faults, and so of log lines within [`TELL_EVERY`].
const TOLD_COUNT_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(host: usize) -> OriginFault {
        OriginFault { origin: format!("origin-{host}"), error: ProxyError::ConnectionRefused }
    }

    #[test]
    fn a_fault_is_told_once_a_minute_with_how_often_it_was_met() {
        let complaints = ComplaintLog::default();
        let start = Instant::now();
        assert_eq!(complaints.admit(fault(1), start), Some(0));
        assert_eq!(complaints.admit(fault(2), start), Some(0));
        assert_eq!(complaints.admit(OriginFault { error: ProxyError::DnsError, ..fault(1) }, start), Some(0));
        for second in [1, 59] {
            assert_eq!(complaints.admit(fault(1), start + Duration::from_secs(second)), None);
        }
        assert_eq!(complaints.admit(fault(1), start + TELL_EVERY), Some(2));
        assert_eq!(complaints.admit(fault(1), start + TELL_EVERY * 2), Some(0));
    }

    #[test]
    fn clients_that_ask_for_ever_new_origins_do_not_fill_the_log() {
        let complaints = ComplaintLog::default();
        let start = Instant::now();
        let told = |from, now| (from..from + 1000).filter(|host| complaints.admit(fault(*host), now).is_some()).count();
        assert_eq!(told(0, start), TOLD_COUNT_MAX);
        assert_eq!(told(1000, start + Duration::from_secs(30)), 0);
        assert_eq!(told(2000, start + TELL_EVERY), TOLD_COUNT_MAX);
    }
}
