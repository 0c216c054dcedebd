//! A segment's trailer: the list of its records, at its very end, written when the segment is full.
//!
//! Recovery and reclaim read trailers instead of records. Layout: listings, padding, footer. If records share sectors,
//! a listing contains only what cannot be derived from the previous one, mostly 11 bytes. Invariant: a trailer with a
//! wrong checksum counts as missing.

use super::{
    SegmentUse, VolumeId,
    bytes::{FieldReader, FieldsMut},
    record::RecordKind,
};
use crate::{
    hash::KeyHash,
    units::{BLOCK_BYTES, SECTOR_BYTES, SegmentGeometry, SegmentId, sectors, sectors_spanned},
};

const MAGIC: [u8; 4] = *b"LDRt";
/// Length of a listing (the line of one record in a segment's list of contents), in bytes; on packed volumes, the
/// maximum.
pub(crate) const LISTING_BYTES: u64 = 20;
pub(crate) const FOOTER_BYTES: u64 = 64;
const FLAG_TOMBSTONE: u8 = 1;
/// Flag of a short listing: an expiry time follows.
const FLAG_EXPIRY: u8 = 1 << 1;
/// Flag of a short listing: a field follows with the gap between the previous record and this one. A gap of 0 means
/// that a read of the previous record also brings this one; older programs ignore that.
const FLAG_GAP: u8 = 1 << 2;
/// Flag of a short listing: the record is a part of a body.
const FLAG_PART: u8 = 1 << 3;
/// Bytes of a short listing that are always there: the flags and the key's hash.
const SHORT_LISTING_BYTES: u64 = 9;
/// Bits of a number that each encoded byte holds. The byte's highest bit says whether another byte follows.
const NUMBER_BITS: u32 = 7;
/// Maximum number of bytes that a number takes in a short listing.
const NUMBER_BYTES_MAX: u32 = 4;
/// Unit of [`TrailerRecord::run_blocks`], in sectors.
const RUN_BLOCK_SECTORS: u64 = 16;

/// The listing of one record in a trailer, the list of contents at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrailerRecord {
    /// The part of the key's hash that the index uses.
    pub(crate) key_hash: KeyHash,
    /// Position of the record in its segment, in bytes.
    pub(crate) start_bytes: u32,
    /// Length of the record in bytes, rounded up to where the next record can begin.
    pub(crate) len_bytes: u32,
    pub(crate) kind: ListedKind,
    /// Number of 8 KiB blocks to read from the start of this record to also get the following records of its group. 0
    /// means to read this record alone.
    pub(crate) run_blocks: u8,
    /// Whether a read of the previous record also brings this one. Always `false` for long listings, which do not say
    /// it.
    pub(crate) follows: bool,
    /// Unix time in seconds after which the entry is expired; 0 means never.
    pub(crate) expires_at: u32,
}

/// The kind of a record, as the trailer (the list of contents at the end of its segment) states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedKind {
    Entry,
    Tombstone,
    /// A part of a body. The record of its entry follows later.
    Part,
}

impl ListedKind {
    /// Returns the kind that a trailer lists for a record of `kind`.
    pub(crate) fn of(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Entry | RecordKind::HeadUpdate(_) | RecordKind::InParts(_) => Self::Entry,
            RecordKind::Tombstone => Self::Tombstone,
            RecordKind::Part => Self::Part,
        }
    }

    fn flag(self) -> u8 {
        match self {
            Self::Entry => 0,
            Self::Tombstone => FLAG_TOMBSTONE,
            Self::Part => FLAG_PART,
        }
    }

    fn of_flags(flags: u8) -> Self {
        match (flags & FLAG_TOMBSTONE, flags & FLAG_PART) {
            (0, 0) => Self::Entry,
            (0, _) => Self::Part,
            _ => Self::Tombstone,
        }
    }
}

