//! Chooses where a checkpoint's parts are stored in the index area, and which of them the next checkpoint may
//! overwrite.
//!
//! Owns: the two places of the root, and the blocks after them that hold the images' frames. I/O and the content of
//! images are elsewhere. Images are as long as their tables, so each gets the first run of free blocks that holds it.
//! An image without such a run is left out, and its content is read from the segments. Invariant: a block named by the
//! last durable root is not written before the next root is durable, so that one whole checkpoint is on the volume at
//! any moment. Idea: shadow paging (Lorie, 1977).

use crate::{
    format::checkpoint::{ImageAt, frame_bytes, root_bytes},
    units::BLOCK_BYTES,
};
use std::ops::Range;

/// The layout of checkpoints in the index area: places for two roots, and blocks for images behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointArea {
    start_bytes: u64,
    pub(crate) root_bytes: u64,
    block_count: u32,
}

impl CheckpointArea {
    /// Creates the layout of checkpoints in `area`. Returns `None` if two roots and an image do not fit.
    pub(crate) fn new(area: Range<u64>, segment_count: u32, partition_count: u32) -> Option<Self> {
        let root_bytes = root_bytes(segment_count, partition_count);
        let blocks = (area.end - area.start).checked_sub(2 * root_bytes)? / BLOCK_BYTES;
        let block_count = u32::try_from(blocks).unwrap_or(u32::MAX);
        (block_count > 0).then_some(Self { start_bytes: area.start, root_bytes, block_count })
    }

    /// Returns the bytes that checkpoints need for tables of `table_bytes` in total: two copies of each, and unused
    /// blocks between them.
    pub(crate) fn bytes_for(segment_count: u32, partition_count: u32, table_bytes: u64) -> u64 {
        let frames = 2 * (table_bytes + u64::from(partition_count) * 2 * BLOCK_BYTES);
        2 * root_bytes(segment_count, partition_count) + frames.next_multiple_of(BLOCK_BYTES)
    }

    pub(crate) fn root_offset(&self, second: bool) -> u64 {
        self.start_bytes + u64::from(second) * self.root_bytes
    }

    /// Returns the offset on the volume of the frame for an image of `image_bytes`; `None` if the frame is not within
    /// the area.
    pub(crate) fn frame_offset(&self, at: ImageAt, image_bytes: usize) -> Option<u64> {
        let end = u64::from(at.block) + u64::from(blocks_of(image_bytes));
        let first = self.start_bytes + 2 * self.root_bytes;
        (end <= u64::from(self.block_count)).then(|| first + u64::from(at.block) * BLOCK_BYTES)
    }
}

/// Returns the number of blocks that the frame of an image of `image_bytes` takes.
fn blocks_of(image_bytes: usize) -> u32 {
    (frame_bytes(image_bytes) / BLOCK_BYTES) as u32
}

/// The place of an image, and the number of blocks that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ImagePlace {
    at: ImageAt,
    block_count: u32,
}

/// The images and the root of the last durable checkpoint, and those of the checkpoint that is being written.
#[derive(Clone, Debug)]
pub(crate) struct CheckpointPlaces {
    durable: Vec<ImagePlace>,
    next: Vec<ImagePlace>,
    /// For each block of the area, whether an image of the durable checkpoint, or of the one that is being written, is
    /// in it.
    used: Vec<bool>,
    /// The block at which the search for free blocks begins.
    cursor: usize,
    stamp: u32,
    root_second: bool,
}

impl CheckpointPlaces {
    /// Creates the places of a volume that has no checkpoint.
    pub(crate) fn new(area: Option<&CheckpointArea>, partition_count: u32) -> Self {
        let none = vec![ImagePlace::default(); partition_count as usize];
        let used = vec![false; area.map_or(0, |area| area.block_count as usize)];
        Self { durable: none.clone(), next: none, used, cursor: 0, stamp: 0, root_second: true }
    }

