//! The lengths of entries: a mean, or a sample from a trace.
//!
//! Owns: the share of entries longer than a given length. It decides how often a policy with places of one size needs a
//! second operation. Invariant: the share falls from 1 to 0 as the length grows. Cost: a search in a sample.

/// The distribution of entry lengths.
///
/// ```
/// use larder_store::plan::{PlanWishes, Sizes};
///
/// let sizes = Sizes::sample(vec![300, 100, 200]);
/// assert_eq!(sizes.mean_bytes(), 200.0);
/// let wishes = PlanWishes { sizes, ..PlanWishes::new(1 << 40, 4 << 30) };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// A lognormal distribution with this mean in bytes. Its width is typical of the web: it fits PolyMix, where the
    /// mean is 10.6 KB and 35% of the objects are longer than 8 KB.
    Mean(f64),
    /// Measured lengths in bytes, in ascending order.
    Sample(Vec<u64>),
}

impl Sizes {
    /// Standard deviation of the logarithm of the lengths, for [`Self::Mean`].
    pub const SIGMA: f64 = 1.2;

    /// Creates a distribution from measured lengths in bytes, in any order.
    pub fn sample(mut lengths: Vec<u64>) -> Self {
        lengths.sort_unstable();
        Self::Sample(lengths)
    }

    /// Returns the mean length in bytes.
    pub fn mean_bytes(&self) -> f64 {
        match self {
            Self::Mean(mean) => *mean,
            Self::Sample(lengths) => {
                lengths.iter().map(|&length| length as f64).sum::<f64>() / lengths.len().max(1) as f64
            }
        }
    }

    /// Returns the share of entries that are longer than `bytes`.
    pub(crate) fn share_longer_than(&self, bytes: f64) -> f64 {
        match self {
            Self::Mean(mean) => {
                let median = mean / libm::exp(Self::SIGMA * Self::SIGMA / 2.0);
                let deviations = libm::log(bytes.max(1.0) / median) / Self::SIGMA;
                0.5 * libm::erfc(deviations / std::f64::consts::SQRT_2)
            }
            Self::Sample(lengths) => {
                let up_to = lengths.partition_point(|&length| length as f64 <= bytes);
                (lengths.len() - up_to) as f64 / lengths.len().max(1) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_long_entries_is_polymix_share() {
        let sizes = Sizes::Mean(10.6 * 1024.0);
        let share = sizes.share_longer_than(8192.0);
        assert!((0.33..0.37).contains(&share), "{share}");
        assert!(sizes.share_longer_than(1.0) > 0.999 && sizes.share_longer_than(1e9) < 0.001);
    }

    #[test]
    fn a_sample_is_counted() {
        let sizes = Sizes::sample(vec![300, 100, 200, 400]);
        assert_eq!(sizes.mean_bytes(), 250.0);
        assert_eq!([0.0, 100.0, 250.0, 400.0].map(|bytes| sizes.share_longer_than(bytes)), [1.0, 0.75, 0.5, 0.0]);
    }
}