/// The footer of a trailer (a segment's list of contents), in the last bytes of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrailerFooter {
    pub(crate) segment: SegmentId,
    pub(crate) sequence: u32,
    /// The anchor of a probation segment ([`SegmentUse::anchor`]); 0 for a main segment.
    anchor: u32,
    pub(crate) listing_count: u32,
    list_bytes: u32,
    listings_checksum: u32,
}

/// Returns the length in bytes of a trailer (a segment's list of contents) with `list_bytes` of listings, in whole
/// blocks.
pub(crate) fn trailer_bytes(list_bytes: u64) -> u64 {
    (list_bytes + FOOTER_BYTES).next_multiple_of(BLOCK_BYTES)
}

/// Encodes listings, in the short form for packed volumes and otherwise in the long form.
pub(crate) struct ListWriter<'a> {
    geometry: &'a SegmentGeometry,
    list: Vec<u8>,
    /// End of the previous record in the segment, in bytes.
    end_bytes: u32,
}

impl<'a> ListWriter<'a> {
    /// Creates a writer of listings. The first record to be listed comes after one that ends at `end_bytes` of the
    /// segment.
    pub(crate) fn behind(geometry: &'a SegmentGeometry, end_bytes: u32) -> Self {
        Self { geometry, list: Vec::new(), end_bytes }
    }

    /// Appends a listing. Its record must come after all previous ones.
    pub(crate) fn add(&mut self, listing: &TrailerRecord) {
        if !self.geometry.is_packed() {
            return self.add_long(listing);
        }
        let step = self.geometry.step_bytes as u32;
        assert!(listing.start_bytes >= self.end_bytes, "records are listed in the order in which they stand");
        let gap = (listing.start_bytes - self.end_bytes) / step;
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        assert!(gap == 0 || !listing.follows, "a record that follows another is next to it");
        let has_gap = gap > 0 || listing.follows;
        let flags = listing.kind.flag() | flag(listing.expires_at != 0, FLAG_EXPIRY) | flag(has_gap, FLAG_GAP);
        self.list.push(flags);
        self.list.extend_from_slice(&listing.key_hash.0.to_le_bytes());
        self.add_number(listing.len_bytes / step);
        if has_gap {
            self.add_number(gap);
        }
        if listing.expires_at != 0 {
            self.list.extend_from_slice(&listing.expires_at.to_le_bytes());
        }
        self.end_bytes = listing.end_bytes();
    }

    fn add_long(&mut self, listing: &TrailerRecord) {
        let sector = u64::from(listing.start_bytes) / SECTOR_BYTES;
        let sectors = listing.sectors();
        self.list.extend_from_slice(&listing.key_hash.0.to_le_bytes());
        self.list.extend_from_slice(&(sector as u32).to_le_bytes());
        self.list.extend_from_slice(&(sectors as u16).to_le_bytes());
        self.list.extend_from_slice(&[listing.kind.flag(), listing.run_blocks]);
        self.list.extend_from_slice(&listing.expires_at.to_le_bytes());
    }

    /// Appends a number in groups of seven bits, lowest first. The highest bit of each byte says whether another byte
    /// follows.
    fn add_number(&mut self, mut number: u32) {
        while number >> NUMBER_BITS > 0 {
            self.list.push(number as u8 | 1 << NUMBER_BITS);
            number >>= NUMBER_BITS;
        }
        self.list.push(number as u8);
    }

    /// Returns the encoded listings.
    pub(crate) fn into_list(self) -> Vec<u8> {
        self.list
    }
}

/// Returns the bytes that `listing` takes if the previous record ends at `end_bytes`.
pub(crate) fn listing_bytes(geometry: &SegmentGeometry, end_bytes: u32, listing: &TrailerRecord) -> u64 {
    if !geometry.is_packed() {
        return LISTING_BYTES;
    }
    let number_bytes = |bytes: u32| {
        let number = bytes / geometry.step_bytes as u32;
        u64::from((u32::BITS - (number | 1).leading_zeros()).div_ceil(NUMBER_BITS))
    };
    let gap = listing.start_bytes - end_bytes;
    let gap_bytes = if gap > 0 || listing.follows { number_bytes(gap) } else { 0 };
    SHORT_LISTING_BYTES + number_bytes(listing.len_bytes) + gap_bytes + if listing.expires_at == 0 { 0 } else { 4 }
}

