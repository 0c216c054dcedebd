//! A pack: several records behind a common directory. A cluster of `ucfs`, a set of `tiny`, and the records written
//! together to a ring of `tiny` are packs.
//!
//! Owns: the directory (header and listings), and the stub, which refers to a record in another pack. The records have
//! checksums of their own. Invariants: the directory contains its own offset, so a misdirected write is detected. A
//! listing points to a place in the pack, behind the directory. Its sequence equals the record's, so old bytes in that
//! place are not accepted. Idea: a cluster that starts with its own directory (UCFS/CFS, see docs).

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
    mend::mended,
};
use crate::hash::{FullHash, KeyHash};
use std::ops::Range;

const MAGIC: [u8; 4] = *b"LDRp";
const STUB_MAGIC: [u8; 4] = *b"LDRs";
const HEADER_BYTES: usize = 32;
/// Range of a pack's header, in bytes, with the pack's offset on the volume. `COUNT` is the range with the number of
/// listings.
const PLACE: Range<usize> = 8..16;
const COUNT: Range<usize> = 24..28;
const LISTING_BYTES: usize = 24;
/// Records in a pack begin at multiples of this many bytes.
pub(crate) const GRANULE_BYTES: u64 = 64;
/// Maximum length of a pack, in bytes: positions are 16-bit numbers of granules (units of [`GRANULE_BYTES`]).
pub(crate) const PACK_BYTES_MAX: u64 = GRANULE_BYTES << 16;
/// Bytes of an encoded [`RecordStub`].
pub(crate) const STUB_BYTES: usize = 48;

/// The header of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackHeader {
    /// Offset on the volume for which the pack was written, to detect bytes that were written to a wrong place.
    pub(crate) offset_bytes: u64,
    /// Number of the write, unique among the packs of the same ring, the same clusters or the same set.
    pub(crate) sequence: u32,
    /// Length of the pack in bytes, including its directory.
    pub(crate) len_bytes: u32,
    /// For packs in a ring: the sequence of the oldest pack that was still needed when this one was written.
    pub(crate) oldest_sequence: u32,
}

/// The kind of a record that the directory of a pack lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackedKind {
    Entry,
    /// The removal of a key. Older records of the key do not count.
    Tombstone,
    /// A [`RecordStub`], which says where the record is.
    Stub,
}

/// The description of one record, or of a stub that refers to a long record, in the directory of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedRecord {
    /// The low half of the key's hash.
    pub(crate) key_hash: KeyHash,
    /// Position in the pack of the record's first byte, a multiple of [`GRANULE_BYTES`].
    pub(crate) at: u32,
    /// Length in bytes, a multiple of [`GRANULE_BYTES`].
    pub(crate) len: u32,
    /// Unix time in seconds after which the entry is useless; 0 means never. The record has the same value.
    pub(crate) expires_at: u32,
    /// Sequence of the record.
    pub(crate) sequence: u32,
    pub(crate) kind: PackedKind,
    /// Predicted time until the entry's next use, by which a set chooses what to evict.
    pub(crate) rank: u8,
}

/// Why bytes cannot be decoded as a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryRefusal {
    /// Bytes are missing. The number is how many are needed from the start of the pack.
    Short(usize),
    /// The bytes are damaged, or are not a pack of this volume and offset.
    Damaged,
}

/// Returns the length in bytes of a pack's directory with `count` listings, one for each record.
pub(crate) const fn directory_bytes(count: usize) -> usize {
    HEADER_BYTES + count * LISTING_BYTES
}

/// Returns how many listings, one for each record, fit in a pack's directory of `bytes`.
pub(crate) const fn listings_within(bytes: usize) -> usize {
    (bytes - HEADER_BYTES) / LISTING_BYTES
}

/// Rounds `bytes` up to a multiple of [`GRANULE_BYTES`].
pub(crate) const fn granulated(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE_BYTES)
}

