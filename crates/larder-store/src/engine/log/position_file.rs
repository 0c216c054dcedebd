//! The position file: its place on the volume, and the places of the sets' sheets in it.
//!
//! Does no I/O, see `positions`. Source: HashCache (NSDI 2009), LogLRU.

use super::located::LocatedSets;
use crate::{
    LocatedRow, StoreOptions,
    format::positions::{sheet_bytes, sheets_per_block},
    units::{BLOCK_BYTES, SetNumber},
    volume::Volume,
};
use std::ops::Range;

/// The place of the position file on the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct PositionFile {
    start_bytes: u64,
    ways: u32,
}

impl PositionFile {
    /// Returns the bytes of the position file on a new volume.
    pub(super) fn bytes_for(options: &StoreOptions) -> u64 {
        let ways = options.tuning.hashcache_ways;
        let sets = LocatedSets::sets_for(ways, options.size_bytes / options.mean_entry_bytes);
        sets.div_ceil(sheets_per_block(ways)) * BLOCK_BYTES
    }

    /// Returns where the position file of a volume is; `None` if its policy has none.
    pub(super) fn of(volume: &Volume, row: LocatedRow) -> Option<Self> {
        let start_bytes = volume.shape.index_area().start;
        let ways = volume.options.tuning.hashcache_ways;
        (row == LocatedRow::Recent).then_some(Self { start_bytes, ways })
    }

    /// Returns the number of positions in a sheet, the list of a set's positions. There is one for each way of the set.
    pub(super) fn ways(&self) -> usize {
        self.ways as usize
    }

    /// Returns the maximum number of entries for which the file has positions.
    pub(super) fn entries_max(&self, volume: &Volume) -> u64 {
        volume.shape.index_bytes / BLOCK_BYTES * sheets_per_block(self.ways) * u64::from(self.ways)
    }

    /// Returns the offset on the volume of the block that contains a set's sheet, the list of the set's positions.
    pub(super) fn block_of(&self, set: SetNumber) -> u64 {
        self.start_bytes + set.0 / sheets_per_block(self.ways) * BLOCK_BYTES
    }

    /// Returns the range of a set's sheet, which lists the set's positions, within its block.
    pub(super) fn sheet_of(&self, set: SetNumber) -> Range<usize> {
        let per_block = sheets_per_block(self.ways);
        let bytes = sheet_bytes(self.ways) as usize;
        let at = (set.0 % per_block) as usize * bytes;
        at..at + bytes
    }
}
