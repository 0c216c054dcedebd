//! Measures random reads on each device: reads per second, and processor time per read.
//!
//! Owns: a scratch file in the given directory, which is filled so that reads reach the disk, and removed at the end.
//! Processor time is that of all threads of this process, including the kernel's workers for it.

#[cfg(target_os = "linux")]
#[path = "lab/event_loop.rs"]
mod event_loop;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("this measures io_uring, which only Linux has");
}

#[cfg(target_os = "linux")]
mod linux {
    use larder_device::IgnorePoison;
    use std::{
        env,
        error::Error,
        fs,
        path::{Path, PathBuf},
        sync::{
            Arc, Mutex, MutexGuard,
            atomic::{AtomicU64, Ordering},
        },
        thread::{self, Thread},
        time::Instant,
    };

    use super::event_loop::{EventLoop, cpu_seconds};
    use larder_device::{AlignedBuffer, Completion, Device, Transfer, VolumeFile, open_device};
    use larder_store::IoChoice;

    const USAGE: &str = "\
measure random reads of 12 KiB on each device

usage: device_reads DIRECTORY [SIZE_MIB [READ_COUNT [DEPTH]]]

  DIRECTORY   where the scratch file goes, on the disk to be measured
  SIZE_MIB    its size, default 2048
  READ_COUNT  reads per device, default 300000
  DEPTH       reads in flight, default 64";

    const READ_BYTES: usize = 12 << 10;
    const FILL_BYTES: usize = 1 << 20;
    const FILL_DEPTH: usize = 8;
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(super) fn main() -> Result<(), Box<dyn Error>> {
        let mut arguments = env::args().skip(1);
        let Some(directory) = arguments.next().filter(|directory| !directory.starts_with('-')) else {
            println!("{USAGE}");
            return Ok(());
        };
        let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
        let size_bytes = number(2048)?.max(1) << 20;
        let read_count = number(300_000)?.max(1);
        let depth = number(64)?.max(1);

        let scratch = Scratch::fill(Path::new(&directory).join("device_reads.scratch"), size_bytes)?;
        println!("{read_count} reads of {READ_BYTES} bytes, {depth} in flight, file of {size_bytes} bytes");
        println!("{:<24} {:>12} {:>12} {:>12}", "device", "reads/s", "CPU us/read", "CPU %");
        for (name, io, is_attached) in [
            ("io_uring, attached", IoChoice::Uring, true),
            ("io_uring, own thread", IoChoice::Uring, false),
            ("threads", IoChoice::Threads, false),
        ] {
            let device = open_device(VolumeFile::open(&scratch.0)?, io)?;
            let mut load = Load::new(device, depth);
            let mut event_loop = is_attached.then(|| EventLoop::new(load.device.attach_thread())).transpose()?;
            load.run(read_count / 10, &mut event_loop)?;
            let begun = Instant::now();
            let cpu_begun = cpu_seconds()?;
            load.run(read_count, &mut event_loop)?;
            let seconds = begun.elapsed().as_secs_f64();
            let cpu_seconds = cpu_seconds()? - cpu_begun;
            println!(
                "{name:<24} {:>12.0} {:>12.2} {:>12.1}",
                read_count as f64 / seconds,
                cpu_seconds * 1e6 / read_count as f64,
                cpu_seconds * 100.0 / seconds
            );
        }
        Ok(())
    }

    /// A file of random bytes, removed when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn fill(path: PathBuf, size_bytes: u64) -> Result<Self, Box<dyn Error>> {
            let file = VolumeFile::create(&path, size_bytes)?;
            let scratch = Self(path);
            println!("direct: {}, alignment: {} bytes", file.is_direct(), file.alignment_bytes());
            let device = open_device(file, IoChoice::Threads)?;
            let mut random = SEED;
            let mut buffer = AlignedBuffer::with_len(FILL_BYTES);
            buffer.as_mut_slice().chunks_mut(8).for_each(|word| {
                word.copy_from_slice(&next(&mut random).to_le_bytes()[..word.len()]);
            });
            let buffer = Arc::new(buffer);
            let offsets: Vec<u64> = (0..size_bytes).step_by(FILL_BYTES).collect();
            for batch in offsets.chunks(FILL_DEPTH) {
                let (sender, written) = std::sync::mpsc::channel();
                for &offset_bytes in batch {
                    let sender = sender.clone();
                    let completion = Completion::callback(move |result| drop(sender.send(result)));
                    device.submit(Transfer::Write { offset_bytes, buffer: Arc::clone(&buffer), completion });
                }
                drop(sender);
                written.iter().collect::<Result<(), _>>()?;
            }
            Ok(scratch)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            if let Err(error) = fs::remove_file(&self.0) {
                eprintln!("cannot remove {}: {error}", self.0.display());
            }
        }
    }

    /// Keeps reads in flight.
    struct Load {
        device: Arc<dyn Device>,
        depth: u64,
        random: u64,
        progress: Arc<Progress>,
    }

    struct Progress {
        completed: AtomicU64,
        failed: AtomicU64,
        /// Buffers to reuse, as in a thread that drops each buffer after use.
        spare: Mutex<Vec<AlignedBuffer>>,
        submitter: Thread,
    }

    impl Progress {
        fn spare(&self) -> MutexGuard<'_, Vec<AlignedBuffer>> {
            self.spare.lock().ignore_poison()
        }
    }

    impl Load {
        fn new(device: Arc<dyn Device>, depth: u64) -> Self {
            let progress = Arc::new(Progress {
                completed: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                spare: Mutex::new(Vec::new()),
                submitter: thread::current(),
            });
            Self { device, depth, random: SEED, progress }
        }

        fn run(&mut self, read_count: u64, event_loop: &mut Option<EventLoop>) -> Result<(), Box<dyn Error>> {
            let begin = self.progress.completed.load(Ordering::Acquire);
            let end = begin + read_count;
            let mut submitted = begin;
            loop {
                let completed = self.progress.completed.load(Ordering::Acquire);
                if completed == end {
                    break;
                }
                while submitted < end.min(completed + self.depth) {
                    self.read();
                    submitted += 1;
                }
                match event_loop {
                    Some(event_loop) => {
                        event_loop.take_woken();
                        let must_wait = event_loop.turn();
                        if must_wait && self.progress.completed.load(Ordering::Acquire) == completed {
                            event_loop.wait()?;
                        }
                    }
                    None => thread::park(),
                }
            }
            match self.progress.failed.load(Ordering::Acquire) {
                0 => Ok(()),
                count => Err(format!("reads failed: {count}").into()),
            }
        }

        fn read(&mut self) {
            let place_count = self.device.len_bytes() / READ_BYTES as u64;
            let offset_bytes = next(&mut self.random) % place_count * READ_BYTES as u64;
            let buffer = self.progress.spare().pop().unwrap_or_else(|| AlignedBuffer::with_len(READ_BYTES));
            let progress = Arc::clone(&self.progress);
            let completion = Completion::callback(move |result: std::io::Result<AlignedBuffer>| {
                match result {
                    Ok(buffer) => progress.spare().push(buffer),
                    Err(_) => drop(progress.failed.fetch_add(1, Ordering::Relaxed)),
                }
                progress.completed.fetch_add(1, Ordering::Release);
                if thread::current().id() != progress.submitter.id() {
                    progress.submitter.unpark();
                }
            });
            self.device.submit(Transfer::Read { offset_bytes, buffer, completion });
        }
    }

    fn next(random: &mut u64) -> u64 {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    }
}
