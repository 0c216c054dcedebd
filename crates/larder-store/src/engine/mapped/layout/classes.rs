//! One file per length: the layout of `buddy`.
//!
//! File k holds the records of exactly k sectors, in slots of k sectors. A record takes the first free slot of its
//! file, or a new one at the file's end. Each record longer than a threshold gets its own file. So the only waste
//! inside a slot is in its last sector, and there is none between the slots of a file. Owns: the used slots, and the
//! length of all files together. Files are named elsewhere, and never shortened (slots are reused, the file keeps its
//! length). Invariant: all files together are never longer than the capacity.
//!
//! Cost: 1 bit per slot; the search for a free slot examines 64 slots per step from the last one found. Idea: BUDDY,
//! Markatos et al., USITS'99.

const WORD_SLOTS: u64 = u64::BITS as u64;

/// The files of slots, one file for each length of records.
pub(crate) struct SizeClasses {
    /// The file at index k - 1 has the records of k sectors.
    files: Vec<ClassFile>,
    capacity_sectors: u64,
    /// Length of all files in total, including those of long records.
    grown_sectors: u64,
}

/// The used and free slots of one file.
#[derive(Clone, Default)]
struct ClassFile {
    /// One bit for each slot; 1 means used. Bits behind the last slot are 0.
    used: Vec<u64>,
    slot_count: u64,
    /// All slots before the slot with this number are used.
    first_free: u64,
}

impl SizeClasses {
    /// Creates files for records of up to `threshold_sectors`. `capacity_sectors` is the limit on the length of these
    /// files and the files of longer records together.
    pub(crate) fn new(threshold_sectors: u64, capacity_sectors: u64) -> Self {
        assert!(threshold_sectors > 0);
        Self { files: vec![ClassFile::default(); threshold_sectors as usize], capacity_sectors, grown_sectors: 0 }
    }

    /// Returns whether a record of `sectors` is long, so that it gets a file of its own.
    pub(crate) fn is_long(&self, sectors: u64) -> bool {
        sectors > self.files.len() as u64
    }

    /// Takes the first free slot for a record of `sectors`, and returns its number. For a long record, takes the space
    /// for its file, and returns 0. Returns `None` if no slot is free and the files may not grow.
    pub(crate) fn take(&mut self, sectors: u64) -> Option<u64> {
        let may_grow = self.grown_sectors + sectors <= self.capacity_sectors;
        let slot = match self.file(sectors) {
            None => may_grow.then_some(0)?,
            Some(file) => match file.next_free() {
                Some(slot) => {
                    file.mark(slot);
                    return Some(slot);
                }
                None if !may_grow => return None,
                None => file.grow(),
            },
        };
        self.grown_sectors += sectors;
        assert!(self.grown_sectors <= self.capacity_sectors, "files are never longer than they may be");
        Some(slot)
    }

    /// Marks the slot of a record of an earlier run as used. Returns `false` if the slot does not exist or is used.
    pub(crate) fn take_at(&mut self, slot: u64, sectors: u64) -> bool {
        let fits = slot == 0 && sectors <= self.capacity_sectors - self.grown_sectors;
        assert!(self.grown_sectors <= self.capacity_sectors, "files grow within what there is");
        match self.file(sectors) {
            Some(file) if slot < file.slot_count && !file.is_used(slot) => {
                file.mark(slot);
                true
            }
            None if fits => {
                self.grown_sectors += sectors;
                true
            }
            _ => false,
        }
    }

    /// Extends the file for records of `sectors` until it has `slot`, as far as the capacity allows. Must be called
    /// before any slot is used.
    pub(crate) fn grow_to(&mut self, slot: u64, sectors: u64) {
        let room_slots = (self.capacity_sectors - self.grown_sectors) / sectors;
        let Some(file) = self.file(sectors) else { return };
        let grown = (slot + 1).saturating_sub(file.slot_count).min(room_slots);
        file.slot_count += grown;
        file.used.resize(file.slot_count.div_ceil(WORD_SLOTS) as usize, 0);
        self.grown_sectors += grown * sectors;
        assert!(self.grown_sectors <= self.capacity_sectors, "files grow within what there is");
    }

