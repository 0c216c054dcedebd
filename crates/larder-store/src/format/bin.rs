//! A bin: one place of the disk table, with the first bytes of an entry's record.
//!
//! Layout: header, then the record as far as it fits; what does not fit lies in the ring, at the place the
//! header tells. Invariant: a header is believed only if its checksum fits; it tells whose the bin is without
//! the record being read whole, and the record is judged by its own checksums all the same.
//! Source: HashCache (NSDI 2009), the Disk Table's bins.

use super::{
    VolumeId,
    bytes::{Fields, FieldsMut},
    record::RECORD_SECTORS_MAX,
};
use crate::{hash::KeyHash, units::SECTOR_BYTES};

const MAGIC: [u8; 4] = *b"LDRb";
/// Bytes before the record.
pub(crate) const BIN_HEADER_BYTES: usize = 64;

/// What a bin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinHeader {
    pub(crate) hash: KeyHash,
    /// Number of the write, greater than those of all earlier writes to the volume.
    pub(crate) sequence: u64,
    /// Whole length of the record.
    pub(crate) record_bytes: u32,
    /// Where in the ring the rest of the record lies, counted from the ring's first use.
    pub(crate) rest_at: u64,
}

impl BinHeader {
    pub(crate) fn encode(&self, volume: VolumeId, bin: &mut [u8]) {
        let header = &mut bin[..BIN_HEADER_BYTES];
        header.fill(0);
        FieldsMut::new(header)
            .put(&MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&self.hash.0.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.rest_at.to_le_bytes())
            .put(&self.record_bytes.to_le_bytes());
        let checksum = volume.checksum(&[&header[8..]]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The header of `bin`; `None` if the bin is empty or damaged.
    pub(crate) fn decode(volume: VolumeId, bin: &[u8]) -> Option<Self> {
        let header = bin.get(..BIN_HEADER_BYTES)?;
        let mut fields = Fields::new(header);
        if fields.array()? != MAGIC || fields.u32()? != volume.checksum(&[&header[8..]]) {
            return None;
        }
        let (hash, sequence, rest_at) = (KeyHash(fields.u128()?), fields.u64()?, fields.u64()?);
        let record_bytes = fields.u32()?;
        let bounded = u64::from(record_bytes) <= RECORD_SECTORS_MAX * SECTOR_BYTES;
        bounded.then_some(Self { hash, sequence, record_bytes, rest_at })
    }
}

/// Whether `bin` was never written, or wiped.
pub(crate) fn is_blank(bin: &[u8]) -> bool {
    bin.iter().take(BIN_HEADER_BYTES).all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_of_it_noticed() {
        let volume = VolumeId([5; 16]);
        let header =
            BinHeader { hash: KeyHash(u128::MAX / 3), sequence: 7 << 40, record_bytes: 70_000, rest_at: 1 << 50 };
        let mut bin = vec![9; 100];
        header.encode(volume, &mut bin);
        assert_eq!(BinHeader::decode(volume, &bin), Some(header));
        assert_eq!(BinHeader::decode(VolumeId([6; 16]), &bin), None, "a bin of another volume");
        for bit in 0..BIN_HEADER_BYTES * 8 {
            bin[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BinHeader::decode(volume, &bin), None, "bit {bit}");
            bin[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!is_blank(&bin) && is_blank(&[0; 64]) && BinHeader::decode(volume, &[0; 64]).is_none());
        assert_eq!(BinHeader::decode(volume, &bin[..63]), None);
    }
}
