//! Determines the host and port that a request is for (RFC 9110 7.2, RFC 9112 3.2, 3.3).

use std::fmt;

use http::{HeaderMap, HeaderValue, Uri, Version, header::HOST};

use crate::key::split_authority;

/// Why a request does not name exactly one host: respond with 400 (RFC 9112 3.2).
///
/// ```
/// use http::{HeaderMap, Version};
/// use larder_http::fields::{HostError, effective_authority};
///
/// let mut fields = HeaderMap::new();
/// assert_eq!(effective_authority(&"/".parse()?, &fields, Version::HTTP_11), Err(HostError::Missing));
/// fields.append("host", "a.example".parse()?);
/// fields.append("host", "b.example".parse()?);
/// assert_eq!(effective_authority(&"/".parse()?, &fields, Version::HTTP_11), Err(HostError::Repeated));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// An HTTP/1.1 request has no Host, or an HTTP/2 request has neither Host nor an authority.
    Missing,
    /// There is more than one Host.
    Repeated,
    /// Host, or the target's authority, is not a host with an optional port.
    Invalid,
}

/// Returns the host and port that a request is for.
///
/// A target in absolute form provides them, because a proxy must then ignore Host (RFC 9112 3.2.2). Otherwise Host
/// provides them. Returns `None` for an HTTP/1.0 request without either.
///
/// ```
/// use http::{HeaderMap, Version};
/// use larder_http::fields::effective_authority;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("host", "a.example".parse()?);
/// assert_eq!(effective_authority(&"/x".parse()?, &fields, Version::HTTP_11), Ok(Some("a.example")));
/// // A target in absolute form takes precedence.
/// assert_eq!(effective_authority(&"http://b.example/x".parse()?, &fields, Version::HTTP_11), Ok(Some("b.example")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Host is missing, repeated or malformed, or the target's authority is malformed: respond with 400.
pub fn effective_authority<'a>(
    target: &'a Uri,
    fields: &'a HeaderMap,
    version: Version,
) -> Result<Option<&'a str>, HostError> {
    let host = host_field(target, fields, version)?;
    match target.authority() {
        // Only CONNECT may have an authority alone as its target (RFC 9112 3.2.3). In other requests it is a path
        // without its slash.
        Some(_) if target.scheme().is_none() => Err(HostError::Invalid),
        Some(authority) if split_authority(authority.as_str()).is_none() => Err(HostError::Invalid),
        Some(authority) => Ok(Some(authority.as_str())),
        None if host == Some("") => Err(HostError::Invalid),
        None => Ok(host),
    }
}

/// Returns the host and port of a request that [`effective_authority`] has accepted, without checking them again.
///
/// Returns `None` for a CONNECT.
pub fn accepted_authority<'a>(target: &'a Uri, fields: &'a HeaderMap) -> Option<&'a str> {
    match target.authority() {
        Some(authority) => target.scheme().map(|_| authority.as_str()),
        None => host_lines(fields).next().and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty()),
    }
}

/// Checks the Host of a request whose target is checked elsewhere, such as a CONNECT.
///
/// # Errors
/// Host is missing, repeated or malformed: respond with 400.
pub fn check_host(target: &Uri, fields: &HeaderMap, version: Version) -> Result<(), HostError> {
    host_field(target, fields, version).map(|_| ())
}

/// Iterates over the values of Host.
///
/// Host is usually the first field, so comparing names costs less than hashing one. A map yields the values of one name
/// together.
pub fn host_lines(fields: &HeaderMap) -> impl Iterator<Item = &HeaderValue> {
    let from_host = fields.iter().skip_while(|(name, _)| **name != HOST);
    from_host.map_while(|(name, value)| (*name == HOST).then_some(value))
}

/// Returns the value of Host, which is empty or a host with an optional port, or `None` if the request needs none.
fn host_field<'a>(target: &Uri, fields: &'a HeaderMap, version: Version) -> Result<Option<&'a str>, HostError> {
    let mut lines = host_lines(fields);
    let host = lines.next();
    if lines.next().is_some() {
        return Err(HostError::Repeated);
    }
    let host = host.map(|host| host.to_str().map_err(|_| HostError::Invalid)).transpose()?;
    if host.is_some_and(|host| !host.is_empty() && split_authority(host).is_none()) {
        return Err(HostError::Invalid);
    }
    let is_named = host.is_some() || version == Version::HTTP_2 && target.authority().is_some();
    if !is_named && matches!(version, Version::HTTP_11 | Version::HTTP_2) {
        return Err(HostError::Missing);
    }
    Ok(host)
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "request has no host",
            Self::Repeated => "request has more than one host",
            Self::Invalid => "host is not a name or address with an optional port",
        })
    }
}

impl std::error::Error for HostError {}