    /// Returns the number of slots in the file for records of `sectors`; `None` for long records.
    pub(crate) fn slot_count(&self, sectors: u64) -> Option<u64> {
        self.files.get(sectors as usize - 1).map(|file| file.slot_count)
    }

    /// Returns the number of slots in each file, starting with the file of the shortest records.
    pub(crate) fn slot_counts(&self) -> impl Iterator<Item = u32> {
        self.files.iter().map(|file| file.slot_count as u32)
    }

    /// Takes over the files of an earlier run, with all slots free. Returns `false` if there are too many files, or if
    /// they are too long. Must be called before any slot is used.
    pub(crate) fn set_slot_counts(&mut self, counts: &[u32]) -> bool {
        assert_eq!(self.grown_sectors, 0);
        let lens = counts.iter().zip(1_u64..).map(|(count, sectors)| u64::from(*count) * sectors);
        let grown_sectors = lens.sum();
        if counts.len() != self.files.len() || grown_sectors > self.capacity_sectors {
            return false;
        }
        for (file, count) in self.files.iter_mut().zip(counts) {
            let slot_count = u64::from(*count);
            *file = ClassFile { used: vec![0; slot_count.div_ceil(WORD_SLOTS) as usize], slot_count, first_free: 0 };
        }
        self.grown_sectors = grown_sectors;
        true
    }

    /// Frees a slot, or the space of a long record's file.
    ///
    /// # Panics
    /// If the slot is not used.
    pub(crate) fn free(&mut self, slot: u64, sectors: u64) {
        match self.file(sectors) {
            Some(file) => {
                assert!(file.is_used(slot), "only used slots are freed");
                file.free(slot);
            }
            None => {
                assert!(sectors <= self.grown_sectors, "a file that goes was counted");
                self.grown_sectors -= sectors;
            }
        }
    }

    /// Returns the limit on the length of all files in total, in sectors.
    pub(crate) fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// Checks the length of all files in total, and that no slot before [`ClassFile::first_free`] is free.
    pub(super) fn check(&self) {
        let lens = self.files.iter().zip(1_u64..).map(|(file, sectors)| file.slot_count * sectors);
        assert!(lens.sum::<u64>() <= self.grown_sectors, "files are counted");
        assert!(self.grown_sectors <= self.capacity_sectors, "files are never longer than they may be");
        for file in &self.files {
            assert!((0..file.first_free.min(file.slot_count)).all(|slot| file.is_used(slot)), "no slot before is free");
        }
    }

    /// Returns the memory that the bitmaps take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let words: usize = self.files.iter().map(|file| file.used.len()).sum();
        (words * size_of::<u64>() + self.files.len() * size_of::<ClassFile>()) as u64
    }

    fn file(&mut self, sectors: u64) -> Option<&mut ClassFile> {
        assert!(sectors > 0);
        self.files.get_mut(sectors as usize - 1)
    }
}

impl ClassFile {
    fn next_free(&mut self) -> Option<u64> {
        let mut word = self.first_free / WORD_SLOTS;
        while let Some(used) = self.used.get(word as usize) {
            if *used != u64::MAX {
                self.first_free = word * WORD_SLOTS + u64::from(used.trailing_ones());
                assert!(self.first_free <= self.slot_count, "no slot behind the last is used");
                return Some(self.first_free).filter(|slot| *slot < self.slot_count);
            }
            word += 1;
        }
        self.first_free = self.slot_count;
        None
    }

    /// Adds a slot at the end of the file, marks it as used, and returns its number.
    fn grow(&mut self) -> u64 {
        let slot = self.slot_count;
        assert_eq!(self.used.len() as u64, slot.div_ceil(WORD_SLOTS), "a bit for each slot");
        self.slot_count += 1;
        if slot.is_multiple_of(WORD_SLOTS) {
            self.used.push(0);
        }
        self.mark(slot);
        slot
    }

    fn mark(&mut self, slot: u64) {
        debug_assert!(slot < self.slot_count && !self.is_used(slot), "a free slot of the file is marked");
        self.used[(slot / WORD_SLOTS) as usize] |= 1 << (slot % WORD_SLOTS);
    }

