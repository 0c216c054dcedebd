//! An experiment: requests to a memory cache in front of a policy on a modeled machine.
//!
//! Owns: the part of a proxy's request handling that concerns memory and disk, and its counts. A request is looked up
//! in memory, then in the store; misses are stored, long bodies in entries of 1 MiB. Callers choose the requests.
//! Invariant: the store is the shipping engine; this module never decides what the store keeps.

use crate::{
    DiskWork, Model, PieceReads, SimStore, SimStoreOptions,
    memory_cache::{MemoryFront, MemoryKind},
    pipeline::Lru,
};
use larder_store::{Error, Policy, Tuning, Writer};
use larder_workload::{Request, WorkloadRequest};
use std::time::Duration;

/// Bytes that a response has in addition to its body.
const HEAD_BYTES: u64 = 256;

/// Settings of an experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The policy.
    pub policy: &'static Policy,
    /// The machine.
    pub model: Model,
    /// Size of the store in bytes.
    pub disk_bytes: u64,
    /// Size of the memory cache in bytes.
    pub memory_bytes: u64,
    /// The kind of the memory cache in front of the store.
    pub memory_kind: MemoryKind,
    /// Mean size of an entry in bytes, from which some policies compute the size of their index. `None`: the engine's
    /// default.
    pub mean_entry_bytes: Option<u64>,
    /// Number of requests before counting begins.
    pub warm_up: u64,
    /// Number of requests that are counted.
    pub requests: u64,
    /// The constants of the policy.
    pub tuning: Tuning,
    /// Whether policies with one file use a file in a file system with a page cache. If not, they use a raw device.
    pub is_on_file_system: bool,
    /// The way in which the simulated program divides an entry into reads.
    pub reads: PieceReads,
    /// Whether requests come at the times of the trace. If not, each request comes when the previous one has its
    /// response.
    pub is_timed: bool,
    /// Share of the store that entries may take. Beyond it, the least recently used entries are removed, as in
    /// Markatos' method. `None`: as much as the policy allows.
    pub utilization: Option<f64>,
    /// Factor by which the experiment is scaled down ([`Experiment::sampled`]).
    pub sample: u64,
}

/// The result of an experiment. Numbers and times do not include the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests served from the memory cache.
    pub memory_hits: u64,
    /// Number of requests served from the store.
    pub disk_hits: u64,
    /// Bytes of all requested objects.
    pub bytes: u64,
    /// Bytes of the objects served from the memory cache or the store.
    pub hit_bytes: u64,
    /// Number of entries that the store refused because it had no space.
    pub refused: u64,
    /// Processor time in seconds.
    pub cpu_s: f64,
    /// Time in seconds in which the disk was busy.
    pub disk_s: f64,
    /// Number of operations that the disk executes at the same time.
    pub channel_count: f64,
    /// Operations that the disk has done.
    pub served: DiskWork,
    /// Bytes of the entries that were passed to the store.
    pub admitted_bytes: u64,
    /// Memory of the index in bytes, scaled up to the experiment's full size.
    pub index_bytes: f64,
    /// Number of entries in the store at the end, scaled up to the experiment's full size.
    pub entries: f64,
}

impl Experiment {
    /// Creates an experiment with the defaults of `policy`.
    pub fn new(policy: &'static Policy, model: Model, disk_bytes: u64, memory_bytes: u64) -> Self {
        Self {
            policy,
            model,
            disk_bytes,
            memory_bytes,
            memory_kind: MemoryKind::Lru,
            mean_entry_bytes: None,
            warm_up: 0,
            requests: u64::MAX,
            tuning: Tuning::default(),
            is_on_file_system: false,
            reads: PieceReads::default(),
            is_timed: false,
            utilization: None,
            sample: 1,
        }
    }

    /// Scales the experiment down: makes disk and memory `sample` times smaller, for requests of one in `sample` keys.
    /// Hit ratios stay the same (Waldspurger et al., SHARDS, FAST 2015). So do the times of seeks, because the whole
    /// disk is smaller.
    #[must_use]
    pub fn sampled(mut self, sample: u64) -> Self {
        self.disk_bytes = (self.disk_bytes / sample).next_multiple_of(1 << 20);
        self.memory_bytes /= sample;
        self.model = self.model.smaller(sample as f64);
        self.sample *= sample;
        self
    }

