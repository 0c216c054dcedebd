//! The tables of a report.

use super::escaped;
use crate::{
    bench::BenchResult,
    load::{Complaint, ResponseTimes},
};
use larder_sim::color_of;
use std::fmt::Write;

/// Creates the table of the main results, with a row for each proxy.
pub(super) fn summary(results: &[BenchResult]) -> String {
    let has_peak = results.iter().any(|result| !result.peak.is_empty());
    let mut heads = vec!["", "requests/s", "hits", "offered", "hits of<br>offered", "bytes hit"];
    if has_peak {
        heads.insert(1, "peak,<br>requests/s");
    }
    heads.extend(["hits, ms<br>50% / 99%", "misses, ms<br>50% / 99%", "failed", "wrong"]);
    let rows = results.iter().enumerate().map(|(number, result)| {
        let counts = result.results();
        let totals = result.totals();
        let phases = result.result_phases();
        let seconds: f64 = phases.iter().map(|phase| phase.lasted_s).sum();
        let answers: f64 = phases.iter().map(|phase| phase.per_second * phase.lasted_s).sum();
        let times = |times: ResponseTimes| {
            format!("{} / {}", milliseconds(times.quantile_us(0.5)), milliseconds(times.quantile_us(0.99)))
        };
        let mut cells = vec![
            named(number, result),
            format!("{:.0}", answers / seconds.max(f64::MIN_POSITIVE)),
            percent(counts.hit_ratio()),
            percent(counts.offered_ratio()),
            percent(counts.hit_ratio() / counts.offered_ratio().max(f64::MIN_POSITIVE)),
            percent(counts.hit_bytes as f64 / counts.body_bytes.max(1) as f64),
            times(result.result_times(|phase| &phase.hit_times)),
            times(result.result_times(|phase| &phase.miss_times)),
        ];
        if has_peak {
            cells.insert(1, result.peak_rate().map_or("none".to_owned(), |rate| format!("<b>{rate:.0}</b>")));
        }
        cells.extend([totals.failed, totals.lies()].map(bad));
        cells
    });
    rows_of(&heads, rows)
}

/// Creates the table of resource use, with a row for each proxy. Returns an empty text if no proxy has known kernel
/// counts.
pub(super) fn costs(results: &[BenchResult]) -> String {
    let is_known = |result: &BenchResult| result.kernel_total().is_some_and(|kernel| kernel.is_known);
    if !results.iter().any(is_known) {
        return String::new();
    }
    let heads = [
        "",
        "CPU a<br>request",
        "memory",
        "store on<br>disk, at most",
        "written<br>to disk",
        "read<br>from disk",
        "written a<br>byte missed",
    ];
    let rows = results.iter().enumerate().map(|(number, result)| {
        let Some(kernel) = result.kernel_total().filter(|kernel| kernel.is_known) else {
            return [vec![named(number, result)], vec!["-".to_owned(); heads.len() - 1]].concat();
        };
        let totals = result.totals();
        let missed_bytes = (totals.body_bytes - totals.hit_bytes).max(1) as f64;
        let megabytes = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
        vec![
            named(number, result),
            format!("{:.0} us", kernel.cpu_s * 1e6 / totals.requests.max(1) as f64),
            megabytes(kernel.resident_bytes),
            if kernel.store_bytes > 0 { megabytes(kernel.store_bytes) } else { "-".to_owned() },
            megabytes(kernel.process_written_bytes),
            megabytes(kernel.process_read_bytes),
            format!("{:.2}", kernel.process_written_bytes as f64 / missed_bytes),
        ]
    });
    let text = "Of the proxy and its children, over the whole run, as the kernel counts it. The page cache is nobody's memory here.";
    format!("<h2>What it takes</h2><p>{text}</p>{}", rows_of(&heads, rows))
}

fn named(number: usize, result: &BenchResult) -> String {
    format!("<span class=\"dot\" style=\"background:{}\"></span>{}", color_of(number), escaped(&result.name))
}

/// Creates the table of phases, with a row for each phase of each proxy.
pub(super) fn phases(results: &[BenchResult]) -> String {
    let heads = [
        "phase",
        "",
        "seconds",
        "requests/s",
        "hits",
        "offered",
        "50%, ms",
        "95%, ms",
        "99%, ms",
        "99.9%, ms",
        "failed",
    ];
    let rows = results.iter().flat_map(|result| result.phases.iter().map(move |phase| (result, phase)));
    let rows = rows.map(|(result, phase)| {
        let quantile = |share| milliseconds(phase.times.quantile_us(share));
        let mark = if phase.counts_as_result { " *" } else { "" };
        vec![
            format!("{}{mark}", escaped(&phase.name)),
            escaped(&result.name),
            format!("{:.0}", phase.lasted_s),
            format!("{:.0}", phase.per_second),
            percent(phase.counts.hit_ratio()),
            percent(phase.counts.offered_ratio()),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            quantile(0.999),
            bad(phase.counts.failed + phase.counts.lies()),
        ]
    });
    format!("<h2>Phases</h2><p>Results are taken from those with a star.</p>{}", rows_of(&heads, rows))
}

/// Creates a list of the failures, and of reasons why figures may not describe the proxy.
pub(super) fn complaints(results: &[BenchResult]) -> String {
    let mut text = String::new();
    for result in results {
        let name = escaped(&result.name);
        for Complaint { what, first, count } in &result.complaints {
            let _ = write!(text, "<li>{name}: {}, {count} times, first {}</li>", escaped(what), escaped(first));
        }
        if let Some(doubt) = result.doubt() {
            let _ = write!(text, "<li>{name}: {}</li>", escaped(&doubt));
        }
        if result.ended_early.is_some() {
            let _ = write!(text, "<li>{name}: a signal ended it before its time</li>");
        }
    }
    if text.is_empty() { text } else { format!("<h2>What went wrong</h2><ul>{text}</ul>") }
}

fn rows_of(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = String::from("<div class=\"wide\"><table><thead><tr>");
    heads.iter().for_each(|head| table += &format!("<th>{head}</th>"));
    table += "</tr></thead><tbody>";
    for row in rows {
        table += "<tr>";
        row.iter().for_each(|cell| table += &format!("<td>{cell}</td>"));
        table += "</tr>";
    }
    table + "</tbody></table></div>"
}

fn bad(count: u64) -> String {
    if count == 0 { "0".to_owned() } else { format!("<span class=\"bad\">{count}</span>") }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn milliseconds(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}
