//! What was offered lately: two generations of a Bloom filter, of which the older goes when the younger is full.
//!
//! Invariant: what was noted is known until as much again was noted. Cost: four probes a generation.

use crate::hash::KeyHash;

/// A generation has so many bits for each key that it takes: with four probes 1.2% are taken for seen wrongly when it is full.
const BITS_PER_PLACING: u64 = 10;
const PROBES: u64 = 4;

/// Placings that were noted lately.
pub(super) struct Seen {
    /// The generation being filled, and the one before.
    generations: [Box<[u64]>; 2],
    /// Placings the filling generation has taken, and most it takes.
    taken: u64,
    taken_max: u64,
}

impl Seen {
    /// With so many bits for each of `entries`.
    pub(super) fn new(entries: u64, bits_per_entry: u64) -> Self {
        let bits = (entries * bits_per_entry / 2).next_multiple_of(64).max(64);
        let words = vec![0; (bits / 64) as usize].into_boxed_slice();
        Self { generations: [words.clone(), words], taken: 0, taken_max: bits / BITS_PER_PLACING }
    }

    /// Returns whether a key was noted lately.
    pub(super) fn knows(&self, key_hash: KeyHash) -> bool {
        self.generations.iter().any(|words| is_in(key_hash, words))
    }

    /// Notes a key, in a generation of so many at most, as far as there are bits for them.
    pub(super) fn note(&mut self, key_hash: KeyHash, generation_max: u64) {
        if is_in(key_hash, &self.generations[0]) {
            return;
        }
        assert!(self.taken <= self.taken_max, "a full generation makes room for the next");
        if self.taken >= self.taken_max.min(generation_max.max(1)) {
            self.generations.swap(0, 1);
            self.generations[0].fill(0);
            self.taken = 0;
        }
        self.taken += 1;
        let words = &mut self.generations[0];
        probes(key_hash, words).for_each(|(at, bit)| words[at] |= bit);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.generations.iter().map(|words| words.len() as u64 * 8).sum()
    }
}

fn is_in(key_hash: KeyHash, words: &[u64]) -> bool {
    probes(key_hash, words).all(|(at, bit)| words[at] & bit != 0)
}

/// The words and bits a key has in a generation of this length.
fn probes(key_hash: KeyHash, words: &[u64]) -> impl Iterator<Item = (usize, u64)> + use<> {
    let bits = words.len() as u64 * 64;
    let mixed = u128::from(key_hash.0 ^ key_hash.0 >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let (start, step) = ((mixed >> 64) as u64, (mixed >> 20) as u64 | 1);
    (0..PROBES).map(move |probe| {
        let number = start.wrapping_add(step.wrapping_mul(probe));
        let bit = ((u128::from(number) * u128::from(bits)) >> 64) as u64;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}
