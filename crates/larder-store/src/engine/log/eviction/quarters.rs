//! The hits of the oldest quarter of each generation. A generation loses these hits when segments are taken from it.
//!
//! The share of probation follows from them: it grows while probation's oldest quarter earns more than that of main
//! segments. Invariants: the share stays between 4% and 80%. Hits, and the time in which they were counted, lose weight
//! together. Cost: a load and a comparison for each hit, and an addition for a hit in an oldest quarter.

use crate::format::{SegmentRow, SegmentUse};
use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Range of probation's share of the segments. The minimum exceeds a 32nd, so that a new entry stays at least until a
/// 32nd of the volume is written (docs/explanation/faults.md).
const SHARES: RangeInclusive<f64> = 0.04..=0.8;
/// Probation's share of the segments before anything was learned.
pub(crate) const SHARE_AT_FIRST: f64 = 0.1;
/// Probation's share is adapted each time 1/`SEGMENTS_PER_CHANGE` of the segments has been reclaimed.
const SEGMENTS_PER_CHANGE: u32 = 10;
/// Probation's share is multiplied by the ratio of both generations' earnings (hits per sector), raised to this power.
const CHANGE_EXPONENT: f64 = 0.2;
/// Maximum ratio of both generations' earnings that has an effect. It limits a change of probation's share to a factor
/// of two.
const RATIO_MAX: f64 = 32.0;
/// Factor for the hits that were counted before the last change of probation's share, so that new hits count more.
const FADING: f64 = 0.7;
/// Steps per unit of a hit's weight. Weights are added up as integers in these steps.
const WEIGHT_STEPS: f64 = 16.0;

/// The oldest quarter of a generation's segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OldestQuarter {
    /// Sequence of the first segment that is not part of the quarter.
    pub(crate) end_sequence: u32,
    pub(crate) segment_count: u32,
}

/// Counts the hits of the oldest quarter of both generations.
#[derive(Default)]
pub(crate) struct QuarterHits {
    end_sequence: [AtomicU32; 2],
    weights: [AtomicU64; 2],
}

impl QuarterHits {
    /// Counts a hit in the segment use `of` with this weight, if the segment is part of an oldest quarter.
    pub(crate) fn note(&self, of: SegmentUse, weight: impl FnOnce() -> f64) {
        let at = of.generation() as usize;
        if of.sequence < self.end_sequence[at].load(Ordering::Relaxed) {
            self.weights[at].fetch_add((weight() * WEIGHT_STEPS) as u64, Ordering::Relaxed);
        }
    }

    fn take(&self, generation: SegmentRow) -> f64 {
        self.weights[generation as usize].swap(0, Ordering::Relaxed) as f64 / WEIGHT_STEPS
    }
}

/// The hits that the oldest quarters get, and probation's share of the segments, which follows from these hits.
#[derive(Debug)]
pub(crate) struct QuarterEarnings {
    quarters: [OldestQuarter; 2],
    hits: [f64; 2],
    /// For each generation, the sectors of its oldest quarter times the number of segments begun while hits were
    /// counted.
    exposure: [f64; 2],
    reclaimed_count: u32,
    probation_share: f64,
}

impl QuarterEarnings {
    pub(crate) fn new() -> Self {
        Self {
            quarters: [OldestQuarter::default(); 2],
            hits: [0.0; 2],
            exposure: [0.0; 2],
            reclaimed_count: 0,
            probation_share: SHARE_AT_FIRST,
        }
    }

    /// Adds the hits that were counted while `begun_count` segments were begun. Then begins to count hits in the new
    /// `quarters`.
    pub(crate) fn advance(
        &mut self,
        counted: &QuarterHits,
        begun_count: u32,
        segment_sectors: u64,
        quarters: [OldestQuarter; 2],
    ) {
        for generation in SegmentRow::ALL {
            let at = generation as usize;
            self.hits[at] += counted.take(generation);
            let sectors = u64::from(self.quarters[at].segment_count) * segment_sectors;
            self.exposure[at] += sectors as f64 * f64::from(begun_count);
            counted.end_sequence[at].store(quarters[at].end_sequence, Ordering::Relaxed);
        }
        self.quarters = quarters;
        assert!(self.hits.iter().chain(&self.exposure).all(|sum| sum.is_finite() && *sum >= 0.0), "sums of counts");
    }

