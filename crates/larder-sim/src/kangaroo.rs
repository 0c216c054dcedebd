//! Kangaroo (McAllister et al., SOSP 2021): a small log in front of sets, for objects of about 100 bytes on flash.
//!
//! The baseline of the policy `tiny`. Owns: which objects the log and the sets hold, the bytes that they write, and the
//! memory that the published index takes. Nothing is placed on a device. The rules are those of the paper and of its
//! authors' programs (github.com/saramcallister: Kangaroo, CacheLib):
//!
//! - 90% of the objects are admitted, at random.
//! - The log has 5% of the flash. Its oldest segment is emptied when it is full. All objects of the log that belong to
//!   one set move there together if there are at least two. Otherwise the object is dropped, or appended again if it
//!   was hit.
//! - A set has 4 KiB. When it is written, entries that were hit since get rank 0, and the ranks of the others rise
//!   until one is 7. New objects have rank 6, or 0 if they were hit in the log. They displace entries of the same or a
//!   higher rank only (RRIParoo).
//!
//! The 7% of the flash that the paper leaves free for the device's own use are not subtracted, because `tiny` is not
//! charged for them either. Invariant: an object is in the log or in a set, not in both. Cost: about 100 bytes of
//! memory an object.

use larder_workload::{Random, mix};
use std::collections::{HashMap, VecDeque};

/// Share of the objects that are admitted, chosen at random.
const ADMITTED_SHARE: f64 = 0.9;
const LOG_PERCENT: u64 = 5;
/// Minimum number of a set's objects in the log. With fewer, the set is not written.
const THRESHOLD: usize = 2;
const SET_BYTES: u64 = 4096;
/// Bytes of a set's header: checksum, generation and sizes (`RripBucket` in CacheLib).
const SET_HEAD_BYTES: u64 = 24;
/// Bytes of an object's header: lengths and hash (12 bytes), and a slot with its rank (4 bytes).
const OBJECT_HEAD_BYTES: u64 = 16;
const KEY_BYTES: u64 = 8;
/// Maximum length of a segment of the log, in bytes. In small caches segments are shorter, so that there are at least
/// [`LOG_SEGMENTS`].
const SEGMENT_BYTES_MAX: u64 = 256 << 10;
const LOG_SEGMENTS: u64 = 16;
/// Rank of an object that is evicted next.
const FAR: u8 = 7;
/// Rank of a new object that was not hit.
const LONG: u8 = 6;
/// Bits of memory for each object in the log: tag, place, next and rank.
const LOG_OBJECT_BITS: u64 = 48;
/// Bits of memory for each set: the head of its list in the index of the log.
const LIST_HEAD_BITS: u64 = 16;
/// Bits of memory for each object that fits in a set: its part of a Bloom filter, and a hit bit.
const SET_OBJECT_BITS: u64 = 3 + 1;

/// A cache of Kangaroo: a log in front of sets.
pub struct Kangaroo {
    shape: Shape,
    sets: Vec<Vec<SetEntry>>,
    /// For each object in a set, the number of that set.
    in_sets: HashMap<u64, u32>,
    in_log: HashMap<u64, LogEntry>,
    /// For each set, the keys of its objects in the log, the oldest first.
    log_of_set: HashMap<u32, Vec<u64>>,
    /// The keys in the full segments of the log, the oldest first. `open` is the segment that is being filled.
    segments: VecDeque<Vec<u64>>,
    open: Segment,
    random: Random,
    counts: KangarooCounts,
}

/// Numbers and lengths of the parts of a cache.
struct Shape {
    segment_bytes: u64,
    segment_count: usize,
    set_count: u64,
}

/// Returns the bytes that an object of `size_bytes` takes in the log or in a set.
fn stored_bytes_of(size_bytes: u64) -> u64 {
    OBJECT_HEAD_BYTES + KEY_BYTES + size_bytes
}

