//! The division of a `tiny` volume into the front, the sets, and the ring for long entries.
//!
//! Owns: the computation of positions from sizes, and its representation in the superblock. The content is unknown
//! here. Invariants: the three parts follow one another in the data area. A record goes to either the front or the long
//! ring, according to its length. Idea: Kangaroo (SOSP 2021) gives 5% of the flash to its log and the remainder to
//! sets. Here, entries that are too long for a set are in a ring of their own, like the remainders of long entries in
//! HashCache, and the sets hold [`RecordStub`](crate::format::pack::Stub)s for them.

use super::ring::RingArea;
use crate::{
    format::pack::granulated,
    units::{BLOCK_BYTES, SetNumber},
};
use std::ops::Range;

/// The places of three parts in the data area of a volume: the front (the log before the sets), the sets, and the long
/// ring (the log of long entries).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TinyPlan {
    pub(crate) front: RingArea,
    pub(crate) sets_start_bytes: u64,
    pub(crate) set_bytes: u64,
    pub(crate) set_count: u32,
    pub(crate) long: RingArea,
}

/// The options from which a layout is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TinyWishes {
    pub(crate) mean_entry_bytes: u64,
    pub(crate) set_bytes: u64,
    /// Size of the front, the log before the sets, in percent of the size of the sets.
    pub(crate) front_percent: u64,
}

impl TinyPlan {
    /// Divides the range `data` of the volume into the three parts. Returns `None` if the range is too small.
    ///
    /// With lengths as on the web (lognormal), entries shorter than `n` have about `1 / (1 + 2 mean / n)` of the bytes.
    /// The sets get that share. A mean below [`SMALL_MEAN_BYTES`] is that of rows or counters, not of web responses:
    /// hardly any of them is long, so the ring gets much less.
    pub(crate) fn new(data: Range<u64>, wishes: TinyWishes) -> Option<Self> {
        let TinyWishes { mean_entry_bytes: mean, set_bytes, front_percent } = wishes;
        let total = (data.end.checked_sub(data.start)?) / BLOCK_BYTES * BLOCK_BYTES;
        let short = set_bytes / 2;
        let long_weight = mean.min(mean * mean / SMALL_MEAN_BYTES);
        let small_share = total / (short / 2 + long_weight) * (short / 2);
        let front_segment = segment_bytes(small_share * front_percent / 100, FRONT_SEGMENTS, FRONT_SEGMENT_RANGE);
        let front_count = (small_share * front_percent / 100 / front_segment).max(FRONT_SEGMENTS);
        let front_total = front_count * front_segment;
        let sets_most = total.saturating_sub(front_total + LONG_SEGMENTS_LEAST * LONG_SEGMENT_MIN);
        let sets_total = small_share.saturating_sub(front_total).max(total / 8).min(sets_most);
        let set_count = sets_total / set_bytes;
        let long_total = total.checked_sub(front_total + set_count * set_bytes)?;
        let long_segment = long_segment_bytes(long_total);
        let long_count = long_total / long_segment;
        let start = data.start.next_multiple_of(BLOCK_BYTES);
        let plan =
            Self::from_parameters(start, [front_segment, front_count, set_bytes, set_count, long_segment, long_count])?;
        (plan.long.end_bytes() <= data.end).then_some(plan)
    }

    /// Returns the layout with the parameters in a superblock ([`TinyPlan::parameters`]). The data area begins at
    /// `start`. Returns `None` if the parameters are invalid.
    pub(crate) fn from_parameters(start: u64, parameters: [u64; 6]) -> Option<Self> {
        let [front_segment, front_count, set_bytes, set_count, long_segment, long_count] = parameters;
        let is_set_size = set_bytes.is_power_of_two() && SET_BYTES_RANGE.contains(&set_bytes);
        let counts = [front_count, set_count, long_count].map(u32::try_from);
        let [Ok(front_count), Ok(set_count), Ok(long_count)] = counts else { return None };
        let front = ring(start, front_segment, front_count, FRONT_PACK_BYTES, crate::format::pack::GRANULE_BYTES)?;
        let sets_start_bytes = front.end_bytes();
        let sets_bytes = set_bytes.checked_mul(u64::from(set_count))?;
        let long_start = sets_start_bytes.checked_add(sets_bytes)?;
        let long = ring(long_start, long_segment, long_count, LONG_PACK_BYTES, crate::units::SECTOR_BYTES)?;
        let sound = is_set_size && set_count >= 1 && front.record_bytes_max() >= set_bytes / 2;
        sound.then_some(Self { front, sets_start_bytes, set_bytes, set_count, long })
    }

