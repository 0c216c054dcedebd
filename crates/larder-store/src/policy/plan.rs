//! Predicts the performance of every policy for a disk and memory of given size: `larder plan`.
//!
//! Owns: the step from a policy's costs and a device's figures to requests per second, and the recommendation. The
//! costs come from `policy::costs`; devices are measured elsewhere. Invariant: a plan depends only on its wishes and
//! figures. The formulas follow the descriptions of HashCache (NSDI 2009), extended from seeks to more kinds of I/O;
//! see docs/how-to/planning.md.

mod constants;
mod figures;
mod sizes;
mod typical;

use super::{CostAssumptions, Policy, PolicyCosts, ReadAxis, TransferWork};
use crate::Tuning;
use std::{fmt, time::Duration};

pub use figures::{BesideReads, DeviceFigures, FileFigures, READ_BYTES, READ_DEPTHS, ReadFigure, WriteFigure};
pub use sizes::Sizes;

/// The conditions for which a plan is made: the size of the store, the memory, and the expected requests.
///
/// ```
/// use larder_store::plan::{DeviceFigures, Plan, PlanWishes, Sizes};
///
/// // Ten million entries of 500 bytes, with 16 MB of memory.
/// let sizes = Sizes::Mean(500.0);
/// let wishes = PlanWishes { sizes, hit_ratio: 0.9, ..PlanWishes::new(5_000_000_000, 16 << 20) };
/// let plan = Plan::new(&wishes, &DeviceFigures::typical_solid_state());
/// assert_eq!(plan.recommended, Some("tiny"));
/// ```
#[derive(Clone, Debug)]
pub struct PlanWishes {
    /// Size of the store in bytes.
    pub size_bytes: u64,
    /// Memory in bytes for the index and the memory cache together.
    pub memory_bytes: u64,
    /// The distribution of entry lengths.
    pub sizes: Sizes,
    /// Share of the requests that are hits in the store.
    pub hit_ratio: f64,
    /// Share of the misses that are stored.
    pub storable_share: f64,
    /// Number of useful entries that one read brings in, in policies that read groups. 1 if the clients' behavior is
    /// unknown.
    pub group_size: f64,
    /// Number of I/O operations in flight.
    pub depth: u32,
    /// Processors available to the store and the proxy.
    pub processor_count: f64,
    /// Processor time of a request outside of the store. Zero gives a plan for the store alone.
    pub request_cpu: Duration,
    /// Constants of the policies.
    pub tuning: Tuning,
    /// Names of constants that the operator has set on purpose. The plan does not change them, even if they have their
    /// defaults.
    pub set_constants: Vec<&'static str>,
    /// Whether the plan chooses the constants that `tuning` leaves at their defaults. This is for stores that are yet
    /// to be created, because an existing store cannot change most of them. Default: no.
    pub chooses_constants: bool,
}

impl PlanWishes {
    /// Returns the wishes for a web proxy with a store of `size_bytes` and `memory_bytes` of memory. Assumes 60% hits,
    /// 80% of the misses storable (PolyMix-4), a mean entry size of 16 KiB, and 64 I/O operations in flight.
    pub fn new(size_bytes: u64, memory_bytes: u64) -> Self {
        Self {
            size_bytes,
            memory_bytes,
            sizes: Sizes::Mean(16_384.0),
            hit_ratio: 0.6,
            storable_share: 0.8,
            group_size: 1.0,
            depth: 64,
            processor_count: std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64),
            request_cpu: PROXY_CPU,
            tuning: Tuning::default(),
            set_constants: Vec::new(),
            chooses_constants: false,
        }
    }
}

/// The resource that limits the request rate of a policy.
///
/// ```
/// use larder_store::plan::{DeviceFigures, Plan, PlanBound, PlanWishes};
///
/// let plan = Plan::new(&PlanWishes::new(1 << 40, 4 << 30), &DeviceFigures::typical_spinning());
/// let log = plan.rows.iter().find(|row| row.policy == "log").expect("a prediction for each policy");
/// // Faster processors would not help.
/// assert_eq!(log.bound, PlanBound::Disk);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum PlanBound {
    /// The disk is the limit.
    Disk,
    /// The processors are the limit.
    Processors,
}

