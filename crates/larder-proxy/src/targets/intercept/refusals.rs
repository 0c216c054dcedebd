//! Remembers clients that refused a certificate. After a few refusals, a client's connections to that host are
//! tunneled for a while.
//!
//! Owns: the table of refusals. Invariants: one client's refusals do not affect other clients. The table is bounded.
//! When it is full, the oldest refusal of the client with the most refusals is dropped.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

/// The recent refusals of certificates, by client and host.
#[derive(Debug, Default)]
pub(super) struct ClientRefusals(Mutex<HashMap<(IpAddr, Box<str>), HostRefusals>>);

#[derive(Debug)]
struct HostRefusals {
    count: u32,
    at: Instant,
}

impl ClientRefusals {
    /// Records that a client refused a host's certificate. Returns the number of refusals by this client for this host,
    /// each at most [`LET_THROUGH_FOR`] after the one before.
    ///
    /// Returns `None` if the client already had [`REFUSAL_COUNT_MAX`] refusals, so its tunnels are no longer decrypted.
    pub(super) fn note(&self, client: IpAddr, host: &str, now: Instant) -> Option<u32> {
        let mut table = self.0.lock().ignore_poison();
        let key = (client.to_canonical(), Box::from(host));
        if !table.contains_key(&key) && table.len() >= COUNT_MAX {
            make_room(&mut table);
        }
        let refused = table.entry(key).or_insert(HostRefusals { count: 0, at: now });
        if !refused.is_recent(now) {
            refused.count = 0;
        }
        if refused.count >= REFUSAL_COUNT_MAX {
            return None;
        }
        (refused.count, refused.at) = (refused.count + 1, now);
        let count = refused.count;
        assert!(table.len() <= COUNT_MAX, "what is remembered is bounded");
        Some(count)
    }

    /// Returns whether a client recently refused a host's certificate so often that its tunnels to the host are not
    /// decrypted.
    pub(super) fn is_let_through(&self, client: IpAddr, host: &str, now: Instant) -> bool {
        let table = self.0.lock().ignore_poison();
        table
            .get(&(client.to_canonical(), Box::from(host)))
            .is_some_and(|refused| refused.count >= REFUSAL_COUNT_MAX && refused.is_recent(now))
    }
}

/// Removes the oldest entry of the client with the most entries, so that no client can displace the entries of others.
fn make_room(table: &mut HashMap<(IpAddr, Box<str>), HostRefusals>) {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    table.keys().for_each(|(client, _)| *counts.entry(*client).or_default() += 1);
    let Some(busiest) = counts.into_iter().max_by_key(|(_, count)| *count).map(|(client, _)| client) else { return };
    let of_busiest = table.iter().filter(|((client, _), _)| *client == busiest);
    let oldest = of_busiest.min_by_key(|(_, refused)| refused.at).map(|(key, _)| key.clone());
    oldest.and_then(|oldest| table.remove(&oldest));
}

impl HostRefusals {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < LET_THROUGH_FOR
    }
}

/// Number of refusals after which a client's tunnels to a host are no longer decrypted.
pub(super) const REFUSAL_COUNT_MAX: u32 = 3;
/// Time for which refusals are remembered, and for which a client's tunnels stay undecrypted after too many refusals.
pub(super) const LET_THROUGH_FOR: Duration = Duration::from_hours(1);
/// Maximum number of pairs of client and host whose refusals are remembered.
const COUNT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn refusals_by_one_client_change_nothing_for_another() {
        let refusals = ClientRefusals::default();
        let start = Instant::now();
        refusals.note(OTHER, "b.example", start);
        for count in 0..REFUSAL_COUNT_MAX {
            refusals.note(ONE, "a.example", start + Duration::from_millis(count.into()));
        }
        assert!(refusals.is_let_through(ONE, "a.example", start));
        assert!(!refusals.is_let_through(OTHER, "a.example", start));
        for host in 0..2 * COUNT_MAX {
            refusals.note(ONE, &host.to_string(), start + Duration::from_secs(1));
        }
        assert_eq!(refusals.note(OTHER, "b.example", start), Some(2), "it was not pushed out");
    }

    #[test]
    fn host_is_let_through_for_an_hour_after_three_refusals() {
        let refusals = ClientRefusals::default();
        let start = Instant::now();
        for count in 1..=3 {
            assert!(!refusals.is_let_through(ONE, "a.example", start));
            assert_eq!(refusals.note(ONE, "a.example", start), Some(count));
        }
        assert!(refusals.is_let_through(ONE, "a.example", start) && !refusals.is_let_through(ONE, "b.example", start));
        // Connections that were in progress refuse too, but that does not extend the hour.
        assert_eq!(refusals.note(ONE, "a.example", start + LET_THROUGH_FOR / 2), None);
        assert!(!refusals.is_let_through(ONE, "a.example", start + LET_THROUGH_FOR));
        assert_eq!(refusals.note(ONE, "a.example", start + LET_THROUGH_FOR), Some(1));
    }

    #[test]
    fn refusals_of_long_ago_do_not_count() {
        let refusals = ClientRefusals::default();
        let start = Instant::now();
        for hour in 0..5 {
            assert_eq!(refusals.note(ONE, "a.example", start + LET_THROUGH_FOR * hour), Some(1));
        }
    }

    #[test]
    fn table_stays_bounded_and_keeps_who_was_refused_last() {
        let refusals = ClientRefusals::default();
        let start = Instant::now();
        for host in 0..2 * COUNT_MAX {
            refusals.note(ONE, &host.to_string(), start + Duration::from_millis(host as u64));
        }
        let table = refusals.0.lock().unwrap();
        assert!(table.len() == COUNT_MAX && !table.contains_key(&(ONE, "0".into())));
        assert!(table.contains_key(&(ONE, (2 * COUNT_MAX - 1).to_string().into())));
    }
}