/// Writes the trailer of a segment into `target`, which has the length that [`trailer_bytes`] returns.
pub(crate) fn encode(
    volume: VolumeId,
    geometry: &SegmentGeometry,
    (segment, of): (SegmentId, SegmentUse),
    listings: &[TrailerRecord],
    target: &mut [u8],
) {
    let mut writer = ListWriter::behind(geometry, 0);
    listings.iter().for_each(|listing| writer.add(listing));
    let list = writer.into_list();
    assert_eq!(target.len() as u64, trailer_bytes(list.len() as u64));
    target[..list.len()].copy_from_slice(&list);
    target[list.len()..].fill(0);
    let checksum = volume.checksum(&[&list]);
    let footer_at = target.len() - FOOTER_BYTES as usize;
    let footer = &mut target[footer_at..];
    let list_bytes = if geometry.is_packed() { list.len() as u32 } else { 0 };
    FieldsMut::new(footer)
        .put(&MAGIC)
        .put(&0_u32.to_le_bytes())
        .put(&volume.0)
        .put(&segment.0.to_le_bytes())
        .put(&of.sequence.to_le_bytes())
        .put(&(listings.len() as u32).to_le_bytes())
        .put(&checksum.to_le_bytes())
        .put(&of.anchor.to_le_bytes())
        .put(&list_bytes.to_le_bytes());
    let checksum = volume.checksum(&[&footer[8..]]);
    footer[4..8].copy_from_slice(&checksum.to_le_bytes());
}

impl TrailerFooter {
    /// Decodes the footer of `segment` at the end of `bytes`. Returns `None` if it is not valid.
    pub(crate) fn decode(
        volume: VolumeId,
        geometry: &SegmentGeometry,
        segment: SegmentId,
        bytes: &[u8],
    ) -> Option<Self> {
        let footer = bytes.get(bytes.len().checked_sub(FOOTER_BYTES as usize)?..)?;
        let mut fields = FieldReader::new(footer);
        if fields.array()? != MAGIC || fields.u32()? != volume.checksum(&[&footer[8..]]) || fields.array()? != volume.0
        {
            return None;
        }
        let segment_named = SegmentId(fields.u32()?);
        let sequence = fields.u32()?;
        let listing_count = fields.u32()?;
        let listings_checksum = fields.u32()?;
        let anchor = fields.u32()?;
        let list_bytes =
            if geometry.is_packed() { fields.u32()? } else { listing_count.checked_mul(LISTING_BYTES as u32)? };
        let footer = Self { segment: segment_named, sequence, anchor, listing_count, list_bytes, listings_checksum };
        let sound = footer.segment == segment
            && footer.trailer_bytes() < geometry.segment_bytes
            && listing_count <= list_bytes
            && anchor <= sequence;
        sound.then_some(footer)
    }

    /// Returns the use of the segment in which the listed records were written.
    pub(crate) fn segment_use(&self) -> SegmentUse {
        SegmentUse { sequence: self.sequence, anchor: self.anchor }
    }

    /// Returns the length of the whole trailer in bytes. It takes the last bytes of the segment.
    pub(crate) fn trailer_bytes(&self) -> u64 {
        trailer_bytes(self.list_bytes.into())
    }

