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

/// A current entry in a segment that is being reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvictionCandidate {
    pub(crate) listing: TrailerRecord,
    /// Number of hits of the entry.
    pub(crate) hits: u8,
    /// Whether a reader protects the entry from being reclaimed.
    pub(crate) held: bool,
    /// Whether the entry is pinned, so that it must be kept.
    pub(crate) pinned: bool,
}

/// A segment that is being reclaimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimedSegment<'a> {
    /// The current entries of the segment, in log order.
    pub(crate) live: &'a [EvictionCandidate],
    /// Maximum number of bytes to rewrite. Pinned and protected entries are rewritten even beyond this number; other
    /// entries only get what these leave.
    pub(crate) room_bytes: u64,
    pub(crate) standard: EvictionStandard,
    /// Current Unix time in seconds.
    pub(crate) now_s: u32,
}

/// The values by which entries are judged when a segment is reclaimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionStandard {
    /// Generation of the segment.
    pub(crate) generation: SegmentRow,
    /// The exponent e that weighs length ([`crate::Objective`]). An entry of n sectors must be likely to get n^e times
    /// the hits of an entry of one sector.
    pub(crate) length_exponent: f64,
    /// Hits that an entry must be likely to get, divided by its sectors to the power of `length_exponent`.
    pub(crate) price: f64,
    pub(crate) expected: ExpectedHits,
    /// Present epoch of the sample of requests.
    pub(crate) epoch: u32,
}

impl EvictionStandard {
    /// Returns the standard for a policy that does not learn.
    pub(crate) fn of(generation: SegmentRow) -> Self {
        Self { generation, length_exponent: 1.0, price: 0.0, expected: ExpectedHits::default(), epoch: 0 }
    }

    /// Returns the class of `entry` for this segment.
    pub(crate) fn class(&self, entry: &EvictionCandidate) -> EntryClass {
        EntryClass::of(self.generation, entry.hits, entry.listing.sectors())
    }
}

/// An entry that is rewritten, and the hits with which it starts at its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptEntry {
    pub(crate) listing: TrailerRecord,
    pub(crate) hits: u8,
}

/// The entries of a segment to rewrite, in log order. All other entries of the segment are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvictionChoice {
    pub(crate) kept: Vec<KeptEntry>,
}

/// Chooses the entries to rewrite by the policy's algorithm. Never keeps entries that have expired. Pinned and
/// protected entries come first and leave less room for others.
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

/// Moves entries from `wanted` to `kept`, in order, as long as they fit in `room` bytes.
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

    /// Returns the standard for a main segment. With its price, an entry of ten sectors is kept if it was hit once.
    pub(super) fn standard() -> EvictionStandard {
        EvictionStandard { price: 0.03, ..EvictionStandard::of(SegmentRow::Main) }
    }

    /// Returns a current entry with the given first sector, length, number of hits and time of expiry.
    pub(super) fn live(sector: u32, sectors: u32, hits: u8, expires_at: u32) -> EvictionCandidate {
        let start_bytes = sector * 512;
        let len_bytes = sectors * 512;
        let key_hash = KeyHash(1);
        let kind = ListedKind::Entry;
        let listing =
            TrailerRecord { key_hash, start_bytes, len_bytes, kind, run_blocks: 0, follows: false, expires_at };
        EvictionCandidate { listing, hits, held: false, pinned: false }
    }

    /// Returns the entries that are kept at second 100. Each is given by its first sector and the hits with which it
    /// starts.
    pub(super) fn kept(eviction: LogEviction, live: &[EvictionCandidate], room_sectors: u64) -> Vec<(u32, u8)> {
        let chosen = choose(
            eviction,
            &ReclaimedSegment { live, room_bytes: room_sectors * 512, standard: standard(), now_s: 100 },
        );
        chosen.kept.iter().map(|kept| (kept.listing.start_bytes / 512, kept.hits)).collect()
    }

    /// Returns the entries that the default policy keeps by the given standard.
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
