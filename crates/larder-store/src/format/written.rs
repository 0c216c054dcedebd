//! The sequences of segments that were certainly written. With them, recovery distinguishes erased segments from
//! segments that a crash prevented.
//!
//! Invariant: every sequence in the range that is not in a gap had a durable header or trailer on the volume when the
//! superblock was written. If recovery does not find such a segment although it is still in use, it was erased. It may
//! have replaced or removed any older entry. Rejected: storing the range in unit headers, which would change their
//! format and exclude older programs. An older program writes zeros here, which state nothing. Cost: at most
//! [`WRITTEN_BYTES`] of the superblock.

use super::bytes::{FieldReader, FieldsMut};
use std::ops::Range;

/// Maximum number of gaps that the superblock lists. If there are more, the oldest are dropped with all sequences
/// before them.
const GAP_COUNT_MAX: usize = 48;
/// Bytes that the sequences take in the superblock.
pub(crate) const WRITTEN_BYTES: usize = 16 + GAP_COUNT_MAX * 8;

/// The segment sequences that are known to have been durable on the volume: a range with gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenSequences {
    /// Sequence of the newest main segment whose entries are void. The entries of all older segments are void too,
    /// because one of these segments was erased. 0 means that all entries count.
    pub(crate) void_through: u32,
    from: u32,
    before: u32,
    /// Sequences in the range that may never have been written. In ascending order, with at least one sequence between
    /// two gaps.
    gaps: Vec<Range<u32>>,
}

impl WrittenSequences {
    /// Returns the greatest sequence that is known to have been durable; 0 if there is none.
    pub(crate) fn last(&self) -> u32 {
        self.before.saturating_sub(1)
    }

    /// Returns the greatest sequence, not below `oldest`, that was durable but was not found at this start. `known` are
    /// the sequences that were found, sorted.
    pub(crate) fn newest_missing(&self, known: &[u32], oldest: u32) -> Option<u32> {
        debug_assert!(known.is_sorted());
        let from = self.from.max(oldest);
        let gaps_newest_first = self.gaps.iter().rev().map(|gap| (gap.start, gap.end)).chain([(from, from)]);
        let mut end = self.before;
        for (gap_start, gap_end) in gaps_newest_first {
            let mut written = (gap_end.max(from)..end).rev();
            if let Some(missing) = written.find(|sequence| known.binary_search(sequence).is_err()) {
                return Some(missing);
            }
            end = gap_start;
        }
        None
    }

    /// Extends the range to all sequences before `before`. Those in `absent`, which must be sorted, become gaps. Does
    /// not change what the range already contains.
    pub(crate) fn extend(&mut self, before: u32, absent: impl IntoIterator<Item = Range<u32>>) {
        if before <= self.before {
            return;
        }
        for gap in absent {
            let gap = gap.start.max(self.before)..gap.end.min(before);
            match self.gaps.last_mut() {
                _ if gap.is_empty() => {}
                Some(last) if last.end >= gap.start => last.end = last.end.max(gap.end),
                _ => self.gaps.push(gap),
            }
        }
        self.before = before;
        let surplus = self.gaps.len().saturating_sub(GAP_COUNT_MAX);
        if let Some(last) = self.gaps.drain(..surplus).next_back() {
            self.from = self.from.max(last.end);
        }
    }

    /// Extends the range to all sequences before `first`, the first sequence of a new run. Sequences that are not in
    /// `known`, which must be sorted, become gaps.
    pub(crate) fn begin_run(&mut self, known: &[u32], first: u32) {
        let found = known.iter().copied().filter(|&sequence| sequence >= self.before && sequence < first);
        let mut next = self.before;
        let mut absent = Vec::new();
        for sequence in found {
            absent.push(next..sequence);
            next = sequence + 1;
        }
        absent.push(next..first);
        self.extend(first, absent);
    }

    /// Removes the sequences before `oldest` from the range, because no segment with them is in use.
    pub(crate) fn forget_before(&mut self, oldest: u32) {
        self.from = self.from.max(oldest.min(self.before));
        self.gaps.retain(|gap| gap.end > self.from);
    }

    pub(crate) fn put(&self, fields: &mut FieldsMut<'_>) {
        assert!(self.gaps.len() <= GAP_COUNT_MAX, "gaps fit into the superblock");
        let words = [self.void_through, self.from, self.before, self.gaps.len() as u32];
        let gaps = self.gaps.iter().flat_map(|gap| [gap.start, gap.end]);
        for word in words.into_iter().chain(gaps) {
            fields.put(&word.to_le_bytes());
        }
    }

    /// Decodes the range and its gaps. Returns `None` if they are not in ascending order.
    pub(crate) fn take(fields: &mut FieldReader<'_>) -> Option<Self> {
        let void_through = fields.u32()?;
        let from = fields.u32()?;
        let before = fields.u32()?;
        let gap_count = fields.u32()? as usize;
        if gap_count > GAP_COUNT_MAX || from > before {
            return None;
        }
        let mut gaps: Vec<Range<u32>> = Vec::with_capacity(gap_count);
        for _ in 0..gap_count {
            let gap = fields.u32()?..fields.u32()?;
            let is_behind = gaps.last().is_none_or(|last| last.end < gap.start);
            if gap.is_empty() || gap.end > before || !is_behind {
                return None;
            }
            gaps.push(gap);
        }
        Some(Self { void_through, from, before, gaps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(start: u32, end: u32) -> Range<u32> {
        start..end
    }

    #[test]
    fn sequence_that_was_written_and_is_in_no_gap_is_missed() {
        let mut written = WrittenSequences::default();
        written.begin_run(&[], 1);
        assert_eq!(written.newest_missing(&[], 0), None, "a new volume has nothing");
        written.extend(11, [one(4, 5)]);
        let found = [1, 2, 3, 5, 6, 7, 8, 9, 10];
        assert_eq!(written.newest_missing(&found, 0), None, "4 never was there");
        assert_eq!(written.newest_missing(&found[..7], 0), Some(10));
        assert_eq!(written.newest_missing(&[1, 2, 5, 6, 7, 8, 9, 10], 0), Some(3));
        assert_eq!(written.newest_missing(&[5, 6, 7, 8, 9, 10], 5), None, "what is no longer in use may be gone");
        written.begin_run(&[5, 6, 7, 8, 9, 10, 12], 300);
        assert_eq!(written.gaps, [one(0, 1), one(4, 5), one(11, 12), one(13, 300)]);
        assert_eq!(written.newest_missing(&[5, 6, 7, 8, 9, 10], 5), Some(12));
        written.forget_before(10);
        assert_eq!((written.from, written.gaps.len(), written.last()), (10, 2, 299));
    }

    #[test]
    fn gaps_that_do_not_fit_are_given_up_with_all_before_them() {
        let mut written = WrittenSequences::default();
        for run in 0..100_u32 {
            written.extend(run * 10 + 5, []);
            written.begin_run(&[], run * 10 + 10);
        }
        assert_eq!(written.gaps.len(), GAP_COUNT_MAX);
        assert_eq!(written.from, written.gaps[0].start - 5);
        let mut bytes = vec![0; WRITTEN_BYTES];
        written.put(&mut FieldsMut::new(&mut bytes));
        assert_eq!(WrittenSequences::take(&mut FieldReader::new(&bytes)), Some(written));
    }
}
