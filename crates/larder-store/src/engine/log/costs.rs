//! What the policies of the log cost: memory, and the I/O of a hit, a miss and an insertion.

use super::{admission::seen_bits_per_entry, index::IndexShape, positions_waiting};
use crate::{
    LocatedRow, LogEviction, LogRow, Tuning,
    format::positions::sheets_per_block,
    policy::{CostAssumptions, HITS_EXPONENT, PolicyCosts, TransferWork},
    units::{BLOCK_BYTES, SECTOR_BYTES},
};

/// Returns the memory, I/O and CPU costs of a policy on the log.
pub(crate) fn costs(row: LogRow, assumed: &CostAssumptions<'_>) -> PolicyCosts {
    match row {
        LogRow::Packed(eviction) => packed(eviction, assumed),
        LogRow::Located(row) => located(row, assumed),
    }
}

fn packed(eviction: LogEviction, assumed: &CostAssumptions<'_>) -> PolicyCosts {
    let CostAssumptions { size_bytes, tuning, .. } = *assumed;
    let entries = assumed.entries();
    let shape = IndexShape::new(size_bytes / SECTOR_BYTES);
    let (seen_bits, reinserting_hits) = match eviction {
        LogEviction::Worth => (seen_bits_per_entry(&shape, entries as u64) as f64, WORTH_HITS),
        LogEviction::Clock => (0.0, CLOCK_HITS),
    };
    let reinserts = tuning.reinsertion_share > 0.0;
    let record = assumed.record_bytes();
    let group = assumed.useful_entries(1.0);
    let read_bytes = record * SIZE_CLASS_EXCESS * group;
    let again = if reinserts {
        let most = tuning.reinsertion_share / (1.0 - tuning.reinsertion_share);
        record * most.min(REINSERTED)
    } else {
        0.0
    };
    PolicyCosts {
        entries,
        index_bytes: entries * (shape.bits_per_entry(entries as u64) + seen_bits) / 8.0,
        hit: TransferWork::reads_of((1.0 + FALSE_MATCHES) / group, read_bytes),
        miss: TransferWork::reads_of(FALSE_MATCHES, record),
        insert: TransferWork {
            sequential_write_bytes: record * UNIT_EXCESS + again,
            sequential_read_bytes: again,
            ..TransferWork::default()
        },
        hits_of_lru: if reinserts { reinserting_hits } else { FIFO_HITS },
        cpu_us: 6.0,
    }
}

fn located(row: LocatedRow, assumed: &CostAssumptions<'_>) -> PolicyCosts {
    let CostAssumptions { tuning, share_longer_than, .. } = *assumed;
    let entries = assumed.entries();
    let record = assumed.record_bytes();
    let first_read = tuning.hashcache_first_read_bytes as f64;
    let fixed_bits = assumed.set_bits() + f64::from(tuning.hashcache_generation_bits);
    let false_match = TransferWork::reads_of(assumed.false_matches(), first_read);
    // The start of a record with the new entry's tag is read, to see whose it is.
    let recognition = TransferWork::reads_of(assumed.false_matches(), RECOGNIZED_BYTES);
    let group = assumed.useful_entries(1.0);
    let group_read = TransferWork::reads_of(1.0 / group, record * group);
    let append = TransferWork::sequential_write_of(record * UNIT_EXCESS);
    let (bits, hit, miss, insert, cpu_us) = match row {
        LocatedRow::Plain => {
            let longer = TransferWork::reads_of(share_longer_than(first_read), 2.0 * first_read);
            let hit = TransferWork::reads_of(1.0, first_read).and(longer);
            (fixed_bits + POSITION_BITS, hit, false_match, append.and(recognition), 4.0)
        }
        LocatedRow::Grouped => {
            (fixed_bits + POSITION_BITS + LENGTH_BITS, group_read, false_match, append.and(recognition), 2.0)
        }
        LocatedRow::Recent => {
            let in_memory = positions_share(tuning);
            let elsewhere = 1.0 - in_memory;
            let bits = fixed_bits + (POSITION_BITS + LENGTH_BITS) * in_memory + waiting_bits(assumed);
            let demotion = demotion(assumed);
            // Only the position of the group's first entry is read. It comes back to memory, and another one leaves.
            let recall = TransferWork::reads_of(1.0, BLOCK_BYTES as f64).and(demotion);
            // The positions in memory are those of the entries that were used last, so most hits find theirs.
            let recalled_hits = 1.0 - libm::pow(in_memory, HITS_EXPONENT);
            let hit = group_read.and(recall.times(recalled_hits / group));
            let recalled = recall.times(assumed.false_matches() * elsewhere);
            let insert = append.and(demotion).and(recognition).and(recalled);
            (bits, hit, false_match.and(recalled), insert, 3.0)
        }
    };
    PolicyCosts {
        entries,
        index_bytes: entries * bits / 8.0,
        hit,
        miss,
        insert,
        hits_of_lru: FIFO_HITS * assumed.sets_share(),
        cpu_us,
    }
}