impl fmt::Display for PlanBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::Processors => "processors",
        })
    }
}

/// The prediction for a policy.
///
/// ```
/// use larder_store::plan::{DeviceFigures, Plan, PlanWishes};
///
/// let plan = Plan::new(&PlanWishes::new(1 << 40, 4 << 30), &DeviceFigures::typical_solid_state());
/// for row in plan.rows.iter().filter(|row| row.fits) {
///     println!("{}: {:.0} requests/s, {:.1} bits per entry", row.policy, row.requests_per_second, row.index_bits);
/// }
/// let squid = plan.rows.iter().find(|row| row.policy == "squid").expect("a prediction for each policy");
/// assert!(squid.requests_per_second < plan.rows[0].requests_per_second);
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PlannedRow {
    /// The policy's name.
    pub policy: &'static str,
    /// Number of entries that fit in the store.
    pub entries: f64,
    /// Memory of the index in bytes, when it is full.
    pub index_bytes: f64,
    /// Bits of the index per entry.
    pub index_bits: f64,
    /// Device reads per hit.
    pub reads_per_hit: f64,
    /// Device reads per miss.
    pub reads_per_miss: f64,
    /// Hits of the policy, as a share of the hits of an LRU cache with the same number of bytes.
    pub hits_of_lru: f64,
    /// Bytes written to the device per byte of entries stored.
    pub write_factor: f64,
    /// Highest rate of requests per second.
    pub requests_per_second: f64,
    /// The resource that limits [`Self::requests_per_second`].
    pub bound: PlanBound,
    /// Whether the index leaves at least a quarter of the memory for the memory cache.
    pub fits: bool,
    /// Whether there is a measurement of everything that the policy needs. Policies that keep files cannot be predicted
    /// for a block device.
    pub known: bool,
    /// The constants that the plan chose, each as `name=value`.
    pub constants: Vec<String>,
    /// All constants that the prediction assumes.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub tuning: Tuning,
}

/// The predictions for all policies, and the recommendation.
///
/// ```
/// use larder_store::plan::{DeviceFigures, Plan, PlanWishes};
///
/// // One terabyte of disk and four gigabytes of memory.
/// let wishes = PlanWishes::new(1 << 40, 4 << 30);
/// let plan = Plan::new(&wishes, &DeviceFigures::typical_solid_state());
/// let policy = plan.recommended.expect("a policy that fits in the memory");
/// println!("take {policy}: {}", plan.reason);
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Plan {
    /// The predictions in the order of the policy table.
    pub rows: Vec<PlannedRow>,
    /// Name of the recommended policy; `None` if no policy fits in the memory.
    pub recommended: Option<&'static str>,
    /// Why this policy is recommended, or why none is.
    pub reason: String,
    /// Further advice on the constants, one sentence each.
    pub advice: Vec<String>,
    /// The measured device, or a note that none was measured.
    pub device: String,
}

impl Plan {
    /// Predicts all policies for a device with the given `figures`, and recommends one.
    pub fn new(wishes: &PlanWishes, figures: &DeviceFigures) -> Self {
        let predict = |policy| match wishes.chooses_constants {
            true => constants::planned_best(policy, wishes, figures),
            false => planned(policy, wishes, &wishes.tuning, figures),
        };
        let rows: Vec<_> = Policy::all().iter().map(predict).collect();
        let (recommended, reason) = recommend(&rows, wishes);
        let advice = constants::advice(wishes);
        Self { rows, recommended, reason, advice, device: figures.path.clone() }
    }
}

