//! A device on io_uring. One ring, on a thread of its own, does writes and the reads of other threads. Each attached
//! thread has a ring for its own reads.
//!
//! Owns: [`UringRing`], the only code here that passes memory to the kernel. `attached` decides in an event loop when a
//! ring is turned, `background` on its thread. Invariant: a buffer that the kernel may touch stays in the ring's slab
//! until its completion has arrived. Cost: one system call per turn, for any number of operations.
#![expect(unsafe_code, reason = "the kernel reads and writes buffers the compiler cannot see it has")]

mod attached;
mod background;

use std::{
    collections::VecDeque,
    io,
    ops::ControlFlow,
    os::fd::{AsRawFd, RawFd},
    ptr,
    sync::Arc,
    time::Duration,
};

use io_uring::{IoUring, opcode, squeue, types};
use slab::Slab;

use self::background::BackgroundRing;
use crate::{
    Device, ThreadDriver, Transfer, VolumeFile,
    buffer::{BufferPool, BufferRegion},
    in_flight::{InFlight, SystemCall},
};

/// A device on io_uring. [`crate::open_device`] with [`crate::IoChoice::Auto`] creates one if the kernel permits it;
/// use this type if the caller decides what happens otherwise.
///
/// ```
/// use larder_device::{Device, UringDevice, VolumeFile, block_on};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("volume");
/// let file = Arc::new(VolumeFile::create(&path, 1 << 20)?);
/// match UringDevice::new(file) {
///     Ok(device) => {
///         let device: Arc<dyn Device> = Arc::new(device);
///         assert_eq!(block_on(device.read(0, 4096))?.as_slice(), [0; 4096]);
///     }
///     Err(refused) => println!("the kernel refuses io_uring: {refused}"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct UringDevice {
    file: Arc<VolumeFile>,
    background: BackgroundRing,
}

impl_debug!(UringDevice {});

impl UringDevice {
    /// Creates a device on `file`.
    ///
    /// # Errors
    /// If the kernel is too old for io_uring or does not permit it, as in many containers. Use a
    /// [`crate::ThreadsDevice`] then.
    pub fn new(file: Arc<VolumeFile>) -> io::Result<Self> {
        let background = BackgroundRing::start(&file)?;
        Ok(Self { file, background })
    }
}

impl Device for UringDevice {
    fn submit(&self, transfer: Transfer) {
        let Some(in_flight) = self.file.bounds().admit(transfer) else { return };
        let not_taken = if in_flight.is_read() { attached::submit(&self.file, in_flight) } else { Some(in_flight) };
        if let Some(in_flight) = not_taken {
            self.background.submit(in_flight);
        }
    }

    fn release(&self) {
        self.file.unlock();
    }

    fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    fn alignment_bytes(&self) -> u32 {
        self.file.alignment_bytes()
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn attach_thread(&self) -> Option<ThreadDriver> {
        match attached::attach(&self.file) {
            Ok(driver) => driver,
            Err(error) => {
                tracing::warn!(%error, "a thread has no ring of its own");
                None
            }
        }
    }
}

/// An operation that has ended, with its outcome, before it is delivered. Completions are called only while no ring is
/// borrowed.
type FinishedTransfer = (InFlight, io::Result<()>);

fn deliver(finished: &mut Vec<FinishedTransfer>) {
    for (in_flight, outcome) in finished.drain(..) {
        in_flight.complete(outcome);
    }
}

/// A submission queue and a completion queue of the kernel, and their operations. Only the thread that created the ring
/// uses it.
struct UringRing {
    ring: IoUring,
    /// Operations that are not submitted to the kernel yet.
    waiting: VecDeque<InFlight>,
    /// Operations that the kernel executes. Their key is the user data of the submission.
    in_flight: Slab<InFlight>,
    in_flight_count_max: usize,
    is_file_registered: bool,
    is_watching: bool,
    is_broken: bool,
    /// The buffers that are registered with the kernel; `None` if there are none. Declared after the ring, like `file`,
    /// so that they are dropped after it.
    registered: Option<Arc<BufferPool>>,
    file: Arc<VolumeFile>,
}

impl UringRing {
    fn new(file: Arc<VolumeFile>) -> io::Result<Self> {
        Self::on(build()?, file)
    }