/// The bytes that a cache has admitted and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KangarooCounts {
    /// Bytes of the objects that were admitted.
    pub admitted_bytes: u64,
    /// Bytes written to flash, as whole segments and sets.
    pub written_bytes: u64,
}

#[derive(Default)]
struct Segment {
    number: u64,
    used_bytes: u64,
    keys: Vec<u64>,
}

#[derive(Clone, Copy)]
struct LogEntry {
    segment: u64,
    size_bytes: u64,
    is_hit: bool,
}

struct SetEntry {
    key: u64,
    stored_bytes: u64,
    rank: u8,
    is_hit: bool,
}

impl Kangaroo {
    /// Creates an empty cache of `flash_bytes`. Its objects have headers as in the paper's implementation.
    pub fn new(flash_bytes: u64, seed: u64) -> Self {
        let log_bytes = flash_bytes * LOG_PERCENT / 100;
        let segment_bytes = (log_bytes / LOG_SEGMENTS).clamp(SET_BYTES, SEGMENT_BYTES_MAX);
        let segment_count = (log_bytes / segment_bytes).max(2) as usize;
        let set_count = (flash_bytes.saturating_sub(segment_count as u64 * segment_bytes) / SET_BYTES).max(1);
        Self {
            shape: Shape { segment_bytes, segment_count, set_count },
            sets: (0..set_count).map(|_| Vec::new()).collect(),
            in_sets: HashMap::new(),
            in_log: HashMap::new(),
            log_of_set: HashMap::new(),
            segments: VecDeque::new(),
            open: Segment::default(),
            random: Random::new(seed ^ 0x4B41_4E47),
            counts: KangarooCounts::default(),
        }
    }

