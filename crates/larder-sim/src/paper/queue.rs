//! A proxy as queues: one process and some disks, with random arrivals.
//!
//! Owns: the demands of each request on the machine ([`Demands`], from a shipping policy on the paper's disk), and the
//! search for a peak. The queues are in [`service`]. Of the network, only the way to the servers takes time
//! ([`network`]). Invariant: arrivals and demands follow from the seed.

mod network;
mod service;

use crate::{
    Arm, DiskOperation, DiskParameters, Model, PieceReads, SimStore, SimStoreOptions,
    paper::{
        beds::{constant, whole},
        row,
    },
    pipeline::Lru,
};
use larder_store::Error;
use larder_workload::{PolyMixLoad, PolyMixRobots, PolyMixVersion, Random, WorkloadRequest, mix};
pub(super) use service::{Service, serve};
use std::time::Duration;

const RELOAD_SALT: u64 = 0x7265_6c6f_6164;

/// Returns the factor by which disk, caches and working set are smaller than in the papers. The number of robots is the
/// same.
pub(super) fn sample() -> u64 {
    whole("queue.sample")
}

/// Returns how Squid reads a stored object in all storage schemes but COSS: in pieces.
pub(super) fn squid_reads() -> PieceReads {
    PieceReads { piece_bytes: Some(whole("queue.read_bytes")) }
}

/// The times and disk operations that one request demands of the machine.
#[derive(Clone, Default)]
pub(super) struct Demand {
    is_hit: bool,
    /// Whether the robot demands a new response from the server. Such a request is neither a hit nor a miss.
    is_reload: bool,
    /// Time in seconds that packets to and from the server take; 0 for a hit.
    network_s: f64,
    /// Disk operations that the response waits for, one after the other.
    reads: Vec<DiskOperation>,
    /// Disk operations that storing the response waits for. Includes reads of directories and inodes.
    stores: Vec<DiskOperation>,
    /// Disk operations in the background.
    late: Vec<DiskOperation>,
    /// Time in seconds that the disk takes for this request if it serves one request after the other.
    disk_s: f64,
}

/// The demands of all requests for the objects on one disk.
#[derive(Clone, Default)]
pub(super) struct Demands {
    /// The disk; `None` if nothing was simulated.
    arm: Option<Arm>,
    requests: Vec<Demand>,
}

/// A change of one property of a machine, to measure its effect.
pub(super) struct Change {
    pub(super) label: &'static str,
    pub(super) model: fn(&mut Model),
    /// Whether entries are stored in the background, so that no request waits.
    pub(super) stores_late: bool,
}

/// Changes of those properties of machines that the papers on Squid do not state.
pub(super) const CHANGES: [Change; 9] = [
    Change { label: "as above", model: |_| {}, stores_late: false },
    Change { label: "only reads are waited for", model: |_| {}, stores_late: true },
    Change { label: "metadata are gathered", model: gather, stores_late: false },
    Change {
        label: "reads are not noted (noatime)",
        model: |model| model.files.access_times = 0.0,
        stores_late: false,
    },
    Change {
        label: "both",
        model: |model| {
            gather(model);
            model.files.access_times = 0.0;
        },
        stores_late: false,
    },
    Change { label: "inodes and directories all in memory", model: cache, stores_late: false },
    Change { label: "the same, and only reads are waited for", model: cache, stores_late: true },
    Change { label: "no inode and no directory in memory", model: forget, stores_late: false },
    Change {
        label: "half the processor time of a request",
        model: |model| model.system.request_us /= 2.0,
        stores_late: false,
    },
];

/// Makes the writes of inodes and directories background writes.
pub(super) fn gather(model: &mut Model) {
    let files = &mut model.files;
    for writes in [
        &mut files.create_writes,
        &mut files.create_writes_after,
        &mut files.remove_writes,
        &mut files.directory_writes,
    ] {
        *writes = 0.0;
    }
}

fn cache(model: &mut Model) {
    let files = &mut model.files;
    (files.inode_cache_blocks, files.directory_cache_blocks) = (1e6, 1e6);
}

fn forget(model: &mut Model) {
    let files = &mut model.files;
    (files.inode_cache_blocks, files.directory_cache_blocks) = (0.0, 0.0);
}

impl Demands {
    /// Makes storing a response a background operation, for all requests.
    pub(super) fn store_late(&mut self) {
        for demand in &mut self.requests {
            demand.stores.iter_mut().for_each(|operation| operation.is_late = true);
            demand.late.append(&mut demand.stores);
        }
    }

    /// Returns the share of hits in percent, of all requests but reloads.
    pub(super) fn hits_percent(&self) -> f64 {
        self.mean(|demand| f64::from(demand.is_hit) * 100.0)
            / self.mean(|demand| f64::from(!demand.is_reload)).max(1e-9)
    }

    /// Returns the mean time in milliseconds that a disk takes for a request, if it serves one after the other.
    pub(super) fn disk_ms(&self) -> f64 {
        self.mean(|demand| demand.disk_s * 1e3)
    }

    fn mean(&self, of: impl Fn(&Demand) -> f64) -> f64 {
        self.requests.iter().map(of).sum::<f64>() / self.requests.len().max(1) as f64
    }
}

/// The proxy program on a machine.
#[derive(Clone, Copy)]
pub(super) struct Proxy {
    /// Whether the only process waits while a disk works for it.
    pub(super) waits: bool,
    /// Processor time of a request in seconds.
    pub(super) cpu_s: f64,
    /// Number of disks.
    pub(super) disk_count: usize,
    /// Number of operations that the program gives to a disk at the same time.
    pub(super) disk_depth: usize,
}

