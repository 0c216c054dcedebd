//! The read side: from a key to a verified entry with one read, at once or in a sorted batch
//! ([`crate::volume::read_batches`]).
//!
//! Invariant: an entry is returned only if it is whole, has this key, was stored by the write named in the map, and is
//! neither expired nor invalidated.

use super::{MappedEngine, layout::RecordPlace};
use crate::{
    Error, ErrorKind, Reader, Result,
    engine::kit::lookup::{self, LookStep},
    hash::FullHash,
    volume::{KeyVerdict, counters::add},
};
use bytes::Bytes;
use std::{io, sync::Arc};

/// An entry that was found in the map.
pub(super) struct FoundOnMap {
    /// Number of the write that stored the entry.
    pub(super) sequence: u32,
    /// The record, if the device does not have it yet.
    pub(super) dirty: Option<Bytes>,
    pub(super) spot: RecordPlace,
    pub(super) len_bytes: u64,
}

impl MappedEngine {
    /// Returns the entry of `key`, and the number of the write that stored it.
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8]) -> Result<Option<(u32, Reader)>> {
        let hash = self.volume.hash(key).1;
        lookup::follow(&self.volume, true, || self.look(key, hash)).await
    }

    async fn look(self: &Arc<Self>, key: &[u8], hash: FullHash) -> Result<LookStep<(u32, Reader)>> {
        let volume = &self.volume;
        let key_hash = hash.key_hash();
        let found = self.update(|state| state.find(key_hash, volume.clock.now_s()));
        let Some(FoundOnMap { sequence, dirty, spot, len_bytes }) = found else { return Ok(LookStep::Nothing) };
        let record = match dirty {
            Some(record) => record,
            None => self.read(spot, len_bytes).await?,
        };
        match volume.judge(&record, hash, key) {
            KeyVerdict::Sound(decoded) if decoded.meta.sequence == sequence => {
                Ok(LookStep::Found((sequence, Reader::whole(Arc::clone(volume), record, decoded))))
            }
            KeyVerdict::Useless => {
                self.update(|state| state.remove_write(key_hash, sequence));
                Ok(LookStep::Nothing)
            }
            verdict => {
                // The place was reassigned during the read, or has another record than expected.
                if !self.update(|state| state.remove_write(key_hash, sequence)) {
                    return Ok(LookStep::Moved);
                }
                let is_false_match = matches!(verdict, KeyVerdict::FalseMatch);
                add(if is_false_match { &volume.counters.false_matches } else { &volume.counters.corrupt }, 1);
                Ok(LookStep::Nothing)
            }
        }
    }

    async fn read(&self, spot: RecordPlace, len_bytes: u64) -> Result<Bytes> {
        let (place, skip, outcome) = match spot {
            RecordPlace::Volume(offset_bytes) => {
                let (start, skip, aligned_len) = self.volume.aligned(offset_bytes, len_bytes);
                (format!("byte {start}"), skip, self.volume.read_aligned_in_batch(start, aligned_len).await)
            }
            RecordPlace::File(file, offset_bytes) => {
                add(&self.volume.counters.reads, 1);
                add(&self.volume.counters.read_bytes, len_bytes);
                (format!("file {file}"), 0, self.directory().read(file, offset_bytes, len_bytes as usize).await)
            }
        };
        let is_gone =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof);
        if !outcome.as_ref().is_err_and(is_gone) {
            self.volume.note_transfer(&outcome);
        }
        match outcome {
            Ok(buffer) => Ok(Bytes::from_owner(buffer).slice(skip..skip + len_bytes as usize)),
            // The file was removed just before the read, or is shorter than expected.
            Err(error) if is_gone(&error) => Ok(Bytes::new()),
            Err(source) => {
                add(&self.volume.counters.io_errors, 1);
                let place = format!("cannot read the store at {place}");
                Err(Error::io(ErrorKind::Unavailable, place, source))
            }
        }
    }
}
