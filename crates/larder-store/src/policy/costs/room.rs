//! The bytes of entries that do not fit into a bin of HashCache's tables.

/// Returns the mean number of bytes per entry that do not fit in its bin (a place of fixed length on the volume).
/// Entries that fit count as 0.
pub(crate) fn mean_rest_bytes(share_longer_than: &dyn Fn(f64) -> f64, bin_bytes: u64) -> f64 {
    // The mean of what is beyond a length is the integral of the share that is longer. The steps grow with the length.
    let step = |number: u32| bin_bytes as f64 * f64::powi(STEP, number.cast_signed());
    let parts = (0..STEP_COUNT).map(|number| {
        let from = step(number);
        let to = step(number + 1);
        (to - from) * (share_longer_than(from) + share_longer_than(to)) / 2.0
    });
    parts.sum()
}

const STEP: f64 = 1.1;
/// Number of steps of the integral over entry lengths. With the factor `STEP`, 72 steps reach about a thousand times
/// the length of a bin.
const STEP_COUNT: u32 = 72;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_the_mean_beyond_the_bin() {
        // Lengths that are spread evenly from 0 to 100,000.
        let evenly = |bytes: f64| (1.0 - bytes / 100_000.0).max(0.0);
        let rest = mean_rest_bytes(&evenly, 20_000);
        assert!((rest / (80_000.0 * 0.8 / 2.0) - 1.0).abs() < 0.01, "{rest}");
        assert!(mean_rest_bytes(&evenly, 1 << 17) < 1.0);
    }
}
