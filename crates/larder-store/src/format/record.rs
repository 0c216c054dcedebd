//! A record: one entry (or the news that one is gone) as it stands in a unit.
//!
//! Layout: fixed header, key, place of the body if it is elsewhere, checksums of the body's blocks,
//! head, body. One checksum covers everything before the body; each 64 KiB of body has its own, so
//! that a range is verified without the rest. Invariant: nothing of a record is used before its
//! lengths were bounded and its checksum fitted.

use super::{
    VolumeId,
    bytes::{Fields, FieldsMut},
    mend::mended,
    plain_checksum,
};
use crate::{
    Hints,
    hash::FullHash,
    units::{Sector, Site, sectors},
};
use bytes::Bytes;
use std::ops::Range;

const MAGIC: [u8; 4] = *b"LDRr";
const FIXED_BYTES: usize = 64;
/// What a record takes around key, head and body, at most: its fixed part and the checksums of its body's blocks.
pub(crate) const AROUND_BYTES: u64 = 128;
/// Where the sequence stands, and the lengths up to the record's kind.
const SEQUENCE_AT: usize = 24;
const HEAD_LEN_AT: usize = 48;
/// Where the record's own place stands, the last field of the fixed part.
const PLACE_AT: usize = 60;
const ELSEWHERE_BYTES: usize = 16;
/// Bytes of body under one checksum.
pub(crate) const BODY_BLOCK_BYTES: u64 = 64 << 10;
/// Longest key.
pub(crate) const KEY_BYTES_MAX: usize = 16 << 10;
/// Longest head.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest body.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 20;
/// Longest record, in sectors.
pub(crate) const RECORD_SECTORS_MAX: u64 = sectors_max();

const fn sectors_max() -> u64 {
    let checksums = BODY_BYTES_MAX.div_ceil(BODY_BLOCK_BYTES) * 4;
    let bytes = FIXED_BYTES + ELSEWHERE_BYTES + KEY_BYTES_MAX + HEAD_BYTES_MAX;
    (bytes as u64 + checksums + BODY_BYTES_MAX).div_ceil(crate::units::SECTOR_BYTES)
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An entry with its body.
    Entry,
    /// The key was removed: older records of it do not count.
    Tombstone,
    /// An entry with a new head, whose body stands in an older record.
    HeadUpdate(BodyElsewhere),
}

/// Where the body of a [`Kind::HeadUpdate`] lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyElsewhere {
    /// First byte of the body on the volume.
    pub(crate) offset_bytes: u64,
    /// Sequence of the segment it lies in; if the segment has another now, the body is gone.
    pub(crate) sequence: u32,
}

/// Everything in a record but its key, head and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    pub(crate) hash: FullHash,
    pub(crate) sequence: u32,
    /// Where the record begins, in sectors from its segment's start, so that bytes of another place are noticed; 0 in
    /// rows without segments, whose sequences are enough.
    pub(crate) place_sectors: u32,
    pub(crate) epoch: u32,
    pub(crate) site: Site,
    pub(crate) group: u32,
    pub(crate) expires_at: u32,
    pub(crate) body_bytes: u64,
}

impl Meta {
    /// What a new record says of itself; the sequence is filled in when the log places it.
    pub(crate) fn new(kind: Kind, hash: FullHash, hints: Hints, epoch: u32, body_bytes: u64) -> Self {
        let Hints { site, group, expires_at } = hints;
        Self {
            kind,
            hash,
            sequence: 0,
            place_sectors: 0,
            epoch,
            site: Site(site),
            group: group as u32,
            expires_at,
            body_bytes,
        }
    }
}

/// A record to be written.
pub(crate) struct Record<'a> {
    pub(crate) meta: Meta,
    pub(crate) key: &'a [u8],
    pub(crate) head: &'a [u8],
    /// One per started [`BODY_BLOCK_BYTES`].
    pub(crate) checksums: &'a [u32],
    /// Together `meta.body_bytes` long; empty if the body is elsewhere.
    pub(crate) body: &'a [Bytes],
}

