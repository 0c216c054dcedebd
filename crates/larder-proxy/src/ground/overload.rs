//! Reasons to refuse a client for lack of room, and the counts by client address.
//!
//! Owns: the counts by address. `road::exchange` refuses requests and `run::threads` connections, each in one
//! place, before anything is taken. Invariant: a count ends with what it counts. Cost: without a limit by address,
//! none; with one, a short lock for each connection, or for each request that memory does not answer at once.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex},
};

use larder_device::IgnorePoison;

use crate::ground::exchange_budget::ExchangePlace;

/// The limit that was reached, so that the proxy refuses a connection or request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Too many client connections are open.
    Connections,
    /// Too many connections from the client's address are open.
    ClientConnections,
    /// Too many requests wait for a response.
    Waiting,
    /// Too many requests from the client's address are in progress.
    ClientRequests,
    /// No memory is left for the connection or request.
    Memory,
    /// Too many requests wait for a connection to the request's origin.
    Origin,
    /// Ready requests wait too long for the processor.
    Processor,
}

impl Shortage {
    /// All limits, in the order of their discriminants.
    pub const ALL: [Self; 7] = [
        Self::Connections,
        Self::ClientConnections,
        Self::Waiting,
        Self::ClientRequests,
        Self::Memory,
        Self::Origin,
        Self::Processor,
    ];

    /// Returns the name of the limit for a label in metrics.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ClientConnections => "client-connections",
            Self::Waiting => "waiting",
            Self::ClientRequests => "client-requests",
            Self::Memory => "memory",
            Self::Origin => "origin-connections",
            Self::Processor => "processor",
        }
    }
}

/// The current number of connections or of requests, by client address.
#[derive(Debug, Default)]
pub(crate) struct AddressCounts(Mutex<HashMap<IpAddr, usize>>);

/// One connection or request of a client address, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct AddressCount {
    address: IpAddr,
    counts: Arc<AddressCounts>,
}

/// The reservations of an exchange, kept until its client has the response.
pub(crate) struct ExchangeRoom {
    pub(crate) place: ExchangePlace,
    /// The request's share of the limit for its client address. `None` without such a limit.
    pub(crate) _of_client: Option<AddressCount>,
}

impl AddressCounts {
    /// Counts a connection or request of a client, or returns `None` if the client already has `count_max`.
    ///
    /// All addresses of an IPv6 /64 network count as one client, because a host can use all of them.
    pub(crate) fn take(self: &Arc<Self>, client: IpAddr, count_max: usize) -> Option<AddressCount> {
        let address = client_network(client);
        let mut counts = self.0.lock().ignore_poison();
        let count = counts.entry(address).or_default();
        if *count >= count_max {
            return None;
        }
        *count += 1;
        Some(AddressCount { address, counts: Arc::clone(self) })
    }
}

impl Drop for AddressCount {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().ignore_poison();
        let Some(count) = counts.get_mut(&self.address) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.address);
        }
    }
}

/// Returns an IPv4 address unchanged, and for an IPv6 address the first one of its /64 network.
fn client_network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & u128::MAX << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn client_has_no_more_than_its_limit_and_others_are_not_concerned() {
        let counts = Arc::new(AddressCounts::default());
        let first = counts.take(address("192.0.2.1"), 2).unwrap();
        let _second = counts.take(address("::ffff:192.0.2.1"), 2).unwrap();
        assert!(counts.take(address("192.0.2.1"), 2).is_none());
        let other = counts.take(address("192.0.2.2"), 2);
        assert!(other.is_some());
        drop((first, other));
        assert!(counts.take(address("192.0.2.1"), 2).is_some());
        assert_eq!(counts.0.lock().unwrap().len(), 1, "clients that have nothing are forgotten");
    }

    #[test]
    fn network_of_ipv6_is_one_client() {
        let counts = Arc::new(AddressCounts::default());
        let _first = counts.take(address("2001:db8::1"), 1).unwrap();
        assert!(counts.take(address("2001:db8::ffff:0:0:2"), 1).is_none());
        assert!(counts.take(address("2001:db8:0:1::1"), 1).is_some());
    }
}
