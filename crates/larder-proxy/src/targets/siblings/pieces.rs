//! The pieces of long bodies, which have owners of their own, so that no node has to fetch, store and send the whole of
//! a popular one.
//!
//! Owns: which bodies are divided, and how long their pieces are. `larder_http::owner` chooses the owners, and
//! `crate::ground::cache::body` requests the pieces.
//!
//! All nodes divide at the same positions. If they did not agree, bytes would be stored twice, but none would be wrong:
//! any node answers for any part of a body.

use crate::ground::cache::key_set::KeySet;

/// The division of long bodies into pieces, which different nodes own.
pub(crate) struct Pieces {
    len_bytes: u64,
    /// Keys of resources whose bodies are not divided, because the origin ignored a range request and sent the whole
    /// body.
    undivided: KeySet,
}

impl Pieces {
    /// Creates the division into pieces of `len_bytes`.
    pub(super) fn new(len_bytes: u64) -> Self {
        assert!(len_bytes > 0, "a piece has bytes");
        Self { len_bytes, undivided: KeySet::default() }
    }

    /// Returns whether a body of `len` bytes is divided into pieces. `key` is the key of its resource.
    pub(super) fn divide(&self, key: &[u8], len: u64) -> bool {
        len / PIECE_COUNT_MIN >= self.len_bytes && !self.undivided.contains(key)
    }

    /// Returns the number of the piece that contains the byte at `position`.
    pub(crate) fn number(&self, position: u64) -> u64 {
        position / self.len_bytes
    }

    /// Returns the length of pieces, in bytes.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Records that an origin sent the whole body when a piece was requested.
    ///
    /// Such an origin would send the whole body for each piece, so the body is no longer divided.
    pub(crate) fn note_whole(&self, key: &[u8]) {
        self.undivided.insert(key);
    }
}

/// Minimum number of pieces of a divided body. A shorter body is not worth the division.
const PIECE_COUNT_MIN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bodies_are_divided_unless_their_origin_sends_them_whole() {
        let pieces = Pieces::new(10);
        assert!(!pieces.divide(b"a", 39) && pieces.divide(b"a", 40) && pieces.divide(b"a", u64::MAX));
        pieces.note_whole(b"a");
        assert!(!pieces.divide(b"a", 40) && pieces.divide(b"b", 40));
    }

    #[test]
    fn each_byte_is_in_one_piece() {
        let pieces = Pieces::new(10);
        assert_eq!([0, 9, 10, 19, u64::MAX].map(|at| pieces.number(at)), [0, 0, 1, 1, u64::MAX / 10]);
    }
}
