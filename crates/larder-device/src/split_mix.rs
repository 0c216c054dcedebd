//! Random numbers from a seed: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! Invariant: a seed gives the same numbers on every machine and in every version, so that a failing seed can be
//! repeated. Not suitable for secrets.

/// A sequence of random numbers that is determined by its seed.
///
/// ```
/// use larder_device::SplitMix64;
///
/// let mut dice = SplitMix64::new(7);
/// let thrown = 1 + dice.below(6);
/// assert_eq!(thrown, 1 + SplitMix64::new(7).below(6)); // the same seed, the same numbers
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the sequence.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        Self::mix(self.0)
    }

    /// Mixes the bits of `number`: each bit of the input changes about half of the bits of the output. 0 stays 0.
    pub fn mix(number: u64) -> u64 {
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number from 0 to less than 1.
    pub fn share(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random number from 0 to `end` - 1. `end` must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below 0");
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns `true` with a probability of `per_million` in a million. If that is 0, takes no number from the
    /// sequence.
    pub fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Creates an independent sequence. Taking numbers from it does not change the numbers that `self` returns.
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_keep_below_their_end_and_rates_are_met() {
        let mut random = SplitMix64::new(7);
        assert!((0..1000).all(|_| random.below(3) < 3));
        let sum: f64 = (0..10_000).map(|_| random.share()).sum();
        assert!((4_900.0..5_100.0).contains(&sum), "the mean of shares is not a half: {sum}");
        let happened = (0..100_000).filter(|_| random.happens(10_000)).count();
        assert!((800..1200).contains(&happened), "{happened} of 100,000 at one in a hundred");
        let before = random.clone().next_u64();
        assert!(!random.happens(0));
        assert_eq!(random.next_u64(), before, "what cannot happen draws no number");
    }
}
