//! Locality buffers: entries of one site wait for each other, so that they are written next to each other.
//!
//! There are a few buffers, each used by one site. An entry goes to its site's buffer. If the site has none, the buffer
//! least recently written to is emptied and given to it. A buffer is also emptied when the next entry does not fit, and
//! when it has waited long enough. Its entries are then placed and written together. Owns: the waiting writes of each
//! buffer. Callers keep the bytes and place the entries. Invariant: a buffer holds at most its size, except for a
//! single longer write, which does not wait.
//!
//! Idea: LAZY-READS-LOC, Markatos et al., USITS'99, which does not specify the size and the choice of the victim.

use crate::units::Site;
use std::time::Duration;

/// Buffers, each of which collects the writes of one site.
pub(crate) struct LocalityBuffers {
    buffers: Vec<SiteBuffer>,
    buffer_bytes: u64,
    turn: u64,
}

struct SiteBuffer {
    site: Site,
    /// The waiting writes, in order. Each has the number of the write and its length in bytes.
    writes: Vec<(u32, u64)>,
    len_bytes: u64,
    /// Sequential number of the call of [`LocalityBuffers::add`] that last added a write to this buffer.
    last_turn: u64,
    opened_at: Duration,
}

impl LocalityBuffers {
    /// Creates `buffer_count` empty buffers of `buffer_bytes` each.
    pub(crate) fn new(buffer_count: usize, buffer_bytes: u64) -> Self {
        assert!(buffer_count > 0);
        let buffer = || SiteBuffer {
            site: Site::default(),
            writes: Vec::new(),
            len_bytes: 0,
            last_turn: 0,
            opened_at: Duration::ZERO,
        };
        Self { buffers: (0..buffer_count).map(|_| buffer()).collect(), buffer_bytes, turn: 0 }
    }

    /// Adds the write with the number `sequence` to the buffer of its site. Returns the writes that must be placed now,
    /// as groups of numbers. The writes of a group should be placed next to each other.
    pub(crate) fn add(&mut self, site: Site, sequence: u32, len_bytes: u64, now: Duration) -> Vec<Vec<u32>> {
        self.turn += 1;
        let own = self.buffers.iter().position(|buffer| buffer.site == site && buffer.last_turn > 0);
        let chosen = own.unwrap_or_else(|| {
            let least = self.buffers.iter().enumerate().min_by_key(|(_, buffer)| buffer.last_turn);
            least.map(|(at, _)| at).expect("there is a buffer")
        });
        let buffer = &mut self.buffers[chosen];
        let mut groups = Vec::new();
        if own.is_none() || buffer.len_bytes + len_bytes > self.buffer_bytes {
            groups.extend(buffer.take());
        }
        if buffer.writes.is_empty() {
            buffer.opened_at = now;
        }
        (buffer.site, buffer.last_turn) = (site, self.turn);
        buffer.writes.push((sequence, len_bytes));
        buffer.len_bytes += len_bytes;
        if buffer.len_bytes >= self.buffer_bytes {
            groups.extend(buffer.take());
        }
        assert!(buffer.len_bytes < self.buffer_bytes, "a full buffer does not wait");
        groups
    }

    /// Removes the write with the number `sequence` from its buffer. Returns `false` if no buffer has the write.
    pub(crate) fn drop_write(&mut self, sequence: u32) -> bool {
        self.buffers.iter_mut().any(|buffer| {
            let Some(at) = buffer.writes.iter().position(|(held, _)| *held == sequence) else { return false };
            let (_, len_bytes) = buffer.writes.remove(at);
            assert!(len_bytes <= buffer.len_bytes, "what waits is counted");
            buffer.len_bytes -= len_bytes;
            true
        })
    }

    /// Empties the buffers whose first write was added at `before` or earlier. Returns their writes.
    pub(crate) fn take_opened_before(&mut self, before: Duration) -> Vec<Vec<u32>> {
        let due = self.buffers.iter_mut().filter(|buffer| buffer.opened_at <= before);
        due.filter_map(SiteBuffer::take).collect()
    }

    /// Returns whether all buffers are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers.iter().all(|buffer| buffer.writes.is_empty())
    }
}

impl SiteBuffer {
    fn take(&mut self) -> Option<Vec<u32>> {
        debug_assert_eq!(self.writes.iter().map(|(_, len)| len).sum::<u64>(), self.len_bytes, "what waits is counted");
        self.len_bytes = 0;
        let writes = std::mem::take(&mut self.writes);
        (!writes.is_empty()).then(|| writes.into_iter().map(|(sequence, _)| sequence).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn entries_of_a_site_come_out_together_and_the_least_recently_written_buffer_is_taken_over() {
        let mut buffers = LocalityBuffers::new(2, 1000);
        for (site, sequence) in [(7, 1), (8, 2), (7, 3)] {
            assert!(buffers.add(Site(site), sequence, 300, at(sequence.into())).is_empty());
        }
        assert_eq!(buffers.add(Site(9), 4, 300, at(4)), [[2]], "site 8 was written to before site 7");
        assert!(buffers.add(Site(7), 5, 300, at(5)).is_empty());
        assert_eq!(buffers.add(Site(7), 6, 300, at(6)), [[1, 3, 5]], "no room for a fourth");
        assert_eq!(buffers.add(Site(7), 7, 700, at(7)), [[6, 7]], "exactly full");
        assert_eq!(buffers.add(Site(9), 8, 5000, at(8)), [vec![4], vec![8]], "longer than a buffer");
        assert!(buffers.is_empty());
    }

    #[test]
    fn a_write_that_is_dropped_in_its_buffer_never_comes_out() {
        let mut buffers = LocalityBuffers::new(2, 1000);
        for sequence in 1..=3 {
            buffers.add(Site(7), sequence, 300, at(0));
        }
        assert!(buffers.drop_write(2) && !buffers.drop_write(2));
        assert!(buffers.add(Site(7), 4, 400, at(0)) == [[1, 3, 4]], "its room is free again");
    }

    #[test]
    fn buffers_that_waited_long_enough_are_emptied() {
        let mut buffers = LocalityBuffers::new(3, 1000);
        buffers.add(Site(1), 1, 10, at(10));
        buffers.add(Site(2), 2, 10, at(20));
        assert_eq!(buffers.take_opened_before(at(15)), [[1]]);
        assert!(buffers.take_opened_before(at(15)).is_empty());
        assert_eq!(buffers.take_opened_before(at(20)), [[2]]);
    }
}
