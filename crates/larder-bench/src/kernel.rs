//! The kernel's counts of processes and disks.
//!
//! Owns: reading `/proc` and `/sys`, and a thread that does so once a second. Figures that a process reports about
//! itself are not used. Invariant: a process's counts include its living children; counters only grow while they live.
//! A value that cannot be read counts as zero, and `is_known` tells whether any process was counted.

use rustix::param::clock_ticks_per_second;
use serde::{Deserialize, Serialize};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Counters of the kernel, of the watched processes and of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Time of the reading, in seconds after the first one.
    pub at_s: f64,
    /// Processor time of the processes, in seconds.
    pub cpu_s: f64,
    /// Resident memory of the processes, in bytes.
    pub resident_bytes: u64,
    /// Bytes that the processes read from disks.
    pub process_read_bytes: u64,
    /// Bytes that the processes wrote to disks.
    pub process_written_bytes: u64,
    /// Number of read operations of the disk, by all programs.
    pub disk_reads: u64,
    /// Bytes read from the disk by all programs.
    pub disk_read_bytes: u64,
    /// Number of write operations of the disk, by all programs.
    pub disk_writes: u64,
    /// Bytes written to the disk by all programs.
    pub disk_written_bytes: u64,
    /// Disk space in bytes that the proxy's store takes, according to the file system. 0 if unknown.
    pub store_bytes: u64,
    /// Whether the counters of at least one process could be read.
    pub is_known: bool,
}

/// The processes, the disk and the store whose counters are read.
#[derive(Clone, Debug, Default)]
pub struct WatchedProcesses {
    /// Numbers of the processes. The counters include their child processes.
    pub pids: Vec<u32>,
    /// The kernel's name of a disk or partition, such as `vda`.
    pub disk: Option<String>,
    /// The folder or file of the proxy's store.
    pub store: Option<PathBuf>,
}

impl WatchedProcesses {
    /// Returns the kernel's name of the disk that contains `path`. `None` if no disk does.
    pub fn disk_of(path: &Path) -> Option<String> {
        let number = fs::metadata(path).ok()?.dev();
        let major = rustix::fs::major(number);
        let minor = rustix::fs::minor(number);
        let place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Some(place.file_name()?.to_str()?.to_owned())
    }

    /// Returns whether this machine has a disk or partition with this name.
    pub fn has_disk(name: &str) -> bool {
        disk_line(name).is_some()
    }

    /// Reads all counters except the size of the store.
    pub fn count(&self, begun: Instant) -> KernelCounts {
        let mut counts = KernelCounts { at_s: begun.elapsed().as_secs_f64(), ..KernelCounts::default() };
        let mut left: Vec<u32> = self.pids.clone();
        while let Some(pid) = left.pop() {
            counts.is_known |= count_process(pid, &mut counts).is_some();
            left.extend(children(pid));
        }
        if let Some(disk) = &self.disk {
            count_disk(disk, &mut counts);
        }
        counts
    }
}

