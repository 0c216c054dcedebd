//! The contract of devices, checked on each implementation.

use std::{
    io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use larder_device::{
    AlignedBuffer, Completion, Device, FaultPlan, FaultyDevice, IoChoice, MemoryDevice, OverlayDevice, ThreadsDevice,
    Transfer, VolumeFile, block_on, open_device,
};
use tempfile::TempDir;

const LEN_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: usize = 4096;

/// A device, and a way to open it again.
struct Subject {
    device: Arc<dyn Device>,
    volume: Option<Volume>,
}

struct Volume {
    /// Removed with all it holds when this is dropped.
    _directory: TempDir,
    path: PathBuf,
    open: Open,
}

type Open = fn(VolumeFile) -> io::Result<Arc<dyn Device>>;

impl Volume {
    fn reopen(&self) -> Arc<dyn Device> {
        (self.open)(VolumeFile::open(&self.path).unwrap()).unwrap()
    }
}

impl Subject {
    fn memory() -> Option<Self> {
        Some(Self { device: Arc::new(MemoryDevice::new(LEN_BYTES)), volume: None })
    }

    /// Returns a device with faults that the contract permits.
    fn faulty() -> Option<Self> {
        let plan = FaultPlan { short_transfers_ppm: 300_000, ..FaultPlan::default() };
        Some(Self { device: Arc::new(FaultyDevice::new(LEN_BYTES, 1, plan)), volume: None })
    }

    fn overlay() -> Option<Self> {
        let below: Arc<dyn Device> = Arc::new(MemoryDevice::new(LEN_BYTES));
        Some(Self { device: Arc::new(OverlayDevice::new(below)), volume: None })
    }

    fn threads() -> Option<Self> {
        Self::on_file(|file| {
            Ok(Arc::new(ThreadsDevice::new(Arc::new(file), NonZeroUsize::new(3).unwrap())?) as Arc<dyn Device>)
        })
    }

    #[cfg(target_os = "linux")]
    fn uring() -> Option<Self> {
        Self::on_file(|file| Ok(Arc::new(larder_device::UringDevice::new(Arc::new(file))?) as Arc<dyn Device>))
    }

    /// Returns a device on a real file system, so that I/O bypasses the page cache as in production.
    fn on_file(open: Open) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("volume");
        let file = VolumeFile::create(&path, LEN_BYTES).unwrap();
        match open(file) {
            Ok(device) => Some(Self { device, volume: Some(Volume { _directory: directory, path, open }) }),
            Err(error) => {
                eprintln!("skipped: the system refuses this device: {error}");
                None
            }
        }
    }
}

macro_rules! suite {
    ($($implementation:ident),+; $($promise:ident),+ $(,)?) => {
        suite!(@each [$($implementation)+] [$($promise)+]);
    };
    (@each [$($implementation:ident)+] $promises:tt) => { $(suite!(@one $implementation $promises);)+ };
    (@one $implementation:ident [$($promise:ident)+]) => {
        mod $implementation {
            $(#[test]
            fn $promise() {
                if let Some(subject) = super::Subject::$implementation() {
                    super::$promise(subject);
                }
            })+
        }
    };
}

macro_rules! suite_of_all {
    ($($implementation:ident),+ $(,)?) => {
        suite! {
            $($implementation),+;
            what_is_written_is_read,
            concurrent_transfers_do_not_mix,
            a_transfer_off_its_blocks_is_refused,
            a_transfer_outside_the_device_is_refused,
            sync_completes,
            a_dropped_future_does_not_stop_its_transfer,
            dropping_the_device_completes_everything,
            a_completion_may_submit,
            a_completion_may_drop_the_device,
            contents_survive_reopening,
            a_written_buffer_is_given_back,
        }
    };
}

#[cfg(target_os = "linux")]
suite_of_all!(memory, overlay, faulty, threads, uring);
#[cfg(not(target_os = "linux"))]
suite_of_all!(memory, overlay, faulty, threads);

