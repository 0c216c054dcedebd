//! The secret that the nodes of a fleet share, and the codes that prove its possession.
//!
//! Owns: reading the file, and HMAC-SHA256 over the parts of a message. Invariant: the secret itself is never sent or
//! shown. A response is bound to its request by the request's nonce, so an old one cannot be replayed.

use std::path::Path;

use ring::{
    hmac::{self, HMAC_SHA256, Key},
    rand::{SecureRandom as _, SystemRandom},
};

use crate::ground::{digest::hex, tokens::read_secret};

/// The secret of a fleet, as the key for the codes that prove who sent a message.
pub(crate) struct FleetSecret(Key);

impl FleetSecret {
    /// Reads the secret from a file that only its owner may read. White space around the secret is ignored.
    ///
    /// # Errors
    /// The file cannot be used; the error says why.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        read_secret(path, "secret of the fleet").map(|secret| Self::new(&secret))
    }

    pub(crate) fn new(secret: &str) -> Self {
        Self(Key::new(HMAC_SHA256, secret.as_bytes()))
    }

    /// Returns the code of a message: the HMAC-SHA256 of its parts, in hexadecimal.
    pub(crate) fn sign(&self, parts: &[&str]) -> String {
        hex(hmac::sign(&self.0, &joined(parts)).as_ref())
    }

    /// Returns whether `code` is the code of a message. The check takes equally long for every wrong code, so that its
    /// duration reveals nothing.
    pub(crate) fn verify(&self, parts: &[&str], code: &str) -> bool {
        let octet = |at: usize| u8::from_str_radix(code.get(at..at + 2)?, 16).ok();
        let octets: Option<Vec<u8>> = (0..code.len()).step_by(2).map(octet).collect();
        octets.is_some_and(|octets| hmac::verify(&self.0, &joined(parts), &octets).is_ok())
    }
}

/// Returns a random text that identifies one request. `None` if the system provides no random numbers.
pub(crate) fn nonce() -> Option<String> {
    number().map(|number| format!("{number:032x}"))
}

/// Returns a random number of 128 bits, so that no two are equal. `None` if the system has no random numbers.
pub(crate) fn number() -> Option<u128> {
    let mut octets = [0; 16];
    SystemRandom::new().fill(&mut octets).ok()?;
    Some(u128::from_be_bytes(octets))
}

/// Joins parts so that different parts never result in the same octets.
fn joined(parts: &[&str]) -> Vec<u8> {
    let mut octets = Vec::new();
    for part in parts {
        octets.extend_from_slice(&(part.len() as u64).to_le_bytes());
        octets.extend_from_slice(part.as_bytes());
    }
    octets
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn code_is_that_of_these_parts_and_this_secret_only() {
        let secret = FleetSecret::new("0123456789abcdef");
        let other = FleetSecret::new("0123456789abcdeX");
        let code = secret.sign(&["a", "bc"]);
        assert!(secret.verify(&["a", "bc"], &code) && secret.verify(&["a", "bc"], &code.to_uppercase()));
        for parts in [&["ab", "c"][..], &["a", "bc", ""], &["abc"], &[]] {
            assert!(!secret.verify(parts, &code), "{parts:?}");
        }
        assert!(!other.verify(&["a", "bc"], &code));
        for bad in ["", "0", "zz", &code[1..], &code[2..], "é", &format!("{code}00")] {
            assert!(!secret.verify(&["a", "bc"], bad), "{bad}");
        }
        assert_ne!(nonce(), nonce());
    }

    #[test]
    fn files_that_are_no_secret_are_refused_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let load = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            FleetSecret::load(&path).err()
        };
        assert_eq!(load("  0123456789abcdef\n", 0o600), None);
        for (text, mode, why) in
            [("0123456789abcdef", 0o640, "other users may read it"), ("a secret\n", 0o600, "fewer")]
        {
            let told = load(text, mode).unwrap();
            assert!(told.contains(why) && !told.contains("a secret") && !told.contains("0123456789"), "{told}");
        }
        assert!(FleetSecret::load(&folder.path().join("none")).err().unwrap().contains("No such file"));
    }
}
