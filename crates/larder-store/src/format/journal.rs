//! The journal of a map, in the index area: the changes since the snapshot, in order.
//!
//! It consists of pages of 4 KiB, used in a ring. Each page has a number, which is never reused, and the run that wrote
//! it. Invariant: a page counts only if the page before it has the preceding number and is of the same run or an
//! earlier one. So pages that an earlier run left after its end are never taken for a continuation. Cost: 24 bytes per
//! change. The format is described in docs/internals/format.md.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    mend::mended_block,
    snapshot::{SnapshotEntry, opened, seal},
};
use crate::units::BLOCK_BYTES;

const MAGIC: [u8; 4] = *b"LDRj";
const HEADER_BYTES: u64 = 48;
const LISTING_BYTES: u64 = 24;
/// Maximum number of changes in a page of the journal.
pub(crate) const PAGE_CHANGE_COUNT: u64 = (BLOCK_BYTES - HEADER_BYTES) / LISTING_BYTES;
/// Flag of a listing (one change) in a journal page: the entry left the map.
const IS_GONE: u16 = 1;

/// The header of a journal page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    /// Number of the page: one more than that of the page before.
    pub(crate) number: u64,
    /// Generation of the snapshot header when the run that wrote this page began. Never less than in the page before.
    pub(crate) run: u64,
    /// Number of the first page that was not durable when this page was written.
    pub(crate) durable: u64,
    /// Position at which the next record is written. Its unit depends on the layout.
    pub(crate) pointer: u64,
    /// The volume's epoch when the page was written.
    pub(crate) epoch: u32,
}

/// One change of a map: an entry that was stored, or that left the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapChange {
    pub(crate) listing: SnapshotEntry,
    /// Whether the entry left the map. If `false`, it was stored and became its key's current entry. At replay, a
    /// removal applies only if the map still has the entry of this very write.
    pub(crate) is_gone: bool,
}

/// Writes a page with the given changes, at most [`PAGE_CHANGE_COUNT`].
pub(crate) fn encode_page(volume: VolumeId, header: &PageHeader, changes: &[MapChange], page: &mut [u8]) {
    assert_eq!(page.len() as u64, BLOCK_BYTES);
    assert!(changes.len() as u64 <= PAGE_CHANGE_COUNT);
    page.fill(0);
    let mut fields = FieldsMut::new(page);
    fields
        .put(&MAGIC)
        .put(&[0; 4])
        .put(&header.number.to_le_bytes())
        .put(&header.run.to_le_bytes())
        .put(&header.durable.to_le_bytes())
        .put(&header.pointer.to_le_bytes())
        .put(&(changes.len() as u32).to_le_bytes())
        .put(&header.epoch.to_le_bytes());
    for MapChange { listing, is_gone } in changes {
        listing.encode(if *is_gone { IS_GONE } else { 0 }, &mut fields);
    }
    seal(volume, page);
}

/// Decodes a page and its changes, after repairing up to one flipped bit. Returns `None` if the page is not valid.
pub(crate) fn decode_page(volume: VolumeId, page: &[u8]) -> Option<(PageHeader, Vec<MapChange>)> {
    let mended = match opened(volume, page, MAGIC) {
        Some(_) => None,
        None => Some(mended_block(volume, MAGIC, page)?),
    };
    let mut fields = opened(volume, mended.as_deref().unwrap_or(page), MAGIC)?;
    let number = fields.u64()?;
    let run = fields.u64()?;
    let durable = fields.u64()?;
    let pointer = fields.u64()?;
    let count = u64::from(fields.u32()?);
    let epoch = fields.u32()?;
    let header = PageHeader { number, run, durable, pointer, epoch };
    if count > PAGE_CHANGE_COUNT {
        return None;
    }
    let changes = (0..count).map(|_| MapChange::decode(&mut fields)).collect::<Option<_>>()?;
    Some((header, changes))
}

impl MapChange {
    fn decode(fields: &mut FieldReader<'_>) -> Option<Self> {
        let (listing, flags) = SnapshotEntry::decode(fields)?;
        (flags <= IS_GONE).then_some(Self { listing, is_gone: flags == IS_GONE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;
    use proptest::prelude::*;

    const VOLUME: VolumeId = VolumeId([6; 16]);

    fn change(n: u64) -> MapChange {
        let listing = SnapshotEntry {
            key_hash: KeyHash(n << 40),
            place: (1 << 36) - 1 - n,
            sectors: n as u32 + 1,
            sequence: n as u32,
            expires_at: 7,
        };
        MapChange { listing, is_gone: n.is_multiple_of(3) }
    }

    #[test]
    fn what_was_written_is_read_and_every_flipped_bit_undone() {
        let header = PageHeader { number: 1 << 33, run: 8, durable: 5, pointer: 1 << 40, epoch: 3 };
        let changes: Vec<_> = (0..PAGE_CHANGE_COUNT).map(change).collect();
        let mut page = vec![1; BLOCK_BYTES as usize];
        encode_page(VOLUME, &header, &changes, &mut page);
        assert_eq!(decode_page(VolumeId([7; 16]), &page), None, "of another volume");
        for bit in 0..BLOCK_BYTES as usize * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_page(VOLUME, &page), Some((header, changes.clone())), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            bytes.resize(BLOCK_BYTES as usize, 0);
            bytes[..4].copy_from_slice(&MAGIC);
            seal(VOLUME, &mut bytes);
            let _ = decode_page(VOLUME, &bytes);
        }
    }
}
