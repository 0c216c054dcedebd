//! A record: an entry, a removal, or a part of a body, as stored in a unit.
//!
//! Layout: fixed header, key, the places of the body or its parts if they are in other records, checksums of the body's
//! blocks, head, and the body or its remainder. One checksum covers everything before the body. Each 64 KiB of body has
//! its own, so that a range is verified without the rest. Invariant: nothing of a record is used before its lengths
//! were checked and its checksum was verified.

mod parts;

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    mend::mended,
    plain_checksum,
};
use crate::{
    Hints,
    hash::{FullHash, KeyHash},
    units::{Site, sectors},
};
use bytes::Bytes;
pub(crate) use parts::{BodyPart, BodyStretch, checksum_count, part_body_bytes};
use std::ops::Range;

const MAGIC: [u8; 4] = *b"LDRr";
const FIXED_BYTES: usize = 64;
/// Maximum bytes that a record has in addition to key, head and body: the fixed part, and the checksums of the body's
/// blocks.
pub(crate) const AROUND_BYTES: u64 = 128;
/// Position of the sequence in a record. The lengths and the kind follow it.
const SEQUENCE_AT: usize = 24;
const HEAD_LEN_AT: usize = 48;
/// Position of the field that has the record's place in its segment. It is the last field of the fixed part.
const PLACE_AT: usize = 60;
const ELSEWHERE_BYTES: usize = 16;
/// Bytes in a record that say where one part of the body is.
const PART_BYTES: usize = 16;
/// Maximum number of parts of a body that have records of their own.
pub(crate) const PARTS_MAX: usize = 64;
/// Bytes of the body that each checksum covers.
pub(crate) const BODY_BLOCK_BYTES: u64 = 64 << 10;
/// Maximum length of a key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 16 << 10;
/// Maximum length of a head, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum length of an entry's body, in bytes.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a record, in sectors.
pub(crate) const RECORD_SECTORS_MAX: u64 = sectors_max();
/// Maximum number of sectors that a record touches: one more than its maximum length in sectors, because it can begin
/// within a sector.
pub(crate) const SPAN_SECTORS_MAX: u64 = RECORD_SECTORS_MAX + 1;

const fn sectors_max() -> u64 {
    let checksums = BODY_BYTES_MAX.div_ceil(BODY_BLOCK_BYTES) * 4;
    let bytes = FIXED_BYTES + ELSEWHERE_BYTES + KEY_BYTES_MAX + HEAD_BYTES_MAX;
    (bytes as u64 + checksums + BODY_BYTES_MAX).div_ceil(crate::units::SECTOR_BYTES)
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// An entry with its body.
    Entry,
    /// The removal of a key. Older records of the key do not count.
    Tombstone,
    /// An entry with a replaced head. Its body is in an older record.
    HeadUpdate(BodyElsewhere),
    /// An entry whose body is divided. This number of parts have records of their own, and the remainder is in this
    /// record.
    InParts(u8),
    /// A part of an entry's body, without key and head.
    Part,
}

impl RecordKind {
    /// Returns whether the whole body is in the record itself.
    fn has_whole_body(self) -> bool {
        matches!(self, Self::Entry | Self::Part)
    }
}

/// The place of a body that is not in the record of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyElsewhere {
    /// Offset of the body on the volume, in bytes.
    pub(crate) offset_bytes: u64,
    /// Sequence that the body's segment had when the body was written. If the segment has another sequence now, the
    /// body was overwritten.
    pub(crate) sequence: u32,
}

/// The fields of a record other than its key, head and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordMeta {
    pub(crate) kind: RecordKind,
    pub(crate) hash: FullHash,
    pub(crate) sequence: u32,
    /// Position of the record in its segment, in units of 512 bytes, or of 8 bytes on packed volumes. It shows whether
    /// the record was written to a wrong place. 0 in policies without segments, where the sequence of each write is
    /// unique.
    pub(crate) place: u32,
    pub(crate) epoch: u32,
    pub(crate) site: Site,
    pub(crate) group: u32,
    pub(crate) expires_at: u32,
    pub(crate) body_bytes: u64,
}

impl RecordMeta {
    /// Creates the fields of a new record. The engine sets the sequence and the place when it appends the record.
    pub(crate) fn new(kind: RecordKind, hash: FullHash, hints: Hints, epoch: u32, body_bytes: u64) -> Self {
        let Hints { site, group, expires_at } = hints;
        Self { kind, hash, sequence: 0, place: 0, epoch, site: Site(site), group: group as u32, expires_at, body_bytes }
    }
}

