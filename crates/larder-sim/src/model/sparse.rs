//! Written bytes without the zeros among them, so that volumes of gigabytes fit into memory.
//!
//! Bodies in simulations are zeros, so the kept bytes are those that the engine reads back for itself: heads, trailers,
//! checkpoints. Reads return exactly the written bytes, zero or not. Owns: the sectors that are not all zeros, each
//! without the zeros at its end. Those of a chunk are adjacent, so that a read of many touches little memory. Cost: 8
//! bytes per kept sector and its bytes; one pass over written data; a write into the middle of a chunk moves the
//! chunk's later bytes.

use std::{collections::BTreeMap, ops::Range};

pub(super) const SECTOR_BYTES: usize = 512;
const CHUNK_SECTORS: u64 = 512;

/// The bytes of a volume. Only sectors that are not all zeros take memory.
#[derive(Default)]
pub(super) struct SparseBytes {
    chunks: BTreeMap<u64, Chunk>,
}

/// The sectors of a chunk that are kept.
#[derive(Default)]
struct Chunk {
    /// Position of each kept sector, in ascending order.
    sectors: Vec<KeptSector>,
    /// The bytes of the kept sectors, in the same order.
    bytes: Vec<u8>,
}

/// Position of a sector that is not all zeros, and of its bytes.
#[derive(Clone, Copy)]
struct KeptSector {
    /// Number of the sector in its chunk.
    sector: u16,
    len_bytes: u16,
    /// Index in [`Chunk::bytes`] at which the bytes of the sector begin.
    start: u32,
}

impl SparseBytes {
    /// Stores `bytes`, which must be whole sectors.
    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        for (chunk, first, part) in parts(offset_bytes, bytes.len() as u64) {
            let fresh = Chunk::of(&bytes[part.clone()], first);
            let sectors = first..first + part.len().div_ceil(SECTOR_BYTES) as u16;
            let Some(held) = self.chunks.get_mut(&chunk) else {
                if !fresh.sectors.is_empty() {
                    self.chunks.insert(chunk, fresh);
                }
                continue;
            };
            held.replace(sectors, &fresh);
            if held.sectors.is_empty() {
                self.chunks.remove(&chunk);
            }
        }
    }

    /// Reads bytes from `offset_bytes` on into `to`. `offset_bytes` must be the start of a sector.
    pub(super) fn read(&self, offset_bytes: u64, to: &mut [u8]) {
        to.fill(0);
        for (chunk, first, part) in parts(offset_bytes, to.len() as u64) {
            let Some(held) = self.chunks.get(&chunk) else { continue };
            let to = &mut to[part];
            for kept in &held.sectors[held.first_from(first)..] {
                let Some(to) = to.get_mut(usize::from(kept.sector - first) * SECTOR_BYTES..) else { break };
                let bytes = &held.bytes[kept.range()];
                let len = bytes.len().min(to.len());
                to[..len].copy_from_slice(&bytes[..len]);
            }
        }
    }
}

impl Chunk {
    /// Creates a chunk with the sectors of `bytes` that are not all zeros. `first` is the number of the first sector.
    fn of(bytes: &[u8], first: u16) -> Self {
        let mut chunk = Self::default();
        for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR_BYTES)) {
            // No branch per byte, so that the compiler can vectorize the loop.
            if bytes.iter().fold(0, |all, byte| all | byte) != 0 {
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let start = chunk.bytes.len() as u32;
                chunk.sectors.push(KeptSector { sector, len_bytes: end as u16, start });
                chunk.bytes.extend_from_slice(&bytes[..end]);
            }
        }
        chunk
    }

    /// Replaces `sectors` of this chunk by those in `fresh`.
    fn replace(&mut self, sectors: Range<u16>, fresh: &Self) {
        let from = self.first_from(sectors.start);
        let to = self.first_from(sectors.end);
        let start = self.start_of(from);
        let end = self.start_of(to);
        let fresh_end = start + fresh.bytes.len();
        let behind = self.bytes.len() - end;
        self.bytes.resize(self.bytes.len().max(fresh_end + behind), 0);
        self.bytes.copy_within(end..end + behind, fresh_end);
        self.bytes[start..fresh_end].copy_from_slice(&fresh.bytes);
        self.bytes.truncate(fresh_end + behind);
        self.sectors.splice(from..to, fresh.sectors.iter().map(|kept| kept.moved(0, start)));
        let behind = &mut self.sectors[from + fresh.sectors.len()..];
        behind.iter_mut().for_each(|kept| *kept = kept.moved(end, fresh_end));
    }

    /// Returns the index of the first kept sector whose number is at least `sector`.
    fn first_from(&self, sector: u16) -> usize {
        self.sectors.partition_point(|kept| kept.sector < sector)
    }

    fn start_of(&self, at: usize) -> usize {
        self.sectors.get(at).map_or(self.bytes.len(), |kept| kept.start as usize)
    }
}

impl KeptSector {
    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + usize::from(self.len_bytes)
    }

    /// Returns this sector with its `start` increased by `to - from`, because its bytes were moved by that distance.
    fn moved(self, from: usize, to: usize) -> Self {
        Self { start: (self.start as usize - from + to) as u32, ..self }
    }
}

/// Splits a range of bytes by chunks. Each part is the number of the chunk, the first sector in it, and the part of the
/// range.
fn parts(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (u64, u16, Range<usize>)> {
    const CHUNK_BYTES: u64 = CHUNK_SECTORS * SECTOR_BYTES as u64;
    let chunks = offset_bytes / CHUNK_BYTES..(offset_bytes + len_bytes).div_ceil(CHUNK_BYTES);
    chunks.map(move |chunk| {
        let start = (chunk * CHUNK_BYTES).max(offset_bytes);
        let end = ((chunk + 1) * CHUNK_BYTES).min(offset_bytes + len_bytes);
        let first = (start % CHUNK_BYTES) / SECTOR_BYTES as u64;
        (chunk, first as u16, (start - offset_bytes) as usize..(end - offset_bytes) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Guards against entries that a simulated store loses or invents.
        #[test]
        fn what_is_read_is_what_was_written(
            writes in prop::collection::vec((0_u64..1600, 1_usize..40, any::<u8>(), any::<u8>()), 1..60)
        ) {
            let mut plain = vec![0; 2048 * SECTOR_BYTES];
            let mut sparse = SparseBytes::default();
            for (sector, count, value, every) in writes {
                let bytes: Vec<u8> = (0..count * SECTOR_BYTES)
                    .map(|at| if at % (usize::from(every) * 8 + 1) == 0 { value } else { 0 })
                    .collect();
                let start = sector as usize * SECTOR_BYTES;
                plain[start..start + bytes.len()].copy_from_slice(&bytes);
                sparse.write(start as u64, &bytes);
                let mut back = vec![7; 1024 * SECTOR_BYTES];
                sparse.read(start as u64 / 2 / 512 * 512, &mut back);
                let from = start / 2 / 512 * 512;
                prop_assert!(back[..] == plain[from..from + back.len()]);
            }
        }
    }
}
