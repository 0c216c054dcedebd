//! The content of a set or of a place in the front: records and stubs, decoded and encoded.
//!
//! Owns: the distinction between a record and a stub, and the conversion between a set's bytes and its entries. I/O and
//! decisions are elsewhere. Invariant: a piece is accepted only if it is complete and matches its listing; a set only
//! if it has the version that was written last.

use crate::{
    device::AlignedBuffer,
    format::{
        VolumeId,
        pack::{self, GRANULE_BYTES, PackHeader, PackedKind, PackedRecord, RecordStub, granulated},
        record::DecodedRecord,
    },
    hash::FullHash,
};
use bytes::Bytes;

/// A complete record or a stub, with its bytes.
#[derive(Clone)]
pub(super) struct RecordPiece {
    pub(super) bytes: Bytes,
    pub(super) what: ItemKind,
}

#[derive(Clone)]
pub(super) enum ItemKind {
    Record(Box<DecodedRecord>),
    Stub(RecordStub),
}

impl RecordPiece {
    /// Decodes the piece at the start of `bytes`.
    pub(super) fn of(volume: VolumeId, bytes: &Bytes) -> Option<Self> {
        if let Some(stub) = RecordStub::decode(volume, bytes) {
            let len = bytes.len().min(GRANULE_BYTES as usize);
            return Some(Self { bytes: bytes.slice(..len), what: ItemKind::Stub(stub) });
        }
        let decoded = DecodedRecord::decode(volume, bytes).ok().filter(|decoded| decoded.len_bytes() <= bytes.len())?;
        let len = granulated(decoded.len_bytes() as u64).min(bytes.len() as u64) as usize;
        Some(Self { bytes: bytes.slice(..len), what: ItemKind::Record(Box::new(decoded)) })
    }

    pub(super) fn hash(&self) -> FullHash {
        match &self.what {
            ItemKind::Record(decoded) => decoded.meta.hash,
            ItemKind::Stub(stub) => stub.hash,
        }
    }

    pub(super) fn sequence(&self) -> u32 {
        match &self.what {
            ItemKind::Record(decoded) => decoded.meta.sequence,
            ItemKind::Stub(stub) => stub.own_sequence,
        }
    }

    /// Returns the bytes of the whole entry, including a record that a stub refers to.
    pub(super) fn entry_bytes(&self) -> u64 {
        match &self.what {
            ItemKind::Record(decoded) => decoded.len_bytes() as u64,
            ItemKind::Stub(stub) => u64::from(stub.len_bytes),
        }
    }

    /// Returns whether this piece is the record of a removal.
    pub(super) fn is_tombstone(&self) -> bool {
        matches!(&self.what, ItemKind::Stub(stub) if stub.len_bytes == 0)
    }

    fn kind(&self) -> PackedKind {
        match &self.what {
            ItemKind::Record(_) => PackedKind::Entry,
            ItemKind::Stub(_) => PackedKind::Stub,
        }
    }
}

/// An entry in a set.
pub(super) struct SetItem {
    pub(super) piece: RecordPiece,
    pub(super) expires_at: u32,
    pub(super) rank: u8,
}

/// Returns the bytes that an item takes in a set, including its listing.
pub(super) fn item_bytes(piece_len: usize) -> u64 {
    granulated(piece_len as u64) + LISTING_ROOM
}

/// Returns the bytes available for the items of a set.
pub(super) fn room_bytes(set_bytes: u64) -> u64 {
    set_bytes - GRANULE_BYTES
}

const LISTING_ROOM: u64 = (pack::directory_bytes(1) - pack::directory_bytes(0)) as u64;

/// Decodes the directory of a set. Returns `None` if the bytes are not a valid directory of that set.
pub(super) fn directory(volume: VolumeId, offset_bytes: u64, bytes: &[u8]) -> Option<(u8, Vec<PackedRecord>)> {
    let (header, listings) = pack::decode(volume, offset_bytes, bytes).ok()?;
    let fits = header.len_bytes as usize == bytes.len();
    fits.then_some((header.sequence as u8, listings))
}

/// Decodes the piece that `listing` describes, if it is there and complete.
pub(super) fn listed(volume: VolumeId, listing: &PackedRecord, bytes: &Bytes) -> Option<RecordPiece> {
    let (at, len) = (listing.at as usize, listing.len as usize);
    let piece = RecordPiece::of(volume, &bytes.slice(at..at + len))?;
    (piece.sequence() == listing.sequence && piece.hash().key_hash() == listing.key_hash).then_some(piece)
}

/// Encodes a set of `set_bytes` that holds `items`.
pub(super) fn assemble(
    volume: VolumeId,
    offset_bytes: u64,
    set_bytes: u64,
    version: u8,
    items: &[SetItem],
) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::with_len(set_bytes as usize);
    let bytes = buffer.as_mut_slice();
    bytes.fill(0);
    let mut at = granulated(pack::directory_bytes(items.len()) as u64) as usize;
    let mut listings = Vec::with_capacity(items.len());
    for SetItem { piece, expires_at, rank } in items {
        let len = granulated(piece.bytes.len() as u64) as usize;
        bytes[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
        listings.push(PackedRecord {
            key_hash: piece.hash().key_hash(),
            at: at as u32,
            len: len as u32,
            expires_at: *expires_at,
            sequence: piece.sequence(),
            kind: piece.kind(),
            rank: *rank,
        });
        at += len;
    }
    let header =
        PackHeader { offset_bytes, sequence: u32::from(version), len_bytes: set_bytes as u32, oldest_sequence: 0 };
    pack::encode(volume, header, &listings, bytes);
    buffer
}
