//! The room for entries in HashCache's sets and tables on disk, and the hits that it costs.
//!
//! Owns: the hits as a function of the constants. The policies' own hits are in `costs`. A bin has one entry, however
//! short. The bytes of long entries that do not fit go to a ring, which overwrites the oldest. So a table has fewer
//! entries than an LRU of the same bytes.

use super::CostAssumptions;
use crate::{
    Tuning,
    policy::{EngineRow, LogRow, Policy, TableRow},
};

/// Returns the mean bytes of an entry beyond its bin, over all entries.
pub(crate) fn mean_rest_bytes(share_longer_than: &dyn Fn(f64) -> f64, bin_bytes: u64) -> f64 {
    // The mean of what is beyond a length is the integral of the share that is longer. The steps grow with the length.
    let step = |number: u32| bin_bytes as f64 * f64::powi(STEP, number.cast_signed());
    let parts = (0..STEP_COUNT).map(|number| {
        let from = step(number);
        let to = step(number + 1);
        (to - from) * (share_longer_than(from) + share_longer_than(to)) / 2.0
    });
    parts.sum()
}

/// Returns the hits with these constants, relative to sets of 8 entries and to a volume that is full of entries.
pub(super) fn hits_share(policy: &Policy, assumed: &CostAssumptions<'_>) -> f64 {
    match policy.engine {
        EngineRow::Table(TableRow::Bins) => table_share(assumed),
        EngineRow::Table(_) => table_share(assumed) * sets_share(assumed.tuning),
        EngineRow::Log(LogRow::Located(_)) => sets_share(assumed.tuning),
        EngineRow::Log(LogRow::Packed(_)) | EngineRow::Mapped(_) | EngineRow::Clusters | EngineRow::Tiny => 1.0,
    }
}

/// Returns the hits with sets of this many entries, relative to those with 8. The smaller a set, the sooner an entry is
/// evicted by chance.
fn sets_share(tuning: &Tuning) -> f64 {
    let hits = |ways: f64| 1.0 - SMALL_SET_LOSS / ways;
    hits(f64::from(tuning.hashcache_ways)) / hits(8.0)
}

/// Returns the hits of a table relative to one that keeps as many entries of mean length as fit into the volume.
fn table_share(assumed: &CostAssumptions<'_>) -> f64 {
    let CostAssumptions { size_bytes, mean_entry_bytes, tuning, share_longer_than, .. } = *assumed;
    let size = size_bytes as f64;
    let bins = size * (1.0 - tuning.hashcache_ring_share) / tuning.hashcache_bin_bytes as f64;
    let rest = mean_rest_bytes(share_longer_than, tuning.hashcache_bin_bytes);
    let kept = bins.min(size * tuning.hashcache_ring_share / rest.max(1.0));
    let of_lru = (kept / (size / mean_entry_bytes as f64)).min(1.0);
    libm::pow(of_lru, HITS_EXPONENT)
}

/// Hits grow with this power of the number of entries: 1 - a for requests by Zipf's law with the exponent a, which is
/// 0.64 to 0.83 in web traces (Breslau et al., INFOCOM 1999).
const HITS_EXPONENT: f64 = 0.2;
/// Hits that sets of one entry lose against an LRU. With 8 entries it is 3%, as much as a plan assumes for LRU in sets.
const SMALL_SET_LOSS: f64 = 0.24;
const STEP: f64 = 1.1;
/// Up to a thousand times the bin.
const STEP_COUNT: u32 = 72;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_the_mean_beyond_the_bin() {
        // Lengths that are spread evenly from 0 to 100,000.
        let evenly = |bytes: f64| (1.0 - bytes / 100_000.0).max(0.0);
        let rest = mean_rest_bytes(&evenly, 20_000);
        assert!((rest / (80_000.0 * 0.8 / 2.0) - 1.0).abs() < 0.01, "{rest}");
        assert!(mean_rest_bytes(&evenly, 1 << 17) < 1.0);
    }
}
