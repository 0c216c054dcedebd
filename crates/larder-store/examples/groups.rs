//! Measures the reads that a page of eleven objects takes, by the size of the store, the number of pages fetched at
//! once and the time that a page takes: while the store is open, after a stop, and after a kill.
//!
//! `cargo run --release -p larder-store --example groups [POLICY...]`; `docs/internals/measurements.md` has results.
//! Pages begin in turn, so that as many as stated are being fetched at any time, and the objects of a page arrive at
//! equal intervals. Objects have 500 to 10,000 bytes. The device is memory, and the clock is set by hand. Before a page
//! is read, nothing of it is in memory; an object that was brought along is not read again.

use bytes::Bytes;
use futures_executor::block_on;
use larder_device::IgnorePoison;
use larder_device::{Device, MemoryDevice};
use larder_store::{Clock, Hints, NeighborEntry, Policy, SplitMix64, Store, StoreOptions};
use std::{
    collections::HashSet,
    env,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

const MIB: u64 = 1 << 20;
const STORES_MIB: [u64; 3] = [256, 1 << 10, 4 << 10];
const PAGES_AT_ONCE: [u64; 6] = [1, 2, 5, 10, 40, 240];
const VIEWS_MS: [u64; 3] = [100, 2000, 10_000];
const OBJECTS: u64 = 11;
/// Pages that are counted, and as many begun before and after them as are fetched at once.
const PAGES: u64 = 300;
const STEP: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = env::args().skip(1).collect();
    let names =
        if names.is_empty() { vec!["log".into(), "hashcache-log".into(), "hashcache-log-lru".into()] } else { names };
    println!("| policy | store, MiB | pages at once | page takes, s | reads a page | after a stop | after a kill |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for name in names {
        let policy = Policy::named(&name).ok_or(format!("no such policy: {name}"))?;
        for store_mib in STORES_MIB {
            for at_once in PAGES_AT_ONCE {
                for view_ms in VIEWS_MS {
                    let [open, stopped, killed] = measure(policy, store_mib * MIB, at_once, view_ms)?;
                    let view_s = view_ms as f64 / 1e3;
                    println!(
                        "| {name} | {store_mib} | {at_once} | {view_s} | {open:.2} | {stopped:.2} | {killed:.2} |"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Returns the reads of a page on the open store, after a stop, and after a kill.
fn measure(policy: &'static Policy, size_bytes: u64, at_once: u64, view_ms: u64) -> Result<[f64; 3], Box<dyn Error>> {
    let clock = Clock::manual(Duration::from_secs(1_700_000_000));
    let options = StoreOptions {
        policy,
        clock: clock.clone(),
        identity_seed: Some(1),
        background: false,
        ..StoreOptions::new("", size_bytes)
    };
    let device = Arc::new(MemoryDevice::new(size_bytes));
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options)?;
    let pages = fetch(&store, &clock, at_once, view_ms)?;
    let open = reads_a_page(&store, pages.clone())?;
    let killed = Store::open_on(Arc::new(device.snapshot()), &options)?;
    let after_kill = reads_a_page(&killed, pages.clone())?;
    block_on(store.close())?;
    let stopped = Store::open_on(Arc::new(device.snapshot()), &options)?;
    Ok([open, reads_a_page(&stopped, pages)?, after_kill])
}

/// Stores pages as many browsers request them. Returns the numbers of those to be counted.
fn fetch(store: &Store, clock: &Clock, at_once: u64, view_ms: u64) -> Result<std::ops::Range<u64>, Box<dyn Error>> {
    let page_count = PAGES + 2 * at_once;
    let mut random = SplitMix64::new(7);
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    for page in 0..page_count {
        let begun_ms = page * view_ms / at_once;
        arrivals.extend((0..OBJECTS).map(|object| (begun_ms + object * view_ms / OBJECTS, page * OBJECTS + object)));
    }
    arrivals.sort_unstable();
    let mut now_ms = 0;
    for (arrives_ms, key) in arrivals {
        while now_ms < arrives_ms {
            clock.advance(STEP);
            now_ms += STEP.as_millis() as u64;
            block_on(store.maintain());
        }
        let hints = Hints { group: key / OBJECTS + 1, ..Hints::default() };
        let mut writer = store.insert(&key.to_le_bytes(), Bytes::from_static(b"head"), hints)?;
        writer.write(vec![key as u8; 500 + random.below(9501) as usize].into())?;
        block_on(writer.commit())?;
    }
    block_on(store.sync())?;
    Ok(at_once..at_once + PAGES)
}

fn reads_a_page(store: &Store, pages: std::ops::Range<u64>) -> Result<f64, Box<dyn Error>> {
    let brought = Arc::new(Mutex::new(HashSet::new()));
    let noted = Arc::clone(&brought);
    store.set_neighbors(Arc::new(move || {
        let noted = Arc::clone(&noted);
        Box::new(move |neighbor: NeighborEntry| {
            noted.lock().ignore_poison().insert(neighbor.key.to_vec());
        })
    }));
    let before = store.stats().reads;
    let mut missed = 0;
    for key in pages.start * OBJECTS..pages.end * OBJECTS {
        let key = key.to_le_bytes();
        if !brought.lock().ignore_poison().contains(&key[..]) {
            missed += u64::from(block_on(store.get(&key))?.is_none());
        }
    }
    // Entries overwrite each other in `hashcache-basic`.
    if missed > PAGES * OBJECTS / 3 {
        return Err(format!("{missed} of {} objects are missing", PAGES * OBJECTS).into());
    }
    Ok((store.stats().reads - before) as f64 / PAGES as f64)
}