    /// Creates the places of a checkpoint whose root was found. `images` has the place and the length of each of its
    /// images.
    pub(crate) fn found(
        area: &CheckpointArea,
        images: impl Iterator<Item = (ImageAt, usize)>,
        stamp: u32,
        root_second: bool,
    ) -> Self {
        let placed = |(at, image_bytes): (ImageAt, usize)| match at.bucket_count {
            0 => ImagePlace { at, block_count: 0 },
            _ => ImagePlace { at, block_count: blocks_of(image_bytes) },
        };
        let durable: Vec<_> = images.map(placed).collect();
        let used = vec![false; area.block_count as usize];
        let mut found = Self { next: durable.clone(), durable, used, cursor: 0, stamp, root_second };
        found.count_used();
        found
    }

    /// Chooses a place for the image of `partition` in the checkpoint with the watermark `stamp`. If no place is free,
    /// the root of the checkpoint will say that the image is missing.
    pub(crate) fn place(&mut self, partition: u32, stamp: u32, image_bytes: usize, bucket_count: u32) -> ImageAt {
        assert!(stamp > self.stamp, "stamps grow, so that no two images of a partition have the same");
        self.free_next(partition);
        let block_count = blocks_of(image_bytes);
        let placed = match self.free_run(block_count as usize) {
            Some(first) => {
                self.used[first..first + block_count as usize].fill(true);
                self.cursor = first + block_count as usize;
                ImagePlace { at: ImageAt { stamp, block: first as u32, bucket_count }, block_count }
            }
            None => ImagePlace { at: ImageAt { stamp, block: 0, bucket_count: 0 }, block_count: 0 },
        };
        self.next[partition as usize] = placed;
        assert!(placed.at.stamp > self.stamp, "the durable root does not name it");
        placed.at
    }

    /// Notes that `partition` is empty in the checkpoint that is being written.
    pub(crate) fn place_nothing(&mut self, partition: u32) {
        self.free_next(partition);
        self.next[partition as usize] = ImagePlace::default();
        assert_eq!(self.next.len(), self.durable.len(), "an image of each partition");
    }

    /// Frees the image of `partition` in the checkpoint that is being written, unless the durable checkpoint has the
    /// same image.
    fn free_next(&mut self, partition: u32) {
        let durable = self.durable[partition as usize];
        let next = self.next[partition as usize];
        if next != durable {
            let first = next.at.block as usize;
            self.used[first..first + next.block_count as usize].fill(false);
        }
    }

    /// Returns the first of `block_count` adjacent free blocks. Prefers blocks behind those that were taken last.
    fn free_run(&self, block_count: usize) -> Option<usize> {
        let search = |blocks: Range<usize>| {
            let mut run = 0;
            for block in blocks {
                run = if self.used[block] { 0 } else { run + 1 };
                if run == block_count {
                    return Some(block + 1 - block_count);
                }
            }
            None
        };
        search(self.cursor.min(self.used.len())..self.used.len()).or_else(|| search(0..self.used.len()))
    }

    fn count_used(&mut self) {
        self.used.fill(false);
        for placed in self.durable.iter().chain(&self.next) {
            let first = placed.at.block as usize;
            let end = (first + placed.block_count as usize).min(self.used.len());
            self.used[first.min(end)..end].fill(true);
        }
    }

    /// Returns the places of the images that the next root will name.
    pub(crate) fn next_images(&self) -> Vec<ImageAt> {
        self.next.iter().map(|placed| placed.at).collect()
    }

    /// Returns whether the next root is written to the second place.
    pub(crate) fn next_root_second(&self) -> bool {
        !self.root_second
    }

    /// Notes that the root of the checkpoint with the watermark `stamp` is durable.
    pub(crate) fn commit(&mut self, stamp: u32) {
        assert!(stamp > self.stamp, "stamps grow");
        self.durable.clone_from(&self.next);
        self.count_used();
        assert!(self.stamp < stamp, "stamps grow");
        self.stamp = stamp;
        self.root_second = !self.root_second;
    }

