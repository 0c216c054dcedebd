//! Entries that were hit are kept, most hit first, and begin anew. Idea: a CLOCK with as many hands as segments.

use super::{Candidate, Kept};

/// Returns what is worth keeping, most wanted first.
pub(super) fn rank(mut live: Vec<Candidate>) -> Vec<Kept> {
    live.retain(|entry| entry.hits > 0);
    live.sort_by_key(|entry| std::cmp::Reverse(entry.hits));
    live.into_iter().map(|entry| Kept { listing: entry.listing, hits: 0 }).collect()
}

#[cfg(test)]
mod tests {
    use crate::{
        LogEviction,
        eviction::tests::{kept, live},
    };

    #[test]
    fn the_most_hit_are_kept_within_their_room() {
        let all = [live(0, 10, 1, 0), live(10, 10, 0, 0), live(20, 10, 3, 0), live(30, 10, 2, 0), live(40, 10, 3, 50)];
        let kept = kept(LogEviction::MostHit, &all, 50, 20);
        assert_eq!(kept, [(20, 0), (30, 0)], "the useless and the never hit left out");
    }
}
