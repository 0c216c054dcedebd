//! How fast the laboratory is: requests per second of processor time, on one core.
//!
//! `cargo run --release -p larder-sim --example speed -- [--stream COUNT]`: LRU and the other references on Zipf requests that are
//! in memory; every row on a modelled disk; with `--stream`, so many requests through LRU as they are drawn, and the
//! memory that took.

use larder_sim::{Asked, Experiment, Model, Reference, Workload};
use larder_store::Policy;
use std::{error::Error, fs};

const DRAWN: usize = 10_000_000;
const CACHE_BYTES: u64 = 1 << 30;
const ROW_REQUESTS: u64 = 400_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, count] = &arguments[..]
        && flag == "--stream"
    {
        return stream(count.parse()?);
    }
    let zipf = || Workload::named("zipf", 1, 1 << 20, CACHE_BYTES).expect("there is Zipf");
    let drawn: Vec<Asked> = zipf().take(DRAWN).collect();
    println!("{DRAWN} Zipf requests in memory, {} MB of cache, one core", CACHE_BYTES >> 20);
    for name in Reference::NAMES {
        let mut cache = Reference::named(name, CACHE_BYTES).expect("the names are those it knows");
        let begun = cpu_s();
        let hits = drawn.iter().filter(|asked| cache.request(asked.request.key, asked.request.size_bytes)).count();
        let per_s = DRAWN as f64 / (cpu_s() - begun);
        println!("{name:22} {:8.2} M requests/s, hits {:5.2}%", per_s / 1e6, hits as f64 * 100.0 / DRAWN as f64);
    }
    println!("{ROW_REQUESTS} requests by rows, bodies of {CACHE_BYTES} bytes in all");
    for policy in Policy::all() {
        let name = if policy.layout.keeps_files() { "hdd-7200" } else { "nvme" };
        let mut experiment = Experiment::new(policy, Model::open(name)?, CACHE_BYTES, 16 << 20);
        experiment.requests = ROW_REQUESTS;
        let begun = cpu_s();
        let outcome = experiment.run(drawn.iter().copied())?;
        let per_s = ROW_REQUESTS as f64 / (cpu_s() - begun);
        println!("{:22} {:8.0} k requests/s, hits {:5.2}%", policy.name, per_s / 1e3, outcome.hit_ratio() * 100.0);
    }
    Ok(())
}

/// Requests as they are drawn, none of which is kept.
fn stream(count: u64) -> Result<(), Box<dyn Error>> {
    let mut cache = Reference::named("lru", CACHE_BYTES).expect("there is LRU");
    let requests = Workload::named("zipf", 1, 1 << 20, CACHE_BYTES).expect("there is Zipf");
    let begun = cpu_s();
    let mut hits = 0_u64;
    for (_, asked) in (0..count).zip(requests) {
        hits += u64::from(cache.request(asked.request.key, asked.request.size_bytes));
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("{count} requests in {:.1} s, hits {:.2}%, {peak}", (cpu_s() - begun), hits as f64 * 100.0 / count as f64);
    Ok(())
}

/// Processor time of this thread so far; what others do on the machine does not count.
fn cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
