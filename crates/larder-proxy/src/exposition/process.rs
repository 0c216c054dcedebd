//! Metrics of the process from the system, under the names that Prometheus' own libraries use.
//!
//! Metrics that the system does not provide are left out.

use std::{fmt, fs, time::SystemTime};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use rustix::process::{Resource, getrlimit};

/// The figures of the process.
#[derive(Debug)]
pub(super) struct ProcessFigures {
    started_s: f64,
}

impl ProcessFigures {
    /// Creates the figures. The process counts as started now.
    pub(super) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { started_s: since_epoch.as_secs_f64() }
    }
}

impl Collector for ProcessFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = cpu_seconds() {
            let help = "Processor time of the process in seconds";
            let counter = ConstCounter::new(seconds);
            counter.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let open_files = fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory in bytes", bytes_of(&status, "VmRSS:")),
            ("process_virtual_memory_bytes", "Virtual memory in bytes", bytes_of(&status, "VmSize:")),
            ("process_open_fds", "Open files", open_files.map(|count| count as f64)),
            ("process_max_fds", "Limit of open files", getrlimit(Resource::Nofile).current.map(|limit| limit as f64)),
            ("process_start_time_seconds", "Start of the process, in Unix time", Some(self.started_s)),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

/// Returns the process's resident memory, as reported by the system.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    bytes_of(&status, "VmRSS:").map(|bytes| bytes as u64)
}

fn bytes_of(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| (kib << 10) as f64)
}

/// Returns the processor time of this process. In proc_pid_stat(5), these are the 12th and 13th fields after the name,
/// which may contain any characters.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
