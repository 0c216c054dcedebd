//! A bin: a fixed-length place of the disk table, with the first bytes of an entry's record.
//!
//! Layout: a header, then as much of the record as fits. The remainder of the record is in the ring, at the position in
//! the header. Invariant: a header is trusted only if its checksum is valid and it is in its own place. It shows which
//! entry the bin holds without reading the whole record, which has its own checksums. A wiped bin contains a header
//! with its place. So only bins that were never written are blank, and every other bin reveals a misdirected read.
//!
//! Source: HashCache (NSDI 2009), the Disk Table's bins.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    record::RECORD_SECTORS_MAX,
};
use crate::{hash::FullHash, units::SECTOR_BYTES};

const MAGIC: [u8; 4] = *b"LDRb";
/// Length of a bin's header, in bytes. The record follows it.
pub(crate) const BIN_HEADER_BYTES: usize = 64;

/// The header of a bin, a place of fixed length on the volume for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinHeader {
    pub(crate) hash: FullHash,
    /// Number of the write. Greater than the numbers of all earlier writes to the volume.
    pub(crate) sequence: u64,
    /// Length of the whole record in bytes, including the part that is in the ring because it did not fit in the bin.
    pub(crate) record_bytes: u32,
    /// Position in the ring of the part of the record that does not fit in the bin: the number of bytes ever written to
    /// the ring before it.
    pub(crate) rest_at: u64,
    /// Offset of the bin on the volume, to detect bytes that were written to a wrong place.
    pub(crate) offset_bytes: u64,
    /// Place of the record's remainder among the remainders of its group in the ring.
    pub(crate) rests: RestsOfGroup,
}

/// The place of a record's remainder (the part that does not fit in its bin) among the remainders of its group, which
/// are adjacent in the ring. All zeros if the record is in no group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestsOfGroup {
    /// Length of the remainders of the group's earlier records, in 4 KiB blocks.
    pub(crate) blocks_before: u16,
    /// Length of the remainders of all records of the group, in 4 KiB blocks.
    pub(crate) blocks: u16,
}

impl BinHeader {
    /// Creates the header of a bin that holds no record, because its entry was removed.
    pub(crate) fn wiped(offset_bytes: u64) -> Self {
        let rests = RestsOfGroup::default();
        Self { hash: FullHash(0), sequence: 0, record_bytes: 0, rest_at: 0, offset_bytes, rests }
    }

    /// Returns whether the bin holds no record, because its entry was removed.
    pub(crate) fn is_wiped(&self) -> bool {
        self.record_bytes == 0
    }

    pub(crate) fn encode(&self, volume: VolumeId, bin: &mut [u8]) {
        let header = &mut bin[..BIN_HEADER_BYTES];
        header.fill(0);
        FieldsMut::new(header)
            .put(&MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&self.hash.0.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.rest_at.to_le_bytes())
            .put(&self.record_bytes.to_le_bytes())
            .put(&self.offset_bytes.to_le_bytes())
            .put(&self.rests.blocks_before.to_le_bytes())
            .put(&self.rests.blocks.to_le_bytes());
        let checksum = volume.checksum(&[&header[8..]]);
        header[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes the header of `bin`, which was read at `offset_bytes`. Returns `None` if the bin is blank or damaged, or
    /// was written for another offset.
    pub(crate) fn decode(volume: VolumeId, bin: &[u8], offset_bytes: u64) -> Option<Self> {
        let header = bin.get(..BIN_HEADER_BYTES)?;
        let mut fields = FieldReader::new(header);
        if fields.array()? != MAGIC || fields.u32()? != volume.checksum(&[&header[8..]]) {
            return None;
        }
        let hash = FullHash(fields.u128()?);
        let sequence = fields.u64()?;
        let rest_at = fields.u64()?;
        let record_bytes = fields.u32()?;
        let bounded = u64::from(record_bytes) <= RECORD_SECTORS_MAX * SECTOR_BYTES;
        let in_place = fields.u64()? == offset_bytes;
        let rests = RestsOfGroup { blocks_before: fields.u16()?, blocks: fields.u16()? };
        (bounded && in_place).then_some(Self { hash, sequence, record_bytes, rest_at, offset_bytes, rests })
    }
}

/// Returns whether `bin` was never written: its header has only zeros.
pub(crate) fn is_blank(bin: &[u8]) -> bool {
    bin.iter().take(BIN_HEADER_BYTES).all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_of_it_noticed() {
        let volume = VolumeId([5; 16]);
        let hash = FullHash(u128::MAX / 3);
        let offset_bytes = 9 << 33;
        let rests = RestsOfGroup { blocks_before: 3, blocks: 300 };
        let header = BinHeader { hash, sequence: 7 << 40, record_bytes: 70_000, rest_at: 1 << 50, offset_bytes, rests };
        let decode = |volume, bin: &[u8]| BinHeader::decode(volume, bin, offset_bytes);
        let mut bin = vec![9; 100];
        header.encode(volume, &mut bin);
        assert_eq!(decode(volume, &bin), Some(header));
        assert_eq!(decode(VolumeId([6; 16]), &bin), None, "a bin of another volume");
        assert_eq!(BinHeader::decode(volume, &bin, 9 << 32), None, "another bin");
        for bit in 0..BIN_HEADER_BYTES * 8 {
            bin[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(volume, &bin), None, "bit {bit}");
            bin[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!is_blank(&bin) && is_blank(&[0; 64]) && decode(volume, &[0; 64]).is_none());
        assert_eq!(decode(volume, &bin[..63]), None);
    }
}
