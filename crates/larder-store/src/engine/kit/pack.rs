//! A pack that is being filled: a buffer, and the listings of its content.
//!
//! Owns: the positions of records in the pack. Where and when packs are written is decided elsewhere. Invariant: a
//! listed record is complete in the buffer at its position. Cost: one buffer of the pack's length.

use crate::{
    device::AlignedBuffer,
    format::{
        VolumeId,
        pack::{self, PackedKind, PackedRecord},
    },
    hash::KeyHash,
    units::BLOCK_BYTES,
};
use std::{ops::Range, sync::Arc, time::Duration};

/// The description of a record that a caller adds to a pack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackRecord {
    pub(crate) key_hash: KeyHash,
    pub(crate) len_bytes: u64,
    pub(crate) expires_at: u32,
    pub(crate) kind: PackedKind,
}

/// The layout of a pack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackShape {
    /// Bytes at the start of the pack that are reserved for the directory.
    pub(crate) directory_bytes: u64,
    /// Records begin at multiples of this many bytes.
    pub(crate) packing_bytes: u64,
    /// Whether the pack is written in its full length even if its records do not fill it.
    pub(crate) whole: bool,
}

/// A pack in memory that is being filled.
pub(crate) struct OpenPack {
    pub(crate) offset_bytes: u64,
    pub(crate) sequence: u32,
    pub(crate) opened_at: Duration,
    shape: PackShape,
    buffer: AlignedBuffer,
    used_bytes: u64,
    listings: Vec<PackedRecord>,
}

/// A complete pack that is being written.
#[derive(Clone)]
pub(crate) struct SealedPack {
    pub(crate) offset_bytes: u64,
    pub(crate) sequence: u32,
    pub(crate) buffer: Arc<AlignedBuffer>,
    pub(crate) listings: Vec<PackedRecord>,
    /// Number of failed attempts to write the pack.
    pub(crate) failures: u8,
}

impl OpenPack {
    /// Creates an empty pack that will be written at `offset_bytes`. It can be as long as `buffer`.
    pub(crate) fn new(
        shape: PackShape,
        offset_bytes: u64,
        buffer: AlignedBuffer,
        sequence: u32,
        now: Duration,
    ) -> Self {
        Self {
            offset_bytes,
            sequence,
            opened_at: now,
            shape,
            buffer,
            used_bytes: shape.directory_bytes,
            listings: Vec::new(),
        }
    }

    /// Returns whether the pack has space for one more record of `len_bytes`.
    pub(crate) fn takes(&self, len_bytes: u64) -> bool {
        let listings_max = pack::listings_within(self.shape.directory_bytes as usize);
        self.listings.len() < listings_max && self.used_bytes + self.packed(len_bytes) <= self.buffer.len() as u64
    }

    /// Appends a record, for which [`OpenPack::takes`] must have returned `true`. Calls `write` with the record's place
    /// in the buffer and the pack's sequence. Returns the record's offset in the pack.
    pub(crate) fn append(&mut self, parcel: PackRecord, write: impl FnOnce(&mut [u8], u32)) -> u64 {
        assert!(self.takes(parcel.len_bytes), "the caller seals a full pack first");
        let at = self.used_bytes;
        let len = self.packed(parcel.len_bytes);
        let target = &mut self.buffer.as_mut_slice()[at as usize..(at + len) as usize];
        target[parcel.len_bytes as usize..].fill(0);
        write(&mut target[..parcel.len_bytes as usize], self.sequence);
        self.used_bytes += len;
        self.listings.push(PackedRecord {
            key_hash: parcel.key_hash,
            at: at as u32,
            len: pack::granulated(parcel.len_bytes) as u32,
            expires_at: parcel.expires_at,
            sequence: self.sequence,
            kind: parcel.kind,
            rank: 0,
        });
        at
    }

    /// Completes the pack: writes its directory. `oldest_sequence` is described at [`pack::PackHeader`].
    pub(crate) fn seal(mut self, volume: VolumeId, oldest_sequence: u32) -> SealedPack {
        let len = if self.shape.whole { self.buffer.len() } else { self.len_bytes() as usize };
        self.buffer.truncate(len);
        let header = pack::PackHeader {
            offset_bytes: self.offset_bytes,
            sequence: self.sequence,
            len_bytes: len as u32,
            oldest_sequence,
        };
        let bytes = self.buffer.as_mut_slice();
        bytes[..self.shape.directory_bytes as usize].fill(0);
        bytes[self.used_bytes as usize..].fill(0);
        pack::encode(volume, header, &self.listings, bytes);
        let offset_bytes = self.offset_bytes;
        let sequence = self.sequence;
        SealedPack { offset_bytes, sequence, buffer: Arc::new(self.buffer), listings: self.listings, failures: 0 }
    }

