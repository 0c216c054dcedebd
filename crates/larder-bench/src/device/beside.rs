//! Derives the cost of writes during reads from rates with and without reads.
//!
//! Owns: the arithmetic. Measuring is elsewhere. Invariant: a write during reads is never cheaper than alone; an
//! apparent gain is noise.

use larder_store::plan::BesideReads;

/// Rates per second of reads alone, of writes alone, and of both at the same time.
pub(super) struct MixedRates {
    /// Random reads per second, while nothing is written.
    pub(super) reads: f64,
    /// Random writes per second, while nothing is read.
    pub(super) writes: f64,
    /// Groups per second, each of one sequential write and `reads_per_group` random reads.
    pub(super) groups: f64,
    pub(super) reads_per_group: f64,
    /// Bytes that the sequential write of a group writes.
    pub(super) group_bytes: f64,
    /// Pairs per second, each of a random read and a random write.
    pub(super) pairs: f64,
    /// Bytes per second of sequential writes, while nothing is read.
    pub(super) sequential_write: f64,
}

impl MixedRates {
    /// Returns the time that writes take during reads: the time of a group or a pair less the time of its reads.
    pub(super) fn beside_reads(&self) -> BesideReads {
        let read_seconds = 1.0 / self.reads;
        let write_seconds = 1.0 / self.writes;
        let left_seconds = 1.0 / self.groups - self.reads_per_group * read_seconds;
        let group_seconds = left_seconds.max(self.group_bytes / self.sequential_write);
        let random_seconds = (1.0 / self.pairs - read_seconds).max(write_seconds);
        BesideReads {
            sequential_write: self.group_bytes / group_seconds,
            random_write_times: random_seconds / write_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_beside_reads_take_what_the_reads_lose() {
        // 5,000 of 10,000 reads remain during 100 MB of writes per second, or 4,000 during as many random writes.
        let disturbed = MixedRates {
            reads: 10_000.0,
            writes: 10_000.0,
            groups: 100.0,
            reads_per_group: 50.0,
            group_bytes: 1e6,
            pairs: 4000.0,
            sequential_write: 4e9,
        };
        let beside = disturbed.beside_reads();
        assert!((beside.sequential_write - 2e8).abs() < 1.0, "{beside:?}");
        assert!((beside.random_write_times - 1.5).abs() < 1e-9, "{beside:?}");
        let undisturbed = MixedRates { groups: 200.0, pairs: 10_000.0, ..disturbed };
        let expected = BesideReads { sequential_write: 4e9, random_write_times: 1.0 };
        assert_eq!(undisturbed.beside_reads(), expected);
    }
}
