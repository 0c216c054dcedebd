//! The costs of each policy: memory, and the I/O of a hit, a miss and an insertion.
//!
//! Owns: what costs consist of, and the conditions that they depend on. The costs themselves are in each engine
//! (`engine::*::costs`), either published or counted there (asserted in `tests/it/rows`). Device speeds are
//! elsewhere; a plan combines both. Invariant: a policy without a value of its costs does not compile, because each
//! engine matches its own policies and fills every field. The costs are means over many requests to a full store;
//! docs/how-to/planning.md explains each.

mod room;
mod work;

pub(crate) use room::mean_rest_bytes;
pub(crate) use work::TransferWork;

use super::{EngineRow, Policy};
use crate::{Tuning, engine};

/// The conditions for which costs are computed.
#[derive(Clone, Copy)]
pub(crate) struct CostAssumptions<'a> {
    /// Size of the store in bytes.
    pub(crate) size_bytes: u64,
    /// Mean size of an entry with its head, in bytes.
    pub(crate) mean_entry_bytes: u64,
    /// Returns the share of entries that are longer than the given number of bytes.
    pub(crate) share_longer_than: &'a dyn Fn(f64) -> f64,
    /// Share of the requests that are hits.
    pub(crate) hit_ratio: f64,
    /// Number of hits whose reads go to the device together, in a sorted batch. 1 if reads do not wait for each other,
    /// or if the disk's own queue sorts them.
    pub(crate) hits_together: f64,
    /// Number of entries that one read brings in and that are requested soon, in policies that read groups or clusters.
    /// 1 means only the requested entry.
    pub(crate) group_size: f64,
    /// Constants of the policies.
    pub(crate) tuning: &'a Tuning,
}

impl std::fmt::Debug for CostAssumptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CostAssumptions")
            .field("size_bytes", &self.size_bytes)
            .field("mean_entry_bytes", &self.mean_entry_bytes)
            .field("hit_ratio", &self.hit_ratio)
            .field("hits_together", &self.hits_together)
            .field("group_size", &self.group_size)
            .finish_non_exhaustive()
    }
}

impl CostAssumptions<'_> {
    /// Returns how many entries would fit in the store if records had no overhead.
    pub(crate) fn entries(&self) -> f64 {
        self.size_bytes as f64 / self.mean_entry_bytes as f64
    }

    /// Returns the mean bytes of a record: an entry and its overhead.
    pub(crate) fn record_bytes(&self) -> f64 {
        self.mean_entry_bytes as f64 + RECORD_OVERHEAD_BYTES
    }

    /// Returns the number of useful entries that one read brings in, if the read contains the share `found` of the
    /// group.
    pub(crate) fn useful_entries(&self, found: f64) -> f64 {
        let left = if self.tuning.sorted_reads { SORTED_GROUP_SHARE } else { 1.0 };
        1.0 + (self.group_size - 1.0) * found * left
    }

    /// Returns the bits that HashCache's sets keep for an entry: its tag and its rank.
    pub(crate) fn set_bits(&self) -> f64 {
        f64::from(self.tuning.hashcache_tag_bits + self.tuning.hashcache_ways.ilog2())
    }

    /// Returns the share of lookups that find the tag of another key, in full sets of HashCache.
    pub(crate) fn false_matches(&self) -> f64 {
        f64::from(self.tuning.hashcache_ways) / f64::powi(2.0, self.tuning.hashcache_tag_bits.cast_signed())
    }

    /// Returns the hits with the configured number of entries per set, as a share of the hits with 8 per set. Small
    /// sets evict more entries that are still requested.
    pub(crate) fn sets_share(&self) -> f64 {
        let hits = |ways: f64| 1.0 - SMALL_SET_LOSS / ways;
        hits(f64::from(self.tuning.hashcache_ways)) / hits(8.0)
    }
}

/// The costs of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PolicyCosts {
    /// Number of entries that fit in the store.
    pub(crate) entries: f64,
    /// Memory of the full index, in bytes.
    pub(crate) index_bytes: f64,
    /// I/O of a lookup that finds its entry.
    pub(crate) hit: TransferWork,
    /// I/O of a lookup that finds no entry.
    pub(crate) miss: TransferWork,
    /// I/O of storing an entry in a full store.
    pub(crate) insert: TransferWork,
    /// Hits of this policy, as a share of the hits of an LRU cache with the same number of bytes.
    pub(crate) hits_of_lru: f64,
    /// Processor time of a request in microseconds: hashes, checksums, copies, searching whole sets. System calls for
    /// I/O and files do not count. Medians of three runs of `larder bench store --size 128MiB --time 3s`, minus 5 us
    /// for each I/O operation, scaled so that `log` takes 6 us as on an idle machine.
    pub(crate) cpu_us: f64,
}

impl Policy {
    /// Returns the costs of this policy under the assumptions `assumed`.
    pub(crate) fn costs(&self, assumed: &CostAssumptions<'_>) -> PolicyCosts {
        match self.engine {
            EngineRow::Log(row) => engine::log::costs::costs(row, assumed),
            EngineRow::Mapped(row) => engine::mapped::costs::costs(row, assumed),
            EngineRow::Table(row) => engine::table::costs::costs(row, assumed),
            EngineRow::Clusters => engine::clusters::costs::costs(assumed),
            EngineRow::Tiny => engine::tiny::costs::costs(assumed),
        }
    }
}

/// Exponent e in the assumption that the hits of a cache grow with (number of entries)^e. With requests by Zipf's law
/// it is 1 minus that law's exponent, which is 0.64 to 0.83 in web traces (Breslau et al., INFOCOM 1999).
pub(crate) const HITS_EXPONENT: f64 = 0.2;
/// Share of a group's entries that one read brings in before they are requested, if reads wait for a sorted batch.
/// Measured with `hashcache-log` and `ucfs` (docs/internals/measurements.md, "Reads on a spinning disk").
const SORTED_GROUP_SHARE: f64 = 0.2;
/// Share of the hits that sets of one entry lose against an LRU cache. Sets of n entries lose 1/n of this share: 3%
/// with 8 entries, which is what a plan assumes for every policy with an LRU in sets.
const SMALL_SET_LOSS: f64 = 0.24;
/// Overhead of a record in bytes: its header, and half a sector for rounding up.
const RECORD_OVERHEAD_BYTES: f64 = 400.0;

#[cfg(test)]
mod tests;
