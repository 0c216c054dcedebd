//! Hits of foyer's evictions in memory, with its defaults, on the workloads, sizes and requests of `larder sim
//! evictions`.
//!
//!   cargo run --release
//!
//! Prints a table of hits in percent. Its LRU has a pool of high priority, which is not used here.

use foyer_memory::{Cache, CacheBuilder, EvictionConfig, FifoConfig, LfuConfig, LruConfig, S3FifoConfig, SieveConfig};
use larder_workload::Workload;
use std::collections::HashMap;

/// Those of `larder sim evictions`.
const WORKLOADS: [&str; 3] = ["zipf-0.8", "zipf", "zipf-1.0"];
const PERCENTAGES: [u64; 3] = [1, 5, 10];
const SEED: u64 = 11;
const MEMORY_BYTES: u64 = 1 << 20;
const WORKLOAD_BYTES: u64 = 512 << 20;
const REQUESTS: usize = 1_500_000;
const LONGEST_BYTES: u64 = 1 << 20;

fn main() {
    println!("| requests | % of footprint | fifo | lru | lfu | s3-fifo | sieve |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for workload in WORKLOADS {
        let requests = requests(workload);
        let footprint_bytes: u64 = requests.iter().copied().collect::<HashMap<_, _>>().values().sum();
        for percentage in PERCENTAGES {
            let bytes = footprint_bytes * percentage / 100;
            let hits = evictions().map(|eviction| format!("{:.2}", hits_percent(&requests, bytes, eviction)));
            println!("| {workload} | {percentage} | {} |", hits.join(" | "));
        }
    }
}

fn evictions() -> [EvictionConfig; 5] {
    [
        FifoConfig::default().into(),
        LruConfig { high_priority_pool_ratio: 0.0 }.into(),
        LfuConfig::default().into(),
        S3FifoConfig::default().into(),
        SieveConfig.into(),
    ]
}

/// Returns the keys and sizes. An object has the size of its first request.
fn requests(workload: &str) -> Vec<(u64, u64)> {
    let asked = Workload::named(workload, SEED, MEMORY_BYTES, WORKLOAD_BYTES).expect("it is a workload");
    let mut sizes = HashMap::new();
    let sized = asked.filter(|asked| asked.is_storable).take(REQUESTS).map(|asked| {
        let request = asked.request;
        let size_bytes = request.size_bytes.clamp(1, LONGEST_BYTES);
        (request.key, *sizes.entry(request.key).or_insert(size_bytes))
    });
    sized.collect()
}

/// Returns the hits of the second half of the requests; the first is a warm-up.
fn hits_percent(requests: &[(u64, u64)], bytes: u64, eviction: EvictionConfig) -> f64 {
    let weight = |_: &u64, size_bytes: &u64| usize::try_from(*size_bytes).expect("it is at most 1 MiB");
    let capacity = usize::try_from(bytes).expect("it is less than the workload's bytes");
    let builder = CacheBuilder::new(capacity).with_shards(1).with_eviction_config(eviction).with_weighter(weight);
    let cache: Cache<u64, u64> = builder.build();
    let warm_up = requests.len() / 2;
    let mut hits = 0_u64;
    for (number, &(key, size_bytes)) in requests.iter().enumerate() {
        let is_hit = cache.get(&key).is_some();
        if !is_hit {
            cache.insert(key, size_bytes);
        }
        hits += u64::from(is_hit && number >= warm_up);
    }
    hits as f64 / (requests.len() - warm_up) as f64 * 100.0
}
