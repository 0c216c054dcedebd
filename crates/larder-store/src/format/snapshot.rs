//! The snapshot of a map, in the index area. From it, a store that was closed knows its entries at once.
//!
//! There are two header blocks with the same contents, then pages of listings, least recently used first. The header
//! states whether the snapshot is whole (the store was closed) or used (a run began since), and which write numbers may
//! have been used. Invariant: a page counts only if it has the generation of the header, so that pages of two snapshots
//! never mix. Cost: 24 bytes per entry on the volume. The format is described in docs/internals/format.md.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    mend::mended_block,
    record::RECORD_SECTORS_MAX,
};
use crate::{hash::KeyHash, units::BLOCK_BYTES};

const HEADER_MAGIC: [u8; 4] = *b"LDRm";
const PAGE_MAGIC: [u8; 4] = *b"LDRp";
const PAGE_HEADER_BYTES: u64 = 24;
const LISTING_BYTES: u64 = 24;
const CHECKSUM_AT: usize = 4;
/// Number of listings (one for each entry) in a full page of a snapshot.
pub(crate) const PAGE_LISTING_COUNT: u64 = (BLOCK_BYTES - PAGE_HEADER_BYTES) / LISTING_BYTES;
/// Maximum number of slot files whose slot counts fit in a header.
pub(crate) const SLOT_COUNTS_MAX: usize = 1000;
/// Number of copies of the header. Each copy is one block.
pub(crate) const HEADER_COUNT: u64 = 2;
/// Number of places for snapshots on volumes with a journal. Snapshots are written to the two places in turn.
pub(crate) const PLACE_COUNT: u32 = 2;
const PLACE_BITS: u32 = 36;
/// Position of the recovery data in the header, behind the longest list of slot counts.
const RECOVERY_AT: usize = 4048;
const _: () = assert!(RECOVERY_AT >= 44 + 4 * SLOT_COUNTS_MAX);
/// Lowest bit of a listing's 16 flags in its packed word. The place and the number of sectors are in the bits below.
const FLAGS_AT: u32 = 48;

/// The header of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    /// Number that grows whenever a run begins and with every snapshot.
    pub(crate) generation: u64,
    /// Whether the snapshot has all entries of the store. `true` only after the store was closed.
    pub(crate) whole: bool,
    pub(crate) listing_count: u64,
    /// First write number that no run has used.
    pub(crate) next_write: u32,
    /// Position at which the next record is written. Its unit depends on the layout.
    pub(crate) pointer: u64,
    /// Number of slots in each file of slots, in policies that have such files; at most [`SLOT_COUNTS_MAX`].
    pub(crate) slot_counts: Vec<u32>,
    /// Data that a start after a crash needs; `None` on volumes without a journal.
    pub(crate) recovery: Option<MapRecovery>,
}

/// The snapshot from which recovery starts, which may be older than the store's entries, and the start of the journal
/// with the later changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapRecovery {
    /// Generation of the snapshot. Each of its pages contains this number.
    pub(crate) generation: u64,
    /// Number of the place that has the snapshot: 0 or 1.
    pub(crate) place: u32,
    /// Number of the first journal page with changes after the snapshot.
    pub(crate) journal_from: u64,
    /// Generation of the oldest run whose journal pages are replayed. Pages of earlier runs are outdated.
    pub(crate) run: u64,
    /// The volume's epoch when the header was written.
    pub(crate) epoch: u32,
}

/// An entry as a snapshot or a journal page lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotEntry {
    /// The part of the key's hash that the index uses.
    pub(crate) key_hash: KeyHash,
    /// Position of the record. Its unit depends on the layout.
    pub(crate) place: u64,
    /// Length of the record in sectors.
    pub(crate) sectors: u32,
    /// Number of the write that stored the entry.
    pub(crate) sequence: u32,
    /// Unix time in seconds after which the entry is expired; 0 means never.
    pub(crate) expires_at: u32,
}

