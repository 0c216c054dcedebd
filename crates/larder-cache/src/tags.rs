//! The tags of values, and the writes that a removal of a tag must still reach.
//!
//! A value has hashes of its tags under a key that follows from the store's secret, and so have the purges
//! ([`Purges`]). Tags name users or products, and the record of purges alone does not reveal which ones.
//!
//! Invariant: a removal is not forgotten while a write is under way that began before it.
//!
//! Cost: about 160 bytes of memory and 80 bytes of file for each removed tag. Beyond [`TAG_COUNT_USUAL`] tags, the
//! values of removed tags are removed one by one in the background (`cache::forgetting`), and then the tags are
//! forgotten. No other value is lost, unless the store cannot list its values, or four times as many tags are removed
//! meanwhile.

use crate::purges::Purges;
use larder_device::IgnorePoison;
use larder_store::Store;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::{
    collections::BTreeMap,
    fmt,
    hash::Hasher,
    sync::{Arc, Mutex},
};

/// Number of removed tags above which it pays to scan the store, so that the tags can be forgotten.
const TAG_COUNT_USUAL: usize = 1 << 16;

/// The hash of a tag. If two tags have the same hash, removing one removes the values of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TagHash(pub(crate) u128);

impl TagHash {
    /// Returns the name that stands for the tag in purges.
    pub(crate) fn name(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// The secret key with which tags are hashed.
#[derive(Clone, Copy)]
pub(crate) struct TagKey([u8; 16]);

impl TagKey {
    /// Returns the key with which the tags in `store` are hashed. The store derives it from its own key.
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

/// The writes that have begun and not ended, and whether removed tags are being forgotten.
#[derive(Default)]
pub(crate) struct BegunWrites(Mutex<BegunState>);

#[derive(Default)]
struct BegunState {
    /// For each number of purges, how many of the unfinished writes began when that many purges were recorded.
    by_purge_count: BTreeMap<u64, usize>,
    is_forgetting: bool,
    /// Number of removed tags that were left after the last attempt to forget them.
    left_count: usize,
}

/// A guard for a write that has begun and not ended.
pub(crate) struct BegunWrite {
    writes: Arc<BegunWrites>,
    purge_count: u64,
}

impl BegunWrites {
    /// Begins to forget removed tags. Returns the number of a purge: tags that were purged up to it can be forgotten
    /// once their values are removed.
    ///
    /// Returns `None` if few tags are removed, or if another thread is already removing the values. Otherwise, the
    /// caller must call [`BegunWrites::end_forgetting`].
    pub(crate) fn begin_forgetting(&self, purges: &Purges) -> Option<u64> {
        let mut begun = self.0.lock().ignore_poison();
        if begun.is_forgetting || purges.tag_count() <= TAG_COUNT_USUAL.max(2 * begun.left_count) {
            return None;
        }
        begun.is_forgetting = true;
        let (recorded, _) = purges.counts();
        Some(begun.by_purge_count.keys().next().map_or(recorded, |oldest| recorded.min(*oldest)))
    }

    /// Ends the forgetting of tags. Forgets those that were purged up to the number `up_to`. `None` forgets no tags,
    /// because some of their values could not be removed.
    pub(crate) fn end_forgetting(&self, purges: &Purges, up_to: Option<u64>) {
        if let Some(up_to) = up_to {
            purges.forget_tags(up_to);
        }
        let mut begun = self.0.lock().ignore_poison();
        begun.left_count = purges.tag_count();
        begun.is_forgetting = false;
    }
}

impl BegunWrite {
    /// Records that a write of a value begins, after the purges so far.
    pub(crate) fn new(purges: &Purges, writes: &Arc<BegunWrites>) -> Self {
        let mut begun = writes.0.lock().ignore_poison();
        // Under the lock, so that no forgetting begins in between.
        let (purge_count, _) = purges.counts();
        *begun.by_purge_count.entry(purge_count).or_default() += 1;
        Self { writes: Arc::clone(writes), purge_count }
    }

    /// Returns the number of purges that were recorded when the write began.
    pub(crate) fn purge_count(&self) -> u64 {
        self.purge_count
    }
}

impl Drop for BegunWrite {
    fn drop(&mut self) {
        let mut begun = self.writes.0.lock().ignore_poison();
        let count = begun.by_purge_count.get_mut(&self.purge_count).expect("a write ends only once");
        *count -= 1;
        if *count == 0 {
            begun.by_purge_count.remove(&self.purge_count);
        }
    }
}

impl fmt::Debug for BegunWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BegunWrite").field(&self.purge_count).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purges::{PurgeLimits, PurgeMode, PurgeScope, PurgeVerdict};
    use std::borrow::Cow;

    /// Returns whether a value with this tag is removed, if its write began when `purge_count` purges had been made.
    fn covers(purges: &Purges, purge_count: u64, tag: u64) -> bool {
        let tags = || Box::new([Cow::Owned(TagHash(tag.into()).name())].into_iter()) as Box<dyn Iterator<Item = _>>;
        purges.judge_entry(purge_count, || "", tags) != PurgeVerdict::Stands
    }

    #[test]
    fn tags_are_forgotten_up_to_the_oldest_write_and_only_when_there_are_many() {
        let purges = Purges::open(None, None, &[], PurgeLimits::VALUES);
        let writes = Arc::new(BegunWrites::default());
        let remove = |from: u64, to: u64| {
            for number in from..=to {
                purges.begin(vec![PurgeScope::Tag(TagHash(number.into()).name().into())], PurgeMode::Hard, 0);
            }
            purges.save().unwrap();
        };
        let usual = TAG_COUNT_USUAL as u64;
        remove(1, 10);
        let write = BegunWrite::new(&purges, &writes);
        remove(11, usual);
        assert_eq!(writes.begin_forgetting(&purges), None);
        remove(usual + 1, usual + 1);
        assert!(covers(&purges, 0, 1) && !covers(&purges, 0, 0));
        let up_to = writes.begin_forgetting(&purges);
        assert_eq!((up_to, writes.begin_forgetting(&purges)), (Some(10), None));
        writes.end_forgetting(&purges, up_to);
        assert!(covers(&purges, write.purge_count(), 11), "the write may still bring a value");
        assert_eq!(purges.tag_count() as u64, usual - 9);
        drop(write);
        remove(usual + 2, 3 * usual);
        let up_to = writes.begin_forgetting(&purges);
        assert_eq!(up_to, Some(3 * usual));
        writes.end_forgetting(&purges, up_to);
        assert_eq!(purges.tag_count(), 0);
        assert_eq!(BegunWrite::new(&purges, &writes).purge_count(), 3 * usual, "numbers are not used again");
    }

    #[test]
    fn hash_of_a_tag_depends_on_the_key() {
        let one = TagKey([1; 16]);
        let other = TagKey([2; 16]);
        assert_eq!(one.hash("user-7"), one.hash("user-7"));
        assert_ne!(one.hash("user-7"), other.hash("user-7"));
    }
}
