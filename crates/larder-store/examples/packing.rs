//! Measures which share of a full volume holds live entries, and the index's memory per entry, by the sizes of volume
//! and entries. Runs the shipping engine with its defaults on a device in memory.
//!
//! `cargo run --profile fast -p larder-store --example packing [LARGEST_VOLUME_MIB]`; `docs/internals/measurements.md`
//! has results.

use bytes::Bytes;
use futures_executor::block_on;
use larder_device::MemoryDevice;
use larder_store::{Clock, Hints, SplitMix64, Store, StoreOptions, segment_bytes_default};
use std::{env, fmt, sync::Arc, time::Duration};

const MIB: u64 = 1 << 20;
const VOLUMES_MIB: [u64; 5] = [32, 128, 512, 1 << 10, 10 << 10];
/// Number of times each volume is overwritten, so that a volume in use is measured.
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

    /// Draws a size from PolyMix-4's kinds of content: 65% images, 15% pages, 0.5% downloads, and others.
    fn draw(self, random: &mut SplitMix64) -> u64 {
        let Self::PolyMix = self else {
            let Self::Fixed(bytes) = self else { unreachable!("there are two kinds") };
            return bytes;
        };
        let exponential = |mean: f64, random: &mut SplitMix64| -mean * (1.0 - random.share()).ln();
        let bytes = match random.below(1000) {
            0..650 => exponential(4500.0, random),
            650..800 => exponential(8500.0, random),
            800..805 => exponential(300_000.0, random),
            _ => exponential(25_000.0, random),
        };
        (bytes as u64).clamp(64, MIB)
    }
}

fn main() -> larder_store::Result<()> {
    let largest_mib: u64 = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(512);
    println!(
        "Shares of the volume's bytes in percent. Live: records of entries that are found, with their headers. Fixed:"
    );
    println!(
        "superblocks, checkpoints, and what is behind the last segment. Free: segments without entries. Rest: what else"
    );
    println!("is in segments (entries that are gone, lists, headers of units, and what fills units and segments up).");
    println!(
        "| volume | entries | live | content | fixed | free | rest | bits an entry | displaced | written a byte |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for volume_mib in VOLUMES_MIB.into_iter().filter(|&mib| mib <= largest_mib) {
        for sizes in Sizes::ALL {
            let row = fill(volume_mib * MIB, sizes)?;
            println!("| {volume_mib} MiB | {} | {row} |", sizes.name());
        }
    }
    Ok(())
}

/// Shares of a volume in percent, and the work of the index and the device.
struct Row {
    live: f64,
    content: f64,
    fixed: f64,
    free: f64,
    bits: f64,
    displaced: u64,
    write_factor: f64,
}

impl fmt::Display for Row {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { live, content, fixed, free, bits, displaced, write_factor } = self;
        let rest = 100.0 - live - fixed - free;
        write!(to, "{live:.1} | {content:.1} | {fixed:.1} | {free:.1} | {rest:.1} | {bits:.1} | {displaced} | ")?;
        write!(to, "{write_factor:.2}")
    }
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
    let pool = Bytes::from(vec![7; MIB as usize]);
    let mut random = SplitMix64::new(1);
    let mut lengths = Vec::new();
    let mut stored_bytes = 0;
    let mut unmaintained_bytes = 0;
    while (stored_bytes as f64) < volume_bytes as f64 * ROUNDS {
        let bytes = sizes.draw(&mut random);
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
    let mut content = 0;
    let mut records = 0;
    let mut found = 0;
    for (n, &bytes) in lengths.iter().enumerate() {
        let key = key_of(n);
        if store.may_contain(key.as_bytes()) {
            content += (key.len() + HEAD.len()) as u64 + u64::from(bytes);
            records += record_bytes(&key, bytes.into());
            found += 1;
        }
    }
    let stats = store.stats();
    // The index mistakes some keys that are gone for others.
    let there = |bytes: u64| (bytes as f64 * stats.entries as f64 / found as f64) as u64;
    let content = there(content);
    let records = there(records);
    let percent = |bytes: u64| bytes as f64 * 100.0 / volume_bytes as f64;
    let segment_bytes = segment_bytes_default(volume_bytes);
    Ok(Row {
        live: percent(records),
        content: percent(content),
        fixed: 100.0 - percent(stats.segment_count * segment_bytes),
        free: percent((stats.segment_count - stats.segments_in_use) * segment_bytes),
        bits: stats.index_bytes as f64 * 8.0 / stats.entries.max(1) as f64,
        displaced: stats.displaced,
        write_factor: stats.written_bytes as f64 / stats.admitted_bytes.max(1) as f64,
    })
}

fn key_of(n: usize) -> String {
    format!("http://packing.example/{n:08}")
}

/// Returns the length of a record: its fixed part, key, head, body, and a checksum for each 64 KiB.
fn record_bytes(key: &str, body_bytes: u64) -> u64 {
    (64 + key.len() + HEAD.len()) as u64 + body_bytes + body_bytes.div_ceil(64 << 10) * 4
}
