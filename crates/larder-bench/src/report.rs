//! The report: one self-contained page with a table and plots, of one measurement or of several.
//!
//! Owns: the content and its order. Figures that were not measured are left out. Invariant: the page loads nothing;
//! names from outside are escaped.

mod table;

use crate::{bench::BenchResult, load::ResponseTimes};
use larder_sim::{Figure, FigureContent, FigureLine, Hue, Scale};
use std::fmt::Write;

/// Creates an HTML page with these results.
///
/// # Errors
/// The reason why a plot cannot be drawn.
pub fn page(title: &str, results: &[BenchResult]) -> Result<String, String> {
    let mut page = String::new();
    let title = escaped(title);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>{STYLE}</head><body>"
    );
    let _ = write!(page, "<h1>{title}</h1>");
    page += &lead(results);
    page += &table::summary(results);
    page += &table::costs(results);
    for (heading, text, plot) in plots(results) {
        if matches!(&plot.content, FigureContent::Lines(lines) if lines.iter().all(|line| line.points.len() < 2)) {
            continue;
        }
        let svg = plot.to_svg().map_err(|error| error.to_string())?;
        // Cuts off the XML header, which only a separate SVG file needs.
        let svg = svg.find("<svg").map_or(svg.as_str(), |begin| &svg[begin..]);
        let _ = write!(page, "<h2>{heading}</h2><p>{text}</p><figure>{svg}</figure>");
    }
    page += &table::phases(results);
    page += &table::complaints(results);
    page += "</body></html>\n";
    Ok(page)
}

/// Returns the introductory paragraph, which describes the measurements.
fn lead(results: &[BenchResult]) -> String {
    let mut done: Vec<_> = results.iter().map(|result| format!("{}, {}", result.workload, result.load)).collect();
    let mut machines: Vec<_> = results.iter().map(|result| result.machine.as_str()).collect();
    machines.dedup();
    let is_one = done.windows(2).all(|pair| pair[0] == pair[1]);
    if is_one {
        done.truncate(1);
    } else {
        done = results.iter().zip(&done).map(|(result, done)| format!("{}: {done}", result.name)).collect();
    }
    let from = if results.iter().all(|result| result.is_open()) {
        "the moment at which a request was due, not from when it could be sent"
    } else {
        "the moment at which a request was due in an open loop, and from when it was sent in a closed one, where a proxy that stands still is \
         asked less"
    };
    format!(
        "<p class=\"lead\">Workload {}. {}. Every byte of every answer was compared with what the origin has; a hit is an answer that the origin \
         had made for another request. Response times count from {from}.</p>",
        escaped(&done.join("; ")),
        escaped(&machines.join("; ")),
    )
}

fn plots(results: &[BenchResult]) -> Vec<(&'static str, &'static str, Figure)> {
    let mut plots = Vec::new();
    let over_time = |unit: &str, scale, lines| figure("seconds", unit, scale, lines);
    if results.iter().any(|result| !result.peak.is_empty()) {
        plots.push((
            "The search for the peak",
            "Rates that were tried, and the time that 99% of the responses took at most. The dashed line is the limit.",
            peak_plot(results),
        ));
    }
    plots.push((
        "Response times",
        "Share of the responses (in the phases that count) that take longer than the time on the horizontal axis. Hits are solid lines, misses dashed. Lower and further to the left is better.",
        figure("milliseconds", "% of the responses", Scale::Logarithmic, tails(results)),
    ));
    plots.push((
        "Requests answered",
        "By second. The dashed line is the requested rate.",
        over_time("requests/s", Scale::Even, rates(results)),
    ));
    plots.push((
        "Hits",
        "By second. The dashed line is a cache without limits.",
        over_time("% of the requests", Scale::Even, hits(results)),
    ));
    plots.push((
        "Response times during the run",
        "By second, hits and misses together: the 99th percentile, and dashed the median.",
        over_time("milliseconds", Scale::LogarithmicY, response_times(results)),
    ));
    plots.push((
        "Processor time",
        "Of the proxy, in processors, by second.",
        over_time("processors", Scale::Even, per_second(results, |count| count.cpu_s)),
    ));
    plots.push((
        "What reaches the disk",
        "Bytes that all of the machine wrote to the disk (drawn through) and read from it (dashed), by second.",
        over_time("MB/s", Scale::Even, disk(results)),
    ));
    plots.push((
        "What the store takes",
        "Of the disk, as the file system counts it.",
        over_time("MB", Scale::Even, stores(results)),
    ));
    plots
}

fn lines(
    results: &[BenchResult],
    is_dashed: bool,
    points: impl Fn(&BenchResult) -> Vec<(f64, f64)>,
) -> Vec<FigureLine> {
    let named = results.iter().enumerate();
    let lines = named.map(|(place, result)| FigureLine {
        label: if is_dashed { String::new() } else { result.name.clone() },
        points: points(result),
        hue: Hue::Of(place),
        is_dashed,
    });
    lines.collect()
}

fn both(mut through: Vec<FigureLine>, dashed: Vec<FigureLine>) -> Vec<FigureLine> {
    through.extend(dashed);
    through
}

fn rates(results: &[BenchResult]) -> Vec<FigureLine> {
    let answered = lines(results, false, |result| {
        result.seconds.iter().map(|second| (second.at_s as f64, second.answered as f64)).collect()
    });
    let wanted = lines(results.get(..1).unwrap_or_default(), true, |result| {
        result.seconds.iter().map(|second| (second.at_s as f64, second.wanted)).collect()
    });
    both(answered, wanted)
}

