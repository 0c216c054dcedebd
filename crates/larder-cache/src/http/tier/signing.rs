//! The key that signs the records of the second tier.
//!
//! A folder or bucket has other users than the store, such as everybody with its credentials. They could otherwise put
//! pages of their own in place of stored ones. Invariant: the key never goes to the tier.

use larder_store::Store;
use ring::{
    digest::{SHA256, digest},
    hmac::{self, HMAC_SHA256, Key},
};

/// The key with which a tier signs its records. Cheap to clone.
#[derive(Clone)]
pub(super) struct TierKey(Key);

impl TierKey {
    /// Returns the key made from a secret. Without a secret, returns the key that the store derives.
    pub(super) fn load(secret: Option<&str>, store: &Store) -> Self {
        match secret {
            Some(secret) => Self::new(secret.as_bytes()),
            None => Self::new(&store.derived_key(PURPOSE)),
        }
    }

    pub(super) fn new(key: &[u8]) -> Self {
        Self(Key::new(HMAC_SHA256, key))
    }

    /// Returns the authentication code (HMAC) of a message, which consists of `parts`.
    pub(super) fn sign(&self, parts: [&[u8]; 2]) -> [u8; CODE_BYTES] {
        let code = hmac::sign(&self.0, &parts.concat());
        code.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    /// Returns whether `code` is the authentication code of a message. Takes the same time for every code.
    pub(super) fn verify(&self, parts: [&[u8]; 2], code: &[u8]) -> bool {
        hmac::verify(&self.0, &parts.concat(), code).is_ok()
    }

    /// Returns a number that identifies the key without revealing it. Never 0.
    pub(super) fn mark(&self) -> u64 {
        short_digest(&self.sign([PURPOSE.as_bytes(), b"mark"])).max(1)
    }
}

/// Returns the first 8 octets of the SHA-256 digest as a number.
pub fn short_digest(octets: &[u8]) -> u64 {
    let digest = digest(&SHA256, octets);
    let (first, _) = digest.as_ref().split_first_chunk().expect("the digest is longer");
    u64::from_le_bytes(*first)
}

/// Length of an authentication code in bytes.
pub(super) const CODE_BYTES: usize = 32;
const PURPOSE: &str = "second tier";
