//! Decides which clients may use the admin listener, and with which commands.
//!
//! Owns: the tokens of a file, and the role that each request requires. Invariants: a token is kept as its digest and
//! never shown. Comparing digests instead of tokens keeps the comparison's duration from revealing a token. Cost: one
//! digest per request.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, header, request};
use ring::digest::{SHA256, digest};

/// A role. Each role includes the lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TokenRole {
    /// May read metrics and list the store.
    Read,
    /// May also purge.
    Purge,
    /// May also pin, pack and change the offline mode.
    Control,
}

/// The verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenAccess {
    Granted,
    /// The request's token has too low a role.
    TooLittle,
    /// The request carries no valid token.
    Unknown,
}

/// The tokens of a file, and their roles.
pub(crate) struct AdminTokens {
    roles: HashMap<Vec<u8>, TokenRole>,
}

impl AdminTokens {
    /// Reads a file with a role and a token on each line, such as `read 3f9a...`. Empty lines and lines that begin with
    /// `#` are ignored.
    ///
    /// # Errors
    /// The error names the bad line and the reason, but shows no token.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = read_own(path).map_err(|error| format!("admin tokens {name}: {error}"))?;
        Self::parse(&text).map_err(|why| format!("admin tokens {name}: {why}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut roles = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split_whitespace();
            let role = match words.next() {
                None => continue,
                Some(word) if word.starts_with('#') => continue,
                Some("read") => TokenRole::Read,
                Some("purge") => TokenRole::Purge,
                Some("control") => TokenRole::Control,
                Some(_) => return Err(format!("line {number} does not begin with read, purge or control")),
            };
            let (Some(token), None) = (words.next(), words.next()) else {
                return Err(format!("line {number} is not a role with a token"));
            };
            if token.len() < TOKEN_LEN_MIN {
                return Err(format!(
                    "line {number}: a token needs at least {TOKEN_LEN_MIN} characters (openssl rand -hex 16)"
                ));
            }
            roles.insert(digest(&SHA256, token.as_bytes()).as_ref().to_vec(), role);
        }
        if roles.is_empty() { Err("the file contains no token".to_owned()) } else { Ok(Self { roles }) }
    }

    /// Returns whether the request's sender has the required role.
    pub(crate) fn judge(&self, request: &request::Parts) -> TokenAccess {
        match (needed(request), self.role_of(&request.headers)) {
            (None, _) => TokenAccess::Granted,
            (Some(needed), Some(role)) if role >= needed => TokenAccess::Granted,
            (Some(_), Some(_)) => TokenAccess::TooLittle,
            (Some(_), None) => TokenAccess::Unknown,
        }
    }

    /// Returns the role of a request's token. The token is a bearer token or, for browsers, the password of any user.
    fn role_of(&self, fields: &HeaderMap) -> Option<TokenRole> {
        let (scheme, said) = fields.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        let said = said.trim();
        let token = if scheme.eq_ignore_ascii_case("bearer") {
            said.as_bytes().to_vec()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let pair = BASE64_STANDARD.decode(said).ok()?;
            let colon = pair.iter().position(|octet| *octet == b':')?;
            pair[colon + 1..].to_vec()
        } else {
            return None;
        };
        self.roles.get(digest(&SHA256, &token).as_ref()).copied()
    }
}

/// Reads a file that only its owner may read.
///
/// # Errors
/// The file cannot be read, or others may read it.
pub(crate) fn read_own(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & OTHERS != 0 {
        let why = format!(
            "other users may read it (mode {:o}): chmod 600 {}, make larder's user its owner, and replace its tokens",
            mode & 0o777,
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Permissions of the file's group and of all others.
const OTHERS: u32 = 0o077;

/// Returns the role that a request requires, or `None` if it is open to all.
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
        "PURGE" | "POST" => TokenRole::Purge,
        _ => TokenRole::Control,
    })
}

const TOKEN_LEN_MIN: usize = 16;

#[cfg(test)]
mod tests {
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
        let tokens = AdminTokens::parse(FILE).unwrap();
        let (reader, purger, operator) =
            (Some("Bearer 0123456789abcdef"), Some("bearer fedcba9876543210"), Some("Bearer 00112233445566778899"));
        for (method, target, least) in [
            ("GET", "/metrics", 0),
            ("HEAD", "/", 0),
            ("EXPLAIN", "http://a.example/", 0),
            ("LIST", "/", 0),
            ("MISSING", "/", 0),
            ("OFFLINE", "/status", 0),
            ("PURGE", "http://a.example/", 1),
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

    #[test]
    fn wrong_files_are_told_by_their_lines_and_no_token_is_shown() {
        for (text, told) in [
            ("", "no token"),
            ("read 0123456789abcdef\nwrite secret-secret-secret", "line 2"),
            ("read", "line 1"),
            ("read a b", "line 1"),
            ("purge short-secret", "at least 16"),
        ] {
            let why = AdminTokens::parse(text).err().unwrap();
            assert!(why.contains(told) && !why.contains("secret"), "{why}");
        }
    }
}
