//! Where the parts of a checkpoint lie in the index area, and which of them the next one may overwrite.
//!
//! Owns: the two places of the root and of each partition's image. Does not: do I/O, or know what is in an
//! image. Invariant: no place that the last durable root names is written before the next root is durable,
//! so that at any moment one whole checkpoint is on the volume. Idea: shadow paging (Lorie, 1977).

use crate::format::checkpoint::{ImageAt, frame_bytes, root_bytes};
use std::ops::Range;

/// Places in the index area: two roots, then two rows of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointArea {
    start_bytes: u64,
    pub(crate) root_bytes: u64,
    pub(crate) frame_bytes: u64,
    pub(crate) partition_count: u32,
}

impl CheckpointArea {
    /// The places in `area`, if they fit into it.
    pub(crate) fn new(area: Range<u64>, segment_count: u32, partition_count: u32, image_bytes: usize) -> Option<Self> {
        let (root_bytes, frame_bytes) = (root_bytes(segment_count, partition_count), frame_bytes(image_bytes));
        let places = Self { start_bytes: area.start, root_bytes, frame_bytes, partition_count };
        (places.start_bytes + places.len_bytes() <= area.end).then_some(places)
    }

    /// Bytes that the places for so many segments and partitions take.
    pub(crate) fn bytes_for(segment_count: u32, partition_count: u32, image_bytes: usize) -> u64 {
        let (root_bytes, frame_bytes) = (root_bytes(segment_count, partition_count), frame_bytes(image_bytes));
        Self { start_bytes: 0, root_bytes, frame_bytes, partition_count }.len_bytes()
    }

    pub(crate) fn root_offset(&self, second: bool) -> u64 {
        self.start_bytes + u64::from(second) * self.root_bytes
    }

    pub(crate) fn frame_offset(&self, partition: u32, second: bool) -> u64 {
        assert!(partition < self.partition_count);
        let row = u64::from(second) * u64::from(self.partition_count);
        self.start_bytes + 2 * self.root_bytes + (row + u64::from(partition)) * self.frame_bytes
    }

    fn len_bytes(&self) -> u64 {
        2 * (self.root_bytes + u64::from(self.partition_count) * self.frame_bytes)
    }
}

/// Which images and root count now, and which the next checkpoint will name.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    durable: Vec<ImageAt>,
    next: Vec<ImageAt>,
    stamp: u32,
    root_second: bool,
}

impl Places {
    /// No checkpoint yet.
    pub(crate) fn new(partition_count: u32) -> Self {
        let none = vec![ImageAt::default(); partition_count as usize];
        Self { durable: none.clone(), next: none, stamp: 0, root_second: true }
    }

    /// The checkpoint of a root that was found in this place.
    pub(crate) fn found(images: Vec<ImageAt>, stamp: u32, root_second: bool) -> Self {
        Self { durable: images.clone(), next: images, stamp, root_second }
    }

    /// Where the image of `partition` goes for a checkpoint of `stamp`.
    pub(crate) fn place(&mut self, partition: u32, stamp: u32) -> ImageAt {
        assert!(stamp > self.stamp, "stamps grow, so that no two images of a partition have the same");
        let at = ImageAt { stamp, second: !self.durable[partition as usize].second };
        self.next[partition as usize] = at;
        at
    }

    /// The images the next root names.
    pub(crate) fn next_images(&self) -> &[ImageAt] {
        &self.next
    }

    /// Whether the next root goes to the second place.
    pub(crate) fn next_root_second(&self) -> bool {
        !self.root_second
    }

    /// Notes that the next root, of `stamp`, is durable.
    pub(crate) fn commit(&mut self, stamp: u32) {
        assert!(stamp > self.stamp, "stamps grow");
        self.durable.clone_from(&self.next);
        self.stamp = stamp;
        self.root_second = !self.root_second;
    }

    /// Gives up the checkpoint that was begun; the partitions whose images were written for it.
    pub(crate) fn abandon(&mut self) -> Vec<u32> {
        assert_eq!(self.durable.len(), self.next.len(), "an image of each partition");
        let pairs = (0..).zip(self.durable.iter().zip(&self.next));
        let written = pairs.filter(|(_, (durable, next))| durable != next).map(|(partition, _)| partition).collect();
        self.next.clone_from(&self.durable);
        written
    }

    /// The stamp of the last durable checkpoint, 0 for none.
    pub(crate) fn stamp(&self) -> u32 {
        self.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn places_fill_their_area_and_do_not_overlap() {
        let len = CheckpointArea::bytes_for(100, 3, 10_000);
        let area = CheckpointArea::new(4096..4096 + len, 100, 3, 10_000).unwrap();
        assert_eq!(CheckpointArea::new(4096..4096 + len - 1, 100, 3, 10_000), None);
        let mut starts: Vec<_> = [false, true].map(|second| (area.root_offset(second), area.root_bytes)).into();
        for partition in 0..3 {
            starts.extend([false, true].map(|second| (area.frame_offset(partition, second), area.frame_bytes)));
        }
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
        assert_eq!((starts[0].0, starts.last().map(|last| last.0 + last.1)), (4096, Some(4096 + len)));
    }

    #[test]
    fn nothing_that_the_last_durable_root_names_is_overwritten() {
        let mut places = Places::new(2);
        let mut named: HashSet<(u32, bool)> = HashSet::new();
        for (stamp, written) in [(3, vec![0, 1]), (4, vec![1]), (9, vec![0, 1]), (12, vec![])] {
            let root = places.next_root_second();
            for &partition in &written {
                let at = places.place(partition, stamp);
                assert!(!named.contains(&(partition, at.second)), "partition {partition} of {stamp}");
            }
            places.commit(stamp);
            assert_ne!(places.next_root_second(), root);
            let images = (0..).zip(places.next_images());
            named = images.filter(|(_, at)| at.stamp > 0).map(|(partition, at)| (partition, at.second)).collect();
        }
        assert_eq!(places.stamp(), 12);
    }

    #[test]
    fn a_checkpoint_given_up_leaves_the_last_one_and_tells_what_was_written() {
        let mut places = Places::new(3);
        places.place(0, 1);
        places.commit(1);
        let before = places.next_images().to_vec();
        places.place(0, 2);
        places.place(2, 2);
        assert_eq!(places.abandon(), [0, 2]);
        assert_eq!((places.next_images(), places.stamp()), (&before[..], 1));
    }
}