    /// Returns a copy of the pack, completed as by [`Self::seal`]. More records can still be added to the pack itself.
    pub(crate) fn sealed_copy(&self, volume: VolumeId, oldest_sequence: u32) -> SealedPack {
        let mut buffer = AlignedBuffer::with_len(self.buffer.len());
        buffer.as_mut_slice().copy_from_slice(self.buffer.as_slice());
        let Self { offset_bytes, sequence, opened_at, shape, used_bytes, .. } = *self;
        let listings = self.listings.clone();
        let copy = Self { offset_bytes, sequence, opened_at, shape, buffer, used_bytes, listings };
        copy.seal(volume, oldest_sequence)
    }

    /// Returns the bytes of the pack up to the end of its last record.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.as_slice()[..self.used_bytes as usize]
    }

    /// Returns the length in bytes that the pack would have on the device if it were completed now, without its unused
    /// end.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.used_bytes.next_multiple_of(BLOCK_BYTES)
    }

    /// Returns the range of the volume, in bytes, that the pack takes when it is full.
    pub(crate) fn span(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.buffer.len() as u64
    }

    /// Returns the bytes that a record of `len_bytes` takes in the pack, with padding.
    fn packed(&self, len_bytes: u64) -> u64 {
        len_bytes.next_multiple_of(self.shape.packing_bytes)
    }
}

impl SealedPack {
    pub(crate) fn len_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Returns the range of the volume, in bytes, that the pack takes.
    pub(crate) fn span(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.len_bytes()
    }
}

/// Returns up to `len_bytes` bytes at `offset_bytes` of the volume, copied from `bytes`. `bytes` are the volume's
/// content from `start_bytes` on. Returns `None` if `bytes` do not contain the offset.
pub(crate) fn copy_of(start_bytes: u64, bytes: &[u8], offset_bytes: u64, len_bytes: u64) -> Option<Vec<u8>> {
    let from = usize::try_from(offset_bytes.checked_sub(start_bytes)?).ok()?;
    let rest = bytes.get(from..).filter(|rest| !rest.is_empty())?;
    Some(rest[..rest.len().min(len_bytes as usize)].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    const VOLUME: VolumeId = VolumeId([8; 16]);
    const SHAPE: PackShape = PackShape { directory_bytes: 4096, packing_bytes: 512, whole: false };

    fn parcel(len_bytes: u64) -> PackRecord {
        PackRecord { key_hash: KeyHash(len_bytes), len_bytes, expires_at: 0, kind: PackedKind::Entry }
    }

    #[test]
    fn a_sealed_pack_lists_what_was_put_into_it() {
        let mut open = OpenPack::new(SHAPE, 1 << 20, AlignedBuffer::with_len(16 << 10), 5, Duration::ZERO);
        let first = open.append(parcel(700), |target, sequence| target.fill(sequence as u8));
        let second = open.append(parcel(100), |target, _| target.fill(9));
        assert_eq!((first, second), (4096, 5120));
        assert!(open.takes(10_000) && !open.takes(11_000));
        let sealed = open.seal(VOLUME, 2);
        assert_eq!(sealed.len_bytes(), 8192);
        let (header, listings) = pack::decode(VOLUME, 1 << 20, sealed.buffer.as_slice()).unwrap();
        assert_eq!((header.sequence, header.oldest_sequence, header.len_bytes), (5, 2, 8192));
        assert_eq!(listings, sealed.listings);
        let copy = |offset, len| copy_of(sealed.offset_bytes, sealed.buffer.as_slice(), offset, len);
        assert_eq!(copy((1 << 20) + 4096, 700), Some(vec![5; 700]));
        assert_eq!(copy((1 << 20) + 5120 + 100, 3), Some(vec![0; 3]), "no bytes of earlier transfers");
        assert_eq!(copy((1 << 20) + 8192, 1), None);
    }

    #[test]
    fn a_pack_takes_no_more_than_its_directory_lists() {
        let mut open = OpenPack::new(SHAPE, 0, AlignedBuffer::with_len(1 << 20), 1, Duration::ZERO);
        let max = pack::listings_within(4096);
        for _ in 0..max {
            open.append(parcel(512), |_, _| ());
        }
        assert!(!open.takes(512));
    }
}
