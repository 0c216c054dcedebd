//! Rate limits for responses to clients.

use std::{fmt, num::NonZeroU64};

use ipnet::IpNet;

use super::HostPattern;

/// A limit on the rate at which clients receive responses, like Squid's delay pools.
///
/// If several limits match the client and the host, all apply, so the slowest one decides.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// The name of the limit in logs and metrics.
    pub name: String,
    /// Networks of the clients to which the limit applies. If empty, it applies to all clients.
    pub clients: Vec<IpNet>,
    /// Hosts to which the limit applies, by the names that clients use. If empty, it applies to all hosts.
    pub hosts: Vec<HostPattern>,
    /// Maximum rate, in bytes per second. Bodies and tunneled bytes count.
    pub rate: NonZeroU64,
    /// Number of bytes that may be sent at full speed after a pause. `None`: as many as `rate` permits in one second.
    ///
    /// With more, short pages arrive at full speed. With less, the uplink is shared more evenly.
    pub burst_bytes: Option<u64>,
    /// The clients that share the rate.
    pub shared: RateSharing,
}

/// The clients that share the rate of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateSharing {
    /// All clients share one rate.
    #[default]
    Together,
    /// The clients of each configured network share one rate.
    Network,
    /// Each client address (of IPv6: each /64 network) has the full rate.
    Client,
}

impl RateLimit {
    /// Returns the error in this limit, or `None` if it is valid.
    pub fn fault(&self) -> Option<String> {
        let Self { name, rate, .. } = self;
        if rate.get() < RATE_MIN {
            return Some(format!("a rate limit must be at least {RATE_MIN} bytes per second: {name}"));
        }
        let names_none = self.shared == RateSharing::Network && self.clients.is_empty();
        names_none.then(|| format!("a rate limit for each network must name networks in `clients`: {name}"))
    }

    /// Returns whether the limit applies to a host, given in normal form.
    pub(crate) fn is_for_host(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches_normal(host))
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = match self.shared {
            RateSharing::Together => "all",
            RateSharing::Network => "each network",
            RateSharing::Client => "each client",
        };
        let (amount, unit) = in_largest_unit(self.rate.get());
        write!(f, "{}: {amount} {unit}/s for {share}", self.name)?;
        let networks: Vec<String> = self.clients.iter().map(ToString::to_string).collect();
        if networks.is_empty() { Ok(()) } else { write!(f, " of {}", networks.join(", ")) }
    }
}

/// Returns a number of bytes in the largest unit that shows it exactly.
fn in_largest_unit(bytes: u64) -> (u64, &'static str) {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let exact = units.into_iter().find(|(size, _)| bytes.is_multiple_of(*size));
    exact.map_or((bytes, "B"), |(size, name)| (bytes / size, name))
}

/// Lowest permitted rate, in bytes per second. At a lower one, clients would give up.
const RATE_MIN: u64 = 1024;
