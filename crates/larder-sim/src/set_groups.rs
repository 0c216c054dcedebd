//! Groups of sets that are written once, after Nemo (ASPLOS 2026): the alternative to `tiny` that RFC 11 measures.
//!
//! New objects go to a log with 5% of the flash, as in Kangaroo. When it is full, its objects are sorted into the sets
//! of one group, which is written in one stretch. The oldest group is dropped, except that its objects that were hit
//! are appended to the log again. A key can be in one set of each group, so a lookup asks the Bloom filters of all
//! groups. Nemo gathers a group in memory; the log takes its place here, because a group has gigabytes on a terabyte of
//! flash.
//!
//! Owns: which objects are kept, and the bytes written. Invariant: an object is in the log or in one group. Cost: about
//! 80 bytes of memory an object.

use larder_workload::mix;
use std::collections::{HashMap, VecDeque};

const LOG_PERCENT: u64 = 5;
const SET_BYTES: u64 = 4096;
const SET_HEAD_BYTES: u64 = 24;
/// Header and key of an object, as in [`Kangaroo`](crate::Kangaroo).
const OBJECT_HEAD_BYTES: u64 = 16 + 8;
/// Share of a group's bytes that its objects may take, in percent. Nemo writes a group once it is 89% full. More
/// objects would find no room in their sets.
const FILL_PERCENT: u64 = 89;
/// Bits of memory for an object in the log.
const LOG_OBJECT_BITS: f64 = 48.0;
/// Useless reads of a lookup that the Bloom filters of all groups together may cause.
const FALSE_READS: f64 = 0.2;

/// A log in front of groups of sets.
pub struct SetGroups {
    log_bytes: u64,
    group_count_max: usize,
    log: Vec<u64>,
    log_used_bytes: u64,
    /// The keys of each group, oldest first.
    groups: VecDeque<Vec<u64>>,
    objects: HashMap<u64, GroupedObject>,
    /// Bytes of objects that were stored.
    pub(crate) admitted_bytes: u64,
    /// Bytes written.
    pub(crate) written_bytes: u64,
}

#[derive(Clone, Copy)]
struct GroupedObject {
    size_bytes: u64,
    is_hit: bool,
}

impl SetGroups {
    /// Creates an empty cache of `flash_bytes`.
    pub fn new(flash_bytes: u64) -> Self {
        let log_bytes = (flash_bytes * LOG_PERCENT / 100).max(SET_BYTES);
        let group_bytes = log_bytes * 100 / FILL_PERCENT;
        Self {
            log_bytes,
            group_count_max: ((flash_bytes - log_bytes) / group_bytes).max(1) as usize,
            log: Vec::new(),
            log_used_bytes: 0,
            groups: VecDeque::new(),
            objects: HashMap::new(),
            admitted_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Requests an object, which is stored after a miss. Returns whether it was a hit.
    pub fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        if let Some(object) = self.objects.get_mut(&key) {
            object.is_hit = true;
            return true;
        }
        if OBJECT_HEAD_BYTES + size_bytes <= SET_BYTES - SET_HEAD_BYTES {
            self.admitted_bytes += size_bytes;
            self.append(key, size_bytes);
        }
        false
    }

    /// Returns the number of objects that it holds.
    pub fn len(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Returns whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the memory of the index in bits: filters that cause few useless reads, a hit bit an object, and the
    /// log's index.
    pub fn index_bits(&self) -> f64 {
        let log_count = self.log.len() as f64;
        // A Bloom filter takes log2(1 / p) / ln 2 bits an object.
        let false_share = FALSE_READS / self.groups.len().max(1) as f64;
        let filter_bits = (1.0 / false_share).log2() / std::f64::consts::LN_2;
        (self.len() as f64 - log_count) * (filter_bits + 1.0) + log_count * LOG_OBJECT_BITS
    }

    fn append(&mut self, key: u64, size_bytes: u64) {
        let stored_bytes = OBJECT_HEAD_BYTES + size_bytes;
        if self.log_used_bytes + stored_bytes > self.log_bytes {
            self.write_group();
        }
        self.log_used_bytes += stored_bytes;
        self.written_bytes += stored_bytes;
        self.log.push(key);
        self.objects.insert(key, GroupedObject { size_bytes, is_hit: false });
    }

    /// Sorts the log into the sets of a new group. Objects whose set is full are dropped, or appended again if they
    /// were hit, like those of the group that makes room.
    fn write_group(&mut self) {
        let set_count = (self.log_bytes * 100 / FILL_PERCENT / SET_BYTES).max(1);
        let mut used_bytes = vec![0; set_count as usize];
        let mut group = Vec::with_capacity(self.log.len());
        let mut left_over = Vec::new();
        for key in std::mem::take(&mut self.log) {
            let stored_bytes = OBJECT_HEAD_BYTES + self.objects[&key].size_bytes;
            let used = &mut used_bytes[(mix(key) % set_count) as usize];
            if *used + stored_bytes <= SET_BYTES - SET_HEAD_BYTES {
                *used += stored_bytes;
                group.push(key);
            } else {
                left_over.push(key);
            }
        }
        self.log_used_bytes = 0;
        self.written_bytes += set_count * SET_BYTES;
        self.groups.push_back(group);
        if self.groups.len() > self.group_count_max {
            left_over.extend(self.groups.pop_front().unwrap_or_default());
        }
        for key in left_over {
            let object = self.objects.remove(&key).expect("what is listed is held");
            // A hit since the object was written last counts once. At most half of the log is filled in this way.
            if object.is_hit && self.log_used_bytes < self.log_bytes / 2 {
                self.append(key, object.size_bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_workload::Workload;

    #[test]
    fn groups_are_written_once_and_objects_that_were_hit_return() {
        let mut cache = SetGroups::new(4 << 20);
        let workload = Workload::named("small-objects", 5, 1 << 20, 8 << 20).expect("it is a workload");
        let hits = workload.take(300_000).filter(|asked| cache.request(asked.request.key, asked.request.size_bytes));
        assert!(hits.count() > 60_000);
        let written = cache.written_bytes as f64 / cache.admitted_bytes as f64;
        assert!((2.0..4.0).contains(&written), "log and group: {written}");
        assert_eq!(cache.groups.len(), cache.group_count_max);
        let listed: usize = cache.groups.iter().map(Vec::len).sum::<usize>() + cache.log.len();
        assert_eq!(listed as u64, cache.len());
        let bits = cache.index_bits() / cache.len() as f64;
        assert!((9.0..16.0).contains(&bits), "{bits}");
    }
}
