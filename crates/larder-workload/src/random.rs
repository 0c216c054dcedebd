//! Random numbers that are the same for one seed on every machine.
//!
//! It uses the store's [`SplitMix64`], with logarithms and exponentials from a software library, because those
//! of processors and systems differ in the last bit.

use larder_store::SplitMix64;

/// A generator of random numbers that is determined by its seed.
///
/// ```
/// use larder_workload::Random;
///
/// let mut random = Random::new(1);
/// let length = random.lognormal(6_000.0, 1.2);
/// assert!(length > 0.0);
/// ```
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Creates the generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a random 64-bit number.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a random number from 0 to less than 1.
    pub fn share(&mut self) -> f64 {
        self.0.share()
    }

    /// Returns a number from 0 to `count` - 1.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        self.0.below(count)
    }

    /// Returns `true` with the given probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// Puts `items` into a random order. All orders are equally likely (Durstenfeld, CACM 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place as u64 + 1) as usize);
        }
    }

    /// Returns a random number from the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.share())
    }

    /// Returns a random number from the standard normal distribution (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.share()));
        radius * libm::cos(std::f64::consts::TAU * self.share())
    }

    /// Returns a random number from the lognormal distribution with this median. `sigma` is the standard deviation of
    /// the logarithm.
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * libm::exp(sigma * self.normal())
    }

    /// Returns a random number from the lognormal distribution with this mean and standard deviation, which is how Web
    /// Polygraph specifies it.
    pub fn lognormal_by_mean(&mut self, mean: f64, deviation: f64) -> f64 {
        let variance = libm::log(1.0 + (deviation / mean) * (deviation / mean));
        self.lognormal(mean / libm::exp(variance / 2.0), libm::sqrt(variance))
    }

    /// Returns a random number from `low` to `high`. Its logarithm is uniformly distributed.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * libm::exp(self.share() * libm::log(high / low))
    }
}

/// Mixes the bits of a number: each bit of the input changes about half of the bits of the output.
pub fn mix(number: u64) -> u64 {
    SplitMix64::mix(number)
}

/// A distribution of ranks by Zipf's law. Ranks begin at 0, which is the most frequent.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// Integral of x^-exponent up to 1/2. `high` is the integral up to count + 1/2.
    low: f64,
    high: f64,
    /// A rank is accepted without further computation if it is at most this far above the drawn number.
    near: f64,
}

impl Zipf {
    /// Creates a distribution of `count` ranks. The probability of a rank is proportional to `(rank + 1)^-exponent`.
    ///
    /// Uses rejection-inversion (Hörmann and Derflinger, 1996), which needs no table. A draw takes constant time,
    /// mostly one logarithm and one exponential.
    ///
    /// # Panics
    /// When `count` is 0 or `exponent` not positive.
    pub fn new(count: u64, exponent: f64) -> Self {
        assert!(count > 0 && exponent > 0.0, "Zipf of {count} ranks with exponent {exponent}");
        let mut zipf = Self { count: count as f64, exponent, low: 0.0, high: 0.0, near: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - libm::pow(2.0, -exponent));
        zipf
    }

    /// Draws a random rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high + random.share() * (self.low - self.high);
            let place = self.inverse(area);
            let rank = libm::round(place).clamp(1.0, self.count);
            if rank - place <= self.near || area >= self.integral(rank + 0.5) - libm::pow(rank, -self.exponent) {
                return rank as u64 - 1;
            }
        }
    }

    fn integral(&self, to: f64) -> f64 {
        if (self.exponent - 1.0).abs() < 1e-9 {
            return libm::log(to);
        }
        (libm::pow(to, 1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, area: f64) -> f64 {
        if (self.exponent - 1.0).abs() < 1e-9 {
            return libm::exp(area);
        }
        // The power, computed as an exponential in a third of the time; the base is positive.
        libm::exp(libm::log(area * (1.0 - self.exponent) + 1.0) / (1.0 - self.exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn a_seed_gives_the_same_numbers_everywhere() {
        let mut random = Random::new(42);
        let drawn = (random.bits(), random.exponential(3.0).to_bits(), random.normal().to_bits());
        assert_eq!(drawn, (13_679_457_532_755_275_413, 4_602_883_644_262_368_020, 13_825_165_446_101_831_699));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(1);
        assert!((mean(200_000, || random.exponential(4.5)) / 4.5 - 1.0).abs() < 0.01);
        assert!((mean(400_000, || random.lognormal(3000.0, 1.05)) / 5206.0 - 1.0).abs() < 0.02);
        assert!((mean(400_000, || random.lognormal_by_mean(25.0, 10.0)) / 25.0 - 1.0).abs() < 0.01);
        assert!(mean(200_000, || random.normal()).abs() < 0.01);
    }

    #[test]
    fn ranks_follow_the_law() {
        for exponent in [0.8, 1.0, 1.3] {
            let zipf = Zipf::new(1000, exponent);
            let mut random = Random::new(3);
            let mut counts = vec![0_u32; 1000];
            (0..1_000_000).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            for rank in [1_usize, 9, 99] {
                let expected = f64::from(counts[0]) * ((rank + 1) as f64).powf(-exponent);
                let ratio = f64::from(counts[rank]) / expected;
                assert!((0.93..1.07).contains(&ratio), "rank {rank} with exponent {exponent}: {ratio}");
            }
        }
    }
}