    /// Decodes the listings of this footer's trailer, in the order in which the records were written. `trailer` is the
    /// bytes of the whole trailer. Returns `None` if they are not valid.
    pub(crate) fn listings(
        &self,
        volume: VolumeId,
        geometry: &SegmentGeometry,
        trailer: &[u8],
    ) -> Option<Vec<TrailerRecord>> {
        let list = trailer.get(..self.list_bytes as usize)?;
        if volume.checksum(&[list]) != self.listings_checksum {
            return None;
        }
        let mut fields = FieldReader::new(list);
        let mut listings: Vec<TrailerRecord> = Vec::with_capacity(self.listing_count as usize);
        for _ in 0..self.listing_count {
            let end_bytes = listings.last().map_or(0, TrailerRecord::end_bytes);
            let listing = if geometry.is_packed() {
                TrailerRecord::decode_short(&mut fields, geometry, end_bytes)?
            } else {
                TrailerRecord::decode_long(&mut fields)?
            };
            let end = u64::from(listing.start_bytes) + u64::from(listing.len_bytes);
            let follows_none = listing.follows && listings.is_empty();
            if end > geometry.segment_bytes || listing.len_bytes == 0 || follows_none {
                return None;
            }
            listings.push(listing);
            if listing.follows {
                TrailerRecord::extend_run(&mut listings);
            }
        }
        Some(listings)
    }
}

impl TrailerRecord {
    /// Updates the run of adjacent records at the end of `listings`, after a record was added. If that record continues
    /// the run, notes in the listing of the run's first record how much to read. Returns the run's length in sectors.
    pub(crate) fn extend_run(listings: &mut [Self]) -> u64 {
        let Some(last) = listings.last().copied() else { return 0 };
        let first = listings.iter_mut().rfind(|listing| !listing.follows);
        let first = first.expect("the first record of a segment follows none");
        let run_bytes = last.end_bytes() - first.start_bytes;
        let sectors = sectors_spanned(first.start_bytes.into(), run_bytes.into());
        if last.follows {
            first.run_blocks = Self::blocks_of_run(sectors);
        }
        sectors
    }

    /// Returns the value of [`Self::run_blocks`] for a run of `sectors`.
    fn blocks_of_run(sectors: u64) -> u8 {
        sectors.div_ceil(RUN_BLOCK_SECTORS).min(u8::MAX.into()) as u8
    }

    /// Returns where the record ends in its segment, in bytes.
    pub(crate) fn end_bytes(&self) -> u32 {
        self.start_bytes + self.len_bytes
    }

    /// Returns the record's length in whole sectors.
    pub(crate) fn sectors(&self) -> u64 {
        sectors(self.len_bytes.into())
    }

    /// Returns how many sectors to read, from the sector in which the record begins, to get the record and the
    /// following ones of its group.
    pub(crate) fn run_sectors(&self) -> u64 {
        let own = sectors_spanned(self.start_bytes.into(), self.len_bytes.into());
        own.max(u64::from(self.run_blocks) * RUN_BLOCK_SECTORS)
    }

    fn decode_long(fields: &mut FieldReader<'_>) -> Option<Self> {
        let key_hash = KeyHash(fields.u64()?);
        let sector = fields.u32()?;
        let sectors = fields.u16()?;
        let [flags, run_blocks] = fields.array()?;
        let expires_at = fields.u32()?;
        let start_bytes = sector.checked_mul(SECTOR_BYTES as u32)?;
        let len_bytes = u32::from(sectors) * SECTOR_BYTES as u32;
        start_bytes.checked_add(len_bytes)?;
        // Parts exist only if records share sectors.
        let kind = ListedKind::of_flags(flags & FLAG_TOMBSTONE);
        Some(Self { key_hash, start_bytes, len_bytes, kind, run_blocks, follows: false, expires_at })
    }

    fn decode_short(fields: &mut FieldReader<'_>, geometry: &SegmentGeometry, end_bytes: u32) -> Option<Self> {
        let step = geometry.step_bytes as u32;
        let flags = fields.u8()?;
        let key_hash = KeyHash(fields.u64()?);
        let len_bytes = number(fields)?.checked_mul(step)?;
        let gap = if flags & FLAG_GAP == 0 { 0 } else { number(fields)?.checked_mul(step)? };
        let follows = flags & FLAG_GAP != 0 && gap == 0;
        let expires_at = if flags & FLAG_EXPIRY == 0 { 0 } else { fields.u32()? };
        let start_bytes = end_bytes.checked_add(gap)?;
        start_bytes.checked_add(len_bytes)?;
        let kind = ListedKind::of_flags(flags);
        Some(Self { key_hash, start_bytes, len_bytes, kind, run_blocks: 0, follows, expires_at })
    }
}

