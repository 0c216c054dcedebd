//! Tests of the memory cache.

use super::*;
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
    let memory = MemoryCache::with_room_for_unrequested(1 << 20);
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
    assert!(memory.get(&19_999_u32.to_le_bytes()).is_some(), "the newest is there");
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
