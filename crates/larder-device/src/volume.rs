//! A volume file or block device: opened, exclusively locked, and bypassing the page cache if possible.
//!
//! Owns: the lock for as long as a device uses the volume, the alignment, and the choice of a device. The bytes are
//! interpreted elsewhere; the length of an existing file is never changed. Invariant: at most one store uses a volume,
//! in this process and all others. A block device that is mounted or part of another is not opened.

mod direct;
mod foreign;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Once},
    thread,
    time::Duration,
};

use rustix::fs::{FlockOperation, OFlags};

use crate::{AlignedBuffer, Device, ThreadsDevice, in_flight::TransferBounds};
use crate::{DeviceError, DeviceErrorKind, Result};

/// The kernel interface for I/O on a volume.
///
/// ```
/// use larder_device::{IoChoice, VolumeFile, open_device};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("volume");
/// let device = open_device(VolumeFile::create(&path, 1 << 20)?, IoChoice::Threads)?;
/// assert_eq!(device.name(), "threads");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring if the kernel permits it, otherwise threads. A fallback to threads is logged once.
    #[default]
    Auto,
    /// io_uring. If the kernel does not permit it, opening fails.
    Uring,
    /// A pool of threads that call `pread` and `pwrite`.
    Threads,
}

/// An open volume, a regular file or a block device, that is locked against other stores.
///
/// ```
/// use larder_device::{IoChoice, VolumeFile, block_on, open_device};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("volume");
/// let file = VolumeFile::create(&path, 1 << 20)?;
/// let device = open_device(file, IoChoice::Auto)?;
/// assert_eq!(block_on(device.read(0, 4096))?.as_slice(), [0; 4096]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VolumeFile {
    file: File,
    path: PathBuf,
    bounds: TransferBounds,
    is_direct: bool,
    is_block_device: bool,
}

impl VolumeFile {
    /// Opens an existing file or block device without changing it.
    ///
    /// # Errors
    /// `Invalid`: `path` is neither a regular file nor a block device. `Unavailable`: it does not exist, or the access
    /// is not permitted. `InUse`: it is mounted, or another store uses it. Before this error, the call retries for a
    /// second, because that store may just be closing. If the process of that store is ending, it retries for ten
    /// seconds.
    pub fn open(path: &Path) -> Result<Self> {
        for _ in 0..OPEN_COUNT_MAX {
            let metadata = fs::metadata(path).map_err(|error| unavailable("cannot open the volume", path, error))?;
            let kind = VolumeKind::of(&metadata, path)?;
            let file = open_exclusive(kind, path, wait_for_lock)?;
            lock(&file, path, wait_for_lock)?;
            if is_named(&file, path)? {
                return Self::locked(file, path);
            }
        }
        Err(in_use(path))
    }

    /// Creates a file of `size_bytes` zeros that only its owner can access, and reserves its space on the disk. Removes
    /// the file if that fails.
    ///
    /// # Errors
    /// `Full`: the file system has too little free space. `Invalid`: it does not support files of this length.
    /// `Unavailable`: the file exists already, or cannot be created. `InUse`: another process has just removed or
    /// locked it.
    pub fn create(path: &Path, size_bytes: u64) -> Result<Self> {
        Self::create_with(path, size_bytes, reserve)
    }

    /// Creates a file of `size_bytes` zeros that only its owner can access. It takes space on the disk only where it is
    /// written. Removes the file if that fails.
    ///
    /// # Errors
    /// As [`VolumeFile::create`], except for `Full`.
    pub(crate) fn create_sparse(path: &Path, size_bytes: u64) -> Result<Self> {
        Self::create_with(path, size_bytes, |file, path, size_bytes| {
            file.set_len(size_bytes).map_err(|error| not_reserved(path, size_bytes, error))
        })
    }

