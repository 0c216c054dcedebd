//! The measured figures of a device, as data, and interpolation between them.
//!
//! Owns: the figures and the interpolation. Measuring is elsewhere. Invariant: an interpolated rate lies between those
//! of the neighboring points. Beyond the last point, time grows with the bytes.

/// Lengths in bytes at which random reads are measured.
pub const READ_BYTES: [u64; 6] = [4 << 10, 8 << 10, 12 << 10, 16 << 10, 64 << 10, 128 << 10];
/// Numbers of I/O operations in flight at which the device is measured.
pub const READ_DEPTHS: [u32; 4] = [1, 4, 16, 64];

/// A device counts as having a queue if a read among many takes at most this share of the time of a read alone. Without
/// a queue, the two measured times differ by less.
const QUEUE_GAIN: f64 = 0.9;

/// Time of a read in seconds above which the device must be a spinning disk. Flash takes 0.1 ms, spinning disks 6 ms
/// and more.
const ARM_SECONDS_MIN: f64 = 0.002;

/// The measured speed of random reads of one length, at one number in flight.
///
/// ```
/// use larder_store::plan::{DeviceFigures, ReadFigure};
///
/// let figures = DeviceFigures::typical_solid_state();
/// let is_short = |read: &&ReadFigure| (read.read_bytes, read.depth) == (4096, 64);
/// let read = figures.reads.iter().find(is_short).expect("one of the measured lengths and depths");
/// assert_eq!(figures.read_seconds(4096.0, 64), 1.0 / read.per_second);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReadFigure {
    /// Length of each read in bytes.
    pub read_bytes: u64,
    /// Number of reads in flight.
    pub depth: u32,
    /// Reads per second.
    pub per_second: f64,
    /// Mean time of a read, in microseconds.
    pub mean_us: f64,
    /// 99th percentile of the time of a read, in microseconds.
    pub p99_us: f64,
    /// Processor time of a read, in microseconds.
    pub cpu_us: f64,
}

/// The measured speed of random writes of one length, at one number in flight.
///
/// ```
/// use larder_store::plan::{DeviceFigures, WriteFigure};
///
/// let writes = vec![WriteFigure { write_bytes: 4096, depth: 16, per_second: 20_000.0, cpu_us: 5.0 }];
/// let figures = DeviceFigures { writes, ..DeviceFigures::typical_solid_state() };
/// assert_eq!(figures.write_seconds(4096.0, 16), 1.0 / 20_000.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WriteFigure {
    /// Length of each write in bytes.
    pub write_bytes: u64,
    /// Number of writes in flight.
    pub depth: u32,
    /// Writes per second.
    pub per_second: f64,
    /// Processor time of a write, in microseconds.
    pub cpu_us: f64,
}

/// The speed of the file system, for policies that keep a file per entry.
///
/// ```
/// use larder_store::plan::{DeviceFigures, FileFigures, Plan, PlanWishes};
///
/// let mut figures = DeviceFigures::typical_solid_state();
/// let files: FileFigures = figures.files.take().expect("the figures of a file system");
/// assert!(files.read_per_second > files.replace_per_second);
/// // Without them, nothing is known about policies that keep files.
/// let plan = Plan::new(&PlanWishes::new(1 << 40, 4 << 30), &figures);
/// let unknown: Vec<&str> = plan.rows.iter().filter(|row| !row.known).map(|row| row.policy).collect();
/// assert_eq!(unknown, ["simple", "squid", "multiple-dirs", "buddy"]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FileFigures {
    /// Length of each file in bytes.
    pub file_bytes: u64,
    /// Number of files that are created or read at a time.
    pub depth: u32,
    /// Files per second that are created and written while an old file is removed for each. Includes the wait until
    /// everything is on the disk.
    pub replace_per_second: f64,
    /// Files per second that are opened and read whole. None of them is in the page cache.
    pub read_per_second: f64,
    /// Processor time of creating, writing and removing a file, in microseconds.
    pub replace_cpu_us: f64,
    /// Processor time of reading a file, in microseconds.
    pub read_cpu_us: f64,
}

/// The speed of writes while the device also has random reads in flight. It matters because a disk that buffers writes
/// in its own memory looks faster as long as nothing is read.
///
/// ```
/// use larder_store::plan::{BesideReads, DeviceFigures, Plan, PlanWishes};
///
/// let mut figures = DeviceFigures::typical_spinning();
/// let wishes = PlanWishes::new(1 << 40, 4 << 30);
/// let fast = Plan::new(&wishes, &figures);
/// figures.beside_reads = Some(BesideReads { sequential_write: 5e6, random_write_times: 2.0 });
/// let slow = Plan::new(&wishes, &figures);
/// assert!(slow.rows[0].requests_per_second < fast.rows[0].requests_per_second);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BesideReads {
    /// Sequential write speed, in bytes per second, which counts only the device time that reads do not use.
    pub sequential_write: f64,
    /// Factor by which a random write takes longer while reads are in flight.
    pub random_write_times: f64,
}

