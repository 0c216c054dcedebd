//! Files of tokens, each with a role, and the token of a request.
//!
//! Owns: the form of the file, and finding the token that a request carries. What a role permits is decided elsewhere.
//! Invariants: a token is kept as its digest and never shown. Comparing digests instead of tokens keeps the
//! comparison's duration from revealing a token. Cost: one digest per request.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, header};
use ring::digest::{SHA256, digest};

/// The tokens of a file, as digests, and the role of each.
pub(crate) struct TokenRoles<R> {
    roles: HashMap<Vec<u8>, R>,
}

impl<R: Copy> TokenRoles<R> {
    /// Reads a file with a role and a token on each line, such as `read 3f9a...`.
    ///
    /// Empty lines and lines that begin with `#` are ignored. `roles` are the words for the roles, and `what` names the
    /// file in errors.
    ///
    /// # Errors
    /// The error names the invalid line and the reason, but shows no token.
    pub(crate) fn load(path: &Path, what: &str, roles: &[(&str, R)]) -> Result<Self, String> {
        let name = path.display();
        let text = read_own(path).map_err(|error| format!("{what} {name}: {error}"))?;
        Self::parse(&text, roles).map_err(|why| format!("{what} {name}: {why}"))
    }

    pub(crate) fn parse(text: &str, words: &[(&str, R)]) -> Result<Self, String> {
        let mut roles = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut parts = line.split_whitespace();
            let Some(word) = parts.next().filter(|word| !word.starts_with('#')) else { continue };
            let Some((_, role)) = words.iter().find(|(known, _)| *known == word) else {
                let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
                return Err(format!("line {number} does not begin with a role ({})", known.join(", ")));
            };
            let (Some(token), None) = (parts.next(), parts.next()) else {
                return Err(format!("line {number} is not a role with a token"));
            };
            if token.len() < TOKEN_LEN_MIN {
                return Err(format!(
                    "line {number}: a token needs at least {TOKEN_LEN_MIN} characters (openssl rand -hex 16)"
                ));
            }
            roles.insert(digest(&SHA256, token.as_bytes()).as_ref().to_vec(), *role);
        }
        if roles.is_empty() { Err("the file contains no token".to_owned()) } else { Ok(Self { roles }) }
    }

    /// Returns the role of a request's token. `None` if it has no token, or an unknown one.
    ///
    /// The token is a bearer token or, for browsers and clients that support only Basic credentials, the password of
    /// any user.
    pub(crate) fn role_of(&self, fields: &HeaderMap) -> Option<R> {
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

/// Reads a secret from a file that only its owner may read. White space around the secret is ignored.
///
/// `what` names the file in errors, which do not show the secret.
///
/// # Errors
/// The file cannot be used; the error says why.
pub(crate) fn read_secret(path: &Path, what: &str) -> Result<String, String> {
    let name = path.display();
    let text = read_own(path).map_err(|error| format!("{what} {name}: {error}"))?;
    let secret = text.trim();
    if secret.len() < TOKEN_LEN_MIN {
        let why = format!("it has fewer than {TOKEN_LEN_MIN} characters (openssl rand -hex 32)");
        return Err(format!("{what} {name}: {why}"));
    }
    Ok(secret.to_owned())
}

/// Permission bits of the file's group and of all other users.
const OTHERS: u32 = 0o077;
const TOKEN_LEN_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_files_are_told_by_their_lines_and_no_token_is_shown() {
        let roles = &[("read", 0), ("purge", 1)];
        for (text, told) in [
            ("", "no token"),
            ("read 0123456789abcdef\nwrite secret-secret-secret", "line 2 does not begin with a role (read, purge)"),
            ("read", "line 1"),
            ("read a b", "line 1"),
            ("purge short-secret", "at least 16"),
        ] {
            let why = TokenRoles::parse(text, roles).err().unwrap();
            assert!(why.contains(told) && !why.contains("secret"), "{why}");
        }
    }
}
