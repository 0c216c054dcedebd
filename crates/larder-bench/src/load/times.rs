//! Response times: a histogram as data, which can be merged with others and read by other programs.
//!
//! Owns: the limits of the histograms and their written forms. Invariant: the values read back equal the recorded ones,
//! to three digits. Cost: about ten bytes for each distinct value. Source: G. Tene's HdrHistogram, and the table of
//! percentiles that its plotter reads.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::fmt::Write;

/// Response times in microseconds: their histogram, mean and quantiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Number of recorded times.
    pub count: u64,
    /// Mean of the times, in microseconds.
    pub mean_us: f64,
    /// Quantiles: pairs of a share, from 0 to 1, and the time in microseconds that this share of the requests did not
    /// exceed.
    pub quantiles_us: Vec<(f64, u64)>,
    /// All recorded times.
    pub histogram: RecordedTimes,
}

/// The recorded times in ascending order, each with its count. As text: `time*count time*count ..`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedTimes(Vec<(u64, u64)>);

impl ResponseTimes {
    /// Returns the times that a histogram contains.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let quantiles_us = QUANTILES.map(|share| (share, histogram.value_at_quantile(share)));
        let recorded = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        Self {
            count: histogram.len(),
            mean_us: histogram.mean(),
            quantiles_us: quantiles_us.to_vec(),
            histogram: RecordedTimes(recorded.collect()),
        }
    }

    /// Merges several sets of times into one.
    pub fn merged<'a>(several: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = histogram();
        for times in several {
            times.histogram.add_to(&mut sum);
        }
        Self::of(&sum)
    }

    /// Returns the time in microseconds that the given share of the requests did not exceed.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let at = self.quantiles_us.iter().find(|(known, _)| *known >= share - 1e-9);
        at.or(self.quantiles_us.last()).map_or(0, |&(_, time)| time)
    }

    /// Returns the table of percentiles in the format that HdrHistogram's tools read (`.hgrm`). Times are in
    /// milliseconds.
    pub fn percentiles(&self) -> String {
        let mut histogram = histogram();
        self.histogram.add_to(&mut histogram);
        let mut table =
            format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
        let ms = |us: u64| us as f64 / 1000.0;
        let mut count = 0;
        for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            let value = ms(step.value_iterated_to());
            let share = step.quantile();
            count += step.count_since_last_iteration();
            let _ = write!(table, "{value:>12.3} {share:>14.12} {count:>10}");
            let _ = if share < 1.0 { writeln!(table, " {:>14.2}", 1.0 / (1.0 - share)) } else { writeln!(table) };
        }
        let mean = histogram.mean() / 1000.0;
        let deviation = histogram.stdev() / 1000.0;
        let _ = writeln!(table, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
        let _ = writeln!(table, "#[Max     = {:>12.3}, Total count    = {:>12}]", ms(histogram.max()), histogram.len());
        let _ = writeln!(table, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", histogram.buckets(), SUB_BUCKETS);
        table
    }
}

impl RecordedTimes {
    fn add_to(&self, histogram: &mut Histogram<u64>) {
        for &(time_us, count) in &self.0 {
            histogram.saturating_record_n(time_us, count);
        }
    }
}

impl Serialize for RecordedTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words: Vec<_> = self.0.iter().map(|(time, count)| format!("{time}*{count}")).collect();
        serializer.serialize_str(&words.join(" "))
    }
}

impl<'de> Deserialize<'de> for RecordedTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let one = |word: &str| {
            let (time, count) = word.split_once('*')?;
            Some((time.parse().ok()?, count.parse().ok()?))
        };
        let all = text
            .split_whitespace()
            .map(|word| one(word).ok_or_else(|| D::Error::custom(format!("not a time and a count: `{word}`"))));
        all.collect::<Result<_, _>>().map(Self)
    }
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_US, 3).expect("the bounds and digits are allowed")
}

/// Creates a histogram with a precision of two digits, which saves memory: a run has one for each second.
pub(super) fn short_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_US, 2).expect("the bounds and digits are allowed")
}

const TIME_MAX_US: u64 = 100_000_000;
/// Number of subdivisions in HdrHistogram for a precision of three digits.
const SUB_BUCKETS: u32 = 2048;
/// Number of lines in the table of percentiles each time the distance to 100% halves. HdrHistogram's tools use this
/// number.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
/// The shares whose quantiles are reported.
const QUANTILES: [f64; 14] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 1.0];

#[cfg(test)]
mod tests {
    use super::*;

    fn times(recorded: impl IntoIterator<Item = u64>) -> ResponseTimes {
        let mut histogram = histogram();
        recorded.into_iter().for_each(|time| histogram.saturating_record(time));
        ResponseTimes::of(&histogram)
    }

    #[test]
    fn several_together_are_as_if_recorded_in_one() {
        let fast = times((1..=1000).map(|n| n * 3));
        let slow = times((1..=500).map(|n| n * 7919));
        let both = times((1..=1000).map(|n| n * 3).chain((1..=500).map(|n| n * 7919)));
        assert_eq!(ResponseTimes::merged([&fast, &slow]), both);
        assert_eq!(ResponseTimes::merged([]), ResponseTimes::default());
    }

    #[test]
    fn times_survive_being_written() {
        let some = times([1, 5, 5, 999, 123_456, 99_000_000]);
        let text = serde_json::to_string(&some).unwrap();
        assert!(text.contains("\"1*1 5*2 999*1 "), "{text}");
        assert_eq!(serde_json::from_str::<ResponseTimes>(&text).unwrap(), some);
        assert!(serde_json::from_str::<ResponseTimes>(&text.replace("5*2", "5x2")).is_err());
    }

    #[test]
    fn the_table_of_percentiles_ends_with_the_greatest_and_counts_all() {
        let table = times((1..=10_000).map(|n| n * 10)).percentiles();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].ends_with("1/(1-Percentile)"), "{table}");
        let last = lines.iter().rfind(|line| !line.starts_with('#')).unwrap();
        let words: Vec<_> = last.split_whitespace().collect();
        assert_eq!(words[1..], ["1.000000000000", "10000"], "{table}");
        assert!((words[0].parse::<f64>().unwrap() / 100.0 - 1.0).abs() < 0.001, "{table}");
        assert!(table.contains("Total count    =        10000"), "{table}");
    }
}
