//! The costs of each policy: memory, and the I/O of a hit, a miss and an insertion.
//!
//! Owns: the costs of each column of the table, either published or counted in the engine (asserted in
//! `tests/it/rows`). Device speeds are elsewhere; a plan combines both. Invariant: a new value in a column does not
//! compile without its costs, so no policy lacks any. The costs are means over many requests to a full store;
//! docs/how-to/planning.md explains each.

pub(super) mod room;
mod work;

pub(crate) use work::TransferWork;
use work::{reads, writes};

use super::{
    EngineRow, EvictionAxis, IndexAxis, LayoutAxis, LocatedRow, LogEviction, LogRow, MappedRow, Policy, ReadAxis,
    SlotSchedule, TableRow, WriteAxis,
};
use crate::{
    Tuning,
    engine::{
        log::{admission::seen_bits_per_entry, index::IndexShape, positions_waiting},
        tiny::layout::{TinyPlan, TinyWishes},
    },
    units::{DATA_START_BYTES, SECTOR_BYTES, last_superblock_bytes},
};

/// The conditions for which costs are computed.
#[derive(Clone, Copy)]
pub(crate) struct CostAssumptions<'a> {
    /// Size of the store.
    pub(crate) size_bytes: u64,
    /// Mean size of an entry with its head.
    pub(crate) mean_entry_bytes: u64,
    /// Returns the share of entries that are longer than the given number of bytes.
    pub(crate) share_longer_than: &'a dyn Fn(f64) -> f64,
    /// Useful entries that one read brings in, for policies that read groups or clusters. 1 means only the requested
    /// entry.
    pub(crate) group_size: f64,
    /// Constants of the policies.
    pub(crate) tuning: &'a Tuning,
}

impl std::fmt::Debug for CostAssumptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CostAssumptions")
            .field("size_bytes", &self.size_bytes)
            .field("mean_entry_bytes", &self.mean_entry_bytes)
            .field("group_size", &self.group_size)
            .finish_non_exhaustive()
    }
}

/// The costs of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PolicyCosts {
    /// Number of entries that fit in the store.
    pub(crate) entries: f64,
    /// Memory of the full index.
    pub(crate) index_bytes: f64,
    /// The work of a lookup that finds its entry.
    pub(crate) hit: TransferWork,
    /// The work of a lookup that finds no entry.
    pub(crate) miss: TransferWork,
    /// The work of storing an entry in a full store.
    pub(crate) insert: TransferWork,
    /// Hits, as a share of the hits of an LRU with the same number of bytes.
    pub(crate) hits_of_lru: f64,
    /// Processor time of a request in microseconds, without the time of its I/O and files.
    pub(crate) cpu_us: f64,
}

impl Policy {
    /// Returns the costs of this policy.
    pub(crate) fn costs(&self, assumed: &CostAssumptions<'_>) -> PolicyCosts {
        let (entries, index_bits) = memory(self, assumed);
        PolicyCosts {
            entries,
            index_bytes: entries * index_bits / 8.0,
            hit: hit(self, assumed),
            miss: miss(self, assumed),
            insert: insert(self, assumed),
            hits_of_lru: hits_of_lru(self, assumed.tuning) * room::hits_share(self, assumed),
            cpu_us: cpu_us(self.engine),
        }
    }
}