impl Record<'_> {
    /// What the caller gave: key, head and body.
    pub(crate) fn content_bytes(&self) -> u64 {
        (self.key.len() + self.head.len()) as u64 + self.meta.body_bytes
    }

    /// Length in bytes, before rounding to sectors.
    pub(crate) fn len_bytes(&self) -> u64 {
        let body = if self.meta.kind == Kind::Entry { self.meta.body_bytes } else { 0 };
        self.before_body_bytes() as u64 + body
    }

    pub(crate) fn len_sectors(&self) -> u64 {
        sectors(self.len_bytes())
    }

    /// Writes the record at the start of `target`.
    pub(crate) fn encode(&self, volume: VolumeId, target: &mut [u8]) {
        let meta = &self.meta;
        assert!(self.key.len() <= KEY_BYTES_MAX && self.head.len() <= HEAD_BYTES_MAX);
        assert!(meta.body_bytes <= BODY_BYTES_MAX);
        assert_eq!(self.checksums.len() as u64, meta.body_bytes.div_ceil(BODY_BLOCK_BYTES));
        let before_body = self.before_body_bytes();
        let (front, rest) = target.split_at_mut(before_body);
        let mut fields = FieldsMut::new(front);
        fields
            .put(&MAGIC)
            .put(&0_u32.to_le_bytes())
            .put(&meta.hash.0.to_le_bytes())
            .put(&meta.sequence.to_le_bytes())
            .put(&meta.epoch.to_le_bytes())
            .put(&meta.site.0.to_le_bytes())
            .put(&meta.group.to_le_bytes())
            .put(&meta.expires_at.to_le_bytes())
            .put(&(self.head.len() as u32).to_le_bytes())
            .put(&(meta.body_bytes as u32).to_le_bytes())
            .put(&(self.key.len() as u16).to_le_bytes())
            .put(&[kind_code(meta.kind), 0])
            .put(&meta.place_sectors.to_le_bytes())
            .put(self.key);
        if let Kind::HeadUpdate(elsewhere) = meta.kind {
            fields.put(&elsewhere.offset_bytes.to_le_bytes()).put(&elsewhere.sequence.to_le_bytes()).put(&[0; 4]);
        }
        for checksum in self.checksums {
            fields.put(&checksum.to_le_bytes());
        }
        fields.put(self.head);
        let checksum = volume.checksum(&[&front[8..]]);
        front[4..8].copy_from_slice(&checksum.to_le_bytes());
        let mut body = FieldsMut::new(rest);
        for part in self.body {
            body.put(part);
        }
    }

    fn before_body_bytes(&self) -> usize {
        let elsewhere = if matches!(self.meta.kind, Kind::HeadUpdate(_)) { ELSEWHERE_BYTES } else { 0 };
        FIXED_BYTES + self.key.len() + elsewhere + self.checksums.len() * 4 + self.head.len()
    }
}

