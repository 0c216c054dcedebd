//! Parses durations such as `10s`, `500ms`, `5m`, `2h` and `7d`.
//!
//! A number without a unit is refused, because seconds and milliseconds are easily confused.

use crate::ground::value::BadValue;
use std::time::Duration;

const UNITS_MILLISECONDS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a duration.
///
/// # Errors
/// The text is not a whole number with a unit, or the duration is too long.
pub(crate) fn parse(text: &str) -> Result<Duration, BadValue> {
    let bad = |what: &str| {
        BadValue::new(format!("{what}: `{text}`"), "a duration is a whole number and a unit: 500ms, 10s, 5m, 2h or 7d")
    };
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    if number.is_empty() {
        return Err(bad("not a duration"));
    }
    let unit = unit.trim();
    if unit.is_empty() {
        return Err(bad("a duration without a unit"));
    }
    let Some((_, factor)) = UNITS_MILLISECONDS.iter().find(|(name, _)| *name == unit) else {
        return Err(bad("unknown unit in duration"));
    };
    let milliseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    milliseconds.map(Duration::from_millis).ok_or_else(|| bad("the duration is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact() {
        for (text, milliseconds) in
            [("0s", 0), ("500ms", 500), ("10s", 10_000), ("5 m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_so() {
        for (text, problem) in [
            ("", "not a duration: ``"),
            ("s", "not a duration: `s`"),
            ("-1s", "not a duration: `-1s`"),
            ("10", "a duration without a unit: `10`"),
            ("1.5s", "unknown unit in duration: `1.5s`"),
            ("1M", "unknown unit in duration: `1M`"),
            ("99999999999999999999s", "the duration is too long: `99999999999999999999s`"),
            ("18446744073709551615d", "the duration is too long: `18446744073709551615d`"),
        ] {
            assert_eq!(parse(text).map_err(|bad| bad.problem), Err(problem.to_owned()), "{text}");
        }
    }
}
