//! Second-hit admission: an entry is stored when its key is written for the second time within a while, so that
//! what is asked for only once costs no write and takes nobody's place.
//!
//! Pure decision over plain data; switched on by `Tuning::second_hit`. Owns: two generations of a Bloom filter over
//! the addresses seen, and the addresses the index dropped although their records are still in the log. Invariant:
//! an entry is refused only if no older record of its address can come back after a crash: those of a dropped
//! address would, so it is admitted. Cost: [`BITS_PER_ENTRY`] bits for every entry the index has room for, and 128
//! for each dropped address (fewer than 0.5% of the entries).
//! Idea: bloom filter rule of Maggs and Sitaraman (CCR 2015): three quarters of what a CDN is asked for comes once.

use std::collections::HashMap;

/// Bits of both generations for each entry the index has room for.
pub(crate) const BITS_PER_ENTRY: u64 = 4;
/// A generation has this many bits for each address it takes; with three probes 3% are taken for seen wrongly.
const BITS_PER_ADDRESS: u64 = 8;
const PROBES: u32 = 3;

/// Decides which entries are stored.
pub(crate) struct Admission {
    /// The generation being filled, and the one before.
    generations: [Box<[u64]>; 2],
    /// Addresses the filling generation has taken, and most it takes.
    taken: u64,
    taken_max: u64,
    /// Dropped addresses, and the sequence of the segment that has their record.
    dropped: HashMap<u64, u32>,
}

impl Admission {
    /// For an index with room for `entries`.
    pub(crate) fn new(entries: u64) -> Self {
        let bits = (entries * BITS_PER_ENTRY / 2).next_multiple_of(64).max(64);
        let words = vec![0; (bits / 64) as usize].into_boxed_slice();
        Self {
            generations: [words.clone(), words],
            taken: 0,
            taken_max: bits / BITS_PER_ADDRESS,
            dropped: HashMap::new(),
        }
    }

    /// Whether an entry of an address that the index does not have is stored; remembers that it was asked.
    pub(crate) fn admits(&mut self, address: u64) -> bool {
        let seen = self.generations.iter().any(|words| probes(address, words).all(|(at, bit)| words[at] & bit != 0));
        if seen || self.dropped.remove(&address).is_some() {
            return true;
        }
        if self.taken == self.taken_max {
            self.generations.swap(0, 1);
            self.generations[0].fill(0);
            self.taken = 0;
        }
        self.taken += 1;
        let words = &mut self.generations[0];
        for (at, bit) in probes(address, words) {
            words[at] |= bit;
        }
        false
    }

    /// Notes that the index dropped an address whose record, in a segment of `sequence`, stays.
    pub(crate) fn note_dropped(&mut self, address: u64, sequence: u32) {
        self.dropped.insert(address, sequence);
    }

    /// Notes that segments up to `sequence` are over, and their records with them.
    pub(crate) fn forget_through(&mut self, sequence: u32) {
        self.dropped.retain(|_, &mut kept| kept > sequence);
    }

    /// Memory of the filter, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.generations.iter().map(|words| words.len() as u64 * 8).sum()
    }
}

/// The words and bits an address has in a generation of this length.
fn probes(address: u64, words: &[u64]) -> impl Iterator<Item = (usize, u64)> + use<> {
    let bits = words.len() as u64 * 64;
    let mixed = u128::from(address ^ address >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let (start, step) = ((mixed >> 64) as u64, (mixed >> 20) as u64 | 1);
    (0..u64::from(PROBES)).map(move |probe| {
        let number = start.wrapping_add(step.wrapping_mul(probe));
        let bit = ((u128::from(number) * u128::from(bits)) >> 64) as u64;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u64) -> u64 {
        (n << 16) | (n * 7 % 8192)
    }

    #[test]
    fn the_second_time_within_two_generations_admits() {
        let mut admission = Admission::new(10_000);
        let first = (0..2_000).filter(|&n| admission.admits(address(n))).count();
        assert!(first <= 60, "{first} of 2000 taken for seen");
        assert!((0..2_000).all(|n| admission.admits(address(n))));
        (100_000..110_000).for_each(|n| _ = admission.admits(address(n)));
        let remembered = (0..2_000).filter(|&n| admission.admits(address(n))).count();
        assert!(remembered <= 150, "{remembered} of 2000 remembered for longer");
        assert!(admission.memory_bytes() * 8 <= 10_000 * BITS_PER_ENTRY + 128);
    }

    #[test]
    fn a_dropped_address_is_admitted_until_its_segment_is_over() {
        let mut admission = Admission::new(1_000);
        admission.note_dropped(address(1), 5);
        admission.note_dropped(address(2), 6);
        admission.forget_through(5);
        assert!(!admission.admits(address(1)));
        assert!(admission.admits(address(2)));
    }
}
