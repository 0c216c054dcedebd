//! Measures the log's hits and bytes written on a Zipf trace, by policy and with and without reinsertion, and compares
//! them with an LRU of the same bytes. Runs the shipping engine on a device in memory.
//!
//! `cargo run --profile fast -p larder-store --example log_hits [REQUESTS]`; `docs/measurements.md` has results.

use bytes::Bytes;
use futures_executor::block_on;
use larder_device::MemoryDevice;
use larder_store::{Clock, Hints, Policy, SplitMix64, Stats, Store, StoreOptions};
use std::{
    collections::{BTreeMap, HashMap},
    env,
    sync::Arc,
    time::Duration,
};

const KEYS: u64 = 400_000;
const VOLUME_BYTES: u64 = 256 << 20;
const SEGMENT_BYTES: u64 = 2 << 20;
/// Approximate bytes of a key, a head and a record's own fields.
const OVERHEAD_BYTES: u64 = 100;
const SEED: u64 = 42;

fn main() -> larder_store::Result<()> {
    let requests: u64 = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3_000_000);
    println!(
        "{requests} requests for {KEYS} keys of 0.5 to 16 KiB, volume of {} MiB; counted is the second half",
        VOLUME_BYTES >> 20
    );
    println!("| Zipf exponent | row | reinsertion | miss ratio | written per byte admitted | per byte asked for |");
    println!("|---|---|---|---|---|---|");
    for exponent in [0.7, 0.9, 1.1] {
        let trace = Zipf::new(exponent).trace(requests);
        for (row, reinsertion) in [("log-clock", false), ("log-clock", true), ("log", false), ("log", true)] {
            let Outcome { missed, written_per_admitted, written_per_asked } = run(&trace, row, reinsertion)?;
            let on = |switch| if switch { "on" } else { "off" };
            println!(
                "| {exponent} | {row} | {} | {missed:.4} | {written_per_admitted:.3} | {written_per_asked:.3} |",
                on(reinsertion)
            );
        }
        println!("| {exponent} | LRU of the same bytes | | {:.4} | | |", lru(&trace));
    }
    Ok(())
}

struct Outcome {
    missed: f64,
    written_per_admitted: f64,
    written_per_asked: f64,
}

fn run(trace: &[u32], row: &str, reinsertion: bool) -> larder_store::Result<Outcome> {
    let clock = Clock::manual(Duration::from_secs(1_700_000_000));
    let mut options = StoreOptions {
        mean_entry_bytes: 4096,
        segment_size_bytes: Some(SEGMENT_BYTES),
        clock: clock.clone(),
        background: false,
        ..StoreOptions::new("", VOLUME_BYTES)
    };
    if !reinsertion {
        options.tuning.reinsertion_share = 0.0;
    }
    options.policy = Policy::named(row).expect("both rows are in the table");
    let store = Store::open_on(Arc::new(MemoryDevice::new(VOLUME_BYTES)), &options)?;
    let pool = Bytes::from(vec![7; 32 << 10]);
    let mut before = Stats::default();
    let mut missed = 0;
    let mut asked_bytes = 0;
    for (at, &key) in trace.iter().enumerate() {
        if at == trace.len() / 2 {
            (before, missed, asked_bytes) = (store.stats(), 0, 0);
        }
        let name = format!("http://zipf.example/{key}");
        asked_bytes += size_bytes(key);
        if block_on(store.get(name.as_bytes()))?.is_none() {
            missed += 1;
            let mut writer = store.insert(name.as_bytes(), Bytes::from_static(b"head"), Hints::default())?;
            writer.write(pool.slice(..size_bytes(key) as usize))?;
            block_on(writer.offer())?;
        }
        if at % 1000 == 0 {
            clock.advance(Duration::from_millis(100));
            block_on(store.maintain());
        }
    }
    let after = store.stats();
    let written = (after.written_bytes - before.written_bytes) as f64;
    Ok(Outcome {
        missed: f64::from(missed) / (trace.len() - trace.len() / 2) as f64,
        written_per_admitted: written / (after.admitted_bytes - before.admitted_bytes) as f64,
        written_per_asked: written / asked_bytes as f64,
    })
}

/// Returns the miss ratio of an LRU with as many bytes, in the second half of the trace.
fn lru(trace: &[u32]) -> f64 {
    let mut used_at = HashMap::new();
    let mut by_use = BTreeMap::new();
    let mut used_bytes = 0;
    let mut missed = 0;
    for (at, &key) in trace.iter().enumerate() {
        match used_at.insert(key, at) {
            Some(before) => _ = by_use.remove(&before),
            None => {
                missed += u64::from(at >= trace.len() / 2);
                used_bytes += size_bytes(key) + OVERHEAD_BYTES;
            }
        }
        by_use.insert(at, key);
        while used_bytes > VOLUME_BYTES {
            let Some((_, oldest)) = by_use.pop_first() else { break };
            used_at.remove(&oldest);
            used_bytes -= size_bytes(oldest) + OVERHEAD_BYTES;
        }
    }
    missed as f64 / (trace.len() - trace.len() / 2) as f64
}

/// Returns the length of a body: most are short, up to 16 KiB.
fn size_bytes(key: u32) -> u64 {
    let mut random = SplitMix64::new(u64::from(key));
    512 << random.below(6) | random.below(512)
}

/// A distribution in which the n-th most popular key has a probability proportional to 1 / n^exponent.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| (rank as f64).powf(-exponent);
        let sums = (1..=KEYS).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn trace(&self, requests: u64) -> Vec<u32> {
        let mut random = SplitMix64::new(SEED);
        let whole = self.sums[self.sums.len() - 1];
        let draw = |random: &mut SplitMix64| whole * random.share();
        (0..requests)
            .map(|_| {
                let drawn = draw(&mut random);
                self.sums.partition_point(|&sum| sum < drawn) as u32
            })
            .collect()
    }
}
