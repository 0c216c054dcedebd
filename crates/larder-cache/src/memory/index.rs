//! Finds a shard's slots by hash: open addressing with linear probing, and numbers of slots in the cells.
//!
//! Four bytes a cell, of which at most three in four are used. A removal moves the cells after it, so that no marks of
//! removed ones are needed.

/// A hash table of a shard's slots: finds the number of a key's slot by the key's hash.
#[derive(Debug, Default)]
pub(super) struct SlotIndex {
    /// For each cell of the table, the number of a slot plus one. 0 if the cell is empty.
    cells: Vec<u32>,
}

impl SlotIndex {
    /// Returns the number of the slot that `is_it` accepts. Calls it with the slots whose hash may be `hash`.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        self.cell(hash, is_it).map(|cell| self.cells[cell] as usize - 1)
    }

    /// Adds the last of `len` slots to the table. `hash_of` returns the hash of the key in a slot.
    ///
    /// # Panics
    /// When there are 4 billion slots.
    pub(super) fn push(&mut self, len: usize, hash_of: impl Fn(usize) -> u32) {
        if len * 4 > self.cells.len() * 3 {
            self.resize(len, hash_of);
        } else {
            self.put(hash_of(len - 1), len - 1);
        }
    }

    /// Removes the slot `number` from the table. The last of `len` slots, which is about to be moved there, gets its
    /// number.
    pub(super) fn swap_remove(&mut self, number: usize, len: usize, hash_of: impl Fn(usize) -> u32) {
        if let Some(cell) = self.cell(hash_of(number), |found| found == number) {
            self.clear_cell(cell, &hash_of);
        }
        let last = len - 1;
        if last != number
            && let Some(cell) = self.cell(hash_of(last), |found| found == last)
        {
            self.cells[cell] = number as u32 + 1;
        }
    }

    /// Rebuilds the table with the size that `len` slots need.
    pub(super) fn resize(&mut self, len: usize, hash_of: impl Fn(usize) -> u32) {
        let count = (len * 2).next_power_of_two().max(CELLS_MIN);
        assert!(u32::try_from(count).is_ok(), "too many values in memory");
        self.cells = vec![0; count];
        (0..len).for_each(|number| self.put(hash_of(number), number));
    }

    fn put(&mut self, hash: u32, number: usize) {
        let mask = self.cells.len() - 1;
        let mut cell = hash as usize & mask;
        while self.cells[cell] != 0 {
            cell = (cell + 1) & mask;
        }
        self.cells[cell] = number as u32 + 1;
    }

    fn cell(&self, hash: u32, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.cells.len().checked_sub(1)?;
        let mut cell = hash as usize & mask;
        loop {
            match self.cells[cell] {
                0 => return None,
                number if is_it(number as usize - 1) => return Some(cell),
                _ => cell = (cell + 1) & mask,
            }
        }
    }

    /// Empties a cell. Entries behind it are moved if a search would stop at the empty cell and not reach them.
    fn clear_cell(&mut self, cell: usize, hash_of: impl Fn(usize) -> u32) {
        let mask = self.cells.len() - 1;
        let mut hole = cell;
        let mut next = cell;
        loop {
            next = (next + 1) & mask;
            let number = self.cells[next];
            if number == 0 {
                break;
            }
            let home = hash_of(number as usize - 1) as usize & mask;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.cells[hole] = number;
                hole = next;
            }
        }
        self.cells[hole] = 0;
    }
}

const CELLS_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::SplitMix64;

    #[test]
    fn index_agrees_with_a_list_whatever_is_added_and_removed() {
        let mut chance = SplitMix64::new(5);
        let mut index = SlotIndex::default();
        let mut slots: Vec<u32> = Vec::new();
        for round in 0..20_000 {
            // Few different hashes at the end of the table make long runs of cells.
            let hash = (u32::MAX - 3).wrapping_add((chance.share() * 40.0) as u32 * (round % 7));
            if slots.len() < 300 && chance.share() < 0.52 {
                slots.push(hash);
                index.push(slots.len(), |number| slots[number]);
            } else if !slots.is_empty() {
                let number = (chance.share() * slots.len() as f64) as usize;
                index.swap_remove(number, slots.len(), |number| slots[number]);
                slots.swap_remove(number);
            }
            for (number, hash) in slots.iter().enumerate().step_by(17) {
                assert_eq!(index.find(*hash, |found| found == number), Some(number), "round {round}");
            }
        }
        index.resize(slots.len(), |number| slots[number]);
        for (number, hash) in slots.iter().enumerate() {
            assert_eq!(index.find(*hash, |found| found == number), Some(number));
        }
    }
}
