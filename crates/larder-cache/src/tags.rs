//! Removal by tag: records which tags were removed and when, in memory and in a small file next to the store.
//!
//! Each removal gets the next generation, and each value has the generation in which its write began. A value is
//! removed if one of its tags was removed in a later generation. So a removal takes one record in a file, no matter how
//! many values it covers.
//!
//! Invariants: a removal is on the disk before it is acknowledged. No two runs use the same generation. If the file is
//! lost or damaged, it is unknown which values were removed, so all of them count as removed.
//!
//! The file and the values have hashes of tags under a key that follows from the store's secret. Tags name users or
//! products, and the file alone does not reveal which ones.
//!
//! Cost: about 50 bytes of memory and 32 bytes of file for each tag. Beyond [`TAG_COUNT_USUAL`] tags, the values of
//! removed tags are removed one by one in the background (`cache::forgetting`), and then the tags are forgotten. No
//! other value is lost.

mod file;
mod writing;

use file::TagRecord;
pub(crate) use file::{TagFile, read_file};
use larder_device::IgnorePoison;
use larder_store::Store;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    hash::Hasher,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use writing::TagWriter;

/// Number of removed tags above which it is worth a scan of the store to forget them.
const TAG_COUNT_USUAL: usize = 1 << 16;

/// Hash of a tag. Tags with the same hash are removed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TagHash(pub(crate) u128);

/// The key of the hashes of tags.
#[derive(Clone, Copy)]
pub(crate) struct TagKey([u8; 16]);

impl TagKey {
    /// Returns the key of a store's cache.
    pub(crate) fn of_store(store: &Store) -> Self {
        let derived = store.derived_key("removed tags");
        Self(*derived.first_chunk().expect("it has 32 bytes"))
    }

    /// Returns the hash of a tag.
    pub(crate) fn hash(self, tag: &str) -> TagHash {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(tag.as_bytes());
        TagHash(hasher.finish128().as_u128())
    }
}

/// The number of removals before some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(pub(crate) u64);

/// The removals of a cache.
pub(crate) struct TagRemovals {
    key: TagKey,
    removed: RwLock<RemovedTags>,
    writer: TagWriter,
    /// The generations in which unfinished writes began, with the number of these writes.
    begun: Mutex<BTreeMap<Generation, usize>>,
    forgetting: Mutex<ForgettingState>,
}

/// A write that began in some generation. Removals after that generation are not forgotten until it ends.
pub(crate) struct BegunWrite {
    removals: Arc<TagRemovals>,
    generation: Generation,
}

/// Whether removed tags are being forgotten, and when they will be next.
struct ForgettingState {
    is_running: bool,
    /// Number of removed tags at which forgetting begins.
    due_at: usize,
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
    }

    /// Forgets the tags that were removed up to a generation. No value may be left that such a removal covers.
    fn forget(&mut self, up_to: Generation) {
        self.by_tag.retain(|_, generation| *generation > up_to);
        self.by_tag.shrink_to_fit();
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
    pub(crate) fn new(path: PathBuf, file: TagFile, key: TagKey) -> Self {
        let TagFile { label, removed, len_bytes } = file;
        Self {
            key,
            removed: RwLock::new(removed),
            writer: TagWriter::new(path, label, len_bytes),
            begun: Mutex::default(),
            forgetting: Mutex::new(ForgettingState { is_running: false, due_at: TAG_COUNT_USUAL }),
        }
    }

    /// Returns the hash of a tag, as values and the file have it.
    pub(crate) fn hash(&self, tag: &str) -> TagHash {
        self.key.hash(tag)
    }

    /// Begins a write of a value in the present generation.
    pub(crate) fn begin_write(self: &Arc<Self>) -> BegunWrite {
        // Noted under the lock, so that no removal comes in between.
        let removed = self.read();
        *self.lock_begun().entry(removed.generation).or_default() += 1;
        BegunWrite { removals: Arc::clone(self), generation: removed.generation }
    }

    /// Returns the generation up to which removals can be forgotten once their values are removed, if there are many
    /// tags and nobody is about that. [`TagRemovals::end_forgetting`] must follow.
    pub(crate) fn begin_forgetting(&self) -> Option<Generation> {
        let removed = self.read();
        let mut state = self.forgetting.lock().ignore_poison();
        if state.is_running || removed.by_tag.len() <= state.due_at {
            return None;
        }
        state.is_running = true;
        let oldest = self.lock_begun().keys().next().copied();
        Some(oldest.map_or(removed.generation, |oldest| oldest.min(removed.generation)))
    }

    /// Forgets the tags that were removed up to a generation, or none if their values could not all be removed.
    pub(crate) fn end_forgetting(&self, up_to: Option<Generation>) {
        let mut removed = self.write();
        if let Some(up_to) = up_to {
            removed.forget(up_to);
        }
        let due_at = TAG_COUNT_USUAL.max(2 * removed.by_tag.len());
        *self.forgetting.lock().ignore_poison() = ForgettingState { is_running: false, due_at };
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

    fn lock_begun(&self) -> MutexGuard<'_, BTreeMap<Generation, usize>> {
        self.begun.lock().ignore_poison()
    }

    fn read(&self) -> RwLockReadGuard<'_, RemovedTags> {
        self.removed.read().ignore_poison()
    }

    fn write(&self) -> RwLockWriteGuard<'_, RemovedTags> {
        self.removed.write().ignore_poison()
    }
}

