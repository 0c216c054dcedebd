//! Reads of lookups: at once, or in batches that are sorted by place.
//!
//! With `sorted_reads`, and always in `lazy-reads`, reads wait for each other and go to the device together. A batch is
//! submitted when it is full, or when its first read has waited for a timeout. Owns: the waiting reads. Reads of
//! commits, of reclaim and of a start do not wait, because others wait for them.
//!
//! Invariant: a read is submitted once. In a store without a maintenance thread, a batch is also submitted when the
//! future of a read is polled a second time, because no other task would do it. Cost: a lock for each read. Idea:
//! LAZY-READS, Markatos et al., USITS'99: ten reads, sorted, so that the disk's arm passes over them once.

use crate::sync::IgnorePoison;
use crate::{
    Clock, Tuning,
    device::{AlignedBuffer, Completion, Device, PendingTransfer, Transfer},
    sync::{Mutex, MutexGuard},
};
use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::Arc,
    time::Duration,
};

/// The reads of a volume's lookups, which wait until their batch is submitted.
pub(super) struct LookupReads {
    batches: Mutex<ReadBatches<BatchedRead>>,
    time_out: Duration,
    device: Arc<dyn Device>,
    clock: Clock,
    has_thread: bool,
}

/// A read that waits for its batch to be submitted.
struct BatchedRead {
    offset_bytes: u64,
    buffer: AlignedBuffer,
    completion: Completion<AlignedBuffer>,
}

impl LookupReads {
    /// Creates an empty queue. `has_thread` says whether the store has a maintenance thread, which submits batches that
    /// are due.
    pub(super) fn new(device: &Arc<dyn Device>, tuning: &Tuning, clock: &Clock, has_thread: bool) -> Self {
        Self {
            batches: Mutex::new(ReadBatches::new(tuning.read_batch_count)),
            time_out: tuning.read_batch_time_out,
            device: Arc::clone(device),
            clock: clock.clone(),
            has_thread,
        }
    }

    /// Reads aligned bytes as part of a batch. Calls `wake`, to wake the maintenance thread, unless the read completes
    /// the batch.
    pub(super) async fn read(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        wake: impl FnOnce(),
    ) -> io::Result<AlignedBuffer> {
        let (completion, pending) = Completion::pair();
        let buffer = AlignedBuffer::with_len(len_bytes as usize);
        let full = self.lock().add(offset_bytes, BatchedRead { offset_bytes, buffer, completion }, self.clock.now());
        if full.is_empty() {
            wake();
        } else {
            self.submit(full);
        }
        if self.has_thread { pending.await } else { self.insist(pending).await }
    }

    /// Submits the batch if its first read has waited for the timeout.
    pub(super) fn submit_due(&self) {
        let is_due = self.due().is_some_and(|pause| pause.is_zero());
        let due = if is_due { self.lock().take() } else { Vec::new() };
        self.submit(due);
    }

    /// Returns the time until the batch must be submitted; `None` if no read waits.
    pub(super) fn due(&self) -> Option<Duration> {
        let opened_at = self.lock().opened_at()?;
        Some((opened_at + self.time_out).saturating_sub(self.clock.now()))
    }

    /// Submits the batch. From now on, reads do not wait, because the maintenance thread is about to end.
    pub(super) fn end(&self) {
        let left = self.lock().end();
        self.submit(left);
    }

    fn submit(&self, reads: Vec<BatchedRead>) {
        assert!(reads.is_sorted_by_key(|read| read.offset_bytes), "a batch is sorted by place");
        for BatchedRead { offset_bytes, buffer, completion } in reads {
            self.device.submit(Transfer::Read { offset_bytes, buffer, completion });
        }
    }

    /// Waits for a read in a store without a maintenance thread. If the read is not done when this is polled again,
    /// submits the batch, because nobody else would.
    async fn insist(&self, pending: PendingTransfer<AlignedBuffer>) -> io::Result<AlignedBuffer> {
        let mut pending = pin!(pending);
        let mut asked = 0;
        poll_fn(|context| {
            asked += 1;
            if asked == 2 {
                let reads = self.lock().take();
                self.submit(reads);
            }
            let outcome = pending.as_mut().poll(context);
            if asked == 1 && outcome.is_pending() {
                context.waker().wake_by_ref();
            }
            outcome
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, ReadBatches<BatchedRead>> {
        self.batches.lock().ignore_poison()
    }
}

/// The batch that is being collected. `T` stands for a read.
struct ReadBatches<T> {
    read_count_max: usize,
    waiting: Vec<(u64, T)>,
    opened_at: Duration,
}

impl<T> ReadBatches<T> {
    /// Creates an empty batch, which is full when it has `read_count_max` reads.
    fn new(read_count_max: usize) -> Self {
        assert!(read_count_max > 0);
        Self { read_count_max, waiting: Vec::new(), opened_at: Duration::ZERO }
    }

    /// Adds a read at `offset_bytes`. If the batch is full now, returns its reads sorted by offset and begins a new
    /// one.
    fn add(&mut self, offset_bytes: u64, read: T, now: Duration) -> Vec<T> {
        if self.waiting.is_empty() {
            self.opened_at = now;
        }
        assert!(self.waiting.len() < self.read_count_max, "a full batch is sent");
        self.waiting.push((offset_bytes, read));
        if self.waiting.len() < self.read_count_max { Vec::new() } else { self.take() }
    }

    /// Returns the reads of the batch sorted by offset, even if it is not full, and begins a new one.
    fn take(&mut self) -> Vec<T> {
        self.waiting.sort_by_key(|(offset_bytes, _)| *offset_bytes);
        let reads = self.waiting.drain(..).map(|(_, read)| read).collect();
        assert!(self.waiting.is_empty(), "a read is sent once");
        reads
    }

    /// Returns the reads of the batch. From now on, each read is a batch of its own.
    fn end(&mut self) -> Vec<T> {
        let left = self.take();
        self.read_count_max = 1;
        left
    }

    /// Returns when the first read of the batch was added; `None` if the batch is empty.
    fn opened_at(&self) -> Option<Duration> {
        (!self.waiting.is_empty()).then_some(self.opened_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_reads_go_together_in_order_of_place() {
        let mut batches = ReadBatches::new(10);
        for (second, offset) in (1..).zip([50, 20, 90, 10, 80, 30, 70, 40, 60]) {
            assert!(batches.add(offset, offset, Duration::from_secs(second)).is_empty());
        }
        assert_eq!(batches.opened_at(), Some(Duration::from_secs(1)));
        assert_eq!(batches.add(55, 55, Duration::from_secs(10)), [10, 20, 30, 40, 50, 55, 60, 70, 80, 90]);
        assert_eq!(batches.opened_at(), None);
        assert!(batches.take().is_empty());
        assert!(batches.add(7, 7, Duration::ZERO).is_empty());
        assert_eq!(batches.end(), [7]);
        assert_eq!(batches.add(8, 8, Duration::ZERO), [8], "after the end, no read waits");
    }
}
