//! Buffers of the memory cache: octets in one allocation, and what the allocator takes for them.
//!
//! [`larder_http::octets`] copies short octets, so that their count takes 8 bytes instead of 32.

use bytes::Bytes;
use larder_http::octets::{COUNT_BYTES, SHORT_BYTES_MAX, short_copy};

use crate::memory::allocated_bytes;

/// Copies pieces to one buffer, which is not longer than the allocator rounds it up to.
pub(super) fn buffer<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Bytes {
    let len = pieces.clone().map(<[u8]>::len).sum();
    short_copy(len, pieces.clone()).unwrap_or_else(|| {
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
