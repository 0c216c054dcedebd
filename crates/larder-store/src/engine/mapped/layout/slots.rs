//! One file of small slots, written by a moving pointer: the layout of the stream policies.
//!
//! Owns: a bitmap of used slots, and the pointer. A record goes to the first run of free slots after the pointer that
//! is long enough. The pointer then moves behind it, and wraps at the end of the area. Records are never divided: runs
//! that are too short are skipped until their neighbors are freed as well. The published STREAM may divide records.
//! Here each hit stays one read, and each place one number. The price is skipped runs, so such policies leave a share
//! of the volume free (the paper's working point is 70% used): then runs are long. Evictions are chosen elsewhere.
//!
//! A slot is 512 bytes, or the device's unit of I/O if that is larger, so that a write never includes bytes of a
//! neighbor. Invariant: a used slot belongs to one record. Cost: 1 bit per slot and 2 bytes per 4096 slots. A search
//! passes 64 slots per step, and 4096 if all of them are used. If no run of some length is found, it is not searched
//! again until a run of that length was freed. Idea: Markatos et al., USITS'99, section 3.

use super::{super::map::MapPlace, RoomRemedy, SpaceLayout};
use crate::units::{SECTOR_BYTES, Sector, Site};

const WORD_SLOTS: u64 = u64::BITS as u64;
const CHUNK_SLOTS: u64 = 4096;

/// The used and free slots of an area.
pub(crate) struct SlotArea {
    start: Sector,
    slot_sectors: u64,
    slot_count: u64,
    /// One bit for each slot; 1 means used. Bits behind the last slot are 1.
    used: Vec<u64>,
    /// Number of free slots in each chunk of the area.
    free_in_chunk: Vec<u16>,
    free_count: u64,
    pointer: u64,
    /// Upper bound: every run of free slots is shorter than this number of slots.
    too_long: u64,
    /// Share of the area that entries may use, in percent.
    used_percent: u64,
}

impl SlotArea {
    /// Creates an area in which all slots are free. It begins at `start` and has as many slots of `slot_bytes` as fit
    /// in `len_sectors`.
    pub(crate) fn new(start: Sector, len_sectors: u64, slot_bytes: u64, used_percent: u32) -> Self {
        assert!(slot_bytes >= SECTOR_BYTES && slot_bytes.is_multiple_of(SECTOR_BYTES));
        let slot_sectors = slot_bytes / SECTOR_BYTES;
        assert!(start.0.is_multiple_of(slot_sectors), "an area begins with a slot");
        let slot_count = len_sectors / slot_sectors;
        let mut used = vec![0; slot_count.div_ceil(WORD_SLOTS) as usize];
        if let (Some(last), rest @ 1..) = (used.last_mut(), slot_count % WORD_SLOTS) {
            *last = u64::MAX << rest;
        }
        let chunk_slots = |chunk: u64| (slot_count - chunk * CHUNK_SLOTS).min(CHUNK_SLOTS) as u16;
        let free_in_chunk = (0..slot_count.div_ceil(CHUNK_SLOTS)).map(chunk_slots).collect();
        let free_count = slot_count;
        let too_long = slot_count + 1;
        let used_percent = used_percent.into();
        Self { start, slot_sectors, slot_count, used, free_in_chunk, free_count, pointer: 0, too_long, used_percent }
    }
}

impl SpaceLayout for SlotArea {
    fn take(&mut self, sectors: u64, _: Site) -> Option<MapPlace> {
        let len = self.slots_of(sectors);
        if len >= self.too_long || len > self.free_count {
            return None;
        }
        let found = self.run(self.pointer, self.slot_count, len);
        let found = found.or_else(|| self.run(0, (self.pointer + len).min(self.slot_count), len));
        let Some(first) = found else {
            self.too_long = len;
            return None;
        };
        assert!(first + len <= self.slot_count && len <= self.free_count, "a run on the volume, of free slots");
        self.mark(first, len, true);
        self.pointer = (first + len) % self.slot_count;
        Some(self.place_of(first))
    }

    fn take_at(&mut self, place: MapPlace, sectors: u64) -> bool {
        let len = self.slots_of(sectors);
        let Some(first) = self.slot_at(place).filter(|first| len > 0 && first + len <= self.slot_count) else {
            return false;
        };
        if self.next_used(first, first + len) < first + len {
            return false;
        }
        self.mark(first, len, true);
        debug_assert_eq!(self.next_used(first, first + len), first, "what is taken is used");
        true
    }

    fn free(&mut self, place: MapPlace, sectors: u64) {
        let first = self.slot_at(place).expect("what is freed was taken, and begins with a slot");
        let len = self.slots_of(sectors);
        assert!(len + self.free_count <= self.slot_count, "no more is freed than was taken");
        self.mark(first, len, false);
        // Measures the free run, up to the length that matters.
        let reach = self.too_long;
        let from = self.previous_used(first, first.saturating_sub(reach));
        let to = self.next_used(first + len, (first + len + reach).min(self.slot_count));
        if to - from >= self.too_long {
            self.too_long = self.slot_count + 1;
        }
    }

