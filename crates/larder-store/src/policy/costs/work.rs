//! The I/O operations of a request, as counts and bytes that can be added.
//!
//! Decides nothing: an engine's costs say which operations a policy needs, and `plan` how long a device takes for them.

/// The I/O operations of an average request. A count can be below one, because not every request performs the
/// operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct TransferWork {
    /// Reads at random positions.
    pub(crate) random_reads: f64,
    /// Bytes of the random reads.
    pub(crate) random_read_bytes: f64,
    /// Writes at random positions, each of a single entry.
    pub(crate) random_writes: f64,
    /// Bytes of the random writes.
    pub(crate) random_write_bytes: f64,
    /// Bytes written as part of long sequential writes.
    pub(crate) sequential_write_bytes: f64,
    /// Bytes read as part of long sequential reads.
    pub(crate) sequential_read_bytes: f64,
    /// Files opened and read.
    pub(crate) file_reads: f64,
    /// Bytes of the file reads.
    pub(crate) file_read_bytes: f64,
    /// Files created and written, each replacing a file that is removed.
    pub(crate) file_replacements: f64,
    /// Bytes written to files.
    pub(crate) file_write_bytes: f64,
}

impl TransferWork {
    /// Returns `count` random reads of `bytes_each` bytes.
    pub(crate) fn reads_of(count: f64, bytes_each: f64) -> Self {
        Self { random_reads: count, random_read_bytes: count * bytes_each, ..Self::default() }
    }

    /// Returns `count` random writes of `bytes_each` bytes.
    pub(crate) fn writes_of(count: f64, bytes_each: f64) -> Self {
        Self { random_writes: count, random_write_bytes: count * bytes_each, ..Self::default() }
    }

    /// Returns the work of writing `bytes` as part of long sequential writes.
    pub(crate) fn sequential_write_of(bytes: f64) -> Self {
        Self { sequential_write_bytes: bytes, ..Self::default() }
    }

    /// Returns this work multiplied by `times`.
    pub(crate) fn times(self, times: f64) -> Self {
        let mut work = self;
        work.figures().into_iter().for_each(|figure| *figure *= times);
        work
    }

    /// Returns the sum of this and `other`.
    pub(crate) fn and(self, mut other: Self) -> Self {
        let mut work = self;
        work.figures().into_iter().zip(other.figures()).for_each(|(figure, other)| *figure += *other);
        work
    }

    /// Returns the number of random reads and file reads. Sequential reads of reclaim do not count.
    pub(crate) fn reads(&self) -> f64 {
        self.random_reads + self.file_reads
    }

    /// Returns all bytes written.
    pub(crate) fn written_bytes(&self) -> f64 {
        self.random_write_bytes + self.sequential_write_bytes + self.file_write_bytes
    }

    fn figures(&mut self) -> [&mut f64; 10] {
        [
            &mut self.random_reads,
            &mut self.random_read_bytes,
            &mut self.random_writes,
            &mut self.random_write_bytes,
            &mut self.sequential_write_bytes,
            &mut self.sequential_read_bytes,
            &mut self.file_reads,
            &mut self.file_read_bytes,
            &mut self.file_replacements,
            &mut self.file_write_bytes,
        ]
    }
}
