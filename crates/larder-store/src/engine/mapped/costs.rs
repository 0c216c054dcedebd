//! What the policies with a map of all entries cost: memory, and the I/O of a hit and an insertion.

use crate::{
    MappedRow, SlotSchedule,
    policy::{CostAssumptions, PolicyCosts, TransferWork},
    units::SECTOR_BYTES,
};

/// Returns the memory, I/O and CPU costs of a policy with a map of all its entries.
pub(crate) fn costs(row: MappedRow, assumed: &CostAssumptions<'_>) -> PolicyCosts {
    let CostAssumptions { mean_entry_bytes, tuning, share_longer_than, .. } = *assumed;
    let mean = mean_entry_bytes as f64;
    let record = assumed.record_bytes();
    let slot_bits = mean / SECTOR_BYTES as f64;
    let read = TransferWork::reads_of(1.0, record);
    let file_read = TransferWork { file_reads: 1.0, file_read_bytes: record, ..TransferWork::default() };
    let file_write = TransferWork { file_replacements: 1.0, file_write_bytes: record, ..TransferWork::default() };
    let (space_bits, hit, insert, cpu_us) = match row {
        // These policies spend their time in the file system, which is part of the device's figures.
        MappedRow::Files(_) => (0.0, file_read, file_write, 6.0),
        // The files of slots stay open. A part of a block is read before it is written.
        MappedRow::SizeClasses => {
            let alone = share_longer_than(tuning.buddy_threshold_bytes as f64);
            let insert = read.and(TransferWork::writes_of(1.0, record));
            let hit = read.times(1.0 - alone).and(file_read.times(alone));
            (slot_bits, hit, insert.times(1.0 - alone).and(file_write.times(alone)), 6.0)
        }
        MappedRow::Slots(schedule) => {
            let (writes, bytes_each) = pages(assumed);
            let (insert, cpu_us) = match schedule {
                SlotSchedule::Through => (at_pointer(assumed, 1.0, record), 3.9),
                SlotSchedule::Asynchronous => (at_pointer(assumed, 1.0, record), 4.3),
                SlotSchedule::Pages => (at_pointer(assumed, writes, bytes_each), 3.9),
                SlotSchedule::PagesAndSortedReads => (at_pointer(assumed, writes, bytes_each), 4.8),
                // Without pages of several entries of a site, each entry ends within a page, which is written again
                // from its start for the next one.
                SlotSchedule::SitePagesAndSortedReads => (TransferWork::writes_of(writes, bytes_each), 5.3),
            };
            (slot_bits, read, insert, cpu_us)
        }
        MappedRow::Bitmap => {
            let block = tuning.esp_block_bytes as f64;
            // Each level of the bitmap has half the bits of the one below.
            (2.0 * mean / block, read, TransferWork::writes_of(1.0, record + block / 2.0), 5.2)
        }
    };
    let entries = assumed.entries();
    PolicyCosts {
        entries,
        index_bytes: entries * (MAP_BITS + space_bits) / 8.0,
        hit,
        miss: TransferWork::default(),
        insert,
        hits_of_lru: 1.0,
        cpu_us,
    }
}

/// Returns the I/O of writes at the write pointer, which moves through the file and starts again at its end. A write
/// continues where the previous write ended, unless a hit, or a batch of hits, has moved the disk's arm in between.
fn at_pointer(assumed: &CostAssumptions<'_>, writes: f64, bytes_each: f64) -> TransferWork {
    let batches = assumed.hit_ratio / assumed.hits_together;
    let moved = batches / (batches + (1.0 - assumed.hit_ratio) * writes).max(f64::MIN_POSITIVE);
    let going_on = TransferWork::sequential_write_of(writes * (1.0 - moved) * bytes_each);
    TransferWork::writes_of(writes * moved, bytes_each).and(going_on)
}

/// Returns the number of page writes per entry, and their length in bytes. Adjacent pages of a long entry are written
/// at once. Entries shorter than a page share a page.
fn pages(assumed: &CostAssumptions<'_>) -> (f64, f64) {
    let page = assumed.tuning.page_bytes as f64;
    let record = assumed.record_bytes();
    ((record / page).clamp(1.0 / PAGE_ENTRIES_MAX, 1.0), record.max(page))
}

const MAP_BITS: f64 = 272.0;
const PAGE_ENTRIES_MAX: f64 = 16.0;