    fn point_at(&mut self, pointer: u64) {
        self.pointer = self.slot_at(MapPlace(pointer)).filter(|slot| *slot < self.slot_count).unwrap_or(0);
        debug_assert!(self.pointer < self.slot_count, "the search goes on at a slot");
    }

    fn pointer(&self) -> u64 {
        self.place_of(self.pointer).0
    }

    fn taken_by(&self, sectors: u64) -> u64 {
        self.slots_of(sectors) * self.slot_sectors
    }

    /// Returns the length of all slots in total, in sectors.
    fn capacity_sectors(&self) -> u64 {
        self.slot_count * self.slot_sectors
    }

    /// Checks the numbers of free slots in each chunk and in total.
    fn check(&self) {
        let words_per_chunk = (CHUNK_SLOTS / WORD_SLOTS) as usize;
        let free_in = |words: &[u64]| words.iter().map(|word| u64::from(word.count_zeros())).sum::<u64>();
        for (words, &free) in self.used.chunks(words_per_chunk).zip(&self.free_in_chunk) {
            assert_eq!(free_in(words), u64::from(free), "free slots of a chunk are counted");
        }
        assert_eq!(free_in(&self.used), self.free_count, "free slots are counted");
        assert!(self.pointer < self.slot_count.max(1));
    }

    fn sectors_in_use(&self) -> Option<u64> {
        Some((self.slot_count - self.free_count) * self.slot_sectors)
    }

    /// Returns the memory that the bitmap and the numbers take, in bytes.
    fn memory_bytes(&self) -> u64 {
        (self.used.len() * size_of::<u64>() + self.free_in_chunk.len() * size_of::<u16>()) as u64
    }

    fn written_by(&self, sectors: u64) -> u64 {
        self.taken_by(sectors)
    }

    fn used_sectors_max(&self) -> u64 {
        self.capacity_sectors() * self.used_percent / 100
    }

    fn remedy(&self) -> RoomRemedy {
        RoomRemedy::AnyEntry
    }
}

impl SlotArea {
    fn slots_of(&self, sectors: u64) -> u64 {
        sectors.div_ceil(self.slot_sectors)
    }

    fn place_of(&self, slot: u64) -> MapPlace {
        MapPlace(self.start.0 + slot * self.slot_sectors)
    }

    fn slot_at(&self, place: MapPlace) -> Option<u64> {
        let sectors = place.0.checked_sub(self.start.0)?;
        sectors.is_multiple_of(self.slot_sectors).then_some(sectors / self.slot_sectors)
    }

    /// Returns the start of the first run of `len` free slots within `from..to`.
    fn run(&self, from: u64, to: u64, len: u64) -> Option<u64> {
        let mut at = from;
        loop {
            at = self.next_free(at, to);
            if at + len > to {
                return None;
            }
            let end = self.next_used(at, at + len);
            if end == at + len {
                return Some(at);
            }
            at = end;
        }
    }

    /// Returns the first free slot within `from..to`; `to` if there is none.
    fn next_free(&self, from: u64, to: u64) -> u64 {
        let mut at = from;
        while at < to {
            if at.is_multiple_of(CHUNK_SLOTS) && self.free_in_chunk[(at / CHUNK_SLOTS) as usize] == 0 {
                at += CHUNK_SLOTS;
                continue;
            }
            let free = !self.used[(at / WORD_SLOTS) as usize] >> (at % WORD_SLOTS);
            if free != 0 {
                return (at + u64::from(free.trailing_zeros())).min(to);
            }
            at = (at / WORD_SLOTS + 1) * WORD_SLOTS;
        }
        to
    }

    /// Returns the first used slot within `from..to`; `to` if there is none.
    fn next_used(&self, from: u64, to: u64) -> u64 {
        let mut at = from;
        while at < to {
            let used = self.used[(at / WORD_SLOTS) as usize] >> (at % WORD_SLOTS);
            if used != 0 {
                return (at + u64::from(used.trailing_zeros())).min(to);
            }
            at = (at / WORD_SLOTS + 1) * WORD_SLOTS;
        }
        to
    }

    /// Returns the end of the last used slot before `from`. Searches back to `floor`; returns `floor` if there is none.
    fn previous_used(&self, from: u64, floor: u64) -> u64 {
        let mut end = from;
        while end > floor {
            let word = (end - 1) / WORD_SLOTS;
            let count = (end - 1) % WORD_SLOTS + 1;
            let used = self.used[word as usize] << (WORD_SLOTS - count);
            if used != 0 {
                return (end - u64::from(used.leading_zeros())).max(floor);
            }
            end -= count;
        }
        floor.min(end)
    }

