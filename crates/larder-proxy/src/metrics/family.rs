//! A metric with its values, and the macro for tables of metrics.
//!
//! A row of a table makes the lines of a metric in `/metrics`, its place in `/overview.json` and its line in
//! docs/reference/metrics.md. The workers' counters are a table in `metrics`; the tables of all other state are in
//! `exposition`.

use crate::times::TimeCounts;

/// A metric with its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricFamily {
    /// The whole name, without `_total`.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
    pub(crate) series: Vec<MetricSeries>,
}

/// The values of the metric's labels, and the value that belongs to them.
pub(crate) type MetricSeries = (Vec<String>, MetricValue);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MetricValue {
    Number(f64),
    Times(TimeCounts),
}

impl MetricFamily {
    /// Returns the name with the suffix that the samples of its kind have.
    pub(crate) fn full_name(&self) -> String {
        let suffix = if self.kind == MetricKind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }

    /// Returns the value of a metric without labels.
    pub(crate) fn only_value(&self) -> Option<u64> {
        match *self.series {
            [(_, MetricValue::Number(value))] if self.labels.is_empty() => Some(value as u64),
            _ => None,
        }
    }
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Number(value as f64)
    }
}

impl From<TimeCounts> for MetricValue {
    fn from(times: TimeCounts) -> Self {
        Self::Times(times)
    }
}

/// Returns the series with these values of labels.
pub(crate) fn labeled(labels: &[&str], value: impl Into<MetricValue>) -> MetricSeries {
    (labels.iter().map(|label| (*label).to_owned()).collect(), value.into())
}

/// Returns a series for each value, with all combinations of the values of two labels at most, the last of which
/// changes first. Of two labels, the combinations that never occurred are left out.
pub(crate) fn all_combinations<V: Copy + Into<MetricValue>>(labels: &[&[&str]], values: &[V]) -> Vec<MetricSeries> {
    let combinations: Vec<Vec<&str>> = match labels {
        [] => vec![Vec::new()],
        [tokens] => tokens.iter().map(|token| vec![*token]).collect(),
        [first, tokens, ..] => first.iter().flat_map(|one| tokens.iter().map(|other| vec![*one, *other])).collect(),
    };
    let all = combinations.iter().zip(values).map(|(labels, value)| labeled(labels, *value));
    all.filter(|(_, value)| labels.len() < 2 || *value != MetricValue::Number(0.0)).collect()
}

/// Makes the function that reads the metrics of a table from their source. Without a source, they have no values.
///
/// A row is the kind, the name after the table's prefix, the meaning and the value. If the name has a list of labels,
/// even an empty one, the value is a list of series.
macro_rules! metric_table {
    ($visibility:vis fn $table:ident($prefix:literal, $source:ident: $type:ty) {
        $($kind:ident $name:ident $([$($label:ident),*])? = $help:literal, $value:expr;)+
    }) => {
        $visibility fn $table(source: Option<&$type>) -> Vec<MetricFamily> {
            vec![$(MetricFamily {
                name: concat!($prefix, stringify!($name)).to_owned(),
                kind: MetricKind::$kind,
                labels: &[$($(stringify!($label)),*)?],
                help: $help,
                series: source.map_or_else(Vec::new, |$source| {
                    // Some values are not the source's, such as the version of the program.
                    let _ = $source;
                    series_of!($value $(, [$($label),*])?)
                }),
            }),+]
        }
    };
}
pub(crate) use metric_table;

macro_rules! series_of {
    ($value:expr) => {
        vec![(Vec::new(), MetricValue::Number($value as f64))]
    };
    ($series:expr, [$($label:ident),*]) => {
        $series
    };
}
pub(crate) use series_of;
