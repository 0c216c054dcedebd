//! The figures of a modeled device, as `larder bench device` measures them on a real one.
//!
//! Owns: the I/O that is timed. Invariant: the figures depend on the machine and the size of the store only.

use crate::{
    Model, ModelDirectory,
    bed::finished,
    model::{Disk, DiskWork},
};
use larder_device::{AlignedBuffer, Directory, FileName};
use larder_store::plan::{BesideReads, DeviceFigures, FileFigures, READ_BYTES, READ_DEPTHS, ReadFigure, WriteFigure};
use larder_workload::Random;
use std::sync::Arc;

const WRITE_BYTES: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 64 << 10];
const SEQUENTIAL_BYTES: u64 = 1 << 20;
const BESIDE_BYTES: u64 = 16 << 10;
const FILE_BYTES: u64 = 8192;
const FILE_DEPTH: u32 = 16;
const DIRECTORY_COUNT: u64 = 256;
/// Number of operations from which a mean time is computed.
const COUNT: u64 = 2000;

/// Returns the figures of the machine's disk for a store that takes the first `size_bytes` of the disk.
pub(super) fn figures_of(model: &Model, size_bytes: u64) -> DeviceFigures {
    let mut timed = TimedDisk::new(model, size_bytes);
    let channel_count = model.disk.channel_count();
    // One operation waits for the one before; with more in flight, all channels of the device work.
    let rate = |seconds: f64, depth: u32| f64::from(depth).min(channel_count) / seconds;
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    for read_bytes in READ_BYTES {
        let seconds = timed.each(|disk, at| disk.read(at, read_bytes));
        reads.extend(READ_DEPTHS.map(|depth| {
            let per_second = rate(seconds, depth);
            let mean_us = f64::from(depth) * 1e6 / per_second;
            ReadFigure { read_bytes, depth, per_second, mean_us, p99_us: mean_us, cpu_us: 0.0 }
        }));
    }
    for write_bytes in WRITE_BYTES {
        let seconds = timed.each(|disk, at| disk.write(at, write_bytes));
        writes.extend(READ_DEPTHS.map(|depth| WriteFigure {
            write_bytes,
            depth,
            per_second: rate(seconds, depth),
            cpu_us: 0.0,
        }));
    }
    let sequential = |seconds: f64| SEQUENTIAL_BYTES as f64 * channel_count / seconds;
    let sequential_read = sequential(timed.each_next(Disk::read));
    let sequential_write = sequential(timed.each_next(Disk::write));
    DeviceFigures {
        path: model.about.clone(),
        io: "model".to_owned(),
        is_direct: true,
        span_bytes: size_bytes,
        load_average: 0.0,
        reads,
        writes,
        sequential_read,
        sequential_write,
        beside_reads: Some(timed.beside_reads(channel_count)),
        files: Some(file_figures(model, size_bytes)),
    }
}

/// The part of a disk that a store takes, with random positions in it.
struct TimedDisk {
    disk: Disk,
    random: Random,
    size_bytes: u64,
    next: u64,
}

impl TimedDisk {
    fn new(model: &Model, size_bytes: u64) -> Self {
        let mut disk = Disk::new(&model.disk);
        disk.set_used_share(size_bytes as f64 / model.disk.capacity_bytes());
        Self { disk, random: Random::new(1), size_bytes, next: 0 }
    }

    /// Returns the mean time in seconds of an operation at a random position.
    fn each(&mut self, operation: impl Fn(&mut Disk, u64) -> u64) -> f64 {
        let ns: u64 = (0..COUNT).map(|_| operation(&mut self.disk, random_at(&mut self.random, self.size_bytes))).sum();
        ns as f64 / 1e9 / COUNT as f64
    }