/// All measured figures of a device or a file system.
///
/// ```
/// use larder_store::plan::DeviceFigures;
///
/// let flash = DeviceFigures::typical_solid_state();
/// let spinning = DeviceFigures::typical_spinning();
/// assert!(flash.read_seconds(8192.0, 1) * 50.0 < spinning.read_seconds(8192.0, 1));
///
/// let unmeasured = DeviceFigures { reads: Vec::new(), ..flash };
/// assert!(unmeasured.fault().is_some());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceFigures {
    /// The measured path, or the name of a typical device.
    pub path: String,
    /// The I/O interface used for measuring, such as `io_uring`.
    pub io: String,
    /// Whether the page cache was bypassed. If not, reads may have measured memory instead of the disk.
    pub is_direct: bool,
    /// Size in bytes of the region over which the reads and writes were spread.
    pub span_bytes: u64,
    /// Load average of the machine when measuring began. A value above 0 means that other programs were running.
    pub load_average: f64,
    /// The speed of random reads, by length and number in flight.
    pub reads: Vec<ReadFigure>,
    /// The speed of random writes, by length and number in flight.
    pub writes: Vec<WriteFigure>,
    /// Sequential read speed, in bytes per second.
    pub sequential_read: f64,
    /// Sequential write speed, in bytes per second.
    pub sequential_write: f64,
    /// The speed of writes while reads are in flight. `None` if not measured; a plan then assumes that reads do not
    /// slow writes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub beside_reads: Option<BesideReads>,
    /// The speed of the file system; `None` on a block device.
    pub files: Option<FileFigures>,
}

impl DeviceFigures {
    /// Returns why these figures cannot be used for a plan, or `None` if they can.
    pub fn fault(&self) -> Option<&'static str> {
        let rates = self.reads.iter().map(|read| read.per_second);
        let rates = rates.chain(self.writes.iter().map(|write| write.per_second));
        let beside = self.beside_reads.iter().flat_map(|beside| [beside.sequential_write, beside.random_write_times]);
        let mut rates = rates.chain([self.sequential_read, self.sequential_write]).chain(beside);
        let is_lacking = self.reads.is_empty() || self.writes.is_empty();
        let is_odd = rates.any(|rate| !(rate.is_finite() && rate > 0.0));
        (is_lacking || is_odd).then_some("a rate is missing or not a positive number")
    }

    /// Returns the device time of a random read of `bytes` with `depth` reads in flight, in seconds.
    pub fn read_seconds(&self, bytes: f64, depth: u32) -> f64 {
        let nearest = nearest_depth(self.reads.iter().map(|read| read.depth), depth);
        let points = self.reads.iter().filter(|read| Some(read.depth) == nearest);
        between(points.map(|read| (read.read_bytes as f64, 1.0 / read.per_second)), bytes)
    }

    /// Returns whether the device reads faster with `depth` reads in flight than with one, which shows that it sorts
    /// its queue.
    pub(crate) fn has_queue(&self, depth: u32) -> bool {
        let bytes = READ_BYTES[0] as f64;
        self.read_seconds(bytes, depth) < QUEUE_GAIN * self.read_seconds(bytes, 1)
    }

    /// Returns whether the device is a spinning disk: one read alone takes as long as moving an arm.
    pub(crate) fn has_arm(&self) -> bool {
        self.read_seconds(READ_BYTES[0] as f64, 1) > ARM_SECONDS_MIN
    }

    /// Returns the processor time of a random read of `bytes` with `depth` reads in flight, in seconds.
    pub(crate) fn read_cpu_seconds(&self, bytes: f64, depth: u32) -> f64 {
        let nearest = nearest_depth(self.reads.iter().map(|read| read.depth), depth);
        let points = self.reads.iter().filter(|read| Some(read.depth) == nearest);
        between(points.map(|read| (read.read_bytes as f64, read.cpu_us / 1e6)), bytes)
    }

    /// Returns the device time of a random write of `bytes` with `depth` writes in flight, in seconds.
    pub fn write_seconds(&self, bytes: f64, depth: u32) -> f64 {
        let nearest = nearest_depth(self.writes.iter().map(|write| write.depth), depth);
        let points = self.writes.iter().filter(|write| Some(write.depth) == nearest);
        between(points.map(|write| (write.write_bytes as f64, 1.0 / write.per_second)), bytes)
    }

    /// Returns the processor time of a random write of `bytes` with `depth` writes in flight, in seconds.
    pub(crate) fn write_cpu_seconds(&self, bytes: f64, depth: u32) -> f64 {
        let nearest = nearest_depth(self.writes.iter().map(|write| write.depth), depth);
        let points = self.writes.iter().filter(|write| Some(write.depth) == nearest);
        between(points.map(|write| (write.write_bytes as f64, write.cpu_us / 1e6)), bytes)
    }
}

