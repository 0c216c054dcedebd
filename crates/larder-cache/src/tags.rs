//! Removal by tag: records which tags were removed and when, in memory and in a small file next to the store.
//!
//! Each removal gets the next generation, and each value has the generation in which its write began. A value is
//! removed if one of its tags was removed in a later generation. So a removal takes one record in a file, no matter how
//! many values it covers.
//!
//! Invariants: a removal is on the disk before it is acknowledged. If the file is lost or damaged, it is unknown which
//! values were removed, so all of them count as removed.
//!
//! Cost: 24 bytes of memory and 32 bytes of file for each tag, at most [`TAGS_MAX`] tags. Beyond that, the older half
//! of the tags is replaced by one removal of all values as old as they.

mod file;
mod writing;

use file::TagRecord;
pub(crate) use file::{TagFile, read_file};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::{
    collections::HashMap,
    hash::Hasher,
    io,
    path::PathBuf,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use writing::TagWriter;

/// The largest number of removed tags that are remembered one by one.
const TAGS_MAX: usize = 1 << 16;

/// Hash of a tag. Tags with the same hash are removed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TagHash(pub(crate) u128);

impl TagHash {
    pub(crate) fn new(tag: &str) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(tag.as_bytes());
        Self(hasher.finish128().as_u128())
    }
}

/// The number of removals before some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(pub(crate) u64);

/// The removals of a cache.
pub(crate) struct TagRemovals {
    removed: RwLock<RemovedTags>,
    writer: TagWriter,
}

/// The removals, as they are looked up.
#[derive(Debug, Default)]
pub(crate) struct RemovedTags {
    /// The latest generation.
    generation: Generation,
    /// All values begun before this generation are removed.
    floor: Generation,
    by_tag: HashMap<TagHash, Generation>,
}

impl RemovedTags {
    /// Applies a record. A record without a tag removes everything.
    fn apply(&mut self, record: TagRecord) {
        self.generation = self.generation.max(record.generation);
        match record.tag {
            None => {
                self.floor = self.floor.max(record.generation);
                let floor = self.floor;
                self.by_tag.retain(|_, generation| *generation > floor);
            }
            Some(tag) => {
                let last = self.by_tag.entry(tag).or_default();
                *last = record.generation.max(*last);
            }
        }
        if self.by_tag.len() > TAGS_MAX {
            let mut generations: Vec<_> = self.by_tag.values().copied().collect();
            let middle = generations.len() / 2;
            let (_, median, _) = generations.select_nth_unstable(middle);
            self.apply(TagRecord { tag: None, generation: *median });
        }
    }

    fn covers(&self, generation: Generation, tags: &[TagHash]) -> bool {
        let is_removed = |tag| self.by_tag.get(tag).is_some_and(|removed| *removed > generation);
        generation < self.floor || tags.iter().any(is_removed)
    }

    /// Returns records that describe all removals so far.
    fn records(&self) -> Vec<TagRecord> {
        let floor = TagRecord { tag: None, generation: self.floor };
        // The tag of the latest generation may have been dropped. This record keeps the generation from being used
        // again.
        let latest = TagRecord { tag: Some(TagHash(0)), generation: self.generation };
        let by_tag = self.by_tag.iter().map(|(tag, generation)| TagRecord { tag: Some(*tag), generation: *generation });
        [floor, latest].into_iter().chain(by_tag).collect()
    }
}

impl TagRemovals {
    /// Starts with the content of a file. Further removals are appended to it.
    pub(crate) fn new(path: PathBuf, file: TagFile) -> Self {
        let TagFile { label, removed, len_bytes } = file;
        Self { removed: RwLock::new(removed), writer: TagWriter::new(path, label, len_bytes) }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.read().generation
    }

    /// Returns whether a value with these tags, begun in `generation`, is removed.
    pub(crate) fn covers(&self, generation: Generation, tags: &[TagHash]) -> bool {
        self.read().covers(generation, tags)
    }

    /// Removes all values of `tag`, or all values. Lookups miss them at once, and also after a crash once this returns.
    pub(crate) async fn remove(&self, tag: Option<TagHash>) -> io::Result<()> {
        let written = {
            let mut removed = self.write();
            let record = TagRecord { tag, generation: Generation(removed.generation.0 + 1) };
            removed.apply(record);
            let snapshot = self.writer.wants_snapshot().then(|| removed.records());
            // Sent under the lock. Otherwise a snapshot could overtake a later record, and replace the file without it.
            self.writer.send(record, snapshot)?
        };
        self.writer.finish(written).await
    }

    fn read(&self) -> RwLockReadGuard<'_, RemovedTags> {
        self.removed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, RemovedTags> {
        self.removed.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(records: &[(Option<u128>, u64)]) -> RemovedTags {
        let mut removed = RemovedTags::default();
        for (tag, generation) in records {
            removed.apply(TagRecord { tag: tag.map(TagHash), generation: Generation(*generation) });
        }
        removed
    }

    #[test]
    fn removal_covers_older_values_of_its_tag_only() {
        let removed = removed(&[(Some(7), 3)]);
        assert!(removed.covers(Generation(2), &[TagHash(5), TagHash(7)]));
        assert!(!removed.covers(Generation(3), &[TagHash(7)]));
        assert!(!removed.covers(Generation(2), &[TagHash(5)]));
    }

    #[test]
    fn removal_of_everything_covers_values_without_tags() {
        let removed = removed(&[(Some(7), 3), (None, 4)]);
        assert!(removed.covers(Generation(3), &[]));
        assert!(!removed.covers(Generation(4), &[TagHash(7)]));
        assert!(removed.by_tag.is_empty());
    }

    #[test]
    fn too_many_tags_cost_old_values_and_no_removal_is_forgotten() {
        let count = TAGS_MAX as u64 + 1;
        let all: Vec<_> = (1..=count).map(|number| (Some(u128::from(number)), number)).collect();
        let removed = removed(&all);
        assert!(removed.by_tag.len() <= TAGS_MAX / 2 + 1);
        for number in 1..=count {
            assert!(removed.covers(Generation(number - 1), &[TagHash(number.into())]), "{number}");
        }
        assert!(!removed.covers(Generation(count - 1), &[TagHash(1)]));
    }

    #[test]
    fn records_stand_for_all_removals() {
        let removed = removed(&[(Some(7), 3), (None, 4), (Some(8), 5)]);
        let mut again = RemovedTags::default();
        removed.records().into_iter().for_each(|record| again.apply(record));
        assert_eq!((again.generation, again.floor), (Generation(5), Generation(4)));
        assert_eq!(again.by_tag.get(&TagHash(8)), Some(&Generation(5)));
    }
}
