//! What `tiny` costs: memory, and the I/O of a hit, a miss and an insertion.

use super::layout::{TinyPlan, TinyWishes};
use crate::{
    policy::{CostAssumptions, PolicyCosts, TransferWork},
    units::{DATA_START_BYTES, last_superblock_bytes},
};

/// Returns the memory, I/O and CPU costs of the policy `tiny`.
pub(crate) fn costs(assumed: &CostAssumptions<'_>) -> PolicyCosts {
    let CostAssumptions { tuning, share_longer_than, .. } = *assumed;
    let set = tuning.tiny_set_bytes as f64;
    let record = assumed.record_bytes();
    let long = share_longer_than(set / 2.0);
    let set_writes = (1.0 - long) * SET_WRITES;
    let (entries, index_bytes) = memory(assumed);
    PolicyCosts {
        entries,
        index_bytes,
        hit: TransferWork::reads_of(1.0, set).and(TransferWork::reads_of(long, (record / long.max(0.1)).max(set))),
        miss: TransferWork::reads_of(FALSE_MATCHES, set),
        insert: TransferWork::sequential_write_of(record * UNIT_EXCESS)
            .and(TransferWork::writes_of(set_writes, set))
            .and(TransferWork::reads_of(set_writes, set)),
        hits_of_lru: RANK_IN_SET_HITS,
        cpu_us: 11.0,
    }
}

/// Returns the number of entries that fit in the store, and the bytes of the index.
fn memory(assumed: &CostAssumptions<'_>) -> (f64, f64) {
    let CostAssumptions { size_bytes, mean_entry_bytes, tuning, .. } = *assumed;
    let wishes =
        TinyWishes { mean_entry_bytes, set_bytes: tuning.tiny_set_bytes, front_percent: tuning.tiny_front_percent };
    let Some(plan) = TinyPlan::new(DATA_START_BYTES..last_superblock_bytes(size_bytes), wishes) else {
        return (0.0, 0.0);
    };
    let sets = f64::from(plan.set_count);
    let per_set = plan.entries_per_set(mean_entry_bytes);
    let slots = plan.front_slots(mean_entry_bytes) as f64;
    let set_bits = SET_BITS * per_set.div_ceil(ENTRIES_PER_SET_WORD) as f64;
    (sets * per_set as f64 + slots, (sets * set_bits + slots * SLOT_BITS) / 8.0)
}

const RANK_IN_SET_HITS: f64 = 0.95;
const SET_BITS: f64 = 32.0;
const ENTRIES_PER_SET_WORD: u64 = 7;
/// Bits of memory for each entry in the front, the small log that entries pass before they reach the sets. A slot of
/// its index has 64 bits, and at most 80% of the slots are used.
const SLOT_BITS: f64 = 80.0;
/// Share of lookups of absent keys that read a set. A Bloom filter of 20 bits has 7 entries.
const FALSE_MATCHES: f64 = 0.18;
/// Writes of sets for each new short entry. The number is below 1, because one write moves several entries, and some
/// entries are dropped without a write.
const SET_WRITES: f64 = 0.3;
/// Bytes written for each byte of records, because of the headers of packs.
const UNIT_EXCESS: f64 = 1.03;
