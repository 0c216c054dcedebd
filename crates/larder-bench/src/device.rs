//! The measurement of a disk or file system for `larder plan`: `larder bench device`.
//!
//! Owns: the order of the measurements, and the time of each. I/O goes through the engine's own devices. Invariant:
//! everything created is removed again. Only Larder's own scratch files, and block devices without content, are
//! written. Cost: the given time, and the scratch file's bytes.

mod beside;
mod files;
mod pump;
mod scratch;

use beside::MixedRates;
use larder_device::Device;
use larder_store::{
    IoChoice,
    plan::{BesideReads, DeviceFigures, READ_BYTES, READ_DEPTHS, ReadFigure, WriteFigure},
};
use pump::{Pump, PumpWork};
use scratch::ScratchSpace;
use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

const WRITE_BYTES: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 64 << 10];
const WRITE_DEPTHS: [u32; 3] = [1, 16, 64];
const SEQUENTIAL_BYTES: u64 = 1 << 20;
const SEQUENTIAL_DEPTH: u32 = 8;
/// Time for a measurement of sequential transfers, as a multiple of that for one of random transfers. `FILE_PARTS` is
/// the same for files.
const SEQUENTIAL_PARTS: u32 = 2;
const FILE_PARTS: u32 = 12;
/// Length in bytes of the reads that run at the same time as writes.
const BESIDE_BYTES: u64 = 16 << 10;
const BESIDE_DEPTH: u32 = 64;
const BESIDE_PARTS: u32 = 2;
/// Minimum size of the measured area, in bytes. A smaller one would fit into the disk's own memory, and sequential
/// reads would wrap around.
const SPAN_BYTES_MIN: u64 = 16 << 20;

/// The settings of a measurement of a disk.
#[derive(Clone, Debug)]
pub struct DeviceJob {
    /// The place to measure: a directory, a file that does not exist yet, or a block device without content.
    pub path: PathBuf,
    /// Size in bytes of the area over which reads and writes are spread. It is the size of the scratch file.
    pub span_bytes: u64,
    /// Duration of all measurements together, not counting the time to fill the scratch file.
    pub time: Duration,
    /// The I/O interface of the kernel that is measured.
    pub io: IoChoice,
}

/// The reason why a disk cannot be measured.
#[derive(Debug)]
pub struct DeviceError {
    what: String,
    path: PathBuf,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DeviceError {
    fn new(what: impl Into<String>, path: &Path) -> Self {
        Self { what: what.into(), path: path.to_owned(), source: None }
    }

    fn of(what: &str, path: &Path, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..Self::new(what, path) }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.path.display())?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

/// Measures a disk. Calls `progress` with the current step and the completed share, from 0 to 1.
///
/// # Errors
/// The path is unusable, contains other data or has no room, or the device fails.
pub fn measure_device(job: &DeviceJob, progress: &mut dyn FnMut(&str, f64)) -> Result<DeviceFigures, DeviceError> {
    if job.span_bytes < SPAN_BYTES_MIN {
        return Err(DeviceError::new(format!("too few bytes to measure, less than {SPAN_BYTES_MIN}"), &job.path));
    }
    let load_average = load_average();
    progress("writing the scratch file", 0.0);
    let scratch = ScratchSpace::open(&job.path, job.span_bytes, job.io)?;
    let mut steps = MeasureSteps { job, done: 0, progress };
    let device = &scratch.device;
    let sequential_write = steps.sequential(device, "sequential writes", PumpWork::SequentialWrite)?;
    let sequential_read = steps.sequential(device, "sequential reads", PumpWork::SequentialRead)?;
    let reads = steps.reads(device)?;
    let writes = steps.writes(device)?;
    let beside_reads = Some(steps.beside_reads(device, sequential_write)?);
    let mut figures = DeviceFigures {
        path: job.path.display().to_string(),
        io: device.name().to_owned(),
        is_direct: scratch.is_direct,
        span_bytes: device.len_bytes(),
        load_average,
        reads,
        writes,
        sequential_read,
        sequential_write,
        beside_reads,
        files: None,
    };
    if let Some(directory) = scratch.directory.clone() {
        let time = steps.next("files", FILE_PARTS);
        // The scratch file is removed first, because the files need its disk space.
        drop(scratch);
        figures.files = Some(files::measure(&directory, time)?);
    }
    (steps.progress)("done", 1.0);
    Ok(figures)
}

/// Runs the measurements one after the other, each with its share of the time.
struct MeasureSteps<'a> {
    job: &'a DeviceJob,
    done: u32,
    progress: &'a mut dyn FnMut(&str, f64),
}

