//! Sizes as people read and write them: `1GB`, `1.5 GiB`, `512M`.
//!
//! Owns: the printer, and the message about a wrong size. `larder_cache::ByteSize` parses.

use crate::ground::value::BadValue;
use larder_cache::{ByteSize, SizeError};

/// Reads a size in bytes.
///
/// # Errors
/// When the text is not a number and a unit, not a whole count of bytes, or more than 2^64 - 1.
pub(crate) fn parse(text: &str) -> Result<u64, BadValue> {
    let size: Result<ByteSize, SizeError> = text.parse();
    size.map(|size| size.0).map_err(|error| BadValue::new(error.to_string(), SizeError::HELP))
}

/// Reads the size of a store. Returns `None` for `auto`.
///
/// # Errors
/// The text is not a size, or no store can have this size.
pub(crate) fn parse_of_store_or_auto(text: &str) -> Result<Option<u64>, BadValue> {
    if text == "auto" { Ok(None) } else { parse_of_store(text).map(Some) }
}

/// Reads the size of a store.
///
/// # Errors
/// The text is not a size, or no store can have this size.
pub(crate) fn parse_of_store(text: &str) -> Result<u64, BadValue> {
    let bytes = parse(text)?;
    if STORE_BYTES.contains(&bytes) {
        return Ok(bytes);
    }
    let limit = if bytes < *STORE_BYTES.start() { "below 64 MiB" } else { "above 16 TiB" };
    let help = match number_without_unit(text, bytes) {
        Some(number) => format!("did you mean {number}GB? A size from 64MiB to 16TiB is possible"),
        None => "give a size from 64MiB to 16TiB".to_owned(),
    };
    Err(BadValue::new(format!("size {} is {limit}", show(bytes)), help))
}

/// Reads the size of a part of the memory. The size 0 is valid, and turns that part off.
///
/// # Errors
/// The text is not a size, or the size is too small to be useful.
pub(crate) fn parse_of_memory(text: &str) -> Result<u64, BadValue> {
    let bytes = parse(text)?;
    if bytes == 0 || bytes >= MEMORY_BYTES_MIN {
        return Ok(bytes);
    }
    let help = match number_without_unit(text, bytes) {
        Some(number) => {
            format!("did you mean {number}MB or {number}GB? A size of at least 64KiB is possible, and 0 for none")
        }
        None => "give a size of at least 64KiB, or 0 for none".to_owned(),
    };
    Err(BadValue::new(format!("size {} is below 64 KiB", show(bytes)), help))
}

/// Returns the number in `text` if its unit was probably forgotten: it has only digits, and `bytes` is small.
fn number_without_unit(text: &str, bytes: u64) -> Option<&str> {
    let number = text.trim();
    (number.bytes().all(|octet| octet.is_ascii_digit()) && bytes <= BARE_NUMBER_MAX).then_some(number)
}

/// Minimum size of a part of the memory, in bytes. Less would not hold even one small response with its index.
const MEMORY_BYTES_MIN: u64 = 64 << 10;
/// Sizes in bytes that a store of `larder run` can have.
pub(crate) const STORE_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=16 << 40;
/// Greatest number without a unit that the user probably meant in gigabytes.
const BARE_NUMBER_MAX: u64 = 16_000;

/// Formats a size with three significant digits and a decimal unit, as in `1.02 GB`.
pub(crate) fn show(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    // The size is rounded before the unit is chosen, so that 999,999 is shown as 1 MB and not as 1000 kB.
    let mut thousandths = u128::from(bytes) * 1000;
    let mut unit = 0;
    while rounded(thousandths) >= 1_000_000 && unit + 1 < NAMES.len() {
        thousandths = (thousandths + 500) / 1000;
        unit += 1;
    }
    let shown = rounded(thousandths);
    let whole = shown / 1000;
    let part = format!("{:03}", shown % 1000);
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{whole}{point}{part} {}", NAMES[unit])
}

/// Rounds a number of thousandths to three significant digits.
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

/// Formats a count with commas, as in `1,234,567`.
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
    fn part_of_the_memory_has_64_kib_or_nothing() {
        for (text, bytes) in [("0", 0), ("64KiB", 64 << 10), ("65536", 64 << 10), ("1TB", 1_000_000_000_000)] {
            assert_eq!(parse_of_memory(text), Ok(bytes), "{text}");
        }
        for (text, problem, help) in [
            ("5", "size 5 B is below 64 KiB", "did you mean 5MB or 5GB?"),
            ("5B", "size 5 B is below 64 KiB", "give a size of at least 64KiB, or 0"),
            ("65535", "size 65.5 kB is below 64 KiB", "give a size of at least 64KiB, or 0"),
            ("64 k", "size 64 kB is below 64 KiB", "give a size of at least 64KiB, or 0"),
        ] {
            let bad = parse_of_memory(text).unwrap_err();
            assert!(bad.problem == problem && bad.help.starts_with(help), "{text}: {bad:?}");
        }
    }

    #[test]
    fn store_has_64_mib_to_16_tib() {
        for (text, bytes) in [("64MiB", 64 << 20), ("16TiB", 16 << 40), ("1GB", 1_000_000_000)] {
            assert_eq!(parse_of_store(text).unwrap(), bytes);
        }
        for (text, problem, help) in [
            ("5", "size 5 B is below 64 MiB", "did you mean 5GB?"),
            ("10MB", "size 10 MB is below 64 MiB", "give a size from 64MiB to 16TiB"),
            ("1000000", "size 1 MB is below 64 MiB", "give a size from 64MiB to 16TiB"),
            ("17TiB", "size 18.7 TB is above 16 TiB", "give a size from 64MiB to 16TiB"),
        ] {
            let bad = parse_of_store(text).unwrap_err();
            assert!(bad.problem == problem && bad.help.starts_with(help), "{bad:?}");
        }
    }

    #[test]
    fn counts_are_shown_in_thousands() {
        for (count, shown) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(show_count(count), shown);
        }
    }
}
