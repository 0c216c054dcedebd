//! Rewrites the entries with the greatest worth for their length, mainly those with hits, so that any given room holds
//! as many hits, or bytes of hits, as possible.
//!
//! On probation one hit is enough. In main segments an entry stays one round per hit, those with the most hits for
//! their length first. An entry without hits is worth a fraction of a hit. If it is so short that even that exceeds the
//! worth of the entries that would replace it, it stays as well, for some rounds. Ideas: S3-FIFO (SOSP 2023),
//! generalised CLOCK (Smith, ACM TODS 1978), the order of GDSF (Cherkasova, 1998).

use super::{EvictionCandidate, EvictionStandard, KeptEntry};
use crate::{format::SegmentRow, units::SECTOR_BYTES};

/// Worth of an entry without hits, in hits: in a main segment it was hit before, on probation it never was.
const UNHIT_MAIN: f64 = 0.25;
const UNHIT_PROBATION: f64 = 0.1;
/// Chance, in 1/256, that a short entry without hits survives a round.
const LUCKY_OF_256: u64 = 230;

/// Returns what is worth keeping, most wanted first.
pub(super) fn rank(live: Vec<EvictionCandidate>, standard: &EvictionStandard) -> Vec<KeptEntry> {
    let unhit = match standard.generation {
        SegmentRow::Main => UNHIT_MAIN,
        SegmentRow::Probation => UNHIT_PROBATION,
    };
    let cost = |sectors: f64| sectors.max(1.0).powf(standard.length_exponent);
    let sectors = |entry: &EvictionCandidate| f64::from(entry.listing.len_bytes) / SECTOR_BYTES as f64;
    let is_short = |entry: &EvictionCandidate| cost(sectors(entry)) <= unhit * cost(standard.mean_sectors);
    let is_kept = |entry: &EvictionCandidate| entry.hits > 0 || (is_short(entry) && is_lucky(entry, standard.seed));
    let worth = |entry: &EvictionCandidate| (f64::from(entry.hits) + unhit) / cost(sectors(entry));
    let mut kept: Vec<(f64, EvictionCandidate)> =
        live.into_iter().filter(is_kept).map(|entry| (worth(&entry), entry)).collect();
    kept.sort_by(|one, other| other.0.total_cmp(&one.0));
    let hits_left = |hits: u8| match standard.generation {
        SegmentRow::Main => hits.saturating_sub(1),
        SegmentRow::Probation => 0,
    };
    kept.into_iter().map(|(_, entry)| KeptEntry { listing: entry.listing, hits: hits_left(entry.hits) }).collect()
}

fn is_lucky(entry: &EvictionCandidate, seed: u64) -> bool {
    (entry.listing.key_hash.0 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56 < LUCKY_OF_256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LogEviction,
        engine::log::eviction::tests::{STANDARD, kept, kept_by, live},
    };

    #[test]
    fn what_was_hit_most_for_its_length_is_kept_within_its_room() {
        let all = [live(0, 40, 3, 0), live(40, 10, 0, 0), live(50, 10, 1, 0), live(60, 2, 1, 0), live(62, 10, 3, 50)];
        let kept = |room| kept(LogEviction::Worth, &all, room);
        assert_eq!(kept(12), [(50, 0), (60, 0)], "the useless and the never hit left out");
        assert_eq!(kept(52), [(0, 2), (50, 0), (60, 0)]);
        assert_eq!(kept(2), [(60, 0)]);
    }

    #[test]
    fn for_bytes_length_does_not_count() {
        let all = [live(0, 40, 3, 0), live(40, 1, 0, 0), live(50, 10, 1, 0), live(60, 2, 1, 0)];
        let standard = EvictionStandard { length_exponent: 0.0, mean_sectors: 100.0, ..STANDARD };
        assert_eq!(kept_by(standard, &all, 44), [(0, 2), (60, 0)], "most hit first, and nothing that was not");
    }

    #[test]
    fn on_probation_one_hit_is_enough_and_none_is_left() {
        let all = [live(0, 10, 3, 0), live(10, 10, 0, 0), live(20, 10, 1, 0)];
        let standard = EvictionStandard { generation: SegmentRow::Probation, ..STANDARD };
        assert_eq!(kept_by(standard, &all, 50), [(0, 0), (20, 0)]);
    }

    #[test]
    fn what_is_short_enough_stays_for_some_rounds_without_a_hit() {
        let all = [live(0, 20, 0, 0), live(20, 30, 0, 0)];
        let rounds = (0..1000).filter(|&seed| {
            let kept = kept_by(EvictionStandard { mean_sectors: 100.0, seed: seed << 40, ..STANDARD }, &all, 50);
            assert!(kept.is_empty() || kept == [(0, 0)], "{kept:?}");
            !kept.is_empty()
        });
        let count = rounds.count();
        assert!((850..950).contains(&count), "{count} of 1000 rounds");
    }
}
