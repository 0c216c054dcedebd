//! The destination of a request, and the addresses that are allowed.
//!
//! Owns: the identity of an origin, and the rules for addresses. Resolving and connecting are elsewhere. Invariant: an
//! address that a client chose is checked after its name was resolved, and only checked addresses are connected to. So
//! a name that resolves differently between check and connect gains nothing.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use http::{HeaderValue, Uri};
use ipnet::IpNet;

pub(crate) use larder_http::key::{host_of, path_of};

pub(crate) use super::hosts::{ODD_HOST, bare_host, is_plain_host, port_of};
use crate::ground::config::{HostSent, OriginUrl, Parent, TargetRules};

/// An origin, and how it is contacted. The pool of connections uses this as its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) https: bool,
    /// The host name in lower case, or an address. An IPv6 address has no brackets.
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// Whether the origin speaks HTTP/2 without negotiation.
    pub(crate) prior_http2: bool,
    /// Whether the configuration names the origin. The rules for targets that clients name do not apply to it.
    pub(crate) trusted: bool,
    /// The Host field to send. `None` to send the client's.
    pub(crate) host_field: Option<HeaderValue>,
    /// Whether each connection begins with a PROXY header, and so serves only one client's request.
    pub(crate) sends_proxy_header: bool,
    pub(crate) way: OriginWay,
}

/// The proxy, if any, through which an origin is contacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginWay {
    /// The origin is contacted through the parent that is configured for its host, or directly if there is none.
    Usual,
    /// The origin is contacted directly, even if its host has a parent.
    Direct,
    /// The origin is contacted through this parent.
    By(Arc<Parent>),
    /// The origin is another node of the fleet, which is contacted directly.
    Sibling,
}

impl Origin {
    /// Returns the origin for a URL in the configuration of a mirror.
    pub(crate) fn of_mirror(url: &OriginUrl) -> Self {
        Self { way: OriginWay::Usual, ..Self::of_site(url) }
    }

    /// Returns the origin for a URL in the configuration of a site.
    pub(crate) fn of_site(url: &OriginUrl) -> Self {
        Self {
            https: url.https,
            host: bare_host(&url.host).into(),
            port: url.port,
            prior_http2: url.prior_http2,
            trusted: true,
            sends_proxy_header: url.sends_proxy_header,
            way: url.parent.as_ref().map_or(OriginWay::Direct, |parent| OriginWay::By(Arc::clone(parent))),
            host_field: match &url.host_sent {
                HostSent::Client => None,
                HostSent::ByScheme if !url.https => None,
                HostSent::Named(name) => HeaderValue::try_from(name.as_str()).ok(),
                HostSent::ByScheme | HostSent::Origin => HeaderValue::try_from(url.authority()).ok(),
            },
        }
    }

    /// Returns the name that distinguishes the origin in cache keys: its URL, and the Host field if one is configured
    /// for it.
    pub(crate) fn name(&self, url: &OriginUrl) -> String {
        let scheme = if self.https { "https" } else { "http" };
        let host = self.host_field.as_ref().and_then(|host| host.to_str().ok());
        let host = host.map(|host| format!(";host={host}")).unwrap_or_default();
        format!("{scheme}://{}{}{host}", url.authority(), url.prefix)
    }

    /// Returns the name for cache keys if the Host field names another host than the URL. `None` if the URL suffices.
    pub(crate) fn name_of_another(&self, url: &OriginUrl) -> Option<String> {
        self.host_field.as_ref().filter(|host| *host != url.authority().as_str()).map(|_| self.name(url))
    }

    /// Returns the origin of a URL that a client sent. `None` if the URL has no host or an invalid port.
    pub(crate) fn of_url(url: &Uri) -> Option<Self> {
        let https = url.scheme_str() == Some("https");
        let authority = url.authority()?;
        Some(Self { https, ..Self::of_client(authority.host(), port_of(authority, https)?) })
    }

    /// Returns an origin that a client named, contacted over plain HTTP.
    pub(crate) fn of_client(host: &str, port: u16) -> Self {
        Self {
            https: false,
            host: bare_host(host).to_ascii_lowercase().into(),
            port,
            prior_http2: false,
            trusted: false,
            host_field: None,
            sends_proxy_header: false,
            way: OriginWay::Usual,
        }
    }
}

impl Hash for Origin {
    /// Hashes only host and port, which distinguish nearly all origins. A request hashes its origin twice.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.host.hash(state);
        self.port.hash(state);
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TargetRules {
    /// Checks whether clients may reach `address`. The error names the kind of address, such as "a private address".
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        let address = address.to_canonical();
        let within = |networks: &[IpNet]| is_within(networks, address);
        if within(&self.deny) {
            return Err(DENIED);
        }
        match special(address) {
            Some(what) if !within(&self.allow) => Err(what),
            _ => Ok(()),
        }
    }
}

