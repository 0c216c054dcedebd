//! Copies of octets, each in one allocation.
//!
//! [`Bytes`] that are made from a vector take a second allocation for their count, at the latest when they are shared.
//! In front of an array, the count takes 8 bytes and no allocation of its own. So short octets are copied to an array
//! of the allocator's next size. Cost: the unused rest of the array, at most a quarter of it, and its zeros.

use std::iter;

use bytes::Bytes;

/// Copies octets. Up to [`SHORT_BYTES_MAX`] with the count, they take one allocation.
pub fn copied(octets: &[u8]) -> Bytes {
    short_copy(octets.len(), iter::once(octets)).unwrap_or_else(|| Bytes::copy_from_slice(octets))
}

/// Copies pieces of `len` bytes in all to an array, in one allocation with the count. `None` if they are long.
pub fn short_copy<'a>(len: usize, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Bytes> {
    macro_rules! smallest_of {
        ($($bytes:literal)*) => {
            match len.saturating_add(COUNT_BYTES) {
                $(0..=$bytes => Some(array_of::<{ $bytes - COUNT_BYTES }>(pieces)),)*
                _ => None,
            }
        };
    }
    smallest_of! {
        64 80 96 112 128 160 192 224 256 320 384 448 512 640 768 896 1024 1280 1536 1792 2048 2560 3072 3584 4096
    }
}

fn array_of<'a, const LEN: usize>(pieces: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut array = [0; LEN];
    let mut len = 0;
    for piece in pieces {
        array[len..][..piece.len()].copy_from_slice(piece);
        len += piece.len();
    }
    let mut copy = Bytes::from_owner(array);
    copy.truncate(len);
    copy
}

/// Memory in bytes of the count in front of an array.
pub const COUNT_BYTES: usize = 8;
/// Largest allocation in bytes that has an array.
pub const SHORT_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_of_any_length_has_its_octets() {
        for len in (0..300).chain((300..9000).step_by(13)) {
            let octets: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert_eq!(copied(&octets), octets);
            let in_pieces = short_copy(len, octets.chunks(100));
            assert_eq!(in_pieces.is_some(), len + COUNT_BYTES <= SHORT_BYTES_MAX);
            assert!(in_pieces.is_none_or(|copy| copy == octets));
        }
    }
}
