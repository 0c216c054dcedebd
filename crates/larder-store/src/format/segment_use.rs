//! One use of a segment: which it is, and where its records stand in the order of commits.
//!
//! A log may have two segments open at a time, one of either generation: *main*, and *probation* for what nobody is known to
//! want again. What replaces or removes anything goes to main, so within a key's records those on probation come first. Invariant: of
//! two records of one key, the one in the use of greater [`LogOrder`] is the newer; within a use the one that stands further on.
//!
//! Why that is so. A record goes to probation only where no older record of its key counts or can come back, but for those in
//! main segments that are gone or were full before this probation segment was begun: its *anchor* is the main segment that was open then,
//! and older ones are before it in the order. A record that replaces one on probation is in a main segment that was open after that: in
//! the anchor or a later one, which are behind it in the order.

/// A use of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    /// Number of the use, unique on the volume. 0 is none.
    pub(crate) sequence: u32,
    /// Of a probation segment the sequence of the main segment that was open when it was begun, or its own if there was none. Of
    /// a main segment 0.
    pub(crate) anchor: u32,
}

/// The position of a use of a segment in the order of writing. The greater one has the newer records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogOrder {
    anchor: u32,
    is_main: bool,
    sequence: u32,
}

/// The two series of segments of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentRow {
    /// Entries that were requested again, and every replacement and removal.
    Main,
    /// Entries not known to be wanted again.
    Probation,
}

impl SegmentRow {
    pub(crate) const ALL: [Self; 2] = [Self::Main, Self::Probation];
}

impl SegmentUse {
    pub(crate) fn main(sequence: u32) -> Self {
        Self { sequence, anchor: 0 }
    }

    pub(crate) fn generation(self) -> SegmentRow {
        if self.anchor == 0 { SegmentRow::Main } else { SegmentRow::Probation }
    }

    pub(crate) fn order(self) -> LogOrder {
        let is_main = self.generation() == SegmentRow::Main;
        LogOrder { anchor: if is_main { self.sequence } else { self.anchor }, is_main, sequence: self.sequence }
    }

    /// Returns the first sequence among those of main segments that may be newer; no record before it is.
    pub(crate) fn first_sequence(self) -> u32 {
        self.order().anchor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probation_segment_is_older_than_the_main_one_that_was_open_and_newer_than_those_before() {
        let uses = [
            SegmentUse::main(3),
            SegmentUse { sequence: 6, anchor: 5 },
            SegmentUse { sequence: 7, anchor: 5 },
            SegmentUse::main(5),
            SegmentUse { sequence: 8, anchor: 8 },
            SegmentUse { sequence: 10, anchor: 9 },
            SegmentUse::main(9),
        ];
        assert!(uses.is_sorted_by_key(|one| one.order()));
        assert!(uses.iter().all(|one| one.first_sequence() <= one.sequence));
    }
}
