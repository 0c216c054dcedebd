//! Decides which entries are kept when a segment is reclaimed: one pure function for each eviction algorithm, which the
//! policy selects.
//!
//! Owns: the functions' input ([`ReclaimedSegment`]) and result ([`EvictionChoice`]). Reading, writing and the index
//! are elsewhere; reclaim executes the choice. Invariant: kept entries take at most the given room, so that rewriting
//! is bounded. Entries that are pinned or protected by a reader are all kept. Both are limited on a volume, so some
//! segment always frees room.

mod clock;
pub(crate) mod learned;
pub(crate) mod price;
pub(crate) mod quarters;
pub(crate) mod sample;
mod worth;

use super::index::IndexSlot;
use crate::{
    LogEviction,
    clock::has_expired,
    format::{SegmentRow, trailer::TrailerRecord},
};
use learned::{EntryClass, ExpectedHits};

/// A live entry of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictionCandidate {
    pub(crate) listing: TrailerRecord,
    /// Number of hits.
    pub(crate) hits: u8,
    /// Whether a reader protects the entry.
    pub(crate) held: bool,
    /// Set if the entry must be kept.
    pub(crate) pinned: bool,
}

/// A segment that is about to be reclaimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimedSegment<'a> {
    /// The live entries, in log order.
    pub(crate) live: &'a [EvictionCandidate],
    /// Bytes that may be kept, not counting pinned and protected entries.
    pub(crate) room_bytes: u64,
    pub(crate) standard: EvictionStandard,
    /// Unix time in seconds.
    pub(crate) now_s: u32,
}

/// The criteria by which entries are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionStandard {
    /// The segment's generation.
    pub(crate) generation: SegmentRow,
    /// The exponent that weighs length: an entry of n sectors must be likely to get n to this power times the hits of
    /// an entry of one sector ([`crate::Objective`]).
    pub(crate) length_exponent: f64,
    /// Least expected hits, for the entry's length.
    pub(crate) price: f64,
    pub(crate) expected: ExpectedHits,
    /// The epoch of the sample of requests.
    pub(crate) epoch: u32,
}

impl EvictionStandard {
    /// Returns the criteria of a log that does not learn.
    pub(crate) fn of(generation: SegmentRow) -> Self {
        Self { generation, length_exponent: 1.0, price: 0.0, expected: ExpectedHits::default(), epoch: 0 }
    }

    /// Returns the class of an entry in a segment of this generation.
    pub(crate) fn class(&self, entry: &EvictionCandidate) -> EntryClass {
        EntryClass::of(self.generation, entry.hits, entry.listing.sectors())
    }
}

/// An entry that is written again, and its initial hits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptEntry {
    pub(crate) listing: TrailerRecord,
    pub(crate) hits: u8,
}

/// The entries to rewrite, in log order; the others are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictionChoice {
    pub(crate) kept: Vec<KeptEntry>,
}

/// Chooses by the policy's eviction algorithm. Entries that are useless after `now_s` are never kept. Pinned and
/// protected entries take room from the others.
pub(crate) fn choose(eviction: LogEviction, reclaimed: &ReclaimedSegment<'_>) -> EvictionChoice {
    let ReclaimedSegment { live, room_bytes, standard, now_s } = *reclaimed;
    let useful = |entry: &&EvictionCandidate| !has_expired(entry.listing.expires_at, now_s);
    let (spared, others): (Vec<EvictionCandidate>, Vec<EvictionCandidate>) =
        live.iter().filter(useful).partition(|entry| entry.pinned || entry.held);
    // A full index drops the entry with the fewest hits, so a pinned entry gets the maximum.
    let hits = |entry: &EvictionCandidate| if entry.pinned { IndexSlot::HITS_MAX } else { 0 };
    let mut kept: Vec<KeptEntry> =
        spared.iter().map(|entry| KeptEntry { listing: entry.listing, hits: hits(entry) }).collect();
    let spared_bytes = bytes_of(&kept);
    let wanted = match eviction {
        LogEviction::Worth => worth::rank(others, &standard),
        LogEviction::Clock => clock::rank(others),
    };
    take(wanted, room_bytes.saturating_sub(spared_bytes), &mut kept);
    assert!(bytes_of(&kept) <= spared_bytes.max(room_bytes), "what is kept fits its room");
    kept.sort_by_key(|kept| kept.listing.start_bytes);
    EvictionChoice { kept }
}

