//! A use of a segment, and the order of records in the log.
//!
//! A log can have two segments open at a time, one of each generation: *main*, and *probation* for new entries that may
//! never be requested again. Records that replace or remove an entry go to main, so probation comes first among the
//! records of a key. Invariant: of two records of one key, the one in the use with the greater [`LogOrder`] is newer;
//! within a use, the later one is newer.
//!
//! Proof. When a probation segment is begun, its *anchor* is the open main segment. A record goes to probation only if
//! older records of its key cannot count, except those in main segments that are gone or were full by then. Such
//! segments are before the anchor in the order, so these older records come first. A record that replaces one on
//! probation is in a main segment that was open after that: the anchor or a later one. Both come after the probation
//! segment in the order.

/// One use of a segment, from when writing to it begins until it is reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    /// Number of the use, unique on the volume. 0 means that the segment is not in use.
    pub(crate) sequence: u32,
    /// For a probation segment (for new entries): the sequence of the main segment that was open when this segment was
    /// begun, or this segment's own sequence if none was open. For a main segment: 0.
    pub(crate) anchor: u32,
}

/// The age of a segment's use. Of two uses, the one with the greater value holds the newer records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogOrder {
    anchor: u32,
    is_main: bool,
    sequence: u32,
}

/// The two generations of segments in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SegmentRow {
    /// For replacements, removals, and entries that were requested again.
    Main,
    /// For new entries, until they are requested again.
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

    /// Returns the lowest sequence at which a main segment can contain records newer than those of this use.
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