/// Bytes that differ from place to place and from `seed` to `seed`.
fn pattern(seed: u64, len_bytes: usize) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::with_len(len_bytes);
    for (index, word) in buffer.as_mut_slice().chunks_mut(8).enumerate() {
        let value = (seed << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
    Arc::new(buffer)
}

fn write(device: &Arc<dyn Device>, offset_bytes: u64, seed: u64, len_bytes: usize) {
    block_on(device.write(offset_bytes, pattern(seed, len_bytes))).unwrap();
}

#[track_caller]
fn check_holds(device: &Arc<dyn Device>, offset_bytes: u64, seed: u64, len_bytes: usize) {
    let buffer = block_on(device.read(offset_bytes, len_bytes)).unwrap();
    assert_eq!(buffer.len(), len_bytes);
    assert!(buffer.as_slice() == pattern(seed, len_bytes).as_slice(), "wrong bytes at {offset_bytes}");
}

fn what_is_written_is_read(subject: Subject) {
    let device = subject.device;
    assert_eq!(device.len_bytes(), LEN_BYTES);
    let alignment_bytes = device.alignment_bytes() as usize;
    assert!(alignment_bytes.is_power_of_two());
    assert!((512..=4096).contains(&alignment_bytes));

    assert!(block_on(device.read(0, BLOCK_BYTES)).unwrap().as_slice().iter().all(|byte| *byte == 0));
    write(&device, 0, 1, alignment_bytes);
    write(&device, alignment_bytes as u64, 2, 3 << 20);
    write(&device, LEN_BYTES - BLOCK_BYTES as u64, 3, BLOCK_BYTES);
    check_holds(&device, 0, 1, alignment_bytes);
    check_holds(&device, alignment_bytes as u64, 2, 3 << 20);
    check_holds(&device, LEN_BYTES - BLOCK_BYTES as u64, 3, BLOCK_BYTES);
    write(&device, 0, 4, 2 * BLOCK_BYTES);
    check_holds(&device, 0, 4, 2 * BLOCK_BYTES);
    assert!(block_on(device.read(LEN_BYTES, 0)).unwrap().is_empty());
}

/// Guards against one operation's bytes in another's buffer. More operations run at once than any ring or pool holds.
fn concurrent_transfers_do_not_mix(subject: Subject) {
    const THREAD_COUNT: u64 = 4;
    let share_bytes = LEN_BYTES / THREAD_COUNT;
    thread::scope(|scope| {
        for thread in 0..THREAD_COUNT {
            let device = &subject.device;
            scope.spawn(move || {
                for round in 0..3 {
                    let mut places = Vec::new();
                    let mut offset_bytes = thread * share_bytes;
                    while offset_bytes < (thread + 1) * share_bytes {
                        let left_bytes = ((thread + 1) * share_bytes - offset_bytes) as usize;
                        let len_bytes = (BLOCK_BYTES * (1 + (places.len() + round) % 3)).min(left_bytes);
                        places.push((offset_bytes, (round as u64) << 20 | offset_bytes >> 12, len_bytes));
                        offset_bytes += len_bytes as u64;
                    }
                    let writes: Vec<_> = places
                        .iter()
                        .map(|&(offset_bytes, seed, len_bytes)| device.write(offset_bytes, pattern(seed, len_bytes)))
                        .collect();
                    writes.into_iter().for_each(|write| block_on(write).unwrap());
                    let reads: Vec<_> = places
                        .iter()
                        .map(|&(offset_bytes, _, len_bytes)| device.read(offset_bytes, len_bytes))
                        .collect();
                    for (read, (_, seed, len_bytes)) in reads.into_iter().zip(places) {
                        assert!(block_on(read).unwrap().as_slice() == pattern(seed, len_bytes).as_slice());
                    }
                }
            });
        }
    });
}

fn a_transfer_off_its_blocks_is_refused(subject: Subject) {
    let alignment_bytes = u64::from(subject.device.alignment_bytes());
    check_refused(&subject.device, 1, BLOCK_BYTES);
    check_refused(&subject.device, alignment_bytes / 2, BLOCK_BYTES);
    check_refused(&subject.device, alignment_bytes, BLOCK_BYTES - 1);
}

fn a_transfer_outside_the_device_is_refused(subject: Subject) {
    check_refused(&subject.device, LEN_BYTES, BLOCK_BYTES);
    check_refused(&subject.device, LEN_BYTES - BLOCK_BYTES as u64, 2 * BLOCK_BYTES);
    check_refused(&subject.device, u64::MAX - BLOCK_BYTES as u64 + 1, 2 * BLOCK_BYTES);
}

/// Checks that an operation is refused and does not happen even in part.
#[track_caller]
fn check_refused(device: &Arc<dyn Device>, offset_bytes: u64, len_bytes: usize) {
    let read = block_on(device.read(offset_bytes, len_bytes)).err().unwrap();
    assert_eq!(read.kind(), io::ErrorKind::InvalidInput, "{read}");
    let written = block_on(device.write(offset_bytes, pattern(9, len_bytes))).unwrap_err();
    assert_eq!(written.kind(), io::ErrorKind::InvalidInput, "{written}");
    for place in [0, LEN_BYTES - 2 * BLOCK_BYTES as u64] {
        let buffer = block_on(device.read(place, 2 * BLOCK_BYTES)).unwrap();
        assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
    }
}

fn sync_completes(subject: Subject) {
    write(&subject.device, 0, 1, BLOCK_BYTES);
    let syncs: Vec<_> = (0..3).map(|_| subject.device.sync()).collect();
    syncs.into_iter().for_each(|sync| block_on(sync).unwrap());
    check_holds(&subject.device, 0, 1, BLOCK_BYTES);
}

/// Guards against a buffer freed or used again while the kernel still writes it.
fn a_dropped_future_does_not_stop_its_transfer(subject: Subject) {
    let device = subject.device;
    write(&device, 0, 1, 1 << 20);
    for round in 0..50 {
        let offset_bytes = (1 << 20) + round * BLOCK_BYTES as u64;
        drop(device.write(offset_bytes, pattern(round, BLOCK_BYTES)));
        drop((0..8).map(|index| device.read(index * (128 << 10), 128 << 10)).collect::<Vec<_>>());
        // It has the same size, so that a buffer freed too early would be reused for it.
        let mut bystander = AlignedBuffer::with_len(128 << 10);
        bystander.as_mut_slice().fill(0xee);
        check_holds(&device, 0, 1, 128 << 10);
        assert!(bystander.as_slice().iter().all(|byte| *byte == 0xee));
    }
    drop(device);
    let Some(volume) = subject.volume else { return };
    let device = volume.reopen();
    for round in 0..50 {
        check_holds(&device, (1 << 20) + round * BLOCK_BYTES as u64, round, BLOCK_BYTES);
    }
}

fn dropping_the_device_completes_everything(subject: Subject) {
    let device = subject.device;
    let reads: Vec<_> = (0..100).map(|index| device.read(index * BLOCK_BYTES as u64, BLOCK_BYTES)).collect();
    let writes: Vec<_> = (100..400)
        .map(|index| device.write(index * BLOCK_BYTES as u64, pattern(index, BLOCK_BYTES)))
        .chain([device.sync()])
        .collect();
    drop(device);
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    for read in reads {
        assert!(std::pin::pin!(read).poll(&mut context).map(|read| read.unwrap().len()).is_ready());
    }
    for write in writes {
        assert!(std::pin::pin!(write).poll(&mut context).map(Result::unwrap).is_ready());
    }
}

/// Guards against a completion that runs while its thread holds the device's lock.
fn a_completion_may_submit(subject: Subject) {
    fn read_on(device: Arc<dyn Device>, index: u64, sender: mpsc::Sender<u64>) {
        let completion = Completion::callback({
            let device = Arc::clone(&device);
            move |result: io::Result<AlignedBuffer>| {
                assert_eq!(result.unwrap().len(), BLOCK_BYTES);
                if index == 100 { sender.send(index).unwrap() } else { read_on(device, index + 1, sender) }
            }
        });
        let offset_bytes = index * BLOCK_BYTES as u64;
        device.submit(Transfer::Read { offset_bytes, buffer: AlignedBuffer::with_len(BLOCK_BYTES), completion });
    }
    let (sender, receiver) = mpsc::channel();
    read_on(subject.device, 0, sender);
    assert_eq!(receiver.recv(), Ok(100));
}

/// Guards against a device thread that waits for itself.
fn a_completion_may_drop_the_device(subject: Subject) {
    // A memory device runs the completion inside `submit`, while the device is still in use.
    let Some(_volume) = subject.volume else { return };
    let (sender, receiver) = mpsc::channel();
    let last = Arc::new(Mutex::new(None));
    let completion = Completion::callback({
        let last = Arc::clone(&last);
        move |result: io::Result<()>| {
            let device: Option<Arc<dyn Device>> = last.lock().unwrap().take();
            assert!(device.is_some());
            drop(device);
            sender.send(result.is_ok()).unwrap();
        }
    });
    let mut last = last.lock().unwrap();
    subject.device.submit(Transfer::Sync { completion });
    *last = Some(subject.device);
    drop(last);
    assert_eq!(receiver.recv(), Ok(true));
}

/// Guards against bytes or a lock that remain with a device after it is dropped.
fn contents_survive_reopening(subject: Subject) {
    let Some(volume) = subject.volume else { return };
    write(&subject.device, 0, 1, 64 << 10);
    block_on(subject.device.sync()).unwrap();
    drop(subject.device);
    for _ in 0..10 {
        let device = volume.reopen();
        check_holds(&device, 0, 1, 64 << 10);
    }
    let device = open_device(VolumeFile::open(&volume.path).unwrap(), IoChoice::Auto).unwrap();
    check_holds(&device, 0, 1, 64 << 10);
}

/// Guards against a store that is changed by examining it.
#[test]
fn what_is_written_on_an_overlay_does_not_reach_what_is_below() {
    let below = Arc::new(MemoryDevice::new(LEN_BYTES));
    let shown = Arc::clone(&below) as Arc<dyn Device>;
    write(&shown, 0, 1, 2 * BLOCK_BYTES);
    let before = below.contents();
    let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(shown));
    check_holds(&overlay, 0, 1, 2 * BLOCK_BYTES);
    write(&overlay, 512, 2, BLOCK_BYTES);
    block_on(overlay.sync()).unwrap();
    check_holds(&overlay, 512, 2, BLOCK_BYTES);
    let whole = block_on(overlay.read(0, 2 * BLOCK_BYTES)).unwrap();
    let expected = pattern(1, 2 * BLOCK_BYTES);
    assert!(whole.as_slice()[..512] == expected.as_slice()[..512]);
    assert!(whole.as_slice()[512 + BLOCK_BYTES..] == expected.as_slice()[512 + BLOCK_BYTES..]);
    assert!(below.contents() == before);
}

/// Guards against a copy per write, because the buffer is not returned when the device is done with it.
fn a_written_buffer_is_given_back(subject: Subject) {
    let buffer = pattern(1, BLOCK_BYTES);
    block_on(subject.device.write(0, Arc::clone(&buffer))).unwrap();
    assert!(Arc::try_unwrap(buffer).is_ok());
}

#[cfg(target_os = "linux")]
mod attached;