    /// Requests an object. If it is a miss, the object may be admitted. Returns whether it was a hit.
    pub fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(entry) = self.in_log.get_mut(&key) {
            entry.is_hit = true;
            return true;
        }
        if let Some(&set) = self.in_sets.get(&key) {
            let entry = self.sets[set as usize].iter_mut().find(|entry| entry.key == key);
            entry.expect("an object is in the set that it is noted for").is_hit = true;
            return true;
        }
        let fits = stored_bytes_of(size_bytes) <= SET_BYTES - SET_HEAD_BYTES;
        if fits && self.random.happens(ADMITTED_SHARE) {
            self.counts.admitted_bytes += size_bytes;
            self.append(key, size_bytes);
        }
        false
    }

    /// Returns the number of stored objects.
    pub fn len(&self) -> u64 {
        (self.in_log.len() + self.in_sets.len()) as u64
    }

    /// Returns whether no object is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes admitted and written since the cache was created.
    pub fn counts(&self) -> KangarooCounts {
        self.counts
    }

    /// Returns the memory of the index in bits, computed as in the paper, for objects of `mean_bytes` on average.
    pub fn index_bits(&self, mean_bytes: u64) -> u64 {
        let stored_bytes = stored_bytes_of(mean_bytes).max(1);
        let log_bytes = self.shape.segment_bytes * self.shape.segment_count as u64;
        let set_objects = (SET_BYTES - SET_HEAD_BYTES) / stored_bytes;
        log_bytes / stored_bytes * LOG_OBJECT_BITS
            + self.shape.set_count * (LIST_HEAD_BITS + set_objects * SET_OBJECT_BITS)
    }

    fn set_of(&self, key: u64) -> u32 {
        (mix(key) % self.shape.set_count) as u32
    }

    fn append(&mut self, key: u64, size_bytes: u64) {
        let stored_bytes = stored_bytes_of(size_bytes);
        if self.open.used_bytes + stored_bytes > self.shape.segment_bytes {
            self.end_segment();
        }
        // Emptying the oldest segment appends its hit objects, so the new segment is not empty.
        self.open.used_bytes += stored_bytes;
        self.open.keys.push(key);
        self.in_log.insert(key, LogEntry { segment: self.open.number, size_bytes, is_hit: false });
        let set = self.set_of(key);
        self.log_of_set.entry(set).or_default().push(key);
    }

    fn end_segment(&mut self) {
        self.counts.written_bytes += self.shape.segment_bytes;
        let number = self.open.number + 1;
        let full = std::mem::replace(&mut self.open, Segment { number, ..Segment::default() });
        self.segments.push_back(full.keys);
        if self.segments.len() >= self.shape.segment_count {
            self.empty_oldest();
        }
    }

    fn empty_oldest(&mut self) {
        let number = self.open.number - self.segments.len() as u64;
        for key in self.segments.pop_front().unwrap_or_default() {
            // An object that has moved already, or was appended again, is not in this segment.
            if self.in_log.get(&key).is_none_or(|entry| entry.segment != number) {
                continue;
            }
            let set = self.set_of(key);
            let together = self.log_of_set.get(&set).map_or(0, Vec::len);
            if together >= THRESHOLD {
                self.move_to_set(set);
            } else {
                self.leave_log(key);
            }
        }
    }

    /// Moves all objects in the log that belong to `set` to this set.
    fn move_to_set(&mut self, set: u32) {
        self.counts.written_bytes += SET_BYTES;
        self.age(set);
        let keys = self.log_of_set.remove(&set).unwrap_or_default();
        for key in keys {
            let entry = self.in_log.remove(&key).expect("what is listed is in the log");
            let is_taken = self.insert(set, key, entry);
            if !is_taken && entry.is_hit {
                self.append_again(key, entry.size_bytes);
            }
        }
    }

    /// Removes an object from the log because too few other objects there belong to its set. If the object was hit, it
    /// is appended to the log again.
    fn leave_log(&mut self, key: u64) {
        let set = self.set_of(key);
        if let Some(keys) = self.log_of_set.get_mut(&set) {
            keys.retain(|other| *other != key);
        }
        let entry = self.in_log.remove(&key);
        if let Some(entry) = entry.filter(|entry| entry.is_hit) {
            self.append_again(key, entry.size_bytes);
        }
    }

    /// Appends an object to the log, if it fits in the open segment.
    fn append_again(&mut self, key: u64, size_bytes: u64) {
        if self.open.used_bytes + stored_bytes_of(size_bytes) <= self.shape.segment_bytes {
            self.append(key, size_bytes);
        }
    }

    /// Updates the ranks of a set's objects, before the set is written.
    fn age(&mut self, set: u32) {
        let entries = &mut self.sets[set as usize];
        let farthest = entries.iter().filter(|entry| !entry.is_hit).map(|entry| entry.rank).max();
        let step = FAR - farthest.unwrap_or(FAR);
        for entry in entries {
            entry.rank = if entry.is_hit { 0 } else { entry.rank + step };
            entry.is_hit = false;
        }
    }

    /// Adds an object to a set, in place of objects with the same or a higher rank. Returns whether it fits.
    fn insert(&mut self, set: u32, key: u64, entry: LogEntry) -> bool {
        let stored_bytes = stored_bytes_of(entry.size_bytes);
        let rank = if entry.is_hit { 0 } else { LONG };
        let entries = &mut self.sets[set as usize];
        let used_bytes: u64 = entries.iter().map(|entry| entry.stored_bytes).sum();
        let mut room_bytes = SET_BYTES - SET_HEAD_BYTES - used_bytes;
        let yields = entries.iter().filter(|entry| entry.rank >= rank).map(|entry| entry.stored_bytes);
        if room_bytes + yields.sum::<u64>() < stored_bytes {
            return false;
        }
        while room_bytes < stored_bytes {
            // The first of the highest rank, which came earliest.
            let rank = entries.iter().map(|entry| entry.rank).max().expect("there are entries to displace");
            let at = entries.iter().position(|entry| entry.rank == rank).expect("one of them has it");
            let gone = entries.remove(at);
            room_bytes += gone.stored_bytes;
            self.in_sets.remove(&gone.key);
        }
        entries.push(SetEntry { key, stored_bytes, rank, is_hit: false });
        self.in_sets.insert(key, set);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_workload::Workload;

    /// Requests `count` objects of 100 to 200 bytes. Returns the cache, and the number of hits in the second half.
    fn run(flash_bytes: u64, count: usize) -> (Kangaroo, usize) {
        let mut cache = Kangaroo::new(flash_bytes, 1);
        let workload = Workload::named("small-objects", 5, 1 << 20, 4 << 20).expect("it is a workload");
        let hits: Vec<_> =
            workload.take(count).map(|asked| cache.request(asked.request.key, asked.request.size_bytes)).collect();
        (cache, hits[count / 2..].iter().filter(|hit| **hit).count())
    }

    #[test]
    fn a_set_is_written_for_two_objects_and_not_for_one() {
        let mut cache = Kangaroo::new(1 << 20, 1);
        cache.append(1, 100);
        cache.append(2, 100);
        let other = (3..).find(|key| cache.set_of(*key) == cache.set_of(1) && *key != 2).expect("keys share sets");
        cache.append(other, 100);
        cache.end_segment();
        let before = cache.counts.written_bytes;
        cache.empty_oldest();
        let moved = [1, 2, other].map(|key| cache.in_sets.contains_key(&key));
        assert_eq!(moved, [true, cache.set_of(2) == cache.set_of(1), true]);
        assert_eq!(cache.counts.written_bytes - before, SET_BYTES);
        assert!(cache.in_log.is_empty(), "the others are dropped");
    }

    #[test]
    fn an_object_that_was_hit_in_the_log_is_appended_again() {
        let mut cache = Kangaroo::new(1 << 20, 1);
        cache.append(1, 100);
        cache.append(2, 100);
        assert!(cache.set_of(1) != cache.set_of(2) && cache.request(2, 100));
        cache.end_segment();
        cache.empty_oldest();
        assert_eq!([1, 2].map(|key| cache.in_log.contains_key(&key)), [false, true]);
        assert!(!cache.in_log[&2].is_hit, "its next hit counts anew");
    }

    #[test]
    fn entries_that_were_hit_stay_in_a_full_set() {
        let mut cache = Kangaroo::new(1 << 20, 1);
        let entry = |is_hit| LogEntry { segment: 0, size_bytes: 1000, is_hit };
        (1..=3).for_each(|key| assert!(cache.insert(7, key, entry(false))));
        assert!(cache.request(2, 1000));
        cache.age(7);
        assert!(cache.insert(7, 4, entry(false)));
        let kept: Vec<_> = cache.sets[7].iter().map(|entry| (entry.key, entry.rank)).collect();
        assert_eq!(kept, [(2, 0), (3, FAR), (4, LONG)], "the first of the farthest goes");
        (5..=6).for_each(|key| assert!(cache.insert(7, key, entry(true))));
        assert!(!cache.insert(7, 8, entry(false)), "a new object does not displace one that was hit");
    }

    /// Guards against a baseline that is weaker than the published one. The paper has 7.0 bits of memory per object of
    /// 200 bytes, and writes 5.8 bytes for each byte of objects of 100 bytes.
    #[test]
    fn memory_and_writes_are_about_as_published() {
        let (cache, hits) = run(2 << 20, 200_000);
        let bits = cache.index_bits(150) as f64 / cache.len() as f64;
        assert!((6.0..9.0).contains(&bits), "{bits}");
        let counts = cache.counts();
        let written = counts.written_bytes as f64 / counts.admitted_bytes as f64;
        assert!((3.0..12.0).contains(&written), "{written}");
        assert!(hits > 30_000, "{hits}");
        let in_sets: usize = cache.sets.iter().map(Vec::len).sum();
        assert_eq!(in_sets, cache.in_sets.len());
        let listed: usize = cache.log_of_set.values().map(Vec::len).sum();
        assert_eq!(listed, cache.in_log.len());
    }
}
