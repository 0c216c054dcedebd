//! A segment's trailer: the list of its records, at its very end, written when the segment is full.
//!
//! Recovery and reclaim read trailers, not records. Layout: listings, fill, footer; the footer is the
//! last thing in the segment. Invariant: a trailer whose checksums do not fit is as good as none.

use super::{
    SegmentUse, VolumeId,
    bytes::{Fields, FieldsMut},
};
use crate::{
    hash::KeyHash,
    units::{BLOCK_BYTES, Geometry, SECTOR_BYTES, SegmentId},
};

const MAGIC: [u8; 4] = *b"LDRt";
pub(crate) const LISTING_BYTES: u64 = 20;
pub(crate) const FOOTER_BYTES: u64 = 64;
const FLAG_TOMBSTONE: u8 = 1;
/// Sectors of a block in which the length of a run is told.
const RUN_BLOCK_SECTORS: u64 = 16;

/// One record as the trailer lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    /// The part of the key's hash that memory knows.
    pub(crate) key_hash: KeyHash,
    /// First sector, counted from the segment's start.
    pub(crate) sector: u32,
    pub(crate) sectors: u16,
    pub(crate) tombstone: bool,
    /// Blocks of 8 KiB to be read from here for the record and what follows of its group; 0: the record alone.
    pub(crate) run_blocks: u8,
    /// Unix time in seconds after which the entry is of no use; 0 is never.
    pub(crate) expires_at: u32,
}

/// The end of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) segment: SegmentId,
    pub(crate) sequence: u32,
    /// Of a probation segment, 0 of a main one.
    anchor: u32,
    pub(crate) listing_count: u32,
    listings_checksum: u32,
}