fn count_process(pid: u32, counts: &mut KernelCounts) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the process's name, which may contain spaces and parentheses. The numbers follow its last
    // parenthesis.
    let numbers: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| numbers.get(at).and_then(|text| text.parse::<u64>().ok());
    counts.cpu_s += (number(11)? + number(12)?) as f64 / clock_ticks_per_second() as f64;
    counts.resident_bytes += number(21)? * rustix::param::page_size() as u64;
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    for line in io.lines() {
        match line.split_once(": ") {
            Some(("read_bytes", bytes)) => counts.process_read_bytes += bytes.parse::<u64>().unwrap_or_default(),
            Some(("write_bytes", bytes)) => counts.process_written_bytes += bytes.parse::<u64>().unwrap_or_default(),
            _ => {}
        }
    }
    Some(())
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().filter_map(|text| text.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Returns the disk space of a file, or of a folder with everything in it, in bytes. A file that appears or disappears
/// meanwhile may or may not be counted.
fn bytes_under(path: &Path) -> u64 {
    let mut bytes = 0;
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        bytes += found.blocks() * SECTOR_BYTES;
        if found.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    bytes
}

/// Returns the columns of the disk's line in `/proc/diskstats`. `None` if the disk does not exist.
fn disk_line(disk: &str) -> Option<Vec<String>> {
    let table = fs::read_to_string("/proc/diskstats").ok()?;
    let mut lines = table.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    lines.find(|words| words.get(2).is_some_and(|name| name == disk))
}

fn count_disk(disk: &str, counts: &mut KernelCounts) {
    let Some(line) = disk_line(disk) else { return };
    let number = |at: usize| line.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    counts.disk_reads = number(3);
    counts.disk_read_bytes = number(5) * SECTOR_BYTES;
    counts.disk_writes = number(7);
    counts.disk_written_bytes = number(9) * SECTOR_BYTES;
}

/// A thread that reads the counters once a second until it is stopped.
pub(crate) struct Sampler {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<Vec<KernelCounts>>,
}

impl Sampler {
    pub(crate) fn start(watched: Arc<WatchedProcesses>) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("bench-kernel".to_owned()).spawn(move || {
            let begun = Instant::now();
            let mut store = StoreSize::default();
            let mut count = || KernelCounts { store_bytes: store.of(watched.store.as_deref()), ..watched.count(begun) };
            let mut samples = vec![count()];
            while stopped.recv_timeout(SAMPLE_EVERY) == Err(RecvTimeoutError::Timeout) {
                samples.push(count());
            }
            samples.push(count());
            samples
        })?;
        Ok(Self { stop, thread })
    }

    pub(crate) fn finish(self) -> Vec<KernelCounts> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Measures the disk space of a store so rarely that it costs little, and keeps the last result.
#[derive(Default)]
struct StoreSize {
    bytes: u64,
    next: Option<Instant>,
}

impl StoreSize {
    fn of(&mut self, store: Option<&Path>) -> u64 {
        let now = Instant::now();
        if let Some(store) = store.filter(|_| self.next.is_none_or(|next| now >= next)) {
            self.bytes = bytes_under(store);
            self.next = Some(now + now.elapsed() * STORE_PAUSE);
        }
        self.bytes
    }
}

/// Returns a short description of the machine: its processors and its kernel.
pub(crate) fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown");
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {}, Linux {}", model.trim_start_matches(['\t', ' ', ':']), kernel.trim())
}

const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Pause between two measurements of a store's size, as a multiple of the time that one takes.
const STORE_PAUSE: u32 = 50;
/// Size in bytes of the sectors in the kernel's counters. It does not depend on the disk.
const SECTOR_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_disk_are_counted() {
        let disk = WatchedProcesses::disk_of(Path::new("/"));
        let watched = WatchedProcesses { pids: vec![std::process::id()], disk, store: None };
        let counts = watched.count(Instant::now());
        assert!(counts.is_known && counts.resident_bytes > 1 << 20, "{counts:?}");
        let nobody = WatchedProcesses { pids: vec![u32::MAX], disk: Some("nothing".to_owned()), store: None };
        assert!(!nobody.count(Instant::now()).is_known);
    }

    #[test]
    fn a_sampler_counts_at_its_begin_and_its_end() {
        let store = tempfile::tempdir().unwrap();
        fs::create_dir(store.path().join("inner")).unwrap();
        fs::write(store.path().join("inner/file"), vec![1; 100_000]).unwrap();
        let watched =
            WatchedProcesses { pids: vec![std::process::id()], disk: None, store: Some(store.path().to_owned()) };
        let samples = Sampler::start(Arc::new(watched)).unwrap().finish();
        assert_eq!(samples.len(), 2);
        assert!(samples[1].cpu_s >= samples[0].cpu_s);
        assert!((100_000..200_000).contains(&samples[0].store_bytes), "{samples:?}");
    }
}
