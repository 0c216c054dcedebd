//! Checks that a store that is not full admits every entry, however long, and loses none.

use crate::support::block_on;
use bytes::Bytes;
use larder_device::MemoryDevice;
use larder_store::{Clock, Hints, SplitMix64, Store, StoreOptions};
use std::{sync::Arc, time::Duration};

const SIZE_BYTES: u64 = 48 << 20;
const HEAD: Bytes = Bytes::from_static(b"a head of some sixty bytes, about as long as a short response has");

/// Creates a store with the defaults for its size, in virtual time.
fn store() -> Store {
    let options = StoreOptions {
        clock: Clock::manual(Duration::from_secs(1_700_000_000)),
        background: false,
        identity_seed: Some(1),
        ..StoreOptions::new("", SIZE_BYTES)
    };
    Store::open_on(Arc::new(MemoryDevice::new(SIZE_BYTES)), &options).unwrap()
}

/// Bytes that the `n`-th entry is long.
type Length = fn(u64) -> u64;

const LENGTHS: [(&str, Length); 5] = [
    ("500 B", |_| 500),
    ("2,000 B", |_| 2_000),
    ("12 KiB", |_| 12 << 10),
    ("1 MiB", |_| 1 << 20),
    ("mixed", |n| 1 << (6 + SplitMix64::new(n).below(14))),
];

/// Offers entries until `share` of the volume's bytes were stored. Returns their number.
fn fill(store: &Store, length: Length, share: f64) -> u64 {
    let mut stored_bytes = 0.0;
    let mut n = 0_u64;
    while stored_bytes < SIZE_BYTES as f64 * share {
        let mut writer = store.insert(&n.to_le_bytes(), HEAD, Hints::default()).unwrap();
        writer.write(vec![n as u8; length(n) as usize].into()).unwrap();
        if share > 1.0 {
            // It is not offered to admission, so it is always stored.
            block_on(writer.commit()).unwrap();
        } else {
            assert!(block_on(writer.offer()).unwrap(), "entry {n} is refused");
        }
        // A record takes whole sectors.
        stored_bytes += ((length(n) + 64 + 8 + HEAD.len() as u64) as f64 / 512.0).ceil() * 512.0;
        n += 1;
        if n.is_multiple_of(64) {
            block_on(store.maintain());
        }
    }
    n
}

#[test]
fn in_a_store_that_is_not_full_every_second_request_is_a_hit() {
    for (name, length) in LENGTHS {
        let store = store();
        let stored = fill(&store, length, 0.75);
        let found = (0..stored).filter(|n| block_on(store.get(&n.to_le_bytes())).unwrap().is_some()).count() as u64;
        let stats = store.stats();
        assert_eq!((found, stats.displaced, stats.evicted), (stored, 0, 0), "of {name}");
    }
}

#[test]
fn a_full_store_displaces_nothing_and_takes_60_bits_of_memory_an_entry() {
    for (name, length) in LENGTHS {
        let store = store();
        fill(&store, length, 2.0);
        let stats = store.stats();
        assert_eq!(stats.displaced, 0, "of {name}");
        // With few entries, fixed parts of some hundred bytes would dominate the memory per entry.
        if stats.entries > 2_000 {
            let bits = stats.index_bytes as f64 * 8.0 / stats.entries as f64;
            assert!(bits <= 60.0, "{bits} bits for entries of {name}");
        }
    }
}

#[test]
fn a_full_store_holds_live_records_in_nine_tenths_of_its_bytes() {
    for (name, length) in LENGTHS {
        let store = store();
        let stored = fill(&store, length, 2.2);
        let record_bytes = |n: u64| 64 + 8 + HEAD.len() as u64 + length(n) + length(n).div_ceil(64 << 10) * 4;
        let live: u64 = (0..stored).filter(|n| store.may_contain(&n.to_le_bytes())).map(record_bytes).sum();
        assert!(live * 100 >= SIZE_BYTES * 89, "{:.1}% for {name}", live as f64 * 100.0 / SIZE_BYTES as f64);
    }
}

#[test]
fn a_store_that_is_opened_again_has_as_many_entries_as_before() {
    for (name, length) in LENGTHS {
        let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let options = StoreOptions {
            clock: Clock::manual(Duration::from_secs(1_700_000_000)),
            background: false,
            ..StoreOptions::new("", SIZE_BYTES)
        };
        let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
        let stored = fill(&store, length, 0.7);
        block_on(store.close()).unwrap();
        let again = Store::open_on(device as _, &options).unwrap();
        let found = (0..stored).filter(|n| block_on(again.get(&n.to_le_bytes())).unwrap().is_some()).count() as u64;
        assert_eq!((found, again.stats().displaced), (stored, 0), "of {name}");
    }
}
