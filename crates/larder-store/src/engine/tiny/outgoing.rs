//! The segment that is being moved out of the front: its bytes, and the records that its packs list.
//!
//! Owns: the search for packs in a segment's bytes. What becomes of the records is decided elsewhere. Cost: the bytes of
//! one segment.

use super::TinyEngine;
use crate::{
    format::pack::{self, PackedRecord},
    hash::KeyHash,
    units::BLOCK_BYTES,
};
use bytes::Bytes;

/// A pack found in a segment.
pub(super) struct FoundPack {
    pub(super) header: pack::PackHeader,
    pub(super) listings: Vec<PackedRecord>,
}

/// Returns the packs in `bytes`, a segment that begins at `start_bytes`. They can be of any run.
pub(super) fn packs_in(engine: &TinyEngine, start_bytes: u64, bytes: &[u8]) -> Vec<FoundPack> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + BLOCK_BYTES as usize <= bytes.len() {
        let step = match pack::decode_mended(engine.volume.id, start_bytes + at as u64, &bytes[at..]) {
            Some((header, listings)) if at + header.len_bytes as usize <= bytes.len() && header.len_bytes > 0 => {
                let len = (header.len_bytes as usize).next_multiple_of(BLOCK_BYTES as usize);
                found.push(FoundPack { header, listings });
                len
            }
            _ => BLOCK_BYTES as usize,
        };
        at += step;
    }
    found
}

/// The segment that is being moved out.
pub(super) struct OutgoingSegment {
    start_bytes: u64,
    bytes: Bytes,
    /// All records that its packs list, whether the index has them or not.
    pub(super) records: Vec<OutgoingRecord>,
}

/// A record in the segment.
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

    /// Returns up to `len_max` bytes from `offset_bytes`.
    pub(super) fn bytes_from(&self, offset_bytes: u64, len_max: u64) -> Bytes {
        let at = (offset_bytes - self.start_bytes) as usize;
        self.bytes.slice(at..self.bytes.len().min(at + len_max as usize))
    }

    pub(super) fn holds(&self, offset_bytes: u64) -> bool {
        (self.start_bytes..self.start_bytes + self.bytes.len() as u64).contains(&offset_bytes)
    }
}
