//! What was offered lately: two generations of a Bloom filter, of which the older goes when the younger is full.
//!
//! Invariant: what was noted is known until as much again was noted. Cost: four probes a generation.

use crate::hash::KeyHash;

/// A generation has so many bits for each key that it takes: with four probes 2.4% are taken for seen wrongly when it
/// is full.
const BITS_PER_PLACING: u64 = 8;
const PROBES: u64 = 4;

/// Number of generations that hold as many keys together as the volume holds entries.
const GENERATION_DIVISOR: u64 = 2;

/// Placings that were noted lately.
pub(super) struct SeenPlacings {
    /// The generation being filled, and the one before; empty until something is noted.
    generations: [Box<[u64]>; 2],
    /// Placings the filling generation has taken, and most it takes.
    taken: u64,
    taken_max: u64,
}

impl SeenPlacings {
    pub(super) fn new() -> Self {
        Self { generations: [Box::default(), Box::default()], taken: 0, taken_max: 0 }
    }

    /// Returns whether a key was noted lately.
    pub(super) fn knows(&self, key_hash: KeyHash) -> bool {
        self.generations.iter().any(|words| is_in(key_hash, words))
    }

    /// Notes a key of a volume that holds about `entries` now. The key stays known until as many others were noted, as
    /// far as `bits` of memory allow.
    pub(super) fn note(&mut self, key_hash: KeyHash, entries: u64, bits: u64) {
        if is_in(key_hash, &self.generations[0]) {
            return;
        }
        let generation_max = (entries / GENERATION_DIVISOR).max(1);
        if self.taken >= self.taken_max.min(generation_max) {
            let bits = (bits / 2).next_multiple_of(64).max(64);
            self.generations.swap(0, 1);
            self.generations[0] = vec![0; (bits / 64) as usize].into_boxed_slice();
            (self.taken, self.taken_max) = (0, bits / BITS_PER_PLACING);
        }
        self.taken += 1;
        assert!(!self.generations[0].is_empty(), "a generation that takes keys has bits");
        let words = &mut self.generations[0];
        probes(key_hash, words).for_each(|(at, bit)| words[at] |= bit);
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.generations.iter().map(|words| words.len() as u64 * 8).sum()
    }
}

fn is_in(key_hash: KeyHash, words: &[u64]) -> bool {
    !words.is_empty() && probes(key_hash, words).all(|(at, bit)| words[at] & bit != 0)
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