/// `disk_depth` of a program that waits for each operation, or in which one process per disk does (Squid's diskd).
pub(super) const ONE_AT_A_TIME: usize = 1;
/// `disk_depth` of a program with threads that wait (Squid's aufs has 16 for each directory of the cache).
pub(super) const THREADS: usize = 16;
/// `disk_depth` of a program that does not wait (POSIX aio on a raw device).
pub(super) const ASYNCHRONOUS: usize = usize::MAX;

/// The source of demands: a simulated store on one of the machine's disks.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) row: &'static str,
    pub(super) model: &'a Model,
    /// Whether policies with one file use a raw device instead of a file.
    pub(super) is_raw: bool,
    pub(super) reads: PieceReads,
    pub(super) version: PolyMixVersion,
    /// Requests per second to all disks together.
    pub(super) requests_per_s: f64,
    pub(super) disk_count: usize,
    pub(super) disk_bytes: u64,
    /// Bytes of the memory cache for the requests of one disk.
    pub(super) memory_bytes: u64,
    pub(super) seed: u64,
    /// Factor by which everything but the number of robots is smaller than in the paper.
    pub(super) sample: u64,
}

impl Origin<'_> {
    /// Simulates one disk. Returns what each request demands once the store is full.
    pub(super) fn demands(&self) -> Result<Demands, Error> {
        let model = self.model.clone().smaller(self.sample as f64);
        let DiskParameters::Spinning(arm) = &model.disk else { return Ok(Demands::default()) };
        let disk_bytes = (self.disk_bytes / self.sample).next_multiple_of(1 << 20);
        let mut options = SimStoreOptions::new(row(self.row), disk_bytes);
        options.mean_entry_bytes = Some(whole("queue.index_entry_bytes"));
        options.tuning = super::paper_tuning();
        (options.is_raw, options.reads) = (self.is_raw, self.reads);
        let mut bed = SimStore::new(&model, &options)?;
        let mut memory = Lru::new(self.memory_bytes / self.sample);
        let entries = disk_bytes / whole("queue.entry_bytes");
        let warm_up = (constant("queue.fills") * entries as f64) as usize;
        let count = whole("queue.requests") as usize;
        let mut requests = Vec::with_capacity(count);
        // Polygraph draws the kind of each request alone, whether the object was requested before or not. Its reports
        // count hits and misses of plain requests, and response times of all.
        let mut kinds = Random::new(self.seed ^ RELOAD_SALT);
        let reloads_share = constant("queue.reloads_share");
        for (number, asked) in self.requests().take(warm_up + count).enumerate() {
            if number == warm_up {
                bed.record_operations();
            }
            let demand = demand_of(&mut bed, &mut memory, asked, kinds.happens(reloads_share));
            if number >= warm_up {
                requests.push(demand);
            }
        }
        Ok(Demands { arm: Some(arm.clone()), requests })
    }

    /// Returns the requests of all robots for objects on one of the disks. The working set is that of the benchmark.
    fn requests(&self) -> impl Iterator<Item = WorkloadRequest> {
        let mut load = PolyMixLoad::of_peak(self.version, self.requests_per_s);
        load.working_set_bytes /= self.sample;
        let disk_count = self.disk_count as u64;
        PolyMixRobots::new(load, self.seed).filter(move |asked| mix(asked.request.key).is_multiple_of(disk_count))
    }
}

/// Handles a request, and returns what it demands of the machine. The response to a reload replaces the stored one.
fn demand_of(bed: &mut SimStore, memory: &mut Lru, asked: WorkloadRequest, is_reload: bool) -> Demand {
    let WorkloadRequest { request, is_storable, group } = asked;
    let mut demand = Demand { is_reload, ..Demand::default() };
    let before = bed.served();
    bed.wait_until(Duration::from_millis(request.time_ms));
    bed.handle_requests(1);
    if is_storable {
        let len_bytes = request.size_bytes.min(whole("queue.longest_bytes"));
        let in_memory = memory.touch(request.key);
        demand.is_hit = !is_reload && (in_memory || bed.look_up(request.key).unwrap_or(true));
        (demand.late, demand.reads) = bed.take_operations().into_iter().partition(|operation| operation.is_late);
        if !demand.is_hit {
            bed.store(request.key, len_bytes, request.site, group);
        }
        if !in_memory {
            memory.insert(request.key, len_bytes, |_| {});
        }
    }
    let (late, stores): (Vec<_>, _) = bed.take_operations().into_iter().partition(|operation| operation.is_late);
    demand.late.extend(late);
    demand.stores = stores;
    if !demand.is_hit {
        demand.network_s = network::origin_s(request.size_bytes);
    }
    demand.disk_s = bed.served().since(before).busy_ns as f64 / 1e9;
    demand
}

/// Returns the greatest rate at which the mean response time is at most `accepted_s`, to within half a percent.
pub(super) fn peak(demands: &Demands, proxy: &Proxy, accepted_s: f64, seed: u64) -> f64 {
    let mut low = 1.0;
    let mut high = 4000.0;
    while high / low > 1.005 {
        let rate = f64::sqrt(low * high);
        if service::is_accepted(demands, proxy, rate, (accepted_s, seed)) { low = rate } else { high = rate }
    }
    low
}
