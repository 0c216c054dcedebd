//! Guards against a plan that promises what the engine does not deliver.

use super::*;
use crate::{
    Hints, Store, StoreOptions,
    device::{MemoryDevice, block_on},
};
use std::sync::Arc;

const SIZE_BYTES: u64 = 256 << 20;

fn costs(policy: &Policy, mean_entry_bytes: u64, group_size: f64) -> PolicyCosts {
    let tuning = Tuning::default();
    let share_longer_than = |bytes: f64| if bytes >= 65_536.0 { 0.01 } else { 0.25 };
    let assumed = CostAssumptions {
        size_bytes: SIZE_BYTES,
        mean_entry_bytes,
        share_longer_than: &share_longer_than,
        hit_ratio: 0.6,
        hits_together: 1.0,
        group_size,
        tuning: &tuning,
    };
    policy.costs(&assumed)
}

/// Compares with the engine's own count of its memory, for every policy.
#[test]
fn memory_is_what_the_engine_says_it_takes() {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let mean = 8 << 10;
        let options =
            StoreOptions { policy, mean_entry_bytes: mean, background: false, ..StoreOptions::new("", SIZE_BYTES) };
        let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let store = Store::open_on(device, &options).unwrap();
        if matches!(policy.index, crate::IndexAxis::Buckets) {
            // The index allocates memory as entries arrive, whatever their length.
            for n in 0..SIZE_BYTES / mean {
                let writer = store.insert(&n.to_le_bytes(), "head".into(), Hints::default()).unwrap();
                block_on(writer.commit()).unwrap();
            }
        }
        let stats = store.stats();
        let told = costs(policy, mean, 1.0).index_bytes;
        let ratio = told / stats.index_bytes.max(1) as f64;
        assert!(
            stats.index_bytes == 0 && told == 0.0 || (0.85..1.2).contains(&ratio),
            "{policy}: told {told}, the engine says {}",
            stats.index_bytes
        );
    }
}

/// The published figures, as `tests/it/rows` finds them in the engine.
#[test]
fn transfers_are_those_of_the_papers() {
    let find = |name: &str| costs(Policy::named(name).expect("it is a row"), 8 << 10, 2.0);
    for (name, hit, miss) in [
        ("hashcache-basic", 1.25, 1.0),
        ("hashcache-set", 1.25, 1.0),
        ("hashcache-setmem", 1.25, 0.031),
        ("hashcache-setmem-lru", 1.25, 0.6 + 0.4 * 0.031),
        ("hashcache-log-n", 1.01, 0.031),
        // The position is read too: for half of the false matches, and for fewer hits, because recently used
        // entries have theirs in memory.
        ("hashcache-log-lru", 0.5 * (1.0 + 0.1294), 0.031 * 1.5),
        ("hashcache-log", 0.5, 0.031),
        ("log", 0.5 * 1.0037, 0.0037),
        ("stream", 1.0, 0.0),
        ("squid", 1.0, 0.0),
        ("ucfs", 0.5, 0.0),
    ] {
        let costs = find(name);
        assert!((costs.hit.reads() - hit).abs() < 0.001, "{name}: {:?}", costs.hit);
        assert!((costs.miss.reads() - miss).abs() < 0.001, "{name}: {:?}", costs.miss);
    }
    assert_eq!(find("hashcache-setmem").insert.random_writes, 1.25);
    assert_eq!(find("hashcache-log").insert.random_writes, 0.0);
    assert_eq!(find("squid").insert.file_replacements, 1.0);
    assert_eq!(find("buddy").insert.file_replacements, 0.01);
    let log = find("log").insert.written_bytes() / f64::from(8 << 10);
    assert!((1.3..1.4).contains(&log), "reinsertion writes a fifth of each segment again: {log}");
}

/// Guards against a policy of the table that a plan ignores.
#[test]
fn every_row_reads_for_a_hit_and_writes_for_an_insertion() {
    for policy in Policy::all() {
        let costs = costs(policy, 8 << 10, 1.0);
        assert!(costs.hit.reads() >= 1.0 && costs.entries > 1000.0, "{policy}: {costs:?}");
        assert!(costs.insert.written_bytes() >= f64::from(8 << 10), "{policy}: {costs:?}");
    }
}

#[test]
fn work_adds_up() {
    let one = TransferWork::reads_of(1.0, 10.0).and(TransferWork::writes_of(2.0, 5.0));
    let three = one.times(2.0).and(one);
    assert_eq!((three.reads(), three.random_read_bytes, three.written_bytes()), (3.0, 30.0, 30.0));
}
