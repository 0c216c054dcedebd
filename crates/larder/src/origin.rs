//! The URL of an origin: `http://host`, `https://host:8443`, `http://host/base`.
//!
//! Owns: which URLs can be an origin. Does not: resolve or connect. Invariant: scheme, host and port are all there.

use crate::value::BadValue;
use http::Uri;
use std::fmt;

/// A checked origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OriginUrl {
    pub(crate) https: bool,
    /// A name or an address; an IPv6 address is in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What is put before every path: empty, or `/base` without a slash at its end.
    pub(crate) base: String,
}

/// Reads the URL of an origin.
///
/// # Errors
/// When it is no URL, not http or https, or has parts an origin cannot have.
pub(crate) fn parse(text: &str) -> Result<OriginUrl, BadValue> {
    let bad = |what: &str| {
        BadValue::new(
            format!("{what}: `{text}`"),
            "an origin is a URL such as http://127.0.0.1:8080, https://example.com or http://example.com/base",
        )
    };
    let uri: Uri = text.parse().map_err(|_| bad("not a URL"))?;
    let https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        Some(_) => return Err(bad("an origin speaks http or https")),
        None => return Err(bad("a URL without http:// or https://")),
    };
    let authority = uri.authority().ok_or_else(|| bad("a URL without a host"))?;
    if authority.as_str().contains('@') {
        return Err(bad("an origin's URL cannot hold a user name"));
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(bad("an origin's URL ends with its path"));
    }
    let default_port = if https { 443 } else { 80 };
    // `Authority::port` answers `None` for a port out of range too, which would become the default.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => default_port,
        Some(rest) => {
            let port = rest.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port != 0);
            port.ok_or_else(|| bad("no such port"))?
        }
        None => return Err(bad("not a URL")),
    };
    if authority.host().is_empty() {
        return Err(bad("a URL without a host"));
    }
    let base = uri.path().trim_end_matches('/').to_owned();
    Ok(OriginUrl { https, host: authority.host().to_ascii_lowercase(), port, base })
}

impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_scheme_host_port_and_base() {
        for (text, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://Example.COM/", "http://example.com:80"),
            ("https://example.com", "https://example.com:443"),
            ("http://[::1]:81/a/b/", "http://[::1]:81/a/b"),
        ] {
            assert_eq!(parse(text).map(|origin| origin.to_string()).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn what_is_no_origin_says_why() {
        for (text, problem) in [
            ("", "not a URL"),
            ("example.com", "a URL without http:// or https://"),
            ("/path", "a URL without http:// or https://"),
            ("example.com:80", "a URL without http:// or https://"),
            ("ftp://example.com", "an origin speaks http or https"),
            ("http://", "not a URL"),
            ("http://user@example.com", "an origin's URL cannot hold a user name"),
            ("http://example.com/?a", "an origin's URL ends with its path"),
            ("http://example.com/#a", "an origin's URL ends with its path"),
            ("http://example.com:70000", "no such port"),
            ("http://example.com:0", "no such port"),
            ("http://example.com:", "no such port"),
            ("http://exa mple.com", "not a URL"),
        ] {
            let found = parse(text).map_err(|bad| bad.problem);
            assert_eq!(found, Err(format!("{problem}: `{text}`")), "{text}");
        }
    }
}
