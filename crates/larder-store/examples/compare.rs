//! Compares policies on one reproducible trace: misses, bytes written, reads per hit, memory per entry.
//!
//! `cargo run --release -p larder-store --example compare -- [--mib 256] [--requests 2000000] [--seed 1] [--tune
//! NAME=NUMBER].. ROW...` Keys follow a Zipf distribution. Their sizes are lognormal like those of web responses (sigma
//! 1.05, as in the synthetic trace of `larder sim`), with means of 5 KB, 10 KB and 1 KB in turn. A miss is inserted.
//! The device is memory, and time advances by 1 ms per request. The first half of the trace fills the store; only the
//! second half is counted.

use bytes::Bytes;
use larder_device::{MemoryDevice, MemoryDirectory};
use larder_store::{Clock, Hints, Policy, SplitMix64, Store, StoreOptions, Tuning, TuningValue};
use std::{env, error::Error, sync::Arc, time::Duration};

const SIGMA: f64 = 1.05;
const HEAD_BYTES: usize = 250;
const BODY_BYTES_MAX: usize = 1 << 20;

struct Settings {
    mib: u64,
    requests: u64,
    seed: u64,
    alpha: f64,
    rows: Vec<&'static Policy>,
    tuning: Tuning,
}

fn main() -> Result<(), Box<dyn Error>> {
    let settings = settings()?;
    println!(
        "{} MiB in memory, {} requests, Zipf {}, seed {}; the second half is counted",
        settings.mib, settings.requests, settings.alpha, settings.seed
    );
    for mean_bytes in [5 << 10, 10 << 10, 1 << 10] {
        // The requested keys have four times the store's bytes.
        let keys = 4 * (settings.mib << 20) / mean_bytes;
        println!("\nmean {} B, {keys} keys", mean_bytes);
        println!(
            "{:<18} {:>8} {:>12} {:>13} {:>9} {:>10} {:>9} {:>9}",
            "row", "miss %", "written MB", "per admitted", "reads/hit", "reads/miss", "entries", "bits"
        );
        for policy in &settings.rows {
            run(policy, &settings, keys, mean_bytes)?;
        }
    }
    Ok(())
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut settings =
        Settings { mib: 256, requests: 2_000_000, seed: 1, alpha: 0.9, rows: Vec::new(), tuning: Tuning::default() };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--mib" => settings.mib = value()?.parse()?,
            "--requests" => settings.requests = value()?.parse()?,
            "--seed" => settings.seed = value()?.parse()?,
            "--alpha" => settings.alpha = value()?.parse()?,
            "--tune" => {
                let text = value()?;
                let (name, number) = text.split_once('=').ok_or("--tune takes NAME=NUMBER")?;
                settings.tuning.set(name, TuningValue::Number(number.parse()?))?;
            }
            row => settings.rows.push(Policy::named(row).ok_or(format!("no such row: {row}"))?),
        }
    }
    if settings.rows.is_empty() {
        settings.rows = Policy::all().iter().collect();
    }
    Ok(settings)
}

fn run(policy: &'static Policy, settings: &Settings, keys: u64, mean_bytes: u64) -> Result<(), Box<dyn Error>> {
    let size_bytes = settings.mib << 20;
    let clock = Clock::manual(Duration::from_secs(1_700_000_000));
    let mut options = StoreOptions::new("", size_bytes);
    options.policy = policy;
    options.mean_entry_bytes = mean_bytes + HEAD_BYTES as u64;
    options.tuning = settings.tuning.clone();
    options.clock = clock.clone();
    options.background = false;
    let device = Arc::new(MemoryDevice::new(size_bytes));
    let store = if policy.layout.keeps_files() {
        Store::open_on_files(device, Arc::new(MemoryDirectory::new(size_bytes)), &options)?
    } else {
        Store::open_on(device, &options)?
    };
    let body = Bytes::from(vec![7; BODY_BYTES_MAX]);
    let head = Bytes::from(vec![b'h'; HEAD_BYTES]);
    let trace = Zipf::new(keys, settings.alpha);
    let mut random = SplitMix64::new(settings.seed);
    let mut misses = 0_u64;
    let mut hit_reads = 0_u64;
    let mut miss_reads = 0_u64;
    let mut counted = 0_u64;
    let mut before = store.stats();
    for request in 0..settings.requests {
        if request == settings.requests / 2 {
            before = store.stats();
            (misses, hit_reads, miss_reads, counted) = (0, 0, 0, 0);
        }
        let rank = trace.draw(&mut random);
        let key = format!("http://site{}.example.test/{rank}", rank % 1000);
        counted += 1;
        let reads_before = store.stats().reads;
        let hit =
            futures_util::future::FutureExt::now_or_never(store.get(key.as_bytes())).ok_or("a get waits")??.is_some();
        let reads = store.stats().reads - reads_before;
        if hit {
            hit_reads += reads;
        } else {
            misses += 1;
            miss_reads += reads;
            let mut writer =
                store.insert(key.as_bytes(), head.clone(), Hints { site: rank % 1000, ..Hints::default() })?;
            writer.write(body.slice(..size_of(rank, mean_bytes)))?;
            let committed = futures_util::future::FutureExt::now_or_never(writer.commit()).ok_or("a commit waits")?;
            // If a policy has no room for an entry, the next request for it is a miss, which is counted.
            drop(committed);
        }
        clock.advance(Duration::from_millis(1));
        if request % 64 == 0 {
            futures_util::future::FutureExt::now_or_never(store.maintain()).ok_or("maintenance waits")?;
        }
    }
    let after = store.stats();
    let hits = counted - misses;
    let written = after.written_bytes - before.written_bytes;
    println!(
        "{:<18} {:>8.2} {:>12.1} {:>13.3} {:>9.3} {:>10.3} {:>9} {:>9.2}",
        policy.name,
        misses as f64 * 100.0 / counted as f64,
        written as f64 / 1e6,
        written as f64 / (after.admitted_bytes - before.admitted_bytes).max(1) as f64,
        hit_reads as f64 / hits.max(1) as f64,
        miss_reads as f64 / misses.max(1) as f64,
        after.entries,
        after.index_bytes as f64 * 8.0 / after.entries.max(1) as f64,
    );
    Ok(())
}

/// Returns the length of a key's body: lognormal, and always the same for the same key.
fn size_of(rank: u64, mean_bytes: u64) -> usize {
    let mut random = SplitMix64::new(rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5EED);
    let first = random.share().max(1e-12);
    let second = random.share();
    let normal = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
    let median = mean_bytes as f64 * (-SIGMA * SIGMA / 2.0).exp();
    ((median * (SIGMA * normal).exp()) as usize).clamp(1, BODY_BYTES_MAX)
}

/// Draws ranks with probability `1 / rank^alpha`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: u64, alpha: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        });
        Self(sums.collect())
    }

    fn draw(&self, random: &mut SplitMix64) -> u64 {
        let total = self.0.last().copied().unwrap_or(1.0);
        let at = random.share() * total;
        self.0.partition_point(|&sum| sum < at) as u64
    }
}