impl SnapshotHeader {
    pub(crate) fn encode(&self, volume: VolumeId, block: &mut [u8]) {
        assert_eq!(block.len() as u64, BLOCK_BYTES);
        assert!(self.slot_counts.len() <= SLOT_COUNTS_MAX);
        block.fill(0);
        let mut fields = FieldsMut::new(block);
        fields
            .put(&HEADER_MAGIC)
            .put(&[0; 4])
            .put(&self.generation.to_le_bytes())
            .put(&self.listing_count.to_le_bytes())
            .put(&self.pointer.to_le_bytes())
            .put(&self.next_write.to_le_bytes())
            .put(&u32::from(self.whole).to_le_bytes())
            .put(&(self.slot_counts.len() as u32).to_le_bytes());
        for count in &self.slot_counts {
            fields.put(&count.to_le_bytes());
        }
        if let Some(MapRecovery { generation, place, journal_from, run, epoch }) = self.recovery {
            FieldsMut::new(&mut block[RECOVERY_AT..])
                .put(&1_u32.to_le_bytes())
                .put(&place.to_le_bytes())
                .put(&generation.to_le_bytes())
                .put(&journal_from.to_le_bytes())
                .put(&run.to_le_bytes())
                .put(&epoch.to_le_bytes());
        }
        seal(volume, block);
    }

    pub(crate) fn decode(volume: VolumeId, block: &[u8]) -> Option<Self> {
        let mut fields = opened(volume, block, HEADER_MAGIC)?;
        let generation = fields.u64()?;
        let listing_count = fields.u64()?;
        let pointer = fields.u64()?;
        let next_write = fields.u32()?;
        let whole = fields.u32()? == 1;
        let count = fields.u32()? as usize;
        if count > SLOT_COUNTS_MAX {
            return None;
        }
        let slot_counts = (0..count).map(|_| fields.u32()).collect::<Option<_>>()?;
        let recovery = MapRecovery::decode(&block[RECOVERY_AT..]);
        Some(Self { generation, whole, listing_count, next_write, pointer, slot_counts, recovery })
    }
}

impl MapRecovery {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::new(bytes);
        let is_there = fields.u32()? == 1;
        let place = fields.u32()?;
        let generation = fields.u64()?;
        let journal_from = fields.u64()?;
        let run = fields.u64()?;
        let epoch = fields.u32()?;
        (is_there && place < PLACE_COUNT).then_some(Self { generation, place, journal_from, run, epoch })
    }
}

/// Writes the page with the given `number` of a snapshot. It has at most [`PAGE_LISTING_COUNT`] listings.
pub(crate) fn encode_page(volume: VolumeId, generation: u64, number: u32, listings: &[SnapshotEntry], page: &mut [u8]) {
    assert_eq!(page.len() as u64, BLOCK_BYTES);
    assert!(listings.len() as u64 <= PAGE_LISTING_COUNT);
    page.fill(0);
    let mut fields = FieldsMut::new(page);
    fields
        .put(&PAGE_MAGIC)
        .put(&[0; 4])
        .put(&generation.to_le_bytes())
        .put(&number.to_le_bytes())
        .put(&(listings.len() as u32).to_le_bytes());
    listings.iter().for_each(|listing| listing.encode(0, &mut fields));
    seal(volume, page);
}

/// Decodes the page with the given `number` of the snapshot of `generation`, after repairing up to one flipped bit.
/// Returns `None` if the page is not valid.
pub(crate) fn decode_page(volume: VolumeId, generation: u64, number: u32, page: &[u8]) -> Option<Vec<SnapshotEntry>> {
    let mended = match opened(volume, page, PAGE_MAGIC) {
        Some(_) => None,
        None => Some(mended_block(volume, PAGE_MAGIC, page)?),
    };
    let mut fields = opened(volume, mended.as_deref().unwrap_or(page), PAGE_MAGIC)?;
    if (fields.u64()?, fields.u32()?) != (generation, number) {
        return None;
    }
    let count = u64::from(fields.u32()?);
    if count > PAGE_LISTING_COUNT {
        return None;
    }
    (0..count)
        .map(|_| SnapshotEntry::decode(&mut fields).filter(|(_, flags)| *flags == 0).map(|(listing, _)| listing))
        .collect()
}

impl SnapshotEntry {
    /// Appends the listing to a page. The kind of page decides what the 16 bits of `flags` mean.
    pub(super) fn encode(&self, flags: u16, fields: &mut FieldsMut<'_>) {
        assert!(self.place < 1 << PLACE_BITS && u64::from(self.sectors) <= RECORD_SECTORS_MAX);
        let packed = self.place | u64::from(self.sectors) << PLACE_BITS | u64::from(flags) << FLAGS_AT;
        fields
            .put(&self.key_hash.0.to_le_bytes())
            .put(&packed.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.expires_at.to_le_bytes());
    }

