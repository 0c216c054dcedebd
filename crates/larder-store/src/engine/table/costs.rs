//! What the policies with a table on the volume cost: memory, and the I/O of a hit, a miss and an insertion.

use crate::{
    TableRow,
    policy::{CostAssumptions, HITS_EXPONENT, PolicyCosts, TransferWork, mean_rest_bytes},
    units::BLOCK_BYTES,
};

/// Returns the memory, I/O and CPU costs of a policy with a disk table.
pub(crate) fn costs(row: TableRow, assumed: &CostAssumptions<'_>) -> PolicyCosts {
    let tuning = assumed.tuning;
    let bin = tuning.hashcache_bin_bytes as f64;
    let ways = f64::from(tuning.hashcache_ways);
    let bins = bin_count(assumed);
    let read_bin = TransferWork::reads_of(1.0, bin);
    let read_set = TransferWork::reads_of(1.0, ways * bin);
    let false_match = read_bin.times(assumed.false_matches());
    // Whose a bin with the new entry's tag is.
    let recognition = TransferWork::reads_of(assumed.false_matches(), BLOCK_BYTES as f64);
    let nothing = TransferWork::default();
    let (bits, first_read, miss, recognition, hits_of_lru, cpu_us) = match row {
        // If there are as many bins as entries, it keeps 1 - 1/e of them.
        TableRow::Bins => (0.0, read_bin, read_bin, nothing, BINS_HITS, 1.6),
        TableRow::Sets => (0.0, read_set, read_set, nothing, FIFO_IN_SET_HITS * assumed.sets_share(), 6.1),
        TableRow::TaggedSets => {
            let hits = LRU_IN_SET_HITS * assumed.sets_share();
            (assumed.set_bits(), read_bin, false_match, recognition, hits, 24.0)
        }
        TableRow::RecentlyTaggedSets => {
            let resident = tuning.hashcache_resident_share;
            let links = RESIDENT_LINKS * (bins / ways).log2() / ways;
            let mixed = |known: TransferWork| known.times(resident).and(read_set.times(1.0 - resident));
            let hits = LRU_IN_SET_HITS * assumed.sets_share();
            let bits = resident * (assumed.set_bits() + links);
            (bits, mixed(read_bin), mixed(false_match), recognition.times(resident), hits, 24.0)
        }
    };
    PolicyCosts {
        entries: bins,
        index_bytes: bins * bits / 8.0,
        hit: first_read.and(rest(assumed, TransferWork::reads_of)),
        miss,
        insert: TransferWork::writes_of(1.0, bin).and(rest(assumed, TransferWork::writes_of)).and(recognition),
        hits_of_lru: hits_of_lru * table_share(assumed),
        cpu_us,
    }
}

/// Returns the I/O for the parts of entries that do not fit in their bins. `of` converts a number of operations and
/// their length to I/O.
fn rest(assumed: &CostAssumptions<'_>, of: fn(f64, f64) -> TransferWork) -> TransferWork {
    let bin = assumed.tuning.hashcache_bin_bytes as f64;
    let long = (assumed.share_longer_than)(bin);
    // Lengths on the web have long tails: a long entry has at least the mean length beyond its bin.
    of(long, (assumed.record_bytes() / long.max(0.1)).max(bin))
}

fn bin_count(assumed: &CostAssumptions<'_>) -> f64 {
    let tuning = assumed.tuning;
    assumed.size_bytes as f64 * (1.0 - tuning.hashcache_ring_share) / tuning.hashcache_bin_bytes as f64
}

/// Returns the number of entries that a table keeps, as a share of the entries of mean length that fit in the volume.
///
/// A bin has one entry, even if it is short. The parts of long entries that do not fit in bins go to a ring, which
/// overwrites the oldest. So a table has fewer entries than an LRU cache of the same size.
fn table_share(assumed: &CostAssumptions<'_>) -> f64 {
    let CostAssumptions { size_bytes, tuning, share_longer_than, .. } = *assumed;
    let rest = mean_rest_bytes(share_longer_than, tuning.hashcache_bin_bytes);
    let kept = bin_count(assumed).min(size_bytes as f64 * tuning.hashcache_ring_share / rest.max(1.0));
    let of_lru = (kept / assumed.entries()).min(1.0);
    libm::pow(of_lru, HITS_EXPONENT)
}

/// Hits of a table with one bin per key, as a share of those of an LRU cache. FIFO and LRU in sets of 8 come closer to
/// an LRU cache (docs/how-to/planning.md).
const BINS_HITS: f64 = 0.8;
const FIFO_IN_SET_HITS: f64 = 0.92;
const LRU_IN_SET_HITS: f64 = 0.97;
/// Number of links for each set in memory, to find it and to order the sets by use. Each link is as long as a set
/// number. Includes the heads of the hash chains.
const RESIDENT_LINKS: f64 = 3.5;
