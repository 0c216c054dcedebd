//! Serves `/metrics` in a format that the client can read.
//!
//! Clients that accept OpenMetrics receive it. All others receive Prometheus' text format, version 0.0.4, in which a
//! counter's name includes `_total` and there is no end mark. The metrics are read in `exposition`.

use std::fmt::{self, Write as _};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::page;
use crate::{
    figures::metrics::family::{MetricFamily, MetricValue},
    road::client::response_body::ResponseBody,
};

/// Answers a request for `/metrics`.
pub(super) fn answer(families: &[MetricFamily], fields: &HeaderMap) -> Response<ResponseBody> {
    let is_open = accepts_open_metrics(fields);
    let mut text = String::new();
    families.iter().for_each(|family| write_family(&mut text, family, is_open));
    let kind = match is_open {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    if is_open {
        text.push_str("# EOF\n");
    }
    let mut response = page(StatusCode::OK, text.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns whether the client of a request accepts the OpenMetrics format.
fn accepts_open_metrics(fields: &HeaderMap) -> bool {
    let lines = fields.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|range| {
        range.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/openmetrics-text"))
    })
}

/// Writes a metric: its help, its type and all its series.
fn write_family(text: &mut String, family: &MetricFamily, is_open: bool) {
    let name = family.full_name();
    let title = if is_open { &family.name } else { &name };
    line(text, format_args!("# HELP {title} {}.", family.help));
    line(text, format_args!("# TYPE {title} {}", format!("{:?}", family.kind).to_lowercase()));
    for (values, value) in &family.series {
        let labels: Vec<(&str, &str)> = family.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
        let braces = braced(&labels);
        match value {
            MetricValue::Number(number) => line(text, format_args!("{name}{braces} {number}")),
            MetricValue::Times(times) => {
                let mut count = 0;
                for (bound, within) in times.buckets() {
                    count += within;
                    let bound = if bound == f64::INFINITY { "+Inf".to_owned() } else { format!("{bound:?}") };
                    let labels = [&[("le", bound.as_str())], labels.as_slice()].concat();
                    line(text, format_args!("{name}_bucket{} {count}", braced(&labels)));
                }
                line(text, format_args!("{name}_sum{braces} {}", times.sum_s()));
                line(text, format_args!("{name}_count{braces} {count}"));
            }
        }
    }
}

fn line(text: &mut String, words: fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("a string takes what is written to it");
}

/// Formats the labels of a series, in braces.
fn braced(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figures::{
        metrics::family::{MetricKind, MetricSeries, labeled},
        times::Histogram,
    };

    fn family(name: &str, kind: MetricKind, labels: &'static [&'static str], series: MetricSeries) -> MetricFamily {
        MetricFamily { name: name.into(), kind, labels, help: "Some", series: vec![series] }
    }

    #[test]
    fn counters_have_their_suffix_and_labels_are_escaped() {
        let hits = family("larder_hits", MetricKind::Counter, &[], labeled(&[], 3));
        let up = family("larder_up", MetricKind::Gauge, &["a", "b"], labeled(&["\"", "\\\n"], 5));
        let mut text = String::new();
        [&hits, &up].into_iter().for_each(|family| write_family(&mut text, family, false));
        let values = "larder_up{a=\"\\\"\",b=\"\\\\\\n\"} 5\n";
        let up_lines = format!("# HELP larder_up Some.\n# TYPE larder_up gauge\n{values}");
        assert_eq!(
            text,
            format!(
                "# HELP larder_hits_total Some.\n# TYPE larder_hits_total counter\nlarder_hits_total 3\n{up_lines}"
            )
        );
        text.clear();
        [&hits, &up].into_iter().for_each(|family| write_family(&mut text, family, true));
        assert_eq!(
            text,
            format!("# HELP larder_hits Some.\n# TYPE larder_hits counter\nlarder_hits_total 3\n{up_lines}")
        );
    }

    #[test]
    fn buckets_of_a_histogram_include_the_shorter_ones() {
        let histogram = Histogram::default();
        [40, 60, 70, 1_000_000].into_iter().for_each(|micros| histogram.note(Duration::from_micros(micros)));
        let times = family("a_seconds", MetricKind::Histogram, &["b"], labeled(&["c"], histogram.value()));
        let mut text = String::new();
        write_family(&mut text, &times, false);
        for line in [
            "a_seconds_bucket{le=\"5e-5\",b=\"c\"} 1",
            "a_seconds_bucket{le=\"0.0001\",b=\"c\"} 3",
            "a_seconds_bucket{le=\"1.0\",b=\"c\"} 4",
            "a_seconds_bucket{le=\"+Inf\",b=\"c\"} 4",
            "a_seconds_sum{b=\"c\"} 1.00017",
            "a_seconds_count{b=\"c\"} 4",
        ] {
            assert!(text.lines().any(|written| written == line), "no {line} in {text}");
        }
    }

    #[test]
    fn open_metrics_is_for_those_who_accept_it() {
        for (accept, is_open) in [
            ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5", true),
            ("text/plain", false),
            ("*/*", false),
            ("text/plain, Application/OpenMetrics-Text", true),
        ] {
            let fields = [(header::ACCEPT, HeaderValue::from_static(accept))].into_iter().collect();
            assert_eq!(accepts_open_metrics(&fields), is_open, "{accept}");
        }
        assert!(!accepts_open_metrics(&HeaderMap::new()));
    }
}
