//! The layout of the disk table: sets of bins with one entry per bin, then the ring.
//!
//! Pure arithmetic. Owns: the position of each bin. Invariant: every bin and the whole ring are between the index area
//! and the last superblock. Source: HashCache (NSDI 2009), bins of 8 KiB in sets of 64 KiB.

use crate::{
    format::bin::BIN_HEADER_BYTES,
    units::{BLOCK_BYTES, SetNumber},
};
use std::ops::Range;

/// Minimum number of sets in a table.
const SET_COUNT_MIN: u64 = 4;

/// The place on a volume of the bins, and of the ring, the circular log for data that does not fit in bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableLayout {
    start_bytes: u64,
    pub(crate) bin_bytes: u64,
    pub(crate) ways: u64,
    pub(crate) set_count: u64,
    pub(crate) ring_start_bytes: u64,
    pub(crate) ring_len_bytes: u64,
}

impl TableLayout {
    /// Creates a layout in the range `room` of the volume: `set_count` sets of `ways` bins of `bin_bytes` each, and
    /// behind them the ring, a circular log. Returns `None` if there is not enough room for a useful table.
    pub(crate) fn new(room: Range<u64>, bin_bytes: u64, ways: u64, set_count: u64) -> Option<Self> {
        let start_bytes = room.start.next_multiple_of(BLOCK_BYTES);
        let table_bytes = bin_bytes.checked_mul(ways)?.checked_mul(set_count)?;
        let ring_start_bytes = start_bytes.checked_add(table_bytes)?;
        let ring_len_bytes = room.end.checked_sub(ring_start_bytes)? / BLOCK_BYTES * BLOCK_BYTES;
        let enough = set_count >= SET_COUNT_MIN && ring_len_bytes >= BLOCK_BYTES;
        enough.then_some(Self { start_bytes, bin_bytes, ways, set_count, ring_start_bytes, ring_len_bytes })
    }

    /// Returns the number of bins in all sets together.
    pub(crate) fn bin_count(&self) -> u64 {
        self.set_count * self.ways
    }

    /// Returns the offset of a set on the volume.
    pub(crate) fn set_offset_bytes(&self, set: SetNumber) -> u64 {
        assert!(set.0 < self.set_count);
        self.start_bytes + set.0 * self.set_bytes()
    }

    /// Returns the offset of a bin on the volume.
    pub(crate) fn bin_offset_bytes(&self, set: SetNumber, way: u64) -> u64 {
        assert!(way < self.ways);
        self.set_offset_bytes(set) + way * self.bin_bytes
    }

    /// Returns the length of a set in bytes.
    pub(crate) fn set_bytes(&self) -> u64 {
        self.ways * self.bin_bytes
    }

    /// Returns how many bytes of a record fit in a bin behind its header.
    pub(crate) fn first_bytes(&self) -> u64 {
        self.bin_bytes - BIN_HEADER_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_and_ring_fill_the_room_and_do_not_meet() {
        for (room, set_count) in [(64 << 10..3 << 20, 30), (4096..(1 << 40) + 4096, 1 << 23)] {
            let layout = TableLayout::new(room.clone(), 8192, 8, set_count).unwrap();
            assert_eq!((layout.set_offset_bytes(SetNumber(0)), layout.bin_count()), (room.start, set_count * 8));
            let last = layout.bin_offset_bytes(SetNumber(set_count - 1), 7) + layout.bin_bytes;
            assert_eq!(last, layout.ring_start_bytes);
            let end = layout.ring_start_bytes + layout.ring_len_bytes;
            assert!(end <= room.end && room.end - end < BLOCK_BYTES);
        }
        for (room, set_count) in [(0..200_000, 4), (0..1 << 40, 3), (0..1 << 40, u64::MAX)] {
            assert_eq!(TableLayout::new(room, 8192, 8, set_count), None);
        }
    }
}
