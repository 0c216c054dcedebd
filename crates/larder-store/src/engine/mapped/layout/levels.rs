//! The multilevel bitmap: the layout of `esp`.
//!
//! Level 0 has a bit for every block, level j one for every aligned group of 2^j blocks. A 1 means that this node is
//! wholly free, and not part of a larger free node. Writing continues from `next` until the run of free blocks there is
//! used up. Then only the top level is searched, circularly, for a run longer than a threshold. Lengths are rounded to
//! blocks, not to powers of two. Owns: bitmap, `next` (the paper's pos), `remain`, and the length of the last run
//! found. Eviction is elsewhere; [`BlockLevels::last_run`] paces it. Invariant: of the nodes that cover a free block,
//! exactly one is 1; of those that cover a used block, none is.
//!
//! Cost: 2 bits per block; a search examines 64 top nodes per step. Idea: ESP, ICS 2002.

use super::{super::map::MapPlace, SpaceLayout};
use crate::units::{SECTOR_BYTES, Sector, Site};

const WORD_BITS: u64 = u64::BITS as u64;

/// The free blocks of an area, in a bitmap of several levels.
pub(crate) struct BlockLevels {
    start: Sector,
    block_sectors: u64,
    block_count: u64,
    threshold_blocks: u64,
    levels: Vec<LevelBits>,
    next: u64,
    remain: u64,
    last_run: Option<u64>,
}

/// A run of free blocks that the last search found. The longer it is, the more slowly entries are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeRun {
    pub(crate) len_blocks: u64,
    pub(crate) threshold_blocks: u64,
}

/// The parameters of the bitmap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelsShape {
    pub(crate) block_bytes: u64,
    pub(crate) level_count: u32,
    pub(crate) threshold_bytes: u64,
}

impl BlockLevels {
    /// Creates an area in which all blocks are free. It begins at `start` and has as many top-level nodes as fit in
    /// `len_sectors`.
    pub(crate) fn new(start: Sector, len_sectors: u64, shape: LevelsShape) -> Self {
        assert!(shape.block_bytes >= SECTOR_BYTES && shape.block_bytes.is_multiple_of(SECTOR_BYTES));
        assert!((1..=16).contains(&shape.level_count));
        let block_sectors = shape.block_bytes / SECTOR_BYTES;
        let top = shape.level_count - 1;
        let block_count = (len_sectors / block_sectors) >> top << top;
        let mut levels: Vec<_> = (0..shape.level_count).map(|level| LevelBits::new(block_count >> level)).collect();
        levels[top as usize].set_all();
        let threshold_blocks = shape.threshold_bytes.div_ceil(shape.block_bytes);
        let next = 0;
        let remain = block_count;
        Self { start, block_sectors, block_count, threshold_blocks, levels, next, remain, last_run: None }
    }
}

impl SpaceLayout for BlockLevels {
    fn take(&mut self, sectors: u64, _: Site) -> Option<MapPlace> {
        let len = self.blocks_of(sectors);
        if len > self.remain {
            self.find_run(len)?;
        }
        let first = self.next;
        assert!(len <= self.remain && first + len <= self.block_count, "the run that was found holds the record");
        self.mark_used(first, len);
        self.next += len;
        self.remain -= len;
        Some(MapPlace(self.start.0 + first * self.block_sectors))
    }

    fn take_at(&mut self, place: MapPlace, sectors: u64) -> bool {
        let len = self.blocks_of(sectors);
        let Some(first) = self.block_at(place).filter(|first| len > 0 && first + len <= self.block_count) else {
            return false;
        };
        if !(first..first + len).all(|block| self.free_level(block).is_some()) {
            return false;
        }
        self.mark_used(first, len);
        debug_assert!(self.free_level(first).is_none(), "what is taken is not free");
        if first < self.next + self.remain && self.next < first + len {
            // The record is in the run that was being written, so another run must be searched.
            self.remain = 0;
        }
        true
    }

    fn free(&mut self, place: MapPlace, sectors: u64) {
        let mut at = self.block_at(place).expect("what is freed was taken, and begins with a block");
        let end = at + self.blocks_of(sectors);
        assert!((at..end).all(|block| self.free_level(block).is_none()), "only used blocks are freed");
        while at < end {
            let level = self.largest_node(at, end - at);
            self.free_node(at >> level, level);
            at += 1 << level;
        }
    }

    fn point_at(&mut self, pointer: u64) {
        self.next = self.block_at(MapPlace(pointer)).filter(|block| *block < self.block_count).unwrap_or(0);
        self.remain = 0;
        debug_assert!(self.next < self.block_count, "the search goes on at a block");
    }

    fn pointer(&self) -> u64 {
        self.start.0 + self.next * self.block_sectors
    }

    fn last_run(&self) -> Option<FreeRun> {
        self.last_run.map(|len_blocks| FreeRun { len_blocks, threshold_blocks: self.threshold_blocks })
    }

    fn taken_by(&self, sectors: u64) -> u64 {
        self.blocks_of(sectors) * self.block_sectors
    }

    /// Returns the length of all blocks in total, in sectors.
    fn capacity_sectors(&self) -> u64 {
        self.block_count * self.block_sectors
    }

    /// Checks three things: each block is free on at most one level, free halves of a node are joined, and the run that
    /// is being written is free.
    fn check(&self) {
        let mut covered = 0;
        for (level, bits) in self.levels.iter().enumerate() {
            for node in (0..bits.len).filter(|&node| bits.get(node)) {
                let above = (level + 1..self.levels.len()).any(|up| self.levels[up].get(node >> (up - level)));
                assert!(!above, "node {node} of level {level} is free twice");
                let is_top = level + 1 == self.levels.len();
                assert!(is_top || !bits.get(node ^ 1), "free halves of level {level} are joined");
                covered += 1 << level;
            }
        }
        assert!(covered <= self.block_count && self.next + self.remain <= self.block_count);
        let run = self.next..self.next + self.remain;
        assert!(run.into_iter().all(|block| self.free_level(block).is_some()), "the run that is written is free");
    }