/// Returns how many entries fit in the store, and how many bits the index takes for each.
fn memory(policy: &Policy, assumed: &CostAssumptions<'_>) -> (f64, f64) {
    let CostAssumptions { size_bytes, mean_entry_bytes, tuning, .. } = *assumed;
    let size = size_bytes as f64;
    let mean = mean_entry_bytes as f64;
    let entries = size / mean;
    let set_bits = f64::from(tuning.hashcache_tag_bits + tuning.hashcache_ways.ilog2());
    let bins = size * (1.0 - tuning.hashcache_ring_share) / tuning.hashcache_bin_bytes as f64;
    match policy.index {
        IndexAxis::Buckets => {
            let shape = IndexShape::new(size_bytes / SECTOR_BYTES);
            let seen = if is_by_worth(policy) { seen_bits_per_entry(&shape, entries as u64) as f64 } else { 0.0 };
            (entries, shape.bits_per_entry(entries as u64) + seen)
        }
        IndexAxis::Map => (entries, MAP_BITS + map_of_space_bits(policy.layout, mean, tuning)),
        IndexAxis::Nothing => (bins, 0.0),
        IndexAxis::SetTags => (bins, set_bits),
        IndexAxis::RecentSetTags => {
            let ways = f64::from(tuning.hashcache_ways);
            let links = RESIDENT_LINKS * (bins / ways).log2() / ways;
            (bins, tuning.hashcache_resident_share * (set_bits + links))
        }
        IndexAxis::SetPlaces => {
            let lengths = if policy.reads == ReadAxis::Groups { GROUP_LENGTH_BITS } else { 0.0 };
            (entries, set_bits + f64::from(tuning.hashcache_generation_bits) + LOG_POSITION_BITS + lengths)
        }
        IndexAxis::RecentSetPlaces => {
            let places = (LOG_POSITION_BITS + GROUP_LENGTH_BITS) * places_share(tuning);
            let waiting = positions_waiting(tuning, entries as u64) as f64;
            let waiting_bits = 8.0 * PLACE_WAITING_BYTES * 2.0 * waiting;
            let fixed_bits = set_bits + f64::from(tuning.hashcache_generation_bits);
            (entries, fixed_bits + places + waiting_bits / entries)
        }
        IndexAxis::Objects => {
            let clusters = CLUSTER_BITS * mean / tuning.ucfs_cluster_bytes as f64;
            (entries, OBJECT_BITS + clusters)
        }
        IndexAxis::FrontAndFilters => tiny_memory(assumed),
    }
}

/// Returns the memory of the map of free space, in bits per entry, in addition to the map of entries.
fn map_of_space_bits(layout: LayoutAxis, mean_bytes: f64, tuning: &Tuning) -> f64 {
    match layout {
        LayoutAxis::Slots | LayoutAxis::SizeClasses => mean_bytes / SECTOR_BYTES as f64,
        // Each level has half the bits of the one below.
        LayoutAxis::MultilevelBitmap => 2.0 * mean_bytes / tuning.esp_block_bytes as f64,
        LayoutAxis::OneDirectory
        | LayoutAxis::RoundRobinDirectories
        | LayoutAxis::SiteDirectories
        | LayoutAxis::Segments
        | LayoutAxis::Bins
        | LayoutAxis::Sets
        | LayoutAxis::FrontAndSets
        | LayoutAxis::Clusters => 0.0,
    }
}

fn tiny_memory(assumed: &CostAssumptions<'_>) -> (f64, f64) {
    let CostAssumptions { size_bytes, mean_entry_bytes, tuning, .. } = *assumed;
    let wishes =
        TinyWishes { mean_entry_bytes, set_bytes: tuning.tiny_set_bytes, front_percent: tuning.tiny_front_percent };
    let Some(plan) = TinyPlan::new(DATA_START_BYTES..last_superblock_bytes(size_bytes), wishes) else {
        return (0.0, 0.0);
    };
    let sets = f64::from(plan.set_count);
    let per_set = plan.entries_per_set(mean_entry_bytes);
    let slots = plan.front_slots(mean_entry_bytes) as f64;
    let entries = sets * per_set as f64 + slots;
    let set_bits = TINY_SET_BITS * per_set.div_ceil(TINY_ENTRIES_PER_SET) as f64;
    (entries, (sets * set_bits + slots * TINY_SLOT_BITS) / entries)
}

/// Returns the bytes of an entry's record.
fn record_bytes(assumed: &CostAssumptions<'_>) -> f64 {
    assumed.mean_entry_bytes as f64 + RECORD_OVERHEAD_BYTES
}