/// Takes the entries that fit into `room`, in order.
fn take(wanted: Vec<KeptEntry>, room: u64, kept: &mut Vec<KeptEntry>) {
    let mut taken = 0;
    for one in wanted {
        let bytes = u64::from(one.listing.len_bytes);
        if taken + bytes <= room {
            taken += bytes;
            kept.push(one);
        }
    }
    assert!(taken <= room, "no more is kept than there is room for");
}

fn bytes_of(kept: &[KeptEntry]) -> u64 {
    kept.iter().map(|kept| u64::from(kept.listing.len_bytes)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::trailer::ListedKind, hash::KeyHash};

    /// Criteria for a main segment, judged by requests, with a price at which an entry of ten sectors needs one hit.
    pub(super) fn standard() -> EvictionStandard {
        EvictionStandard { price: 0.03, ..EvictionStandard::of(SegmentRow::Main) }
    }

    /// A live entry: its first sector, its length, its hits, and the time after which it is useless.
    pub(super) fn live(sector: u32, sectors: u32, hits: u8, expires_at: u32) -> EvictionCandidate {
        let start_bytes = sector * 512;
        let len_bytes = sectors * 512;
        let key_hash = KeyHash(1);
        let kind = ListedKind::Entry;
        let listing =
            TrailerRecord { key_hash, start_bytes, len_bytes, kind, run_blocks: 0, follows: false, expires_at };
        EvictionCandidate { listing, hits, held: false, pinned: false }
    }

    /// Returns the entries kept at second 100, by sector, with the hits they start with.
    pub(super) fn kept(eviction: LogEviction, live: &[EvictionCandidate], room_sectors: u64) -> Vec<(u32, u8)> {
        let chosen = choose(
            eviction,
            &ReclaimedSegment { live, room_bytes: room_sectors * 512, standard: standard(), now_s: 100 },
        );
        chosen.kept.iter().map(|kept| (kept.listing.start_bytes / 512, kept.hits)).collect()
    }

    /// Returns the entries that the default policy keeps by these criteria.
    pub(super) fn kept_by(standard: EvictionStandard, live: &[EvictionCandidate], room: u64) -> Vec<(u32, u8)> {
        let reclaimed = ReclaimedSegment { live, room_bytes: room * 512, standard, now_s: 100 };
        choose(LogEviction::Worth, &reclaimed)
            .kept
            .iter()
            .map(|kept| (kept.listing.start_bytes / 512, kept.hits))
            .collect()
    }

    #[test]
    fn what_is_pinned_is_kept_however_much_it_is_while_it_is_of_use() {
        let pinned = |entry| EvictionCandidate { pinned: true, ..entry };
        let all =
            [live(0, 10, 3, 0), pinned(live(10, 30, 0, 0)), pinned(live(40, 30, 1, 0)), pinned(live(70, 5, 0, 50))];
        let spared = [(10, IndexSlot::HITS_MAX), (40, IndexSlot::HITS_MAX)];
        assert_eq!(kept(LogEviction::Worth, &all, 20), spared, "they take the room of what was hit");
        assert_eq!(kept(LogEviction::Clock, &all, 0), spared);
        assert_eq!(kept(LogEviction::Worth, &all, 70), [(0, 2), spared[0], spared[1]]);
    }

    #[test]
    fn what_is_held_is_kept_however_much_it_is_and_takes_the_room_of_what_was_hit() {
        let held = |entry| EvictionCandidate { held: true, ..entry };
        let all = [live(0, 10, 3, 0), held(live(10, 10, 0, 0)), held(live(20, 10, 0, 0)), held(live(30, 10, 0, 50))];
        assert_eq!(kept(LogEviction::Worth, &all, 20), [(10, 0), (20, 0)]);
        assert_eq!(kept(LogEviction::Worth, &all, 0), [(10, 0), (20, 0)]);
        assert_eq!(kept(LogEviction::Worth, &all, 30), [(0, 2), (10, 0), (20, 0)]);
    }
}