    fn on(ring: IoUring, file: Arc<VolumeFile>) -> io::Result<Self> {
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::ReadFixed::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::PollAdd::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring lacks read and write"));
        }
        // Registering saves a file lookup per operation. If the kernel refuses, that is the only loss.
        let is_file_registered = ring.submitter().register_files(&[file.file().as_raw_fd()]).is_ok();
        // One completion is reserved for the watch, so that the completion queue never overflows.
        let in_flight_count_max = ring.params().cq_entries() as usize - 1;
        Ok(Self {
            ring,
            waiting: VecDeque::new(),
            in_flight: Slab::with_capacity(in_flight_count_max),
            in_flight_count_max,
            is_file_registered,
            is_watching: false,
            is_broken: false,
            registered: None,
            file,
        })
    }

    /// Registers the calling thread's buffers with the kernel. The kernel may refuse, because they count as locked
    /// memory; reads then take a little more time.
    fn register_buffers(&mut self) {
        let pool = BufferPool::of_thread();
        let region = |region: &BufferRegion| libc::iovec {
            iov_base: ptr::with_exposed_provenance_mut(region.start),
            iov_len: region.len_bytes,
        };
        let regions: Vec<_> = pool.regions().iter().map(region).collect();
        // SAFETY: the memory belongs to the pool, which neither moves nor frees it while the pool is referenced. This
        // ring holds a reference until the kernel has released the ring.
        match unsafe { self.ring.submitter().register_buffers(&regions) } {
            Ok(()) => self.registered = Some(pool),
            Err(error) => tracing::debug!(%error, "the kernel does not keep buffers registered for reads"),
        }
    }

    /// Accepts an operation. The next [`Self::turn`] submits it to the kernel.
    fn queue(&mut self, in_flight: InFlight) {
        self.waiting.push_back(in_flight);
    }

    /// Submits the waiting operations to the kernel. Waits for at least `completion_count_min` completions. Moves all
    /// operations that have ended to `finished`.
    fn turn(&mut self, completion_count_min: usize, finished: &mut Vec<FinishedTransfer>) {
        self.fill();
        let submissions = self.ring.submission();
        let is_needed = !self.is_broken
            && (completion_count_min > 0
                || !submissions.is_empty()
                || submissions.taskrun()
                || submissions.cq_overflow());
        drop(submissions);
        if is_needed && let Err(error) = self.enter(completion_count_min) {
            self.break_down(&error);
        }
        self.collect(finished);
        if self.is_broken {
            let broken = || io::Error::new(io::ErrorKind::BrokenPipe, "io_uring has stopped working");
            finished.extend(self.waiting.drain(..).map(|in_flight| (in_flight, Err(broken()))));
        }
    }

    /// Submits all queued operations, and waits until every operation has ended.
    fn drain(&mut self) {
        let mut finished = Vec::new();
        while !self.is_idle() {
            self.turn(1, &mut finished);
            deliver(&mut finished);
        }
    }

    /// Makes a waiting [`Self::turn`] return when `descriptor` becomes readable. This works once: call it again after
    /// that.
    fn watch(&mut self, descriptor: RawFd) {
        if self.is_watching || self.is_broken {
            return;
        }
        let entry = opcode::PollAdd::new(types::Fd(descriptor), READABLE).build().user_data(WATCH_KEY);
        // SAFETY: the entry points to no memory.
        self.is_watching = unsafe { self.ring.submission().push(&entry) }.is_ok();
    }

