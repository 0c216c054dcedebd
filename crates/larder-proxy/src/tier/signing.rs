//! The key that signs the records of the second tier.
//!
//! A folder or bucket has other users than the store, such as everybody with its credentials. They could otherwise put
//! pages of their own in place of stored ones. Invariant: the key never goes to the tier.

use std::{io, path::Path};

use larder_store::Store;
use ring::hmac::{self, HMAC_SHA256, Key};

use crate::{digest::short_digest, tokens::read_secret};

/// The key of a tier. Cheap to clone.
#[derive(Clone)]
pub(super) struct TierKey(Key);

impl TierKey {
    /// Returns the key in a file, or one of the store's own.
    ///
    /// # Errors
    /// The file is unusable.
    pub(super) fn load(secret: Option<&Path>, store: &Store) -> io::Result<Self> {
        match secret {
            Some(path) => Self::read(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why)),
            None => Ok(Self::new(&store.derived_key(PURPOSE))),
        }
    }

    /// Reads the key in a file.
    ///
    /// # Errors
    /// The file is unusable, with the reason.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        Ok(Self::new(read_secret(path, "secret of the second tier")?.as_bytes()))
    }

    pub(super) fn new(key: &[u8]) -> Self {
        Self(Key::new(HMAC_SHA256, key))
    }

    /// Returns the code of a message in these parts.
    pub(super) fn sign(&self, parts: [&[u8]; 2]) -> [u8; CODE_BYTES] {
        let code = hmac::sign(&self.0, &parts.concat());
        code.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    /// Returns whether a code is that of a message. Its duration does not depend on the code.
    pub(super) fn verify(&self, parts: [&[u8]; 2], code: &[u8]) -> bool {
        hmac::verify(&self.0, &parts.concat(), code).is_ok()
    }

    /// Returns a number by which the key is recognized, and which does not reveal it. It is never 0.
    pub(super) fn mark(&self) -> u64 {
        short_digest(&self.sign([PURPOSE.as_bytes(), b"mark"])).max(1)
    }
}

/// Length of a code.
pub(super) const CODE_BYTES: usize = 32;
const PURPOSE: &str = "second tier";