    fn mark(&mut self, first: u64, len: u64, used: bool) {
        assert!(first + len <= self.slot_count, "slots lie within the area");
        let mut at = first;
        while at < first + len {
            let count = (WORD_SLOTS - at % WORD_SLOTS).min(first + len - at);
            let mask = (u64::MAX >> (WORD_SLOTS - count)) << (at % WORD_SLOTS);
            let word = &mut self.used[(at / WORD_SLOTS) as usize];
            let chunk = (at / CHUNK_SLOTS) as usize;
            if used {
                assert_eq!(*word & mask, 0, "a slot is given out once");
                *word |= mask;
                self.free_in_chunk[chunk] -= count as u16;
            } else {
                assert_eq!(*word & mask, mask, "only used slots are freed");
                *word &= !mask;
                self.free_in_chunk[chunk] += count as u16;
            }
            at += count;
        }
        if used {
            self.free_count -= len;
        } else {
            self.free_count += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Sector = Sector(128);
    const SITE: Site = Site(0);

    fn slots(count: u64) -> SlotArea {
        SlotArea::new(START, count, SECTOR_BYTES, 100)
    }

    fn place(slot: u64) -> MapPlace {
        MapPlace(START.0 + slot)
    }

    #[test]
    fn records_follow_one_another_and_after_the_wrap_use_only_freed_slots() {
        let mut slots = slots(100);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(30, SITE)).collect();
        assert_eq!(taken, [place(0), place(30), place(60)]);
        assert_eq!(slots.take(11, SITE), None, "10 are left");
        slots.free(place(30), 30);
        assert_eq!(slots.take(10, SITE), Some(place(90)), "the pointer goes on to the end before it wraps");
        assert_eq!(slots.take(20, SITE), Some(place(30)));
        assert_eq!(slots.take(10, SITE), Some(place(50)), "it goes on behind the last record");
        slots.free(place(0), 30);
        slots.free(place(60), 30);
        assert_eq!(slots.take(30, SITE), Some(place(60)));
        assert_eq!(slots.take(31, SITE), None);
        assert_eq!(slots.take(30, SITE), Some(place(0)));
    }

    #[test]
    fn a_run_is_found_again_once_its_pieces_are_freed() {
        let mut slots = slots(10_000);
        for n in 0..1000 {
            assert_eq!(slots.take(10, SITE), Some(place(n * 10)));
        }
        assert_eq!(slots.take(15, SITE), None);
        slots.free(place(5000), 10);
        assert_eq!(slots.take(15, SITE), None);
        slots.free(place(5020), 10);
        assert_eq!(slots.take(15, SITE), None);
        slots.free(place(5010), 10);
        assert_eq!(slots.take(15, SITE), Some(place(5000)));
    }

    #[test]
    fn slots_are_as_large_as_the_device_transfers() {
        let mut slots = SlotArea::new(START, 67, 4096, 100);
        assert_eq!((slots.capacity_sectors(), slots.taken_by(9)), (64, 16));
        assert_eq!([slots.take(9, SITE), slots.take(1, SITE)], [Some(place(0)), Some(place(16))]);
        assert!(!slots.take_at(place(3), 1), "no slot begins there");
    }

    #[test]
    fn what_an_image_says_is_checked() {
        let mut slots = slots(100);
        assert!(slots.take_at(place(90), 10));
        assert!(!slots.take_at(place(95), 1), "taken");
        assert!(!slots.take_at(place(85), 6) && !slots.take_at(place(100), 1), "taken in part, and outside");
        assert!(!slots.take_at(MapPlace(1), 1) && !slots.take_at(MapPlace(u64::MAX), 1), "outside");
        slots.point_at(u64::MAX);
        assert_eq!(slots.pointer(), place(0).0);
    }

    proptest! {
        #[test]
        fn nothing_is_given_out_twice_and_nothing_that_fits_is_refused(
            steps in prop::collection::vec((any::<bool>(), 1_u64..40, any::<prop::sample::Index>()), 1..300)
        ) {
            let mut slots = slots(700);
            let mut held: Vec<(u64, u64)> = Vec::new();
            let mut used = vec![false; 700];
            for (free, len, which) in steps {
                if free && !held.is_empty() {
                    let (first, len) = held.swap_remove(which.index(held.len()));
                    slots.free(place(first), len);
                    used[first as usize..(first + len) as usize].fill(false);
                    continue;
                }
                let fits = used.windows(len as usize).any(|run| run.iter().all(|used| !used));
                let taken = slots.take(len, SITE);
                prop_assert_eq!(taken.is_some(), fits);
                if let Some(taken) = taken {
                    let first = taken.0 - START.0;
                    let range = first as usize..(first + len) as usize;
                    prop_assert!(used[range.clone()].iter().all(|used| !used));
                    used[range].fill(true);
                    held.push((first, len));
                }
            }
            prop_assert_eq!(slots.free_count, used.iter().filter(|used| !**used).count() as u64);
        }
    }
}
