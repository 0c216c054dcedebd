//! Tests of the memory cache.

use super::*;
use larder_device::SplitMix64;
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};

/// A value of this weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight(u64);

impl Weigh for Weight {
    fn weight_bytes(&self) -> u64 {
        self.0
    }
}

#[test]
fn values_stay_within_the_capacity() {
    let memory = MemoryCache::new(1 << 20);
    for number in 0..10_000_u32 {
        memory.replace(&number.to_le_bytes(), Weight(1000));
    }
    assert!(memory.bytes() <= 1 << 20, "{}", memory.bytes());
    assert!(memory.len() > 500, "{}", memory.len());
}

#[test]
fn value_that_is_too_large_removes_the_older_one() {
    let memory = MemoryCache::new(1 << 20);
    memory.replace(b"a", Weight(1000));
    memory.replace(b"a", Weight(1 << 19));
    assert!(memory.get(b"a").is_none());
}

#[test]
fn key_has_changed_since_a_moment_before_its_removal_or_that_of_all() {
    for capacity_bytes in [0, 1 << 20] {
        let memory: MemoryCache<Weight> = MemoryCache::new(capacity_bytes);
        let before = memory.moment();
        assert!(memory.is_unchanged(b"a", before));
        memory.remove(b"a");
        assert!(!memory.is_unchanged(b"a", before));
        let between = memory.moment();
        assert!(memory.is_unchanged(b"a", between));
        memory.clear();
        assert!(!memory.is_unchanged(b"a", between));
    }
}

#[test]
fn value_that_was_read_before_a_removal_is_not_kept_after_it() {
    let memory = MemoryCache::new(1 << 20);
    let before = memory.moment();
    memory.remove(b"a");
    memory.insert(b"a", Weight(1), before);
    assert!(memory.get(b"a").is_none());
    memory.insert(b"a", Weight(1), memory.moment());
    let before = memory.moment();
    memory.clear();
    memory.insert(b"a", Weight(1), before);
    assert!(memory.is_empty());
    memory.insert(b"a", Weight(1), memory.moment());
    assert_eq!(memory.get(b"a"), Some(Weight(1)));
}

#[test]
fn no_lookup_sees_a_value_older_than_the_last_removal() {
    let memory = MemoryCache::new(1 << 20);
    let version = AtomicU64::new(1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let moment = memory.moment();
                    memory.insert(b"a", Weight(version.load(SeqCst)), moment);
                }
            });
        }
        for latest in 2..30_000 {
            version.store(latest, SeqCst);
            memory.remove(b"a");
            let older = memory.get(b"a").filter(|value| value.0 < latest);
            if older.is_some() {
                is_over.store(true, SeqCst);
            }
            assert_eq!(older, None, "removed as number {latest}");
        }
        is_over.store(true, SeqCst);
    });
}

/// At stake: memory that is not given back, because most shards are empty.
#[test]
fn few_large_values_leave_when_the_capacity_shrinks() {
    const LEN: u64 = 1 << 20;
    for round in 0..50_u32 {
        let memory = MemoryCache::new(64 * LEN);
        for number in 0..6_u32 {
            memory.insert(&(round * 10 + number).to_le_bytes(), Weight(LEN), memory.moment());
        }
        assert_eq!(memory.len(), 6);
        assert!(memory.set_capacity_bytes(2 * LEN));
        assert!(memory.bytes() <= 2 * LEN && memory.len() == 1, "{} in {} bytes", memory.len(), memory.bytes());
    }
}

#[test]
fn cache_of_no_bytes_keeps_nothing() {
    let memory = MemoryCache::new(0);
    memory.replace(b"a", Weight(1));
    assert!(memory.get(b"a").is_none());
    assert!(!memory.can_keep(1));
    assert_eq!((memory.len(), memory.bytes()), (0, 0));
    assert!(memory.set_capacity_bytes(0) && !memory.set_capacity_bytes(1));
}

