//! Adds the client's address to requests for origins: X-Forwarded-For and its kin, and Forwarded (RFC 7239).
//!
//! Clients' own statements are not trusted. They stay in front of the proxy's, as users of these fields expect.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header::FORWARDED};

/// The client and target of a request, as the client means it.
pub(crate) struct ForwardedRequest<'a> {
    pub(crate) client: IpAddr,
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a HeaderValue,
}

impl ForwardedRequest<'_> {
    /// Appends the client to X-Forwarded-For, and describes its request in the related fields.
    pub(crate) fn append_x_forwarded(&self, fields: &mut HeaderMap) {
        let client = self.client.to_canonical().to_string();
        // One field in order: programs that read only the first, or the last, see the same as all others.
        let before = fields.get_all(&X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty());
        let nodes: Vec<&[u8]> = before.chain([client.as_bytes()]).collect();
        if let Ok(nodes) = HeaderValue::try_from(nodes.join(&b", "[..])) {
            fields.insert(X_FORWARDED_FOR, nodes);
        }
        if let Ok(scheme) = HeaderValue::try_from(self.scheme) {
            fields.insert(HeaderName::from_static("x-forwarded-proto"), scheme);
        }
        fields.insert(HeaderName::from_static("x-forwarded-host"), self.host.clone());
    }

    /// Adds a member to Forwarded.
    pub(crate) fn append_forwarded(&self, fields: &mut HeaderMap) {
        let node = match self.client.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("\"[{address}]\""),
        };
        let Ok(host) = self.host.to_str() else { return };
        // A host with a port is no token, and one that was checked needs no escapes.
        let member = format!("for={node};host=\"{host}\";proto={}", self.scheme);
        if let Ok(member) = HeaderValue::try_from(member) {
            fields.append(FORWARDED, member);
        }
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_scheme_and_host_are_told_behind_what_was_there() {
        let host = HeaderValue::from_static("a.example:81");
        let told = ForwardedRequest { client: "2001:db8::1".parse().unwrap(), scheme: "https", host: &host };
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
}
