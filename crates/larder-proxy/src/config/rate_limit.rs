//! Rate limits for responses to clients.

use std::{fmt, num::NonZeroU64};

use ipnet::IpNet;

use super::HostPattern;

/// A limit on the rate at which clients receive responses, like Squid's delay pools.
///
/// All limits that match the client and the host apply, so the slowest one decides.
#[derive(Clone, Debug)]
pub struct RateLimit {
    /// Name in logs and metrics.
    pub name: String,
    /// Networks of the clients that the limit applies to. If empty, it applies to all clients.
    pub clients: Vec<IpNet>,
    /// Hosts that the limit applies to, by the names that clients use. If empty, it applies to all hosts.
    pub hosts: Vec<HostPattern>,
    /// Bytes per second, counting bodies and tunneled bytes.
    pub rate: NonZeroU64,
    /// Bytes that may be sent at full speed after a pause. With more, short pages arrive at full speed; with less, the
    /// uplink is shared more evenly. `None`: the bytes of one second.
    pub burst_bytes: Option<u64>,
    /// The clients that share the rate.
    pub shared: RateSharing,
}

/// The clients that share a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateSharing {
    /// All clients together.
    #[default]
    Together,
    /// The clients of each listed network together.
    Network,
    /// Each client address alone, or each network of 64 bits for IPv6.
    Client,
}

impl RateLimit {
    /// Returns the error in the limit, if there is one.
    pub fn fault(&self) -> Option<String> {
        let Self { name, rate, .. } = self;
        if rate.get() < RATE_MIN {
            return Some(format!("a rate limit must be at least {RATE_MIN} bytes per second: {name}"));
        }
        let names_none = self.shared == RateSharing::Network && self.clients.is_empty();
        names_none.then(|| format!("a rate limit for each network must name networks in `clients`: {name}"))
    }

    /// Returns whether the limit applies to this host, given in normal form.
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

/// Lowest rate. At a lower one, clients would give up.
const RATE_MIN: u64 = 1024;
