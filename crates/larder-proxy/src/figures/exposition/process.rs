//! Metrics of the process from the system, under the names that Prometheus' own libraries use.
//!
//! Metrics that the system does not provide are left out.

use std::{fs, time::SystemTime};

use rustix::process::{Resource, getrlimit};

use crate::figures::metrics::family::{MetricFamily, MetricKind, MetricSeries, MetricValue, metric_table, series_of};

metric_table! {
    pub(crate) fn metrics("process_", started_s: f64) {
        Counter cpu_seconds[] = "Processor time of the process in seconds", known(cpu_seconds());
        Gauge resident_memory_bytes[] = "Resident memory in bytes", known(memory_bytes("VmRSS:"));
        Gauge virtual_memory_bytes[] = "Virtual memory in bytes", known(memory_bytes("VmSize:"));
        Gauge open_fds[] = "Open files", known(fs::read_dir("/proc/self/fd").map(|files| files.count() as f64).ok());
        Gauge max_fds[] = "Limit of open files", known(getrlimit(Resource::Nofile).current.map(|limit| limit as f64));
        Gauge start_time_seconds = "Start of the process, in Unix time", *started_s;
    }
}

fn known(value: Option<f64>) -> Vec<MetricSeries> {
    value.map(|value| (Vec::new(), MetricValue::Number(value))).into_iter().collect()
}

/// Returns the current Unix time in seconds.
pub(crate) fn now_s() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the resident memory of the process in bytes, or `None` if the system does not report it.
pub(crate) fn resident_bytes() -> Option<u64> {
    memory_bytes("VmRSS:").map(|bytes| bytes as u64)
}

fn memory_bytes(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| (kib << 10) as f64)
}

/// Returns the processor time of this process, in seconds.
///
/// In proc_pid_stat(5), user and system time are the 12th and 13th fields after the name, which may contain any
/// characters.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