/// Returns the work for a bin and, for entries longer than a bin, for their remainder.
fn bin_and_rest(assumed: &CostAssumptions<'_>, one: fn(f64, f64) -> TransferWork) -> TransferWork {
    let bin = assumed.tuning.hashcache_bin_bytes as f64;
    let long = (assumed.share_longer_than)(bin);
    // Lengths on the web have long tails: a long entry has at least the mean length beyond its bin.
    let rest = (record_bytes(assumed) / long.max(0.1)).max(bin);
    one(1.0, bin).and(one(long, rest))
}

/// Returns the useful entries that one read brings in.
fn useful_entries(policy: &Policy, assumed: &CostAssumptions<'_>) -> f64 {
    let CostAssumptions { tuning, group_size, .. } = *assumed;
    if !policy.brings_neighbors(tuning) {
        return 1.0;
    }
    let found = match policy.group_read_bytes(tuning) {
        0 => 1.0,
        bytes => (bytes as f64 / PAGE_SPAN_BYTES).min(1.0),
    };
    let left = if tuning.sorted_reads { SORTED_GROUP_SHARE } else { 1.0 };
    1.0 + (group_size - 1.0) * found * left
}

fn hit(policy: &Policy, assumed: &CostAssumptions<'_>) -> TransferWork {
    let CostAssumptions { tuning, share_longer_than, .. } = *assumed;
    let group_size = useful_entries(policy, assumed);
    let record = record_bytes(assumed);
    let bin = tuning.hashcache_bin_bytes as f64;
    match policy.engine {
        EngineRow::Mapped(MappedRow::Files(_) | MappedRow::SizeClasses) => {
            TransferWork { file_reads: 1.0, file_read_bytes: record, ..TransferWork::default() }
        }
        EngineRow::Mapped(MappedRow::Slots(_) | MappedRow::Bitmap) => reads(1.0, record),
        EngineRow::Table(TableRow::Bins | TableRow::TaggedSets) => bin_and_rest(assumed, reads),
        EngineRow::Table(TableRow::RecentlyTaggedSets) => {
            let resident = tuning.hashcache_resident_share;
            let whole = f64::from(tuning.hashcache_ways) * bin;
            let rest = bin_and_rest(assumed, reads).and(reads(1.0, bin).times(-1.0));
            reads(resident, bin).and(reads(1.0 - resident, whole)).and(rest)
        }
        EngineRow::Table(TableRow::Sets) => {
            let whole = reads(1.0, f64::from(tuning.hashcache_ways) * bin);
            whole.and(bin_and_rest(assumed, reads)).and(reads(1.0, bin).times(-1.0))
        }
        EngineRow::Log(LogRow::Located(LocatedRow::Recent)) => {
            // Only the position of the group's first entry is read.
            let place = reads((1.0 - places_share(tuning)) / group_size, PLACES_BLOCK_BYTES);
            reads(1.0 / group_size, record * group_size).and(place)
        }
        EngineRow::Log(LogRow::Located(LocatedRow::Grouped)) => reads(1.0 / group_size, record * group_size),
        EngineRow::Log(LogRow::Located(LocatedRow::Plain)) => {
            let first = tuning.hashcache_first_read_bytes as f64;
            reads(1.0, first).and(reads(share_longer_than(first), 2.0 * first))
        }
        EngineRow::Log(LogRow::Packed(LogEviction::Worth | LogEviction::Clock)) => {
            let bytes = (record * SIZE_CLASS_EXCESS).max(policy.group_read_bytes(tuning) as f64);
            reads((1.0 + LOG_FALSE_MATCHES) / group_size, bytes)
        }
        EngineRow::Tiny => {
            let set = tuning.tiny_set_bytes as f64;
            let long = share_longer_than(set / 2.0);
            reads(1.0, set).and(reads(long, (record / long.max(0.1)).max(set)))
        }
        EngineRow::Clusters => reads(1.0 / group_size, tuning.ucfs_cluster_bytes as f64),
    }
}

