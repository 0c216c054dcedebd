//! Writes positions that memory has no room for to the position file, and reads them when their keys are looked up.
//!
//! Owns: the I/O. `position_file` knows the places, and `located` chooses the positions kept in memory. Invariants:
//! recovery fills the index from the segments and writes the file again, so no lookup reads what an earlier run wrote;
//! the file has only positions of records on the device, which stay there until their segment is reclaimed.
//! Cost: for a batch, a read and a write of each block with one of its sets; for a lookup, one read of a block. Source:
//! HashCache (NSDI 2009), LogLRU.

use super::{
    LogEngine,
    index::LogIndex,
    located::{LocatedSets, demoted::WayPosition, elsewhere::FiledSet},
    position_file::PositionFile,
};
use crate::{
    Result,
    device::AlignedBuffer,
    format::positions,
    hash::KeyHash,
    units::{BLOCK_BYTES, SetNumber},
    volume::counters::add,
};
use futures_util::{StreamExt, stream};
use std::sync::Arc;

/// Number of blocks that are read and written at the same time.
const DEPTH: usize = 16;
/// Maximum number of times that an insertion reads the positions of a set. It reads them again if another task has
/// written the file in the meantime.
const RECALLS_MAX: u32 = 4;

impl LogEngine {
    /// Reads the positions of a key's address from the position file, unless all of them are in memory. Returns whether
    /// the index now has slots for the key, so that the caller should look up the key again.
    pub(super) async fn recall(&self, key_hash: KeyHash) -> Result<bool> {
        let (Some(file), LogIndex::Sets(sets)) = (&self.positions, &self.index) else { return Ok(false) };
        let Some(elsewhere) = sets.elsewhere(key_hash) else { return Ok(!sets.peek(key_hash).is_empty()) };
        self.recall_from(file, sets, key_hash, elsewhere).await?;
        Ok(true)
    }

    /// Reads all positions of a key's address from the position file. If positions cannot be read, the insertion that
    /// follows drops their entries, because one of them may be an older entry of the key.
    pub(super) async fn recall_all(&self, key_hash: KeyHash) {
        let (Some(file), LogIndex::Sets(sets)) = (&self.positions, &self.index) else { return };
        for _ in 0..RECALLS_MAX {
            let Some(elsewhere) = sets.elsewhere(key_hash) else { return };
            if self.recall_from(file, sets, key_hash, elsewhere).await.is_err() {
                return;
            }
        }
    }

    async fn recall_from(
        &self,
        file: &PositionFile,
        sets: &LocatedSets,
        key_hash: KeyHash,
        elsewhere: FiledSet,
    ) -> Result<()> {
        let block = self.volume.read(file.block_of(elsewhere.set), BLOCK_BYTES).await?;
        let sheet = &block[file.sheet_of(elsewhere.set)];
        let places = positions::decode(self.volume.id, elsewhere.set, sheet).unwrap_or_default();
        sets.recall(key_hash, elsewhere, &places);
        Ok(())
    }

    /// Counts as evicted the entries that the index found overwritten, or for whose positions it had no space.
    pub(super) fn note_overwritten(&self) {
        if let LogIndex::Sets(sets) = &self.index {
            let count = sets.take_overwritten();
            if count > 0 {
                add(&self.volume.counters.evicted, count);
            }
        }
    }

    /// Writes positions to the position file if a write is due, or wakes the maintenance thread to do so.
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

    /// Writes positions to the position file until no write is due, or until all waiting positions are those of records
    /// that may still move.
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

    async fn put_into_block(&self, file: &PositionFile, sets: &LocatedSets, places: Vec<(SetNumber, WayPosition)>) {
        match self.write_block(file, &places).await {
            Ok(()) => sets.demoted_written(&places),
            Err(error) => {
                sets.demoted_lost(&places);
                self.volume.note_failure(&error);
            }
        }
    }

    /// Writes the positions of sets whose sheets (lists of positions) are in the same block.
    async fn write_block(&self, file: &PositionFile, places: &[(SetNumber, WayPosition)]) -> Result<()> {
        let offset_bytes = file.block_of(places[0].0);
        let old = self.volume.read(offset_bytes, BLOCK_BYTES).await?;
        let mut block = AlignedBuffer::with_len(BLOCK_BYTES as usize);
        block.as_mut_slice().copy_from_slice(&old);
        for of_set in places.chunk_by(|one, next| one.0 == next.0) {
            let set = of_set[0].0;
            let sheet = file.sheet_of(set);
            // The position of a way that was emptied stays until the way's next entry has one in the file. Until then,
            // that entry's position is in memory.
            let mut filed = positions::decode(self.volume.id, set, &old[sheet.clone()]).unwrap_or_default();
            filed.resize(file.ways(), None);
            of_set.iter().for_each(|(_, place)| filed[place.way] = Some(place.position));
            positions::encode(self.volume.id, set, &filed, &mut block.as_mut_slice()[sheet]);
        }
        self.volume.write(offset_bytes, Arc::new(block)).await
    }
}
