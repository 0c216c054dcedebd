//! The tables of a report.

use super::escaped;
use crate::{bench::BenchResult, load::Times};
use larder_sim::colour_of;
use std::fmt::Write;

/// One line for each proxy.
pub(super) fn summary(results: &[BenchResult]) -> String {
    let has_peak = results.iter().any(|result| !result.peak.is_empty());
    let mut heads = vec!["", "requests/s", "hits", "offered", "hits of<br>offered", "bytes hit"];
    if has_peak {
        heads.insert(1, "peak,<br>requests/s");
    }
    heads.extend(["hits, ms<br>50% / 99%", "misses, ms<br>50% / 99%", "CPU a<br>request", "memory"]);
    heads.extend(["written a<br>byte missed", "failed", "wrong"]);
    let rows = results.iter().enumerate().map(|(number, result)| {
        let (counts, totals) = (result.results(), result.totals());
        let kernel = result.kernel_total().unwrap_or_default();
        let phases = result.result_phases();
        let seconds: f64 = phases.iter().map(|phase| phase.lasted_s).sum();
        let times = |times: &dyn Fn(&crate::load::PhaseFigures) -> Times| {
            let largest = phases.iter().map(|phase| times(phase)).max_by_key(|times| times.count).unwrap_or_default();
            format!("{} / {}", milliseconds(largest.quantile_us(0.5)), milliseconds(largest.quantile_us(0.99)))
        };
        let all = totals.requests.max(1) as f64;
        let missed_bytes = (totals.body_bytes - totals.hit_bytes).max(1) as f64;
        let dot = format!("<span class=\"dot\" style=\"background:{}\"></span>", colour_of(number));
        let mut cells = vec![
            format!("{dot}{}", escaped(&result.name)),
            format!("{:.0}", (counts.hits + counts.misses) as f64 / seconds.max(f64::MIN_POSITIVE)),
            percent(counts.hit_ratio()),
            percent(counts.offered_ratio()),
            percent(counts.hit_ratio() / counts.offered_ratio().max(f64::MIN_POSITIVE)),
            percent(counts.hit_bytes as f64 / counts.body_bytes.max(1) as f64),
            times(&|phase| phase.hit_times.clone()),
            times(&|phase| phase.miss_times.clone()),
        ];
        if has_peak {
            cells.insert(1, result.peak_rate().map_or("none".to_owned(), |rate| format!("<b>{rate:.0}</b>")));
        }
        if kernel.is_known {
            cells.push(format!("{:.0} us", kernel.cpu_s * 1e6 / all));
            cells.push(format!("{:.0} MB", kernel.resident_bytes as f64 / 1e6));
            cells.push(format!("{:.2}", kernel.process_written_bytes as f64 / missed_bytes));
        } else {
            cells.extend(["-", "-", "-"].map(str::to_owned));
        }
        cells.extend([totals.failed, totals.wrong + totals.outdated].map(bad));
        cells
    });
    rows_of(&heads, rows)
}

/// One line for each phase of each proxy.
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
            bad(phase.counts.failed + phase.counts.wrong),
        ]
    });
    format!("<h2>Phases</h2><p>Results are taken from those with a star.</p>{}", rows_of(&heads, rows))
}

/// What went wrong first.
pub(super) fn complaints(results: &[BenchResult]) -> String {
    let mut text = String::new();
    for result in results {
        for complaint in &result.complaints {
            let _ = write!(text, "<li>{}: {}</li>", escaped(&result.name), escaped(complaint));
        }
    }
    if text.is_empty() { text } else { format!("<h2>What went wrong first</h2><ul>{text}</ul>") }
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
