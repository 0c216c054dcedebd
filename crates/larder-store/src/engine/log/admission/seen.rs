//! Remembers recently seen keys in two generations of a Bloom filter: when the younger is full, the older is dropped.
//!
//! Invariant: a noted key is known until as many others have been noted. Cost: four probes per generation.

use crate::hash::KeyHash;

/// Bits of a filter for each key in it. A full filter, with four probes per key, wrongly claims to know 2.4% of the
/// other keys.
const BITS_PER_PLACING: u64 = 8;
const PROBES: u64 = 4;

/// Number of generations that together remember as many keys as the volume has entries.
const GENERATION_DIVISOR: u64 = 2;

/// The keys that were noted recently.
pub(super) struct SeenPlacings {
    /// Two filters: the one that is being filled, and the previous one. Both are empty until a key is noted.
    generations: [Box<[u64]>; 2],
    /// Number of keys in the filter that is being filled. `taken_max` is the maximum.
    taken: u64,
    taken_max: u64,
}

impl SeenPlacings {
    pub(super) fn new() -> Self {
        Self { generations: [Box::default(), Box::default()], taken: 0, taken_max: 0 }
    }

    /// Returns whether a key was recently noted.
    pub(super) fn knows(&self, key_hash: KeyHash) -> bool {
        self.generations.iter().any(|words| is_in(key_hash, words))
    }

    /// Notes a key. It is remembered until about `entries` other keys have been noted, or fewer if `bits` of memory do
    /// not suffice.
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

/// Returns the word and the bit of each probe for a key, in a filter of these words.
fn probes(key_hash: KeyHash, words: &[u64]) -> impl Iterator<Item = (usize, u64)> + use<> {
    let bits = words.len() as u64 * 64;
    let mixed = u128::from(key_hash.0 ^ key_hash.0 >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let start = (mixed >> 64) as u64;
    let step = (mixed >> 20) as u64 | 1;
    (0..PROBES).map(move |probe| {
        let number = start.wrapping_add(step.wrapping_mul(probe));
        let bit = ((u128::from(number) * u128::from(bits)) >> 64) as u64;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}
