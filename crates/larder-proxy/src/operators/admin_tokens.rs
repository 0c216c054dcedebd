//! Decides which clients may use the admin listener, and with which commands.
//!
//! Owns: the roles, and the role that each request requires. Files of tokens are read in `tokens`.

use std::path::Path;

use http::{Method, request};

use crate::ground::tokens::TokenRoles;

/// The role of a token. Each role permits everything that the roles before it permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TokenRole {
    /// A request with this role may read metrics and list the store.
    Read,
    /// A request with this role may also purge responses.
    Purge,
    /// A request with this role may also pin and pack responses, and change the offline mode.
    Control,
}

/// Whether the token of a request permits the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenAccess {
    Granted,
    /// The role of the request's token does not include the command.
    TooLittle,
    /// The request has no token, or an unknown one.
    Unknown,
}

/// The admin tokens of a file, with their roles.
pub(crate) struct AdminTokens(TokenRoles<TokenRole>);

impl AdminTokens {
    /// Reads a file of tokens with the roles `read`, `purge` and `control`.
    ///
    /// # Errors
    /// The error names the invalid line and the reason, but shows no token.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        TokenRoles::load(path, "admin tokens", ROLES).map(Self)
    }

    /// Returns whether a request's token permits the request.
    pub(crate) fn judge(&self, request: &request::Parts) -> TokenAccess {
        match (needed(request), self.0.role_of(&request.headers)) {
            (None, _) => TokenAccess::Granted,
            (Some(needed), Some(role)) if role >= needed => TokenAccess::Granted,
            (Some(_), Some(_)) => TokenAccess::TooLittle,
            (Some(_), None) => TokenAccess::Unknown,
        }
    }
}

const ROLES: &[(&str, TokenRole)] =
    &[("read", TokenRole::Read), ("purge", TokenRole::Purge), ("control", TokenRole::Control)];

/// Returns the role that a request requires, or `None` if it needs no token.
fn needed(request: &request::Parts) -> Option<TokenRole> {
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if is_read && request.uri.path() == "/healthz" {
        return None;
    }
    let words = request.method.as_str();
    Some(match words {
        _ if is_read => TokenRole::Read,
        "EXPLAIN" | "SHOW" | "LIST" => TokenRole::Read,
        "MISSING" if request.uri.path() == "/" && request.uri.scheme().is_none() => TokenRole::Read,
        "OFFLINE" if request.uri.path() == "/status" => TokenRole::Read,
        "POST" if request.uri.path() == "/explain" => TokenRole::Read,
        "PURGE" | "POST" => TokenRole::Purge,
        _ => TokenRole::Control,
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;

    const FILE: &str = "# who\nread  0123456789abcdef\n\npurge fedcba9876543210\ncontrol 00112233445566778899\n";

    fn status(tokens: &AdminTokens, method: &str, target: &str, credentials: Option<&str>) -> u16 {
        let mut request = http::Request::builder().method(method).uri(target);
        if let Some(credentials) = credentials {
            request = request.header("authorization", credentials);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        match tokens.judge(&parts) {
            TokenAccess::Granted => 200,
            TokenAccess::TooLittle => 403,
            TokenAccess::Unknown => 401,
        }
    }

    #[test]
    fn each_token_is_good_for_its_role_and_less() {
        let tokens = AdminTokens(TokenRoles::parse(FILE, ROLES).unwrap());
        let reader = Some("Bearer 0123456789abcdef");
        let purger = Some("bearer fedcba9876543210");
        let operator = Some("Bearer 00112233445566778899");
        for (method, target, least) in [
            ("GET", "/metrics", 0),
            ("HEAD", "/", 0),
            ("EXPLAIN", "http://a.example/", 0),
            ("LIST", "/", 0),
            ("MISSING", "/", 0),
            ("OFFLINE", "/status", 0),
            ("PURGE", "http://a.example/", 1),
            ("POST", "/explain", 0),
            ("POST", "/purge", 1),
            ("MISSING", "/clear", 2),
            ("OFFLINE", "/on", 2),
            ("PIN", "/", 2),
            ("UNPACK", "/", 2),
            ("DELETE", "/", 2),
        ] {
            for (role, credentials) in [reader, purger, operator].into_iter().enumerate() {
                let expected = if role >= least { 200 } else { 403 };
                assert_eq!(status(&tokens, method, target, credentials), expected, "{method} {target} {role}");
            }
            for wrong in [None, Some("Bearer 0123456789abcdeX"), Some("Bearer"), Some("Digest 0123456789abcdef")] {
                assert_eq!(status(&tokens, method, target, wrong), 401, "{method} {target} {wrong:?}");
            }
        }
        assert_eq!(status(&tokens, "GET", "/healthz", None), 200);
        assert_eq!(status(&tokens, "PURGE", "/healthz", None), 401);
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert_eq!(status(&tokens, "GET", "/", Some(&basic("me:0123456789abcdef"))), 200);
        assert_eq!(status(&tokens, "GET", "/", Some(&basic("0123456789abcdef:"))), 401);
    }
}