/// Predicts one policy with the constants `tuning`, which replace those in `wishes`.
fn planned(policy: &'static Policy, wishes: &PlanWishes, tuning: &Tuning, figures: &DeviceFigures) -> PlannedRow {
    let longer = |bytes: f64| wishes.sizes.share_longer_than(bytes);
    let mean = (wishes.sizes.mean_bytes() as u64).max(policy.mean_entry_bytes_min());
    // The queue of a disk sorts as well, or better.
    let is_sorted = tuning.sorted_reads || policy.reads == ReadAxis::SortedBatches;
    let gains_by_sorting = is_sorted && figures.has_arm() && !figures.has_queue(wishes.depth);
    let costs = policy.costs(&CostAssumptions {
        size_bytes: wishes.size_bytes,
        mean_entry_bytes: mean,
        share_longer_than: &longer,
        hit_ratio: wishes.hit_ratio,
        hits_together: if gains_by_sorting { tuning.read_batch_count as f64 } else { 1.0 },
        group_size: wishes.group_size,
        tuning,
    });
    let request = request_work(&costs, wishes);
    let seconds = device_seconds(&request, figures, wishes, gains_by_sorting);
    let cpu_seconds = cpu_seconds(&request, &costs, figures, wishes);
    let by_disk = 1.0 / seconds;
    let by_processors = wishes.processor_count / (wishes.request_cpu.as_secs_f64() + cpu_seconds);
    PlannedRow {
        policy: policy.name,
        entries: costs.entries,
        index_bytes: costs.index_bytes,
        index_bits: costs.index_bytes * 8.0 / costs.entries.max(1.0),
        reads_per_hit: costs.hit.reads(),
        reads_per_miss: costs.miss.reads(),
        hits_of_lru: costs.hits_of_lru,
        write_factor: costs.insert.written_bytes() / mean as f64,
        requests_per_second: by_disk.min(by_processors),
        bound: if by_disk <= by_processors { PlanBound::Disk } else { PlanBound::Processors },
        fits: costs.index_bytes <= wishes.memory_bytes as f64 * INDEX_SHARE_MAX,
        known: figures.files.is_some() || !policy.layout.keeps_files(),
        constants: Vec::new(),
        tuning: tuning.clone(),
    }
}

/// Returns the I/O of an average request: hits, misses and insertions, each weighted by its share.
fn request_work(costs: &PolicyCosts, wishes: &PlanWishes) -> TransferWork {
    let misses = 1.0 - wishes.hit_ratio;
    let hits = costs.hit.times(wishes.hit_ratio);
    hits.and(costs.miss.times(misses)).and(costs.insert.times(misses * wishes.storable_share))
}

/// Returns how many seconds the device is busy with `work`. `gains_by_sorting` says whether random reads go to it in
/// sorted batches, which a spinning disk serves faster.
fn device_seconds(work: &TransferWork, figures: &DeviceFigures, wishes: &PlanWishes, gains_by_sorting: bool) -> f64 {
    let depth = wishes.depth;
    let beside = figures.beside_reads.filter(|_| work.random_reads > 0.0);
    let sequential_write = beside.map_or(figures.sequential_write, |beside| beside.sequential_write);
    let write_times = beside.map_or(1.0, |beside| beside.random_write_times);
    let reads = together(work.random_reads, work.random_read_bytes, |bytes| figures.read_seconds(bytes, depth));
    let writes = together(work.random_writes, work.random_write_bytes, |bytes| figures.write_seconds(bytes, depth));
    let sorted_gain = if gains_by_sorting { SORTED_GAIN } else { 1.0 };
    let random = reads / sorted_gain + writes * write_times;
    let sequential =
        work.sequential_write_bytes / sequential_write + work.sequential_read_bytes / figures.sequential_read;
    let files = figures.files.as_ref().map_or(0.0, |files| {
        let beyond = |bytes: f64, count: f64| (bytes - count * files.file_bytes as f64).max(0.0);
        work.file_reads / files.read_per_second
            + beyond(work.file_read_bytes, work.file_reads) / figures.sequential_read
            + work.file_replacements / files.replace_per_second
            + beyond(work.file_write_bytes, work.file_replacements) / figures.sequential_write
    });
    random + sequential + files
}

