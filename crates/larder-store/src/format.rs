//! The bytes on a volume: superblock, unit, record, trailer, checkpoint and more. The formats are described in
//! docs/internals/format.md.
//!
//! Owns: encoding and checked decoding; everything is little-endian. This module does no I/O and decides nothing.
//! Invariant: a decoder accepts only bytes with a valid checksum, and never reads past them. Checksums are CRC32C,
//! salted with the volume's identity, so that bytes of another volume, or bytes that a client chose, are not accepted.

pub(crate) mod bin;
pub(crate) mod bytes;
pub(crate) mod checkpoint;
pub(crate) mod compact;
pub(crate) mod journal;
pub(crate) mod mend;
pub(crate) mod pack;
pub(crate) mod positions;
pub(crate) mod record;
mod segment_use;
pub(crate) mod session;
pub(crate) mod snapshot;
pub(crate) mod steps;
pub(crate) mod superblock;
pub(crate) mod trailer;
pub(crate) mod unit;
pub(crate) mod written;

pub(crate) use segment_use::{LogOrder, SegmentRow, SegmentUse};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// The identity of a volume. All checksums but the superblock's include it, so that bytes of another volume are not
/// valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeId(pub(crate) [u8; 16]);

impl VolumeId {
    /// Returns the identity that the volume gets if it starts over empty. It is derived from the present identity and
    /// `secret`, so that simulations are repeatable and strangers cannot predict it.
    pub(crate) fn successor(self, secret: &[u8; 16]) -> Self {
        let mut next = [0; 16];
        for (number, half) in (0_u8..).zip(next.as_chunks_mut::<8>().0) {
            let mut hasher = SipHasher13::new_with_key(secret);
            hasher.write(&self.0);
            hasher.write_u8(number);
            *half = hasher.finish().to_le_bytes();
        }
        Self(next)
    }

    /// Returns the checksum of the joined `parts` and the volume's identity.
    pub(crate) fn checksum(self, parts: &[&[u8]]) -> u32 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.0);
        for part in parts {
            steps::take(part.len());
            digest.update(part);
        }
        digest.finalize() as u32
    }
}

/// Returns the CRC32C of `bytes`, without the volume's identity. Used where another checksum that includes the identity
/// covers this one.
pub(crate) fn plain_checksum(bytes: &[u8]) -> u32 {
    steps::take(bytes.len());
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the checksum of two joined byte strings, given both checksums and the length of the second string.
pub(crate) fn joined_checksum(first: u32, second: u32, second_bytes: u64) -> u32 {
    let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
    crc_fast::checksum_combine(algorithm, first.into(), second.into(), second_bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_checksum_is_crc32c() {
        assert_eq!(plain_checksum(b"123456789"), 0xE306_9283);
        assert_eq!(joined_checksum(plain_checksum(b"1234"), plain_checksum(b"56789"), 5), 0xE306_9283);
        assert_eq!(joined_checksum(plain_checksum(b""), 0xE306_9283, 9), 0xE306_9283);
    }

    #[test]
    fn an_identity_has_one_successor_and_it_is_another() {
        let id = VolumeId([1; 16]);
        assert_eq!(id.successor(&[2; 16]), id.successor(&[2; 16]));
        assert_ne!(id.successor(&[2; 16]), id);
        assert_ne!(id.successor(&[2; 16]), id.successor(&[3; 16]));
        assert_ne!(id.successor(&[2; 16]).successor(&[2; 16]), id);
    }

    #[test]
    fn checksums_of_two_volumes_differ() {
        assert_ne!(VolumeId([1; 16]).checksum(&[b"abc"]), VolumeId([2; 16]).checksum(&[b"abc"]));
        assert_eq!(VolumeId([1; 16]).checksum(&[b"abc"]), VolumeId([1; 16]).checksum(&[b"a", b"bc"]));
    }
}
