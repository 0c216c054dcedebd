//! Parses decimal numbers in header fields strictly, and formats them.
//!
//! Parsing saturates instead of wrapping (RFC 9111 1.2.2). Signs, white space and fractions are refused.

/// Number of digits of the largest `u64`.
pub(crate) const DIGITS_MAX: usize = 20;

/// Parses a run of ASCII digits. A larger number reads as `u64::MAX`.
pub(crate) fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, byte| {
        byte.is_ascii_digit().then(|| value.saturating_mul(10).saturating_add(u64::from(byte - b'0')))
    })
}

/// Parses delta-seconds (RFC 9111 1.2.2). A number above `u32::MAX` (136 years) reads as `u32::MAX`.
pub(crate) fn parse_seconds(digits: &[u8]) -> Option<u32> {
    parse_u64(digits).map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

/// Appends `value` in decimal.
pub fn push_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends `value` in decimal, with a minus sign if it is negative.
pub(crate) fn push_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_u64(out, value.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_digits_are_a_number() {
        assert_eq!(parse_u64(b"007"), Some(7));
        for bad in [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"1.0", b"0x1", b"a1", b"1a"] {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn large_numbers_saturate_per_rfc_9111_1_2_2() {
        assert_eq!(parse_seconds(b"2147483648"), Some(2_147_483_648));
        assert_eq!(parse_seconds(b"99999999999"), Some(u32::MAX));
        assert_eq!(parse_u64(b"99999999999999999999999"), Some(u64::MAX));
    }

    #[test]
    fn written_numbers_read_back() {
        for value in [0, 1, 9, 10, 99, 12_345, u64::MAX] {
            let mut out = Vec::new();
            push_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
        let mut out = Vec::new();
        push_i64(&mut out, i64::MIN);
        assert_eq!(out, i64::MIN.to_string().as_bytes());
    }
}
