//! Builds and parses cache keys (RFC 9111 2). Two keys are equal exactly if the resource or variant is the same.
//!
//! Invariant: different inputs never give the same key. Every key begins with a byte that names its kind, and every
//! part is delimited or preceded by its length. Only the equivalences of RFC 9110 4.2.3 that are always safe are
//! applied: the host's case, the default port, the empty path. Cost: one allocation.

use std::{borrow::Cow, fmt, net::Ipv6Addr};

use http::{HeaderMap, Uri};

use crate::{Settings, VaryRule, decimal::push_u64};

/// Maximum length of a primary key, in bytes. Responses to longer targets are not stored.
pub const PRIMARY_KEY_SIZE_MAX: usize = 8 << 10;
/// Maximum length of a variant key, in bytes. Requests with longer selecting fields are not answered from the cache.
pub(crate) const VARIANT_KEY_SIZE_MAX: usize = 16 << 10;

/// First byte of the key of a whole resource.
pub const KIND_PRIMARY: u8 = b'P';
/// First byte of the key of a variant.
pub(crate) const KIND_VARIANT: u8 = b'V';

/// Why a request has no key, so that the cache can neither answer it nor store its response.
///
/// ```
/// use larder_http::key::{KeyError, primary_key};
///
/// assert_eq!(primary_key("ftp", "a.example", "/"), Err(KeyError::Scheme));
/// assert_eq!(primary_key("http", "user@a.example", "/"), Err(KeyError::Authority));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// The authority is empty, has user information, or has an invalid port.
    Authority,
    /// The path does not begin with a slash.
    Path,
    /// The key would be longer than its bound.
    TooLong,
    /// The Vary rule is `*`, so no request ever matches.
    Star,
}

/// Returns the key of a resource: its URI with scheme and host in lower case, without default port and fragment.
///
/// # Errors
/// The request cannot be answered from the cache. The caller forwards or refuses it.
pub fn primary_key(scheme: &str, authority: &str, path_and_query: &str) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::new();
    push_primary_key((scheme, authority, path_and_query), &mut key)?;
    Ok(key)
}

/// Appends the key of a resource to `key`, as [`primary_key`] returns it.
///
/// # Errors
/// The same as for [`primary_key`]. In case of an error, `key` is unchanged.
pub(crate) fn push_primary_key(
    (scheme, authority, path_and_query): (&str, &str, &str),
    key: &mut Vec<u8>,
) -> Result<(), KeyError> {
    let default_port = default_port(scheme).ok_or(KeyError::Scheme)?;
    if scheme.len() + authority.len() + path_and_query.len() > PRIMARY_KEY_SIZE_MAX {
        return Err(KeyError::TooLong);
    }
    let (host, port) = split_authority(authority).ok_or(KeyError::Authority)?;
    // A target as it is received has no fragment.
    let has_fragment = path_and_query.as_bytes().contains(&b'#');
    let path = if has_fragment { path_and_query.split('#').next().unwrap_or_default() } else { path_and_query };
    if !(path.is_empty() || path.starts_with('/') || path.starts_with('?')) {
        return Err(KeyError::Path);
    }
    key.reserve(scheme.len() + authority.len() + path.len() + 8);
    key.push(KIND_PRIMARY);
    key.extend_from_slice(if default_port == 443 { b"https://" } else { b"http://" });
    let host_start = key.len();
    key.extend_from_slice(host.as_bytes());
    key[host_start..].make_ascii_lowercase();
    if let Some(port) = port.filter(|port| *port != default_port) {
        key.push(b':');
        push_u64(key, u64::from(port));
    }
    if !path.starts_with('/') {
        key.push(b'/');
    }
    key.extend_from_slice(path.as_bytes());
    Ok(())
}

/// Returns the path and query of a request's target.
#[inline]
pub fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("", |path| path.as_str())
}

/// Returns the host of an authority that is known to be well-formed.
#[inline]
pub fn host_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        authority.find(']').map_or(authority, |end| &authority[..=end])
    } else {
        let end = authority.bytes().position(|octet| octet == b':');
        end.map_or(authority, |end| &authority[..end])
    }
}

/// Returns the key of the variant that answers a request with these fields.
///
/// # Errors
/// The rule is `*`, or the selecting fields are too long. No stored variant with this rule answers the request.
pub fn variant_key(
    primary: &[u8],
    rule: &VaryRule,
    request_fields: &HeaderMap,
    settings: &Settings,
) -> Result<Vec<u8>, KeyError> {
    let selecting = rule.select(request_fields, settings).ok_or(KeyError::Star)?;
    let mut key = Vec::with_capacity(primary.len() + 64);
    key.push(KIND_VARIANT);
    push_sized(&mut key, primary);
    for (name, value) in selecting.iter() {
        push_sized(&mut key, name.as_str().as_bytes());
        match value {
            None => key.push(0),
            Some(value) => {
                key.push(1);
                push_sized(&mut key, value);
            }
        }
    }
    if key.len() > VARIANT_KEY_SIZE_MAX { Err(KeyError::TooLong) } else { Ok(key) }
}

/// A parsed key.
///
/// ```
/// use larder_http::key::{KeyOf, primary_key};
///
/// let key = primary_key("HTTP", "A.example:80", "/x")?;
/// let parsed = KeyOf::parse(&key).expect("a key of this module");
/// assert_eq!(parsed.url(), Some("http://a.example/x"));
/// # Ok::<(), larder_http::key::KeyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOf<'a> {
    /// The resource's key.
    pub primary: &'a [u8],
    /// The whole key: the primary key or a variant key.
    pub entry: &'a [u8],
}

