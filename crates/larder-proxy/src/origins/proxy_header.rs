//! Writes the header of the PROXY protocol, version 2, that names a client to an origin.
//!
//! Owns: the bytes of the header, and the two ends of the client's connection. `door::proxied` reads such headers.
//! Invariant: a connection with a header carries one request, of the client that the header names. `pool` sees to that.
//! Source: the PROXY protocol's specification, 2.2.

use std::net::{IpAddr, SocketAddr};

use ppp::v2::{Addresses, Builder, Command, Protocol, Version};

/// The addresses of a client's connection, as an origin learns them from a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientEnds {
    /// The address of the client. The port is 0 if a trusted proxy named only an address.
    pub(crate) source: SocketAddr,
    /// The address of the listener that the client connected to.
    pub(crate) destination: SocketAddr,
}

/// Encodes a PROXY header. `None` stands for a connection of this proxy itself, such as a health check.
pub(super) fn encode(ends: Option<ClientEnds>) -> Vec<u8> {
    let header = match ends {
        Some(ends) => Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, ends.in_one_family()),
        None => Builder::with_addresses(Version::Two | Command::Local, Protocol::Unspecified, Addresses::Unspecified),
    };
    header.build().expect("two addresses are shorter than the longest header")
}

impl ClientEnds {
    /// Returns both addresses in the same family, which the protocol requires.
    ///
    /// For an IPv4 client of an IPv6 wildcard listener, both become IPv4: origins compare the client with lists of IPv4
    /// addresses.
    fn in_one_family(self) -> Addresses {
        let Self { source, destination } = self;
        let from = source.ip().to_canonical();
        let to = destination.ip().to_canonical();
        let ends = match (from, to) {
            (IpAddr::V4(_), IpAddr::V6(to)) if to.is_unspecified() => (from, IpAddr::from([0, 0, 0, 0])),
            (IpAddr::V6(_), IpAddr::V4(to)) if to.is_unspecified() => (from, IpAddr::from([0; 16])),
            (IpAddr::V4(from), IpAddr::V6(_)) => (from.to_ipv6_mapped().into(), to),
            (IpAddr::V6(_), IpAddr::V4(to)) => (from, to.to_ipv6_mapped().into()),
            same => same,
        };
        let with_port = |address, port| SocketAddr::new(address, port);
        (with_port(ends.0, source.port()), with_port(ends.1, destination.port())).into()
    }
}

#[cfg(test)]
mod tests {
    use ppp::v2::Header;

    use super::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn ends(source: &str, destination: &str) -> Option<ClientEnds> {
        Some(ClientEnds { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
    }

    #[test]
    fn header_has_the_bytes_of_the_specification() {
        let header = encode(ends("192.0.2.1:56324", "198.51.100.1:443"));
        let addresses = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 1, 0xbb];
        assert_eq!(header, [SIGNATURE, &[0x21, 0x11, 0, 12], &addresses].concat());
        assert_eq!(encode(None), [SIGNATURE, &[0x20, 0, 0, 0]].concat());
    }

    #[test]
    fn both_ends_are_of_one_family() {
        for (source, destination, expected) in [
            ("192.0.2.1:1", "198.51.100.1:2", ["192.0.2.1:1", "198.51.100.1:2"]),
            ("192.0.2.1:1", "[::]:2", ["192.0.2.1:1", "0.0.0.0:2"]),
            ("[::ffff:192.0.2.1]:1", "[::]:2", ["192.0.2.1:1", "0.0.0.0:2"]),
            ("192.0.2.1:1", "[2001:db8::2]:2", ["[::ffff:192.0.2.1]:1", "[2001:db8::2]:2"]),
            ("[2001:db8::1]:0", "198.51.100.1:2", ["[2001:db8::1]:0", "[::ffff:198.51.100.1]:2"]),
            ("[2001:db8::1]:1", "0.0.0.0:2", ["[2001:db8::1]:1", "[::]:2"]),
        ] {
            let bytes = encode(ends(source, destination));
            let [from, to] = expected.map(|end| end.parse::<SocketAddr>().unwrap());
            let header = Header::try_from(bytes.as_slice()).unwrap();
            assert_eq!(header.addresses, (from, to).into(), "{source} {destination}");
        }
    }
}
