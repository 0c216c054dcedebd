//! Bytes that were written, without the zeros among them: what makes volumes of gigabytes fit the memory.
//!
//! Bodies in simulations are zeros, so what is kept is what the engine reads back of its own: heads, trailers,
//! checkpoints. Nothing is guessed: what is read is what was written, zero or not. Owns: the sectors that are not all
//! zeros, each without the zeros at its end. Cost: 24 bytes a kept sector and its bytes; a pass over what is written.

use std::collections::BTreeMap;

pub(super) const SECTOR_BYTES: usize = 512;
const CHUNK_SECTORS: u64 = 512;

/// Written bytes by sector.
#[derive(Default)]
pub(super) struct Sparse {
    chunks: BTreeMap<u64, Chunk>,
}

/// Sectors by their number within the chunk, in order.
type Chunk = Vec<(u16, Box<[u8]>)>;

impl Sparse {
    /// Takes over `bytes`, whole sectors at a sector's start.
    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        for (chunk, first, part) in parts(offset_bytes, bytes.len() as u64) {
            let bytes = &bytes[part];
            let mut fresh = kept(bytes, first);
            let sector_count = bytes.len().div_ceil(SECTOR_BYTES) as u16;
            let Some(held) = self.chunks.get_mut(&chunk) else {
                if !fresh.is_empty() {
                    self.chunks.insert(chunk, fresh);
                }
                continue;
            };
            let from = held.partition_point(|(sector, _)| *sector < first);
            let to = from + held[from..].partition_point(|(sector, _)| *sector < first + sector_count);
            if to - from == fresh.len() {
                held[from..to].swap_with_slice(&mut fresh);
            } else {
                held.splice(from..to, fresh);
            }
            if held.is_empty() {
                self.chunks.remove(&chunk);
            }
        }
    }

    /// Fills `to` from a sector's start.
    pub(super) fn read(&self, offset_bytes: u64, to: &mut [u8]) {
        to.fill(0);
        for (chunk, first, part) in parts(offset_bytes, to.len() as u64) {
            let Some(held) = self.chunks.get(&chunk) else { continue };
            let to = &mut to[part];
            let from = held.partition_point(|(sector, _)| *sector < first);
            for (sector, bytes) in &held[from..] {
                let Some(to) = to.get_mut(usize::from(sector - first) * SECTOR_BYTES..) else { break };
                let len = bytes.len().min(to.len());
                to[..len].copy_from_slice(&bytes[..len]);
            }
        }
    }
}

/// The chunks that bytes reach over: number, first sector within, and which of the bytes.
fn parts(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (u64, u16, std::ops::Range<usize>)> {
    const CHUNK_BYTES: u64 = CHUNK_SECTORS * SECTOR_BYTES as u64;
    let chunks = offset_bytes / CHUNK_BYTES..(offset_bytes + len_bytes).div_ceil(CHUNK_BYTES);
    chunks.map(move |chunk| {
        let start = (chunk * CHUNK_BYTES).max(offset_bytes);
        let end = ((chunk + 1) * CHUNK_BYTES).min(offset_bytes + len_bytes);
        let first = (start % CHUNK_BYTES) / SECTOR_BYTES as u64;
        (chunk, first as u16, (start - offset_bytes) as usize..(end - offset_bytes) as usize)
    })
}

/// The sectors of `bytes` that are not all zeros.
fn kept(bytes: &[u8], first: u16) -> Chunk {
    let mut kept = Vec::new();
    for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR_BYTES)) {
        // Without a branch per byte, so that the compiler takes many at a time.
        if bytes.iter().fold(0, |all, byte| all | byte) != 0 {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            kept.push((sector, bytes[..end].into()));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// At stake: simulated stores that lose or make up entries.
        #[test]
        fn what_is_read_is_what_was_written(
            writes in prop::collection::vec((0_u64..1600, 1_usize..40, any::<u8>(), any::<u8>()), 1..60)
        ) {
            let mut plain = vec![0; 2048 * SECTOR_BYTES];
            let mut sparse = Sparse::default();
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
