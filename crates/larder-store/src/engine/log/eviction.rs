//! Decides what is kept when a segment is reclaimed: one pure function for each eviction, which the policy names.
//!
//! Owns: the functions' input ([`ReclaimedSegment`]) and result ([`EvictionChoice`]). Reading, writing and the index
//! are elsewhere; reclaim executes the choice. Invariant: kept entries take at most the given room, so that rewriting
//! is bounded. Entries that are pinned, or that a reader protects, are all kept: both are limited on a volume, so some
//! segment frees room.

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
    /// Whether somebody is about to read it.
    pub(crate) held: bool,
    /// Set if the entry must be kept.
    pub(crate) pinned: bool,
}

/// A segment that is about to be reclaimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimedSegment<'a> {
    /// The live entries, in log order.
    pub(crate) live: &'a [EvictionCandidate],
    /// Bytes that may be kept, without pinned and held entries.
    pub(crate) room_bytes: u64,
    pub(crate) standard: EvictionStandard,
    /// Unix time in seconds.
    pub(crate) now_s: u32,
}

/// By what entries are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionStandard {
    /// Of the segment.
    pub(crate) generation: SegmentRow,
    /// The exponent that weighs length: an entry of n sectors must be likely to get n to this power times the hits of
    /// an entry of one sector ([`crate::Objective`]).
    pub(crate) length_exponent: f64,
    /// Least hits that an entry must be likely to get, for its length.
    pub(crate) price: f64,
    pub(crate) expected: ExpectedHits,
    /// The epoch of the requests' sample.
    pub(crate) epoch: u32,
}

impl EvictionStandard {
    /// Returns the standard of a log that learns nothing.
    pub(crate) fn of(generation: SegmentRow) -> Self {
        Self { generation, length_exponent: 1.0, price: 0.0, expected: ExpectedHits::default(), epoch: 0 }
    }

    /// Returns the class of an entry in a segment of this generation.
    pub(crate) fn class(&self, entry: &EvictionCandidate) -> EntryClass {
        EntryClass::of(self.generation, entry.hits, entry.listing.sectors())
    }
}

/// An entry that is written again, and the hits that it begins with there.
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

/// Chooses by the row's eviction. Entries that are of no use after `now_s` are never kept. Entries to be spared take the
/// room of others.
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

/// Takes what fits into `room`, in order.
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

    /// Of a main segment, by requests, at a price for which an entry of ten sectors must be hit once.
    pub(super) fn standard() -> EvictionStandard {
        EvictionStandard { price: 0.03, ..EvictionStandard::of(SegmentRow::Main) }
    }

    /// A live entry: where it begins, its length, its hits, and after when it is of no use.
    pub(super) fn live(sector: u32, sectors: u32, hits: u8, expires_at: u32) -> EvictionCandidate {
        let (start_bytes, len_bytes) = (sector * 512, sectors * 512);
        let key_hash = KeyHash(1);
        let listing =
            TrailerRecord { key_hash, start_bytes, len_bytes, kind: ListedKind::Entry, run_blocks: 0, expires_at };
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

    /// Returns the entries that the default policy keeps by this standard.
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
