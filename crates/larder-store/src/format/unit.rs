//! A write unit's header: one sector in front of the records that were written in one transfer.
//!
//! A segment is a row of units without gaps. After a crash an unsealed segment is read unit by unit,
//! until one's header does not fit: what lies behind is of an earlier use of the segment.

use super::{
    VolumeId,
    bytes::{Fields, FieldsMut},
    mend::mended_block,
};
use crate::units::{BLOCK_BYTES, Geometry, SECTOR_BYTES, SegmentId};

const MAGIC: [u8; 4] = *b"LDRu";
/// A unit's header takes one sector, so that records stay packed at sectors.
pub(crate) const UNIT_HEADER_BYTES: u64 = SECTOR_BYTES;
const USED_BYTES: usize = 48;

/// What a unit says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHeader {
    pub(crate) segment: SegmentId,
    /// Which use of the segment this is; unique on the volume, and later is greater.
    pub(crate) sequence: u32,
    /// Number of the unit in its segment, from 0.
    pub(crate) number: u32,
    /// Length with this header, whole blocks.
    pub(crate) len_bytes: u32,
    /// Length of header and records, without the fill up to the block.
    pub(crate) used_bytes: u32,
    /// When this use of the segment began, all uses of segments before this sequence were over.
    pub(crate) oldest_sequence: u32,
}

impl UnitHeader {
    pub(crate) fn encode(&self, volume: VolumeId, sector: &mut [u8]) {
        let sector = &mut sector[..UNIT_HEADER_BYTES as usize];
        sector.fill(0);
        let mut fields = FieldsMut::new(sector);
        fields
            .put(&MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&volume.0)
            .put(&self.segment.0.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.number.to_le_bytes())
            .put(&self.len_bytes.to_le_bytes())
            .put(&self.used_bytes.to_le_bytes())
            .put(&self.oldest_sequence.to_le_bytes());
        let checksum = volume.checksum(&[&sector[8..USED_BYTES]]);
        sector[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// As [`Self::decode`], with one flipped bit undone.
    pub(crate) fn decode_mended(volume: VolumeId, geometry: &Geometry, bytes: &[u8]) -> Option<Self> {
        Self::decode(volume, geometry, bytes).or_else(|| {
            let mended = mended_block(volume, MAGIC, bytes.get(..USED_BYTES)?)?;
            Self::decode(volume, geometry, &mended)
        })
    }

    /// Whether a header of this volume was written at the start of `bytes`, and is damaged beyond mending. Nobody but
    /// the store knows the volume's identity, so that no body passes for one.
    pub(crate) fn is_damaged(volume: VolumeId, geometry: &Geometry, bytes: &[u8]) -> bool {
        let is_ours = bytes.starts_with(&MAGIC) && bytes.get(8..24) == Some(&volume.0[..]);
        is_ours && Self::decode_mended(volume, geometry, bytes).is_none()
    }

    /// The header at the start of `bytes`, if it is one of this volume and its lengths make sense.
    pub(crate) fn decode(volume: VolumeId, geometry: &Geometry, bytes: &[u8]) -> Option<Self> {
        let used = bytes.get(..USED_BYTES)?;
        let mut fields = Fields::new(used);
        if fields.array()? != MAGIC || fields.u32()? != volume.checksum(&[&used[8..]]) || fields.array()? != volume.0 {
            return None;
        }
        let header = Self {
            segment: SegmentId(fields.u32()?),
            sequence: fields.u32()?,
            number: fields.u32()?,
            len_bytes: fields.u32()?,
            used_bytes: fields.u32()?,
            oldest_sequence: fields.u32()?,
        };
        let sound = u64::from(header.len_bytes) <= geometry.segment_bytes
            && u64::from(header.len_bytes).is_multiple_of(BLOCK_BYTES)
            && header.used_bytes <= header.len_bytes
            && u64::from(header.used_bytes) >= UNIT_HEADER_BYTES
            && header.oldest_sequence <= header.sequence;
        sound.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_in_it_noticed() {
        let volume = VolumeId([5; 16]);
        let geometry = Geometry::new(64 << 20, 0, 1 << 20).unwrap();
        let header = UnitHeader {
            segment: SegmentId(3),
            sequence: 77,
            number: 2,
            len_bytes: 8192,
            used_bytes: 5632,
            oldest_sequence: 70,
        };
        let mut sector = vec![0xee; 512];
        header.encode(volume, &mut sector);
        assert_eq!(UnitHeader::decode(volume, &geometry, &sector), Some(header));
        assert_eq!(UnitHeader::decode(VolumeId([6; 16]), &geometry, &sector), None);
        for bit in 0..USED_BYTES * 8 {
            sector[bit / 8] ^= 1 << (bit % 8);
            let read = UnitHeader::decode(volume, &geometry, &sector);
            assert_eq!(read, None, "bit {bit}");
            assert_eq!(UnitHeader::decode_mended(volume, &geometry, &sector), Some(header), "bit {bit}");
            assert!(!UnitHeader::is_damaged(volume, &geometry, &sector));
            sector[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(UnitHeader::decode(volume, &geometry, &sector[..40]), None);
        sector[30] ^= 3;
        assert!(UnitHeader::is_damaged(volume, &geometry, &sector));
        assert!(!UnitHeader::is_damaged(VolumeId([6; 16]), &geometry, &sector));
    }
}