/// Returns advice on how to allow an address that [`TargetRules::check`] refuses, to append to the reason `why`.
pub(crate) fn permission(address: IpAddr, why: &str) -> String {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    match why {
        DENIED => String::new(),
        _ => format!(": --allow-target {address}/{bits}"),
    }
}

const DENIED: &str = "an address that the operator has denied";

/// Returns whether an address is in one of the networks. IPv4 addresses match in IPv4-mapped form too.
pub(crate) fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_in = |network: &IpNet| match (network, address) {
        (IpNet::V6(network), IpAddr::V4(address)) => network.contains(&address.to_ipv6_mapped()),
        _ => network.contains(&address),
    };
    networks.iter().any(is_in)
}

/// Returns the kind of an address that is not an ordinary public one, otherwise `None`.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// Returns the kind of a special-purpose IPv4 address (RFC 6890) that could reach something local, otherwise `None`.
fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b) {
        (127, _) => Some("a loopback address"),
        (0, _) => Some("an address of this host"),
        (10, _) | (192, 168) | (172, 16..=31) => Some("a private address"),
        (100, 64..=127) => Some("a shared carrier address"),
        (169, 254) => Some("a link-local address, where clouds keep their metadata"),
        (192, 0) if c == 0 => Some("a reserved address"),
        (198, 18..=19) => Some("a benchmarking address"),
        (224..=239, _) => Some("a multicast address"),
        (240..=255, _) => Some("a reserved or broadcast address"),
        // Azure's metadata service uses this address, although it is a public one.
        (168, 63) if address == CLOUD_HOST => Some("a cloud's metadata address"),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = embedded_v4(address) {
        return special_v4(inner);
    }
    let first = address.segments()[0];
    match first {
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_unspecified() => Some("an address of this host"),
        0xfc00..=0xfdff => Some("a private address"),
        0xfe80..=0xfebf => Some("a link-local address"),
        0xfec0..=0xfeff => Some("a site-local address"),
        0xff00..=0xffff => Some("a multicast address"),
        0x5f00 => Some("an address of the network's own routing"),
        _ => special_v6_by_two(address.segments()),
    }
}

fn special_v6_by_two(segments: [u16; 8]) -> Option<&'static str> {
    match segments {
        // The network's own NAT64 translator chooses where this leads (RFC 8215).
        [0x64, 0xff9b, 1, ..] => Some("an address of the network's own translator"),
        // A Teredo relay forwards to the IPv4 address inside (RFC 4380), which may be any host's.
        [0x2001, 0, ..] => Some("an address of a Teredo tunnel"),
        [0x100, 0, 0, 0, ..] => Some("a discarded address"),
        _ => None,
    }
}

/// Returns the IPv4 address to which a translator or tunnel would deliver an IPv6 address.
///
/// These are NAT64 (64:ff9b::/96, RFC 6052), SIIT (::ffff:0:0:0/96, RFC 7915), 6to4 (2002::/16) and ISATAP (RFC 5214).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        [0, 0, 0, 0, 0xffff, 0, high, low] => Some(join(high, low)),
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(join(high, low)),
        // IPv4-compatible addresses are deprecated, but some stacks still route them. `::1` and `::` are not such
        // addresses.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(join(high, low)),
        _ => None,
    }
}

const CLOUD_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lead_inside_are_refused() {
        let rules = TargetRules::default();
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "::ffff:0:127.0.0.1",
            "2001:db8::5efe:10.0.0.1",
            "2001:db8::200:5efe:169.254.169.254",
            "2001:0:4136:e378:8000:63bf:f5ff:fffe",
            "100::1",
            "fec0::1",
            "::127.0.0.1",
        ] {
            assert!(rules.check(address.parse().unwrap()).is_err(), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_allowed() {
        let rules = TargetRules::default();
        for address in
            ["93.184.216.34", "172.32.0.1", "100.128.0.1", "168.63.129.17", "2606:2800::1", "64:ff9b::5db8:d822"]
        {
            assert!(rules.check(address.parse().unwrap()).is_ok(), "{address}");
        }
    }

    #[test]
    fn allowed_networks_open_special_addresses_and_deny_wins() {
        let rules = TargetRules {
            allow: vec!["10.0.0.0/8".parse().unwrap()],
            deny: vec!["10.9.0.0/16".parse().unwrap(), "93.0.0.0/8".parse().unwrap()],
        };
        assert!(rules.check("10.1.0.1".parse().unwrap()).is_ok());
        assert!(rules.check("::ffff:10.1.0.1".parse().unwrap()).is_ok());
        assert!(rules.check("10.9.0.1".parse().unwrap()).is_err());
        assert!(rules.check("93.1.0.1".parse().unwrap()).is_err());
        let mapped = TargetRules { allow: Vec::new(), deny: vec!["::ffff:93.0.0.0/104".parse().unwrap()] };
        for address in ["93.1.0.1", "::ffff:93.1.0.1"] {
            assert!(mapped.check(address.parse().unwrap()).is_err(), "{address}");
        }
        assert!(mapped.check("94.1.0.1".parse().unwrap()).is_ok());
    }
}
