//! The segment that is being moved out of the front: its bytes, and the records that its packs list.
//!
//! Owns: the search for packs in a segment's bytes. Decisions about the records are elsewhere. Invariant: of packs that
//! overlap, the newer one counts. Cost: the bytes of one segment.

use crate::{
    format::{
        VolumeId,
        pack::{self, PackedRecord},
    },
    hash::KeyHash,
    units::BLOCK_BYTES,
};
use bytes::Bytes;

/// A pack that was found in a segment.
pub(super) struct FoundPack {
    pub(super) header: pack::PackHeader,
    pub(super) listings: Vec<PackedRecord>,
}

/// Returns the packs in `bytes`, the bytes of a segment that begins at `start_bytes`. The packs can be of any run.
///
/// When the device refuses a pack, an older pack remains at its place. The older pack can be longer, and overlap newer
/// packs behind it. So a pack within another pack counts if it is newer than that pack. If it is older, it is part of a
/// stored record.
pub(super) fn packs_in(volume: VolumeId, start_bytes: u64, bytes: &[u8]) -> Vec<FoundPack> {
    let mut found: Vec<FoundPack> = Vec::new();
    let mut last_end = 0;
    let mut last_sequence = 0;
    for at in (0..bytes.len()).step_by(BLOCK_BYTES as usize) {
        let offset_bytes = start_bytes + at as u64;
        let rest = &bytes[at..];
        let is_within = at < last_end;
        let decoded = match is_within {
            true => pack::decode(volume, offset_bytes, rest).ok(),
            false => pack::decode_mended(volume, offset_bytes, rest),
        };
        let Some((header, listings)) = decoded else { continue };
        let len = header.len_bytes as usize;
        if len == 0 || len > rest.len() || (is_within && !is_later(header.sequence, last_sequence)) {
            continue;
        }
        (last_end, last_sequence) = (at + len, header.sequence);
        assert!(last_end <= bytes.len(), "a pack ends within its segment");
        found.push(FoundPack { header, listings });
    }
    found
}

/// Returns whether `sequence` is later than `other`. Sequences wrap around, but the sequences in one ring, a circular
/// log, are near each other.
fn is_later(sequence: u32, other: u32) -> bool {
    (sequence.wrapping_sub(other) as i32) > 0
}

/// The segment that is being emptied. It is part of the front, the log before the sets.
pub(super) struct OutgoingSegment {
    start_bytes: u64,
    bytes: Bytes,
    /// All records that the segment's packs list, even those that the index no longer has.
    pub(super) records: Vec<OutgoingRecord>,
}

/// A record in the segment that is being emptied.
#[derive(Clone, Copy)]
pub(super) struct OutgoingRecord {
    pub(super) offset_bytes: u64,
    pub(super) key_hash: KeyHash,
}

impl OutgoingSegment {
    pub(super) fn new(start_bytes: u64, bytes: Bytes, packs: &[FoundPack]) -> Self {
        let records = packs.iter().flat_map(|found| {
            let pack_start = found.header.offset_bytes;
            found.listings.iter().map(move |listing| OutgoingRecord {
                offset_bytes: pack_start + u64::from(listing.at),
                key_hash: listing.key_hash,
            })
        });
        Self { start_bytes, bytes, records: records.collect() }
    }

    /// Returns up to `len_max` bytes of the segment from `offset_bytes` of the volume on.
    pub(super) fn bytes_from(&self, offset_bytes: u64, len_max: u64) -> Bytes {
        let at = (offset_bytes - self.start_bytes) as usize;
        self.bytes.slice(at..self.bytes.len().min(at + len_max as usize))
    }

    pub(super) fn holds(&self, offset_bytes: u64) -> bool {
        (self.start_bytes..self.start_bytes + self.bytes.len() as u64).contains(&offset_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pack::PackHeader;

    const VOLUME: VolumeId = VolumeId([5; 16]);
    const START_BYTES: u64 = 1 << 20;
    const BLOCK: usize = BLOCK_BYTES as usize;

    fn write(bytes: &mut [u8], block: usize, blocks: usize, sequence: u32) {
        let offset_bytes = START_BYTES + (block * BLOCK) as u64;
        let header = PackHeader { offset_bytes, sequence, len_bytes: (blocks * BLOCK) as u32, oldest_sequence: 1 };
        let target = &mut bytes[block * BLOCK..(block + blocks) * BLOCK];
        target.fill(0);
        pack::encode(VOLUME, header, &[], target);
    }

    fn sequences(bytes: &[u8]) -> Vec<u32> {
        packs_in(VOLUME, START_BYTES, bytes).iter().map(|found| found.header.sequence).collect()
    }

    /// Guards against a removed entry that comes back after a kill, because the pack with its tombstone is skipped.
    #[test]
    fn packs_behind_one_that_the_device_refused_are_found() {
        let mut bytes = vec![0; 8 * BLOCK];
        write(&mut bytes, 0, 6, u32::MAX - 1);
        // The first pack of the next round had two blocks and was refused.
        write(&mut bytes, 2, 1, 3);
        write(&mut bytes, 3, 4, 4);
        assert_eq!(sequences(&bytes), [u32::MAX - 1, 3, 4]);
    }

    /// Guards against mistaking a body that contains an older pack for a pack.
    #[test]
    fn an_older_pack_within_a_newer_one_is_content() {
        let mut bytes = vec![0; 8 * BLOCK];
        write(&mut bytes, 0, 4, 9);
        let mut inner = vec![0; 8 * BLOCK];
        write(&mut inner, 2, 1, 8);
        bytes[2 * BLOCK..3 * BLOCK].copy_from_slice(&inner[2 * BLOCK..3 * BLOCK]);
        write(&mut bytes, 4, 2, 10);
        assert_eq!(sequences(&bytes), [9, 10]);
    }
}
