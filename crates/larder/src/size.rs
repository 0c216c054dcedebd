//! Sizes as people write and read them: `1GB`, `1.5 GiB`, `512M`.
//!
//! Owns: the exact parser and the printer. A size is never a float: a fraction must give a whole number of bytes. `K`,
//! `M`, `G`, `T` are short for `KB` and so on: powers of ten, as disks are sold.

use crate::value::BadValue;

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1_000),
    ("kb", 1_000),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
];

/// Most digits after the point that can still mean whole bytes: 2^-40 has forty, but nobody writes more than these.
const FRACTION_DIGITS_MAX: usize = 18;

/// Reads a size in bytes.
///
/// # Errors
/// When it is not a number and a unit, not a whole count of bytes, or more than 2^64 - 1.
pub(crate) fn parse(text: &str) -> Result<u64, BadValue> {
    let bad = |what: &str| {
        BadValue::new(
            format!("{what}: `{text}`"),
            "a size is a number and a unit: 500MB and 2TB count in thousands, 512MiB and 1GiB in 1024s, 4096 is bytes",
        )
    };
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') || fraction.len() > FRACTION_DIGITS_MAX {
        return Err(bad("not a size"));
    }
    let unit = unit.trim().to_ascii_lowercase();
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(bad("unknown unit in size"));
    };
    let too_large = || bad("a size beyond any disk");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let parts: u128 = fraction.parse().map_err(|_| bad("not a size"))?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).expect("bounded above"));
    let part_bytes = parts * u128::from(*factor);
    if !part_bytes.is_multiple_of(scale) {
        return Err(bad("not a whole count of bytes"));
    }
    let bytes = u128::from(whole) * u128::from(*factor) + part_bytes / scale;
    u64::try_from(bytes).map_err(|_| too_large())
}

/// Formats a size: three significant digits and a unit in thousands, as in `1.02 GB`.
pub(crate) fn show(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    // In thousandths, and rounded before the unit is chosen, so that 999,999 is 1 MB and not 1000 kB.
    let mut thousandths = u128::from(bytes) * 1000;
    let mut unit = 0;
    while rounded(thousandths) >= 1_000_000 && unit + 1 < NAMES.len() {
        thousandths = (thousandths + 500) / 1000;
        unit += 1;
    }
    let shown = rounded(thousandths);
    let (whole, part) = (shown / 1000, format!("{:03}", shown % 1000));
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{whole}{point}{part} {}", NAMES[unit])
}

/// Rounds `thousandths` to three significant digits.
fn rounded(thousandths: u128) -> u128 {
    let step = match thousandths {
        0..10_000 => 10,
        10_000..100_000 => 100,
        _ => 1000,
    };
    (thousandths + step / 2) / step * step
}

/// Returns a count with the name of what is counted: `1 response`, `1,234 responses`.
pub(crate) fn show_things(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(count), if count == 1 { one } else { many })
}

/// Returns a count for people: `1,234,567`.
pub(crate) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1B", 1),
            ("1GB", 1_000_000_000),
            ("1GiB", 1 << 30),
            ("512M", 512_000_000),
            ("512MiB", 512 << 20),
            ("2 TB", 2_000_000_000_000),
            ("1.5GB", 1_500_000_000),
            ("0.5GiB", 1 << 29),
            (" 64mb ", 64_000_000),
            ("1k", 1000),
            ("16KiB", 16 << 10),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_so() {
        for (text, problem) in [
            ("", "not a size: ``"),
            ("GB", "not a size: `GB`"),
            ("1.", "not a size: `1.`"),
            (".5GB", "not a size: `.5GB`"),
            ("1.2.3GB", "not a size: `1.2.3GB`"),
            ("-1GB", "not a size: `-1GB`"),
            ("1XB", "unknown unit in size: `1XB`"),
            ("1GBs", "unknown unit in size: `1GBs`"),
            ("1e9", "unknown unit in size: `1e9`"),
            ("0.5B", "not a whole count of bytes: `0.5B`"),
            ("1.0001KB", "not a whole count of bytes: `1.0001KB`"),
            ("18446744073709551616", "a size beyond any disk: `18446744073709551616`"),
            ("99999999TiB", "a size beyond any disk: `99999999TiB`"),
            ("99999999999999999999999999", "a size beyond any disk: `99999999999999999999999999`"),
            ("0.0000000000000000001GB", "not a size: `0.0000000000000000001GB`"),
        ] {
            assert_eq!(parse(text).map_err(|bad| bad.problem), Err(problem.to_owned()), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_with_three_digits() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 kB"),
            (1_024, "1.02 kB"),
            (64_000_000, "64 MB"),
            (999_499, "999 kB"),
            (999_999, "1 MB"),
            (1_500_000_000, "1.5 GB"),
            (12_345_678, "12.3 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(show(bytes), shown, "{bytes}");
        }
    }

    #[test]
    fn counts_are_shown_in_thousands() {
        for (count, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(show_count(count), shown);
        }
    }
}
