//! The session block of a volume with a disk table: the data that a run leaves for the next one.
//!
//! There are two copies at the start of the index area, written alternately; the newer valid one counts. Invariant: a
//! run writes its session before it writes any entry, so that its write numbers are greater than all earlier ones.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    mend::mended_block,
};
use crate::units::BLOCK_BYTES;

const MAGIC: [u8; 4] = *b"LDRs";
const USED_BYTES: usize = 32;
/// Bytes of both copies of the session block.
pub(crate) const SESSION_AREA_BYTES: u64 = 2 * BLOCK_BYTES;

/// Data that a run of the store leaves for the next run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunSession {
    /// Number that grows with every write of the block.
    pub(crate) generation: u64,
    /// The first write number that this run uses.
    pub(crate) first_sequence: u64,
    /// Position at which the next run continues the ring, as the number of bytes ever written to the ring. This run
    /// wrote nothing beyond it.
    pub(crate) ring_next: u64,
}

impl RunSession {
    /// Writes the block into `target`, which must have the length of a block.
    pub(crate) fn encode(&self, volume: VolumeId, target: &mut [u8]) {
        assert_eq!(target.len() as u64, BLOCK_BYTES);
        target.fill(0);
        FieldsMut::new(target)
            .put(&MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&self.generation.to_le_bytes())
            .put(&self.first_sequence.to_le_bytes())
            .put(&self.ring_next.to_le_bytes());
        let checksum = volume.checksum(&[&target[8..USED_BYTES]]);
        target[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes the session in `block`, after repairing up to one flipped bit. Returns `None` if it is not valid.
    pub(crate) fn decode(volume: VolumeId, block: &[u8]) -> Option<Self> {
        let used = mended_block(volume, MAGIC, block.get(..USED_BYTES)?)?;
        let mut fields = FieldReader::new(&used[8..]);
        Some(Self { generation: fields.u64()?, first_sequence: fields.u64()?, ring_next: fields.u64()? })
    }

    /// Returns the newer of the valid copies at the start of `area`.
    pub(crate) fn newest(volume: VolumeId, area: &[u8]) -> Option<Self> {
        let copies = area.chunks(BLOCK_BYTES as usize).take(2);
        copies.filter_map(|copy| Self::decode(volume, copy)).max_by_key(|session| session.generation)
    }

    /// Returns where this session is written: the offset of its copy, from the start of the index area.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.generation % 2 * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_whole_copy_rules_and_every_flipped_bit_is_undone() {
        let volume = VolumeId([2; 16]);
        let mut area = vec![0; SESSION_AREA_BYTES as usize];
        assert_eq!(RunSession::newest(volume, &area), None);
        for generation in 1..=2 {
            let session = RunSession { generation, first_sequence: 9 << 40, ring_next: 77 * generation };
            let at = session.offset_bytes() as usize;
            session.encode(volume, &mut area[at..at + BLOCK_BYTES as usize]);
            assert_eq!(RunSession::newest(volume, &area), Some(session));
        }
        for bit in 0..USED_BYTES * 8 {
            area[bit / 8] ^= 1 << (bit % 8);
            let mended = RunSession::newest(volume, &area).map(|session| session.ring_next);
            assert_eq!(mended, Some(154), "bit {bit}");
            area[bit / 8] ^= 1 << (bit % 8);
        }
        area[20] ^= 3;
        assert_eq!(RunSession::newest(volume, &area).map(|session| session.generation), Some(1));
        assert_eq!(RunSession::newest(VolumeId([3; 16]), &area), None, "another volume's");
    }
}