impl BegunWrite {
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }
}

impl Drop for BegunWrite {
    fn drop(&mut self) {
        let mut begun = self.removals.lock_begun();
        let count = begun.get_mut(&self.generation).expect("a write ends only once");
        *count -= 1;
        if *count == 0 {
            begun.remove(&self.generation);
        }
    }
}

impl fmt::Debug for BegunWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BegunWrite").field(&self.generation).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::block_on;

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
    fn tags_are_forgotten_up_to_the_oldest_write_and_only_when_there_are_many() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tags");
        let removals = Arc::new(TagRemovals::new(path.clone(), TagFile::create(&path, 1).unwrap(), TagKey([7; 16])));
        let remove = |from: u64, to: u64| {
            let mut removed = removals.write();
            for number in from..=to {
                removed.apply(TagRecord { tag: Some(TagHash(number.into())), generation: Generation(number) });
            }
        };
        let usual = TAG_COUNT_USUAL as u64;
        remove(1, 10);
        let write = removals.begin_write();
        remove(11, usual);
        assert_eq!(removals.begin_forgetting(), None);
        remove(usual + 1, usual + 1);
        assert!(removals.covers(Generation(0), &[TagHash(1)]) && !removals.covers(Generation(0), &[]));
        let up_to = removals.begin_forgetting();
        assert_eq!((up_to, removals.begin_forgetting()), (Some(Generation(10)), None));
        removals.end_forgetting(up_to);
        assert!(removals.covers(write.generation(), &[TagHash(11)]), "the write may still bring a value");
        assert_eq!(removals.read().by_tag.len() as u64, usual - 9);
        drop(write);
        remove(usual + 2, 3 * usual);
        let up_to = removals.begin_forgetting();
        assert_eq!(up_to, Some(Generation(3 * usual)));
        removals.end_forgetting(up_to);
        assert!(removals.read().by_tag.is_empty());
        assert_eq!(removals.begin_write().generation(), Generation(3 * usual), "numbers are not used again");
    }

    /// At stake: a value of a killed run, stored in the generation of a removal that was not written yet.
    #[test]
    fn removal_covers_the_values_of_a_run_whose_last_removal_was_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tags");
        let killed = Arc::new(TagRemovals::new(path.clone(), TagFile::create(&path, 1).unwrap(), TagKey([7; 16])));
        killed.write().apply(TagRecord { tag: Some(TagHash(5)), generation: Generation(1) });
        let generation = killed.begin_write().generation();
        for _ in 0..2 {
            let file = read_file(&path).unwrap().begin_run(&path).unwrap();
            let removals = TagRemovals::new(path.clone(), file, TagKey([7; 16]));
            assert!(!removals.covers(generation, &[TagHash(8)]));
            block_on(removals.remove(Some(TagHash(7)))).unwrap();
            assert!(removals.covers(generation, &[TagHash(7)]));
        }
    }

    #[test]
    fn hash_of_a_tag_depends_on_the_key() {
        let one = TagKey([1; 16]);
        let other = TagKey([2; 16]);
        assert_eq!(one.hash("user-7"), one.hash("user-7"));
        assert_ne!(one.hash("user-7"), other.hash("user-7"));
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
