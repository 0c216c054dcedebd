//! Rewrites the entries with the most expected hits for their length, if they are worth the price. A given room then
//! holds as many hits, or bytes of hits, as possible.
//!
//! The expectations are learned from earlier entries ([`super::learned`]). A rewritten entry begins with one hit less,
//! so the hits of an entry that was popular long ago decrease with each round. Ideas: the order of GDSF (Cherkasova,
//! 1998), and hits learned from evicted entries as in LHD (NSDI 2018).

use super::{EvictionCandidate, EvictionStandard, KeptEntry, learned::EntryClass};
use crate::SplitMix64;

/// Maximum factor by which the price of one entry differs from the common price, up or down. With the same price for
/// all, the entries of one class would all be kept or all be dropped, and one segment would take all remaining writes.
const SPREAD: f64 = 1.28;

/// Minimum number of hits that a rewritten entry must be expected to get, even if the price is lower. With fewer, less
/// than one in 200 rewrites would result in a hit.
const HITS_MIN: f64 = 0.005;

/// Minimum worth (expected hits for the length) of a rewritten entry without hits, as a share of the worth of an entry
/// of mean length with one hit. The price alone would allow useless rewrites when few bytes are written, and these
/// would take space from new entries.
const UNHIT_SHARE: f64 = 0.6;

/// Returns the entries to rewrite, the one most worth keeping first.
pub(super) fn rank(live: Vec<EvictionCandidate>, standard: &EvictionStandard) -> Vec<KeptEntry> {
    let cost = |sectors: u64| (sectors.max(1) as f64).powf(standard.length_exponent);
    let worth = |entry: &EvictionCandidate| standard.expected.of(standard.class(entry)) / cost(entry.listing.sectors());
    let mean_sectors = live.iter().map(|entry| entry.listing.sectors()).sum::<u64>() / live.len().max(1) as u64;
    let hit_once = EntryClass::of(standard.generation, 1, mean_sectors);
    let least_unhit = UNHIT_SHARE * standard.expected.of(hit_once) / cost(mean_sectors);
    let is_kept = |worth: f64, entry: &EvictionCandidate| {
        worth >= standard.price * spread(entry, standard.epoch)
            && worth * cost(entry.listing.sectors()) >= HITS_MIN
            && (entry.hits > 0 || worth >= least_unhit)
    };
    let mut kept: Vec<(f64, EvictionCandidate)> =
        live.into_iter().map(|entry| (worth(&entry), entry)).filter(|(worth, entry)| is_kept(*worth, entry)).collect();
    kept.sort_by(|one, other| other.0.total_cmp(&one.0));
    kept.into_iter()
        .map(|(_, entry)| KeptEntry { listing: entry.listing, hits: entry.hits.saturating_sub(1) })
        .collect()
}

/// Returns the factor by which the price for this entry differs from the common price in this epoch.
fn spread(entry: &EvictionCandidate, epoch: u32) -> f64 {
    let share = SplitMix64::new(entry.listing.key_hash.0 ^ u64::from(epoch)).share();
    SPREAD.powf(2.0 * share - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::log::eviction::{
            learned::HitsByClass,
            tests::{kept_by, live, standard},
        },
        format::SegmentRow,
    };

    #[test]
    fn what_is_worth_its_price_is_kept_within_its_room_the_most_hit_for_its_length_first() {
        let all = [live(0, 40, 3, 0), live(40, 10, 0, 0), live(50, 10, 1, 0), live(60, 2, 1, 0), live(62, 10, 3, 50)];
        let kept = |price, room| kept_by(EvictionStandard { price, ..standard() }, &all, room);
        assert_eq!(kept(0.02, 52), [(0, 2), (50, 0), (60, 0)], "without the useless and the never hit");
        assert_eq!(kept(0.03, 52), [(50, 0), (60, 0)], "the long one is not hit often enough for its length");
        assert_eq!(kept(0.02, 2), [(60, 0)]);
        assert_eq!(kept(10.0, 52), []);
    }

    #[test]
    fn for_bytes_length_does_not_count() {
        let all = [live(0, 40, 3, 0), live(40, 1, 0, 0), live(50, 10, 1, 0), live(60, 2, 1, 0)];
        let standard = EvictionStandard { length_exponent: 0.0, price: 0.3, ..standard() };
        assert_eq!(kept_by(standard, &all, 44), [(0, 2), (60, 0)], "most hit first, and nothing that was not");
    }

    #[test]
    fn what_was_never_hit_is_kept_only_if_it_is_short() {
        let kept = |sectors, length_exponent| {
            let all = [live(0, 40, 3, 0), live(40, sectors, 0, 0)];
            let standard = EvictionStandard { length_exponent, price: 1e-6, ..standard() };
            kept_by(standard, &all, 100).len() == 2
        };
        assert!(kept(5, 1.0), "as much worth for its length as a long one that was hit once");
        assert!(!kept(15, 1.0));
        assert!(!kept(5, 0.0), "length does not count");
    }

    #[test]
    fn what_was_learned_counts_more_than_the_hits() {
        let all = [live(0, 4, 0, 0), live(4, 4, 3, 0)];
        let mut learned = HitsByClass::default();
        (0..500).for_each(|_| learned.note(EntryClass::of(SegmentRow::Main, 0, 4), 2));
        (0..500).for_each(|_| learned.note(EntryClass::of(SegmentRow::Main, 3, 4), 0));
        let standard = EvictionStandard { expected: learned.expected(), price: 0.1, ..standard() };
        assert_eq!(kept_by(standard, &all, 50), [(0, 0)]);
    }
}
