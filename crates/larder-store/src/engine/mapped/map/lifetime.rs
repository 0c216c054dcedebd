//! The expiry time of an entry, in 16 bits.
//!
//! It is the number of seconds since a base, as 12 bits times a power of two with a 4-bit exponent, rounded up. It is
//! exact for the first 68 minutes after the base, and within 1/2048 of the time since the base up to 4 years. Later
//! times count as never. Only the map uses this: the record itself has the exact time, so rounding costs at most a
//! read.

const MANTISSA_BITS: u32 = 12;
const EXPONENT_MAX: u32 = 15;

/// A number of seconds since a base time, in the compressed form of this module; 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryLifetime(pub(super) u16);

impl EntryLifetime {
    /// Returns the shortest lifetime that does not end before `expires_at`. 0 means never, both as `expires_at` and as
    /// the result.
    pub(super) fn until(expires_at: u32, base_s: u32) -> Self {
        if expires_at == 0 {
            return Self(0);
        }
        // 0 means never.
        let seconds = u64::from(expires_at.saturating_sub(base_s)).max(1);
        let exponent = (u64::BITS - seconds.leading_zeros()).saturating_sub(MANTISSA_BITS);
        let mantissa = seconds.div_ceil(1 << exponent);
        let (mantissa, exponent) =
            if mantissa >> MANTISSA_BITS == 0 { (mantissa, exponent) } else { (mantissa >> 1, exponent + 1) };
        if exponent > EXPONENT_MAX { Self(0) } else { Self((exponent << MANTISSA_BITS) as u16 | mantissa as u16) }
    }

    /// Returns the end of the lifetime as Unix time in seconds. 0 means that it never ends.
    pub(super) fn end(self, base_s: u32) -> u32 {
        if self.0 == 0 {
            return 0;
        }
        let mantissa = u32::from(self.0) & ((1 << MANTISSA_BITS) - 1);
        base_s.saturating_add(mantissa << (self.0 >> MANTISSA_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_hour_is_exact_and_never_stays_never() {
        let base = 1_700_000_000;
        for seconds in [1, 100, 4095] {
            assert_eq!(EntryLifetime::until(base + seconds, base).end(base), base + seconds);
        }
        assert_eq!(EntryLifetime::until(0, base).end(base), 0);
        assert_eq!(EntryLifetime::until(5, base).end(base), base + 1, "what was over before is over at once");
        assert_eq!(EntryLifetime::until(u32::MAX, base).end(base), 0, "decades are never");
    }

    proptest! {
        #[test]
        fn an_end_is_never_early_and_at_most_a_2048th_late(seconds in 1_u32..134_000_000) {
            let end = EntryLifetime::until(1000 + seconds, 1000).end(1000) - 1000;
            prop_assert!(end >= seconds && end - seconds <= seconds / 2048, "{seconds} became {end}");
        }
    }
}