    /// Makes the kernel signal `event` whenever an operation has ended.
    fn signal(&self, event: RawFd) -> io::Result<()> {
        self.ring.submitter().register_eventfd(event)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Returns how many more operations can be queued for the next [`Self::turn`].
    fn room_count(&self) -> usize {
        self.in_flight_count_max.saturating_sub(self.in_flight.len() + self.waiting.len())
    }

    /// Returns whether another [`Self::turn`] would have something to do at once.
    fn wants_turn(&mut self) -> bool {
        let may_fill = !self.waiting.is_empty() && self.in_flight.len() < self.in_flight_count_max;
        let submissions = self.ring.submission();
        let is_pending = !submissions.is_empty() || submissions.taskrun();
        drop(submissions);
        !self.is_broken && (may_fill || is_pending || !self.ring.completion().is_empty())
    }

    /// Moves waiting operations into the submission queue, as long as it has space.
    fn fill(&mut self) {
        if self.is_broken {
            return;
        }
        let mut submissions = self.ring.submission();
        let (file, flags) = if self.is_file_registered {
            (types::Fd(REGISTERED_INDEX), squeue::Flags::FIXED_FILE)
        } else {
            (types::Fd(self.file.file().as_raw_fd()), squeue::Flags::empty())
        };
        while !submissions.is_full() && self.in_flight.len() < self.in_flight_count_max {
            let Some(in_flight) = self.waiting.pop_front() else { break };
            let slot = self.in_flight.vacant_entry();
            let key = slot.key() as u64;
            let in_flight = slot.insert(in_flight);
            let registered = self.registered.as_ref().and_then(|pool| in_flight.index_in(pool));
            let entry = entry(file, in_flight.call(), registered).flags(flags).user_data(key);
            // SAFETY: the entry points to the operation's buffer, which is on the heap, at an address that stays the
            // same when the slab grows. The slab keeps the buffer until `collect` has seen the completion with this
            // key, or forever if the ring breaks. Until then nothing else reads or writes it (a write's buffer is
            // shared, but only for reading). Dropping the ring waits for all completions.
            let pushed = unsafe { submissions.push(&entry) };
            debug_assert!(pushed.is_ok(), "there was room");
        }
    }

    fn enter(&self, completion_count_min: usize) -> io::Result<()> {
        loop {
            let Err(error) = self.ring.submit_and_wait(completion_count_min) else { return Ok(()) };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory => {
                    // The kernel is short of memory. A caller that may wait sleeps here; others turn again later.
                    if completion_count_min > 0 {
                        std::thread::sleep(ENTER_RETRY_INTERVAL);
                    }
                    return Ok(());
                }
                _ => return Err(error),
            }
        }
    }

    fn collect(&mut self, finished: &mut Vec<FinishedTransfer>) {
        for completion in self.ring.completion() {
            let key = completion.user_data();
            if key == WATCH_KEY {
                self.is_watching = false;
                continue;
            }
            let key = key as usize;
            // A key is unknown only if its completion arrives after the ring broke.
            let Some(in_flight) = self.in_flight.get_mut(key) else { continue };
            let result = completion.result();
            let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            let step = in_flight.advance(result);
            let in_flight = self.in_flight.remove(key);
            match step {
                ControlFlow::Continue(()) => self.waiting.push_front(in_flight),
                ControlFlow::Break(outcome) => finished.push((in_flight, outcome)),
            }
        }
    }

    /// Gives up a ring from which the kernel accepts no more calls. All its operations fail, and so do later ones.
    /// Their buffers are leaked, because the kernel may still use them and will not say when it is done.
    fn break_down(&mut self, error: &io::Error) {
        tracing::error!(%error, "a ring has failed, its transfers fail");
        self.is_broken = true;
        let kept: Vec<_> = self.in_flight.iter_mut().map(|(_, in_flight)| in_flight.keep_buffer()).collect();
        kept.leak();
        self.waiting.extend(self.in_flight.drain());
    }
}

impl Drop for UringRing {
    fn drop(&mut self) {
        self.drain();
        if self.is_file_registered
            && let Err(error) = self.ring.submitter().unregister_files()
        {
            tracing::debug!(%error, "the kernel keeps the file until the ring is gone");
        }
    }
}

/// Maximum number of operations that one system call submits. The completion queue is twice as long, which limits the
/// operations in flight.
const SUBMISSION_COUNT_MAX: u32 = 256;
/// Pause before a system call is repeated that failed because the kernel had no memory.
const ENTER_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Index of the volume's file, the only file that is registered with the ring.
const REGISTERED_INDEX: RawFd = 0;
/// User data of the operation that watches a descriptor. No key of an operation has this value.
const WATCH_KEY: u64 = u64::MAX;
/// `POLLIN`, the poll event for a descriptor that is readable.
const READABLE: u32 = 1;

/// The ways to set up a ring, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingKind {
    /// The kernel handles completions when the thread asks for them. Since Linux 6.1.
    Deferred,
    /// The kernel handles completions when the thread enters the kernel for another reason. Since Linux 5.19.
    Cooperative,
    /// The kernel interrupts the thread to handle completions.
    Plain,
}

impl RingKind {
    /// The setups for kernels that do not support `Deferred`, the best first.
    const OLDER: [Self; 2] = [Self::Cooperative, Self::Plain];

    fn build(self) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        match self {
            Self::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all()
            }
            Self::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all(),
            Self::Plain => &mut builder,
        };
        builder.build(SUBMISSION_COUNT_MAX)
    }
}

/// Creates a ring with the best setup that the kernel supports.
fn build() -> io::Result<IoUring> {
    let mut built = RingKind::Deferred.build();
    for kind in RingKind::OLDER {
        if !is_unknown_flag(&built) {
            break;
        }
        built = kind.build();
    }
    built
}