/// Bytes a trailer of `listing_count` takes at the end of its segment, whole blocks.
pub(crate) fn trailer_bytes(listing_count: usize) -> u64 {
    (listing_count as u64 * LISTING_BYTES + FOOTER_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// Writes a trailer into `target`, which is [`trailer_bytes`] long.
pub(crate) fn encode(volume: VolumeId, segment: SegmentId, of: SegmentUse, listings: &[Listing], target: &mut [u8]) {
    assert_eq!(target.len() as u64, trailer_bytes(listings.len()));
    let (list, rest) = target.split_at_mut(listings.len() * LISTING_BYTES as usize);
    let mut fields = FieldsMut::new(list);
    for listing in listings {
        fields
            .put(&listing.key_hash.0.to_le_bytes())
            .put(&listing.sector.to_le_bytes())
            .put(&listing.sectors.to_le_bytes())
            .put(&[if listing.tombstone { FLAG_TOMBSTONE } else { 0 }, listing.run_blocks])
            .put(&listing.expires_at.to_le_bytes());
    }
    let checksum = volume.checksum(&[list]);
    rest.fill(0);
    let footer_at = rest.len() - FOOTER_BYTES as usize;
    let footer = &mut rest[footer_at..];
    FieldsMut::new(footer)
        .put(&MAGIC)
        .put(&0_u32.to_le_bytes())
        .put(&volume.0)
        .put(&segment.0.to_le_bytes())
        .put(&of.sequence.to_le_bytes())
        .put(&(listings.len() as u32).to_le_bytes())
        .put(&checksum.to_le_bytes())
        .put(&of.anchor.to_le_bytes());
    let checksum = volume.checksum(&[&footer[8..]]);
    footer[4..8].copy_from_slice(&checksum.to_le_bytes());
}

impl Footer {
    /// The footer at the end of `bytes`, the last bytes of `segment`.
    pub(crate) fn decode(volume: VolumeId, geometry: &Geometry, segment: SegmentId, bytes: &[u8]) -> Option<Self> {
        let footer = bytes.get(bytes.len().checked_sub(FOOTER_BYTES as usize)?..)?;
        let mut fields = Fields::new(footer);
        if fields.array()? != MAGIC || fields.u32()? != volume.checksum(&[&footer[8..]]) || fields.array()? != volume.0
        {
            return None;
        }
        let (segment_named, sequence) = (SegmentId(fields.u32()?), fields.u32()?);
        let (listing_count, listings_checksum, anchor) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let footer = Self { segment: segment_named, sequence, anchor, listing_count, listings_checksum };
        let sound = footer.segment == segment && footer.trailer_bytes() < geometry.segment_bytes && anchor <= sequence;
        sound.then_some(footer)
    }

    /// The use of the segment whose records it lists.
    pub(crate) fn segment_use(&self) -> SegmentUse {
        SegmentUse { sequence: self.sequence, anchor: self.anchor }
    }

    /// Length of the whole trailer, at the end of the segment.
    pub(crate) fn trailer_bytes(&self) -> u64 {
        trailer_bytes(self.listing_count as usize)
    }

    /// The listings of `trailer` (its whole bytes) in the order they were written, if they are sound.
    pub(crate) fn listings(&self, volume: VolumeId, geometry: &Geometry, trailer: &[u8]) -> Option<Vec<Listing>> {
        let list = trailer.get(..self.listing_count as usize * LISTING_BYTES as usize)?;
        if volume.checksum(&[list]) != self.listings_checksum {
            return None;
        }
        let segment_sectors = geometry.segment_bytes / SECTOR_BYTES;
        list.chunks_exact(LISTING_BYTES as usize).map(|bytes| Listing::decode(bytes, segment_sectors)).collect()
    }
}

impl Listing {
    /// Returns what [`Self::run_blocks`] says of `sectors`.
    pub(crate) fn blocks_of_run(sectors: u64) -> u8 {
        sectors.div_ceil(RUN_BLOCK_SECTORS).min(u8::MAX.into()) as u8
    }

    /// How much is to be read to have the record, and all of its group that follows it.
    pub(crate) fn run_sectors(&self) -> u64 {
        u64::from(self.sectors).max(u64::from(self.run_blocks) * RUN_BLOCK_SECTORS)
    }

    fn decode(bytes: &[u8], segment_sectors: u64) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let (key_hash, sector, sectors) = (KeyHash(fields.u64()?), fields.u32()?, fields.u16()?);
        let [flags, run_blocks] = fields.array()?;
        let expires_at = fields.u32()?;
        let inside = u64::from(sector) + u64::from(sectors) <= segment_sectors && sectors > 0;
        let tombstone = flags & FLAG_TOMBSTONE != 0;
        inside.then_some(Self { key_hash, sector, sectors, tombstone, run_blocks, expires_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_read_back_and_every_flipped_bit_in_use_noticed() {
        let (volume, segment) = (VolumeId([1; 16]), SegmentId(2));
        let geometry = Geometry::new(64 << 20, 0, 1 << 20).unwrap();
        let listing = |n: u32| Listing {
            key_hash: KeyHash(u64::from(n) << 40),
            sector: n * 3,
            sectors: 3,
            tombstone: n % 2 == 1,
            run_blocks: n as u8 * 12,
            expires_at: n,
        };
        let listings: Vec<_> = (0..20).map(listing).collect();
        let mut bytes = vec![0; trailer_bytes(listings.len()) as usize];
        encode(volume, segment, SegmentUse { sequence: 5, anchor: 4 }, &listings, &mut bytes);
        let read = |bytes: &[u8]| {
            let footer = Footer::decode(volume, &geometry, segment, bytes)?;
            assert_eq!(footer.sequence, 5);
            footer.listings(volume, &geometry, bytes)
        };
        assert_eq!(read(&bytes), Some(listings.clone()));
        let used = (0..listings.len() * LISTING_BYTES as usize).chain(bytes.len() - FOOTER_BYTES as usize..bytes.len());
        for byte in used {
            for bit in 0..8 {
                bytes[byte] ^= 1 << bit;
                assert_eq!(read(&bytes), None, "bit {bit} of byte {byte}");
                bytes[byte] ^= 1 << bit;
            }
        }
        assert_eq!(Footer::decode(volume, &geometry, SegmentId(3), &bytes), None, "another segment's trailer");
    }
}