    /// Returns the mean time in seconds of an operation of [`SEQUENTIAL_BYTES`] that continues the previous one.
    fn each_next(&mut self, operation: impl Fn(&mut Disk, u64, u64) -> u64) -> f64 {
        let ns: u64 = (0..COUNT)
            .map(|_| operation(&mut self.disk, next_at(&mut self.next, self.size_bytes), SEQUENTIAL_BYTES))
            .sum();
        ns as f64 / 1e9 / COUNT as f64
    }

    /// Measures writes between random reads: sequential writes of as many bytes as the reads, and as many random writes
    /// as reads.
    fn beside_reads(&mut self, channel_count: f64) -> BesideReads {
        let alone = self.each(|disk, at| disk.read(at, BESIDE_BYTES));
        let write_alone = self.each(|disk, at| disk.write(at, BESIDE_BYTES));
        let reads = SEQUENTIAL_BYTES / BESIDE_BYTES;
        let before = self.disk.served();
        for _ in 0..COUNT / reads {
            for _ in 0..reads {
                self.disk.read(random_at(&mut self.random, self.size_bytes), BESIDE_BYTES);
            }
            self.disk.write(next_at(&mut self.next, self.size_bytes), SEQUENTIAL_BYTES);
        }
        let of_writes = seconds_since(&self.disk, before) - (COUNT / reads * reads) as f64 * alone;
        let written = (COUNT / reads * SEQUENTIAL_BYTES) as f64;
        let before = self.disk.served();
        for _ in 0..COUNT {
            self.disk.read(random_at(&mut self.random, self.size_bytes), BESIDE_BYTES);
            self.disk.write(random_at(&mut self.random, self.size_bytes), BESIDE_BYTES);
        }
        let of_random_writes = seconds_since(&self.disk, before) / COUNT as f64 - alone;
        BesideReads {
            sequential_write: written * channel_count / of_writes,
            random_write_times: of_random_writes / write_alone,
        }
    }
}

fn random_at(random: &mut Random, size_bytes: u64) -> u64 {
    random.below(size_bytes / 4096) * 4096
}

fn next_at(next: &mut u64, size_bytes: u64) -> u64 {
    let at = *next;
    *next = if at + 2 * SEQUENTIAL_BYTES > size_bytes { 0 } else { at + SEQUENTIAL_BYTES };
    at
}

fn seconds_since(disk: &Disk, before: DiskWork) -> f64 {
    (disk.served().busy_ns - before.busy_ns) as f64 / 1e9
}

/// Measures how fast files are replaced and read. There are enough files to fill the store.
fn file_figures(model: &Model, size_bytes: u64) -> FileFigures {
    let directory = ModelDirectory::new(model);
    let files: &dyn Directory = &directory;
    let contents = Arc::new(AlignedBuffer::with_len(FILE_BYTES as usize));
    let name = |number: u64| {
        FileName::new(format!("{:02x}/{number:x}", number % DIRECTORY_COUNT)).expect("it has letters and digits only")
    };
    let create = |number| finished(files.write(name(number), 0, Arc::clone(&contents)));
    let count = (size_bytes / FILE_BYTES).max(1);
    (0..count).for_each(|number| _ = create(number));
    let mut random = Random::new(1);
    let seconds = |work: &mut dyn FnMut(u64)| {
        let before = directory.passed_ns();
        (0..COUNT).for_each(work);
        (directory.passed_ns() - before) as f64 / 1e9 / COUNT as f64
    };
    let read = seconds(&mut |_| _ = finished(files.read(name(random.below(count)), 0, FILE_BYTES as usize)));
    // The oldest file goes for each new one, as in a full store.
    let replace = seconds(&mut |number| {
        let _ = finished(files.remove(name(number)));
        let _ = create(count + number);
    });
    FileFigures {
        file_bytes: FILE_BYTES,
        depth: FILE_DEPTH,
        replace_per_second: model.disk.channel_count() / replace,
        read_per_second: model.disk.channel_count() / read,
        replace_cpu_us: 0.0,
        read_cpu_us: 0.0,
    }
}
