//! Cache keys (RFC 9111 2): bytes that are equal exactly when the resource, variant or chunk is.
//!
//! Invariant: no two different inputs give one key. Every key begins with a byte that names its kind, and
//! every part is delimited or has its length before it. Equivalences are only those of RFC 9110 4.2.3
//! that are always safe: the host's case, the default port, the empty path. Cost: one allocation.

use std::{borrow::Cow, fmt};

use http::HeaderMap;

use crate::{Settings, VaryRule, decimal::push_u64};

/// Longest primary key in bytes; longer targets are not stored.
pub const PRIMARY_KEY_SIZE_MAX: usize = 8 << 10;
/// Longest variant key in bytes; requests with longer selecting fields are not answered from the cache.
pub const VARIANT_KEY_SIZE_MAX: usize = 16 << 10;

/// First byte of a key of a whole resource.
pub const KIND_PRIMARY: u8 = b'P';
/// First byte of a key of one variant.
pub const KIND_VARIANT: u8 = b'V';
/// First byte of a key of one chunk of a body.
pub const KIND_CHUNK: u8 = b'C';
/// First byte of a key of a fragment of one chunk.
pub const KIND_FRAGMENT: u8 = b'F';

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// The authority is empty, has user information or a port that is no port.
    Authority,
    /// The path does not begin with a slash.
    Path,
    /// The key would be longer than its bound.
    TooLong,
    /// The rule is `*`: no request ever matches.
    Star,
}

/// The key of a resource: its URI with scheme and host in lower case, without default port and fragment.
///
/// # Errors
/// The request cannot be answered from the cache; the caller forwards or refuses it.
pub fn primary_key(scheme: &str, authority: &str, path_and_query: &str) -> Result<Vec<u8>, KeyError> {
    let default_port = default_port(scheme).ok_or(KeyError::Scheme)?;
    if scheme.len() + authority.len() + path_and_query.len() > PRIMARY_KEY_SIZE_MAX {
        return Err(KeyError::TooLong);
    }
    let (host, port) = split_authority(authority).ok_or(KeyError::Authority)?;
    let path = path_and_query.split('#').next().unwrap_or_default();
    if !(path.is_empty() || path.starts_with('/') || path.starts_with('?')) {
        return Err(KeyError::Path);
    }
    let mut key = Vec::with_capacity(scheme.len() + authority.len() + path.len() + 8);
    key.push(KIND_PRIMARY);
    key.extend_from_slice(scheme.as_bytes());
    key.extend_from_slice(b"://");
    key.extend_from_slice(host.as_bytes());
    key[1..].make_ascii_lowercase();
    if let Some(port) = port.filter(|port| *port != default_port) {
        key.push(b':');
        push_u64(&mut key, u64::from(port));
    }
    if !path.starts_with('/') {
        key.push(b'/');
    }
    key.extend_from_slice(path.as_bytes());
    Ok(key)
}

/// The key of the variant of a resource that answers a request with these fields.
///
/// # Errors
/// The rule is `*`, or the selecting fields are too long: no variant of this rule answers the request.
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

/// The key of one chunk of the body of a primary or variant key's entry.
pub fn chunk_key(entry: &[u8], representation: u64, chunk: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(entry.len() + 17);
    key.push(KIND_CHUNK);
    key.extend_from_slice(entry);
    key.extend_from_slice(&representation.to_le_bytes());
    key.extend_from_slice(&chunk.to_le_bytes());
    key
}

/// The key of the fragment of a chunk that is stored while the chunk is not.
pub fn fragment_key(entry: &[u8], representation: u64, chunk: u64) -> Vec<u8> {
    let mut key = chunk_key(entry, representation, chunk);
    key[0] = KIND_FRAGMENT;
    key
}

/// An authority in the form in which the key has it: the host in lower case, no default port. None when it is none.
/// An origin that is told this cannot answer by what the key does not tell apart.
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

/// The port a scheme stands for.
pub(crate) fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else {
        None
    }
}

/// Host and port of an authority without user information (RFC 9110 4.2.4 distrusts it).
pub(crate) fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let host_end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(host_end);
    let is_host_byte = |byte: u8| byte.is_ascii_graphic() && !b"@/?#\\".contains(&byte);
    if host.is_empty() || host == "[]" || !host.bytes().all(is_host_byte) {
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
            Self::Star => "response varies on more than the request",
        })
    }
}

impl std::error::Error for KeyError {}
