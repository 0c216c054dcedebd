//! A proxy as queues: one process and some disks, with random arrivals.
//!
//! Owns: the demands of each request on the machine ([`Demand`], from a shipping policy on the paper's disk), the
//! queues, and the search for a peak. The network is not modelled, except for the servers' think time at a miss.
//! Invariant: arrivals and demands follow from the seed; the process and the disks serve in order of arrival.

use crate::{Model, SimStore, SimStoreOptions, paper::row, pipeline::Lru};
use larder_store::Error;
use larder_workload::{Random, Workload, WorkloadRequest};

const SAMPLE: u64 = 16;
const REQUESTS: usize = 60_000;
/// Warm-up requests per entry of the store, enough to fill it.
const FILLS: f64 = 6.0;
/// Mean bytes of an entry.
const ENTRY_BYTES: u64 = 11 << 10;
/// Think time of the origin at a miss: mean and standard deviation (PolyMix).
const THINK_S: (f64, f64) = (2.5, 1.0);

/// The demand of one request on the machine.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    is_hit: bool,
    /// Disk time that the response waits for.
    read_s: f64,
    /// Disk time that storing waits for, including reads of directories and inodes.
    store_s: f64,
    /// Disk time of background writes.
    late_s: f64,
}

/// A machine with one property changed, to measure its effect.
pub(super) struct Change {
    pub(super) label: &'static str,
    pub(super) model: fn(&mut Model),
    /// Whether entries are stored in the background.
    pub(super) stores_late: bool,
}

/// The unknown properties of the machines in the papers on Squid, each changed alone.
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

/// Makes writes of inodes and directories background writes.
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

impl Demand {
    /// Returns the demand with storing in the background.
    pub(super) fn storing_late(self) -> Self {
        Self { store_s: 0.0, late_s: self.late_s + self.store_s, ..self }
    }
}

/// A proxy on a machine.
#[derive(Clone, Copy)]
pub(super) struct Proxy {
    /// Whether the only process blocks while a disk works for it.
    pub(super) waits: bool,
    /// Processor time of a request.
    pub(super) cpu_s: f64,
    /// Number of disks.
    pub(super) disk_count: usize,
}

/// The source of demands.
pub(super) struct Origin<'a> {
    pub(super) row: &'static str,
    pub(super) model: &'a Model,
    /// Whether policies with one file use a raw device instead of a file.
    pub(super) is_raw: bool,
    pub(super) workload: &'static str,
    pub(super) disk_bytes: u64,
    /// Size of the memory cache, for each disk's share of the requests.
    pub(super) memory_bytes: u64,
    pub(super) seed: u64,
}

/// The service at a given request rate: mean times, and the rate of responses.
pub(super) struct Service {
    pub(super) hit_s: f64,
    pub(super) miss_s: f64,
    pub(super) response_s: f64,
    pub(super) responses_per_s: f64,
}

impl Origin<'_> {
    /// Returns the demand of each request on one disk, once the store is full.
    pub(super) fn demands(&self) -> Result<Vec<Demand>, Error> {
        let model = self.model.clone().smaller(SAMPLE as f64);
        let disk_bytes = (self.disk_bytes / SAMPLE).next_multiple_of(1 << 20);
        let mut options = SimStoreOptions::new(row(self.row), disk_bytes);
        options.mean_entry_bytes = Some(8 << 10);
        options.tuning = super::paper_tuning();
        options.is_raw = self.is_raw;
        let mut bed = SimStore::new(&model, &options)?;
        let mut memory = Lru::new(self.memory_bytes / SAMPLE);
        let requests =
            Workload::named(self.workload, self.seed, 1 << 20, disk_bytes).expect("papers name workloads there are");
        let warm_up = (FILLS * (disk_bytes / ENTRY_BYTES) as f64) as usize;
        let mut demands = Vec::with_capacity(REQUESTS);
        for (number, WorkloadRequest { request, is_storable, group }) in requests.take(warm_up + REQUESTS).enumerate() {
            bed.handle_requests(1);
            let mut demand = Demand { is_hit: false, read_s: 0.0, store_s: 0.0, late_s: 0.0 };
            if is_storable {
                let len_bytes = request.size_bytes.min(1_000_000);
                let before = bed.served();
                let in_memory = memory.touch(request.key);
                demand.is_hit = in_memory || bed.look_up(request.key).unwrap_or(true);
                let looked_up = bed.served();
                if !demand.is_hit {
                    bed.store(request.key, len_bytes, request.site, group);
                }
                if !in_memory {
                    memory.insert(request.key, len_bytes, |_| {});
                }
                let (read, stored) = (looked_up.since(before), bed.served().since(looked_up));
                let seconds = |ns: u64| ns as f64 / 1e9;
                demand.read_s = seconds(read.busy_ns - read.late_ns);
                demand.store_s = seconds(stored.busy_ns - stored.late_ns);
                demand.late_s = seconds(read.late_ns + stored.late_ns);
            }
            if number >= warm_up {
                demands.push(demand);
            }
        }
        Ok(demands)
    }
}

