//! A metric with its values, and the macro for tables of metrics.
//!
//! A row of a table makes the lines of a metric in `/metrics`, its place in `/overview.json` and its line in
//! docs/reference/metrics.md. The workers' counters are a table in `metrics`; the tables of all other state are in
//! `exposition`.

use crate::figures::times::TimeCounts;

/// A metric: its name, help and type, and its series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricFamily {
    /// The name without the suffix `_total`.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
    pub(crate) series: Vec<MetricSeries>,
}

/// The values of the metric's labels, and the value of the series that they identify.
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
    /// Returns the name with the suffix that its samples have: `_total` for counters.
    pub(crate) fn full_name(&self) -> String {
        let suffix = if self.kind == MetricKind::Counter { "_total" } else { "" };
        format!("{}{suffix}", self.name)
    }

    /// Returns the value of a metric without labels. `None` if it has labels.
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

/// Creates the series with these label values.
pub(crate) fn labeled(labels: &[&str], value: impl Into<MetricValue>) -> MetricSeries {
    (labels.iter().map(|label| (*label).to_owned()).collect(), value.into())
}

/// Returns the series for each combination of the values of at most two labels, in the order of `values`.
///
/// The last label changes fastest. With two labels, combinations that never occurred are left out.
pub(crate) fn all_combinations<V: Copy + Into<MetricValue>>(labels: &[&[&str]], values: &[V]) -> Vec<MetricSeries> {
    let combinations: Vec<Vec<&str>> = match labels {
        [] => vec![Vec::new()],
        [tokens] => tokens.iter().map(|token| vec![*token]).collect(),
        [first, tokens, ..] => first.iter().flat_map(|one| tokens.iter().map(|other| vec![*one, *other])).collect(),
    };
    let all = combinations.iter().zip(values).map(|(labels, value)| labeled(labels, *value));
    all.filter(|(_, value)| labels.len() < 2 || *value != MetricValue::Number(0.0)).collect()
}

/// Defines the function that reads the metrics of a table from their source. Without a source, they have no values.
///
/// A row has the type, the name after the table's prefix, the help and the value. If the name is followed by a list of
/// labels, even an empty one, the value is a list of series.
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
                    // Some rows, such as the version of the program, do not use the source.
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
