//! Files made, read and removed: what the rows that keep a file per entry do.
//!
//! Owns: a directory of its own beside the scratch file, which goes away. Does not: keep the files out of memory while
//! they are made; they are synced and dropped from the page cache before they are read. Goes through the engine's own
//! directory, with names as its row `squid` has them. Cost: at most [`FILE_COUNT_MAX`] files at a time.

use super::{DeviceError, FileFigures, scratch::noise};
use crate::{cpu, undo::Undo};
use larder_store::device::{AlignedBuffer, Completion, Directory, FileName, FileWork, FilesDirectory};
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
const FILE_COUNT_MAX: u64 = 200_000;
const FOLDER_NAME: &str = "larder-bench.files";

/// Measures files in `directory` for about `time`.
pub(super) fn measure(directory: &Path, time: Duration) -> Result<FileFigures, DeviceError> {
    let place = directory.join(FOLDER_NAME);
    if place.exists() {
        return Err(DeviceError::new("a folder is left from another measurement; remove it", &place));
    }
    let scratch = Undo::removes(place.clone());
    let files = FilesDirectory::open(&place, FilesDirectory::THREAD_COUNT_DEFAULT)
        .map_err(|error| DeviceError::of("cannot make files", &place, error))?;
    let failed = |error| DeviceError::of("cannot work with files", &place, error);
    let figures = run(&files, &place, time).map_err(failed)?;
    drop(files);
    drop(scratch);
    Ok(figures)
}

fn run(files: &dyn Directory, place: &Path, time: Duration) -> io::Result<FileFigures> {
    let mut buffer = AlignedBuffer::with_len(FILE_BYTES as usize);
    noise(buffer.as_mut_slice());
    let buffer = Arc::new(buffer);
    let create = |file, completion| FileWork::Write { file, offset_bytes: 0, buffer: Arc::clone(&buffer), completion };
    let made = in_flight(FILE_COUNT_MAX, time / 3, |number, done| {
        files.submit(create(name(number), Completion::callback(done)));
    })?;
    // Files count as made when the disk has them: a burst into the page cache is no rate that lasts.
    let begun = Instant::now();
    wait(|completion| files.submit(FileWork::Sync { completion }))?;
    let create_per_second = made.count as f64 / (made.time + begun.elapsed()).as_secs_f64();
    for number in 0..made.count {
        let file = File::open(place.join(FilesDirectory::FOLDER_NAME).join(name(number).as_str()))?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    // Each file once, in an order in which no neighbour follows another.
    let step = (made.count * 5 / 8) | 1;
    let read = in_flight(made.count, time / 3, |number, done| {
        let buffer = AlignedBuffer::with_len(FILE_BYTES as usize);
        let completion = Completion::callback(move |outcome: io::Result<AlignedBuffer>| done(outcome.map(drop)));
        files.submit(FileWork::Read { file: name(number * step % made.count), offset_bytes: 0, buffer, completion });
    })?;
    let removed = in_flight(made.count, time / 3, |number, done| {
        files.submit(FileWork::Remove { file: name(number), completion: Completion::callback(done) });
    })?;
    Ok(FileFigures {
        file_bytes: FILE_BYTES,
        depth: DEPTH,
        create_per_second,
        read_per_second: read.per_second(),
        remove_per_second: removed.per_second(),
        create_cpu_us: made.cpu_us(),
        read_cpu_us: read.cpu_us(),
        remove_cpu_us: removed.cpu_us(),
    })
}

/// Sixteen folders with 256 in each, by turns.
fn name(number: u64) -> FileName {
    let name = format!("{:x}/{:02x}/{number:016x}", number % 16, number / 16 % 256);
    FileName::new(name).expect("digits and letters with a slash between are a name")
}

/// What was done in which time.
struct Done {
    count: u64,
    time: Duration,
    cpu: Duration,
}

impl Done {
    fn per_second(&self) -> f64 {
        self.count.max(1) as f64 / self.time.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count.max(1) as f64
    }
}

/// What tells that a piece of work is done.
type Tell = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Begins pieces of work, [`DEPTH`] at a time, until there are `count_max` or the time is over.
fn in_flight(count_max: u64, time: Duration, mut begin: impl FnMut(u64, Tell)) -> io::Result<Done> {
    let (begun, cpu_begun) = (Instant::now(), cpu::own());
    let (sender, done) = mpsc::channel();
    let (mut submitted, mut count) = (0, 0);
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
    Ok(Done { count, time: begun.elapsed(), cpu: cpu::own() - cpu_begun })
}

fn wait(begin: impl FnOnce(Completion<()>)) -> io::Result<()> {
    let (sender, done) = mpsc::channel();
    begin(Completion::callback(move |outcome| drop(sender.send(outcome))));
    done.recv().map_err(io::Error::other)?
}
