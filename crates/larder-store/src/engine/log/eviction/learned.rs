//! Learns how many hits an entry is likely to get, from the hits of earlier entries of its class.
//!
//! A class is a generation, a number of hits so far, and a length. Whether short or long entries, or entries with or
//! without hits, deserve another round depends on the trace, so no constant fits all. Invariant: every class has an
//! expectation above 0, even without observations. The estimate of a class starts from the mean of all lengths, and
//! that mean starts from a guess by the number of hits. Cost: 1.5 KiB for each volume.

use super::super::index::IndexSlot;
use crate::format::SegmentRow;

/// Number of different hit counts that classes distinguish.
const HIT_STEPS: usize = IndexSlot::HITS_MAX as usize + 1;
/// Number of different lengths that classes distinguish.
const LENGTH_STEPS: usize = 16;
/// Number of length steps for each doubling of the length.
const STEPS_PER_DOUBLING: f64 = 1.25;
const CLASS_COUNT: usize = 2 * HIT_STEPS * LENGTH_STEPS;

/// Weight of the first estimate of a class, as a number of entries.
const PRIOR_ENTRIES: f64 = 8.0;
/// Number of entries in a class at which its counts are halved, so that expectations follow changes in the requests.
const ENTRIES_MAX: f64 = 2_000.0;
/// Hits that the first estimate adds in main segments. Entries in main segments survived because they were hit before,
/// so they are likelier to be hit than entries on probation.
const UNHIT_MAIN: f64 = 0.25;
const UNHIT_PROBATION: f64 = 0.1;
/// Divisor in the first estimate. With it, an entry with the highest hit count is expected to get about one more hit.
const GUESS_DIVISOR: f64 = 3.5;

/// A class of entries that are expected to get about the same number of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryClass(u8);

const _: () = assert!(CLASS_COUNT <= 1 << EntryClass::BITS);

impl EntryClass {
    /// Width of a class number, in bits.
    pub(crate) const BITS: u32 = 7;

    /// Returns the class of an entry with a length of `sectors` and this many `hits`, in a segment of this generation.
    pub(crate) fn of(generation: SegmentRow, hits: u8, sectors: u64) -> Self {
        let length = (STEPS_PER_DOUBLING * (sectors.max(1) as f64).log2()) as usize;
        let group = generation as usize * HIT_STEPS + usize::from(hits).min(HIT_STEPS - 1);
        Self((group * LENGTH_STEPS + length.min(LENGTH_STEPS - 1)) as u8)
    }

    /// Returns the class with this number.
    pub(crate) fn numbered(number: u8) -> Self {
        assert!(usize::from(number) < CLASS_COUNT, "a class has a number");
        Self(number)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }
}

/// Number of entries of a class that were counted, and the number of their hits.
#[derive(Clone, Copy, Debug, Default)]
struct HitTally {
    entries: f64,
    hits: f64,
}

impl HitTally {
    fn mean_with(&self, prior: f64) -> f64 {
        (self.hits + PRIOR_ENTRIES * prior) / (self.entries + PRIOR_ENTRIES)
    }
}

/// The number of hits that an entry of each class is expected to get while [`super::sample`] counts its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedHits([f32; CLASS_COUNT]);

impl ExpectedHits {
    pub(crate) fn of(&self, class: EntryClass) -> f64 {
        f64::from(self.0[usize::from(class.0)])
    }
}

impl Default for ExpectedHits {
    fn default() -> Self {
        HitsByClass::default().expected()
    }
}

/// The hits that the entries of each class got.
pub(crate) struct HitsByClass([HitTally; CLASS_COUNT]);

impl Default for HitsByClass {
    fn default() -> Self {
        Self([HitTally::default(); CLASS_COUNT])
    }
}

impl HitsByClass {
    /// Notes that an entry of `class` got `hits`.
    pub(crate) fn note(&mut self, class: EntryClass, hits: u32) {
        let tally = &mut self.0[usize::from(class.0)];
        tally.entries += 1.0;
        tally.hits += f64::from(hits);
        if tally.entries >= ENTRIES_MAX {
            *tally = HitTally { entries: tally.entries / 2.0, hits: tally.hits / 2.0 };
        }
        assert!(tally.entries < ENTRIES_MAX && tally.hits.is_finite(), "older entries count less");
    }

    /// Returns the number of hits that an entry of each class is expected to get.
    pub(crate) fn expected(&self) -> ExpectedHits {
        let mut expected = [0.0; CLASS_COUNT];
        for (group, (expected, tallies)) in
            expected.chunks_mut(LENGTH_STEPS).zip(self.0.chunks(LENGTH_STEPS)).enumerate()
        {
            let sum = tallies.iter().fold(HitTally::default(), |sum, tally| HitTally {
                entries: sum.entries + tally.entries,
                hits: sum.hits + tally.hits,
            });
            let unhit = if group < HIT_STEPS { UNHIT_MAIN } else { UNHIT_PROBATION };
            let guess = ((group % HIT_STEPS) as f64 + unhit) / GUESS_DIVISOR;
            let of_all_lengths = sum.mean_with(guess);
            for (expected, tally) in expected.iter_mut().zip(tallies) {
                *expected = tally.mean_with(of_all_lengths) as f32;
                assert!(*expected > 0.0, "a class has an expectation");
            }
        }
        ExpectedHits(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_is_known_of_is_judged_by_its_hits() {
        let expected = ExpectedHits::default();
        let of = |generation, hits| expected.of(EntryClass::of(generation, hits, 16));
        assert!(of(SegmentRow::Main, 0) < of(SegmentRow::Main, 1));
        assert!(of(SegmentRow::Probation, 0) < of(SegmentRow::Main, 0));
        assert!((of(SegmentRow::Main, 3) - 3.25 / 3.5).abs() < 1e-6);
    }

    #[test]
    fn a_class_follows_its_entries_and_lends_to_other_lengths() {
        let mut learned = HitsByClass::default();
        let class = |sectors| EntryClass::of(SegmentRow::Main, 1, sectors);
        (0..1_000).for_each(|_| learned.note(class(4), 5));
        let expected = learned.expected();
        assert!((expected.of(class(4)) - 5.0).abs() < 0.1, "{}", expected.of(class(4)));
        assert!(expected.of(class(2_000)) > 4.5, "of a length that was never seen");
        let other = EntryClass::of(SegmentRow::Main, 2, 4);
        assert!((expected.of(other) - 2.25 / 3.5).abs() < 1e-6, "another number of hits");
        (0..4_000).for_each(|_| learned.note(class(4), 0));
        assert!(learned.expected().of(class(4)) < 1.0, "it follows when requests change");
    }

    #[test]
    fn every_length_and_number_of_hits_has_a_class() {
        for generation in SegmentRow::ALL {
            for (hits, sectors) in (0..=u8::MAX).flat_map(|hits| [0, 1, 2, 100, 2_056, 1 << 40].map(|n| (hits, n))) {
                let class = EntryClass::of(generation, hits, sectors);
                assert_eq!(EntryClass::numbered(class.number()), class);
            }
        }
        assert_ne!(
            EntryClass::of(SegmentRow::Main, 0, 1_100),
            EntryClass::of(SegmentRow::Main, 0, 2_056),
            "long entries differ by their lengths"
        );
    }
}