impl<'a> KeyOf<'a> {
    /// Parses a key. Returns `None` if it has none of the forms that this module builds.
    pub fn parse(key: &'a [u8]) -> Option<Self> {
        match key.split_first()? {
            (&KIND_PRIMARY, _) => Some(Self { primary: key, entry: key }),
            (&KIND_VARIANT, rest) => {
                let (len, rest) = rest.split_first_chunk::<4>()?;
                let primary = rest.get(..u32::from_le_bytes(*len) as usize)?;
                (primary.first() == Some(&KIND_PRIMARY)).then_some(Self { primary, entry: key })
            }
            _ => None,
        }
    }

    /// Returns the URL of the resource, in its normal form.
    pub fn url(&self) -> Option<&'a str> {
        let text = std::str::from_utf8(self.primary.get(1..)?).ok()?;
        // A suffix after a space distinguishes several keys of one URL.
        text.split(' ').next().filter(|url| url.contains("://"))
    }
}

/// Returns an authority in the form that keys use: the host in lower case, without default port. `None` if it is
/// malformed.
///
/// Origins receive this form too, so their responses cannot depend on a difference that the key ignores.
pub fn normal_authority<'a>(scheme: &str, authority: &'a str) -> Option<Cow<'a, str>> {
    let (host, port) = split_authority(authority)?;
    let port = port.filter(|port| Some(*port) != default_port(scheme));
    let is_normal = !host.bytes().any(|byte| byte.is_ascii_uppercase())
        && port.map_or(authority.len() == host.len(), |port| authority[host.len() + 1..] == port.to_string());
    if is_normal {
        return Some(Cow::Borrowed(authority));
    }
    let host = host.to_ascii_lowercase();
    Some(Cow::Owned(port.map_or(host.clone(), |port| format!("{host}:{port}"))))
}

/// Returns the default port of a scheme.
pub(crate) fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        // Schemes are nearly always in lower case.
        _ if scheme.eq_ignore_ascii_case("http") => Some(80),
        _ if scheme.eq_ignore_ascii_case("https") => Some(443),
        _ => None,
    }
}

/// The octets that a registered name may contain (RFC 3986 3.2.2). Any other octet could end the authority, the user
/// information or a quoted string.
const IS_OF_HOST: [bool; 256] = {
    let mut is_of_host = [false; 256];
    let mut octet = 0;
    while octet < is_of_host.len() {
        is_of_host[octet] = (octet as u8).is_ascii_alphanumeric()
            || matches!(octet as u8, b'-' | b'.' | b'_' | b'~' | b'%')
            || matches!(octet as u8, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        octet += 1;
    }
    is_of_host
};

/// Splits an authority into host and port. User information is refused, because it is often used to deceive (RFC 9110
/// 4.2.4).
pub(crate) fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let mut host_end = authority.len();
    if let Some(inner) = authority.strip_prefix('[') {
        // Brackets belong to the host and enclose an IPv6 address.
        let inner = &inner[..inner.find(']')?];
        inner.parse::<Ipv6Addr>().ok()?;
        host_end = inner.len() + 2;
    } else {
        // Authorities are short, so one pass over their octets is faster than searching. The rest must begin with a
        // colon.
        if let Some(at) = authority.bytes().position(|octet| !IS_OF_HOST[usize::from(octet)]) {
            host_end = at;
        }
    }
    let (host, rest) = authority.split_at_checked(host_end)?;
    if host.is_empty() {
        return None;
    }
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Some((host, None)),
        None => None,
        Some("") => Some((host, None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some((host, Some(digits.parse().ok()?))),
        Some(_) => None,
    }
}

fn push_sized(key: &mut Vec<u8>, part: &[u8]) {
    key.extend_from_slice(&(part.len() as u64).to_le_bytes()[..4]);
    key.extend_from_slice(part);
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "scheme is neither http nor https",
            Self::Authority => "authority is not a host with an optional port",
            Self::Path => "path does not begin with a slash",
            Self::TooLong => "target or selecting fields are too long for a cache key",
            Self::Star => "response varies on more than request fields",
        })
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_apart_into_what_it_was_made_of() {
        let primary = primary_key("http", "A.example:80", "/x?y").unwrap();
        let rule = VaryRule::from_names(vec![http::header::ACCEPT]);
        let mut variant = variant_key(&primary, &rule, &HeaderMap::new(), &Settings::default()).unwrap();
        variant.extend_from_slice(&7_u64.to_le_bytes());
        for entry in [&primary, &variant] {
            let of = KeyOf::parse(entry).unwrap();
            assert_eq!(of, KeyOf { primary: &primary, entry });
            assert_eq!(of.url(), Some("http://a.example/x?y"));
        }
        let marked = [&primary[..], b" @http://origin:81"].concat();
        assert_eq!(KeyOf::parse(&marked).unwrap().url(), Some("http://a.example/x?y"));
        for none in [&b""[..], b"X", b"V\x05\0\0\0Phtt", b"C12345678", b"V\x02\0\0\0XX"] {
            assert_eq!(KeyOf::parse(none), None);
        }
    }
}
