//! The keys under which the store holds values: one for a value with its head, and one for each chunk of a long value.
//!
//! Invariant: the first byte distinguishes the two, so no caller's key can name a chunk.

use larder_store::Writer;
use std::{
    hash::{BuildHasher as _, RandomState},
    time::Instant,
};

/// Bytes in each chunk of a long value but the last.
pub(crate) const CHUNK_BYTES: u64 = Writer::BODY_MAX_BYTES;
/// Maximum length of a caller's key in bytes. A chunk's key adds a byte and a number, and the store's limit is 16 KiB.
pub(crate) const KEY_BYTES_MAX: usize = (16 << 10) - 1 - 16;

const VALUE: u8 = b'v';
const CHUNK: u8 = b'c';

/// Identifies the chunks of one stored value. Each write of a key gets its own, so chunks of an older value are never
/// mistaken for those of a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunksId(pub(crate) u64);

/// Returns a unique random number, for the chunks of values, for generations and representations.
pub fn random() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

/// Returns the store's key of a value.
pub(crate) fn value_key(key: &[u8]) -> Vec<u8> {
    [&[VALUE], key].concat()
}

/// Returns the key of a value from the store's key. `None` for a chunk.
pub(crate) fn key_of_value(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(&[VALUE])
}

/// Returns the store's key of a chunk.
pub(crate) fn chunk_key(key: &[u8], id: ChunksId, number: u64) -> Vec<u8> {
    [&[CHUNK], &id.0.to_le_bytes()[..], &number.to_le_bytes(), key].concat()
}

/// Returns the number of chunks of a value of `len_bytes`.
pub(crate) fn chunk_count(len_bytes: u64) -> u64 {
    len_bytes.div_ceil(CHUNK_BYTES)
}

/// Returns the length of a chunk in bytes.
pub(crate) fn chunk_len(len_bytes: u64, number: u64) -> u64 {
    assert!(number < chunk_count(len_bytes), "chunk {number} of a value of {len_bytes} bytes");
    CHUNK_BYTES.min(len_bytes - number * CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_value() {
        for len in [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 17] {
            assert_eq!((0..chunk_count(len)).map(|number| chunk_len(len, number)).sum::<u64>(), len);
        }
        assert_eq!(chunk_count(0), 0);
    }

    #[test]
    fn no_value_has_the_key_of_a_chunk() {
        let chunk = chunk_key(b"key", ChunksId(7), 3);
        assert_ne!(value_key(&chunk[1..]), chunk);
        assert_ne!(chunk_key(b"key", ChunksId(7), 4), chunk);
        assert_ne!(chunk_key(b"key", ChunksId(8), 3), chunk);
    }
}