    fn sectors_in_use(&self) -> Option<u64> {
        let levels = self.levels.iter().enumerate();
        let free = levels
            .map(|(level, bits)| bits.words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() << level);
        Some((self.block_count - free.sum::<u64>()) * self.block_sectors)
    }

    /// Returns the memory that the bitmap takes, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.levels.iter().map(|bits| (bits.words.len() * size_of::<u64>()) as u64).sum()
    }

    fn written_by(&self, sectors: u64) -> u64 {
        self.taken_by(sectors)
    }

    /// Returns [`u64::MAX`], which is no limit: this layout evicts entries as time passes, not by the space that they
    /// take.
    fn used_sectors_max(&self) -> u64 {
        u64::MAX
    }
}

impl BlockLevels {
    /// Searches the top level from `next`, once around, for a free run that is longer than the threshold and has at
    /// least `len` blocks. If there is none, takes the longest run with at least `len` blocks. Returns `None` if no run
    /// is long enough.
    fn find_run(&mut self, len: u64) -> Option<()> {
        let top = self.levels.len() as u32 - 1;
        let nodes = self.block_count >> top;
        let wanted = self.threshold_blocks.max(len);
        let begin = self.next >> top;
        let mut longest = (0, 0);
        // A run does not continue from the last node to the first.
        for (from, to) in [(begin, nodes), (0, begin)] {
            let mut at = from;
            while let Some((first, end)) = self.levels[top as usize].run(at, nodes) {
                if first >= to {
                    break;
                }
                let run = ((end - first) << top, first << top);
                if run.0 > wanted {
                    longest = run;
                    break;
                }
                if run.0 > longest.0 {
                    longest = run;
                }
                at = end;
            }
            if longest.0 > wanted {
                break;
            }
        }
        let (found, first) = longest;
        self.last_run = Some(found);
        if found < len {
            return None;
        }
        assert!(first + found <= self.block_count, "a run ends within the area");
        (self.next, self.remain) = (first, found);
        Some(())
    }

    fn blocks_of(&self, sectors: u64) -> u64 {
        sectors.div_ceil(self.block_sectors)
    }

    fn block_at(&self, place: MapPlace) -> Option<u64> {
        let sectors = place.0.checked_sub(self.start.0)?;
        sectors.is_multiple_of(self.block_sectors).then_some(sectors / self.block_sectors)
    }

    /// Returns the level of the free node that contains `block`; `None` if the block is used.
    fn free_level(&self, block: u64) -> Option<usize> {
        self.levels.iter().enumerate().position(|(level, bits)| bits.get(block >> level))
    }

    fn mark_used(&mut self, first: u64, len: u64) {
        assert!(first + len <= self.block_count, "blocks lie within the area");
        for block in first..first + len {
            let level = self.free_level(block).expect("only free blocks are taken");
            self.levels[level].clear(block >> level);
            // The node is split: at each level below, the half without the block stays free.
            for below in (0..level).rev() {
                self.levels[below].set((block >> below) ^ 1);
            }
        }
    }

    /// Returns the level of the largest node that begins with `block` and has at most `len` blocks.
    fn largest_node(&self, block: u64, len: u64) -> u32 {
        let top = self.levels.len() as u32 - 1;
        len.ilog2().min(top).min(block.trailing_zeros())
    }

    /// Frees a node. As long as the other half of its parent is also free, joins the two halves to one node in the
    /// level above.
    fn free_node(&mut self, node: u64, level: u32) {
        let mut node = node;
        let mut level = level as usize;
        while level + 1 < self.levels.len() && self.levels[level].get(node ^ 1) {
            self.levels[level].clear(node ^ 1);
            node >>= 1;
            level += 1;
        }
        assert!(!self.levels[level].get(node), "a run is freed once");
        self.levels[level].set(node);
    }
}

/// The bits of one level.
struct LevelBits {
    words: Vec<u64>,
    len: u64,
}

impl LevelBits {
    fn new(len: u64) -> Self {
        Self { words: vec![0; len.div_ceil(WORD_BITS) as usize], len }
    }

    fn set_all(&mut self) {
        (0..self.len).for_each(|at| self.set(at));
    }

    fn set(&mut self, at: u64) {
        debug_assert!(at < self.len, "bit {at} of {}", self.len);
        self.words[(at / WORD_BITS) as usize] |= 1 << (at % WORD_BITS);
    }

    fn clear(&mut self, at: u64) {
        debug_assert!(at < self.len, "bit {at} of {}", self.len);
        self.words[(at / WORD_BITS) as usize] &= !(1 << (at % WORD_BITS));
    }

    fn get(&self, at: u64) -> bool {
        self.words[(at / WORD_BITS) as usize] >> (at % WORD_BITS) & 1 == 1
    }

    /// Returns the start and the end of the first run of 1 bits within `from..to`.
    fn run(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let first = self.next(from, to, 0)?;
        Some((first, self.next(first, to, u64::MAX).unwrap_or(to)))
    }

    /// Returns the first 1 bit within `from..to`. With `flip` all ones, returns the first 0 bit.
    fn next(&self, from: u64, to: u64, flip: u64) -> Option<u64> {
        let mut at = from;
        while at < to {
            let word = (self.words[(at / WORD_BITS) as usize] ^ flip) >> (at % WORD_BITS);
            if word != 0 {
                return Some(at + u64::from(word.trailing_zeros())).filter(|found| *found < to);
            }
            at = (at / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }
}

#[cfg(test)]
mod tests;