    fn create_with(
        path: &Path,
        size_bytes: u64,
        give_length: impl FnOnce(&File, &Path, u64) -> Result<()>,
    ) -> Result<Self> {
        let file = options()
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| unavailable("cannot create the volume", path, error))?;
        lock(&file, path, wait_for_lock)?;
        if !is_named(&file, path)? {
            return Err(in_use(path));
        }
        let created = give_length(&file, path, size_bytes).and_then(|()| Self::locked(file, path));
        if created.is_err()
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove the volume that could not be created");
        }
        created
    }

    /// Fills `buffer` with the bytes from `offset_bytes` on. Blocks. For the few reads that are needed before there is
    /// a [`Device`].
    ///
    /// # Errors
    /// `Unavailable` if the device fails or the file is shorter.
    pub fn read_exact_at(&self, buffer: &mut AlignedBuffer, offset_bytes: u64) -> Result<()> {
        self.file
            .read_exact_at(buffer.as_mut_slice(), offset_bytes)
            .map_err(|error| unavailable("cannot read the volume", &self.path, error))
    }

    /// Returns the length of the volume in bytes, as it was when it was opened.
    pub fn len_bytes(&self) -> u64 {
        self.bounds.len_bytes
    }

    /// Returns the unit of offsets and lengths of I/O in bytes, a power of two from 512 to 4096.
    pub fn alignment_bytes(&self) -> u32 {
        self.bounds.alignment_bytes
    }

    /// Limits the volume to its first `len_bytes`, for a store that is smaller than its block device. Does nothing if
    /// the volume is not longer.
    pub fn shorten_to(&mut self, len_bytes: u64) {
        self.bounds.len_bytes = self.bounds.len_bytes.min(len_bytes);
    }

    /// Returns what a volume without a store contains, such as a file system; `None` if it is blank. Blocks for two
    /// reads.
    ///
    /// # Errors
    /// As [`VolumeFile::read_exact_at`].
    pub fn foreign_content(&self) -> Result<Option<&'static str>> {
        let head = self.read_end(0)?;
        let tail = self.read_end(self.len_bytes().saturating_sub(foreign::ENDS_BYTES))?;
        let ends = foreign::DeviceEnds { len_bytes: self.len_bytes(), head: head.as_slice(), tail: tail.as_slice() };
        Ok(foreign::find(&ends))
    }

    /// Overwrites both ends of the volume with zeros, because file systems and volume managers have their signatures
    /// there. Also discards everything in between, if the device can do that without writing.
    ///
    /// # Errors
    /// `Unavailable` if the device fails.
    pub fn wipe_ends(&self) -> Result<()> {
        let failed = |error| unavailable("cannot wipe the volume", &self.path, error);
        let block_bytes = u64::from(self.bounds.alignment_bytes);
        let wiped_bytes = self.len_bytes().min(foreign::ENDS_BYTES) / block_bytes * block_bytes;
        let mut zeros = AlignedBuffer::with_len(wiped_bytes as usize);
        zeros.as_mut_slice().fill(0);
        for offset_bytes in [0, (self.len_bytes() - wiped_bytes) / block_bytes * block_bytes] {
            self.file.write_all_at(zeros.as_slice(), offset_bytes).map_err(failed)?;
        }
        discard(&self.file, self.len_bytes());
        self.file.sync_data().map_err(failed)
    }

    /// Returns whether the volume is a block device rather than a file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Returns whether I/O bypasses the page cache of the system.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Reads up to [`foreign::ENDS_BYTES`] of the volume, from the start of the block that contains `offset_bytes`.
    fn read_end(&self, offset_bytes: u64) -> Result<AlignedBuffer> {
        let block_bytes = u64::from(self.bounds.alignment_bytes);
        let start = offset_bytes / block_bytes * block_bytes;
        let len = (self.len_bytes() - start).min(foreign::ENDS_BYTES);
        let mut buffer = AlignedBuffer::with_len((len / block_bytes * block_bytes) as usize);
        self.read_exact_at(&mut buffer, start)?;
        Ok(buffer)
    }

    pub(super) fn bounds(&self) -> TransferBounds {
        self.bounds
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn locked(mut file: File, path: &Path) -> Result<Self> {
        let examined = |error| unavailable("cannot inspect the volume", path, error);
        let metadata = file.metadata().map_err(examined)?;
        let is_block_device = VolumeKind::of(&metadata, path)? == VolumeKind::BlockDevice;
        let len_bytes = if is_block_device { file.seek(SeekFrom::End(0)).map_err(examined)? } else { metadata.len() };
        let direct_alignment = direct::turn_on(&file, is_block_device);
        let bounds = TransferBounds { len_bytes, alignment_bytes: direct_alignment.unwrap_or(ALIGNMENT_BYTES_MIN) };
        Ok(Self { file, path: path.to_owned(), bounds, is_direct: direct_alignment.is_some(), is_block_device })
    }
}

