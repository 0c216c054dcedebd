//! The content of a set or of a place in the front: records and stubs, decoded and encoded.
//!
//! Owns: the distinction between a record and a stub, and the conversion between a set's bytes and its entries. Sets
//! are written in the compact form ([`compact`]), and read in that of packs too, as earlier versions wrote them. I/O
//! and decisions are elsewhere. Invariant: a piece is accepted only if it is complete and matches its listing; a set
//! only if it has the version that was written last. No damaged body goes into a set. Cost: an entry of a compact set
//! becomes a record again when it is read: a copy and a checksum.

use crate::{
    device::AlignedBuffer,
    format::{
        VolumeId,
        compact::{self, CompactContent, CompactEntry, CompactFields, CompactHeader, CompactListing},
        pack::{self, GRANULE_BYTES, PackedRecord, RecordStub, granulated},
        record::{DecodedRecord, RecordKind, RecordMeta, RecordParts, body_checksums},
    },
    hash::{FullHash, KeyHash},
    units::Site,
    volume::Volume,
};
use bytes::Bytes;

/// A whole record or a stub, with its bytes.
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
    /// Decodes the record or stub at the start of `bytes`. Returns `None` if there is neither a record nor a stub.
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

    /// Returns the length of the entry in bytes. For a stub, returns the length of the record to which it refers.
    pub(super) fn entry_bytes(&self) -> u64 {
        match &self.what {
            ItemKind::Record(decoded) => decoded.len_bytes() as u64,
            ItemKind::Stub(stub) => u64::from(stub.len_bytes),
        }
    }

    /// Returns whether this is a tombstone, the record of a removal.
    pub(super) fn is_tombstone(&self) -> bool {
        matches!(&self.what, ItemKind::Stub(stub) if stub.len_bytes == 0)
    }

    /// Returns whether the body matches its checksums. Must be checked before the record goes into a compact set: the
    /// set has new checksums, with which a damaged body would look valid.
    pub(super) fn is_sound(&self) -> bool {
        let ItemKind::Record(decoded) = &self.what else { return true };
        decoded.verifies_here(&self.bytes)
    }

    /// Returns the form in which this record or stub is written to a compact set, with the given expiry time and rank.
    fn compact(&self, expires_at: u32, rank: u8) -> CompactEntry<'_> {
        match &self.what {
            ItemKind::Record(decoded) => {
                let meta = &decoded.meta;
                assert!(matches!(meta.kind, RecordKind::Entry), "sets hold whole entries and stubs");
                let RecordMeta { epoch, site: Site(site), group, .. } = *meta;
                let [key, head] = [&decoded.key, &decoded.head].map(|range| &self.bytes[range.clone()]);
                let body = &self.bytes[decoded.body_start..decoded.len_bytes()];
                CompactEntry {
                    fields: CompactFields { rank, epoch, site, group, expires_at },
                    content: CompactContent::Record { key, head, body },
                }
            }
            ItemKind::Stub(_) => CompactEntry {
                fields: CompactFields { rank, expires_at, ..CompactFields::default() },
                content: CompactContent::Stub(&self.bytes[..pack::STUB_BYTES]),
            },
        }
    }
}

/// An entry in a set.
pub(super) struct SetItem {
    pub(super) piece: RecordPiece,
    pub(super) expires_at: u32,
    pub(super) rank: u8,
}

impl SetItem {
    /// Returns the bytes that the entry takes in a set, with its listing.
    pub(super) fn len_bytes(&self) -> u64 {
        self.piece.compact(self.expires_at, self.rank).len_bytes()
    }
}

/// Returns how many bytes the entries can take in a set of `set_bytes`.
pub(super) fn room_bytes(set_bytes: u64) -> u64 {
    set_bytes - compact::HEADER_BYTES as u64
}

/// The directory of a set: its version and its entries.
pub(super) struct SetDirectory {
    pub(super) version: u8,
    pub(super) listings: Vec<SetListing>,
}

/// An entry as the directory of a set lists it.
pub(super) enum SetListing {
    Compact(CompactListing),
    /// A pack, the form that earlier versions of the program wrote.
    Packed(PackedRecord),
}

/// Decodes the directory of the set in `bytes`. Returns `None` if the directory is not valid, or was written for
/// another offset.
pub(super) fn directory(volume: VolumeId, offset_bytes: u64, bytes: &[u8]) -> Option<SetDirectory> {
    if bytes.starts_with(&compact::MAGIC) {
        let (header, listings) = compact::decode(volume, offset_bytes, bytes)?;
        let fits = header.len_bytes as usize == bytes.len();
        let listings = listings.into_iter().map(SetListing::Compact).collect();
        return fits.then_some(SetDirectory { version: header.version as u8, listings });
    }
    let (header, listings) = pack::decode(volume, offset_bytes, bytes).ok()?;
    let fits = header.len_bytes as usize == bytes.len();
    let listings = listings.into_iter().map(SetListing::Packed).collect();
    fits.then_some(SetDirectory { version: header.sequence as u8, listings })
}