/// Reads a number that [`ListWriter::add_number`] wrote.
fn number(fields: &mut FieldReader<'_>) -> Option<u32> {
    let mut number = 0;
    for at in 0..NUMBER_BYTES_MAX {
        let byte = u32::from(fields.u8()?);
        number |= (byte & ((1 << NUMBER_BITS) - 1)) << (at * NUMBER_BITS);
        if byte >> NUMBER_BITS == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_read_back_and_every_flipped_bit_in_use_noticed() {
        let volume = VolumeId([1; 16]);
        let segment = SegmentId(2);
        let plain = SegmentGeometry::new(64 << 20, 0, 1 << 20).unwrap();
        for (geometry, run_blocks) in [(plain, 12), (plain.packed(), 0)] {
            let step = geometry.step_bytes as u32;
            let listing = |n: u32| TrailerRecord {
                key_hash: KeyHash(u64::from(n) << 40),
                start_bytes: n * 301 * step,
                len_bytes: (if n.is_multiple_of(3) { 301 } else { 30 + n }) * step,
                kind: if n % 2 == 1 { ListedKind::Tombstone } else { ListedKind::Entry },
                run_blocks: n as u8 * run_blocks,
                follows: false,
                expires_at: n,
            };
            let listings: Vec<_> = (0..6).map(listing).collect();
            let mut writer = ListWriter::behind(&geometry, 0);
            listings.iter().for_each(|listing| writer.add(listing));
            let list_bytes = writer.into_list().len();
            assert!(list_bytes as u64 <= LISTING_BYTES * listings.len() as u64);
            let mut bytes = vec![0; trailer_bytes(list_bytes as u64) as usize];
            encode(volume, &geometry, (segment, SegmentUse { sequence: 5, anchor: 4 }), &listings, &mut bytes);
            let read = |bytes: &[u8]| {
                let footer = TrailerFooter::decode(volume, &geometry, segment, bytes)?;
                assert_eq!(footer.sequence, 5);
                footer.listings(volume, &geometry, bytes)
            };
            assert_eq!(read(&bytes), Some(listings.clone()));
            let used = (0..list_bytes).chain(bytes.len() - FOOTER_BYTES as usize..bytes.len());
            for byte in used {
                for bit in 0..8 {
                    bytes[byte] ^= 1 << bit;
                    assert_eq!(read(&bytes), None, "bit {bit} of byte {byte}");
                    bytes[byte] ^= 1 << bit;
                }
            }
            assert_eq!(
                TrailerFooter::decode(volume, &geometry, SegmentId(3), &bytes),
                None,
                "another segment's trailer"
            );
        }
    }

    /// Checks the share of a volume that listings take if entries are short.
    #[test]
    fn a_short_listing_without_a_deadline_takes_eleven_bytes() {
        let geometry = SegmentGeometry::new(64 << 20, 0, 1 << 20).unwrap().packed();
        let listing = TrailerRecord {
            key_hash: KeyHash(u64::MAX),
            start_bytes: 64,
            len_bytes: 2168,
            kind: ListedKind::Part,
            run_blocks: 0,
            follows: false,
            expires_at: 0,
        };
        let taken = |end_bytes, listing| {
            let mut writer = ListWriter::behind(&geometry, end_bytes);
            writer.add(&listing);
            let list_bytes = writer.into_list().len() as u64;
            assert_eq!(listing_bytes(&geometry, end_bytes, &listing), list_bytes);
            list_bytes
        };
        assert_eq!(taken(64, listing), 11);
        assert_eq!(taken(64, TrailerRecord { len_bytes: 664, ..listing }), 10);
        assert_eq!(taken(0, TrailerRecord { expires_at: 7, ..listing }), 16);
        assert_eq!(taken(64, TrailerRecord { follows: true, ..listing }), 12);
    }
}
