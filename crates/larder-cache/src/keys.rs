//! The keys under which the store has values.
//!
//! Invariant: the first byte of a value's key differs from that of a chunk's key (`chunk_format`), so no caller's key
//! can name a chunk.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Instant,
};

/// Maximum length of a caller's key in bytes. A chunk's key adds two bytes and two numbers, and the store's limit is
/// 16 KiB.
pub(crate) const KEY_BYTES_MAX: usize = (16 << 10) - 2 - 16;

const VALUE: u8 = b'v';

/// Returns a unique random number, for generations and representations.
pub fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

/// Returns the key under which the store has a value.
pub(crate) fn value_key(key: &[u8]) -> Vec<u8> {
    [&[VALUE], key].concat()
}

/// Returns the caller's key of a value from the store's key. `None` for the key of a chunk.
pub(crate) fn key_of_value(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[VALUE])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_format::chunk_key;

    #[test]
    fn chunk_of_the_longest_key_can_be_stored() {
        assert_eq!(chunk_key(&value_key(&[b'k'; KEY_BYTES_MAX]), 7, 3).len(), 16 << 10);
    }
}