/// Returns the measured number of operations in flight that is nearest to `wanted`, compared by ratio.
fn nearest_depth(measured: impl Iterator<Item = u32>, wanted: u32) -> Option<u32> {
    let distance = |depth: u32| (f64::from(depth.max(1)) / f64::from(wanted.max(1))).ln().abs();
    measured.min_by(|one, other| distance(*one).total_cmp(&distance(*other)))
}

/// Returns the time of an operation of `bytes`, interpolated between the measured lengths next to it. Below the first
/// point, returns the first point's time. Beyond the last, extends the line through the last two points, or grows in
/// proportion to `bytes` if there is only one point.
fn between(points: impl Iterator<Item = (f64, f64)>, bytes: f64) -> f64 {
    let mut points: Vec<_> = points.collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let line = |(x0, y0): (f64, f64), (x1, y1): (f64, f64)| y0 + (y1 - y0) * (bytes - x0) / (x1 - x0);
    let above = points.iter().position(|point| point.0 >= bytes);
    match (points.as_slice(), above) {
        ([], _) => f64::INFINITY,
        ([first, ..], Some(0)) => first.1,
        (points, Some(above)) => line(points[above - 1], points[above]),
        ([only], None) => only.1 * bytes / only.0,
        ([.., before, last], None) => line(*before, *last).max(last.1),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a device with round figures: 10,000 random reads of 4 KiB a second, half as many of 64 KiB.
    pub(crate) fn round() -> DeviceFigures {
        let read = |read_bytes, depth, per_second| ReadFigure {
            read_bytes,
            depth,
            per_second,
            mean_us: 100.0,
            p99_us: 200.0,
            cpu_us: 5.0,
        };
        let write = |write_bytes, per_second| WriteFigure { write_bytes, depth: 16, per_second, cpu_us: 6.0 };
        DeviceFigures {
            path: "round".to_owned(),
            io: "io_uring".to_owned(),
            is_direct: true,
            span_bytes: 1 << 30,
            load_average: 0.0,
            reads: vec![read(4096, 1, 1000.0), read(4096, 64, 10_000.0), read(65_536, 64, 5000.0)],
            writes: vec![write(4096, 10_000.0), write(8192, 8000.0)],
            sequential_read: 1e9,
            sequential_write: 5e8,
            beside_reads: None,
            files: None,
        }
    }

    #[test]
    fn a_figure_is_read_off_between_the_measured_points() {
        let figures = round();
        assert_eq!(figures.read_seconds(4096.0, 64), 1e-4);
        assert_eq!(figures.read_seconds(100.0, 64), 1e-4);
        let middle = figures.read_seconds(34_816.0, 64);
        assert!((middle - 1.5e-4).abs() < 1e-9, "{middle}");
        assert!((figures.read_seconds(126_976.0, 64) - 3e-4).abs() < 1e-9);
        assert_eq!(figures.read_seconds(4096.0, 2), 1e-3, "one in flight is nearer to two than 64 are");
        assert_eq!(figures.write_seconds(8192.0, 1), 1.0 / 8000.0);
    }

    #[test]
    fn nonsense_has_a_fault() {
        let mut sound = round();
        sound.beside_reads = Some(BesideReads { sequential_write: 2e8, random_write_times: 1.5 });
        assert_eq!(sound.fault(), None);
        let spoils: [fn(&mut DeviceFigures); 4] = [
            |figures| figures.reads.clear(),
            |figures| figures.writes[0].per_second = -1.0,
            |figures| figures.sequential_read = f64::NAN,
            |figures| figures.beside_reads.iter_mut().for_each(|beside| beside.random_write_times = 0.0),
        ];
        for spoil in spoils {
            let mut figures = sound.clone();
            spoil(&mut figures);
            assert!(figures.fault().is_some(), "{figures:?}");
        }
    }
}