    /// Abandons the checkpoint that is being written. Returns the partitions whose images were written for this
    /// checkpoint.
    pub(crate) fn abandon(&mut self) -> Vec<u32> {
        assert_eq!(self.durable.len(), self.next.len(), "an image of each partition");
        let pairs = (0..).zip(self.durable.iter().zip(&self.next));
        let written = pairs.filter(|(_, (durable, next))| durable != next).map(|(partition, _)| partition).collect();
        self.next.clone_from(&self.durable);
        self.count_used();
        written
    }

    /// Returns the watermark of the last durable checkpoint; 0 if there is none.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn area(blocks: u64) -> CheckpointArea {
        let roots = 2 * root_bytes(100, 3);
        CheckpointArea::new(4096..4096 + roots + blocks * BLOCK_BYTES, 100, 3).unwrap()
    }

    /// Returns the bytes of an image whose frame takes `blocks`.
    fn image_bytes(blocks: u64) -> usize {
        (blocks * BLOCK_BYTES - 64) as usize
    }

    #[test]
    fn images_lie_in_their_area_and_apart() {
        let area = area(10);
        let mut places = CheckpointPlaces::new(Some(&area), 3);
        let placed = [3, 4, 3].map(|blocks| (places.place(blocks as u32 % 3, 1, image_bytes(blocks), 7), blocks));
        let [first, second, _] = placed.map(|(at, blocks)| area.frame_offset(at, image_bytes(blocks)).unwrap());
        assert_eq!((first, second - first), (4096 + 2 * root_bytes(100, 3), 3 * BLOCK_BYTES));
        assert_eq!(area.frame_offset(ImageAt { stamp: 1, block: 8, bucket_count: 1 }, image_bytes(3)), None);
        assert_eq!(CheckpointArea::new(4096..4096 + 2 * root_bytes(100, 3), 100, 3), None);
    }

    #[test]
    fn nothing_that_the_last_durable_root_names_is_overwritten() {
        let mut places = CheckpointPlaces::new(Some(&area(9)), 2);
        let mut named: HashSet<u32> = HashSet::new();
        for (stamp, written) in [(3, vec![0, 1]), (4, vec![1]), (9, vec![0, 1]), (12, vec![])] {
            let root = places.next_root_second();
            for &partition in &written {
                let at = places.place(partition, stamp, image_bytes(2), 5);
                assert!(!at.is_missing() && (at.block..at.block + 2).all(|block| !named.contains(&block)));
            }
            places.commit(stamp);
            assert_ne!(places.next_root_second(), root);
            let images = places.next_images().into_iter().filter(|at| at.stamp > 0);
            named = images.flat_map(|at| at.block..at.block + 2).collect();
            assert_eq!(named.len(), 4);
        }
        assert_eq!(places.stamp(), 12);
    }

    #[test]
    fn an_image_without_room_is_missing_until_there_is_some() {
        let mut places = CheckpointPlaces::new(Some(&area(5)), 2);
        assert!(!places.place(0, 1, image_bytes(3), 5).is_missing());
        assert!(places.place(1, 1, image_bytes(3), 5).is_missing());
        places.commit(1);
        places.place_nothing(0);
        assert!(places.place(1, 2, image_bytes(3), 5).is_missing(), "the old one counts until the next root");
        places.commit(2);
        assert!(!places.place(1, 3, image_bytes(3), 5).is_missing());
    }

    #[test]
    fn a_checkpoint_given_up_leaves_the_last_one_and_tells_what_was_written() {
        let mut places = CheckpointPlaces::new(Some(&area(20)), 3);
        places.place(0, 1, image_bytes(2), 5);
        places.commit(1);
        let before = places.next_images();
        places.place(0, 2, image_bytes(2), 5);
        places.place(2, 2, image_bytes(2), 5);
        assert_eq!(places.abandon(), [0, 2]);
        assert_eq!((places.next_images(), places.stamp()), (before, 1));
    }
}
