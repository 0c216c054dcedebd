//! Bodies with parts in records of their own: the locations of the parts, and their checksums.
//!
//! Invariant: every part, and the remainder, begins with a new block, so that each is verified independently.

use super::{BODY_BLOCK_BYTES, BodyElsewhere, DecodedRecord, FIXED_BYTES, PART_BYTES, RecordKind};
use crate::{
    format::{bytes::FieldReader, joined_checksum, plain_checksum},
    units::PACKED_STEP_BYTES,
};
use std::ops::Range;

/// A part of a body that is stored in a record of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyPart {
    pub(crate) place: BodyElsewhere,
    pub(crate) len_bytes: u32,
}

/// A piece of a body, and the place at which it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodyStretch {
    /// The range of the body that this piece holds.
    pub(crate) range: Range<u64>,
    pub(crate) place: BodyElsewhere,
    /// Index of the checksum for the first block of this piece, among the checksums of the entry's record.
    first_checksum: u64,
    /// Whether the piece is in the entry's own record.
    pub(crate) is_here: bool,
}

/// Returns how many bytes of a body fit in a part whose record may take `room_bytes`.
pub(crate) fn part_body_bytes(room_bytes: u64) -> u64 {
    let checksums_bytes = room_bytes.div_ceil(BODY_BLOCK_BYTES) * 4;
    room_bytes.saturating_sub(FIXED_BYTES as u64 + checksums_bytes) / PACKED_STEP_BYTES * PACKED_STEP_BYTES
}

/// Returns the number of checksums for a body of `body_bytes`, of which `part_count` parts have records of their own.
/// Each part may end with an incomplete block.
pub(crate) fn checksum_count(body_bytes: u64, part_count: usize) -> usize {
    body_bytes.div_ceil(BODY_BLOCK_BYTES) as usize + part_count
}

impl BodyStretch {
    /// Converts the piece to a part, for the record that is written when the entry's head is replaced. Returns `None`
    /// if the piece is empty.
    pub(crate) fn into_part(self) -> Option<BodyPart> {
        let len_bytes = (self.range.end - self.range.start) as u32;
        (len_bytes > 0).then_some(BodyPart { place: self.place, len_bytes })
    }

    /// Returns the index of the checksum for the block with number `block` of this piece.
    pub(crate) fn checksum_of(&self, block: u64) -> u64 {
        self.first_checksum + block
    }
}

impl DecodedRecord {
    /// Returns the parts of the body that have records of their own. `record` is the bytes of this record.
    pub(crate) fn parts(&self, record: &[u8]) -> Vec<BodyPart> {
        let part = |bytes: &[u8]| {
            let mut fields = FieldReader::new(bytes);
            let place = BodyElsewhere { offset_bytes: fields.u64()?, sequence: fields.u32()? };
            Some(BodyPart { place, len_bytes: fields.u32()? })
        };
        record[self.parts.clone()].chunks_exact(PART_BYTES).filter_map(part).collect()
    }

    /// Returns where the pieces of the body are, in order. This record begins at `start_bytes` of the volume, and
    /// `record` is its bytes.
    pub(crate) fn stretches(&self, record: &[u8], start_bytes: u64) -> Vec<BodyStretch> {
        let mut at = 0;
        let mut first_checksum = 0;
        let mut stretch = |place, len_bytes: u64, is_here| {
            let stretch = BodyStretch { range: at..at + len_bytes, place, first_checksum, is_here };
            at += len_bytes;
            first_checksum += len_bytes.div_ceil(BODY_BLOCK_BYTES);
            stretch
        };
        let parts = self.parts(record).into_iter();
        let mut all: Vec<_> = parts.map(|part| stretch(part.place, part.len_bytes.into(), false)).collect();
        let is_here = !matches!(self.meta.kind, RecordKind::HeadUpdate(_));
        let rest_bytes = if is_here { self.here_bytes } else { self.meta.body_bytes };
        all.push(stretch(self.body_place(start_bytes), rest_bytes, is_here));
        all
    }

    /// Returns the checksum of the whole body, whatever pieces it is stored in. Combines the checksums of the blocks in
    /// `record`, the bytes of this record, and reads no body.
    pub(crate) fn body_checksum(&self, record: &[u8]) -> u32 {
        let checksums = self.checksums(record);
        let mut whole = plain_checksum(&[]);
        for stretch in self.stretches(record, 0) {
            let len_bytes = stretch.range.end - stretch.range.start;
            for block in 0..len_bytes.div_ceil(BODY_BLOCK_BYTES) {
                let block_bytes = (len_bytes - block * BODY_BLOCK_BYTES).min(BODY_BLOCK_BYTES);
                let checksum = checksums[stretch.checksum_of(block) as usize];
                whole = joined_checksum(whole, checksum, block_bytes);
            }
        }
        whole
    }

    /// Returns whether the part of the body that is in this record matches its checksums. `record` is the bytes of the
    /// whole record.
    pub(crate) fn verifies_here(&self, record: &[u8]) -> bool {
        let Some(body) = record.get(self.body_start..self.len_bytes()) else { return false };
        let apart = self.parts(record);
        let first: u64 = apart.iter().map(|part| u64::from(part.len_bytes).div_ceil(BODY_BLOCK_BYTES)).sum();
        self.verifies_from(first, record, body)
    }

    /// Returns whether `body` matches the checksums in `record`. `body` begins with block number `first`.
    pub(crate) fn verifies_from(&self, first: u64, record: &[u8], body: &[u8]) -> bool {
        let mut blocks = (first..).zip(body.chunks(BODY_BLOCK_BYTES as usize));
        blocks.all(|(index, block)| self.verifies(record, index, block))
    }
}
