//! A compact set: the content of a set of `tiny`, without the fixed fields of records.
//!
//! A record takes 68 bytes in addition to its key, head and body, and its place in a pack 24 bytes and rounding: more
//! than an object of 100 bytes. Here, an entry takes 8 bytes, and 4 to 20 for fields that are not 0. Owns: the
//! directory (header and listings of varying length), and the contents behind it, one after the other. Sequence and
//! hash of a record are left out: the set has one version, and the hash follows from the key. Invariants: the
//! directory contains its own offset, so a misdirected write is detected. An entry is used only after its own checksum
//! was verified. Idea: the buckets of Kangaroo (SOSP 2021), whose entries take 16 bytes.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    pack::STUB_BYTES,
};
use std::ops::Range;

/// The first bytes of a compact set, the form of `tiny`'s sets for short entries.
pub(crate) const MAGIC: [u8; 4] = *b"LDRq";
/// Length of a compact set's header, in bytes.
pub(crate) const HEADER_BYTES: usize = 32;
/// Maximum length of a set, in bytes. It ensures that every encoded length within a set fits in three bytes.
const SET_BYTES_MAX: u32 = 64 << 10;
const RANK_MASK: u8 = 7;
const IS_STUB: u8 = 1 << 3;
const HAS_EPOCH: u8 = 1 << 4;
const HAS_SITE: u8 = 1 << 5;
const HAS_GROUP: u8 = 1 << 6;
const HAS_EXPIRY: u8 = 1 << 7;
const CHECKSUM_BYTES: usize = 4;

/// The header of a compact set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactHeader {
    /// Offset on the volume for which the set was written, to detect bytes that were written to a wrong place.
    pub(crate) offset_bytes: u64,
    /// Number that grows with each write of this set.
    pub(crate) version: u32,
    /// Length of the set in bytes.
    pub(crate) len_bytes: u32,
}

/// The fields of an entry other than its key, head and body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactFields {
    /// Predicted time until the entry's next use, from 0 (soon) to 7.
    pub(crate) rank: u8,
    pub(crate) epoch: u32,
    pub(crate) site: u64,
    pub(crate) group: u32,
    pub(crate) expires_at: u32,
}

/// The content of an entry: a record, or a stub that refers to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactContent<'a> {
    Record {
        key: &'a [u8],
        head: &'a [u8],
        body: &'a [u8],
    },
    /// An encoded [`RecordStub`](super::pack::RecordStub), which has the position of a long entry.
    Stub(&'a [u8]),
}

/// An entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactEntry<'a> {
    pub(crate) fields: CompactFields,
    pub(crate) content: CompactContent<'a>,
}

/// An entry as the directory of a set lists it. Its content is not verified yet. The ranges are positions in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompactListing {
    pub(crate) fields: CompactFields,
    checksum: u32,
    is_stub: bool,
    key: Range<usize>,
    head: Range<usize>,
    body: Range<usize>,
}

impl CompactEntry<'_> {
    /// Returns the bytes that the entry takes in a set, including its listing.
    pub(crate) fn len_bytes(&self) -> u64 {
        let mut listing = Vec::with_capacity(LISTING_BYTES_MAX);
        self.put_listing(0, &mut listing);
        (listing.len() + self.content.parts().iter().map(|part| part.len()).sum::<usize>()) as u64
    }

    /// Appends the listing of this entry to `listings`. `checksum` is that of the entry's content.
    fn put_listing(&self, checksum: u32, listings: &mut Vec<u8>) {
        let CompactFields { rank, epoch, site, group, expires_at } = self.fields;
        assert!(rank <= RANK_MASK, "ranks have three bits");
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let is_stub = matches!(self.content, CompactContent::Stub(_));
        let flags = flag(is_stub, IS_STUB) | flag(epoch != 0, HAS_EPOCH) | flag(site != 0, HAS_SITE);
        let flags = flags | flag(group != 0, HAS_GROUP) | flag(expires_at != 0, HAS_EXPIRY);
        assert_eq!(flags & RANK_MASK, 0, "flags and rank share a byte");
        listings.push(rank | flags);
        listings.extend(checksum.to_le_bytes());
        put_if_any(&epoch.to_le_bytes(), listings);
        put_if_any(&site.to_le_bytes(), listings);
        put_if_any(&group.to_le_bytes(), listings);
        put_if_any(&expires_at.to_le_bytes(), listings);
        if !is_stub {
            self.content.parts().iter().for_each(|part| put_number(part.len() as u32, listings));
        }
    }
}

