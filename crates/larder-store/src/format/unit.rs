//! The header of a write unit, in front of the records that were written in one operation.
//!
//! A segment is a sequence of units without gaps. After a crash, an unsealed segment is read unit by unit, until a
//! header does not continue the sequence: the bytes from there on belong to an earlier use of the segment.

use super::{
    SegmentUse, VolumeId,
    bytes::{FieldReader, FieldsMut},
    mend::mended_block,
};
use crate::units::{BLOCK_BYTES, SECTOR_BYTES, SegmentGeometry, SegmentId};

const MAGIC: [u8; 4] = *b"LDRu";
/// Magic of a write unit on a volume with probation (segments for new entries).
const MAGIC_OF_GENERATIONS: [u8; 4] = *b"LDRg";
/// Bytes of a unit header on packed volumes.
const HEADER_BYTES_PACKED: u64 = 64;
const USED_BYTES: usize = 48;
const USED_BYTES_OF_GENERATIONS: usize = 56;

/// The header of a write unit: records that were written in one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHeader {
    pub(crate) segment: SegmentId,
    /// Sequence of the segment's use in which the unit was written. Unique on the volume; later uses have greater
    /// numbers.
    pub(crate) sequence: u32,
    /// Number of the unit in its segment, from 0.
    pub(crate) number: u32,
    /// Length of the unit in bytes with this header, in whole blocks.
    pub(crate) len_bytes: u32,
    /// Length of the header and the records in bytes, without the padding at the end.
    pub(crate) used_bytes: u32,
    /// Smallest sequence of all segments (on volumes with probation: of all main segments) that were in use when this
    /// use of the segment began.
    pub(crate) oldest_sequence: u32,
    /// The part of the header about the generations of segments; `None` on volumes without probation.
    pub(crate) generations: Option<UnitGenerations>,
}

/// The part of a unit header about the generations of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitGenerations {
    /// Smallest sequence of all probation segments that were in use when this use of the segment began.
    pub(crate) oldest_probation: u32,
    /// The anchor of a probation segment ([`super::SegmentUse`]); 0 for a main segment.
    pub(crate) anchor: u32,
}

/// Returns the length in bytes of a unit header: 64 on packed volumes, otherwise one sector.
pub(crate) fn unit_header_bytes(geometry: &SegmentGeometry) -> u64 {
    if geometry.is_packed() { HEADER_BYTES_PACKED } else { SECTOR_BYTES }
}

/// The two forms of a header, without and with generations: the magic, and how many bytes are used.
const FORMS: [([u8; 4], usize); 2] = [(MAGIC, USED_BYTES), (MAGIC_OF_GENERATIONS, USED_BYTES_OF_GENERATIONS)];