/// Returns the share of the entries whose positions are in memory, for a policy with a position file.
fn positions_share(tuning: &Tuning) -> f64 {
    (f64::from(tuning.hashcache_positions) / f64::from(tuning.hashcache_ways)).min(1.0)
}

fn waiting(assumed: &CostAssumptions<'_>) -> f64 {
    positions_waiting(assumed.tuning, assumed.entries() as u64) as f64
}

fn waiting_bits(assumed: &CostAssumptions<'_>) -> f64 {
    8.0 * WAITING_BYTES * 2.0 * waiting(assumed) / assumed.entries()
}

/// Returns the I/O of moving a position from memory to the position file. Positions are collected and written in the
/// order of their sets, so those of one block share a write. The disk's arm moves over the file in one direction, so
/// each block costs one write and a sequential read.
fn demotion(assumed: &CostAssumptions<'_>) -> TransferWork {
    let ways = assumed.tuning.hashcache_ways;
    let per_block = sheets_per_block(ways) as f64 * f64::from(ways);
    let together = waiting(assumed) / (assumed.entries() / per_block);
    let blocks = (1.0 - libm::exp(-together)) / together;
    let block_bytes = BLOCK_BYTES as f64;
    TransferWork { sequential_read_bytes: blocks * block_bytes, ..TransferWork::writes_of(blocks, block_bytes) }
}

/// Hits of `log`, as a share of the hits of an LRU cache of the same size. This is the median of six request sequences,
/// with a cache of 10% of their footprint (docs/internals/measurements.md).
const WORTH_HITS: f64 = 1.10;
const CLOCK_HITS: f64 = 1.02;
/// Hits of a log that rewrites no entries, as a share of the hits of an LRU cache of the same size.
const FIFO_HITS: f64 = 0.92;
/// Bytes rewritten for each byte that was missed, if the reinsertion share allows it. With the new entry itself, 1.3
/// bytes are then written for each missed byte. Measurements show 0.6 to 1.5, depending on how much is admitted and hit
/// (docs/internals/measurements.md).
const REINSERTED: f64 = 0.28;
/// Share of lookups that read the record of another key, with a full index (docs/internals/measurements.md).
const FALSE_MATCHES: f64 = 0.0037;
/// Bytes read for each byte of a record. The index only knows the record's length class, so a read covers the whole
/// class.
const SIZE_CLASS_EXCESS: f64 = 1.07;
/// Bytes written for each byte of records, because of the headers of units, trailers and checkpoints.
const UNIT_EXCESS: f64 = 1.03;
const POSITION_BITS: f64 = 32.0;
const LENGTH_BITS: f64 = 8.0;
/// Bytes of memory for a position that waits to be written to the position file. The number of waiting positions is at
/// most twice that of one write.
const WAITING_BYTES: f64 = 40.0;
/// Bytes read from the start of a record to compare its key.
const RECOGNIZED_BYTES: f64 = 4096.0;
