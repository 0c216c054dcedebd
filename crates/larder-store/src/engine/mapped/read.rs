//! The read side: from a key to a verified entry with one read, at once or in a sorted batch.
//!
//! Invariant: an entry is returned only if it is whole, has this key, was stored by the write named in the map, and is
//! neither expired nor invalidated. A read in a batch is submitted when the batch is full or its timeout has passed. In
//! a store without a maintenance thread, it is also submitted when its future is polled a second time, because no other
//! task would do it.

use super::{MappedEngine, layout::RecordPlace};
use crate::{
    Error, ErrorKind, Reader, Result,
    device::{AlignedBuffer, Completion, PendingTransfer, Transfer},
    engine::kit::lookup::{self, LookStep},
    hash::FullHash,
    volume::{KeyVerdict, counters::add},
};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::Arc,
};

/// The place at which an entry was found.
pub(super) struct FoundOnMap {
    /// The number of the write that stored it.
    pub(super) sequence: u32,
    /// The record, while it is not yet on the device.
    pub(super) dirty: Option<Bytes>,
    pub(super) spot: RecordPlace,
    pub(super) len_bytes: u64,
}

/// A read that waits in a batch.
pub(super) struct BatchedRead {
    pub(super) offset_bytes: u64,
    len_bytes: u64,
    completion: Completion<AlignedBuffer>,
}

impl MappedEngine {
    /// Returns the entry of `key`, and the number of the write that stored it.
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8]) -> Result<Option<(u32, Reader)>> {
        let hash = self.volume.hash(key).1;
        lookup::follow(&self.volume, true, || self.look(key, hash)).await
    }

    async fn look(self: &Arc<Self>, key: &[u8], hash: FullHash) -> Result<LookStep<(u32, Reader)>> {
        let (volume, key_hash) = (&self.volume, hash.key_hash());
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

    /// Submits the reads of a batch.
    pub(super) fn send_reads(&self, reads: Vec<BatchedRead>) {
        let counters = &self.volume.counters;
        for BatchedRead { offset_bytes, len_bytes, completion } in reads {
            add(&counters.reads, 1);
            add(&counters.read_bytes, len_bytes);
            let buffer = AlignedBuffer::with_len(len_bytes as usize);
            self.volume.device.submit(Transfer::Read { offset_bytes, buffer, completion });
        }
    }

    async fn read(&self, spot: RecordPlace, len_bytes: u64) -> Result<Bytes> {
        let (place, skip, pending) = match spot {
            RecordPlace::Volume(offset_bytes) => {
                let (start, skip, aligned_len) = self.volume.aligned(offset_bytes, len_bytes);
                (format!("byte {start}"), skip, self.start_read(start, aligned_len))
            }
            RecordPlace::File(file, offset_bytes) => {
                add(&self.volume.counters.reads, 1);
                add(&self.volume.counters.read_bytes, len_bytes);
                (format!("file {file}"), 0, self.directory().read(file, offset_bytes, len_bytes as usize))
            }
        };
        let outcome = if self.volume.options.background { pending.await } else { self.insist(pending).await };
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

    /// Submits a read, or adds it to the batch.
    fn start_read(&self, offset_bytes: u64, len_bytes: u64) -> PendingTransfer<AlignedBuffer> {
        let (completion, pending) = Completion::pair();
        let read = BatchedRead { offset_bytes, len_bytes, completion };
        let batched = self.lock().batch(read, self.volume.clock.now());
        match batched {
            Err(read) => self.send_reads(vec![read]),
            Ok(due) if due.is_empty() => self.volume.wakeup.wake(),
            Ok(due) => self.send_reads(due),
        }
        pending
    }

    /// Waits for a read in virtual time. Wakes itself after the first poll; the second poll submits the batch.
    async fn insist(&self, pending: PendingTransfer<AlignedBuffer>) -> io::Result<AlignedBuffer> {
        let mut pending = pin!(pending);
        let mut asked = 0;
        poll_fn(|context| {
            asked += 1;
            if asked == 2 {
                let reads = self.lock().take_reads();
                self.send_reads(reads);
            }
            let outcome = pending.as_mut().poll(context);
            if asked == 1 && outcome.is_pending() {
                context.waker().wake_by_ref();
            }
            outcome
        })
        .await
    }
}
