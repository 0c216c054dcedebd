//! Entries that were hit go round once for each hit, those first that were hit most for their length: whatever room there is
//! holds as many hits as it can.
//!
//! Idea: generalised CLOCK (Smith, ACM TODS 1978) with the order of GDSF (Cherkasova, 1998).

use super::{Candidate, Kept};
use std::cmp::Reverse;

/// Returns what is worth keeping, most wanted first.
pub(super) fn rank(mut live: Vec<Candidate>) -> Vec<Kept> {
    live.retain(|entry| entry.hits > 0);
    live.sort_by_key(|entry| Reverse(hits_for_length(entry)));
    live.into_iter().map(|entry| Kept { listing: entry.listing, hits: entry.hits - 1 }).collect()
}

/// Hits for the longest record there is, so that shares of a hit are told apart.
fn hits_for_length(entry: &Candidate) -> u64 {
    (u64::from(entry.hits) << 32) / u64::from(entry.listing.sectors.max(1))
}

#[cfg(test)]
mod tests {
    use crate::{
        LogEviction,
        engine::log::eviction::tests::{kept, live},
    };

    #[test]
    fn what_was_hit_most_for_its_length_is_kept_within_its_room() {
        let all = [live(0, 40, 3, 0), live(40, 10, 0, 0), live(50, 10, 1, 0), live(60, 2, 1, 0), live(62, 10, 3, 50)];
        let kept = |room| kept(LogEviction::Worth, &all, room);
        assert_eq!(kept(12), [(50, 0), (60, 0)], "the useless and the never hit left out");
        assert_eq!(kept(52), [(0, 2), (50, 0), (60, 0)]);
        assert_eq!(kept(2), [(60, 0)]);
    }
}