/// Tells the record at the start of `bytes`, which was encoded whole, that it begins at another place.
pub(crate) fn set_place(volume: VolumeId, bytes: &mut [u8], place_sectors: u32) {
    let (lengths, _) = Lengths::decode(&bytes[..FIXED_BYTES]).expect("it was encoded here");
    let front = &mut bytes[..lengths.body_start()];
    front[PLACE_AT..FIXED_BYTES].copy_from_slice(&place_sectors.to_le_bytes());
    let checksum = volume.checksum(&[&front[8..]]);
    front[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// A record that was read and whose front part fitted its checksum. Ranges are relative to its start.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) meta: Meta,
    pub(crate) key: Range<usize>,
    pub(crate) head: Range<usize>,
    checksums: Range<usize>,
    /// Where the body begins (or would begin).
    pub(crate) body_start: usize,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// More bytes are needed to tell: this many from the record's start.
    Short(usize),
    /// No record of this volume, or a damaged one.
    Damaged,
}

impl Decoded {
    /// Decodes the record at the start of `bytes`, up to but not including its body.
    pub(crate) fn decode(volume: VolumeId, bytes: &[u8]) -> Result<Self, Refusal> {
        let fixed = bytes.get(..FIXED_BYTES).ok_or(Refusal::Short(FIXED_BYTES))?;
        let (lengths, checksum) = Lengths::decode(fixed).ok_or(Refusal::Damaged)?;
        let before_body = lengths.body_start();
        let front = bytes.get(..before_body).ok_or(Refusal::Short(before_body))?;
        if checksum != volume.checksum(&[&front[8..]]) {
            return Err(Refusal::Damaged);
        }
        lengths.into_decoded(front).ok_or(Refusal::Damaged)
    }

    /// As [`Self::decode`], with one flipped bit undone, of the record that use `sequence` of a segment had
    /// `place_sectors` from its start. What it tells holds; the bytes are still damaged.
    pub(crate) fn decode_mended(volume: VolumeId, bytes: &[u8], sequence: u32, place_sectors: u32) -> Option<Self> {
        let fixed = bytes.get(..FIXED_BYTES)?;
        let wrong = |at: usize, right: u32| (le_u32(&fixed[at..at + 4]) ^ right).count_ones();
        // Else every sector of a body would be tried.
        if wrong(0, u32::from_le_bytes(MAGIC)) + wrong(SEQUENCE_AT, sequence) + wrong(PLACE_AT, place_sectors) > 1 {
            return None;
        }
        let extent = |front: &[u8]| {
            let mut fixed: [u8; FIXED_BYTES] = front.get(..FIXED_BYTES)?.try_into().ok()?;
            fixed[..MAGIC.len()].copy_from_slice(&MAGIC);
            Lengths::decode(&fixed).map(|(lengths, _)| lengths.body_start())
        };
        let front = mended(volume, MAGIC, bytes, HEAD_LEN_AT..FIXED_BYTES, extent)?;
        Self::decode(volume, &front).ok()
    }

    /// Whole length in bytes, body included where it stands here.
    pub(crate) fn len_bytes(&self) -> usize {
        let body = if self.meta.kind == Kind::Entry { self.meta.body_bytes as usize } else { 0 };
        self.body_start + body
    }

    pub(crate) fn len_sectors(&self) -> u64 {
        sectors(self.len_bytes() as u64)
    }

    /// Where the body lies on the volume, for a record at `place` in a segment of `meta.sequence`.
    pub(crate) fn body_place(&self, place: Sector) -> BodyElsewhere {
        match self.meta.kind {
            Kind::HeadUpdate(elsewhere) => elsewhere,
            Kind::Entry | Kind::Tombstone => BodyElsewhere {
                offset_bytes: place.byte_offset() + self.body_start as u64,
                sequence: self.meta.sequence,
            },
        }
    }

    /// Whether the body stands behind this very record.
    pub(crate) fn body_is_here(&self) -> bool {
        self.meta.kind == Kind::Entry
    }

    /// The checksums of the body's blocks; `record` is what was decoded.
    pub(crate) fn checksums(&self, record: &[u8]) -> Vec<u32> {
        record[self.checksums.clone()].chunks_exact(4).map(le_u32).collect()
    }

    /// Whether `block`, the whole of body block `index`, is what was written.
    pub(crate) fn verifies(&self, record: &[u8], index: u64, block: &[u8]) -> bool {
        let at = self.checksums.start + index as usize * 4;
        at < self.checksums.end && le_u32(&record[at..at + 4]) == plain_checksum(block)
    }
}

/// The fixed part, its lengths within bounds but its checksum not yet compared.
struct Lengths {
    kind: u8,
    key: usize,
    head: usize,
    body: u64,
    place_sectors: u32,
    meta: (FullHash, u32, u32, u64, u32, u32),
}

impl Lengths {
    fn decode(fixed: &[u8]) -> Option<(Self, u32)> {
        let mut fields = Fields::new(fixed);
        if fields.array()? != MAGIC {
            return None;
        }
        let checksum = fields.u32()?;
        let meta =
            (FullHash(fields.u128()?), fields.u32()?, fields.u32()?, fields.u64()?, fields.u32()?, fields.u32()?);
        let (head, body) = (fields.u32()? as usize, u64::from(fields.u32()?));
        let (key, kind, _) = (usize::from(fields.u16()?), fields.u8()?, fields.u8()?);
        let place_sectors = fields.u32()?;
        let bounded = key <= KEY_BYTES_MAX && head <= HEAD_BYTES_MAX && body <= BODY_BYTES_MAX;
        bounded.then_some((Self { kind, key, head, body, place_sectors, meta }, checksum))
    }

    fn body_start(&self) -> usize {
        FIXED_BYTES + self.key + self.elsewhere_bytes() + self.checksums_bytes() + self.head
    }

    fn elsewhere_bytes(&self) -> usize {
        if self.kind == KIND_HEAD_UPDATE { ELSEWHERE_BYTES } else { 0 }
    }

    fn checksums_bytes(&self) -> usize {
        self.body.div_ceil(BODY_BLOCK_BYTES) as usize * 4
    }

    fn into_decoded(self, front: &[u8]) -> Option<Decoded> {
        let key = FIXED_BYTES..FIXED_BYTES + self.key;
        let checksums_start = key.end + self.elsewhere_bytes();
        let checksums = checksums_start..checksums_start + self.checksums_bytes();
        let head = checksums.end..checksums.end + self.head;
        let kind = match self.kind {
            KIND_ENTRY => Kind::Entry,
            KIND_TOMBSTONE => Kind::Tombstone,
            KIND_HEAD_UPDATE => {
                let mut fields = Fields::new(&front[key.end..]);
                Kind::HeadUpdate(BodyElsewhere { offset_bytes: fields.u64()?, sequence: fields.u32()? })
            }
            _ => return None,
        };
        let (hash, sequence, epoch, site, group, expires_at) = self.meta;
        let Self { place_sectors, body: body_bytes, .. } = self;
        let meta = Meta { kind, hash, sequence, place_sectors, epoch, site: Site(site), group, expires_at, body_bytes };
        Some(Decoded { meta, key, body_start: head.end, head, checksums })
    }
}

/// The checksums of `parts`, taken as one body.
pub(crate) fn body_checksums(parts: &[Bytes]) -> Vec<u32> {
    let total: usize = parts.iter().map(Bytes::len).sum();
    if let [only] = parts {
        return only.chunks(BODY_BLOCK_BYTES as usize).map(plain_checksum).collect();
    }
    let mut checksums = Vec::with_capacity(total.div_ceil(BODY_BLOCK_BYTES as usize));
    let new = || crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let (mut digest, mut room) = (new(), BODY_BLOCK_BYTES as usize);
    for part in parts {
        let mut part = &part[..];
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(room));
            digest.update(now);
            (part, room) = (later, room - now.len());
            if room == 0 {
                checksums.push(digest.finalize() as u32);
                (digest, room) = (new(), BODY_BLOCK_BYTES as usize);
            }
        }
    }
    if room < BODY_BLOCK_BYTES as usize {
        checksums.push(digest.finalize() as u32);
    }
    checksums
}