/// A record to be written.
pub(crate) struct RecordParts<'a> {
    pub(crate) meta: RecordMeta,
    pub(crate) key: &'a [u8],
    pub(crate) head: &'a [u8],
    /// Places of the parts of the body that have records of their own.
    pub(crate) parts: &'a [BodyPart],
    /// The checksums of the body: one for each block of [`BODY_BLOCK_BYTES`] or less. In a body in parts, each part
    /// begins a new block, and the list is padded to [`checksum_count`].
    pub(crate) checksums: &'a [u32],
    /// The part of the body that is in this record; empty if the whole body is elsewhere.
    pub(crate) body: &'a [Bytes],
}

impl RecordParts<'_> {
    /// Returns the length of the caller's data in bytes: key, head and the whole body.
    pub(crate) fn content_bytes(&self) -> u64 {
        (self.key.len() + self.head.len()) as u64 + self.meta.body_bytes
    }

    /// Returns the length of the encoded record in bytes, before rounding to sectors.
    pub(crate) fn len_bytes(&self) -> u64 {
        let apart: u64 = self.parts.iter().map(|part| u64::from(part.len_bytes)).sum();
        let body = match self.meta.kind {
            RecordKind::Entry | RecordKind::Part => self.meta.body_bytes,
            RecordKind::InParts(_) => self.meta.body_bytes - apart,
            RecordKind::Tombstone | RecordKind::HeadUpdate(_) => 0,
        };
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
        assert_eq!(self.checksums.len(), checksum_count(meta.body_bytes, self.parts.len()));
        assert_eq!(self.parts.len(), usize::from(part_count(meta.kind)));
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
            .put(&[kind_code(meta.kind), part_count(meta.kind)])
            .put(&meta.place.to_le_bytes())
            .put(self.key);
        if let RecordKind::HeadUpdate(elsewhere) = meta.kind {
            fields.put(&elsewhere.offset_bytes.to_le_bytes()).put(&elsewhere.sequence.to_le_bytes()).put(&[0; 4]);
        }
        for BodyPart { place, len_bytes } in self.parts {
            fields
                .put(&place.offset_bytes.to_le_bytes())
                .put(&place.sequence.to_le_bytes())
                .put(&len_bytes.to_le_bytes());
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

    /// Returns the position of the body in the encoded record.
    pub(crate) fn before_body_bytes(&self) -> usize {
        let elsewhere = match self.meta.kind {
            RecordKind::HeadUpdate(_) => ELSEWHERE_BYTES,
            RecordKind::InParts(count) => usize::from(count) * PART_BYTES,
            RecordKind::Entry | RecordKind::Tombstone | RecordKind::Part => 0,
        };
        FIXED_BYTES + self.key.len() + elsewhere + self.checksums.len() * 4 + self.head.len()
    }
}

/// The fixed fields of what looks like a record. Nothing is verified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glimpse {
    pub(crate) key_hash: KeyHash,
    pub(crate) sequence: u32,
    pub(crate) place: u32,
}

impl Glimpse {
    /// Returns the fields of what looks like a record at the start of `bytes`, without verifying anything. Returns
    /// `None` if it does not look like one.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(&MAGIC) {
            return None;
        }
        let (lengths, _) = RecordLengths::decode(bytes.get(..FIXED_BYTES)?)?;
        let (hash, sequence, ..) = lengths.meta;
        Some(Self { key_hash: hash.key_hash(), sequence, place: lengths.place })
    }
}

/// Returns the sequence of what looks like a record at the start of `bytes`, without verifying anything.
pub(crate) fn sequence_in(bytes: &[u8]) -> Option<u32> {
    let sequence = bytes.get(SEQUENCE_AT..SEQUENCE_AT + 4)?.first_chunk()?;
    bytes.starts_with(&MAGIC).then(|| u32::from_le_bytes(*sequence))
}