/// Returns the share of requests that are hits, in percent.
pub(super) fn hits_percent(demands: &[Demand]) -> f64 {
    demands.iter().filter(|demand| demand.is_hit).count() as f64 / demands.len().max(1) as f64 * 100.0
}

/// Returns the mean disk time of a request, in ms.
pub(super) fn disk_ms(demands: &[Demand]) -> f64 {
    let sum: f64 = demands.iter().map(|demand| demand.read_s + demand.store_s + demand.late_s).sum();
    sum / demands.len().max(1) as f64 * 1e3
}

/// Simulates the service of requests that arrive at random, `rate` per second on average.
pub(super) fn serve(demands: &[Demand], proxy: &Proxy, rate: f64, seed: u64) -> Service {
    let mut random = Random::new(seed ^ 0x0071_7565);
    let (mut now, mut process_free) = (0.0_f64, 0.0_f64);
    let mut disks_free = vec![0.0_f64; proxy.disk_count];
    let (mut hit_s, mut hits, mut miss_s, mut last_s) = (0.0, 0_u32, 0.0, 0.0_f64);
    for demand in demands {
        now += random.exponential(1.0 / rate);
        let disk = &mut disks_free[random.below(proxy.disk_count as u64) as usize];
        let mut done = now.max(process_free) + proxy.cpu_s * random.exponential(1.0);
        if proxy.waits && demand.read_s + demand.store_s > 0.0 {
            // The process blocks while this disk works, including the background work that the disk does first.
            *disk = disk.max(done) + demand.read_s + demand.store_s;
            done = *disk;
            *disk += demand.late_s;
            process_free = done;
        } else {
            process_free = done;
            if demand.read_s + demand.store_s + demand.late_s > 0.0 {
                *disk = disk.max(done) + demand.read_s;
                done = if demand.is_hit { *disk } else { done };
                *disk += demand.store_s + demand.late_s;
            }
        }
        last_s = last_s.max(done);
        if demand.is_hit {
            hit_s += done - now;
            hits += 1;
        } else {
            miss_s += done - now + (THINK_S.0 + THINK_S.1 * random.normal()).max(0.0);
        }
    }
    let count = demands.len() as f64;
    Service {
        hit_s: hit_s / f64::from(hits.max(1)),
        miss_s: miss_s / (count - f64::from(hits)).max(1.0),
        response_s: (hit_s + miss_s) / count.max(1.0),
        responses_per_s: count / last_s.max(f64::MIN_POSITIVE),
    }
}

/// Returns the highest rate whose mean response time is at most `accepted_s`.
pub(super) fn peak(demands: &[Demand], proxy: &Proxy, accepted_s: f64, seed: u64) -> f64 {
    let (mut low, mut high) = (1.0, 4000.0);
    while high - low > 0.25 {
        let rate = (low + high) / 2.0;
        if serve(demands, proxy, rate, seed).response_s < accepted_s { low = rate } else { high = rate }
    }
    low
}
