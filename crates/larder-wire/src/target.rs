//! Turns the target of a request line into a URI (RFC 9112 3.2).
//!
//! Clients send octets that no URI has (RFC 3986 2): `<`, `>`, `"`, and a backtick. Those that the URI type refuses are
//! percent-encoded; what it accepts is passed on as it is. Invariant: only octets of a path and query are changed.
//! Cost: one search per target.

use bytes::Bytes;
use http::{Method, Uri, uri::PathAndQuery};
use memchr::memmem;

use crate::WireFault;

/// Returns the URI of a request with this method and target.
///
/// An OPTIONS request whose absolute URI has no path is about the server as a whole (RFC 9112 3.2.4), so its path
/// becomes `*`.
///
/// # Errors
/// The target is not a URI, or is too long.
pub(crate) fn parse(method: &Method, target: Bytes) -> Result<Uri, WireFault> {
    if target.len() > TARGET_BYTES_MAX {
        return Err(WireFault::TargetTooLong);
    }
    // A fold without branches lets the compiler compare many octets at once.
    let is_odd = |octet: u8| matches!(octet, b'"' | b'<' | b'>' | b'`' | 0x7F);
    let has_odd = target.iter().fold(false, |found, octet| found | is_odd(*octet));
    let asks_server = *method == Method::OPTIONS && has_no_path(&target);
    let target = if has_odd { escaped(target) } else { target };
    let uri = Uri::from_maybe_shared(target).map_err(|_| NO_URI)?;
    if !asks_server {
        return Ok(uri);
    }
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static("*"));
    Uri::from_parts(parts).map_err(|_| NO_URI)
}

/// Percent-encodes the octets of a target that the URI type refuses. DEL becomes a space, so that parsing refuses it.
fn escaped(target: Bytes) -> Bytes {
    let Some(start) = path_start(&target) else { return target };
    let mut text = Vec::with_capacity(target.len() + 64);
    text.extend_from_slice(&target[..start]);
    let mut is_query = false;
    for octet in &target[start..] {
        is_query |= *octet == b'?';
        let refused: &[u8] = if is_query { b"<>\"" } else { b"<>`" };
        match octet {
            0x7F => text.push(b' '),
            octet if refused.contains(octet) => text.extend_from_slice(format!("%{octet:02X}").as_bytes()),
            octet => text.push(*octet),
        }
    }
    text.into()
}

/// Returns the position of the path, or of the query if the target has no path. `None` if it has neither.
fn path_start(target: &[u8]) -> Option<usize> {
    if target.starts_with(b"/") {
        return Some(0);
    }
    let authority = memmem::find(target, b"://")? + b"://".len();
    let len = target[authority..].iter().position(|octet| b"/?".contains(octet))?;
    Some(authority + len)
}

/// Returns whether a target is an absolute URI without a path or query.
fn has_no_path(target: &[u8]) -> bool {
    let authority = memmem::find(target, b"://").map(|at| &target[at + b"://".len()..]);
    authority.is_some_and(|authority| !authority.iter().any(|octet| b"/?#".contains(octet)))
}

const NO_URI: WireFault = WireFault::Malformed("its target is not a URI");
/// Maximum length of a target, in octets: that of the URI type.
const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(method: &Method, target: &str) -> Result<String, WireFault> {
        parse(method, Bytes::copy_from_slice(target.as_bytes())).map(|uri| uri.to_string())
    }

    #[test]
    fn octets_that_no_uri_has_are_escaped() {
        for (target, uri) in [
            ("/q?f={\"a\":\"b\"}", "/q?f={%22a%22:%22b%22}"),
            ("/a`b<c>", "/a%60b%3Cc%3E"),
            ("http://a.example/x?\"", "http://a.example/x?%22"),
            ("http://a.example?<-", "http://a.example/?%3C-"),
            ("/plain-x", "/plain-x"),
            ("/a\"<?`\"", "/a\"%3C?`%22"),
            ("*", "*"),
            ("a.example:443", "a.example:443"),
            ("/\u{e4}", "/\u{e4}"),
        ] {
            assert_eq!(parsed(&Method::GET, target).as_deref(), Ok(uri), "{target}");
        }
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        for target in ["http://a\"b/", "a\":443", "\"\"\"", "/\u{7f}", "/\u{1}", ""] {
            assert_eq!(parsed(&Method::GET, target), Err(NO_URI), "{target:?}");
        }
        assert_eq!(parsed(&Method::GET, &format!("/{}", "x".repeat(70_000))), Err(WireFault::TargetTooLong));
        assert!(parse(&Method::GET, Bytes::from_static(b"/\xe4")).is_err());
    }

    #[test]
    fn request_about_a_server_is_known_by_its_target() {
        let targets = ["http://a", "http://a/", "*", "http://a?", "http://a:80"];
        let whole = targets.map(|target| parsed(&Method::OPTIONS, target).unwrap().ends_with('*'));
        assert_eq!(whole, [true, false, true, false, true]);
        assert_eq!(parsed(&Method::GET, "http://a").unwrap(), "http://a/");
    }
}