const KIND_ENTRY: u8 = 1;
const KIND_TOMBSTONE: u8 = 2;
const KIND_HEAD_UPDATE: u8 = 3;

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Entry => KIND_ENTRY,
        Kind::Tombstone => KIND_TOMBSTONE,
        Kind::HeadUpdate(_) => KIND_HEAD_UPDATE,
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: VolumeId = VolumeId([9; 16]);

    fn meta(kind: Kind, body_bytes: u64) -> Meta {
        let (hash, place_sectors) = (FullHash(77), 9);
        Meta { kind, hash, sequence: 3, place_sectors, epoch: 1, site: Site(2), group: 5, expires_at: 6, body_bytes }
    }

    fn encoded(kind: Kind, body: &[Bytes]) -> Vec<u8> {
        let checksums = body_checksums(body);
        let body_bytes = body.iter().map(|part| part.len() as u64).sum();
        let here: &[Bytes] = if kind == Kind::Entry { body } else { &[] };
        let record =
            Record { meta: meta(kind, body_bytes), key: b"key", head: b"head", checksums: &checksums, body: here };
        let mut bytes = vec![0; record.len_bytes() as usize];
        record.encode(VOLUME, &mut bytes);
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let elsewhere = Kind::HeadUpdate(BodyElsewhere { offset_bytes: 123_456, sequence: 8 });
        for (kind, len) in [(Kind::Entry, 150_000), (Kind::Entry, 0), (elsewhere, 70_000), (Kind::Tombstone, 0)] {
            let body = Bytes::from(vec![7; len]);
            let bytes = encoded(kind, std::slice::from_ref(&body));
            let read = Decoded::decode(VOLUME, &bytes).unwrap();
            assert_eq!(read.meta, meta(kind, len as u64));
            assert_eq!((&bytes[read.key.clone()], &bytes[read.head.clone()]), (&b"key"[..], &b"head"[..]));
            assert_eq!(read.len_bytes(), bytes.len());
            for (index, block) in body.chunks(BODY_BLOCK_BYTES as usize).enumerate() {
                assert!(read.verifies(&bytes, index as u64, block));
                assert!(!read.verifies(&bytes, index as u64, &block[1..]));
            }
        }
    }

    #[test]
    fn checksums_do_not_depend_on_how_the_body_is_cut() {
        let whole = Bytes::from((0..200_000_u32).map(|n| n as u8).collect::<Vec<_>>());
        let parts = [whole.slice(..1), whole.slice(1..65_536), whole.slice(65_536..65_600), whole.slice(65_600..)];
        assert_eq!(body_checksums(&parts), body_checksums(&[whole]));
        assert_eq!(body_checksums(&[]), Vec::<u32>::new());
    }

    #[test]
    fn every_flipped_bit_before_the_body_is_noticed() {
        let mut bytes = encoded(Kind::Entry, &[Bytes::from_static(b"body")]);
        let before_body = bytes.len() - 4;
        for bit in 0..before_body * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Decoded::decode(VOLUME, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_cut_record_says_how_much_it_needs() {
        let bytes = encoded(Kind::Entry, &[Bytes::from_static(b"body")]);
        let Err(Refusal::Short(needed)) = Decoded::decode(VOLUME, &bytes[..70]) else { panic!("not short") };
        assert!(Decoded::decode(VOLUME, &bytes[..needed]).is_ok());
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Decoded::decode(VOLUME, &bytes);
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC);
                let _ = Decoded::decode(VOLUME, &bytes);
            }
        }
    }
}