fn miss(policy: &Policy, assumed: &CostAssumptions<'_>) -> TransferWork {
    let CostAssumptions { tuning, .. } = *assumed;
    let bin = tuning.hashcache_bin_bytes as f64;
    let whole = f64::from(tuning.hashcache_ways) * bin;
    let false_match = false_matches(tuning);
    match policy.index {
        IndexAxis::Buckets => reads(LOG_FALSE_MATCHES, record_bytes(assumed)),
        IndexAxis::Map | IndexAxis::Objects => TransferWork::default(),
        IndexAxis::Nothing => reads(1.0, if policy.layout == LayoutAxis::Bins { bin } else { whole }),
        IndexAxis::SetTags => reads(false_match, bin),
        IndexAxis::RecentSetTags => {
            let resident = tuning.hashcache_resident_share;
            reads(resident * false_match, bin).and(reads(1.0 - resident, whole))
        }
        IndexAxis::SetPlaces | IndexAxis::RecentSetPlaces => {
            reads(false_match, tuning.hashcache_first_read_bytes as f64)
        }
        IndexAxis::FrontAndFilters => reads(TINY_FALSE_MATCHES, tuning.tiny_set_bytes as f64),
    }
}

/// Returns the share of lookups in full sets that find the tag of another key.
fn false_matches(tuning: &Tuning) -> f64 {
    f64::from(tuning.hashcache_ways) / f64::powi(2.0, tuning.hashcache_tag_bits.cast_signed())
}

fn insert(policy: &Policy, assumed: &CostAssumptions<'_>) -> TransferWork {
    let work = write_work(policy, assumed).and(eviction_work(policy, assumed));
    if policy.index == IndexAxis::SetPlaces {
        // The start of a record with the new entry's tag is read, to see whose it is.
        return work.and(reads(false_matches(assumed.tuning), RECOGNIZED_BYTES));
    }
    if policy.index == IndexAxis::RecentSetPlaces {
        // Each new position displaces another one from memory. In a large store, two positions are hardly ever in the
        // same block of the file.
        return work.and(reads(1.0, PLACES_BLOCK_BYTES)).and(writes(1.0, PLACES_BLOCK_BYTES));
    }
    work
}

/// Returns the share of the entries whose places are in memory.
fn places_share(tuning: &Tuning) -> f64 {
    (f64::from(tuning.hashcache_positions) / f64::from(tuning.hashcache_ways)).min(1.0)
}

fn write_work(policy: &Policy, assumed: &CostAssumptions<'_>) -> TransferWork {
    let CostAssumptions { tuning, share_longer_than, .. } = *assumed;
    let record = record_bytes(assumed);
    let file = |file_replacements: f64| TransferWork {
        file_replacements,
        file_updates: 1.0 - file_replacements,
        file_write_bytes: record,
        ..TransferWork::default()
    };
    let sequential = |bytes: f64| TransferWork { sequential_write_bytes: bytes, ..TransferWork::default() };
    match policy.writes {
        WriteAxis::Through | WriteAxis::Asynchronous => match policy.layout {
            LayoutAxis::OneDirectory | LayoutAxis::RoundRobinDirectories | LayoutAxis::SiteDirectories => file(1.0),
            LayoutAxis::SizeClasses => file(share_longer_than(tuning.buddy_threshold_bytes as f64)),
            LayoutAxis::Bins | LayoutAxis::Sets => bin_and_rest(assumed, writes),
            LayoutAxis::MultilevelBitmap => writes(1.0, record + tuning.esp_block_bytes as f64 / 2.0),
            LayoutAxis::Slots | LayoutAxis::Segments | LayoutAxis::FrontAndSets | LayoutAxis::Clusters => {
                writes(1.0, record)
            }
        },
        WriteAxis::Units | WriteAxis::UnitsByGroup => sequential(record * UNIT_EXCESS),
        WriteAxis::Pages | WriteAxis::SitePages => {
            let page = tuning.page_bytes as f64;
            // The pages of a run are written with one write. Entries shorter than a page share it.
            writes((record / page).clamp(1.0 / PAGE_ENTRIES_MAX, 1.0), record.max(page))
        }
        WriteAxis::Clusters => sequential(record * CLUSTER_EXCESS),
        WriteAxis::PacksThenSets => {
            let set = tuning.tiny_set_bytes as f64;
            let short = 1.0 - share_longer_than(set / 2.0);
            let sets = short * TINY_SET_WRITES;
            sequential(record * UNIT_EXCESS).and(writes(sets, set)).and(reads(sets, set))
        }
    }
}

