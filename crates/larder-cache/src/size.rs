//! Parses sizes as people write them: `10GB`, `1.5 GiB`, `512M`.
//!
//! Invariant: a size is never a float. A fraction must give a whole number of bytes. `K`, `M`, `G` and `T` are short
//! for `KB`, `MB`, `GB` and `TB`, which are powers of ten, as disks are sold.

use std::{error, fmt, str::FromStr};

/// A number of bytes, from a number or from text such as `"10GB"` or `"512 MiB"`.
///
/// ```
/// use larder_cache::{ByteSize, SizeError};
///
/// assert_eq!("1.5 GiB".parse(), Ok(ByteSize(1_610_612_736)));
/// assert_eq!("10GB".parse(), Ok(ByteSize(10_000_000_000)));
/// let error: SizeError = "10 XB".parse::<ByteSize>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown unit in size: `10 XB`");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// The error for a text that is not a valid size. Show it to the user together with [`SizeError::HELP`].
///
/// ```
/// use larder_cache::{ByteSize, SizeError};
///
/// let error: SizeError = "ten GB".parse::<ByteSize>().unwrap_err();
/// let message = format!("{error}; {}", SizeError::HELP);
/// assert!(message.contains("`ten GB`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError {
    problem: &'static str,
    text: String,
}

impl SizeError {
    /// The accepted forms of a size, as text for messages.
    pub const HELP: &'static str =
        "a size is a number and a unit: 500MB and 2TB count in thousands, 512MiB and 1GiB in 1024s, 4096 is bytes";
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`", self.problem, self.text)
    }
}

impl error::Error for SizeError {}

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

/// Maximum number of digits after the decimal point. In practice, more digits cannot give a whole number of bytes. This
/// many cannot overflow the arithmetic.
const FRACTION_DIGITS_MAX: usize = 18;

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let bad = |problem| SizeError { problem, text: text.to_owned() };
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
        u64::try_from(bytes).map(Self).map_err(|_| too_large())
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl TryFrom<&str> for ByteSize {
    type Error = SizeError;

    fn try_from(text: &str) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl TryFrom<&String> for ByteSize {
    type Error = SizeError;

    fn try_from(text: &String) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl TryFrom<String> for ByteSize {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
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
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused_with_its_problem() {
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
            assert_eq!(text.parse::<ByteSize>().unwrap_err().to_string(), problem, "{text}");
        }
    }
}
