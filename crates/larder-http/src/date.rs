//! Parses HTTP dates in all three forms and formats them in the preferred form (RFC 9110 5.6.7).
//!
//! The case of day, month and zone names is ignored. Any other deviation makes the date invalid, and an invalid
//! `Expires` means expired. The weekday is not checked against the date. Cost: parsing takes tens of nanoseconds and
//! does not allocate; formatting allocates once.

use http::HeaderValue;

use crate::{Timestamp, steps};

/// Parses an HTTP date in IMF-fixdate, RFC 850 or asctime form.
///
/// `now` determines the century of a two-digit year: a year that seems more than 50 years ahead is taken as the most
/// recent past year with the same digits.
///
/// ```
/// use larder_http::{Timestamp, date};
///
/// let now = Timestamp::from_secs(1_800_000_000);
/// let moment = date::parse_http_date(b"Sunday, 06-Nov-94 08:49:37 GMT", now).expect("a date of RFC 850");
/// assert_eq!(date::format_http_date(moment), "Sun, 06 Nov 1994 08:49:37 GMT");
/// assert_eq!(date::format_instant(moment), "1994-11-06T08:49:37.000Z");
/// ```
pub fn parse_http_date(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    steps::take(value.len());
    match value.iter().position(|byte| *byte == b',') {
        Some(3) => parse_imf_fixdate(value),
        Some(_) => parse_rfc850(value, now),
        None => parse_asctime(value),
    }
}

/// Returns a moment to the precision and range of HTTP dates: in whole seconds, from 1970 to 9999.
pub(crate) fn as_http_date(moment: Timestamp) -> Timestamp {
    Timestamp::from_secs(moment.as_secs().clamp(0, LAST_SECOND))
}

/// Formats a date in the preferred form. A moment outside 1970 to 9999 is clamped to that range.
pub fn format_http_date(moment: Timestamp) -> HeaderValue {
    HeaderValue::from_bytes(&http_date(moment)).expect("an HTTP date is ASCII")
}