/// Returns the seconds of `count` operations that have `bytes` bytes in total. `seconds` returns the time of one
/// operation of a given length.
fn together(count: f64, bytes: f64, seconds: impl Fn(f64) -> f64) -> f64 {
    if count > 0.0 { count * seconds(bytes / count) } else { 0.0 }
}

/// Returns the processor time in seconds that the store needs for `work`.
fn cpu_seconds(work: &TransferWork, costs: &PolicyCosts, figures: &DeviceFigures, wishes: &PlanWishes) -> f64 {
    let depth = wishes.depth;
    let transfers = together(work.random_reads, work.random_read_bytes, |bytes| figures.read_cpu_seconds(bytes, depth))
        + together(work.random_writes, work.random_write_bytes, |bytes| figures.write_cpu_seconds(bytes, depth));
    let files = figures.files.as_ref().map_or(0.0, |files| {
        (work.file_reads * files.read_cpu_us + work.file_replacements * files.replace_cpu_us) / 1e6
    });
    costs.cpu_us / 1e6 + transfers + files
}

/// Returns the recommended policy and the reason.
///
/// The fastest policy that fits is recommended. Among policies of about the same speed, those with about the most hits
/// are preferred; among these, the first in the table is chosen.
fn recommend(rows: &[PlannedRow], wishes: &PlanWishes) -> (Option<&'static str>, String) {
    let candidates: Vec<_> = rows.iter().filter(|row| row.fits && row.known).collect();
    let room = format!("{:.0} MB", wishes.memory_bytes as f64 * INDEX_SHARE_MAX / 1e6);
    let fastest = candidates.iter().map(|row| hits_per_second(row)).fold(0.0, f64::max);
    let fast: Vec<_> = candidates.iter().filter(|row| hits_per_second(row) >= fastest * AS_FAST).collect();
    let most_hits = fast.iter().map(|row| row.hits_of_lru).fold(0.0, f64::max);
    let Some(chosen) = fast.iter().find(|row| row.hits_of_lru >= most_hits - AS_GOOD) else {
        return (None, format!("no policy's index fits {room}, three quarters of the memory"));
    };
    let count = candidates.len();
    let bound = chosen.bound;
    let choice = if fast.len() == 1 {
        "the fastest for hits"
    } else {
        "among the fastest for hits (within 15%), and of these the one with the most hits"
    };
    let mut reason = format!(
        "{choice}, of {count} policies whose index fits {room} (three quarters of the memory); limited by the {bound}"
    );
    let known = rows.iter().filter(|row| row.known && !row.fits);
    let faster = known.max_by(|one, other| hits_per_second(one).total_cmp(&hits_per_second(other)));
    if let Some(faster) = faster.filter(|faster| hits_per_second(faster) * AS_FAST > hits_per_second(chosen)) {
        reason += &format!("; {} would be faster, but its index does not fit", faster.policy);
    }
    (Some(chosen.policy), reason)
}

/// Returns the hits per second that a policy serves. Policies are compared by this, because they find different shares
/// of the same requests.
fn hits_per_second(row: &PlannedRow) -> f64 {
    row.requests_per_second * row.hits_of_lru
}

/// Factor by which a spinning disk without a queue reads faster in sorted batches of ten, because seeks are half as
/// long. Measured as the hits per second of `log`, 134 sorted and 96 unsorted, with a store that takes half of the disk
/// (docs/internals/measurements.md, "Reads on a spinning disk").
const SORTED_GAIN: f64 = 1.38;
/// Largest share of the memory for the index. The memory cache gets the remainder.
const INDEX_SHARE_MAX: f64 = 0.75;
/// Policies with at least this share of the fastest policy's hits per second count as equally fast, because smaller
/// differences are within the error of the predictions.
const AS_FAST: f64 = 0.85;
/// Policies whose shares of hits differ by at most this much count as equally good.
const AS_GOOD: f64 = 0.03;
/// Processor time of a proxied request without its I/O, averaged over hits and misses (docs/how-to/planning.md).
const PROXY_CPU: Duration = Duration::from_micros(20);

#[cfg(test)]
mod tests;
