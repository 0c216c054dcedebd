//! Rewrites each entry once for each of its hits, the oldest entries first, whether they were hit in this round or an
//! earlier one.
//!
//! Idea: CLOCK with a counter (generalised CLOCK, Smith, ACM TODS 1978), with the hand at the end of the log.

use super::{EvictionCandidate, KeptEntry};

/// Returns the entries to rewrite, the one most worth keeping first.
pub(super) fn rank(live: Vec<EvictionCandidate>) -> Vec<KeptEntry> {
    let left = |entry: EvictionCandidate| Some(KeptEntry { listing: entry.listing, hits: entry.hits.checked_sub(1)? });
    live.into_iter().filter_map(left).collect()
}

#[cfg(test)]
mod tests {
    use crate::{
        LogEviction,
        engine::log::eviction::tests::{kept, live},
    };

    #[test]
    fn each_hit_is_worth_a_round() {
        let all = [live(0, 10, 1, 0), live(10, 10, 0, 0), live(20, 10, 3, 0), live(30, 10, 2, 0)];
        assert_eq!(kept(LogEviction::Clock, &all, 30), [(0, 0), (20, 2), (30, 1)]);
        assert_eq!(kept(LogEviction::Clock, &all, 20), [(0, 0), (20, 2)], "within its room");
    }
}