/// Returns the octets of [`format_http_date`].
pub(crate) fn http_date(moment: Timestamp) -> [u8; 29] {
    let secs = as_http_date(moment).as_secs().unsigned_abs();
    let days = (secs / DAY_SECS.unsigned_abs()) as u32;
    let second = (secs % DAY_SECS.unsigned_abs()) as u32;
    let (year, month, day) = civil_of_http_date(days);
    let weekday = WEEKDAYS[(days + FIRST_WEEKDAY) as usize % WEEKDAYS.len()].as_bytes();
    let month = MONTHS[month as usize % MONTHS.len()].as_bytes();
    let digits = |number: u32| [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
    let [day, hour, minute, last] = [day, second / 3600, second / 60 % 60, second % 60].map(digits);
    let [century, year] = [year / 100, year % 100].map(digits);
    let mut text = *b"Mon, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(&weekday[..3]);
    text[5..7].copy_from_slice(&day);
    text[8..11].copy_from_slice(&month[..3]);
    text[12..14].copy_from_slice(&century);
    text[14..16].copy_from_slice(&year);
    text[17..19].copy_from_slice(&hour);
    text[20..22].copy_from_slice(&minute);
    text[23..25].copy_from_slice(&last);
    text
}

/// Formats a moment as `1994-11-06T08:49:37.000Z` (RFC 3339). A moment outside 1970 to 9999 is clamped to that range.
pub fn format_instant(moment: Timestamp) -> String {
    let moment = moment.as_millis().clamp(0, LAST_SECOND * 1000);
    let secs = moment / 1000;
    let millis = moment % 1000;
    let (year, month, day) = civil_from_days(secs / DAY_SECS);
    let second = secs % DAY_SECS;
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Parses a moment such as `1994-11-06T08:49:37Z`, with or without a fraction of a second.
pub fn parse_instant(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.strip_suffix('Z')?.split_at_checked(19)?;
    let &[_, _, _, _, b'-', _, _, b'-', _, _, b'T', ..] = whole.as_bytes() else { return None };
    let digits = whole.as_bytes();
    let year = number(&digits[..4])?;
    let month = number(&digits[5..7])?;
    let day = number(&digits[8..10])?;
    if !(1..=12).contains(&month) {
        return None;
    }
    let whole = moment(year, month, day, &digits[11..])?;
    let millis = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => 0,
        None => return None,
        Some(fraction) if (1..=9).contains(&fraction.len()) => {
            let digits: Vec<u8> = fraction.bytes().chain([b'0'; 2]).take(3).collect();
            number(&digits)?
        }
        Some(_) => return None,
    };
    Some(whole.plus_millis(millis))
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn parse_imf_fixdate(value: &[u8]) -> Option<Timestamp> {
    let value: &[u8; 29] = value.try_into().ok()?;
    let literals = [(4, b' '), (7, b' '), (11, b' '), (16, b' '), (25, b' ')];
    literals.iter().all(|(at, byte)| value[*at] == *byte).then_some(())?;
    WEEKDAY_LETTERS.contains(&letters(&value[..3])).then_some(())?;
    is_gmt(&value[26..]).then_some(())?;
    moment(number(&value[12..16])?, month(&value[8..11])?, number(&value[5..7])?, &value[17..25])
}

/// Parses `Sunday, 06-Nov-94 08:49:37 GMT`.
fn parse_rfc850(value: &[u8], now: Timestamp) -> Option<Timestamp> {
    let comma = value.iter().position(|byte| *byte == b',')?;
    WEEKDAYS.iter().any(|name| value[..comma].eq_ignore_ascii_case(name.as_bytes())).then_some(())?;
    let rest: &[u8; 24] = value[comma..].try_into().ok()?;
    let literals = [(1, b' '), (4, b'-'), (8, b'-'), (11, b' '), (20, b' ')];
    literals.iter().all(|(at, byte)| rest[*at] == *byte).then_some(())?;
    is_gmt(&rest[21..]).then_some(())?;
    let in_century = number(&rest[9..11])?;
    let month = month(&rest[5..8])?;
    let day = number(&rest[2..4])?;
    let (year_now, _, _) = civil_from_days(now.as_secs().div_euclid(DAY_SECS));
    let mut year = year_now - year_now.rem_euclid(100) + in_century;
    // The year lies between 50 years before and 50 years after now.
    if year > year_now + 50 {
        year -= 100;
    } else if year <= year_now - 50 {
        year += 100;
    }
    moment(year, month, day, &rest[12..20])
}

/// Parses `Sun Nov  6 08:49:37 1994`.
fn parse_asctime(value: &[u8]) -> Option<Timestamp> {
    let value: &[u8; 24] = value.try_into().ok()?;
    let literals = [(3, b' '), (7, b' '), (10, b' '), (19, b' ')];
    literals.iter().all(|(at, byte)| value[*at] == *byte).then_some(())?;
    WEEKDAY_LETTERS.contains(&letters(&value[..3])).then_some(())?;
    let day = if value[8] == b' ' { &value[9..10] } else { &value[8..10] };
    moment(number(&value[20..])?, month(&value[4..7])?, number(day)?, &value[11..19])
}

/// Returns the moment of a date and a time of the form `hh:mm:ss`, which may be a leap second.
fn moment(year: i64, month: i64, day: i64, time: &[u8]) -> Option<Timestamp> {
    let &[_, _, b':', _, _, b':', _, _] = time else { return None };
    let hour = number(&time[..2])?;
    let minute = number(&time[3..5])?;
    let second = number(&time[6..])?;
    if hour > 23 || minute > 59 || second > 60 || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let secs = days_from_civil(year, month, day) * DAY_SECS + hour * 3600 + minute * 60 + second;
    Some(Timestamp::from_secs(secs))
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

fn month(name: &[u8]) -> Option<i64> {
    let letters = letters(name);
    MONTH_LETTERS.iter().position(|month| *month == letters).map(|index| index as i64 + 1)
}

fn is_gmt(zone: &[u8]) -> bool {
    letters(zone) == letters(b"GMT")
}

/// Returns the first three octets as a number that is the same for either case of a letter. It equals that of a name
/// only if the octets are the name's letters.
const fn letters(text: &[u8]) -> u32 {
    u32::from_be_bytes([0, text[0] | CASE, text[1] | CASE, text[2] | CASE])
}

/// Returns the [`letters`] of each name.
const fn letters_of<const COUNT: usize>(names: [&str; COUNT]) -> [u32; COUNT] {
    let mut all = [0; COUNT];
    let mut index = 0;
    while index < COUNT {
        all[index] = letters(names[index].as_bytes());
        index += 1;
    }
    all
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970-01-01 to a date of the proleptic Gregorian calendar.
///
/// Years are counted from March. The leap day is then the last day of its year, and one linear rule gives the month
/// lengths.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - DAYS_TO_EPOCH
}

/// Converts a day number to year, month and day: the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(DAYS_TO_EPOCH);
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + i64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// Converts a day number of the range of HTTP dates to year, month (from 0) and day, as [`civil_from_days`] does, but
/// with short unsigned numbers: each hit from memory formats a date or two.
fn civil_of_http_date(days: u32) -> (u32, u32, u32) {
    const ERA: u32 = ERA_DAYS as u32;
    let days = days + DAYS_TO_EPOCH as u32;
    let day_of_era = days % ERA;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 2 } else { from_march - 10 };
    (days / ERA * 400 + year_of_era + u32::from(from_march >= 10), month, day)
}

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAY_LETTERS: [u32; 7] = letters_of(WEEKDAYS);
const MONTH_LETTERS: [u32; 12] = letters_of(MONTHS);
/// The bit in which the upper case of a letter differs from its lower case.
const CASE: u8 = 0x20;
/// The index of the weekday of 1 January 1970.
const FIRST_WEEKDAY: u32 = 3;
const DAY_SECS: i64 = 86_400;
/// Days in 400 years.
const ERA_DAYS: i64 = 146_097;
/// Days from 1 March of year 0 to 1 January 1970.
const DAYS_TO_EPOCH: i64 = 719_468;
/// 31 December 9999, 23:59:59.
const LAST_SECOND: i64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21. From here, two-digit years up to 76 are in the future.
    const NOW: Timestamp = Timestamp::from_secs(1_795_230_000);
    const EXAMPLE: Timestamp = Timestamp::from_secs(784_111_777);

    fn parse(text: &str) -> Option<Timestamp> {
        parse_http_date(text.as_bytes(), NOW)
    }

    #[test]
    fn an_instant_is_read_as_it_was_written_and_nothing_else_is_one() {
        for millis in [0, 784_111_777_042, 951_782_400_999, 4_102_444_799_000] {
            let moment = Timestamp::from_millis(millis);
            assert_eq!(parse_instant(&format_instant(moment)), Some(moment));
        }
        assert_eq!(format_instant(Timestamp::from_millis(784_111_777_042)), "1994-11-06T08:49:37.042Z");
        let whole = Some(Timestamp::from_secs(784_111_777));
        assert_eq!(parse_instant("1994-11-06T08:49:37Z"), whole);
        assert_eq!(parse_instant("1994-11-06T08:49:37.0420009Z"), whole.map(|whole| whole.plus_millis(42)));
        for text in [
            "",
            "Z",
            "1994-11-06",
            "1994-13-06T08:49:37Z",
            "1994-11-06T08:49:37",
            "1994-11-06T08:49:37.Z",
            "1994-11-06T08:49:37.\u{20ac}Z",
            "1994-11-06T08:49:3\u{e9}Z",
            "1994-11-06T08:49:37+01Z",
            "\u{e9}994-11-06T08:49:37Z",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }

    #[test]
    fn three_forms_of_rfc_9110_5_6_7_name_the_same_moment() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(EXAMPLE));
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), Some(EXAMPLE));
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), Some(EXAMPLE));
        assert_eq!(parse("Sun Nov 16 08:49:37 1994"), Some(EXAMPLE.plus_secs(10 * DAY_SECS)));
    }

    #[test]
    fn names_are_read_in_any_case() {
        for text in ["SUN, 06 NOV 1994 08:49:37 gmt", "sUNDAY, 06-nOV-94 08:49:37 GmT", "sun nov  6 08:49:37 1994"] {
            assert_eq!(parse(text), Some(EXAMPLE), "{text}");
        }
    }

    #[test]
    fn far_years_work() {
        assert_eq!(parse("Tue, 19 Jan 2038 03:14:07 GMT"), Some(Timestamp::from_secs(i64::from(i32::MAX))));
        assert_eq!(parse("Tue, 19 Jan 2038 03:14:08 GMT"), Some(Timestamp::from_secs(1 << 31)));
        assert_eq!(parse("Sat, 20 Nov 2286 17:46:40 GMT"), Some(Timestamp::from_secs(10_000_000_000)));
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT"), Some(Timestamp::from_secs(LAST_SECOND)));
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Timestamp::from_secs(0)));
        assert!(parse("Mon, 01 Jan 1900 00:00:00 GMT").is_some_and(|moment| moment < Timestamp::from_secs(0)));
    }

    #[test]
    fn two_digit_year_more_than_50_years_ahead_is_in_the_past() {
        assert_eq!(parse("Sunday, 06-Nov-76 08:49:37 GMT"), parse("Fri, 06 Nov 2076 08:49:37 GMT"));
        assert_eq!(parse("Sunday, 06-Nov-77 08:49:37 GMT"), parse("Sun, 06 Nov 1977 08:49:37 GMT"));
        let late = Timestamp::from_secs(3_975_000_000); // 2095
        let near = parse_http_date(b"Sunday, 06-Nov-05 08:49:37 GMT", late);
        assert_eq!(near, parse("Fri, 06 Nov 2105 08:49:37 GMT"));
    }

    #[test]
    fn invalid_shapes_are_refused() {
        let invalid = [
            "0",
            "",
            "-1",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 EST",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov  1994 08:49:37 GMT",
            "Sun, 06 Nov 1994  08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37  GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994  8:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:00:61 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Wed, 29 Feb 2023 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 UTC",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
        ];
        for text in invalid {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn leap_days_and_leap_seconds_are_read() {
        assert!(parse("Thu, 29 Feb 2024 00:00:00 GMT").is_some());
        assert!(parse("Tue, 29 Feb 2000 00:00:00 GMT").is_some());
        assert_eq!(parse("Sat, 31 Dec 2016 23:59:60 GMT"), parse("Sun, 01 Jan 2017 00:00:00 GMT"));
    }

    #[test]
    fn moments_outside_the_writable_range_are_written_as_its_ends() {
        assert_eq!(format_http_date(Timestamp::from_secs(-5)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format_http_date(Timestamp::from_millis(i64::MAX)), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn written_dates_read_back(secs in 0..=LAST_SECOND) {
            let moment = Timestamp::from_secs(secs);
            prop_assert_eq!(parse_http_date(format_http_date(moment).as_bytes(), NOW), Some(moment));
        }

        #[test]
        fn day_numbers_and_dates_are_inverse(days in -800_000i64..3_000_000) {
            let (year, month, day) = civil_from_days(days);
            prop_assert_eq!(days_from_civil(year, month, day), days);
            prop_assert!((1..=days_in_month(year, month)).contains(&day));
        }

        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..40), now in any::<i64>()) {
            parse_http_date(&value, Timestamp::from_millis(now));
        }

        #[test]
        fn no_text_like_a_date_panics(value in "[A-Za-z]{3,6}[, -]{1,2}[0-9 -]{1,4}[A-Za-z]{3}[ -][0-9]{2,4} [0-9:]{8} GMT") {
            parse_http_date(value.as_bytes(), NOW);
        }
    }
}