fn is_unknown_flag(built: &io::Result<IoUring>) -> bool {
    built.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
}

/// Returns the submission for a system call. `registered` is the index of its buffer if that is registered with the
/// kernel.
fn entry(file: types::Fd, call: SystemCall<'_>, registered: Option<u16>) -> squeue::Entry {
    match call {
        SystemCall::Read(to, offset_bytes) if let Some(index) = registered => {
            opcode::ReadFixed::new(file, to.as_mut_ptr(), to.len() as u32, index).offset(offset_bytes).build()
        }
        SystemCall::Read(to, offset_bytes) => {
            opcode::Read::new(file, to.as_mut_ptr(), to.len() as u32).offset(offset_bytes).build()
        }
        SystemCall::Write(from, offset_bytes) => {
            opcode::Write::new(file, from.as_ptr(), from.len() as u32).offset(offset_bytes).build()
        }
        SystemCall::Sync => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::{AlignedBuffer, Completion};

    /// Checks the setups for kernels before 6.1 and 5.19, which no other test uses on a newer kernel.
    #[test]
    fn every_kind_of_ring_transfers() {
        const COUNT: u64 = 1000;
        for kind in [RingKind::Deferred, RingKind::Cooperative, RingKind::Plain] {
            let directory = tempfile::tempdir().unwrap();
            let file = Arc::new(VolumeFile::create(&directory.path().join("volume"), COUNT * 4096).unwrap());
            let bounds = file.bounds();
            let ring = match kind.build() {
                Ok(ring) => ring,
                Err(error) => {
                    eprintln!("skipped: {kind:?} is refused: {error}");
                    continue;
                }
            };
            assert_eq!(ring.params().is_setup_single_issuer(), kind == RingKind::Deferred);
            let mut ring = UringRing::on(ring, file).unwrap();
            let (sender, outcomes) = mpsc::channel();
            for round in 0..2 {
                for index in 0..COUNT {
                    let sender = sender.clone();
                    let mut buffer = AlignedBuffer::with_len(4096);
                    buffer.as_mut_slice().fill(index as u8);
                    let transfer = if round == 0 {
                        let completion =
                            Completion::callback(move |result: io::Result<()>| sender.send(result.is_ok()).unwrap());
                        Transfer::Write { offset_bytes: index * 4096, buffer: Arc::new(buffer), completion }
                    } else {
                        let completion = Completion::callback(move |result: io::Result<AlignedBuffer>| {
                            let read = result.unwrap();
                            sender.send(read.as_slice().iter().all(|byte| *byte == index as u8)).unwrap();
                        });
                        Transfer::Read { offset_bytes: index * 4096, buffer: AlignedBuffer::with_len(4096), completion }
                    };
                    ring.queue(bounds.admit(transfer).unwrap());
                }
                ring.drain();
                assert_eq!(outcomes.try_iter().filter(|is_right| *is_right).count() as u64, COUNT, "{kind:?}");
            }
        }
    }

    /// Guards against operations that never complete after the kernel has stopped accepting calls, and memory that it
    /// writes to after it was freed. The test uses a ring on another thread, which makes its system calls fail.
    #[test]
    fn a_broken_ring_fails_its_transfers() {
        let directory = tempfile::tempdir().unwrap();
        let file = Arc::new(VolumeFile::create(&directory.path().join("volume"), 1 << 20).unwrap());
        let bounds = file.bounds();
        let mut ring = match thread::spawn(|| UringRing::new(file)).join().unwrap() {
            Ok(ring) if ring.ring.params().is_setup_single_issuer() => ring,
            Ok(_) => return eprintln!("skipped: the kernel's rings may be used by any thread"),
            Err(error) => return eprintln!("skipped: io_uring is refused: {error}"),
        };
        let (sender, outcomes) = mpsc::channel();
        let mut finished = Vec::new();
        for _ in 0..2 {
            let sender = sender.clone();
            let completion =
                Completion::callback(move |result: io::Result<AlignedBuffer>| sender.send(result.is_err()).unwrap());
            let transfer = Transfer::Read { offset_bytes: 0, buffer: AlignedBuffer::with_len(4096), completion };
            ring.queue(bounds.admit(transfer).unwrap());
            ring.turn(1, &mut finished);
            deliver(&mut finished);
            assert!(ring.is_broken);
            assert!(ring.is_idle());
            assert!(!ring.wants_turn());
            assert_eq!(outcomes.try_recv(), Ok(true));
        }
    }
}
