//! Protects the life of flash. The bytes written per admitted byte have a limit, whatever is requested.

use crate::support::block_on;
use bytes::Bytes;
use larder_device::MemoryDevice;
use larder_store::{Clock, Hints, SplitMix64, Store, StoreOptions, Tuning};
use std::{sync::Arc, time::Duration};

const SIZE_BYTES: u64 = 32 << 20;
const HEAD: Bytes = Bytes::from_static(b"a head of some sixty bytes, about as long as a short response has");
/// Bytes requested, in multiples of the volume.
const ROUNDS: u64 = 8;
/// Bytes written for each that is admitted.
const WRITE_FACTOR_MAX: f64 = 1.35;

/// Requests as a trace has them.
#[derive(Clone, Copy)]
struct Trace {
    name: &'static str,
    /// Zipf's exponent.
    exponent: f64,
    /// Keys, in volumes by their bytes.
    universe: f64,
    /// Requests after which the popular keys are others; 0 is never.
    drift: u64,
    /// Bytes of the body of a key.
    length: fn(u64) -> u64,
}

fn mixed(key: u64) -> u64 {
    1 << (7 + SplitMix64::new(key).below(12))
}

fn two_kinds(key: u64) -> u64 {
    if SplitMix64::new(key).below(10) == 0 { 200_000 } else { 1_500 }
}

const TRACES: [Trace; 10] = [
    Trace { name: "2 KB, Zipf 0.8", exponent: 0.8, universe: 3.0, drift: 0, length: |_| 2_000 },
    Trace { name: "2 KB, Zipf 1.2", exponent: 1.2, universe: 3.0, drift: 0, length: |_| 2_000 },
    Trace { name: "2 KB, Zipf 0.5, 1.2 volumes", exponent: 0.5, universe: 1.2, drift: 0, length: |_| 2_000 },
    Trace { name: "1 KB, Zipf 0.9, drifting", exponent: 0.9, universe: 5.0, drift: 20_000, length: |_| 1_000 },
    Trace { name: "12 KiB, Zipf 0.7", exponent: 0.7, universe: 2.0, drift: 0, length: |_| 12 << 10 },
    Trace { name: "64 KiB, Zipf 0.9", exponent: 0.9, universe: 2.0, drift: 0, length: |_| 64 << 10 },
    Trace { name: "mixed, Zipf 0.6", exponent: 0.6, universe: 2.0, drift: 0, length: mixed },
    Trace { name: "mixed, Zipf 1.1, drifting", exponent: 1.1, universe: 4.0, drift: 5_000, length: mixed },
    Trace { name: "two kinds, Zipf 0.9", exponent: 0.9, universe: 3.0, drift: 0, length: two_kinds },
    Trace { name: "two kinds, all alike", exponent: 0.01, universe: 1.3, drift: 0, length: two_kinds },
];

impl Trace {
    /// Requests entries from a new store, and stores the missing ones. Returns the bytes written per admitted byte, and
    /// the hits in percent.
    fn run(&self, write_factor_max: f64) -> (f64, f64) {
        let clock = Clock::manual(Duration::from_secs(1_700_000_000));
        let mut options = StoreOptions {
            clock: clock.clone(),
            background: false,
            identity_seed: Some(1),
            ..StoreOptions::new("", SIZE_BYTES)
        };
        options.tuning.write_factor_max = write_factor_max;
        let store = Store::open_on(Arc::new(MemoryDevice::new(SIZE_BYTES)), &options).unwrap();
        let mean_bytes = (0..1_000).map(self.length).sum::<u64>() / 1_000;
        let keys = SIZE_BYTES as f64 * self.universe / mean_bytes as f64;
        let mut random = SplitMix64::new(7);
        for number in 0..ROUNDS * SIZE_BYTES / mean_bytes {
            let uniform = random.share();
            let flat = 1.0 - self.exponent;
            let rank = ((keys.powf(flat) - 1.0) * uniform + 1.0).powf(1.0 / flat) as u64;
            let key = number.checked_div(self.drift).unwrap_or(0) << 32 | rank;
            if block_on(store.get(&key.to_le_bytes())).unwrap().is_none() {
                let mut writer = store.insert(&key.to_le_bytes(), HEAD, Hints::default()).unwrap();
                writer.write(vec![key as u8; (self.length)(rank) as usize].into()).unwrap();
                block_on(writer.offer()).unwrap();
            }
            if number % 32 == 0 {
                clock.advance(Duration::from_millis(10));
                block_on(store.maintain());
            }
        }
        let stats = store.stats();
        let factor = stats.written_bytes as f64 / stats.admitted_bytes as f64;
        (factor, stats.hits as f64 * 100.0 / stats.lookups as f64)
    }
}

#[test]
fn on_every_trace_at_most_1_35_bytes_are_written_for_each_that_is_admitted() {
    let by_default = Tuning::default().write_factor_max;
    let mut lost = 0.0;
    for trace in TRACES {
        let (factor, hits) = trace.run(by_default);
        let (freely, more_hits) = trace.run(3.0);
        println!("{}: {factor:.2} written a byte, {hits:.1}% hits; {freely:.2} and {more_hits:.1}%", trace.name);
        assert!(factor <= WRITE_FACTOR_MAX, "{}: {factor}", trace.name);
        lost += (more_hits - hits) / TRACES.len() as f64;
    }
    assert!(lost <= 1.0, "{lost} points of hits are lost to the limit, on average");
}

#[test]
fn with_a_limit_on_writes_a_day_entries_are_refused_until_there_is_some_left() {
    let clock = Clock::manual(Duration::from_secs(1_700_000_000));
    let mut options = StoreOptions { clock: clock.clone(), background: false, ..StoreOptions::new("", SIZE_BYTES) };
    options.tuning.writes_per_day = 2.0;
    let store = Store::open_on(Arc::new(MemoryDevice::new(SIZE_BYTES)), &options).unwrap();
    let mut key = 0_u64;
    let mut stored = || {
        let offers = (0..400).filter(|_| {
            key += 1;
            let mut writer = store.insert(&key.to_le_bytes(), HEAD, Hints::default()).unwrap();
            writer.write(vec![1; 20_000].into()).unwrap();
            block_on(writer.offer()).unwrap()
        });
        offers.count() as u64 * 20_000
    };
    let hourly = SIZE_BYTES / 12;
    let at_once = stored();
    assert!((hourly / 2..=hourly).contains(&at_once), "{at_once} of {hourly}");
    assert_eq!(stored(), 0);
    clock.advance(Duration::from_secs(1_800));
    let later = stored();
    assert!((hourly / 4..=hourly / 2).contains(&later), "{later} of half of {hourly}");
    assert!(store.stats().write_limit_refused > 700, "{:?}", store.stats());
}
