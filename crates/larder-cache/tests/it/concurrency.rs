//! Threads that write, remove and look up the same keys: a lookup never returns a value older than the last write that
//! had completed when the lookup began.

use crate::support::TestCache;
use futures_executor::block_on;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

/// A key with a single writer, which numbers its writes. Odd versions are values, even ones are removals.
#[derive(Default)]
struct WatchedKey {
    begun: AtomicU64,
    ended: AtomicU64,
}

const KEY_COUNT: usize = 8;
const WRITES: u64 = 1500;

/// Returns the value of a version: its number, and a number of bytes that depends on it.
fn value(version: u64) -> Vec<u8> {
    let len = [20, 5_000, 300_000, (1 << 20) + 5][version as usize / 2 % 4];
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.resize(len, version as u8);
    bytes
}

#[test]
fn lookup_never_returns_what_was_replaced_or_removed_before_it_began() {
    let test = TestCache::new();
    let keys: Vec<_> = (0..KEY_COUNT).map(|_| WatchedKey::default()).collect();
    let is_over = AtomicBool::new(false);
    let found_count = AtomicU64::new(0);
    thread::scope(|scope| {
        let test = &test;
        let keys = &keys;
        let is_over = &is_over;
        let found_count = &found_count;
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    for version in 1..=WRITES {
                        let number = (version as usize / 2 * 2 + writer) % KEY_COUNT;
                        write_next(test, &keys[number], number, version);
                    }
                })
            })
            .collect();
        for reader in 0..3 {
            scope.spawn(move || {
                let mut number = reader;
                while !is_over.load(SeqCst) {
                    number = (number + 1) % KEY_COUNT;
                    found_count.fetch_add(u64::from(check_lookup(test, &keys[number], number)), SeqCst);
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, SeqCst);
    });
    assert!(found_count.load(SeqCst) > 1000, "{found_count:?}");
}

fn write_next(test: &TestCache, key: &WatchedKey, number: usize, step: u64) {
    let version = key.begun.fetch_add(1, SeqCst) + 1;
    block_on(async {
        let name = number.to_string();
        if version % 2 == 1 {
            test.cache.entry(name).tag(&format!("tag {number}")).insert(value(version)).await.unwrap();
        } else if step.is_multiple_of(3) {
            test.cache.remove_tag(&format!("tag {number}")).await.unwrap();
        } else {
            test.cache.remove(name).await.unwrap();
        }
    });
    key.ended.store(version, SeqCst);
}

/// Looks a key up, and returns whether there was a value.
fn check_lookup(test: &TestCache, key: &WatchedKey, number: usize) -> bool {
    let ended = key.ended.load(SeqCst);
    let found = block_on(test.cache.get(number.to_string())).unwrap();
    let begun = key.begun.load(SeqCst);
    let Some(bytes) = found else { return false };
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!((ended..=begun).contains(&version), "version {version} of {ended} to {begun}");
    assert!(bytes == value(version));
    true
}
