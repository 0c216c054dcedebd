//! What the policy of clusters costs: memory, and the I/O of a hit and an insertion.

use crate::policy::{CostAssumptions, PolicyCosts, TransferWork};

/// Returns the memory, I/O and CPU costs of the policy `ucfs`.
pub(crate) fn costs(assumed: &CostAssumptions<'_>) -> PolicyCosts {
    let cluster = assumed.tuning.ucfs_cluster_bytes as f64;
    let entries = assumed.entries();
    let cluster_bits = CLUSTER_BITS * assumed.mean_entry_bytes as f64 / cluster;
    PolicyCosts {
        entries,
        index_bytes: entries * (OBJECT_BITS + cluster_bits) / 8.0,
        hit: TransferWork::reads_of(1.0 / assumed.useful_entries(1.0), cluster),
        miss: TransferWork::default(),
        insert: TransferWork::sequential_write_of(assumed.record_bytes() * CLUSTER_EXCESS),
        hits_of_lru: 0.9,
        cpu_us: 8.0,
    }
}

/// Bits of memory per entry: 20 bytes in the table, and 1.5 positions of 4 bytes in its hash table.
const OBJECT_BITS: f64 = 160.0 + 48.0;
const CLUSTER_BITS: f64 = 192.0;
const CLUSTER_EXCESS: f64 = 1.06;
