//! A set of bytes, kept as ascending spans that do not touch.

use smallvec::SmallVec;
use std::ops::Range;

/// A set of positions in a body, as sorted and disjoint ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SpanSet(SmallVec<[Range<u64>; 2]>);

impl SpanSet {
    /// Returns a set of all bytes of `span`.
    pub(super) fn of(span: Range<u64>) -> Self {
        let mut set = Self::default();
        set.insert(span);
        set
    }

    /// Adds all bytes of `span`.
    pub(super) fn insert(&mut self, span: Range<u64>) {
        if span.is_empty() {
            return;
        }
        let first = self.0.partition_point(|old| old.end < span.start);
        let last = self.0.partition_point(|old| old.start <= span.end);
        if first == last {
            self.0.insert(first, span);
            return;
        }
        let joined = span.start.min(self.0[first].start)..span.end.max(self.0[last - 1].end);
        self.0[first] = joined;
        self.0.drain(first + 1..last);
    }

    /// Removes all bytes of `span`.
    pub(super) fn remove(&mut self, span: Range<u64>) {
        if span.is_empty() {
            return;
        }
        let first = self.0.partition_point(|old| old.end <= span.start);
        let last = self.0.partition_point(|old| old.start < span.end);
        if first >= last {
            return;
        }
        let before = self.0[first].start..span.start;
        let after = span.end..self.0[last - 1].end;
        self.0.drain(first..last);
        for rest in [after, before] {
            if !rest.is_empty() {
                self.0.insert(first, rest);
            }
        }
    }

    /// Returns the contiguous range of the set that contains `at`. `None` if `at` is not in the set.
    pub(super) fn span_at(&self, at: u64) -> Option<&Range<u64>> {
        self.0.get(self.0.partition_point(|span| span.end <= at)).filter(|span| span.start <= at)
    }

    /// Returns the end of the contiguous range of the set that contains `at`. `None` if `at` is not in the set.
    pub(super) fn end_at(&self, at: u64) -> Option<u64> {
        self.span_at(at).map(|span| span.end)
    }

    /// Returns whether the set contains any byte of `span`.
    pub(super) fn meets(&self, span: &Range<u64>) -> bool {
        self.next_from(span.start) < span.end
    }

    /// Returns the first byte of the set at or after `at`. `u64::MAX` if there is none.
    pub(super) fn next_from(&self, at: u64) -> u64 {
        self.0.get(self.0.partition_point(|span| span.end <= at)).map_or(u64::MAX, |span| span.start.max(at))
    }

    /// Returns whether all bytes of `span` are in the set.
    pub(super) fn covers(&self, span: &Range<u64>) -> bool {
        span.is_empty() || self.end_at(span.start).is_some_and(|end| end >= span.end)
    }

    /// Returns the parts of `within` that are not in the set.
    pub(super) fn holes(&self, within: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        let mut holes = Self::of(within);
        for span in &self.0 {
            holes.remove(span.clone());
        }
        holes.0
    }

    /// Iterates over the parts of `within` that are in the set.
    pub(super) fn within(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|span| span.end <= within.start);
        let part = move |span: &Range<u64>| span.start.max(within.start)..span.end.min(within.end);
        self.0[first..].iter().map(part).take_while(|part| !part.is_empty())
    }

    /// Iterates over the contiguous ranges of the set, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(set: &SpanSet) -> Vec<(u64, u64)> {
        set.iter().map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn spans_that_touch_become_one() {
        let mut set = SpanSet::of(4..8);
        set.insert(12..16);
        set.insert(0..2);
        assert_eq!(spans(&set), [(0, 2), (4, 8), (12, 16)]);
        set.insert(8..12);
        assert_eq!(spans(&set), [(0, 2), (4, 16)]);
        set.insert(0..20);
        assert_eq!(spans(&set), [(0, 20)]);
    }

    #[test]
    fn removing_splits_a_span() {
        let mut set = SpanSet::of(0..16);
        set.remove(4..8);
        assert_eq!(spans(&set), [(0, 4), (8, 16)]);
        set.remove(2..12);
        assert_eq!(spans(&set), [(0, 2), (12, 16)]);
        set.remove(20..24);
        set.remove(0..2);
        assert_eq!(spans(&set), [(12, 16)]);
    }

    #[test]
    fn set_answers_what_is_at_and_after_a_byte() {
        let mut set = SpanSet::of(4..8);
        set.insert(12..16);
        assert_eq!([set.end_at(3), set.end_at(4), set.end_at(7), set.end_at(8)], [None, Some(8), Some(8), None]);
        assert_eq!([set.next_from(0), set.next_from(5), set.next_from(8), set.next_from(16)], [4, 5, 12, u64::MAX]);
        assert!(set.covers(&(5..8)) && !set.covers(&(5..9)) && set.covers(&(9..9)));
        assert_eq!(set.holes(0..14).as_slice(), [0..4, 8..12]);
    }
}
