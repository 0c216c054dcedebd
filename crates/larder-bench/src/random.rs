//! Random numbers from a seed, and the distributions that the workloads are made of.
//!
//! SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Invariant: one seed gives the same numbers. Distributions of what an
//! object is are drawn from its number, so that origin and clients agree without telling one another.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any number of 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// From 0 up to 1, without 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 up to `count`, without it; 0 if there is none.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }

    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.share())
    }

    pub(crate) fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.share()));
        mean + deviation * radius * libm::cos(std::f64::consts::TAU * self.share())
    }

    /// Lognormal by its own mean and deviation, as Web Polygraph names them.
    pub(crate) fn lognormal(&mut self, mean: f64, deviation: f64) -> f64 {
        let variance = libm::log(1.0 + (deviation / mean) * (deviation / mean));
        libm::exp(self.normal(libm::log(mean) - variance / 2.0, libm::sqrt(variance)))
    }
}

/// Mixes the bits of a number, each of which changes half of the others.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Ranks from 0, the more seldom the greater, by Zipf's law. Cost: 8 bytes a rank, a search for each draw.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        let weight = |rank: u64| libm::pow((rank + 1) as f64, -exponent);
        let sums = (0..count.max(1)).scan(0.0, |sum, rank| {
            *sum += weight(rank);
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let wanted = random.share() * self.sums.last().copied().unwrap_or_default();
        (self.sums.partition_point(|sum| *sum <= wanted) as u64).min(self.sums.len() as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(1);
        let mut mean = |draw: &dyn Fn(&mut Random) -> f64| (0..200_000).map(|_| draw(&mut random)).sum::<f64>() / 2e5;
        assert!((mean(&|random| random.exponential(4.5)) / 4.5 - 1.0).abs() < 0.02);
        assert!((mean(&|random| random.normal(2.5, 1.0)) / 2.5 - 1.0).abs() < 0.02);
        assert!((mean(&|random| random.lognormal(25.0, 10.0)) / 25.0 - 1.0).abs() < 0.02);
        let zipf = Zipf::new(13, 1.0);
        let expected = 13.0 / (1..=13).map(|k| 1.0 / f64::from(k)).sum::<f64>();
        assert!((mean(&|random| zipf.draw(random) as f64 + 1.0) / expected - 1.0).abs() < 0.02);
    }
}