#[test]
fn unrequested_values_evict_none_that_was_requested_twice() {
    let memory = MemoryCache::new(1 << 20);
    for _ in 0..3 {
        for number in 0..500_u32 {
            if memory.get(&number.to_le_bytes()).is_none() {
                memory.insert(&number.to_le_bytes(), Weight(1000), memory.moment());
            }
        }
    }
    for number in 10_000..20_000_u32 {
        memory.insert_unrequested(&number.to_le_bytes(), Weight(1000), memory.moment());
    }
    let newest = (19_900..20_000_u32).filter(|number| memory.contains(&number.to_le_bytes())).count();
    assert!(newest > 50, "most of the newest hundred are there: {newest}");
    // The batches are small enough that evicted values still have ghosts when they are inserted again.
    for first in (20_000..70_000_u32).step_by(16) {
        for number in (first..first + 16).cycle().take(48) {
            memory.insert_unrequested(&number.to_le_bytes(), Weight(1000), memory.moment());
        }
    }
    let kept = (0..500_u32).filter(|number| memory.get(&number.to_le_bytes()).is_some()).count();
    assert_eq!(kept, 500);
}

#[test]
fn unrequested_value_replaces_none_that_is_present() {
    let memory = MemoryCache::new(1 << 20);
    let before = memory.moment();
    memory.replace(b"a", Weight(2));
    memory.insert_unrequested(b"a", Weight(1), before);
    memory.insert_unrequested(b"a", Weight(1), memory.moment());
    assert_eq!(memory.get(b"a"), Some(Weight(2)));
}

/// Hits and insertions of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TraceCounts {
    hits: u64,
    insertions: u64,
}

/// Requests keys whose values the store has. Inserts every value that was not in memory, or only the admitted ones.
fn request_all(keys: impl Iterator<Item = u64>, has_admission: bool) -> TraceCounts {
    let memory = MemoryCache::new(4 << 20);
    let mut counts = TraceCounts::default();
    for key in keys {
        let key = key.to_le_bytes();
        let moment = memory.moment();
        if memory.get(&key).is_some() {
            counts.hits += 1;
        } else if !has_admission || memory.admits(&key, 4000) {
            counts.insertions += 1;
            memory.insert(&key, Weight(4000), moment);
        }
    }
    counts
}

#[test]
fn admission_saves_insertions_where_few_values_are_popular() {
    let mut random = SplitMix64::new(7);
    // The logarithm of a key is equally distributed, which is Zipf's law.
    let keys: Vec<u64> = (0..200_000).map(|_| 100_000_f64.powf(random.share()) as u64).collect();
    let all = request_all(keys.iter().copied(), false);
    let admitted = request_all(keys.iter().copied(), true);
    assert!(admitted.hits >= all.hits, "{admitted:?} {all:?}");
    assert!(admitted.insertions * 5 <= all.insertions * 4, "{admitted:?} {all:?}");
}

#[test]
fn admission_costs_few_hits_where_each_value_is_popular_for_a_short_time() {
    // Each key is requested three times, a few requests apart.
    let keys = || (0..50_000_u64).flat_map(|number| [number, number.saturating_sub(5), number.saturating_sub(11)]);
    let all = request_all(keys(), false);
    let admitted = request_all(keys(), true);
    assert!(all.hits > 95_000, "{all:?}");
    assert!(admitted.hits >= all.hits / 100 * 97, "{admitted:?} {all:?}");
}

/// At stake: admission, where values take more than the length that callers know.
#[test]
fn gap_that_is_too_small_for_a_value_is_not_room() {
    const LEN: u64 = 4000;
    let entry_bytes = MemoryCache::<Weight>::entry_bytes(8, LEN + 400);
    let memory = MemoryCache::new(1000 * entry_bytes + LEN + 300);
    let mut admitted_count = 0;
    for key in 0..20_000_u64 {
        let key = key.to_le_bytes();
        if memory.get(&key).is_none() && memory.admits(&key, LEN) {
            admitted_count += 1;
            memory.insert(&key, Weight(LEN + 400), memory.moment());
        }
    }
    assert!((950..2500).contains(&admitted_count), "{admitted_count} of 20,000 that are requested once");
}

#[test]
fn allocated_bytes_are_those_of_the_allocators_list() {
    for len in (0..40_000).chain((40_000..2_000_000).step_by(997)) {
        assert_eq!(allocated_bytes(len), jemalloc_bytes(len), "{len} bytes");
    }
}

/// Returns what the allocator takes for `len` bytes, by its list of sizes. Longer allocations are whole pages of 4 KiB.
pub(crate) fn jemalloc_bytes(len: usize) -> u64 {
    const SIZES: [usize; 37] = [
        0, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
        1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    ];
    let listed = SIZES.into_iter().find(|size| *size >= len);
    listed.unwrap_or(len.div_ceil(4096) * 4096) as u64
}