/// Changes the sequence and the place of the encoded record at the start of `bytes`, and its checksum.
pub(crate) fn set_place(volume: VolumeId, bytes: &mut [u8], sequence: u32, place: u32) {
    let (lengths, _) = RecordLengths::decode(&bytes[..FIXED_BYTES]).expect("it was encoded here");
    let front = &mut bytes[..lengths.body_start()];
    front[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&sequence.to_le_bytes());
    front[PLACE_AT..FIXED_BYTES].copy_from_slice(&place.to_le_bytes());
    let checksum = volume.checksum(&[&front[8..]]);
    front[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// A record that was read. Everything before its body is verified. Ranges are relative to the record's start.
#[derive(Clone, Debug)]
pub(crate) struct DecodedRecord {
    pub(crate) meta: RecordMeta,
    pub(crate) key: Range<usize>,
    pub(crate) head: Range<usize>,
    parts: Range<usize>,
    checksums: Range<usize>,
    /// Number of body bytes in this record.
    here_bytes: u64,
    /// Position at which the body begins, or would begin if this record had one.
    pub(crate) body_start: usize,
}

/// Why bytes cannot be decoded as a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordRefusal {
    /// Bytes are missing. The number is how many are needed from the start of the record.
    Short(usize),
    /// The bytes are damaged, or are not a record of this volume.
    Damaged,
}

impl DecodedRecord {
    /// Decodes the record at the start of `bytes`: everything before its body. The body itself may be missing in
    /// `bytes`.
    pub(crate) fn decode(volume: VolumeId, bytes: &[u8]) -> Result<Self, RecordRefusal> {
        let fixed = bytes.get(..FIXED_BYTES).ok_or(RecordRefusal::Short(FIXED_BYTES))?;
        let (lengths, checksum) = RecordLengths::decode(fixed).ok_or(RecordRefusal::Damaged)?;
        let before_body = lengths.body_start();
        let front = bytes.get(..before_body).ok_or(RecordRefusal::Short(before_body))?;
        if checksum != volume.checksum(&[&front[8..]]) {
            return Err(RecordRefusal::Damaged);
        }
        lengths.into_decoded(front).ok_or(RecordRefusal::Damaged)
    }

    /// Decodes a record like [`Self::decode`], after repairing up to one flipped bit. Only for a record whose
    /// `sequence` and `place` are known. The result is valid, but `bytes` are still damaged.
    pub(crate) fn decode_mended(volume: VolumeId, bytes: &[u8], sequence: u32, place: u32) -> Option<Self> {
        let fixed = bytes.get(..FIXED_BYTES)?;
        let wrong = |at: usize, right: u32| (le_u32(&fixed[at..at + 4]) ^ right).count_ones();
        // Without this check, every sector of a body would be searched for a flipped bit.
        if wrong(0, u32::from_le_bytes(MAGIC)) + wrong(SEQUENCE_AT, sequence) + wrong(PLACE_AT, place) > 1 {
            return None;
        }
        let extent = |front: &[u8]| {
            let mut fixed: [u8; FIXED_BYTES] = front.get(..FIXED_BYTES)?.try_into().ok()?;
            fixed[..MAGIC.len()].copy_from_slice(&MAGIC);
            RecordLengths::decode(&fixed).map(|(lengths, _)| lengths.body_start())
        };
        let front = mended(volume, MAGIC, bytes, HEAD_LEN_AT..FIXED_BYTES, extent)?;
        Self::decode(volume, &front).ok()
    }

    /// Returns the length of the record in bytes, with the part of the body that it contains.
    pub(crate) fn len_bytes(&self) -> usize {
        self.body_start + self.here_bytes as usize
    }

    pub(crate) fn len_sectors(&self) -> u64 {
        sectors(self.len_bytes() as u64)
    }

    /// Returns where the body is. This record begins at `start_bytes` of the volume.
    pub(crate) fn body_place(&self, start_bytes: u64) -> BodyElsewhere {
        match self.meta.kind {
            RecordKind::HeadUpdate(elsewhere) => elsewhere,
            RecordKind::Entry | RecordKind::Tombstone | RecordKind::InParts(_) | RecordKind::Part => {
                BodyElsewhere { offset_bytes: start_bytes + self.body_start as u64, sequence: self.meta.sequence }
            }
        }
    }

    /// Returns whether the whole body is in this record.
    pub(crate) fn body_is_here(&self) -> bool {
        self.meta.kind.has_whole_body()
    }

    /// Returns whether parts of the body are in records of their own.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.meta.kind, RecordKind::InParts(_))
    }

    /// Returns the checksums of the body's blocks. `record` is the bytes of this record.
    pub(crate) fn checksums(&self, record: &[u8]) -> Vec<u32> {
        record[self.checksums.clone()].chunks_exact(4).map(le_u32).collect()
    }

    /// Returns the checksums that the body needs if it is stored in one piece. In `record`, a body in parts has other
    /// checksums, because each part begins a new block. `body` is the whole body.
    pub(crate) fn checksums_in_one_piece(&self, record: &[u8], body: &[Bytes]) -> Vec<u32> {
        if self.is_in_parts() { body_checksums(body) } else { self.checksums(record) }
    }

    /// Returns whether `block`, the body's block with number `index`, matches its checksum in `record`.
    pub(crate) fn verifies(&self, record: &[u8], index: u64, block: &[u8]) -> bool {
        let at = self.checksums.start + index as usize * 4;
        at < self.checksums.end && le_u32(&record[at..at + 4]) == plain_checksum(block)
    }
}