    /// Runs the experiment with `requests`, up to the configured number of requests.
    ///
    /// # Errors
    /// If the store refuses its options.
    pub fn run(&self, requests: impl Iterator<Item = WorkloadRequest>) -> Result<Outcome, Error> {
        let mut options = SimStoreOptions::new(self.policy, self.disk_bytes);
        options.mean_entry_bytes = self.mean_entry_bytes;
        options.tuning = self.tuning.clone();
        (options.is_raw, options.reads) = (!self.is_on_file_system, self.reads);
        let mut bed = SimStore::new(&self.model, &options)?;
        let kept = self.utilization.map(|share| Lru::new((self.disk_bytes as f64 * share) as u64));
        let front = MemoryFront::new(self.memory_kind, self.memory_bytes);
        let mut memory = MemoryTier { front, kept };
        let mut counted = Outcome::default();
        let mut before = CountsBefore::of(&bed);
        let most = self.warm_up.saturating_add(self.requests);
        for (number, asked) in (0..most).zip(requests) {
            if number == self.warm_up {
                (counted, before) = (Outcome::default(), CountsBefore::of(&bed));
            }
            self.ask(&mut bed, &mut memory, asked, &mut counted);
        }
        let stats = bed.stats();
        let served = bed.served();
        let sample = self.sample as f64;
        Ok(Outcome {
            refused: bed.happened().refused - before.refused,
            cpu_s: bed.cpu().as_secs_f64() - before.cpu_s,
            disk_s: (served.busy_ns - before.served.busy_ns) as f64 / 1e9,
            channel_count: self.model.disk.channel_count(),
            served: served.since(before.served),
            admitted_bytes: stats.admitted_bytes - before.admitted_bytes,
            index_bytes: stats.index_bytes as f64 * sample,
            entries: stats.entries as f64 * sample,
            ..counted
        })
    }

    fn ask(&self, bed: &mut SimStore, memory: &mut MemoryTier, asked: WorkloadRequest, counted: &mut Outcome) {
        let WorkloadRequest { request, is_storable, group } = asked;
        if self.is_timed {
            bed.wait_until(Duration::from_millis(request.time_ms));
        }
        bed.handle_requests(1);
        counted.requests += 1;
        counted.bytes += request.size_bytes;
        if !is_storable {
            // A proxy looks it up too: that it may not be stored is known from the response.
            bed.look_up(request.key);
            return;
        }
        if let Some(is_reported) = memory.front.hit(request.key) {
            if is_reported {
                bed.touch(request.key);
            }
            counted.memory_hits += 1;
            counted.hit_bytes += request.size_bytes;
            return;
        }
        if request.size_bytes > self.disk_bytes {
            return;
        }
        let chunks = chunks_of(&request);
        let missing = missing_of(bed, &chunks);
        let is_hit = missing.is_empty();
        let mut is_stored = true;
        if is_hit {
            counted.disk_hits += 1;
            counted.hit_bytes += request.size_bytes;
            memory.note_uses(&chunks);
        } else if let [whole] = missing[..]
            && chunks.len() == 1
        {
            memory.make_room(bed, whole);
            is_stored = bed.store(whole.key, whole.len_bytes, request.site, group);
        } else if missing.len() < chunks.len() || bed.admits(request.key, request.size_bytes) {
            for chunk in missing {
                memory.make_room(bed, chunk);
                bed.store_part(chunk.key, chunk.len_bytes, request.site);
            }
        }
        for (key, len_bytes) in bed.take_neighbors() {
            memory.front.note_neighbor(key, len_bytes);
        }
        if is_hit {
            memory.front.note_read(request.key, request.size_bytes);
        } else {
            memory.front.note_fetched(request.key, request.size_bytes, is_stored);
        }
    }
}

/// An entry in the store that contains a part of a body.
#[derive(Clone, Copy)]
struct BodyChunk {
    key: u64,
    len_bytes: u64,
}

/// Returns the entries for the body of `request`. A long body is divided into several entries, as in the proxy.
fn chunks_of(request: &Request) -> Vec<BodyChunk> {
    let chunk_bytes = Writer::BODY_MAX_BYTES - HEAD_BYTES;
    let count = request.size_bytes.div_ceil(chunk_bytes).max(1);
    let chunk = |number: u64| BodyChunk {
        key: request.key.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        len_bytes: (request.size_bytes - number * chunk_bytes).min(chunk_bytes) + HEAD_BYTES,
    };
    (0..count).map(chunk).collect()
}