fn eviction_work(policy: &Policy, assumed: &CostAssumptions<'_>) -> TransferWork {
    let tuning = assumed.tuning;
    match policy.eviction {
        EvictionAxis::Reinsertion if tuning.reinsertion_share > 0.0 => {
            let most = tuning.reinsertion_share / (1.0 - tuning.reinsertion_share);
            let again = record_bytes(assumed) * most.min(REINSERTED);
            TransferWork { sequential_write_bytes: again, sequential_read_bytes: again, ..TransferWork::default() }
        }
        EvictionAxis::Lru
        | EvictionAxis::PacedLru
        | EvictionAxis::Reinsertion
        | EvictionAxis::Overwrite
        | EvictionAxis::FirstInSet
        | EvictionAxis::LeastRecentInSet
        | EvictionAxis::RankInSet
        | EvictionAxis::ClusterLru
        | EvictionAxis::OverwriteOrLeastRecent => TransferWork::default(),
    }
}

/// Returns whether a log chooses the entries that it rewrites by their worth.
fn is_by_worth(policy: &Policy) -> bool {
    policy.engine == EngineRow::Log(LogRow::Packed(LogEviction::Worth))
}

/// Returns the hits of a policy as a share of the hits of an LRU.
///
/// For `log` and `log-clock` this is the median of six request sequences at 10% of their footprint
/// (docs/measurements.md). `hashcache-basic` keeps 1 - 1/e of the entries if there are as many bins as entries. LRU and
/// FIFO within sets of 8 are between the two (docs/how-to/planning.md).
fn hits_of_lru(policy: &Policy, tuning: &Tuning) -> f64 {
    match policy.eviction {
        EvictionAxis::Lru | EvictionAxis::PacedLru => 1.0,
        EvictionAxis::Reinsertion if tuning.reinsertion_share > 0.0 && is_by_worth(policy) => WORTH_HITS,
        EvictionAxis::Reinsertion if tuning.reinsertion_share > 0.0 => CLOCK_HITS,
        EvictionAxis::LeastRecentInSet => 0.97,
        EvictionAxis::RankInSet => 0.95,
        EvictionAxis::Reinsertion | EvictionAxis::OverwriteOrLeastRecent | EvictionAxis::FirstInSet => 0.92,
        EvictionAxis::ClusterLru => 0.9,
        EvictionAxis::Overwrite => 0.8,
    }
}