/// The lengths in the fixed part of a record. They are plausible, but the checksum is not verified yet.
struct RecordLengths {
    kind: u8,
    parts: u8,
    key: usize,
    head: usize,
    body: u64,
    place: u32,
    meta: (FullHash, u32, u32, u64, u32, u32),
}

impl RecordLengths {
    fn decode(fixed: &[u8]) -> Option<(Self, u32)> {
        let mut fields = FieldReader::new(fixed);
        if fields.array()? != MAGIC {
            return None;
        }
        let checksum = fields.u32()?;
        let meta =
            (FullHash(fields.u128()?), fields.u32()?, fields.u32()?, fields.u64()?, fields.u32()?, fields.u32()?);
        let head = fields.u32()? as usize;
        let body = u64::from(fields.u32()?);
        let key = usize::from(fields.u16()?);
        let kind = fields.u8()?;
        let parts = fields.u8()?;
        let parts = if kind == KIND_IN_PARTS { parts } else { 0 };
        let place = fields.u32()?;
        let bounded = key <= KEY_BYTES_MAX && head <= HEAD_BYTES_MAX && body <= BODY_BYTES_MAX;
        let bounded = bounded && usize::from(parts) <= PARTS_MAX;
        bounded.then_some((Self { kind, parts, key, head, body, place, meta }, checksum))
    }

    fn body_start(&self) -> usize {
        FIXED_BYTES + self.key + self.elsewhere_bytes() + self.checksums_bytes() + self.head
    }

    fn elsewhere_bytes(&self) -> usize {
        if self.kind == KIND_HEAD_UPDATE { ELSEWHERE_BYTES } else { usize::from(self.parts) * PART_BYTES }
    }

    fn checksums_bytes(&self) -> usize {
        checksum_count(self.body, self.parts.into()) * 4
    }

    fn into_decoded(self, front: &[u8]) -> Option<DecodedRecord> {
        let key = FIXED_BYTES..FIXED_BYTES + self.key;
        let checksums_start = key.end + self.elsewhere_bytes();
        let checksums = checksums_start..checksums_start + self.checksums_bytes();
        let head = checksums.end..checksums.end + self.head;
        let kind = match self.kind {
            KIND_ENTRY => RecordKind::Entry,
            KIND_TOMBSTONE => RecordKind::Tombstone,
            KIND_HEAD_UPDATE => {
                let mut fields = FieldReader::new(&front[key.end..]);
                RecordKind::HeadUpdate(BodyElsewhere { offset_bytes: fields.u64()?, sequence: fields.u32()? })
            }
            KIND_IN_PARTS if self.parts > 0 => RecordKind::InParts(self.parts),
            KIND_PART => RecordKind::Part,
            _ => return None,
        };
        let parts = if self.parts > 0 { key.end..checksums_start } else { key.end..key.end };
        let (hash, sequence, epoch, site, group, expires_at) = self.meta;
        let Self { place, body: body_bytes, .. } = self;
        let meta = RecordMeta { kind, hash, sequence, place, epoch, site: Site(site), group, expires_at, body_bytes };
        let mut decoded = DecodedRecord { meta, key, body_start: head.end, head, parts, checksums, here_bytes: 0 };
        decoded.here_bytes = match kind {
            RecordKind::Entry | RecordKind::Part => body_bytes,
            RecordKind::Tombstone | RecordKind::HeadUpdate(_) => 0,
            RecordKind::InParts(_) => {
                let apart = decoded.parts(front).iter().map(|part| u64::from(part.len_bytes)).sum();
                body_bytes.checked_sub(apart)?
            }
        };
        Some(decoded)
    }
}

/// Returns the checksums of a body that is given in pieces: `parts`, joined, are the body.
pub(crate) fn body_checksums(parts: &[Bytes]) -> Vec<u32> {
    let total: usize = parts.iter().map(Bytes::len).sum();
    if let [only] = parts {
        return only.chunks(BODY_BLOCK_BYTES as usize).map(plain_checksum).collect();
    }
    let mut checksums = Vec::with_capacity(total.div_ceil(BODY_BLOCK_BYTES as usize));
    let new = || crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let mut digest = new();
    let mut room = BODY_BLOCK_BYTES as usize;
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
const KIND_IN_PARTS: u8 = 4;
const KIND_PART: u8 = 5;

fn kind_code(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Entry => KIND_ENTRY,
        RecordKind::Tombstone => KIND_TOMBSTONE,
        RecordKind::HeadUpdate(_) => KIND_HEAD_UPDATE,
        RecordKind::InParts(_) => KIND_IN_PARTS,
        RecordKind::Part => KIND_PART,
    }
}

