//! The fields in which proxies name their clients: X-Forwarded-For, its relatives, and Forwarded (RFC 7239).
//!
//! Owns: adding the address that a request came from, for origins, and finding the client that trusted proxies name.
//! Invariant: nothing that a client says about itself is believed. Clients write their members at the front of the
//! list, and proxies append theirs. So the list is read from its end, and the first address that does not belong to a
//! trusted proxy is the client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};
use larder_http::steps;

use crate::ground::{
    config::{ClientField, Fleet},
    target::is_within,
};

/// The address 0.0.0.0, in place of the address of a client that a trusted proxy names in an unreadable form. A list of
/// networks permits such a client only if one of its networks contains 0.0.0.0, as `0.0.0.0/0` and `::/0` do.
pub(crate) const UNKNOWN_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Returns the client of a request that came from `peer`, as the trusted proxies name it.
///
/// A list member without an address (`unknown`, an obfuscated name, or a malformed one) ends the search: the client is
/// then [`UNKNOWN_CLIENT`]. If such a member were skipped, or if the nearest proxy counted as the client, a client
/// could get the rights of a proxy by sending such a member.
pub(crate) fn client_of(peer: IpAddr, fleet: &Fleet, fields: &HeaderMap) -> IpAddr {
    let name = match fleet.client_field {
        ClientField::XForwardedFor => &X_FORWARDED_FOR,
        ClientField::Forwarded => &FORWARDED,
    };
    // Read as octets, because a line that is not ASCII must not be ignored.
    let mut members = fields.get_all(name).iter().rev().flat_map(|line| members_from_end(line.as_bytes()));
    let mut client = peer;
    while is_within(&fleet.trusted_proxies, client) {
        let Some(member) = members.next() else { break };
        let node = match fleet.client_field {
            ClientField::XForwardedFor => Some(member),
            ClientField::Forwarded => forwarded_for(member),
        };
        let Some(before) = node.and_then(address_of) else { return UNKNOWN_CLIENT };
        client = before;
    }
    client
}