impl Drop for VolumeFile {
    fn drop(&mut self) {
        // Unlocked explicitly: a ring that is being torn down may keep the file open a little longer.
        self.unlock();
    }
}

impl VolumeFile {
    /// Releases the lock, so that another store can use the volume. Nothing may be written afterwards.
    pub(super) fn unlock(&self) {
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "cannot unlock the volume");
        }
    }
}

/// Creates a device on `file`, with the I/O interface that `io` selects. The file stays open and locked as long as the
/// device exists.
///
/// # Errors
/// `Unavailable` if the system refuses a thread or, with [`IoChoice::Uring`], io_uring.
pub fn open_device(file: VolumeFile, io: IoChoice) -> Result<Arc<dyn Device>> {
    let file = Arc::new(file);
    if !file.is_direct() {
        tracing::warn!(
            path = %file.path.display(),
            "the file system refuses direct I/O, using the page cache instead, which takes memory in addition"
        );
    }
    match io {
        IoChoice::Auto => match uring(&file) {
            Ok(device) => return Ok(device),
            Err(error) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!(
                        reason = %error,
                        "io_uring is refused, using threads instead, which take more processor time for each read"
                    );
                });
            }
        },
        IoChoice::Uring => {
            return uring(&file).map_err(|error| {
                DeviceError::io(DeviceErrorKind::Unavailable, "the kernel refuses io_uring, which was requested", error)
            });
        }
        IoChoice::Threads => {}
    }
    match ThreadsDevice::new(file, ThreadsDevice::THREAD_COUNT_DEFAULT) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(DeviceError::io(DeviceErrorKind::Unavailable, "cannot start the device's threads", error)),
    }
}

#[cfg(target_os = "linux")]
fn uring(file: &Arc<VolumeFile>) -> io::Result<Arc<dyn Device>> {
    Ok(Arc::new(crate::UringDevice::new(Arc::clone(file))?))
}

#[cfg(not(target_os = "linux"))]
fn uring(_file: &Arc<VolumeFile>) -> io::Result<Arc<dyn Device>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "available on Linux only"))
}

const ALIGNMENT_BYTES_MIN: u32 = 512;
/// Maximum number of attempts to take the lock: one second in total.
const LOCK_RETRY_COUNT_MAX: u32 = 100;
/// Maximum number of attempts to take the lock if the process that has it is ending: ten seconds in total. After `kill
/// -9` with 256 reads in flight, 75 ms were measured. On a busy machine, one start in several hundred took more than a
/// second.
const ENDING_RETRY_COUNT_MAX: u32 = 1000;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of attempts to open and lock a file that other processes remove or replace meanwhile.
const OPEN_COUNT_MAX: u32 = 16;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn unavailable(what: &str, path: &Path, error: io::Error) -> DeviceError {
    DeviceError::io(DeviceErrorKind::Unavailable, format!("{what} {}", path.display()), error)
}

/// Whether a volume is a regular file or a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VolumeKind {
    File,
    BlockDevice,
}

impl VolumeKind {
    fn of(metadata: &fs::Metadata, path: &Path) -> Result<Self> {
        let kind = metadata.file_type();
        if kind.is_file() {
            return Ok(Self::File);
        }
        if kind.is_block_device() {
            return Ok(Self::BlockDevice);
        }
        let what = if kind.is_dir() { "a directory" } else { "neither a regular file nor a block device" };
        Err(DeviceError::new(DeviceErrorKind::Invalid, format!("the volume is {what}: {}", path.display())))
    }
}

/// Opens a volume. Claims a block device exclusively. That fails while it is mounted, used as swap or part of another
/// device, and for a moment after a store on it was killed.
fn open_exclusive(kind: VolumeKind, path: &Path, mut pause: impl FnMut()) -> Result<File> {
    let mut options = options();
    if kind == VolumeKind::BlockDevice {
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    }
    for _ in 0..LOCK_RETRY_COUNT_MAX {
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => pause(),
            opened => return opened.map_err(|error| unavailable("cannot open the volume", path, error)),
        }
    }
    Err(DeviceError::new(
        DeviceErrorKind::InUse,
        format!("the device is mounted, part of another device, or in use by another store: {}", path.display()),
    ))
}

/// Locks `file`, and waits a moment if it is locked. After a process was killed, the kernel takes some time to finish
/// its I/O and to close its files.
pub(super) fn lock(file: &File, path: &Path, pause: impl FnMut()) -> Result<()> {
    lock_unless(file, path, pause, || has_living_holder(file))
}