fn part_count(kind: RecordKind) -> u8 {
    if let RecordKind::InParts(count) = kind { count } else { 0 }
}

fn le_u32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: VolumeId = VolumeId([9; 16]);

    fn meta(kind: RecordKind, body_bytes: u64) -> RecordMeta {
        let hash = FullHash(77);
        let place = 9;
        RecordMeta { kind, hash, sequence: 3, place, epoch: 1, site: Site(2), group: 5, expires_at: 6, body_bytes }
    }

    fn encoded(kind: RecordKind, body: &[Bytes]) -> Vec<u8> {
        let checksums = body_checksums(body);
        let body_bytes = body.iter().map(|part| part.len() as u64).sum();
        let here: &[Bytes] = if kind == RecordKind::Entry { body } else { &[] };
        let record = RecordParts {
            meta: meta(kind, body_bytes),
            key: b"key",
            head: b"head",
            parts: &[],
            checksums: &checksums,
            body: here,
        };
        let mut bytes = vec![0; record.len_bytes() as usize];
        record.encode(VOLUME, &mut bytes);
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let elsewhere = RecordKind::HeadUpdate(BodyElsewhere { offset_bytes: 123_456, sequence: 8 });
        for (kind, len) in
            [(RecordKind::Entry, 150_000), (RecordKind::Entry, 0), (elsewhere, 70_000), (RecordKind::Tombstone, 0)]
        {
            let body = Bytes::from(vec![7; len]);
            let bytes = encoded(kind, std::slice::from_ref(&body));
            let read = DecodedRecord::decode(VOLUME, &bytes).unwrap();
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
    fn body_in_parts_is_read_back_and_each_part_has_blocks_of_its_own() {
        let part = |n: u64, len_bytes| BodyPart {
            place: BodyElsewhere { offset_bytes: n << 20, sequence: n as u32 },
            len_bytes,
        };
        let parts = [part(1, 70_000), part(2, 10)];
        let rest = Bytes::from(vec![3; 5]);
        let mut checksums = vec![1, 2, 3];
        checksums.extend(body_checksums(std::slice::from_ref(&rest)));
        checksums.resize(checksum_count(70_015, 2), 0);
        let own = meta(RecordKind::InParts(2), 70_015);
        let record = RecordParts {
            meta: own.clone(),
            key: b"key",
            head: b"head",
            parts: &parts,
            checksums: &checksums,
            body: &[rest],
        };
        let mut bytes = vec![0; record.len_bytes() as usize];
        record.encode(VOLUME, &mut bytes);
        let read = DecodedRecord::decode(VOLUME, &bytes).unwrap();
        assert_eq!((&read.meta, read.len_bytes(), read.parts(&bytes)), (&own, bytes.len(), parts.to_vec()));
        let stretches = read.stretches(&bytes, 1 << 30);
        let ranges: Vec<_> = stretches.iter().map(|of| (of.range.clone(), of.checksum_of(0), of.is_here)).collect();
        assert_eq!(ranges, [(0..70_000, 0, false), (70_000..70_010, 2, false), (70_010..70_015, 3, true)]);
        assert!(read.verifies_here(&bytes));
        *bytes.last_mut().unwrap() ^= 1;
        assert!(!read.verifies_here(&bytes));
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
        let mut bytes = encoded(RecordKind::Entry, &[Bytes::from_static(b"body")]);
        let before_body = bytes.len() - 4;
        for bit in 0..before_body * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(DecodedRecord::decode(VOLUME, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_cut_record_says_how_much_it_needs() {
        let bytes = encoded(RecordKind::Entry, &[Bytes::from_static(b"body")]);
        let Err(RecordRefusal::Short(needed)) = DecodedRecord::decode(VOLUME, &bytes[..70]) else {
            panic!("not short")
        };
        assert!(DecodedRecord::decode(VOLUME, &bytes[..needed]).is_ok());
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = DecodedRecord::decode(VOLUME, &bytes);
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC);
                let _ = DecodedRecord::decode(VOLUME, &bytes);
            }
        }
    }
}
