//! Measures how much of a full volume holds live entries, and what the index takes for each, by size of volume and of
//! entry. The shipping engine with its defaults, on a device in memory.
//!
//! `cargo run --profile fast -p larder-store --example packing [LARGEST_VOLUME_MIB]`; `docs/measurements.md` has
//! results.

use bytes::Bytes;
use futures_executor::block_on;
use larder_store::{Clock, Dice, Hints, Stats, Store, StoreOptions, device::MemoryDevice};
use std::{env, sync::Arc, time::Duration};

const MIB: u64 = 1 << 20;
const VOLUMES_MIB: [u64; 5] = [32, 128, 512, 1 << 10, 10 << 10];
/// Every volume is filled this many times over, so that what is measured is a volume at work.
const ROUNDS: f64 = 2.2;
/// Entries stored between two rounds of maintenance, in bytes.
const MAINTAINED_BYTES: u64 = 256 << 10;
const HEAD: &[u8] = b"a head of some sixty bytes, about as long as a short response has";

/// The lengths of the entries.
#[derive(Clone, Copy)]
enum Sizes {
    Fixed(u64),
    PolyMix,
}

impl Sizes {
    const ALL: [Self; 6] = [
        Self::Fixed(500),
        Self::Fixed(2_000),
        Self::Fixed(12 << 10),
        Self::Fixed(64 << 10),
        Self::Fixed(MIB),
        Self::PolyMix,
    ];

    fn name(self) -> String {
        match self {
            Self::Fixed(bytes) => format!("{bytes} B"),
            Self::PolyMix => "PolyMix".to_owned(),
        }
    }

    /// PolyMix-4's kinds of content: 65% images, 15% pages, 0.5% downloads, the rest others.
    fn draw(self, dice: &mut Dice) -> u64 {
        let Self::PolyMix = self else {
            let Self::Fixed(bytes) = self else { unreachable!("there are two kinds") };
            return bytes;
        };
        let exponential = |mean: f64, dice: &mut Dice| -mean * (1.0 - unit(dice)).ln();
        let bytes = match dice.below(1000) {
            0..650 => exponential(4500.0, dice),
            650..800 => exponential(8500.0, dice),
            800..805 => exponential(300_000.0, dice),
            _ => exponential(25_000.0, dice),
        };
        (bytes as u64).clamp(64, MIB)
    }
}

fn unit(dice: &mut Dice) -> f64 {
    (dice.roll() >> 11) as f64 / (1_u64 << 53) as f64
}

fn main() -> larder_store::Result<()> {
    let largest_mib: u64 = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(512);
    println!("| volume | entries | content, % of the volume | with record headers, % | bits an entry | displaced |");
    println!("|---|---|---|---|---|---|");
    for volume_mib in VOLUMES_MIB.into_iter().filter(|&mib| mib <= largest_mib) {
        for sizes in Sizes::ALL {
            let row = fill(volume_mib * MIB, sizes)?;
            println!(
                "| {volume_mib} MiB | {} | {:.1} | {:.1} | {:.1} | {} |",
                sizes.name(),
                row.content_percent,
                row.record_percent,
                row.bits,
                row.displaced
            );
        }
    }
    Ok(())
}

struct Row {
    content_percent: f64,
    record_percent: f64,
    bits: f64,
    displaced: u64,
}

fn fill(volume_bytes: u64, sizes: Sizes) -> larder_store::Result<Row> {
    let clock = Clock::manual(Duration::from_secs(1_700_000_000));
    let options = StoreOptions {
        clock: clock.clone(),
        background: false,
        identity_seed: Some(1),
        ..StoreOptions::new("", volume_bytes)
    };
    let store = Store::open_on(Arc::new(MemoryDevice::new(volume_bytes)), &options)?;
    let empty = store.stats();
    let pool = Bytes::from(vec![7; MIB as usize]);
    let mut dice = Dice::new(1);
    let mut lengths = Vec::new();
    let (mut stored_bytes, mut unmaintained_bytes) = (0, 0);
    while (stored_bytes as f64) < volume_bytes as f64 * ROUNDS {
        let bytes = sizes.draw(&mut dice);
        let key = key_of(lengths.len());
        let mut writer = store.insert(key.as_bytes(), Bytes::from_static(HEAD), Hints::default())?;
        writer.write(pool.slice(..bytes as usize))?;
        block_on(writer.commit())?;
        lengths.push(bytes as u32);
        stored_bytes += record_bytes(&key, bytes);
        unmaintained_bytes += bytes;
        if unmaintained_bytes >= MAINTAINED_BYTES {
            unmaintained_bytes = 0;
            clock.advance(Duration::from_millis(10));
            block_on(store.maintain());
        }
    }
    let (mut content, mut records) = (0, 0);
    for (n, &bytes) in lengths.iter().enumerate() {
        let key = key_of(n);
        if store.may_contain(key.as_bytes()) {
            content += (key.len() + HEAD.len()) as u64 + u64::from(bytes);
            records += record_bytes(&key, bytes.into());
        }
    }
    let stats = store.stats();
    Ok(Row {
        content_percent: content as f64 * 100.0 / volume_bytes as f64,
        record_percent: records as f64 * 100.0 / volume_bytes as f64,
        bits: bits(&stats, &empty),
        displaced: stats.displaced,
    })
}

/// Memory that the index grew by for each entry.
fn bits(stats: &Stats, _empty: &Stats) -> f64 {
    stats.index_bytes as f64 * 8.0 / stats.entries.max(1) as f64
}

fn key_of(n: usize) -> String {
    format!("http://packing.example/{n:08}")
}

/// A record's length: its fixed part, key, head, body, and a checksum for each 64 KiB.
fn record_bytes(key: &str, body_bytes: u64) -> u64 {
    (64 + key.len() + HEAD.len()) as u64 + body_bytes + body_bytes.div_ceil(64 << 10) * 4
}
