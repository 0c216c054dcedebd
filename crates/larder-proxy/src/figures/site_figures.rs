//! Counts requests by site, for the sites with a label in `/metrics` and for all others together.
//!
//! Owns: the counters of one worker, by label. `exposition` assigns the labels. Invariants: a label is never withdrawn,
//! so its counters only grow. There are at most [`LABEL_COUNT_MAX`] labels. Cost: a request examines a few words.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::figures::{
    metrics::CounterRow,
    outcome::{Outcome, OutcomeKind},
};

/// Counters of one worker for each site that has a label.
#[derive(Debug)]
pub(crate) struct SiteFigures {
    /// Hashes of site names, in a table with linear probing. `labels` has the label at the same index.
    hashes: [AtomicU64; PLACE_COUNT],
    labels: [AtomicU64; PLACE_COUNT],
    /// The counters of each label. The last label is for all sites that have no label of their own.
    counts: CounterRow<{ (LABEL_COUNT_MAX + 1) * FIGURE_COUNT }>,
}

/// The sums of one site's counters over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteSums {
    /// Number of exchanges by kind of outcome.
    pub(crate) kinds: [u64; OutcomeKind::ALL.len()],
    pub(crate) client_bytes: u64,
    pub(crate) hit_bytes: u64,
}

impl SiteFigures {
    /// Counts an exchange of the site with this label.
    pub(crate) fn note(&self, label: u8, outcome: Outcome, bytes: u64) {
        let counts = &self.counts[usize::from(label) * FIGURE_COUNT..][..FIGURE_COUNT];
        counts[outcome.kind() as usize].add(1);
        counts[CLIENT_BYTES].add(bytes);
        if outcome.is_hit() {
            counts[HIT_BYTES].add(bytes);
        }
    }

    /// Gives a label to the site whose name has this hash. Only one thread may call this at a time.
    pub(crate) fn assign(&self, hash: u64, label: usize) {
        assert!(label < LABEL_COUNT_MAX, "the number of labels has a limit");
        let free =
            places(hash).find(|place| self.hashes[*place].load(Relaxed) == 0).expect("half of the places stay free");
        self.labels[free].store(label as u64, Relaxed);
        self.hashes[free].store(hash, Release);
    }

    /// Adds the counts of a label to `sums`.
    pub(crate) fn add_to(&self, label: usize, sums: &mut SiteSums) {
        let counts = &self.counts[label * FIGURE_COUNT..][..FIGURE_COUNT];
        sums.kinds.iter_mut().zip(counts).for_each(|(total, count)| *total += count.value());
        sums.client_bytes += counts[CLIENT_BYTES].value();
        sums.hit_bytes += counts[HIT_BYTES].value();
    }

    /// Returns the label of the site with this hash, or [`OTHER_LABEL`].
    pub(crate) fn label(&self, hash: u64) -> u8 {
        for place in places(hash) {
            match self.hashes[place].load(Acquire) {
                0 => break,
                known if known == hash => return self.labels[place].load(Relaxed) as u8,
                _ => {}
            }
        }
        OTHER_LABEL as u8
    }
}

/// Returns the indexes at which a hash may be, in the order of the search.
fn places(hash: u64) -> impl Iterator<Item = usize> {
    let first = (hash >> 16) as usize;
    (0..PLACE_COUNT).map(move |step| (first + step) % PLACE_COUNT)
}

impl Default for SiteFigures {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { hashes: zeros(), labels: zeros(), counts: CounterRow::default() }
    }
}

/// Maximum number of sites with a label of their own.
pub(crate) const LABEL_COUNT_MAX: usize = 64;
/// The label for all sites that have no label of their own.
pub(crate) const OTHER_LABEL: usize = LABEL_COUNT_MAX;
const PLACE_COUNT: usize = 2 * LABEL_COUNT_MAX;
const CLIENT_BYTES: usize = OutcomeKind::ALL.len();
const HIT_BYTES: usize = CLIENT_BYTES + 1;
const FIGURE_COUNT: usize = HIT_BYTES + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_with_a_label_are_counted_apart_and_all_others_together() {
        let figures = SiteFigures::default();
        // The hashes are adjacent, so that they compete for the same slots.
        let hash = |site: u64| (7 << 16) + site + 1;
        figures.note(figures.label(hash(0)), Outcome::Hit, 1);
        (0..LABEL_COUNT_MAX).for_each(|label| figures.assign(hash(label as u64), label));
        for site in 0..100 {
            figures.note(figures.label(hash(site)), Outcome::Miss, site);
        }
        for label in 0..LABEL_COUNT_MAX {
            let mut sums = SiteSums::default();
            figures.add_to(label, &mut sums);
            assert_eq!((sums.kinds, sums.client_bytes, sums.hit_bytes), ([0, 1, 0, 0, 0], label as u64, 0));
        }
        let mut others = SiteSums::default();
        figures.add_to(OTHER_LABEL, &mut others);
        assert_eq!((others.kinds, others.hit_bytes), ([1, 36, 0, 0, 0], 1));
    }
}
