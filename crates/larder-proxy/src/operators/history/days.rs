//! Requests per day, for the last 13 months.
//!
//! Invariant: the days are in order and at most [`DAY_COUNT_MAX`]. Days without requests take no space.

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::SeriesPoint;

/// The requests of each day, oldest first. Days without requests are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DailySums(Vec<(Date, SeriesPoint)>);

impl DailySums {
    /// Adds requests to a day. If the clock was set back, they are added to the latest day.
    pub(super) fn add(&mut self, added: &SeriesPoint, date: Date) {
        if *added == SeriesPoint::default() {
            return;
        }
        if self.0.last().is_none_or(|(last, _)| *last < date) {
            self.0.push((date, SeriesPoint::default()));
            let outdated_count = self.0.len().saturating_sub(DAY_COUNT_MAX);
            self.0.drain(..outdated_count);
        }
        let (_, point) = self.0.last_mut().expect("a day was pushed");
        point.add(added);
    }

    /// Returns the last `count` days that had requests, as text, the latest first.
    pub(crate) fn last_days(&self, count: usize) -> Vec<(String, SeriesPoint)> {
        self.0.iter().rev().take(count).map(|(date, point)| (date.to_string(), *point)).collect()
    }

    /// Returns the months that had requests, as text such as `2026-11`, the latest first.
    pub(crate) fn months(&self) -> Vec<(String, SeriesPoint)> {
        let mut months: Vec<(String, SeriesPoint)> = Vec::new();
        for (date, point) in self.0.iter().rev() {
            let month = date.strftime("%Y-%m").to_string();
            match months.last_mut() {
                Some((last, sum)) if *last == month => sum.add(point),
                _ => months.push((month, *point)),
            }
        }
        months
    }

    /// Returns whether the days that were read from a file are in order and not too many.
    pub(super) fn is_valid(&self) -> bool {
        self.0.len() <= DAY_COUNT_MAX && self.0.is_sorted_by(|(one, _), (other, _)| one < other)
    }
}

/// Maximum number of days that are kept: the 13 months that the dashboard shows.
const DAY_COUNT_MAX: usize = 396;

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Date = Date::constant(2025, 12, 31);

    fn point(hits: u64) -> SeriesPoint {
        SeriesPoint { hits, ..SeriesPoint::default() }
    }

    #[test]
    fn days_add_up_to_their_months() {
        let mut days = DailySums::default();
        days.add(&point(1), FIRST);
        days.add(&point(2), FIRST.tomorrow().unwrap());
        days.add(&point(0), FIRST.tomorrow().unwrap().tomorrow().unwrap());
        days.add(&point(4), Date::constant(2026, 1, 31));
        // The clock is set back.
        days.add(&point(8), FIRST);
        assert_eq!(days.last_days(2), [("2026-01-31".to_owned(), point(12)), ("2026-01-01".to_owned(), point(2))]);
        assert_eq!(days.months(), [("2026-01".to_owned(), point(14)), ("2025-12".to_owned(), point(1))]);
        assert!(days.is_valid());
    }

    #[test]
    fn oldest_day_goes_when_there_are_too_many() {
        let mut days = DailySums::default();
        let mut date = FIRST;
        for hits in 1..=DAY_COUNT_MAX as u64 + 5 {
            days.add(&point(hits), date);
            date = date.tomorrow().unwrap();
        }
        assert_eq!(days.last_days(usize::MAX).len(), DAY_COUNT_MAX);
        assert_eq!(days.last_days(usize::MAX).last().unwrap().1, point(6));
        assert!(days.is_valid());
    }
}