/// Writes the directory of a pack with `listings` to the start of `target`.
pub(crate) fn encode(volume: VolumeId, header: PackHeader, listings: &[PackedRecord], target: &mut [u8]) {
    let end = directory_bytes(listings.len());
    let (directory, _) = target.split_at_mut(end);
    let mut fields = FieldsMut::new(directory);
    fields
        .put(&MAGIC)
        .put(&[0; 4])
        .put(&header.offset_bytes.to_le_bytes())
        .put(&header.sequence.to_le_bytes())
        .put(&header.len_bytes.to_le_bytes())
        .put(&(listings.len() as u32).to_le_bytes())
        .put(&header.oldest_sequence.to_le_bytes());
    for listing in listings {
        let at = u64::from(listing.at);
        let len = u64::from(listing.len);
        assert!(at % GRANULE_BYTES == 0 && len % GRANULE_BYTES == 0, "records stand at whole granules");
        assert!(at >= end as u64, "records stand behind the directory");
        assert!(at + len <= u64::from(header.len_bytes), "records stand within the pack");
        fields
            .put(&listing.key_hash.0.to_le_bytes())
            .put(&((at / GRANULE_BYTES) as u16).to_le_bytes())
            .put(&((len / GRANULE_BYTES) as u16).to_le_bytes())
            .put(&listing.expires_at.to_le_bytes())
            .put(&listing.sequence.to_le_bytes())
            .put(&[kind_code(listing.kind), listing.rank, 0, 0]);
    }
    let checksum = volume.checksum(&[&directory[8..]]);
    directory[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes the directory at the start of `bytes`, which were read at `offset_bytes` of the volume.
pub(crate) fn decode(
    volume: VolumeId,
    offset_bytes: u64,
    bytes: &[u8],
) -> Result<(PackHeader, Vec<PackedRecord>), DirectoryRefusal> {
    let (header, directory) = verify(volume, offset_bytes, bytes)?;
    let listings: Option<Vec<_>> = directory[HEADER_BYTES..].chunks_exact(LISTING_BYTES).map(decode_listing).collect();
    let fits = |listing: &PackedRecord| {
        listing.at as usize >= directory.len()
            && u64::from(listing.at) + u64::from(listing.len) <= u64::from(header.len_bytes)
    };
    match listings {
        Some(listings) if listings.iter().all(fits) => Ok((header, listings)),
        _ => Err(DirectoryRefusal::Damaged),
    }
}

/// Decodes a directory like [`decode`], after repairing up to one flipped bit.
pub(crate) fn decode_mended(
    volume: VolumeId,
    offset_bytes: u64,
    bytes: &[u8],
) -> Option<(PackHeader, Vec<PackedRecord>)> {
    decode(volume, offset_bytes, bytes).ok().or_else(|| {
        let extent = |front: &[u8]| {
            let count = u32::from_le_bytes(front.get(COUNT)?.try_into().ok()?) as usize;
            (count <= listings_within(PACK_BYTES_MAX as usize)).then(|| directory_bytes(count))
        };
        let front = bytes.get(..HEADER_BYTES)?;
        let wrong: u32 = front[PLACE].iter().zip(offset_bytes.to_le_bytes()).map(|(a, b)| (a ^ b).count_ones()).sum();
        // Without this check, every block of old bytes would be searched for a flipped bit.
        if wrong > 1 {
            return None;
        }
        let directory = mended(volume, MAGIC, bytes, COUNT, extent)?;
        decode(volume, offset_bytes, &directory).ok()
    })
}

/// Decodes the header of a pack like [`decode`], without the listings.
pub(crate) fn decode_header(volume: VolumeId, offset_bytes: u64, bytes: &[u8]) -> Result<PackHeader, DirectoryRefusal> {
    verify(volume, offset_bytes, bytes).map(|(header, _)| header)
}

/// Verifies the directory at the start of `bytes`. Returns its header and its used bytes.
fn verify(volume: VolumeId, offset_bytes: u64, bytes: &[u8]) -> Result<(PackHeader, &[u8]), DirectoryRefusal> {
    let fixed = bytes.get(..HEADER_BYTES).ok_or(DirectoryRefusal::Short(HEADER_BYTES))?;
    let (header, checksum, count) = decode_fixed(fixed).ok_or(DirectoryRefusal::Damaged)?;
    if header.offset_bytes != offset_bytes || u64::from(header.len_bytes) > PACK_BYTES_MAX {
        return Err(DirectoryRefusal::Damaged);
    }
    if count > listings_within((header.len_bytes as usize).max(HEADER_BYTES)) {
        return Err(DirectoryRefusal::Damaged);
    }
    let end = directory_bytes(count);
    let directory = bytes.get(..end).ok_or(DirectoryRefusal::Short(end))?;
    if checksum != volume.checksum(&[&directory[8..]]) {
        return Err(DirectoryRefusal::Damaged);
    }
    Ok((header, directory))
}

fn decode_fixed(fixed: &[u8]) -> Option<(PackHeader, u32, usize)> {
    let mut fields = FieldReader::new(fixed);
    if fields.array()? != MAGIC {
        return None;
    }
    let checksum = fields.u32()?;
    let offset_bytes = fields.u64()?;
    let sequence = fields.u32()?;
    let len_bytes = fields.u32()?;
    let count = fields.u32()? as usize;
    let oldest_sequence = fields.u32()?;
    Some((PackHeader { offset_bytes, sequence, len_bytes, oldest_sequence }, checksum, count))
}

fn decode_listing(bytes: &[u8]) -> Option<PackedRecord> {
    let mut fields = FieldReader::new(bytes);
    let key_hash = KeyHash(fields.u64()?);
    let at = u32::from(fields.u16()?) * GRANULE_BYTES as u32;
    let len = u32::from(fields.u16()?) * GRANULE_BYTES as u32;
    let expires_at = fields.u32()?;
    let sequence = fields.u32()?;
    let kind = match fields.u8()? {
        KIND_ENTRY => PackedKind::Entry,
        KIND_TOMBSTONE => PackedKind::Tombstone,
        KIND_STUB => PackedKind::Stub,
        _ => return None,
    };
    Some(PackedRecord { key_hash, at, len, expires_at, sequence, kind, rank: fields.u8()? })
}

const KIND_ENTRY: u8 = 1;
const KIND_TOMBSTONE: u8 = 2;
const KIND_STUB: u8 = 3;

fn kind_code(kind: PackedKind) -> u8 {
    match kind {
        PackedKind::Entry => KIND_ENTRY,
        PackedKind::Tombstone => KIND_TOMBSTONE,
        PackedKind::Stub => KIND_STUB,
    }
}

/// The place of a record that is too long for the pack that lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordStub {
    pub(crate) hash: FullHash,
    /// Offset of the record on the volume.
    pub(crate) offset_bytes: u64,
    /// Length of the record in bytes.
    pub(crate) len_bytes: u32,
    /// Sequence of the record. If the record at the offset has another sequence, the one that the stub names was
    /// overwritten.
    pub(crate) sequence: u32,
    /// Sequence of the stub itself, by which it is compared with other records of its key.
    pub(crate) own_sequence: u32,
}

impl RecordStub {
    pub(crate) fn encode(&self, volume: VolumeId, target: &mut [u8]) {
        let target = &mut target[..STUB_BYTES];
        FieldsMut::new(target)
            .put(&STUB_MAGIC)
            .put(&[0; 4])
            .put(&self.hash.0.to_le_bytes())
            .put(&self.offset_bytes.to_le_bytes())
            .put(&self.len_bytes.to_le_bytes())
            .put(&self.sequence.to_le_bytes())
            .put(&self.own_sequence.to_le_bytes())
            .put(&[0; 4]);
        let checksum = volume.checksum(&[&target[8..]]);
        target[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Decodes the stub at the start of `bytes`. Returns `None` if it is not a valid stub of this volume.
    pub(crate) fn decode(volume: VolumeId, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..STUB_BYTES)?;
        let mut fields = FieldReader::new(bytes);
        if fields.array()? != STUB_MAGIC || fields.u32()? != volume.checksum(&[&bytes[8..]]) {
            return None;
        }
        Some(Self {
            hash: FullHash(fields.u128()?),
            offset_bytes: fields.u64()?,
            len_bytes: fields.u32()?,
            sequence: fields.u32()?,
            own_sequence: fields.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VOLUME: VolumeId = VolumeId([3; 16]);
    const OFFSET: u64 = 1 << 20;

    fn listing(kind: PackedKind, at: u32, len: u32) -> PackedRecord {
        PackedRecord { key_hash: KeyHash(7 + u64::from(at)), at, len, expires_at: 9, sequence: 11, kind, rank: 5 }
    }

    fn sample() -> (PackHeader, Vec<PackedRecord>, Vec<u8>) {
        let header = PackHeader { offset_bytes: OFFSET, sequence: 77, len_bytes: 8192, oldest_sequence: 70 };
        let listings = vec![
            listing(PackedKind::Entry, 128, 4096),
            listing(PackedKind::Tombstone, 4224, 128),
            listing(PackedKind::Stub, 8128, 64),
        ];
        let mut bytes = vec![0; 8192];
        encode(VOLUME, header, &listings, &mut bytes);
        (header, listings, bytes)
    }

    #[test]
    fn what_was_written_is_read() {
        let (header, listings, bytes) = sample();
        assert_eq!(decode(VOLUME, OFFSET, &bytes), Ok((header, listings)));
        assert_eq!(decode(VOLUME, OFFSET, &bytes[..40]), Err(DirectoryRefusal::Short(directory_bytes(3))));
    }

    #[test]
    fn a_pack_of_another_place_or_volume_is_none() {
        let (_, _, bytes) = sample();
        assert_eq!(decode(VOLUME, OFFSET + 4096, &bytes), Err(DirectoryRefusal::Damaged));
        assert_eq!(decode(VolumeId([4; 16]), OFFSET, &bytes), Err(DirectoryRefusal::Damaged));
    }

    #[test]
    fn every_flipped_bit_of_a_directory_or_stub_is_noticed() {
        let (header, listings, mut bytes) = sample();
        for bit in 0..directory_bytes(listings.len()) * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(VOLUME, OFFSET, &bytes).is_err(), "bit {bit}");
            assert_eq!(decode_mended(VOLUME, OFFSET, &bytes), Some((header, listings.clone())), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let stub =
            RecordStub { hash: FullHash(5), offset_bytes: 4096, len_bytes: 70_000, sequence: 3, own_sequence: 4 };
        let mut bytes = vec![0; STUB_BYTES];
        stub.encode(VOLUME, &mut bytes);
        assert_eq!(RecordStub::decode(VOLUME, &bytes), Some(stub));
        for bit in 0..STUB_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordStub::decode(VOLUME, &bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (decode(VOLUME, OFFSET, &bytes), RecordStub::decode(VOLUME, &bytes));
            if bytes.len() >= 16 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[8..16].copy_from_slice(&OFFSET.to_le_bytes());
                let _ = decode(VOLUME, OFFSET, &bytes);
            }
        }
    }
}