/// Returns the entries of a body that the store does not have. If the first entry, which has the head, is missing,
/// returns all of them, because the proxy then fetches the whole body.
fn missing_of(bed: &mut SimStore, chunks: &[BodyChunk]) -> Vec<BodyChunk> {
    // A lookup that waits for its batch counts as found, because only existing entries are read.
    let mut is_missing = |chunk: &&BodyChunk| !bed.look_up(chunk.key).unwrap_or(true);
    match chunks.first().filter(&mut is_missing) {
        Some(_) => chunks.to_vec(),
        None => chunks[1..].iter().filter(is_missing).copied().collect(),
    }
}

/// The memory cache, and the list of the entries that the simulation keeps on disk.
struct MemoryTier {
    front: MemoryFront,
    /// The entries in the store, in the order of use; `None` if they may use all of the store.
    kept: Option<Lru>,
}

impl MemoryTier {
    fn note_uses(&mut self, chunks: &[BodyChunk]) {
        if let Some(kept) = &mut self.kept {
            for chunk in chunks {
                kept.touch(chunk.key);
            }
        }
    }

    /// Removes entries from the store until `chunk` fits in the share of the store that entries may take.
    fn make_room(&mut self, bed: &mut SimStore, chunk: BodyChunk) {
        if let Some(kept) = &mut self.kept
            && !kept.touch(chunk.key)
        {
            kept.insert(chunk.key, chunk.len_bytes, |gone| bed.remove(gone));
        }
    }
}

/// The counters at the end of the warm-up.
struct CountsBefore {
    cpu_s: f64,
    served: DiskWork,
    admitted_bytes: u64,
    refused: u64,
}

impl CountsBefore {
    fn of(bed: &SimStore) -> Self {
        let cpu_s = bed.cpu().as_secs_f64();
        let served = bed.served();
        Self { cpu_s, served, admitted_bytes: bed.stats().admitted_bytes, refused: bed.happened().refused }
    }
}

impl Outcome {
    /// Returns how many entries the store refused because it had no space, as a share of the misses.
    pub fn refused_ratio(&self) -> f64 {
        let misses = self.requests - self.memory_hits - self.disk_hits;
        self.refused as f64 / misses.max(1) as f64
    }

    /// Returns the requests per second if each request is sent only after the response to the previous one.
    pub fn per_s_alone(&self) -> f64 {
        self.requests as f64 / (self.cpu_s + self.disk_s)
    }

    /// Returns the most requests per second that the disk and one processor can serve, with many requests in flight.
    pub fn per_s_most(&self) -> f64 {
        self.requests as f64 / self.cpu_s.max(self.disk_s / self.channel_count)
    }

    /// Returns the most requests per second that the disk can serve.
    pub fn per_s_disk(&self) -> f64 {
        self.requests as f64 * self.channel_count / self.disk_s
    }

    /// Returns the share of the requests served from the memory cache or the store.
    pub fn hit_ratio(&self) -> f64 {
        (self.memory_hits + self.disk_hits) as f64 / self.requests.max(1) as f64
    }

    /// Returns the share of the requested bytes served from the memory cache or the store.
    pub fn byte_hit_ratio(&self) -> f64 {
        self.hit_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Returns the bytes written to the medium for each byte passed to the store.
    pub fn write_factor(&self) -> f64 {
        self.served.media_bytes as f64 / self.admitted_bytes.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_workload::Workload;

    /// Guards against policies that cannot be simulated. The test runs every policy, on a spinning disk or on flash.
    #[test]
    fn every_row_runs_and_hits() {
        for policy in Policy::all() {
            let name = if policy.layout.keeps_files() { "hdd-7200" } else { "nvme" };
            let experiment = Experiment::new(policy, Model::open(name).unwrap(), 96 << 20, 1 << 20);
            let experiment = Experiment { warm_up: 5_000, requests: 5_000, ..experiment };
            let run = || experiment.run(Workload::named("zipf", 1, 1 << 20, 48 << 20).unwrap()).unwrap();
            let outcome = run();
            assert_eq!(outcome.requests, 5_000, "{policy}");
            assert!(outcome.disk_hits > 400 && outcome.hit_ratio() < 0.9, "{policy}: {outcome:?}");
            assert!(outcome.disk_s > 0.0 && outcome.per_s_most() >= outcome.per_s_alone(), "{policy}: {outcome:?}");
            assert_eq!(outcome, run(), "{policy}: one seed, one outcome");
        }
    }
}