impl<'a> CompactContent<'a> {
    /// Returns the byte strings that the content consists of, in the order of the set.
    fn parts(&self) -> [&'a [u8]; 3] {
        match *self {
            Self::Record { key, head, body } => [key, head, body],
            Self::Stub(stub) => [stub, &[], &[]],
        }
    }
}

impl CompactListing {
    /// Returns the entry's content from `set`, or `None` if its checksum is wrong.
    pub(crate) fn content<'a>(&self, volume: VolumeId, set: &'a [u8]) -> Option<CompactContent<'a>> {
        let part = |range: &Range<usize>| set.get(range.clone());
        let key = part(&self.key)?;
        let head = part(&self.head)?;
        let body = part(&self.body)?;
        if volume.checksum(&[key, head, body]) != self.checksum {
            return None;
        }
        Some(if self.is_stub { CompactContent::Stub(key) } else { CompactContent::Record { key, head, body } })
    }

    /// Returns the entry's key from `set` without verifying it, or `None` if the entry is a stub.
    pub(crate) fn key<'a>(&self, set: &'a [u8]) -> Option<&'a [u8]> {
        if self.is_stub { None } else { set.get(self.key.clone()) }
    }

    /// Returns the encoded stub from `set` without verifying it, or `None` if the entry is a record.
    pub(crate) fn stub<'a>(&self, set: &'a [u8]) -> Option<&'a [u8]> {
        if self.is_stub { set.get(self.key.clone()) } else { None }
    }
}

