//! Replays a trace through the published eviction algorithms, and prints the misses of each for one cache size.

use larder_sim::{eviction, eviction_names};
use larder_workload::Trace;
use std::{error::Error, path::Path};

const USAGE: &str = "\
replay a trace through LRU, FIFO, SIEVE, S3-FIFO and GDSF

usage: replay TRACE BYTES

  TRACE  a Squid, common or combined log, columns (time key size), oracleGeneral or larder's own; gzip and zstd too
  BYTES  size of the cache";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes] = &arguments[..] else {
        println!("{USAGE}");
        return Ok(());
    };
    let size_bytes: u64 = bytes.parse().map_err(|_| format!("BYTES is no whole number: {bytes}"))?;
    let named = eviction_names().filter_map(|name| Some((name, eviction(name, size_bytes)?, (0, 0))));
    let mut caches: Vec<_> = named.collect();
    let mut trace = Trace::open(Path::new(path), None)?;
    let mut asked = (0_u64, 0_u64);
    for request in trace.by_ref() {
        let request = request?;
        asked = (asked.0 + 1, asked.1 + request.size_bytes);
        for (_, cache, missed) in &mut caches {
            if !cache.request(request.key, request.size_bytes) {
                *missed = (missed.0 + 1, missed.1 + request.size_bytes);
            }
        }
    }
    let progress = trace.progress();
    println!("{} requests, {} lines left out, {} damaged", asked.0, progress.left_out, progress.damaged);
    if let Some((line, why)) = progress.first_damage {
        println!("the first damaged line is {line}: {why}");
    }
    for (name, _, (count, bytes)) in &caches {
        let share = |missed: u64, asked: u64| missed as f64 / asked.max(1) as f64 * 100.0;
        println!(
            "{name:8} misses {count} requests, {:6.2}% of requests, {:6.2}% of bytes",
            share(*count, asked.0),
            share(*bytes, asked.1)
        );
    }
    Ok(())
}
