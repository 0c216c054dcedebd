//! What of a segment is kept when it is reclaimed: entries that are being read, then those that were hit, most hit first.
//!
//! Pure decision. Invariant: what is kept takes at most the room it is given (seven eighths of a segment if it is being read,
//! else a quarter or less), so that reclaiming always frees some of a segment, and writing again has a bound.
//! Idea: reinsertion by hit bits, a CLOCK with as many hands as segments.

pub(crate) mod pace;
pub(crate) mod rrip;

use crate::format::trailer::Listing;

/// A live entry of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) listing: Listing,
    /// How often it was hit.
    pub(crate) hits: u8,
    /// Whether somebody is about to read it.
    pub(crate) held: bool,
}

/// What may be kept, in sectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Of entries that are held.
    pub(crate) held: u64,
    /// Of all, but for what is held.
    pub(crate) hit: u64,
}

/// Picks from the live entries of a segment those to keep, in log order: what is held within its room, then what was hit
/// within the room that this leaves, most hit first. Entries that are of no use after `now_s` are never kept.
pub(crate) fn keep(live: &[Candidate], room: Room, now_s: u32) -> Vec<Listing> {
    let useful = |entry: &&Candidate| entry.listing.useless_after == 0 || entry.listing.useless_after >= now_s;
    let (held, mut others): (Vec<&Candidate>, Vec<&Candidate>) =
        live.iter().filter(useful).partition(|entry| entry.held);
    others.retain(|entry| entry.hits > 0);
    others.sort_by_key(|entry| std::cmp::Reverse(entry.hits));
    let mut kept = Vec::new();
    let taken = take(&held, room.held, &mut kept);
    take(&others, room.hit.saturating_sub(taken), &mut kept);
    kept.sort_by_key(|listing| listing.sector);
    kept
}

/// Takes what fits into `room`, in order. Returns how much that is.
fn take(entries: &[&Candidate], room: u64, kept: &mut Vec<Listing>) -> u64 {
    let mut taken = 0;
    for Candidate { listing, .. } in entries {
        if taken + u64::from(listing.sectors) <= room {
            taken += u64::from(listing.sectors);
            kept.push(*listing);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(sector: u32, sectors: u16, hits: u8, useless_after: u32) -> Candidate {
        let listing = Listing { placing: 1, sector, sectors, tombstone: false, useless_after };
        Candidate { listing, hits, held: false }
    }

    fn kept(live: &[Candidate], held: u64, hit: u64) -> Vec<u32> {
        keep(live, Room { held, hit }, 100).iter().map(|listing| listing.sector).collect()
    }

    #[test]
    fn the_most_hit_are_kept_within_their_room() {
        let all = [live(0, 10, 1, 0), live(10, 10, 0, 0), live(20, 10, 3, 0), live(30, 10, 2, 0), live(40, 10, 3, 50)];
        assert_eq!(kept(&all, 50, 20), [20, 30], "the useless and the never hit left out");
    }

    #[test]
    fn what_is_held_is_kept_first_and_has_a_bound_too() {
        let held = |entry| Candidate { held: true, ..entry };
        let all = [live(0, 10, 3, 0), held(live(10, 10, 0, 0)), held(live(20, 10, 0, 0)), held(live(30, 10, 0, 50))];
        assert_eq!(kept(&all, 30, 20), [10, 20], "it takes the room of what was hit");
        assert_eq!(kept(&all, 10, 20), [0, 10]);
        assert_eq!(kept(&all, 0, 0), [0; 0]);
    }
}
