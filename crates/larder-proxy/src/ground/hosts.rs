//! Hosts and ports as URLs contain them.
//!
//! Only text: names are resolved in `dns`, and the rules for addresses are in `target`.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::uri::Authority;

/// Returns whether a host is a name, or an address in standard form (RFC 3986 3.2.2).
///
/// The system's resolver also accepts `127.1`, `2130706433`, `0x7f000001` and `::1%lo` as addresses. Block lists of
/// names, above all those of other proxies, do not recognize these forms, so they are refused.
pub(crate) fn is_plain_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    let is_number = !last.is_empty() && last.bytes().all(|octet| octet.is_ascii_digit());
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number =
        is_number || hexadecimal.is_some_and(|digits| digits.bytes().all(|octet| octet.is_ascii_hexdigit()));
    !is_number || host.parse::<Ipv4Addr>().is_ok()
}

/// The error for a client whose host is in a form that [`is_plain_host`] refuses.
pub(crate) const ODD_HOST: &str = "its host is an address in an invalid form";

/// Returns the port of an authority, or the scheme's default. `None` if the port is invalid.
///
/// The `http` crate treats a port number that is too large as if there were none.
pub(crate) fn port_of(authority: &Authority, https: bool) -> Option<u16> {
    let after_host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, rest)| rest);
    match after_host.get(authority.host().len()..)? {
        "" | ":" => Some(if https { 443 } else { 80 }),
        named => named.strip_prefix(':')?.parse().ok().filter(|port| *port != 0),
    }
}

/// Returns a host without the brackets that URIs put around IPv6 addresses.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_from_1_to_65535_or_the_schemes_own() {
        let port = |authority: &str| authority.parse().ok().and_then(|authority| port_of(&authority, false));
        assert_eq!(["a", "a:", "a:81", "[::1]:81", "[::1]"].map(port), [80, 80, 81, 81, 80].map(Some));
        assert_eq!(["a:0", "a:70000", "a:99999999999"].map(port), [None; 3]);
    }

    #[test]
    fn hosts_are_names_or_addresses_as_they_are_written() {
        for host in ["a", "a.example", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "1.example", "0x7f.example", "xn--a"]
        {
            assert!(is_plain_host(host), "{host}");
        }
        for host in [
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.0x1",
            "0177.0.0.1",
            "127.0.0.1.",
            "127.0.0.256",
            "1.2.3.4.5",
            "example.1",
            "a.0x",
            "[::1%lo]",
            "[::1%25lo]",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            "[v1.a]",
            "[::1",
        ] {
            assert!(!is_plain_host(host), "{host}");
        }
    }
}