const PARTS: u32 = (READ_BYTES.len() * READ_DEPTHS.len() + WRITE_BYTES.len() * WRITE_DEPTHS.len()) as u32
    + 2 * SEQUENTIAL_PARTS
    + 4 * BESIDE_PARTS
    + FILE_PARTS;

impl MeasureSteps<'_> {
    /// Reports the start of the next step, which gets `parts` shares of the time. Returns its duration.
    fn next(&mut self, what: &str, parts: u32) -> Duration {
        (self.progress)(what, f64::from(self.done) / f64::from(PARTS));
        self.done += parts;
        self.job.time * parts / PARTS
    }

    fn run(&mut self, what: &str, parts: u32, pump: &mut Pump) -> Result<pump::PumpFigures, DeviceError> {
        let time = self.next(what, parts);
        pump.run(time).map_err(|error| DeviceError::of("the device failed", &self.job.path, error))
    }

    fn sequential(
        &mut self,
        device: &std::sync::Arc<dyn Device>,
        what: &str,
        work: PumpWork,
    ) -> Result<f64, DeviceError> {
        let mut pump = Pump::new(device, work, SEQUENTIAL_BYTES, SEQUENTIAL_DEPTH);
        let outcome = self.run(what, SEQUENTIAL_PARTS, &mut pump)?;
        Ok(outcome.per_second * SEQUENTIAL_BYTES as f64)
    }

    fn reads(&mut self, device: &std::sync::Arc<dyn Device>) -> Result<Vec<ReadFigure>, DeviceError> {
        let mut figures = Vec::new();
        for read_bytes in READ_BYTES {
            for depth in READ_DEPTHS {
                let mut pump = Pump::new(device, PumpWork::RandomRead, read_bytes, depth);
                let what = format!("random reads of {} KiB, {depth} in flight", read_bytes >> 10);
                let outcome = self.run(&what, 1, &mut pump)?;
                figures.push(ReadFigure {
                    read_bytes,
                    depth,
                    per_second: outcome.per_second,
                    mean_us: outcome.mean_us,
                    p99_us: outcome.p99_us,
                    cpu_us: outcome.cpu_us,
                });
            }
        }
        Ok(figures)
    }

    fn writes(&mut self, device: &std::sync::Arc<dyn Device>) -> Result<Vec<WriteFigure>, DeviceError> {
        let mut figures = Vec::new();
        for write_bytes in WRITE_BYTES {
            for depth in WRITE_DEPTHS {
                let mut pump = Pump::new(device, PumpWork::RandomWrite, write_bytes, depth);
                let what = format!("random writes of {} KiB, {depth} in flight", write_bytes >> 10);
                let outcome = self.run(&what, 1, &mut pump)?;
                let per_second = outcome.per_second;
                let cpu_us = outcome.cpu_us;
                figures.push(WriteFigure { write_bytes, depth, per_second, cpu_us });
            }
        }
        Ok(figures)
    }

    /// Measures writes at the same time as reads. First measures reads alone again, so that the two results are from
    /// the same stage of the run and can be compared.
    fn beside_reads(
        &mut self,
        device: &std::sync::Arc<dyn Device>,
        sequential_write: f64,
    ) -> Result<BesideReads, DeviceError> {
        let group = |work: PumpWork| work.write_every(BESIDE_BYTES).unwrap_or(1);
        let mut rate = |what: &str, work: PumpWork| {
            let mut pump = Pump::new(device, work, BESIDE_BYTES, BESIDE_DEPTH);
            Ok(self.run(what, BESIDE_PARTS, &mut pump)?.per_second / group(work) as f64)
        };
        let rates = MixedRates {
            reads: rate("random reads", PumpWork::RandomRead)?,
            groups: rate("random reads during sequential writes", PumpWork::ReadsAndSequentialWrites)?,
            writes: rate("random writes", PumpWork::RandomWrite)?,
            pairs: rate("random reads during random writes", PumpWork::ReadsAndWrites)?,
            reads_per_group: (group(PumpWork::ReadsAndSequentialWrites) - 1) as f64,
            group_bytes: SEQUENTIAL_BYTES as f64,
            sequential_write,
        };
        Ok(rates.beside_reads())
    }
}

/// Returns the load average of the last minute. 0 if the kernel does not provide it.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default()
}