/// Returns the members of a list, the last first. A comma within quotes does not separate members.
fn members_from_end(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    steps::take(list.len());
    let mut is_quoted = false;
    let parts = list.rsplit(move |octet| {
        is_quoted ^= *octet == b'"';
        *octet == b',' && !is_quoted
    });
    parts.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Returns the value of `for` in a member of a Forwarded field.
///
/// `None` if there is none, or if programs may read the member differently: if it repeats `for`, has an open quote, or
/// an escape, which no address needs.
fn forwarded_for(member: &[u8]) -> Option<&[u8]> {
    steps::take(member.len());
    let quote_count = member.iter().filter(|octet| **octet == b'"').count();
    if !quote_count.is_multiple_of(2) || member.contains(&b'\\') {
        return None;
    }
    let mut is_quoted = false;
    let pairs = member.split(move |octet| {
        is_quoted ^= *octet == b'"';
        *octet == b';' && !is_quoted
    });
    let mut nodes = pairs.filter_map(|pair| {
        let (name, value) = pair.split_at(pair.iter().position(|octet| *octet == b'=')?);
        name.trim_ascii().eq_ignore_ascii_case(b"for").then(|| value[1..].trim_ascii())
    });
    let node = nodes.next().filter(|_| nodes.next().is_none())?;
    Some(node.strip_prefix(b"\"").and_then(|node| node.strip_suffix(b"\"")).unwrap_or(node))
}

/// Parses an address, with or without a port: `192.0.2.1:80`, `2001:db8::1` or `[2001:db8::1]:80`.
fn address_of(node: &[u8]) -> Option<IpAddr> {
    let node = str::from_utf8(node).ok()?;
    let bare = node.strip_prefix('[').and_then(|node| node.strip_suffix(']')).unwrap_or(node);
    let address = bare.parse().ok().or_else(|| Some(node.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
}

/// The facts in forwarding fields for an origin: the peer that sent a request, and the scheme and host of its target.
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a HeaderValue,
    /// Whether the peer is a trusted proxy. Its own fields about scheme and host are then kept.
    pub(crate) is_by_proxy: bool,
}

impl ForwardedRequest<'_> {
    /// Appends the peer to X-Forwarded-For, and sets X-Forwarded-Proto and X-Forwarded-Host.
    pub(crate) fn append_x_forwarded(&self, fields: &mut HeaderMap) {
        let peer = self.peer.to_canonical().to_string();
        // All lines are joined into one, because some programs read only the first or the last line.
        let before = fields.get_all(&X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty());
        let nodes: Vec<&[u8]> = before.chain([peer.as_bytes()]).collect();
        if let Ok(nodes) = HeaderValue::try_from(nodes.join(&b", "[..])) {
            fields.insert(X_FORWARDED_FOR, nodes);
        }
        let scheme = HeaderValue::try_from(self.scheme).ok();
        let related = [(X_FORWARDED_PROTO, scheme), (X_FORWARDED_HOST, Some(self.host.clone()))];
        for (name, value) in related {
            if let Some(value) = value.filter(|_| !self.is_by_proxy || !fields.contains_key(&name)) {
                fields.insert(name, value);
            }
        }
    }

    /// Appends a member for this request to the Forwarded field.
    pub(crate) fn append_forwarded(&self, fields: &mut HeaderMap) {
        let node = match self.peer.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("\"[{address}]\""),
        };
        let Ok(host) = self.host.to_str() else { return };
        // A host with a port is not a token, so it needs quotes. It was checked and needs no escapes.
        let member = format!("for={node};host=\"{host}\";proto={}", self.scheme);
        if let Ok(member) = HeaderValue::try_from(member) {
            fields.append(FORWARDED, member);
        }
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a client that passes for the proxy in front of it, whose network may be allowed more.
    #[test]
    fn octet_beyond_ascii_in_a_list_hides_no_address_after_it() {
        let [trusted, client]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [192, 0, 2, 1].into()];
        let fleet = Fleet { trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()], ..Fleet::default() };
        for before in [&b"\xff"[..], b"10.0.0.2, \xc3\xa4", b"\"\xff, 10.0.0.2"] {
            let mut fields = HeaderMap::new();
            let line = [before, b", 192.0.2.1"].concat();
            fields.append("x-forwarded-for", HeaderValue::from_bytes(&line).unwrap());
            assert_eq!(client_of(trusted, &fleet, &fields), client, "{}", before.escape_ascii());
        }
    }

    #[test]
    fn client_scheme_and_host_are_told_behind_what_was_there() {
        let host = HeaderValue::from_static("a.example:81");
        let told =
            ForwardedRequest { peer: "2001:db8::1".parse().unwrap(), scheme: "https", host: &host, is_by_proxy: false };
        let mut fields = HeaderMap::new();
        fields.append("x-forwarded-for", HeaderValue::from_static("192.0.2.1, 192.0.2.2"));
        fields.append("x-forwarded-for", HeaderValue::from_static("192.0.2.3"));
        fields.insert("x-forwarded-proto", HeaderValue::from_static("gopher"));
        told.append_x_forwarded(&mut fields);
        told.append_forwarded(&mut fields);
        let all = |name| fields.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(all("x-forwarded-for"), ["192.0.2.1, 192.0.2.2, 192.0.2.3, 2001:db8::1"]);
        assert_eq!(all("x-forwarded-proto"), ["https"]);
        assert_eq!(all("x-forwarded-host"), ["a.example:81"]);
        assert_eq!(all("forwarded"), ["for=\"[2001:db8::1]\";host=\"a.example:81\";proto=https"]);
    }
    #[test]
    fn client_is_the_last_address_that_is_no_trusted_proxys() {
        let fleet = |client_field| Fleet {
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            client_field,
            ..Fleet::default()
        };
        let check = |peer: &str, field, name: &'static str, lines: &[&str], client: &str| {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            let found = client_of(peer.parse().unwrap(), &fleet(field), &fields);
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {name}: {lines:?}");
        };
        let plain = ClientField::XForwardedFor;
        for (peer, lines, client) in [
            ("10.0.0.1", &["192.0.2.1"][..], "192.0.2.1"),
            ("10.0.0.1", &["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["203.0.113.9", "192.0.2.1, 10.0.0.7 ,10.0.0.2"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1:4711"], "192.0.2.1"),
            ("fd00::1", &["[2001:db8::1]:80"], "2001:db8::1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("::ffff:10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1, unknown, 10.0.0.2"], "0.0.0.0"),
            ("10.0.0.1", &["192.0.2.1\u{e9}"], "0.0.0.0"),
            ("10.0.0.1", &["192.0.2.1, \u{e9}"], "0.0.0.0"),
            ("10.0.0.1", &["192.0.2.1", "\u{e9}"], "0.0.0.0"),
            ("10.0.0.1", &["10.0.0.3, 192.0.2.256, 10.0.0.2"], "0.0.0.0"),
            ("10.0.0.1", &["\u{e9}, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1, "], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("192.0.2.7", &["203.0.113.9"], "192.0.2.7"),
        ] {
            check(peer, plain, "x-forwarded-for", lines, client);
            // The field that was not chosen has no effect.
            check(peer, ClientField::Forwarded, "x-forwarded-for", lines, peer);
        }
        for (lines, client) in [
            (&["for=192.0.2.1"][..], "192.0.2.1"),
            (&["for=203.0.113.9, proto=https; For=\"192.0.2.1:80\";by=10.0.0.2"], "192.0.2.1"),
            (&["for=\"[2001:db8::1]:4711\";host=\"a,b\""], "2001:db8::1"),
            (&["for=\"192.0.2.9\", host=\"a;for=192.0.2.8\";for=192.0.2.1"], "192.0.2.1"),
            (&["for=192.0.2.1, for=_hidden"], "0.0.0.0"),
            (&["for=192.0.2.1", "proto=https"], "0.0.0.0"),
            (&["for=192.0.2.1\u{e9}"], "0.0.0.0"),
            (&["for=192.0.2.1;for=192.0.2.2"], "0.0.0.0"),
            (&["host=\"a\\\";for=192.0.2.9\";for=192.0.2.1"], "0.0.0.0"),
            (&["for=192.0.2.9;host=\"a"], "0.0.0.0"),
        ] {
            check("10.0.0.1", ClientField::Forwarded, "forwarded", lines, client);
        }
    }
}