impl SetListing {
    /// Returns the hash of the entry's key. In a compact set, the key is not verified before [`Self::piece`].
    pub(super) fn key_hash(&self, volume: &Volume, set: &[u8]) -> KeyHash {
        match self {
            Self::Packed(listing) => listing.key_hash,
            Self::Compact(listing) => match (listing.key(set), listing.stub(set)) {
                (Some(key), _) => volume.hash(key).0,
                (None, stub) => {
                    let stub = stub.and_then(|stub| RecordStub::decode(volume.id, stub));
                    stub.map_or(KeyHash(0), |stub| stub.hash.key_hash())
                }
            },
        }
    }

    /// Returns whether this can be the entry of `key`.
    pub(super) fn may_be(&self, volume: VolumeId, set: &[u8], key: &[u8], hash: FullHash) -> bool {
        match self {
            Self::Packed(listing) => listing.key_hash == hash.key_hash(),
            Self::Compact(listing) => match listing.stub(set) {
                Some(stub) => RecordStub::decode(volume, stub).is_none_or(|stub| stub.hash == hash),
                None => listing.key(set) == Some(key),
            },
        }
    }

    pub(super) fn expires_at(&self) -> u32 {
        match self {
            Self::Packed(listing) => listing.expires_at,
            Self::Compact(listing) => listing.fields.expires_at,
        }
    }

    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Packed(listing) => listing.rank,
            Self::Compact(listing) => listing.fields.rank,
        }
    }

    /// Decodes the listed record or stub. Returns `None` if the record or stub is damaged.
    pub(super) fn piece(&self, volume: &Volume, set: &Bytes) -> Option<RecordPiece> {
        match self {
            Self::Packed(listing) => listed(volume.id, listing, set),
            Self::Compact(listing) => match listing.content(volume.id, set)? {
                CompactContent::Stub(stub) => RecordPiece::of(volume.id, &set.slice_ref(stub)),
                CompactContent::Record { key, head, body } => {
                    let hash = volume.hash(key).1;
                    record_of(volume.id, hash, listing.fields, (key, head, &set.slice_ref(body)))
                }
            },
        }
    }
}

/// Converts an entry of a compact set to a record.
fn record_of(
    volume: VolumeId,
    hash: FullHash,
    fields: CompactFields,
    (key, head, body): (&[u8], &[u8], &Bytes),
) -> Option<RecordPiece> {
    let CompactFields { epoch, site, group, expires_at, .. } = fields;
    let kind = RecordKind::Entry;
    let body_bytes = body.len() as u64;
    assert!(body_bytes < u64::from(u16::MAX) + 1, "an entry of a set is shorter than a set");
    let site = Site(site);
    let meta = RecordMeta { kind, hash, sequence: 0, place: 0, epoch, site, group, expires_at, body_bytes };
    let body = std::slice::from_ref(body);
    let record = RecordParts { meta, key, head, parts: &[], checksums: &body_checksums(body), body };
    let mut bytes = vec![0; record.len_bytes() as usize];
    record.encode(volume, &mut bytes);
    RecordPiece::of(volume, &Bytes::from(bytes))
}

/// Decodes the record or stub that `listing` describes. `bytes` are those of its pack. Returns `None` if the record or
/// stub is damaged.
fn listed(volume: VolumeId, listing: &PackedRecord, bytes: &Bytes) -> Option<RecordPiece> {
    let at = listing.at as usize;
    let len = listing.len as usize;
    let piece = RecordPiece::of(volume, &bytes.slice(at..at + len)).filter(RecordPiece::is_sound)?;
    (piece.sequence() == listing.sequence && piece.hash().key_hash() == listing.key_hash).then_some(piece)
}

/// Encodes a set of `set_bytes` with the entries in `items`.
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
    let entries: Vec<_> = items.iter().map(|item| item.piece.compact(item.expires_at, item.rank)).collect();
    let header = CompactHeader { offset_bytes, version: u32::from(version), len_bytes: set_bytes as u32 };
    let used_bytes: u64 = entries.iter().map(CompactEntry::len_bytes).sum();
    assert!(used_bytes <= room_bytes(set_bytes), "what a set holds fits");
    compact::encode(volume, header, &entries, bytes);
    buffer
}
