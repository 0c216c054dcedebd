//! Writes positions that memory has no room for to the position file, and reads them when their keys are looked up.
//!
//! Owns: the I/O. `position_file` knows the places, and `located` chooses the positions kept in memory. Invariants:
//! recovery fills the index from the segments and writes the file again, so no lookup reads what an earlier run wrote;
//! the file has only positions of records on the device, which stay there until their segment is reclaimed.
//! Cost: for a batch, a read and a write of each block with one of its sets; for a lookup, one read of a block. Source:
//! HashCache (NSDI 2009), LogLRU.

use super::{LogEngine, index::LogIndex, located::LocatedSets, position_file::PositionFile};
use crate::{
    Result,
    device::AlignedBuffer,
    format::positions::{self, TagPlace},
    hash::KeyHash,
    units::{BLOCK_BYTES, SetNumber},
    volume::counters::add,
};
use futures_util::{StreamExt, stream};
use std::sync::Arc;

/// Number of blocks read and written at once.
const DEPTH: usize = 16;

impl LogEngine {
    /// Looks up an entry's position in the file. Returns whether to query the index again.
    pub(super) async fn recall(&self, key_hash: KeyHash) -> Result<bool> {
        let (Some(file), LogIndex::Sets(sets)) = (&self.positions, &self.index) else { return Ok(false) };
        let Some(elsewhere) = sets.elsewhere(key_hash) else { return Ok(!sets.peek(key_hash).is_empty()) };
        let block = self.volume.read(file.block_of(elsewhere.set), BLOCK_BYTES).await?;
        let pairs = positions::decode(self.volume.id, elsewhere.set, &block[file.sheet_of(elsewhere.set)]);
        let pair = pairs.iter().flatten().find(|pair| pair.tag == elsewhere.tag);
        sets.recall(key_hash, elsewhere, pair.map(|pair| pair.position));
        self.tend_positions().await;
        Ok(true)
    }

    /// Counts the entries that the index found overwritten or had no room for as evicted.
    pub(super) fn note_overwritten(&self) {
        if let LogIndex::Sets(sets) = &self.index {
            let count = sets.take_overwritten();
            if count > 0 {
                add(&self.volume.counters.evicted, count);
            }
        }
    }

    /// Writes positions to the file if a write is due, or wakes the maintenance thread to do it.
    pub(super) async fn tend_positions(&self) {
        self.note_overwritten();
        let is_likely = matches!(&self.index, LogIndex::Sets(sets) if sets.demoted_batch_is_likely());
        if !is_likely {
            return;
        }
        if self.volume.options.background {
            self.volume.wakeup.wake();
        } else {
            self.write_positions().await;
        }
    }

    pub(super) fn positions_are_due(&self) -> bool {
        matches!(&self.index, LogIndex::Sets(sets) if sets.demoted_are_due())
    }

    /// Writes positions to the file until no write is due, or the records of all others may still move.
    pub(super) async fn write_positions(&self) {
        let (Some(file), LogIndex::Sets(sets)) = (&self.positions, &self.index) else { return };
        let next_batch = || {
            let log = self.lock_log();
            sets.demoted_batch(|position| log.may_move(position))
        };
        while let Some(batch) = next_batch() {
            let blocks = batch.places.chunk_by(|one, next| file.block_of(one.0) == file.block_of(next.0));
            let blocks: Vec<Vec<_>> = blocks.map(<[_]>::to_vec).collect();
            let written = stream::iter(blocks).map(|places| self.put_into_block(file, sets, places));
            written.buffer_unordered(DEPTH).collect::<()>().await;
        }
    }

    async fn put_into_block(&self, file: &PositionFile, sets: &LocatedSets, places: Vec<(SetNumber, TagPlace)>) {
        match self.write_block(file, sets, &places).await {
            Ok(()) => sets.demoted_written(&places),
            Err(error) => {
                sets.demoted_lost(&places);
                self.volume.note_failure(&error);
            }
        }
    }

    /// Writes the positions of one block's sets into it.
    async fn write_block(
        &self,
        file: &PositionFile,
        sets: &LocatedSets,
        places: &[(SetNumber, TagPlace)],
    ) -> Result<()> {
        let offset_bytes = file.block_of(places[0].0);
        let old = self.volume.read(offset_bytes, BLOCK_BYTES).await?;
        let mut block = AlignedBuffer::with_len(BLOCK_BYTES as usize);
        block.as_mut_slice().copy_from_slice(&old);
        for of_set in places.chunk_by(|one, next| one.0 == next.0) {
            let set = of_set[0].0;
            let sheet = file.sheet_of(set);
            let present = sets.tags(set);
            let mut pairs = positions::decode(self.volume.id, set, &old[sheet.clone()]).unwrap_or_default();
            pairs.retain(|old| present.contains(&old.tag) && of_set.iter().all(|(_, new)| new.tag != old.tag));
            pairs.extend(of_set.iter().map(|&(_, pair)| pair).filter(|pair| present.contains(&pair.tag)));
            positions::encode(self.volume.id, set, &pairs, &mut block.as_mut_slice()[sheet]);
        }
        self.volume.write(offset_bytes, Arc::new(block)).await
    }
}