/// Returns the processor time of a request in the store itself: hashes, checksums, copies, reading whole sets.
///
/// These are medians of three runs of `larder bench store --size 128MiB --time 3s`, minus 5 us for each I/O operation,
/// scaled so that `log` takes 6 us as on an idle machine.
fn cpu_us(row: EngineRow) -> f64 {
    match row {
        EngineRow::Log(LogRow::Packed(LogEviction::Worth | LogEviction::Clock)) => 6.0,
        EngineRow::Log(LogRow::Located(LocatedRow::Plain)) => 4.0,
        EngineRow::Log(LogRow::Located(LocatedRow::Grouped)) => 2.0,
        EngineRow::Log(LogRow::Located(LocatedRow::Recent)) => 3.0,
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::Through | SlotSchedule::Pages)) => 3.9,
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::Asynchronous)) => 4.3,
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::PagesAndSortedReads)) => 4.8,
        EngineRow::Mapped(MappedRow::Slots(SlotSchedule::SitePagesAndSortedReads)) => 5.3,
        EngineRow::Mapped(MappedRow::Bitmap) => 5.2,
        // These policies spend their time in the file system, which is part of the device's figures.
        EngineRow::Mapped(MappedRow::Files(_) | MappedRow::SizeClasses) => 6.0,
        EngineRow::Table(TableRow::Bins) => 1.6,
        EngineRow::Table(TableRow::Sets) => 6.1,
        EngineRow::Table(TableRow::TaggedSets | TableRow::RecentlyTaggedSets) => 24.0,
        EngineRow::Clusters => 8.0,
        EngineRow::Tiny => 11.0,
    }
}

/// Bytes within which a page's entries are, so that shorter reads find a part of them in proportion. Measured with five
/// pages at once: of ten other entries, 64 KiB bring 1.5 and 256 KiB bring 5.1 (docs/measurements.md, "Reads of a
/// page").
const PAGE_SPAN_BYTES: f64 = 480.0 * 1024.0;
/// Share of the entries of a group that a read still brings in time if reads wait for each other. Measured with
/// `hashcache-log` and `ucfs` (docs/measurements.md, "Reads on a spinning disk").
const SORTED_GROUP_SHARE: f64 = 0.2;
const WORTH_HITS: f64 = 1.10;
const CLOCK_HITS: f64 = 1.02;
/// Bytes rewritten for each byte that missed, if the reinsertion share allows it. With the insertion itself, 1.3 bytes
/// are written per missed byte. Measured: 0.6 to 1.5, depending on how much is admitted and how much of it is hit
/// (docs/measurements.md).
const REINSERTED: f64 = 0.28;
const MAP_BITS: f64 = 272.0;
/// Set numbers that find and order a resident set, including the heads of the hash lists.
const RESIDENT_LINKS: f64 = 3.5;
const LOG_POSITION_BITS: f64 = 32.0;
/// A position that is waiting to be written to the file. At most twice as many wait as one write takes.
const PLACE_WAITING_BYTES: f64 = 40.0;
const PLACES_BLOCK_BYTES: f64 = 4096.0;
/// The start of a record, which has its key.
const RECOGNIZED_BYTES: f64 = 4096.0;
const GROUP_LENGTH_BITS: f64 = 8.0;
/// 20 bytes in the table, and 4 bytes per list head, with 1.5 list heads per entry.
const OBJECT_BITS: f64 = 160.0 + 48.0;
const CLUSTER_BITS: f64 = 192.0;
const TINY_SET_BITS: f64 = 32.0;
/// 64 bits for a slot of the front's index, of which at most 80% are used.
const TINY_SLOT_BITS: f64 = 80.0;
const TINY_ENTRIES_PER_SET: u64 = 7;
/// Share of lookups in a full index that read the record of another key (docs/measurements.md).
const LOG_FALSE_MATCHES: f64 = 0.0037;
/// False positive rate of a Bloom filter of 20 bits with 7 entries.
const TINY_FALSE_MATCHES: f64 = 0.18;
/// Set writes per new short entry. One set write stores several entries, and some entries are dropped without one.
const TINY_SET_WRITES: f64 = 0.3;
/// Header of a record, and half a sector for rounding up.
const RECORD_OVERHEAD_BYTES: f64 = 400.0;
/// A read covers the whole length class, which is longer than the record.
const SIZE_CLASS_EXCESS: f64 = 1.07;
/// Headers of units, trailers and checkpoints.
const UNIT_EXCESS: f64 = 1.03;
const CLUSTER_EXCESS: f64 = 1.06;
const PAGE_ENTRIES_MAX: f64 = 16.0;

#[cfg(test)]
mod tests;