    /// Decodes the next listing of a page, and its 16 flags. The kind of page decides what they mean.
    pub(super) fn decode(fields: &mut FieldReader<'_>) -> Option<(Self, u16)> {
        let key_hash = KeyHash(fields.u64()?);
        let packed = fields.u64()?;
        let sequence = fields.u32()?;
        let expires_at = fields.u32()?;
        let place = packed & ((1 << PLACE_BITS) - 1);
        let flags = (packed >> FLAGS_AT) as u16;
        let sectors = packed >> PLACE_BITS & ((1 << (FLAGS_AT - PLACE_BITS)) - 1);
        let sound = (1..=RECORD_SECTORS_MAX).contains(&sectors);
        sound.then_some((Self { key_hash, place, sectors: sectors as u32, sequence, expires_at }, flags))
    }
}

pub(super) fn seal(volume: VolumeId, block: &mut [u8]) {
    let checksum = volume.checksum(&[&block[CHECKSUM_AT + 4..]]);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns a reader of the fields in `block`. Returns `None` if the magic or the checksum is wrong.
pub(super) fn opened(volume: VolumeId, block: &[u8], magic: [u8; 4]) -> Option<FieldReader<'_>> {
    let mut fields = FieldReader::new(block);
    let fits = block.len() as u64 == BLOCK_BYTES
        && fields.array()? == magic
        && fields.u32()? == volume.checksum(&[&block[CHECKSUM_AT + 4..]]);
    fits.then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: VolumeId = VolumeId([5; 16]);

    fn listing(n: u64) -> SnapshotEntry {
        let sectors = (n % RECORD_SECTORS_MAX + 1) as u32;
        SnapshotEntry {
            key_hash: KeyHash(n << 40),
            place: (1 << PLACE_BITS) - 1 - n,
            sectors,
            sequence: n as u32,
            expires_at: 7,
        }
    }

    #[test]
    fn what_was_written_is_read_and_every_flipped_bit_noticed_or_undone() {
        let header = SnapshotHeader {
            generation: 3,
            whole: true,
            listing_count: 9,
            next_write: u32::MAX,
            pointer: 1 << 40,
            slot_counts: vec![7; SLOT_COUNTS_MAX],
            recovery: Some(MapRecovery { generation: 2, place: 1, journal_from: 77, run: 2, epoch: 1 }),
        };
        let listings: Vec<_> = (0..PAGE_LISTING_COUNT).map(listing).collect();
        let mut head = vec![1; BLOCK_BYTES as usize];
        let mut page = vec![1; BLOCK_BYTES as usize];
        header.encode(VOLUME, &mut head);
        encode_page(VOLUME, 3, 8, &listings, &mut page);
        assert_eq!(SnapshotHeader::decode(VOLUME, &head), Some(header));
        assert_eq!(decode_page(VOLUME, 3, 8, &page).as_ref(), Some(&listings));
        assert_eq!(decode_page(VOLUME, 2, 8, &page), None, "a page of another snapshot");
        assert_eq!(decode_page(VOLUME, 3, 7, &page), None, "another page");
        for bit in 0..BLOCK_BYTES as usize * 8 {
            head[bit / 8] ^= 1 << (bit % 8);
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SnapshotHeader::decode(VOLUME, &head), None, "bit {bit}");
            assert_eq!(decode_page(VOLUME, 3, 8, &page).as_ref(), Some(&listings), "bit {bit}");
            head[bit / 8] ^= 1 << (bit % 8);
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            bytes.resize(BLOCK_BYTES as usize, 0);
            for magic in [HEADER_MAGIC, PAGE_MAGIC] {
                bytes[..4].copy_from_slice(&magic);
                seal(VOLUME, &mut bytes);
                let _ = SnapshotHeader::decode(VOLUME, &bytes);
                let number = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
                let generation = u64::from_le_bytes(std::array::from_fn(|at| bytes[8 + at]));
                let _ = decode_page(VOLUME, generation, number, &bytes);
            }
        }
    }
}