impl UnitHeader {
    /// Writes the header to the start of `unit`.
    pub(crate) fn encode(&self, volume: VolumeId, geometry: &SegmentGeometry, unit: &mut [u8]) {
        let sector = &mut unit[..unit_header_bytes(geometry) as usize];
        sector.fill(0);
        let (magic, used_bytes) = FORMS[usize::from(self.generations.is_some())];
        let mut fields = FieldsMut::new(sector);
        fields
            .put(&magic)
            .put(&0_u32.to_le_bytes())
            .put(&volume.0)
            .put(&self.segment.0.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.number.to_le_bytes())
            .put(&self.len_bytes.to_le_bytes())
            .put(&self.used_bytes.to_le_bytes())
            .put(&self.oldest_sequence.to_le_bytes());
        if let Some(UnitGenerations { oldest_probation, anchor }) = self.generations {
            fields.put(&oldest_probation.to_le_bytes()).put(&anchor.to_le_bytes());
        }
        let checksum = volume.checksum(&[&sector[8..used_bytes]]);
        sector[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes a header like [`Self::decode`], after repairing up to one flipped bit.
    pub(crate) fn decode_mended(volume: VolumeId, geometry: &SegmentGeometry, bytes: &[u8]) -> Option<Self> {
        Self::decode(volume, geometry, bytes).or_else(|| {
            FORMS.into_iter().find_map(|(magic, used_bytes)| {
                let mended = mended_block(volume, magic, bytes.get(..used_bytes)?)?;
                Self::decode(volume, geometry, &mended)
            })
        })
    }

    /// Returns whether `bytes` begin with a header of this volume that is damaged beyond repair. The content of an
    /// entry cannot look like this, because clients do not know the volume's identity.
    pub(crate) fn is_damaged(volume: VolumeId, geometry: &SegmentGeometry, bytes: &[u8]) -> bool {
        let has_magic = FORMS.iter().any(|(magic, _)| bytes.starts_with(magic));
        let is_ours = has_magic && bytes.get(8..24) == Some(&volume.0[..]);
        is_ours && Self::decode_mended(volume, geometry, bytes).is_none()
    }

    /// Decodes the header at the start of `bytes`. Returns `None` if it is not one of this volume, or its lengths are
    /// impossible.
    pub(crate) fn decode(volume: VolumeId, geometry: &SegmentGeometry, bytes: &[u8]) -> Option<Self> {
        let (magic, used_bytes) = FORMS.into_iter().find(|(magic, _)| bytes.starts_with(magic))?;
        let used = bytes.get(..used_bytes)?;
        let mut fields = FieldReader::new(used);
        if fields.array()? != magic || fields.u32()? != volume.checksum(&[&used[8..]]) || fields.array()? != volume.0 {
            return None;
        }
        let mut header = Self {
            segment: SegmentId(fields.u32()?),
            sequence: fields.u32()?,
            number: fields.u32()?,
            len_bytes: fields.u32()?,
            used_bytes: fields.u32()?,
            oldest_sequence: fields.u32()?,
            generations: None,
        };
        if magic == MAGIC_OF_GENERATIONS {
            header.generations = Some(UnitGenerations { oldest_probation: fields.u32()?, anchor: fields.u32()? });
        }
        let is_older =
            |generations: UnitGenerations| generations.oldest_probation.max(generations.anchor) <= header.sequence;
        let sound = u64::from(header.len_bytes) <= geometry.segment_bytes
            && u64::from(header.len_bytes).is_multiple_of(BLOCK_BYTES)
            && header.used_bytes <= header.len_bytes
            && u64::from(header.used_bytes) >= unit_header_bytes(geometry)
            && header.oldest_sequence <= header.sequence
            && header.generations.is_none_or(is_older);
        sound.then_some(header)
    }

    /// Returns the use of the segment in which the unit was written.
    pub(crate) fn segment_use(&self) -> SegmentUse {
        let anchor = self.generations.map_or(0, |generations| generations.anchor);
        SegmentUse { sequence: self.sequence, anchor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_every_flipped_bit_in_it_noticed() {
        let volume = VolumeId([5; 16]);
        let geometry = SegmentGeometry::new(64 << 20, 0, 1 << 20).unwrap();
        let generations = Some(UnitGenerations { oldest_probation: 72, anchor: 75 });
        let plain = UnitHeader {
            segment: SegmentId(3),
            sequence: 77,
            number: 2,
            len_bytes: 8192,
            used_bytes: 5632,
            oldest_sequence: 70,
            generations: None,
        };
        for (header, used_bytes) in
            [(plain, USED_BYTES), (UnitHeader { generations, ..plain }, USED_BYTES_OF_GENERATIONS)]
        {
            let mut sector = vec![0xee; 512];
            header.encode(volume, &geometry, &mut sector);
            assert_eq!(UnitHeader::decode(volume, &geometry, &sector), Some(header));
            assert_eq!(UnitHeader::decode(VolumeId([6; 16]), &geometry, &sector), None);
            for bit in 0..used_bytes * 8 {
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
}
