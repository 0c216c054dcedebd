//! Decides which entries stay in a set when new ones arrive: those whose next use is expected soonest.
//!
//! Pure decision. A rank is the expected distance of the next use: from 0 (hit since the set was last written) up to 7.
//! New entries start at 6, or at 0 if they were hit. If there is no room, the ranks of entries without hits are raised
//! until one is 7, and the entries with the highest ranks are dropped. Invariant: the kept entries fit. Idea: RRIP
//! (Jaleel et al., ISCA 2010) with one bit of memory per entry, as in Kangaroo (SOSP 2021).

/// The highest rank. It is that of entries that are predicted to be used last.
const FAR: u8 = 7;
/// Rank of a new entry without hits.
const NEW: u8 = 6;

/// An entry that competes for space in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResidentRank {
    pub(crate) len_bytes: u64,
    pub(crate) rank: u8,
    /// Whether the entry was hit since the set was last written, or while it was in the front, the log before the sets.
    pub(crate) hit: bool,
    /// Whether the entry is not in the set yet.
    pub(crate) new: bool,
}

/// Returns the entries of `residents` that stay in the set, in ascending order of rank. Each is given by its index and
/// its new rank. The entries fit in `room_bytes`, and there are at most `count_max` of them.
pub(crate) fn merge(residents: &[ResidentRank], room_bytes: u64, count_max: usize) -> Vec<(usize, u8)> {
    let total: u64 = residents.iter().map(|resident| resident.len_bytes).sum();
    let mut ranked: Vec<_> = residents.iter().enumerate().map(|(index, resident)| (index, rank(resident))).collect();
    if total > room_bytes || residents.len() > count_max {
        let old_and_unused = |index: usize| !residents[index].new && !residents[index].hit;
        let farthest = ranked.iter().filter(|&&(index, _)| old_and_unused(index)).map(|&(_, rank)| rank).max();
        let step = FAR - farthest.unwrap_or(FAR);
        ranked.iter_mut().filter(|(index, _)| old_and_unused(*index)).for_each(|(_, rank)| *rank += step);
    }
    // Of equal ranks, the newer entry is kept, because it had less time to be hit.
    ranked.sort_by_key(|&(index, rank)| (rank, !residents[index].new));
    let mut room = room_bytes;
    let mut kept = Vec::with_capacity(ranked.len());
    for (index, rank) in ranked {
        let len = residents[index].len_bytes;
        if len <= room && kept.len() < count_max {
            room -= len;
            kept.push((index, rank));
        }
    }
    kept
}

fn rank(resident: &ResidentRank) -> u8 {
    match (resident.hit, resident.new) {
        (true, _) => 0,
        (false, true) => NEW,
        (false, false) => resident.rank.min(FAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(len_bytes: u64, rank: u8, hit: bool, new: bool) -> ResidentRank {
        ResidentRank { len_bytes, rank, hit, new }
    }

    #[test]
    fn the_farthest_goes_and_the_others_age() {
        let residents = [
            resident(10, 5, false, false),
            resident(10, 2, false, false),
            resident(10, 4, true, false),
            resident(10, 0, false, true),
        ];
        assert_eq!(merge(&residents, 30, 9), [(2, 0), (1, 4), (3, 6)]);
        assert_eq!(merge(&residents, 40, 9), [(2, 0), (1, 2), (0, 5), (3, 6)], "with room nothing ages");
        assert_eq!(merge(&residents, 40, 2).len(), 2);
    }

    #[test]
    fn a_new_entry_beats_an_old_one_that_was_never_used() {
        let residents = [resident(10, 6, false, false), resident(10, 0, false, true)];
        assert_eq!(merge(&residents, 10, 9), [(1, 6)]);
    }

    #[test]
    fn what_is_kept_fits_whatever_the_lengths() {
        let residents: Vec<_> =
            (0..40).map(|n| resident(n * 37 % 400, (n % 8) as u8, n % 3 == 0, n % 5 == 0)).collect();
        for room in [0, 100, 1000, 10_000] {
            let kept = merge(&residents, room, 30);
            assert!(kept.iter().map(|&(index, _)| residents[index].len_bytes).sum::<u64>() <= room);
            assert!(kept.len() <= 30 && kept.iter().all(|&(_, rank)| rank <= FAR));
        }
    }
}
