//! Measures files that replace others or are read: the operations of policies that keep one file per entry.
//!
//! Owns: a temporary directory next to the scratch file. It uses the engine's own directory. Invariant: removed and
//! read files are on the disk, and no folder is created or removed while the clock runs. Cost: the bytes of at most
//! [`FILE_COUNT_MAX`] files.
//!
//! While it counts, each file that is created replaces another, as in a full store. File systems are slower when they
//! do both: ext4 without a journal skips inodes that were freed in the last minute.

use super::{DeviceError, scratch::noise};
use crate::{cpu, undo::Undo};
use larder_device::{AlignedBuffer, Completion, Directory, FileName, FileWork, FilesDirectory};
use larder_store::plan::FileFigures;
use larder_workload::Random;
use rustix::fs::{Advice, fadvise};
use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

const FILE_BYTES: u64 = 8 << 10;
const DEPTH: u32 = 16;
const FILE_COUNT_MAX: u64 = 32_768;
const FOLDER_COUNT: u64 = 256;
const FOLDER_NAME: &str = "larder-bench.files";

/// Measures how fast files in `directory` are replaced and read. Takes about `time`.
pub(super) fn measure(directory: &Path, time: Duration) -> Result<FileFigures, DeviceError> {
    let place = directory.join(FOLDER_NAME);
    if place.exists() {
        return Err(DeviceError::new("a folder is left from another measurement; remove it", &place));
    }
    let scratch = Undo::removes(place.clone());
    let files = FilesDirectory::open(&place, FilesDirectory::THREAD_COUNT_DEFAULT)
        .map_err(|error| DeviceError::of("cannot create files", &place, error))?;
    let failed = |error| DeviceError::of("cannot use files", &place, error);
    let figures = run(&files, &place, time).map_err(failed)?;
    drop(files);
    drop(scratch);
    Ok(figures)
}

fn run(files: &dyn Directory, place: &Path, time: Duration) -> io::Result<FileFigures> {
    let mut buffer = AlignedBuffer::with_len(FILE_BYTES as usize);
    noise(buffer.as_mut_slice());
    let buffer = Arc::new(buffer);
    let make = |number, done| {
        let buffer = Arc::clone(&buffer);
        let completion = Completion::callback(done);
        files.submit(FileWork::Write { file: name(number), offset_bytes: 0, buffer, completion });
    };
    let sync = || wait(|completion| files.submit(FileWork::Sync { completion }));
    let kept = in_flight(FOLDER_COUNT, Duration::MAX, make)?.count;
    let made = kept + in_flight(FILE_COUNT_MAX - kept, time / 3, |number, done| make(kept + number, done))?.count;
    sync()?;
    // Every second operation creates a file, and removes the oldest file that was not created just now.
    let work_count = 2 * (made - kept);
    let mut replaced = in_flight(work_count, time / 3, |number, done| {
        if number.is_multiple_of(2) {
            make(made + number / 2, done);
        } else {
            files.submit(FileWork::Remove { file: name(kept + number / 2), completion: Completion::callback(done) });
        }
    })?;
    let begun = Instant::now();
    sync()?;
    replaced.time += begun.elapsed();
    let removed_count = replaced.count / 2;
    let made_count = replaced.count.div_ceil(2);
    let there = || (0..kept).chain(kept + removed_count..made + made_count);
    for number in there() {
        let file = File::open(place.join(FilesDirectory::FOLDER_NAME).join(name(number).as_str()))?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    let mut order: Vec<u64> = there().collect();
    Random::new(0).shuffle(&mut order);
    let read = in_flight(order.len() as u64, time / 3, |turn, done| {
        let buffer = AlignedBuffer::with_len(FILE_BYTES as usize);
        let completion = Completion::callback(move |outcome: io::Result<AlignedBuffer>| done(outcome.map(drop)));
        files.submit(FileWork::Read { file: name(order[turn as usize]), offset_bytes: 0, buffer, completion });
    })?;
    Ok(FileFigures {
        file_bytes: FILE_BYTES,
        depth: DEPTH,
        replace_per_second: replaced.per_second() / 2.0,
        read_per_second: read.per_second(),
        replace_cpu_us: replaced.cpu_us() * 2.0,
        read_cpu_us: read.cpu_us(),
    })
}

/// Returns the name of file `number`. Files go in turn to folders that are two levels deep, as in the policy `squid`.
fn name(number: u64) -> FileName {
    let folder = number % FOLDER_COUNT;
    let name = format!("{:x}/{:x}/{number:016x}", folder % 16, folder / 16);
    FileName::new(name).expect("digits and letters with a slash between are a name")
}

/// A number of completed operations, and the time that they took.
struct TimedCount {
    count: u64,
    time: Duration,
    cpu: Duration,
}

impl TimedCount {
    fn per_second(&self) -> f64 {
        self.count.max(1) as f64 / self.time.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }
}

/// The callback that receives the result of an operation.
type Tell = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Starts operations with `begin`, and keeps [`DEPTH`] of them in flight. Ends after `count_max` operations or after
/// `time`.
fn in_flight(count_max: u64, time: Duration, mut begin: impl FnMut(u64, Tell)) -> io::Result<TimedCount> {
    let begun = Instant::now();
    let cpu_begun = cpu::own();
    let (sender, done) = mpsc::channel();
    let mut submitted = 0;
    let mut count = 0;
    while count < submitted || (submitted < count_max && begun.elapsed() < time) {
        while submitted - count < u64::from(DEPTH) && submitted < count_max && begun.elapsed() < time {
            let sender = sender.clone();
            begin(submitted, Box::new(move |outcome| drop(sender.send(outcome))));
            submitted += 1;
        }
        if count < submitted {
            done.recv().map_err(io::Error::other)??;
            count += 1;
        }
    }
    Ok(TimedCount { count, time: begun.elapsed(), cpu: cpu::own() - cpu_begun })
}

fn wait(begin: impl FnOnce(Completion<()>)) -> io::Result<()> {
    let (sender, done) = mpsc::channel();
    begin(Completion::callback(move |outcome| drop(sender.send(outcome))));
    done.recv().map_err(io::Error::other)?
}
