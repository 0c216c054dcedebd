//! Hosts whose certificates clients refused: after some refusals they are let through as tunnels for a while.
//!
//! Owns: the table of them. Invariant: it is bounded; when it is full, the host that was refused longest ago makes room.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Hosts that were refused of late.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<Box<str>, Refused>>);

#[derive(Debug)]
struct Refused {
    count: u32,
    at: Instant,
}

impl Refusals {
    /// Notes a refusal; returns how many there were within [`LET_THROUGH_FOR`], or `None` if there were enough before.
    pub(super) fn note(&self, host: &str, now: Instant) -> Option<u32> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !table.contains_key(host) && table.len() >= HOST_COUNT_MAX {
            let oldest = table.iter().min_by_key(|(_, refused)| refused.at).map(|(host, _)| host.clone());
            oldest.and_then(|oldest| table.remove(&oldest));
        }
        let refused = table.entry(host.into()).or_insert(Refused { count: 0, at: now });
        if !refused.is_recent(now) {
            refused.count = 0;
        }
        if refused.count >= REFUSAL_COUNT_MAX {
            return None;
        }
        (refused.count, refused.at) = (refused.count + 1, now);
        let count = refused.count;
        assert!(table.len() <= HOST_COUNT_MAX, "what is remembered is bounded");
        Some(count)
    }

    /// Whether a host was refused so often that it is tunnelled.
    pub(super) fn is_let_through(&self, host: &str, now: Instant) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(host).is_some_and(|refused| refused.count >= REFUSAL_COUNT_MAX && refused.is_recent(now))
    }
}

impl Refused {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < LET_THROUGH_FOR
    }
}

/// Refusals after which a host is let through.
pub(super) const REFUSAL_COUNT_MAX: u32 = 3;
/// For how long, and for how long refusals are remembered.
pub(super) const LET_THROUGH_FOR: Duration = Duration::from_hours(1);
/// Hosts that are remembered.
const HOST_COUNT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_let_through_for_an_hour_after_three_refusals() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        for count in 1..=3 {
            assert!(!refusals.is_let_through("a.example", start));
            assert_eq!(refusals.note("a.example", start), Some(count));
        }
        assert!(refusals.is_let_through("a.example", start) && !refusals.is_let_through("b.example", start));
        // Connections that were in progress refuse too; that makes the hour no longer.
        assert_eq!(refusals.note("a.example", start + LET_THROUGH_FOR / 2), None);
        assert!(!refusals.is_let_through("a.example", start + LET_THROUGH_FOR));
        assert_eq!(refusals.note("a.example", start + LET_THROUGH_FOR), Some(1));
    }

    #[test]
    fn refusals_of_long_ago_do_not_count() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        for hour in 0..5 {
            assert_eq!(refusals.note("a.example", start + LET_THROUGH_FOR * hour), Some(1));
        }
    }

    #[test]
    fn table_stays_bounded_and_keeps_who_was_refused_last() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        for host in 0..2 * HOST_COUNT_MAX {
            refusals.note(&host.to_string(), start + Duration::from_millis(host as u64));
        }
        let table = refusals.0.lock().unwrap();
        assert!(table.len() == HOST_COUNT_MAX && !table.contains_key("0"));
        assert!(table.contains_key(&*(2 * HOST_COUNT_MAX - 1).to_string()));
    }
}