    /// Returns the hits per sector that the oldest main segments get between the starts of two segments.
    pub(crate) fn main_earns(&self) -> f64 {
        self.earned(SegmentRow::Main, 0.0)
    }

    fn earned(&self, generation: SegmentRow, more: f64) -> f64 {
        let at = generation as usize;
        (self.hits[at] + more) / self.exposure[at].max(1.0)
    }

    /// Notes that one of the volume's `segment_count` segments was reclaimed. If this changes probation's share,
    /// returns the new share.
    pub(crate) fn note_reclaimed(&mut self, segment_count: u32) -> Option<f64> {
        self.reclaimed_count += 1;
        if self.reclaimed_count < segment_count.div_ceil(SEGMENTS_PER_CHANGE) {
            return None;
        }
        self.reclaimed_count = 0;
        if self.exposure.contains(&0.0) {
            return None;
        }
        // One hit is added, because otherwise a quarter without hits would be infinitely worse than one with a single
        // hit.
        let ratio = self.earned(SegmentRow::Probation, 1.0) / self.earned(SegmentRow::Main, 1.0);
        let change = ratio.clamp(1.0 / RATIO_MAX, RATIO_MAX).powf(CHANGE_EXPONENT);
        self.probation_share = (self.probation_share * change).clamp(*SHARES.start(), *SHARES.end());
        self.hits.iter_mut().chain(&mut self.exposure).for_each(|sum| *sum *= FADING);
        assert!(SHARES.contains(&self.probation_share), "a share is in its limits: {}", self.probation_share);
        Some(self.probation_share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBATION: SegmentUse = SegmentUse { sequence: 30, anchor: 20 };

    /// Returns probation's share after 100 rounds in which the quarters get these numbers of hits.
    fn share_after(hits_main: u32, hits_probation: u32) -> f64 {
        let counted = QuarterHits::default();
        let mut earnings = QuarterEarnings::new();
        let quarters = [40, 40].map(|end_sequence| OldestQuarter { end_sequence, segment_count: 2 });
        earnings.advance(&counted, 1, 1_000, quarters);
        let mut share = SHARE_AT_FIRST;
        for _ in 0..100 {
            (0..hits_main).for_each(|_| counted.note(SegmentUse::main(39), || 1.0));
            (0..hits_probation).for_each(|_| counted.note(PROBATION, || 1.0));
            counted.note(SegmentUse::main(40), || panic!("it is not one of the oldest"));
            earnings.advance(&counted, 1, 1_000, quarters);
            share = earnings.note_reclaimed(10).expect("a tenth of the segments was reclaimed");
        }
        share
    }

    #[test]
    fn who_earns_more_gets_more() {
        assert_eq!(share_after(10, 100), *SHARES.end());
        assert_eq!(share_after(100, 10), *SHARES.start());
        assert!((share_after(50, 50) - SHARE_AT_FIRST).abs() < 0.01);
        assert!((share_after(0, 0) - SHARE_AT_FIRST).abs() < 1e-9, "nothing is known");
    }

    #[test]
    fn earnings_are_for_a_sector_and_a_segment_begun() {
        let counted = QuarterHits::default();
        let mut earnings = QuarterEarnings::new();
        let quarters = [OldestQuarter { end_sequence: 40, segment_count: 2 }; 2];
        earnings.advance(&counted, 5, 1_000, quarters);
        assert_eq!(earnings.main_earns(), 0.0);
        (0..500).for_each(|_| counted.note(SegmentUse::main(3), || 2.0));
        earnings.advance(&counted, 5, 1_000, quarters);
        assert!((earnings.main_earns() - 0.1).abs() < 1e-9, "{}", earnings.main_earns());
        assert!(earnings.note_reclaimed(100).is_none());
    }
}
