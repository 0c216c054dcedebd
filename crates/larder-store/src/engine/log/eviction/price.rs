//! The price of writing an entry again: the hits that it must be likely to get for its length.
//!
//! Both generations pay the same price, so the entries with the most expected hits are rewritten. Invariants: the price
//! follows the bytes that may still be written, so about two segments' worth of them is left, whatever the requests.
//! The price is at least a share of the earnings of the oldest main segments, so that no write is wasted.

/// Amount of data that may still be rewritten, in segments, at which the price stays the same. If more may be
/// rewritten, the price falls; if less, it rises.
const BALANCE: f64 = 2.0;
/// Maximum difference from [`BALANCE`] that has an effect, in segments.
const DIFFERENCE_MAX: f64 = 2.0;
/// Relative change of the price after each reclaimed segment, per segment of difference from [`BALANCE`].
const CHANGE: f64 = 0.05;
/// Minimum price, as a share of the hits per sector that the oldest main segments get.
const FLOOR_SHARE: f64 = 0.03;
/// Minimum of `value`, as a share of the floor. Without it, `value` would fall on and on while the floor is the price,
/// and the price would collapse when the floor falls.
const REST_SHARE: f64 = 0.25;

/// Minimum of `value`, as a share of the first price.
const LEAST_SHARE: f64 = 0.01;

/// The price of rewriting an entry: the hits that it must be likely to get, divided by its sectors to the power that
/// the objective sets.
pub(crate) struct RewritePrice {
    value: f64,
    floor: f64,
    /// Minimum of `value`. A value that fell without a bound would need long to rise again.
    least: f64,
}

impl RewritePrice {
    /// Creates a price that begins with `value`.
    pub(crate) fn new(value: f64) -> Self {
        assert!(value > 0.0 && value.is_finite(), "a price is above zero: {value}");
        Self { value, floor: 0.0, least: value * LEAST_SHARE }
    }

    /// Returns the present price.
    pub(crate) fn now(&self) -> f64 {
        self.value.max(self.floor)
    }

    /// Adapts the price. `balance_segments` is the amount of data that may still be rewritten, in segments. `earned` is
    /// the number of hits per sector that the oldest main segments get.
    pub(crate) fn follow(&mut self, balance_segments: f64, earned: f64) {
        let difference = (balance_segments - BALANCE).clamp(-DIFFERENCE_MAX, DIFFERENCE_MAX);
        self.floor = earned * FLOOR_SHARE;
        self.value = (self.value * (-CHANGE * difference).exp()).clamp(self.least, f64::MAX);
        self.value = self.value.max(self.floor * REST_SHARE);
        assert!(self.now() > 0.0 && self.now().is_finite(), "a price is above zero: {}", self.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_while_too_much_is_written_and_falls_to_its_floor() {
        let mut price = RewritePrice::new(0.1);
        (0..20).for_each(|_| price.follow(0.0, 0.01));
        assert!(price.now() > 0.25, "{}", price.now());
        (0..1_000).for_each(|_| price.follow(50.0, 1.0));
        assert!((price.now() - FLOOR_SHARE).abs() < 1e-9, "{}", price.now());
        price.follow(BALANCE, 0.0);
        assert!(
            (price.now() - FLOOR_SHARE * REST_SHARE).abs() < 1e-9,
            "without a floor it is near where the floor was"
        );
        (0..100_000).for_each(|_| price.follow(50.0, 0.0));
        assert!((price.now() - 0.1 * LEAST_SHARE).abs() < 1e-9, "{}", price.now());
        (0..100_000).for_each(|_| price.follow(-50.0, 0.0));
        assert!(price.now().is_finite());
    }
}
