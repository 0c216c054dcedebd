//! The keyed hash of an entry's key: SipHash-1-3 with 128 bits of output.
//!
//! The hash key is drawn per volume and never leaves it, so that nobody outside can choose keys that
//! meet in one bucket. By the low 64 bits memory knows an entry and places it; all 128 stand in the record.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// 64 bits of the keyed hash of a key: by these memory knows its entry, and chooses its place. Two keys may have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(pub(crate) u64);

/// Bits of a key's hash, the last ones, that every index tells keys of one partition apart by.
pub(crate) const INDEX_HASH_BITS_MIN: u32 = 20;

impl KeyHash {
    /// Returns the high half, which chooses among parts of a volume.
    pub(crate) fn prefix(self) -> u32 {
        (self.0 >> u32::BITS) as u32
    }

    /// Returns whether no index can tell the hashes apart that has only the last bits of them.
    pub(crate) fn ends_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & ((1 << INDEX_HASH_BITS_MIN) - 1) == 0
    }

    /// Returns the least hash with this prefix.
    pub(crate) fn of_prefix(prefix: u32) -> Self {
        Self(u64::from(prefix) << u32::BITS)
    }
}

/// The keyed hash of a key, all of it: what a record is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FullHash(pub(crate) u128);

impl FullHash {
    /// Returns the part that memory knows.
    pub(crate) fn key_hash(self) -> KeyHash {
        KeyHash(self.0 as u64)
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

    pub(crate) fn hash(&self, key: &[u8]) -> FullHash {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(key);
        FullHash(hasher.finish128().as_u128())
    }
}
