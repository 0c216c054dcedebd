//! Buffers of the memory cache: octets in one allocation, and what the allocator takes for them.
//!
//! Bytes that own a vector take a second allocation for their count. In front of a short buffer, the count takes 8
//! bytes instead of 32, if the owner is an array. So short octets are copied to an array of the allocator's next size.

use bytes::Bytes;

use crate::memory::allocated_bytes;

/// Copies pieces to one buffer, which is not longer than the allocator rounds it up to.
pub(super) fn buffer<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
    let len = pieces.clone().map(<[u8]>::len).sum();
    short_buffer(len, pieces.clone()).unwrap_or_else(|| {
        let mut octets = Vec::with_capacity(len);
        pieces.for_each(|piece| octets.extend_from_slice(piece));
        octets.into()
    })
}

/// Returns how many bytes the allocator takes for a buffer of `len` bytes and its count.
pub(super) fn buffer_bytes(len: usize) -> u64 {
    match len.checked_add(COUNT_BYTES) {
        Some(bytes) if bytes <= SHORT_BYTES_MAX => allocated_bytes(bytes),
        _ => allocated_bytes(len) + LONG_COUNT_BYTES,
    }
}

/// Copies pieces of `len` bytes in all to an array, in one allocation with the count. `None` if they are long.
fn short_buffer<'a>(len: usize, pieces: impl Iterator<Item = &'a [u8]>) -> Option<Bytes> {
    macro_rules! smallest_of {
        ($($bytes:literal)*) => {
            match len.saturating_add(COUNT_BYTES) {
                $(0..=$bytes => Some(array_buffer::<{ $bytes - COUNT_BYTES }>(pieces)),)*
                _ => None,
            }
        };
    }
    smallest_of! {
        64 80 96 112 128 160 192 224 256 320 384 448 512 640 768 896 1024 1280 1536 1792 2048 2560 3072 3584 4096
    }
}

fn array_buffer<'a, const LEN: usize>(pieces: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut array = [0; LEN];
    let mut len = 0;
    for piece in pieces {
        array[len..][..piece.len()].copy_from_slice(piece);
        len += piece.len();
    }
    let mut buffer = Bytes::from_owner(array);
    buffer.truncate(len);
    buffer
}

/// Memory in bytes of the count in front of an array.
const COUNT_BYTES: usize = 8;
/// Largest allocation in bytes that has an array.
const SHORT_BYTES_MAX: usize = 4096;
/// Memory in bytes of the count of a longer buffer, with its location.
const LONG_COUNT_BYTES: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_of_any_length_has_its_octets_and_weighs_little_more() {
        for len in (0..300).chain((300..9000).step_by(13)).chain((9000..70_000).step_by(997)) {
            let octets: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let bytes = buffer_bytes(len) as usize;
            assert!(bytes >= len + COUNT_BYTES && bytes <= len + len / 4 + 64, "{len} bytes take {bytes}");
            assert_eq!(buffer(octets.chunks(100)), octets);
        }
    }
}
