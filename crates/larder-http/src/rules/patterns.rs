//! Parses the texts of rules to patterns, and matches them.
//!
//! Invariant: a text that has no meaning is refused when the rule is made, so matching cannot fail.

use globset::{GlobBuilder, GlobMatcher};
use http::{Method, StatusCode};

use super::{BadRule, RuledRequest, about, bad};
use crate::{
    fields::{Fields, media_type},
    key::default_port,
};

/// A host, and a port if the rule is limited to one.
#[derive(Clone, Debug)]
pub(super) struct ServerPattern {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug)]
pub(super) enum HostPattern {
    Named(String),
    /// Every name that ends with this suffix, which begins with a dot.
    Below(String),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StatusPattern {
    Exact(StatusCode),
    /// All statuses with this first digit.
    Class(u16),
}

#[derive(Clone, Debug)]
pub(super) enum TypePattern {
    Exact(String),
    /// All types with this prefix, which ends with a slash.
    Kind(String),
}

impl ServerPattern {
    pub(super) fn is(&self, request: &RuledRequest<'_>) -> bool {
        let host = host_of(request.authority);
        let named = request.authority[host.len()..].strip_prefix(':').filter(|port| !port.is_empty());
        let port = || named.map_or_else(|| default_port(request.scheme), |port| port.parse().ok());
        self.host.is(host) && self.port.is_none_or(|wanted| port() == Some(wanted))
    }
}

impl HostPattern {
    pub(super) fn is(&self, host: &str) -> bool {
        match self {
            Self::Named(name) => name.eq_ignore_ascii_case(host),
            Self::Below(end) => {
                let split = host.len().checked_sub(end.len()).filter(|split| *split > 0);
                split.is_some_and(|split| host.as_bytes()[split..].eq_ignore_ascii_case(end.as_bytes()))
            }
        }
    }
}

impl StatusPattern {
    pub(super) fn is(self, status: StatusCode) -> bool {
        let status = about(status);
        match self {
            Self::Exact(exact) => exact == status,
            Self::Class(class) => class == status.as_u16() / 100,
        }
    }
}

impl TypePattern {
    pub(super) fn is(&self, fields: &impl Fields) -> bool {
        let Some(found) = media_type(fields).map(str::to_ascii_lowercase) else { return false };
        match self {
            Self::Exact(exact) => *exact == found,
            Self::Kind(kind) => found.starts_with(kind.as_str()),
        }
    }
}

/// Returns the host of an authority, without port.
pub(super) fn host_of(authority: &str) -> &str {
    let end = authority.rfind(']').map_or(0, |end| end + 1);
    authority[end..].find(':').map_or(authority, |colon| &authority[..end + colon])
}

pub(super) fn server(text: &str) -> Result<ServerPattern, BadRule> {
    let name = host_of(text);
    let refused = || bad("a host name, or *.NAME for all names below it, with or without a port", text);
    let port = match text[name.len()..].strip_prefix(':') {
        Some(port) => Some(port.parse().ok().filter(|port| *port != 0).ok_or_else(refused)?),
        None => None,
    };
    Ok(ServerPattern { host: host(name).ok_or_else(refused)?, port })
}

pub(super) fn host(text: &str) -> Option<HostPattern> {
    let is_host =
        |name: &str| !name.is_empty() && name.parse::<http::uri::Authority>().is_ok() && host_of(name) == name;
    match text.strip_prefix('*') {
        Some(end) if end.strip_prefix('.').is_some_and(|name| is_host(name) && !name.contains('*')) => {
            Some(HostPattern::Below(end.to_ascii_lowercase()))
        }
        None if is_host(text) => Some(HostPattern::Named(text.to_ascii_lowercase())),
        _ => None,
    }
}

pub(super) fn path(text: &str) -> Result<GlobMatcher, BadRule> {
    let refused = || bad("a path pattern that begins with a slash or with **", text);
    if !text.starts_with('/') && !text.starts_with("**") {
        return Err(refused());
    }
    let glob = GlobBuilder::new(text).literal_separator(true).build().map_err(|_| refused())?;
    Ok(glob.compile_matcher())
}

pub(super) fn method(text: &str) -> Result<Method, BadRule> {
    text.parse().map_err(|_| bad("a method", text))
}

pub(super) fn status(text: &str) -> Result<StatusPattern, BadRule> {
    let refused = || bad("a status such as 404, or a class such as 5xx", text);
    match text.strip_suffix("xx") {
        Some(digit) => match digit.parse() {
            Ok(class @ 2..=5) => Ok(StatusPattern::Class(class)),
            _ => Err(refused()),
        },
        None => match text.parse().ok().and_then(|code| StatusCode::from_u16(code).ok()) {
            Some(status) if (200..600).contains(&status.as_u16()) => Ok(StatusPattern::Exact(status)),
            _ => Err(refused()),
        },
    }
}

pub(super) fn media_type_pattern(text: &str) -> Result<TypePattern, BadRule> {
    let lower = text.to_ascii_lowercase();
    let is_token = |token: &str| {
        !token.is_empty() && token.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&octet))
    };
    match lower.split_once('/') {
        Some((kind, "*")) if is_token(kind) => Ok(TypePattern::Kind(format!("{kind}/"))),
        Some((kind, name)) if is_token(kind) && is_token(name) => Ok(TypePattern::Exact(lower)),
        _ => Err(bad("a media type such as image/png or image/*", text)),
    }
}