/// Writes a set with `entries` to `target`.
///
/// # Panics
/// If the entries do not fit in `target`.
pub(crate) fn encode(volume: VolumeId, header: CompactHeader, entries: &[CompactEntry<'_>], target: &mut [u8]) {
    assert_eq!(target.len(), header.len_bytes as usize, "a set is written whole");
    let mut listings = Vec::with_capacity(entries.len() * LISTING_BYTES_MAX);
    for entry in entries {
        entry.put_listing(volume.checksum(&entry.content.parts()), &mut listings);
    }
    let directory_bytes = HEADER_BYTES + listings.len();
    FieldsMut::new(&mut target[..directory_bytes])
        .put(&MAGIC)
        .put(&[0; 4])
        .put(&header.offset_bytes.to_le_bytes())
        .put(&header.version.to_le_bytes())
        .put(&header.len_bytes.to_le_bytes())
        .put(&(entries.len() as u32).to_le_bytes())
        .put(&(directory_bytes as u32).to_le_bytes())
        .put(&listings);
    let checksum = volume.checksum(&[&target[8..directory_bytes]]);
    target[4..8].copy_from_slice(&checksum.to_le_bytes());
    let mut contents = FieldsMut::new(&mut target[directory_bytes..]);
    for part in entries.iter().flat_map(|entry| entry.content.parts()) {
        contents.put(part);
    }
}

/// Decodes the directory of the set in `bytes`, which were read at `offset_bytes` of the volume. Returns `None` if they
/// are not a whole set that was written for this offset.
pub(crate) fn decode(
    volume: VolumeId,
    offset_bytes: u64,
    bytes: &[u8],
) -> Option<(CompactHeader, Vec<CompactListing>)> {
    let mut fields = FieldReader::new(bytes.get(..HEADER_BYTES)?);
    if fields.array()? != MAGIC {
        return None;
    }
    let checksum = fields.u32()?;
    let header = CompactHeader { offset_bytes: fields.u64()?, version: fields.u32()?, len_bytes: fields.u32()? };
    let count = fields.u32()?;
    let directory_bytes = fields.u32()? as usize;
    let is_sound = header.offset_bytes == offset_bytes && header.len_bytes <= SET_BYTES_MAX;
    if !is_sound || directory_bytes < HEADER_BYTES || header.len_bytes as usize > bytes.len() {
        return None;
    }
    let directory = bytes.get(..directory_bytes)?;
    if checksum != volume.checksum(&[&directory[8..]]) {
        return None;
    }
    let mut listed = FieldReader::new(&directory[HEADER_BYTES..]);
    let mut at = directory_bytes;
    let mut listings = Vec::new();
    for _ in 0..count {
        listings.push(decode_listing(&mut listed, &mut at)?);
    }
    (at <= header.len_bytes as usize).then_some((header, listings))
}

/// Decodes the next listing, an entry's fields in the directory of a set. `at` is the position of the listed content in
/// the set; it is advanced to the content's end.
fn decode_listing(fields: &mut FieldReader<'_>, at: &mut usize) -> Option<CompactListing> {
    let flags = fields.u8()?;
    let has = |bit: u8| flags & bit != 0;
    let checksum = fields.u32()?;
    let entry = CompactFields {
        rank: flags & RANK_MASK,
        epoch: if has(HAS_EPOCH) { fields.u32()? } else { 0 },
        site: if has(HAS_SITE) { fields.u64()? } else { 0 },
        group: if has(HAS_GROUP) { fields.u32()? } else { 0 },
        expires_at: if has(HAS_EXPIRY) { fields.u32()? } else { 0 },
    };
    let is_stub = has(IS_STUB);
    let lens = if is_stub { [STUB_BYTES, 0, 0] } else { [number(fields)?, number(fields)?, number(fields)?] };
    let [key, head, body] = lens.map(|len| {
        let start = *at;
        *at += len;
        start..*at
    });
    Some(CompactListing { fields: entry, checksum, is_stub, key, head, body })
}

/// Maximum length, in bytes, of a listing (an entry's fields in the directory of a set): flags, checksum, all fields,
/// and three lengths.
const LISTING_BYTES_MAX: usize = 1 + CHECKSUM_BYTES + 20 + 3 * 3;
/// Bits of a length that each encoded byte holds. The byte's highest bit says whether another byte follows.
const NUMBER_BITS: u32 = 7;

/// Appends a field to `target`, unless all its bytes are 0.
fn put_if_any(field: &[u8], target: &mut Vec<u8>) {
    if field.iter().any(|byte| *byte != 0) {
        target.extend(field);
    }
}

/// Appends a length to `target`, in groups of seven bits, lowest first.
fn put_number(mut number: u32, target: &mut Vec<u8>) {
    assert!(number < SET_BYTES_MAX, "an entry fits into a set");
    while number >> NUMBER_BITS != 0 {
        target.push(number as u8 | 1 << NUMBER_BITS);
        number >>= NUMBER_BITS;
    }
    target.push(number as u8);
}

/// Reads a length that [`put_number`] wrote.
fn number(fields: &mut FieldReader<'_>) -> Option<usize> {
    let mut number = 0;
    for shift in [0, NUMBER_BITS, 2 * NUMBER_BITS] {
        let byte = fields.u8()?;
        number |= usize::from(byte & !(1 << NUMBER_BITS)) << shift;
        if byte >> NUMBER_BITS == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: VolumeId = VolumeId([3; 16]);
    const OFFSET: u64 = 1 << 20;
    const HEADER: CompactHeader = CompactHeader { offset_bytes: OFFSET, version: 7, len_bytes: 4096 };

    fn fields(rank: u8, epoch: u32, site: u64, group: u32, expires_at: u32) -> CompactFields {
        CompactFields { rank, epoch, site, group, expires_at }
    }

    fn encoded(entries: &[CompactEntry<'_>]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        encode(VOLUME, HEADER, entries, &mut bytes);
        bytes
    }

    fn check_round_trip(entries: &[CompactEntry<'_>]) {
        let bytes = encoded(entries);
        let (header, listings) = decode(VOLUME, OFFSET, &bytes).unwrap();
        let decoded: Vec<_> = listings
            .iter()
            .map(|listing| CompactEntry { fields: listing.fields, content: listing.content(VOLUME, &bytes).unwrap() })
            .collect();
        assert_eq!((header, &decoded[..]), (HEADER, entries));
        let used: u64 = entries.iter().map(CompactEntry::len_bytes).sum();
        let end = listings.iter().map(|listing| listing.body.end).max().unwrap_or(HEADER_BYTES);
        assert_eq!(HEADER_BYTES as u64 + used, end as u64, "entries take what they say");
    }

    #[test]
    fn what_was_written_is_read_and_small_entries_take_few_bytes() {
        let key = [1; 8];
        let body = [2; 150];
        let small = CompactEntry {
            fields: fields(6, 1, 0, 0, 0),
            content: CompactContent::Record { key: &key, head: &[], body: &body },
        };
        assert_eq!(small.len_bytes(), 158 + 13);
        let stub = [9; STUB_BYTES];
        let all = [
            small,
            CompactEntry { fields: fields(0, 0, 0, 0, 5), content: CompactContent::Stub(&stub) },
            CompactEntry {
                fields: fields(7, u32::MAX, u64::MAX, u32::MAX, u32::MAX),
                content: CompactContent::Record { key: &[], head: &[4; 1000], body: &[] },
            },
        ];
        check_round_trip(&all);
        check_round_trip(&[]);
        let bytes = encoded(&all);
        let (_, listings) = decode(VOLUME, OFFSET, &bytes).unwrap();
        assert_eq!((listings[0].key(&bytes), listings[1].stub(&bytes)), (Some(&key[..]), Some(&stub[..])));
        assert_eq!((listings[1].key(&bytes), listings[0].stub(&bytes)), (None, None));
    }

    #[test]
    fn a_set_of_another_place_or_volume_is_none_and_flipped_bits_are_noticed() {
        let content = CompactContent::Record { key: b"key", head: b"head", body: b"body" };
        let mut bytes = encoded(&[CompactEntry { fields: fields(1, 2, 3, 4, 5), content }]);
        assert!(decode(VOLUME, OFFSET + 4096, &bytes).is_none() && decode(VolumeId([4; 16]), OFFSET, &bytes).is_none());
        let (_, listings) = decode(VOLUME, OFFSET, &bytes).unwrap();
        let directory_bytes = listings[0].key.start;
        for bit in 0..listings[0].body.end * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = decode(VOLUME, OFFSET, &bytes);
            if bit / 8 < directory_bytes {
                assert!(found.is_none(), "bit {bit}");
            } else {
                assert_eq!(found.unwrap().1[0].content(VOLUME, &bytes), None, "bit {bit}");
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest! {
        #[test]
        fn entries_of_any_length_are_read_again(
            lens in prop::collection::vec((0_usize..40, 0_usize..300, 0_usize..600, 0_u8..8), 0..5),
            numbers in any::<(u32, u64, u32, u32)>(),
        ) {
            let bytes = vec![5; 1000];
            let (epoch, site, group, expires_at) = numbers;
            let entries: Vec<_> = lens.iter().map(|&(key, head, body, rank)| CompactEntry {
                fields: fields(rank, epoch, site, group, expires_at),
                content: CompactContent::Record { key: &bytes[..key], head: &bytes[..head], body: &bytes[..body] },
            }).collect();
            prop_assume!(entries.iter().map(CompactEntry::len_bytes).sum::<u64>() <= 4096 - HEADER_BYTES as u64);
            check_round_trip(&entries);
        }

        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..300), len in 0_u32..400) {
            let _ = decode(VOLUME, OFFSET, &bytes);
            if bytes.len() >= HEADER_BYTES {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[8..16].copy_from_slice(&OFFSET.to_le_bytes());
                let len_bytes = bytes.len() as u32;
                bytes[20..24].copy_from_slice(&len_bytes.to_le_bytes());
                bytes[28..32].copy_from_slice(&len.to_le_bytes());
                if let Some(directory) = bytes.get(8..len as usize) {
                    let checksum = VOLUME.checksum(&[directory]);
                    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
                }
                let decoded = decode(VOLUME, OFFSET, &bytes);
                for listing in decoded.iter().flat_map(|(_, listings)| listings) {
                    let _ = (listing.content(VOLUME, &bytes), listing.key(&bytes), listing.stub(&bytes));
                }
            }
        }
    }
}
