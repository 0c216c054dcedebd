//! Prints the result of `larder bench`.
//!
//! Owns: the wording. The figures are computed elsewhere. Invariant: reasons to doubt the figures are printed below
//! them.

use crate::{
    ground::{failure::Failure, output::print_line, size},
    run::report,
};
use larder_bench::{BenchResult, Complaint, PhaseFigures};

/// Prints a result as text.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print(result: &BenchResult) -> Result<(), Failure> {
    print_line!("{}: {}, {}", result.name, result.workload, result.load)?;
    print_line!(
        "{:10}{:>11}{:>8}{:>9}{:>11}{:>11}{:>11}{:>11}",
        "",
        "responses/s",
        "hits",
        "offered",
        "50%, ms",
        "99%, ms",
        "99.9%, ms",
        "max, ms"
    )?;
    for phase in result.phases.iter().filter(|phase| phase.counts.requests > 0) {
        print_line!("  {}", line(phase))?;
    }
    for step in &result.peak {
        let mark = if step.passed { "kept" } else { "not kept" };
        let late = if step.late_us > LATE_US { format!(" ({:.2} ms late)", ms(step.late_us)) } else { String::new() };
        let rate = report::rate(step.rate);
        let p99 = ms(step.p99_us);
        print_line!("  {rate:>9} requests/s{late}  {p99:.2} ms for 99%, {} failed: {mark}", step.failed)?;
    }
    if let Some(lowest) = result.peak.iter().map(|step| step.rate).reduce(f64::min) {
        let none =
            || format!("none: even {} requests/s were not answered in time; try a lower --rate", report::rate(lowest));
        print_line!(
            "  peak     {}",
            result.peak_rate().map_or_else(none, |rate| format!("{} requests/s", report::rate(rate)))
        )?;
    }
    totals(result)?;
    for Complaint { what, first, count } in &result.complaints {
        print_line!("  wrong    {what}: {} times, first {first}", size::show_count(*count))?;
    }
    if let Some(doubt) = result.doubt() {
        print_line!("  warning  {doubt}")?;
    }
    if result.ended_early.is_some() {
        print_line!("  warning  a signal ended it early")?;
    }
    Ok(())
}

fn line(phase: &PhaseFigures) -> String {
    let time = |share| format!("{:.2}", ms(phase.times.quantile_us(share)));
    format!(
        "{:8}{:>11}{:>7.1}%{:>8.1}%{:>11}{:>11}{:>11}{:>11}",
        phase.name,
        report::rate(phase.per_second),
        phase.counts.hit_ratio() * 100.0,
        phase.counts.offered_ratio() * 100.0,
        time(0.5),
        time(0.99),
        time(0.999),
        time(1.0),
    )
}

fn totals(result: &BenchResult) -> Result<(), Failure> {
    let totals = result.totals();
    print_line!(
        "  all      {} requests, {} failed, {} wrong, {} outdated, {} forbidden hits, {} broken off on purpose; {} at the origin",
        size::show_count(totals.requests),
        totals.failed,
        totals.wrong,
        totals.outdated,
        totals.forbidden,
        totals.broken_off,
        size::show_count(result.origin_requests),
    )?;
    let Some(kernel) = result.kernel_total() else { return Ok(()) };
    print_line!(
        "  proxy    {:.1} us of CPU a request, {} of memory, {} written to the disk, {} read",
        kernel.cpu_s * 1e6 / totals.requests.max(1) as f64,
        size::show(kernel.resident_bytes),
        size::show(kernel.process_written_bytes),
        size::show(kernel.process_read_bytes),
    )?;
    if kernel.store_bytes > 0 {
        print_line!("  store    {} of the disk at most", size::show(kernel.store_bytes))?;
    }
    Ok(())
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Delay of requests behind their due time, in microseconds, above which the report mentions the delay.
const LATE_US: u64 = 500;
