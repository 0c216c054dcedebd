//! The keyed hash of an entry's key: SipHash-1-3 with 128 bits of output.
//!
//! The hash key is random per volume and never leaves it, so that an attacker cannot choose keys that collide. The
//! index uses the low 64 bits to recognize and place an entry; the record holds all 128 bits.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// The low 64 bits of a key's hash, by which the index places and recognizes an entry. Different keys can share them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(pub(crate) u64);

/// Number of low hash bits by which every index can at least distinguish the keys of one partition.
pub(crate) const INDEX_HASH_BITS_MIN: u32 = 20;

impl KeyHash {
    /// Returns the high 32 bits, which select a part of the volume.
    pub(crate) fn prefix(self) -> u32 {
        (self.0 >> u32::BITS) as u32
    }

    /// Returns whether the lowest [`INDEX_HASH_BITS_MIN`] bits of both hashes are equal. An index that keeps only these
    /// bits cannot distinguish their keys.
    pub(crate) fn ends_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & ((1 << INDEX_HASH_BITS_MIN) - 1) == 0
    }

    /// Returns the smallest hash whose [`Self::prefix`] is `prefix`.
    pub(crate) fn of_prefix(prefix: u32) -> Self {
        Self(u64::from(prefix) << u32::BITS)
    }
}

/// The full 128 bits of a key's hash. A record contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FullHash(pub(crate) u128);

impl FullHash {
    /// Returns the low 64 bits, which the index uses.
    pub(crate) fn key_hash(self) -> KeyHash {
        KeyHash(self.0 as u64)
    }
}

/// Hashes keys with the secret hash key of a volume.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    key: [u8; 16],
}

impl KeyHasher {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> FullHash {
        // In one call, which is cheaper than the streaming form.
        FullHash(SipHasher13::new_with_key(&self.key).hash(key).as_u128())
    }

    /// Returns another secret key for `purpose`, derived from the volume's hash key. It reveals nothing about the hash
    /// key.
    pub(crate) fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let mut derived = [0; 32];
        for (number, half) in (0_u8..).zip(derived.as_chunks_mut::<16>().0) {
            let mut hasher = SipHasher13::new_with_key(&self.key);
            hasher.write(DERIVED);
            hasher.write_u8(number);
            hasher.write(purpose);
            *half = hasher.finish128().as_u128().to_le_bytes();
        }
        derived
    }
}

/// Start of each message from which a key is derived. It keeps these messages apart from the keys of entries, which are
/// URLs.
const DERIVED: &[u8] = b"\0larder derived key\0";