fn hits(results: &[BenchResult]) -> Vec<FigureLine> {
    // The ratio of a single second would be unstable, because it has too few requests. Therefore several seconds are
    // combined.
    let smooth = |result: &BenchResult, share: &dyn Fn(crate::load::RequestCounts) -> f64| {
        let sum = |some: &[crate::load::SecondFigures]| {
            some.iter().fold(crate::load::RequestCounts::default(), |sum, second| sum.plus(&second.counts))
        };
        let windows = result.seconds.windows(SMOOTH_SECONDS.min(result.seconds.len().max(1)));
        let shares = windows.map(|some| (some[some.len() / 2].at_s as f64, sum(some)));
        let shares = shares.filter(|(_, sum)| sum.requests > 0);
        shares.map(|(at, sum)| (at, share(sum) * 100.0)).collect()
    };
    let hits = lines(results, false, |result| smooth(result, &|counts| counts.hit_ratio()));
    let offered =
        lines(results.get(..1).unwrap_or_default(), true, |result| smooth(result, &|counts| counts.offered_ratio()));
    both(hits, offered)
}

fn response_times(results: &[BenchResult]) -> Vec<FigureLine> {
    let at = |result: &BenchResult, time: &dyn Fn(&crate::load::SecondFigures) -> u64| {
        let some = result.seconds.iter().filter(|second| time(second) > 0);
        some.map(|second| (second.at_s as f64, time(second) as f64 / 1000.0)).collect()
    };
    both(
        lines(results, false, |result| at(result, &|second| second.p99_us)),
        lines(results, true, |result| at(result, &|second| second.median_us)),
    )
}

fn tails(results: &[BenchResult]) -> Vec<FigureLine> {
    let tail = |times: ResponseTimes| {
        let some = times.quantiles_us.into_iter().filter(|(share, _)| *share < 0.99999);
        some.map(|(share, time)| (time as f64 / 1000.0, (1.0 - share) * 100.0)).collect()
    };
    both(
        lines(results, false, |result| tail(result.result_times(|phase| &phase.hit_times))),
        lines(results, true, |result| tail(result.result_times(|phase| &phase.miss_times))),
    )
}

fn per_second(results: &[BenchResult], count: impl Fn(&crate::kernel::KernelCounts) -> f64) -> Vec<FigureLine> {
    lines(results, false, |result| {
        let pairs = result.kernel.windows(2).filter(|pair| pair[1].is_known && pair[1].at_s > pair[0].at_s + 0.5);
        let rate =
            |pair: &[crate::kernel::KernelCounts]| (count(&pair[1]) - count(&pair[0])) / (pair[1].at_s - pair[0].at_s);
        pairs.map(|pair| (pair[1].at_s, rate(pair).max(0.0))).collect()
    })
}

fn disk(results: &[BenchResult]) -> Vec<FigureLine> {
    let written = per_second(results, |count| count.disk_written_bytes as f64 / 1e6);
    let mut read = per_second(results, |count| count.disk_read_bytes as f64 / 1e6);
    read.iter_mut().for_each(|line| (line.label, line.is_dashed) = (String::new(), true));
    both(written, read)
}

fn stores(results: &[BenchResult]) -> Vec<FigureLine> {
    lines(results, false, |result| {
        let known = result.kernel.iter().filter(|sample| sample.store_bytes > 0);
        known.map(|sample| (sample.at_s, sample.store_bytes as f64 / 1e6)).collect()
    })
}

fn peak_plot(results: &[BenchResult]) -> Figure {
    let mut lines = lines(results, false, |result| {
        let mut points: Vec<_> = result.peak.iter().map(|step| (step.rate, step.p99_us as f64 / 1000.0)).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    });
    let rates = || results.iter().flat_map(|result| &result.peak).map(|step| step.rate);
    let limit = results.iter().map(|result| result.peak_limit_us).max().unwrap_or_default() as f64 / 1000.0;
    let low = rates().fold(f64::INFINITY, f64::min);
    let high = rates().fold(0.0, f64::max);
    let points = vec![(low, limit), (high, limit)];
    lines.push(FigureLine { points, hue: Hue::Gray, is_dashed: true, ..FigureLine::default() });
    figure("requests per second", "99% take at most, milliseconds", Scale::Logarithmic, lines)
}

fn figure(x_label: &str, y_label: &str, scale: Scale, lines: Vec<FigureLine>) -> Figure {
    let x_label = x_label.to_owned();
    let y_label = y_label.to_owned();
    Figure { x_label, y_label, scale, content: FigureContent::Lines(lines), ..Figure::default() }
}

/// Escapes the characters of a text that have a meaning in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const SMOOTH_SECONDS: usize = 5;
const STYLE: &str = "<style>\
body{font:16px/1.5 system-ui,sans-serif;color:#1b1f24;max-width:62rem;margin:2rem auto;padding:0 1.5rem}\
h1{font-size:1.9rem;margin:0 0 .4rem}h2{font-size:1.25rem;margin:2.2rem 0 .2rem}p{margin:.2rem 0 .6rem;color:#454c54}\
.lead{font-size:1.02rem}figure{margin:0}figure svg{width:100%;height:auto}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}\
th,td{padding:.32rem .6rem;text-align:right;border-bottom:1px solid #e3e6ea;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #8a939c;vertical-align:bottom}\
.dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.45em}.bad{color:#b3261e;font-weight:600}\
</style>";

#[cfg(test)]
mod tests;
