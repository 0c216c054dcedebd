//! Small parts of text traces: decimal numbers, quoted words, hashes of names, dates.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Returns a hash of a name. It is the same in every run and on every machine.
pub(super) fn hashed(name: &[u8]) -> u64 {
    // SipHash with zero keys: only collisions of 64 bits matter here, and there is no attacker.
    BuildHasherDefault::<DefaultHasher>::default().hash_one(name).max(1)
}

/// Returns the host of a URL, or an empty slice if there is none.
pub(super) fn host(url: &[u8]) -> &[u8] {
    let Some(at) = url.windows(3).position(|window| window == b"://") else { return &[] };
    let rest = &url[at + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    &rest[..end]
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

/// Parses a time in seconds, with or without a fraction. Returns it in milliseconds.
pub(super) fn milliseconds(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |&byte| byte == b'.');
    let whole = number(parts.next()?)?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths =
        (0..3).fold(0, |value, at| value * 10 + fraction.get(at).map_or(0, |digit| u64::from(digit - b'0')));
    whole.checked_mul(1000)?.checked_add(thousandths)
}

/// Returns the words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// Parses a time such as `17/May/2015:10:05:03 +0000`. Returns it in milliseconds since 1970.
pub(super) fn log_date(text: &[u8]) -> Option<u64> {
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let field = |from: usize, to: usize| number(text.get(from..to)?);
    let month = MONTHS.iter().position(|name| text.get(3..6) == Some(name))? as i64 + 1;
    let day = field(0, 2)? as i64;
    let year = field(7, 11)? as i64;
    let hour = field(12, 14)?;
    let minute = field(15, 17)?;
    let second = field(18, 20)?;
    let sign = if text.get(21)? == &b'-' { -1 } else { 1 };
    let zone_s = sign * (field(22, 24)? * 3600 + field(24, 26)? * 60) as i64;
    let seconds = days_since_1970(year, month, day) * 86_400 + (hour * 3600 + minute * 60 + second) as i64 - zone_s;
    u64::try_from(seconds).ok()?.checked_mul(1000)
}

/// Returns the number of days from 1970 to a date, by Howard Hinnant's `days_from_civil`.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