    /// Returns the parameters of the layout, for the superblock.
    pub(crate) fn parameters(&self) -> [u64; 6] {
        let front = &self.front;
        let long = &self.long;
        [
            front.segment_bytes,
            u64::from(front.segment_count),
            self.set_bytes,
            u64::from(self.set_count),
            long.segment_bytes,
            u64::from(long.segment_count),
        ]
    }

    /// Returns the maximum length in bytes of a record that goes to the front and then to a set. Longer records go to
    /// the long ring.
    pub(crate) fn short_bytes_max(&self) -> u64 {
        self.set_bytes / 2
    }

    /// Returns the expected number of entries in a full set.
    ///
    /// At least seven fit if the mean length is some kilobytes, because long entries only take a stub.
    pub(crate) fn entries_per_set(&self, mean_entry_bytes: u64) -> u64 {
        let listed_bytes = if mean_entry_bytes < SMALL_MEAN_BYTES { SET_LISTING_BYTES } else { 0 };
        self.set_bytes / (mean_entry_bytes + listed_bytes).min(self.set_bytes / SET_ENTRIES_MIN)
    }

    /// Returns the minimum number of new entries for which a full set is written, even if `tiny_threshold` is lower.
    pub(crate) fn least_to_move(&self, mean_entry_bytes: u64) -> u64 {
        self.entries_per_set(mean_entry_bytes) / ENTRIES_PER_NEW_ENTRY
    }

    /// Returns the number of entries of the front, the log before the sets, for which its index has slots.
    pub(crate) fn front_slots(&self, mean_entry_bytes: u64) -> u64 {
        u64::from(self.front.segment_count) * self.front.segment_bytes / front_bytes_per_slot(mean_entry_bytes)
    }

    pub(crate) fn set_start_bytes(&self, set: SetNumber) -> u64 {
        assert!(set.0 < u64::from(self.set_count));
        self.sets_start_bytes + set.0 * self.set_bytes
    }
}

/// Returns the number of bytes of the front, the log before the sets, for each slot of its index.
///
/// About half of the front's records have been moved to sets or dropped. A small entry takes a record, whose length is
/// a multiple of a granule, and a listing. Of longer entries more are stubs, and one slot for every 2 KiB is enough.
fn front_bytes_per_slot(mean_entry_bytes: u64) -> u64 {
    let (least, most) = FRONT_BYTES_PER_SLOT.into_inner();
    if mean_entry_bytes >= SMALL_MEAN_BYTES {
        return mean_entry_bytes.clamp(least, most);
    }
    let record_bytes = granulated(mean_entry_bytes + FRONT_RECORD_BYTES) + FRONT_LISTING_BYTES;
    (record_bytes * FRONT_BYTES_PER_LIVE_BYTE_PERCENT / 100).min(least)
}

/// A set of many small entries is written only if at least 1/`ENTRIES_PER_NEW_ENTRY` of its entries are new.
const ENTRIES_PER_NEW_ENTRY: u64 = 15;
/// Mean length in bytes below which entries count as small. With such a mean, hardly any entry is long.
const SMALL_MEAN_BYTES: u64 = 512;
/// Bytes that a small entry takes in a set in addition to its body: a listing, a key and a checksum.
const SET_LISTING_BYTES: u64 = 24;
/// Minimum number of entries that a full set is expected to hold.
const SET_ENTRIES_MIN: u64 = 7;
/// Range for the number of bytes of the front, the log before the sets, for each slot of its index, if entries are not
/// small. The shortest entries take about 256 bytes in the front.
const FRONT_BYTES_PER_SLOT: std::ops::RangeInclusive<u64> = 512..=2048;
/// Bytes of a record in addition to its body: fixed fields, a key of 8 bytes and a checksum.
const FRONT_RECORD_BYTES: u64 = 76;
const FRONT_LISTING_BYTES: u64 = 24;
/// Bytes of the front, the log before the sets, in percent of the bytes of records that are still in its index.
const FRONT_BYTES_PER_LIVE_BYTE_PERCENT: u64 = 150;
/// Allowed lengths of a set, in bytes. Every hit reads a set, and a set is written for every few entries.
pub(crate) const SET_BYTES_RANGE: std::ops::RangeInclusive<u64> = (4 << 10)..=(64 << 10);
/// Minimum number of segments of the front, the small log that entries pass before they reach the sets.
const FRONT_SEGMENTS: u64 = 8;
const FRONT_SEGMENT_RANGE: Range<u64> = (48 << 10)..(4 << 20);
const FRONT_PACK_BYTES: u64 = 128 << 10;
const LONG_PACK_BYTES: u64 = 256 << 10;
/// Number of segments of the long ring, the log of long entries, while the ring is small. In a larger ring, the
/// segments grow to [`LONG_SEGMENT_ENOUGH`], then their number grows to [`LONG_SEGMENTS_MANY`], and then they grow
/// again.
const LONG_SEGMENTS: u64 = 8;
const LONG_SEGMENTS_MANY: u64 = 64;
/// Bytes of a segment of the long ring that can hold the longest record.
const LONG_SEGMENT_ENOUGH: u64 = 1280 << 10;
const LONG_SEGMENT_MIN: u64 = 32 << 10;
/// Minimum number of segments for which the long ring, the log of long entries, has space, even if all entries are
/// small.
const LONG_SEGMENTS_LEAST: u64 = 4;
const LONG_SEGMENT_MAX: u64 = 16 << 20;

