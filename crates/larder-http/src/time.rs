//! Moments in time. This crate has no clock: the caller passes the time as an argument.
//!
//! Arithmetic saturates, so hostile dates never wrap.

/// Milliseconds since the Unix epoch; negative before it.
///
/// ```
/// use larder_http::Timestamp;
///
/// let received = Timestamp::from_secs(1_800_000_000);
/// let later = received.plus_secs(60);
/// assert_eq!(later.millis_since(received), 60_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the moment this many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns the moment this many seconds after the Unix epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns whole seconds since the Unix epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Returns the moment this many seconds later.
    pub const fn plus_secs(self, secs: i64) -> Self {
        Self(self.0.saturating_add(secs.saturating_mul(1000)))
    }

    /// Returns the moment this many milliseconds later.
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds from `earlier` to this moment; negative if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_round_down_on_both_sides_of_the_epoch() {
        assert_eq!(Timestamp::from_millis(1999).as_secs(), 1);
        assert_eq!(Timestamp::from_millis(-1).as_secs(), -1);
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let last = Timestamp::from_millis(i64::MAX);
        assert_eq!(last.plus_secs(1), last);
        assert_eq!(last.plus_millis(1), last);
        assert_eq!(last.millis_since(Timestamp::from_millis(i64::MIN)), i64::MAX);
        assert_eq!(Timestamp::from_secs(i64::MAX), last);
    }
}
