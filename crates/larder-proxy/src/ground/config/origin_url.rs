//! The URL of an origin, the Host field that it gets, and how it is contacted.

use std::{fmt, sync::Arc};

use super::{HostSent, Parent};
use crate::ground::target::port_of;

/// The URL of an origin: `http://host[:port][/prefix]`, or the same with `https`, or with `h2c` for HTTP/2 without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginUrl {
    pub(crate) https: bool,
    /// Whether HTTP/2 is used without negotiation (prior knowledge).
    pub(crate) prior_http2: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The prefix of paths on the origin. Empty, or begins with a slash and does not end with one.
    pub(crate) prefix: String,
    pub(crate) host_sent: HostSent,
    /// Whether each connection begins with a PROXY header that names the client.
    pub(crate) sends_proxy_header: bool,
    /// The parent proxy through which the origin is contacted. `None` if the origin is contacted directly.
    pub(crate) parent: Option<Arc<Parent>>,
}

impl OriginUrl {
    /// Returns this origin, contacted through a parent proxy.
    #[must_use]
    pub fn by_parent(self, parent: Parent) -> Self {
        Self { parent: Some(Arc::new(parent)), ..self }
    }

    /// Sets whether each connection to this origin begins with a PROXY header (version 2) that names the client.
    ///
    /// Such a connection is used for one request only.
    #[must_use]
    pub fn with_proxy_header(self, sends_proxy_header: bool) -> Self {
        Self { sends_proxy_header, ..self }
    }

    /// Returns the host, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the prefix of paths on the origin. Empty, or begins with a slash and does not end with one.
    pub fn base_path(&self) -> &str {
        &self.prefix
    }

    /// Returns the host, with the port unless it is the scheme's default, as in a Host field (RFC 9110 7.2).
    pub fn authority(&self) -> String {
        let scheme_port = if self.https { 443 } else { 80 };
        if self.port == scheme_port { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Returns the URL, without the scheme's default port.
    pub fn to_short_string(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.prefix)
    }

    /// Returns the scheme of the URL, which is `h2c` for HTTP/2 without TLS.
    fn scheme(&self) -> &'static str {
        match (self.https, self.prior_http2) {
            (true, _) => "https",
            (false, true) => "h2c",
            (false, false) => "http",
        }
    }

    /// Sets the Host field of requests to this origin.
    #[must_use]
    pub fn with_host(self, host_sent: HostSent) -> Self {
        Self { host_sent, ..self }
    }
}

impl std::str::FromStr for OriginUrl {
    type Err = InvalidOriginUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why| InvalidOriginUrl { url: text.into(), why };
        let uri: http::Uri = text.parse().map_err(|_| invalid("not a URL"))?;
        let https = match uri.scheme_str() {
            Some("http" | "h2c") => false,
            Some("https") => true,
            _ => return Err(invalid("must begin with http://, https:// or h2c://")),
        };
        let authority = uri.authority().ok_or_else(|| invalid("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("user names are not supported"));
        }
        if authority.host().is_empty() {
            return Err(invalid("has no host"));
        }
        if uri.query().is_some() {
            return Err(invalid("must not have a query"));
        }
        let port = port_of(authority, https).ok_or_else(|| invalid("has no port from 1 to 65535 after the colon"))?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let prior_http2 = uri.scheme_str() == Some("h2c");
        Ok(Self {
            https,
            prior_http2,
            host: authority.host().to_ascii_lowercase(),
            port,
            prefix,
            host_sent: HostSent::default(),
            sends_proxy_header: false,
            parent: None,
        })
    }
}

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}{}", self.scheme(), self.host, self.port, self.prefix)
    }
}

/// Error: a text is not an [`OriginUrl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOriginUrl {
    url: String,
    why: &'static str,
}

impl fmt::Display for InvalidOriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "origin {}: {}", self.why, self.url)
    }
}

impl std::error::Error for InvalidOriginUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_urls_parse_to_their_parts() {
        let url: OriginUrl = "https://Example.com/base/".parse().unwrap();
        assert_eq!((url.https, url.host.as_str(), url.port, url.prefix.as_str()), (true, "example.com", 443, "/base"));
        assert_eq!("http://127.0.0.1:8080".parse::<OriginUrl>().unwrap().to_string(), "http://127.0.0.1:8080");
    }

    #[test]
    fn origin_urls_that_cannot_be_fetched_are_refused() {
        for bad in ["", "ftp://a", "example.com", "http://u:p@h/", "http://h/?q", "/x"] {
            assert!(bad.parse::<OriginUrl>().is_err(), "{bad}");
        }
    }
}
