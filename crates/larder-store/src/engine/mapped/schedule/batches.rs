//! Read batches: reads wait for each other and go to the device together, sorted by place.
//!
//! A batch is submitted when it is full, or when its first read has waited for a timeout. Owns: the waiting reads. I/O
//! is done elsewhere. Invariant: a read is returned once. Idea: LAZY-READS, Markatos et al., USITS'99: ten reads,
//! sorted, so that the disk's arm passes over them once.

use std::time::Duration;

/// The waiting reads, represented by tokens of the caller.
pub(crate) struct ReadBatches<T> {
    read_count_max: usize,
    waiting: Vec<(u64, T)>,
    opened_at: Duration,
}

impl<T> ReadBatches<T> {
    /// Creates batches of `read_count_max` reads.
    pub(crate) fn new(read_count_max: usize) -> Self {
        assert!(read_count_max > 0);
        Self { read_count_max, waiting: Vec::new(), opened_at: Duration::ZERO }
    }

    /// Adds a read at `offset_bytes` to the batch. If the batch is full then, returns it, sorted.
    pub(crate) fn add(&mut self, offset_bytes: u64, read: T, now: Duration) -> Vec<T> {
        if self.waiting.is_empty() {
            self.opened_at = now;
        }
        assert!(self.waiting.len() < self.read_count_max, "a full batch is sent");
        self.waiting.push((offset_bytes, read));
        if self.waiting.len() < self.read_count_max { Vec::new() } else { self.take() }
    }

    /// Takes the batch, sorted, even if it is not full.
    pub(crate) fn take(&mut self) -> Vec<T> {
        self.waiting.sort_by_key(|(offset_bytes, _)| *offset_bytes);
        let reads = self.waiting.drain(..).map(|(_, read)| read).collect();
        assert!(self.waiting.is_empty(), "a read is sent once");
        reads
    }

    /// Returns when the batch was begun.
    pub(crate) fn opened_at(&self) -> Option<Duration> {
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
    }
}
