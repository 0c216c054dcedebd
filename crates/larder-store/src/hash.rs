//! The keyed hash of an entry's key: SipHash-1-3 with 128 bits of output.
//!
//! The hash key is drawn per volume and never leaves it, so that nobody outside can choose keys that
//! meet in one bucket. The low 64 bits place the entry in the index; all 128 stand in the record.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The keyed hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash(pub(crate) u128);

impl KeyHash {
    /// The part that places the entry in the index.
    pub(crate) fn placing(self) -> u64 {
        self.0 as u64
    }
}

/// Hashes keys with the volume's secret.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    key: [u8; 16],
}

impl KeyHasher {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(key);
        KeyHash(hasher.finish128().as_u128())
    }
}
