//! The superblock: what a volume is. One copy at each end of the volume, the newer one rules.
//!
//! Owns: identity, hash key, geometry and the invalidation rules. Invariant: both copies are written
//! at creation; later ones are written first copy first, so that one of them is always whole.

use super::{
    VolumeId,
    bytes::{Fields, FieldsMut},
};
use crate::units::{Geometry, SUPERBLOCK_BYTES};

/// The first eight bytes of every Larder volume.
const MAGIC: [u8; 8] = *b"LARDERv\n";
/// The format this code reads and writes.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// The `log` row.
const ROW_LOG: u32 = 1;
/// How many sites can have an invalidation of their own.
pub(crate) const SITE_RULE_COUNT_MAX: usize = 256;
const CHECKSUM_AT: usize = 12;

/// What a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) id: VolumeId,
    pub(crate) hash_key: [u8; 16],
    pub(crate) geometry: Geometry,
    /// Goes up by one at every write.
    pub(crate) generation: u64,
    pub(crate) epochs: Epochs,
}

/// Which entries are invalid by rule: those written in an epoch before their rule's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    /// The epoch entries are written in now.
    pub(crate) current: u32,
    /// Entries of any site from epochs before this are invalid.
    pub(crate) all_before: u32,
    /// Entries of one site from epochs before this are invalid.
    pub(crate) site_before: Vec<(u64, u32)>,
}

impl Epochs {
    /// Whether an entry of `site`, written in `epoch`, is still valid.
    pub(crate) fn admits(&self, site: u64, epoch: u32) -> bool {
        epoch >= self.all_before && self.site_before.iter().all(|&(ruled, before)| ruled != site || epoch >= before)
    }

    /// Invalidates everything written so far.
    pub(crate) fn invalidate_all(&mut self) {
        self.current = self.current.saturating_add(1);
        self.all_before = self.current;
        self.site_before.clear();
    }

    /// Invalidates what was written so far for `site`. When there is no room for another rule,
    /// everything goes: forgetting is allowed.
    pub(crate) fn invalidate_site(&mut self, site: u64) {
        self.site_before.retain(|&(ruled, _)| ruled != site);
        if self.site_before.len() == SITE_RULE_COUNT_MAX {
            return self.invalidate_all();
        }
        self.current = self.current.saturating_add(1);
        self.site_before.push((site, self.current));
    }
}

/// Why bytes are no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No Larder volume at all.
    Foreign,
    /// A Larder volume of another format version.
    Version(u32),
    /// A Larder superblock whose checksum or contents do not fit.
    Damaged,
}

impl Superblock {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len() as u64, SUPERBLOCK_BYTES);
        assert!(self.epochs.site_before.len() <= SITE_RULE_COUNT_MAX);
        block.fill(0);
        let mut fields = FieldsMut::new(block);
        fields
            .put(&MAGIC)
            .put(&FORMAT_VERSION.to_le_bytes())
            .put(&0_u32.to_le_bytes())
            .put(&self.id.0)
            .put(&self.hash_key)
            .put(&self.geometry.size_bytes.to_le_bytes())
            .put(&self.geometry.segment_bytes.to_le_bytes())
            .put(&self.generation.to_le_bytes())
            .put(&ROW_LOG.to_le_bytes())
            .put(&self.epochs.current.to_le_bytes())
            .put(&self.epochs.all_before.to_le_bytes())
            .put(&(self.epochs.site_before.len() as u32).to_le_bytes());
        for (site, before) in &self.epochs.site_before {
            fields.put(&site.to_le_bytes()).put(&before.to_le_bytes());
        }
        let checksum = checksum(block);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, Refusal> {
        if block.len() as u64 != SUPERBLOCK_BYTES || block[..MAGIC.len()] != MAGIC {
            return Err(Refusal::Foreign);
        }
        let mut fields = Fields::new(&block[MAGIC.len()..]);
        let version = fields.u32().ok_or(Refusal::Damaged)?;
        if fields.u32() != Some(checksum(block)) {
            return Err(if version == FORMAT_VERSION { Refusal::Damaged } else { Refusal::Version(version) });
        }
        if version != FORMAT_VERSION {
            return Err(Refusal::Version(version));
        }
        Self::decode_fields(&mut fields).ok_or(Refusal::Damaged)
    }

    fn decode_fields(fields: &mut Fields<'_>) -> Option<Self> {
        let id = VolumeId(fields.array()?);
        let hash_key = fields.array()?;
        let geometry = Geometry::new(fields.u64()?, fields.u64()?)?;
        let generation = fields.u64()?;
        if fields.u32()? != ROW_LOG {
            return None;
        }
        let (current, all_before, rule_count) = (fields.u32()?, fields.u32()?, fields.u32()? as usize);
        if rule_count > SITE_RULE_COUNT_MAX {
            return None;
        }
        let mut site_before = Vec::with_capacity(rule_count);
        for _ in 0..rule_count {
            site_before.push((fields.u64()?, fields.u32()?));
        }
        Some(Self { id, hash_key, geometry, generation, epochs: Epochs { current, all_before, site_before } })
    }
}

/// Unsalted: this is where the salt comes from.
fn checksum(block: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CHECKSUM_AT]);
    digest.update(&block[CHECKSUM_AT + 4..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let mut epochs = Epochs::default();
        epochs.invalidate_site(7);
        Superblock {
            id: VolumeId([3; 16]),
            hash_key: [4; 16],
            geometry: Geometry::new(1 << 30, 16 << 20).unwrap(),
            generation: 9,
            epochs,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut block = vec![1; SUPERBLOCK_BYTES as usize];
        sample().encode(&mut block);
        assert_eq!(Superblock::decode(&block), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        sample().encode(&mut block);
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn foreign_and_future_volumes_are_told_apart() {
        let mut block = vec![0; SUPERBLOCK_BYTES as usize];
        assert_eq!(Superblock::decode(&block), Err(Refusal::Foreign));
        sample().encode(&mut block);
        block[8] = 2;
        assert_eq!(Superblock::decode(&block), Err(Refusal::Version(2)));
    }

    #[test]
    fn epochs_admit_only_what_came_after_the_rule() {
        let mut epochs = Epochs::default();
        assert!(epochs.admits(1, epochs.current));
        let before = epochs.current;
        epochs.invalidate_site(1);
        assert!(!epochs.admits(1, before) && epochs.admits(2, before) && epochs.admits(1, epochs.current));
        for site in 0..=SITE_RULE_COUNT_MAX as u64 {
            epochs.invalidate_site(site);
        }
        assert!(!epochs.admits(1_000_000, before), "rules that do not fit become one for all");
        assert!(epochs.site_before.len() <= SITE_RULE_COUNT_MAX);
    }
}