    fn free(&mut self, slot: u64) {
        assert!(slot < self.slot_count && self.is_used(slot), "a slot is freed once: {slot}");
        self.used[(slot / WORD_SLOTS) as usize] &= !(1 << (slot % WORD_SLOTS));
        self.first_free = self.first_free.min(slot);
    }

    fn is_used(&self, slot: u64) -> bool {
        slot < self.slot_count && self.used[(slot / WORD_SLOTS) as usize] >> (slot % WORD_SLOTS) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_takes_the_first_free_slot_of_its_length_and_long_ones_only_room() {
        let mut classes = SizeClasses::new(256, 2000);
        assert_eq!([3, 3, 4, 3].map(|sectors| classes.take(sectors)), [Some(0), Some(1), Some(0), Some(2)]);
        classes.free(1, 3);
        classes.free(0, 3);
        assert_eq!([3, 3, 3].map(|sectors| classes.take(sectors)), [Some(0), Some(1), Some(3)]);
        assert!(!classes.is_long(256) && classes.is_long(257));
        assert_eq!([1000, 1000].map(|sectors| classes.take(sectors)), [Some(0), None]);
        classes.free(0, 1000);
        assert_eq!(classes.take(1500), Some(0), "a long record's room comes back");
    }

    #[test]
    fn a_file_that_may_not_grow_gives_its_own_free_slots_only() {
        let mut classes = SizeClasses::new(16, 20);
        assert_eq!([10, 10, 1].map(|sectors| classes.take(sectors)), [Some(0), Some(1), None]);
        classes.free(0, 10);
        assert_eq!(classes.take(1), None, "the file is as long as it was");
        assert_eq!(classes.take(10), Some(0));
    }

    #[test]
    fn what_an_image_says_is_checked() {
        let mut classes = SizeClasses::new(3, 100);
        assert!(!classes.set_slot_counts(&[1, 1]) && !classes.set_slot_counts(&[0, 0, 34]), "not its files, too long");
        assert!(classes.set_slot_counts(&[70, 0, 2]));
        assert!(classes.take_at(69, 1) && classes.take_at(1, 3));
        assert!(!classes.take_at(69, 1), "taken");
        assert!(!classes.take_at(70, 1) && !classes.take_at(u64::MAX, 3) && !classes.take_at(0, 2), "outside");
        assert!(!classes.take_at(0, 25) && classes.take_at(0, 20) && !classes.take_at(1, 4));
        assert_eq!((classes.take(1), classes.take(3), classes.take(3)), (Some(0), Some(0), Some(2)));
        assert_eq!(classes.take(3), None, "a hundred sectors are taken but for one");
        assert_eq!(classes.slot_counts().collect::<Vec<_>>(), [70, 0, 3]);
    }

    proptest! {
        #[test]
        fn slots_are_given_out_once_and_lowest_first(
            steps in prop::collection::vec((any::<bool>(), 1_u64..4, any::<prop::sample::Index>()), 1..300)
        ) {
            let mut classes = SizeClasses::new(3, 200);
            let mut held: Vec<(u64, u64)> = Vec::new();
            let mut slots = [0_u64; 4];
            for (free, sectors, which) in steps {
                if free && !held.is_empty() {
                    let (slot, sectors) = held.swap_remove(which.index(held.len()));
                    classes.free(slot, sectors);
                    continue;
                }
                let used: Vec<_> = held.iter().filter(|(_, held)| *held == sectors).map(|(slot, _)| *slot).collect();
                let first = (0..).find(|slot| !used.contains(slot)).unwrap();
                let grown: u64 = (1..4).map(|sectors| slots[sectors as usize] * sectors).sum();
                let expected = (first < slots[sectors as usize] || grown + sectors <= 200).then_some(first);
                prop_assert_eq!(classes.take(sectors), expected);
                if let Some(slot) = expected {
                    slots[sectors as usize] = slots[sectors as usize].max(slot + 1);
                    held.push((slot, sectors));
                }
            }
        }
    }
}
