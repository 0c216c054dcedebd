//! Keeps the tables of docs/reference/metrics.md equal to the rows, and the rows to Prometheus' conventions.

use std::{env, fmt::Write as _, fs};

use super::*;

/// The page, relative to this crate. Its tables are made from the rows; its other text is written by hand.
const PAGE: &str = "../../docs/reference/metrics.md";

/// Returns all metrics, in the order of their names. Those of workers have the values of a start.
fn all() -> Vec<MetricFamily> {
    let mut all = ProxyStats::sum(&[]).metrics();
    all.extend([totals(None), current(None), health::metrics(None), memory::metrics(None), lifetime(None)].concat());
    all.extend([fleet::log(None), fleet::nodes(None), fleet::siblings(None), tier::metrics(None)].concat());
    all.extend([store::metrics(None), sites::metrics(None), process::metrics(None)].concat());
    all.sort_by_key(MetricFamily::full_name);
    all
}

/// Returns the names of a metric's labels, each with its values if they are known and few.
fn labels(metric: &MetricFamily) -> String {
    let labels = metric.labels.iter().enumerate().map(|(at, label)| {
        let mut values: Vec<String> = metric.series.iter().map(|(labels, _)| format!("`{}`", labels[at])).collect();
        values.dedup();
        match values.len() {
            1..=VALUES_MAX => format!("`{label}`: {}", values.join(", ")),
            _ => format!("`{label}`"),
        }
    });
    labels.collect::<Vec<_>>().join("; ")
}

/// Returns the heading under which the page lists a metric.
fn section(metric: &MetricFamily) -> &'static str {
    let is_of = |prefixes: &[&str]| prefixes.iter().any(|prefix| metric.name.starts_with(prefix));
    match () {
        () if metric.kind == MetricKind::Histogram => "Time",
        () if is_of(&["larder_site_"]) => "Sites",
        () if is_of(&["larder_memory_", "larder_resident_", "larder_window_"]) => "Memory",
        () if is_of(&["larder_store_"]) => "Store",
        () if is_of(&["larder_lifetime_"]) => "Over all runs",
        () if is_of(&["larder_fleet_", "larder_sibling_"]) => "Fleet",
        () if is_of(&["larder_tier_"]) => "Second tier",
        () if is_of(&["process_", "larder_build_", "larder_node_"]) => "Process",
        () if is_of(&["larder_connections", "larder_exchanges_", "larder_origin_", "larder_offline"]) => ORIGINS,
        () if is_of(&[
            "larder_certificate_",
            "larder_waiting_",
            "larder_flights",
            "larder_collapsed_",
            "larder_range_",
        ]) =>
        {
            ORIGINS
        }
        () => "Requests and bytes",
    }
}

#[test]
fn tables_of_the_metrics_reference_are_made_from_the_rows() {
    let before = fs::read_to_string(PAGE).unwrap();
    let all = all();
    let mut page = String::new();
    let mut heading = "";
    let mut listed = 0;
    for line in before.lines().filter(|line| !line.starts_with("| `larder_") && !line.starts_with("| `process_")) {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        writeln!(page, "{line}").unwrap();
        if line != "|---|---|---|---|" {
            continue;
        }
        for metric in all.iter().filter(|metric| section(metric) == heading) {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            writeln!(page, "| `{}` | {kind} | {} | {} |", metric.full_name(), labels(metric), metric.help).unwrap();
            listed += 1;
        }
    }
    assert_eq!(listed, all.len(), "each metric has a section with a table");
    if env::var_os("LARDER_WRITE_DOCS").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    assert!(fs::read_to_string(PAGE).unwrap() == page, "{PAGE} is outdated: write it as its second paragraph says");
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for metric in all() {
        let name = metric.full_name();
        let MetricFamily { kind, labels, help, .. } = metric;
        let parts: Vec<&str> = name.split('_').collect();
        assert!(
            parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_lowercase()) && !part.is_empty()),
            "{name}"
        );
        assert_eq!(parts.last() == Some(&"total"), kind == MetricKind::Counter, "{name}");
        assert!(!["count", "sum", "bucket"].contains(parts.last().unwrap()), "{name}");
        // A unit is the last word, except for what says how it is counted.
        let unit_end = parts.len() - parts.iter().rev().take_while(|part| ["total", "max"].contains(part)).count();
        let units = ["bytes", "seconds"];
        assert!(parts[..unit_end - 1].iter().all(|part| !units.contains(part)), "{name}");
        let is_moment = help.contains("Unix time");
        assert_eq!(is_moment, name.ends_with("_timestamp_seconds") || name == "process_start_time_seconds", "{name}");
        let known = ["outcome", "result", "status", "reason", "site", "node", "origin", "name", "part", "version"];
        assert!(labels.iter().all(|label| known.contains(label)), "{name}: {labels:?}");
        assert!(
            help.len() > 5 && help.starts_with(|first: char| first.is_ascii_uppercase() || first == '1'),
            "{name}: {help}"
        );
    }
}

const ORIGINS: &str = "Connections and origins";
/// Maximum number of values of one label that the page lists.
const VALUES_MAX: usize = 8;
