//! What of a segment is kept when it is reclaimed: the entries that were hit, most hit first.
//!
//! Pure decision. Invariant: what is kept takes at most the room it is given (a quarter of a segment or less), so
//! that reclaiming always frees most of a segment, and writing again has a bound.
//! Idea: reinsertion by hit bits, a CLOCK with as many hands as segments.

pub(crate) mod pace;
pub(crate) mod rrip;

use crate::format::trailer::Listing;

/// Picks from the live entries of a segment those to keep, in log order. `live` are listings with
/// how often they were hit; entries that are of no use after `now_s` are never kept. Together at most `room_sectors`.
pub(crate) fn keep(live: &[(Listing, u8)], room_sectors: u64, now_s: u32) -> Vec<Listing> {
    let useful = |listing: &Listing| listing.useless_after == 0 || listing.useless_after >= now_s;
    let mut wanted: Vec<_> = live.iter().filter(|(listing, hits)| *hits > 0 && useful(listing)).collect();
    wanted.sort_by_key(|(_, hits)| std::cmp::Reverse(*hits));
    let mut room = room_sectors;
    let mut kept: Vec<Listing> = Vec::new();
    for (listing, _) in wanted {
        if u64::from(listing.sectors) <= room {
            room -= u64::from(listing.sectors);
            kept.push(*listing);
        }
    }
    kept.sort_by_key(|listing| listing.sector);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(sector: u32, sectors: u16, hits: u8, useless_after: u32) -> (Listing, u8) {
        (Listing { placing: 1, sector, sectors, tombstone: false, useless_after }, hits)
    }

    #[test]
    fn the_most_hit_are_kept_within_their_room() {
        let all = [live(0, 10, 1, 0), live(10, 10, 0, 0), live(20, 10, 3, 0), live(30, 10, 2, 0), live(40, 10, 3, 50)];
        let sectors: Vec<_> = keep(&all, 20, 100).iter().map(|listing| listing.sector).collect();
        assert_eq!(sectors, [20, 30], "the useless and the never hit left out");
    }
}