/// Locks `file` like [`lock`]. `has_holder` returns whether a process that is not ending has the lock, as far as that
/// is known.
fn lock_unless(file: &File, path: &Path, mut pause: impl FnMut(), has_holder: impl Fn() -> bool) -> Result<()> {
    for attempt in 1..=ENDING_RETRY_COUNT_MAX {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if attempt % LOCK_RETRY_COUNT_MAX == 0 && has_holder() => break,
            Err(rustix::io::Errno::WOULDBLOCK) => pause(),
            Err(error) => return Err(unavailable("cannot lock the volume", path, error.into())),
        }
    }
    Err(in_use(path))
}

fn in_use(path: &Path) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::InUse,
        format!("the volume is in use by another process or store: {}", path.display()),
    )
}

/// Returns whether `path` still leads to `file`. If another process removed or replaced the file before this process
/// locked it, the lock has no effect.
fn is_named(file: &File, path: &Path) -> Result<bool> {
    let failed = |error| unavailable("cannot inspect the volume", path, error);
    let own = file.metadata().map_err(failed)?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Returns whether a process that is not ending has the lock on `file`. Returns `true` if the file system does not
/// show it.
fn has_living_holder(file: &File) -> bool {
    let Ok(inode) = file.metadata().map(|metadata| metadata.ino()) else { return true };
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return true };
    let holders: Vec<u64> = locks.lines().filter_map(|line| flock_holder(line, inode)).collect();
    // A process of another namespace has the number 0.
    holders.iter().any(|&process| process == 0 || is_living(process))
}

/// Returns the process that has a lock on this inode, according to a line of `/proc/locks` such as `1: FLOCK  ADVISORY
/// WRITE 4711 fe:00:1234 0 EOF`. Returns `None` if the line is about another file.
fn flock_holder(line: &str, inode: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace().skip_while(|field| *field != "FLOCK");
    let process = fields.nth(3)?;
    let place = fields.next()?;
    let is_here = place.rsplit(':').next()?.parse() == Ok(inode);
    is_here.then(|| process.parse().unwrap_or(0))
}

/// Returns whether a process exists and is not ending.
fn is_living(process: u64) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The state follows the name, which is in parentheses and may contain anything.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X' | 'x'))
}

pub(super) fn wait_for_lock() {
    thread::sleep(LOCK_RETRY_INTERVAL);
}

/// Extends the new, empty `file` to `size_bytes`. Reserves its blocks on the disk, if the file system supports that.
fn reserve(file: &File, path: &Path, size_bytes: u64) -> Result<()> {
    // Checked first, so that a volume that is far too large does not use up the disk before it fails.
    if let Ok(space) = rustix::fs::fstatvfs(file) {
        let available_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        // A file system without a limit of its own reports no blocks at all.
        if space.f_blocks > 0 && available_bytes < size_bytes {
            return Err(DeviceError::new(
                DeviceErrorKind::Full,
                format!(
                    "no room for the volume {}: {size_bytes} bytes needed, {available_bytes} available",
                    path.display()
                ),
            ));
        }
    }
    allocate(file, size_bytes).map_err(|error| not_reserved(path, size_bytes, error))
}

/// Returns the error for a new file that could not be extended to its length.
fn not_reserved(path: &Path, size_bytes: u64, error: io::Error) -> DeviceError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DeviceErrorKind::Full,
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => DeviceErrorKind::Invalid,
        _ => DeviceErrorKind::Unavailable,
    };
    DeviceError::io(kind, format!("cannot reserve {size_bytes} bytes for the volume {}", path.display()), error)
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    use rustix::{fs::FallocateFlags, io::Errno};
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes)) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(size_bytes),
        Err(error) => Err(error.into()),
    }
}

/// Discards the content of a block device, if the device can do that without writing everything.
#[cfg(target_os = "linux")]
fn discard(file: &File, len_bytes: u64) {
    use rustix::fs::FallocateFlags;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if let Err(error) = rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, 0, len_bytes)) {
        tracing::debug!(%error, "the device keeps its old content, which does not belong to the new store");
    }
}

#[cfg(not(target_os = "linux"))]
fn discard(_file: &File, _len_bytes: u64) {}

#[cfg(not(target_os = "linux"))]
fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    file.set_len(size_bytes)
}

#[cfg(test)]
mod tests;
