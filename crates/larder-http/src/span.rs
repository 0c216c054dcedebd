//! Spans of a body's bytes, and sets of spans that record which parts are present.
//!
//! Invariant: a set is sorted, and its spans neither overlap nor touch. The caller limits the number of spans, so
//! insertion is linear. A lookup is a binary search.

/// The bytes of a body from `first` to `last`, both included, like a range of RFC 9110 14.1.2.
///
/// ```
/// use larder_http::span::Span;
///
/// let span = Span::new(100, 199).expect("the right order");
/// assert_eq!(span.len(), 100);
/// assert!(span.contains(&Span { first: 150, last: 199 }));
/// assert_eq!(span.gap(&Span { first: 300, last: 399 }), 100);
/// assert_eq!(Span::new(199, 100), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub first: u64,
    /// The last byte, not before the first.
    pub last: u64,
}

/// A set of bytes of one body, such as the parts that are stored.
///
/// ```
/// use larder_http::span::{Span, SpanSet};
///
/// let mut stored = SpanSet::default();
/// stored.insert(Span { first: 0, last: 99 });
/// stored.insert(Span { first: 200, last: 299 });
/// let wanted = Span { first: 50, last: 249 };
/// assert_eq!(stored.missing(&wanted), [Span { first: 100, last: 199 }]);
/// stored.insert(Span { first: 100, last: 199 });
/// assert!(stored.is_complete(300));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSet(Vec<Span>);

impl Span {
    /// Creates the span from `first` to `last`, both included. `None` if they are in the wrong order.
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Returns the number of bytes. Saturates for the span of all `u64` values.
    pub fn len(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// Returns false: a span has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns whether all of `other` lies inside this span.
    pub fn contains(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Returns whether the two spans share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns the number of bytes between the two spans. Zero if they touch or overlap.
    pub fn gap(&self, other: &Self) -> u64 {
        let (left, right) = if self.first <= other.first { (self, other) } else { (other, self) };
        right.first.saturating_sub(left.last).saturating_sub(1)
    }

    /// Returns the smallest span that contains both spans.
    pub(crate) fn hull(&self, other: &Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}

impl SpanSet {
    /// Adds a span.
    pub fn insert(&mut self, span: Span) {
        let start = self.0.partition_point(|known| known.last < span.first && known.gap(&span) > 0);
        let joined = self.0[start..].iter().take_while(|known| known.gap(&span) == 0).count();
        let hull = self.0[start..start + joined].iter().fold(span, |hull, known| hull.hull(known));
        self.0.splice(start..start + joined, [hull]);
    }

    /// Returns the spans in ascending order.
    pub fn spans(&self) -> &[Span] {
        &self.0
    }

    /// Returns whether the set contains all of `span`.
    pub fn contains(&self, span: &Span) -> bool {
        let at = self.0.partition_point(|known| known.last < span.first);
        self.0.get(at).is_some_and(|known| known.contains(span))
    }

    /// Returns whether the set contains every byte of a body of this length.
    pub fn is_complete(&self, total_len: u64) -> bool {
        total_len.checked_sub(1).is_none_or(|last| self.contains(&Span { first: 0, last }))
    }

    /// Returns the parts of `wanted` that are not in the set, in ascending order. The caller requests these parts (RFC
    /// 9111 3.4).
    pub fn missing(&self, wanted: &Span) -> Vec<Span> {
        let mut missing = Vec::new();
        let mut next = wanted.first;
        let start = self.0.partition_point(|known| known.last < wanted.first);
        for known in self.0[start..].iter().take_while(|known| known.first <= wanted.last) {
            if next < known.first {
                missing.push(Span { first: next, last: known.first - 1 });
            }
            let Some(after) = known.last.checked_add(1) else { return missing };
            next = after;
        }
        missing.extend(Span::new(next, wanted.last));
        missing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(spans: &[(u64, u64)]) -> SpanSet {
        let mut set = SpanSet::default();
        spans.iter().for_each(|(first, last)| set.insert(Span { first: *first, last: *last }));
        set
    }

    #[test]
    fn spans_that_touch_or_overlap_become_one() {
        assert_eq!(set(&[(5, 9), (0, 4)]).spans(), [Span { first: 0, last: 9 }]);
        assert_eq!(set(&[(0, 4), (6, 9), (3, 7)]).spans(), [Span { first: 0, last: 9 }]);
        assert_eq!(set(&[(0, 3), (5, 9)]).spans().len(), 2);
        assert_eq!(set(&[(u64::MAX, u64::MAX), (0, u64::MAX - 1)]).spans().len(), 1);
    }

    #[test]
    fn empty_body_is_complete_and_no_other_is_without_its_bytes() {
        assert!(SpanSet::default().is_complete(0));
        assert!(!SpanSet::default().is_complete(1));
        assert!(set(&[(0, 9)]).is_complete(10));
        assert!(!set(&[(0, 9)]).is_complete(11));
    }

    proptest! {
        #[test]
        fn set_knows_exactly_the_bytes_that_were_put_in(
            spans in proptest::collection::vec((0u64..40, 0u64..8), 0..8), wanted in (0u64..40, 0u64..12),
        ) {
            let mut there = [false; 64];
            let mut set = SpanSet::default();
            for (first, more) in spans {
                set.insert(Span { first, last: first + more });
                there[first as usize..=(first + more) as usize].fill(true);
            }
            prop_assert!(set.spans().windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
            let wanted = Span { first: wanted.0, last: wanted.0 + wanted.1 };
            let mut missing = [false; 64];
            for span in set.missing(&wanted) {
                prop_assert!(wanted.contains(&span));
                missing[span.first as usize..=span.last as usize].fill(true);
            }
            for at in wanted.first..=wanted.last {
                prop_assert_eq!(missing[at as usize], !there[at as usize], "{}", at);
            }
            prop_assert_eq!(set.contains(&wanted), set.missing(&wanted).is_empty());
        }
    }
}