fn ring(
    start_bytes: u64,
    segment_bytes: u64,
    segment_count: u32,
    pack_bytes: u64,
    packing_bytes: u64,
) -> Option<RingArea> {
    let granules = segment_bytes.checked_mul(u64::from(segment_count))?;
    start_bytes.checked_add(granules)?;
    let sound = segment_bytes.is_multiple_of(BLOCK_BYTES)
        && segment_bytes > RingArea::DIRECTORY_BYTES
        && segment_bytes <= LONG_SEGMENT_MAX
        && segment_count >= 2;
    let pack_bytes = pack_bytes.min(segment_bytes);
    sound.then_some(RingArea { start_bytes, segment_bytes, segment_count, pack_bytes, packing_bytes })
}

fn segment_bytes(total: u64, count: u64, range: Range<u64>) -> u64 {
    (total / (2 * count)).clamp(range.start, range.end).next_multiple_of(BLOCK_BYTES)
}

fn long_segment_bytes(total: u64) -> u64 {
    let least = (total / LONG_SEGMENTS).min(LONG_SEGMENT_ENOUGH);
    let wanted = least.max(total / LONG_SEGMENTS_MANY).clamp(LONG_SEGMENT_MIN, LONG_SEGMENT_MAX);
    wanted / BLOCK_BYTES * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(total: u64, mean_entry_bytes: u64) -> Option<TinyPlan> {
        TinyPlan::new(65_536..65_536 + total, TinyWishes { mean_entry_bytes, set_bytes: 8192, front_percent: 5 })
    }

    #[test]
    fn the_parts_fill_the_data_area_and_do_not_overlap() {
        for total in [3 << 20, 64 << 20, 10 << 30, 1 << 40] {
            for mean in [64, 150, 512, 1024, 5000, 16 << 10, 1 << 20] {
                let plan = plan(total, mean).unwrap();
                assert_eq!(plan.front.start_bytes, 65_536);
                assert_eq!(plan.sets_start_bytes, plan.front.end_bytes());
                assert!(
                    plan.set_start_bytes(SetNumber(u64::from(plan.set_count - 1))) + plan.set_bytes
                        <= plan.long.start_bytes
                );
                assert!(plan.long.end_bytes() <= 65_536 + total);
                assert!(65_536 + total - plan.long.end_bytes() <= total / 8, "{plan:?}");
                assert_eq!(TinyPlan::from_parameters(65_536, plan.parameters()), Some(plan));
            }
        }
    }

    /// Guards against memory for slots that are never used, and against sets that are written early because the index
    /// is full.
    #[test]
    fn small_entries_have_more_slots_and_larger_summaries() {
        let plan = plan(1 << 30, 150).unwrap();
        let front_bytes = u64::from(plan.front.segment_count) * plan.front.segment_bytes;
        assert_eq!(
            [64, 150, 511, 512, 1500, 1 << 20].map(|mean| front_bytes / plan.front_slots(mean)),
            [324, 420, 512, 512, 1500, 2048]
        );
        assert_eq!([64, 150, 511, 512, 1500, 1 << 20].map(|mean| plan.entries_per_set(mean)), [93, 47, 15, 16, 7, 7]);
    }

    #[test]
    fn small_entries_get_sets_and_long_ones_a_ring() {
        let sets = |mean| plan(1 << 30, mean).map(|plan| u64::from(plan.set_count) * plan.set_bytes).unwrap();
        assert!(sets(150) > 940 << 20 && sets(150) < 970 << 20, "{}", sets(150));
        assert!(sets(1024) > 600 << 20 && sets(5000) < 350 << 20 && sets(5000) > 250 << 20);
        assert!(plan(1 << 30, 5000).unwrap().long.record_bytes_max() > 1100 << 10);
    }

    #[test]
    fn a_volume_that_is_too_small_and_numbers_without_sense_are_refused() {
        assert_eq!(plan(300 << 10, 5000), None);
        let good = plan(1 << 30, 5000).unwrap().parameters();
        for at in 0..6 {
            for bad in [0, 1, u64::MAX, 1 << 40] {
                let mut parameters = good;
                parameters[at] = bad;
                let made = TinyPlan::from_parameters(65_536, parameters);
                assert!(made.is_none_or(|plan| plan.set_count == 1), "{at} {bad}");
            }
        }
    }
}
