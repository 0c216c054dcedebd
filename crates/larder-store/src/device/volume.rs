//! The volume file: opened, exclusively locked, and past the page cache where the file system allows.
//!
//! Owns: the lock for as long as any device uses the file, the alignment, the choice of a device. Does not: know
//! what the bytes mean, or change the length of a file that exists. Invariant: one store per file, in this
//! process and all others.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Once},
    thread,
    time::Duration,
};

use rustix::fs::FlockOperation;

use super::{AlignedBuffer, Device, ThreadsDevice, in_flight::Bounds};
use crate::{Error, ErrorKind, IoChoice, Result};

/// An opened, exclusively locked volume file.
#[derive(Debug)]
pub struct VolumeFile {
    file: File,
    path: PathBuf,
    bounds: Bounds,
    is_direct: bool,
}

impl VolumeFile {
    /// Opens an existing file without changing it.
    ///
    /// # Errors
    /// `Invalid`: not a regular file. `Unavailable`: absent, not permitted, or in use by another store (known after
    /// a second, in which a store that is just being closed has time to go).
    pub fn open(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(|error| unavailable("cannot open the volume", path, error))?;
        refuse_other_kinds(&metadata, path)?;
        let file = options().open(path).map_err(|error| unavailable("cannot open the volume", path, error))?;
        lock(&file, path, wait_for_lock)?;
        Self::locked(file, path)
    }

    /// Creates a file of `size_bytes`, readable by its owner alone, with room for all of it reserved. What it
    /// holds is zeros. When this fails, nothing stays behind.
    ///
    /// # Errors
    /// `Full`: the file system has no room. `Invalid`: it cannot hold a file that long. `Unavailable`: the file
    /// exists already, or cannot be created.
    pub fn create(path: &Path, size_bytes: u64) -> Result<Self> {
        let file = options()
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| unavailable("cannot create the volume", path, error))?;
        let created = lock(&file, path, wait_for_lock)
            .and_then(|()| reserve(&file, path, size_bytes))
            .and_then(|()| Self::locked(file, path));
        if created.is_err()
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove the volume that could not be created");
        }
        created
    }

    /// Fills `buffer` from `offset_bytes`, blocking; for the few reads before there is a device.
    ///
    /// # Errors
    /// `Unavailable`: the device fails or the file ends before.
    pub fn read_exact_at(&self, buffer: &mut AlignedBuffer, offset_bytes: u64) -> Result<()> {
        self.file
            .read_exact_at(buffer.as_mut_slice(), offset_bytes)
            .map_err(|error| unavailable("cannot read the volume", &self.path, error))
    }

    /// Length in bytes when it was opened.
    pub fn len_bytes(&self) -> u64 {
        self.bounds.len_bytes
    }

    /// What offsets and lengths of transfers are multiples of, a power of two between 512 and 4096.
    pub fn alignment_bytes(&self) -> u32 {
        self.bounds.alignment_bytes
    }

    /// Whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn locked(file: File, path: &Path) -> Result<Self> {
        let metadata = file.metadata().map_err(|error| unavailable("cannot examine the volume", path, error))?;
        refuse_other_kinds(&metadata, path)?;
        let direct_alignment = direct::turn_on(&file);
        let bounds =
            Bounds { len_bytes: metadata.len(), alignment_bytes: direct_alignment.unwrap_or(ALIGNMENT_BYTES_MIN) };
        Ok(Self { file, path: path.to_owned(), bounds, is_direct: direct_alignment.is_some() })
    }
}

impl Drop for VolumeFile {
    fn drop(&mut self) {
        // Not left to the closing of the file: a ring that is being torn down may hold it a little longer.
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "cannot unlock the volume");
        }
    }
}

/// Makes the device that `io` asks for. It keeps the file open and locked for its life.
///
/// # Errors
/// `Unavailable`: the system refuses io_uring (only with [`IoChoice::Uring`]) or a thread.
pub fn open_device(file: VolumeFile, io: IoChoice) -> Result<Arc<dyn Device>> {
    let file = Arc::new(file);
    match io {
        IoChoice::Auto => match uring(&file) {
            Ok(device) => return Ok(device),
            Err(error) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| tracing::warn!(reason = %error, "io_uring is refused, using threads instead"));
            }
        },
        IoChoice::Uring => {
            return uring(&file)
                .map_err(|error| Error::io(ErrorKind::Unavailable, "io_uring was asked for but is refused", error));
        }
        IoChoice::Threads => {}
    }
    match ThreadsDevice::new(file, ThreadsDevice::THREAD_COUNT_DEFAULT) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(Error::io(ErrorKind::Unavailable, "cannot start the device's threads", error)),
    }
}

#[cfg(target_os = "linux")]
fn uring(file: &Arc<VolumeFile>) -> io::Result<Arc<dyn Device>> {
    Ok(Arc::new(super::UringDevice::new(Arc::clone(file))?))
}

#[cfg(not(target_os = "linux"))]
fn uring(_file: &Arc<VolumeFile>) -> io::Result<Arc<dyn Device>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has it"))
}

const ALIGNMENT_BYTES_MIN: u32 = 512;
/// One second in all. Measured after kill -9 with 256 reads in flight: 75 ms.
const LOCK_RETRY_COUNT_MAX: u32 = 100;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn unavailable(what: &str, path: &Path, error: io::Error) -> Error {
    Error::io(ErrorKind::Unavailable, format!("{what} {}", path.display()), error)
}

fn refuse_other_kinds(metadata: &fs::Metadata, path: &Path) -> Result<()> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let what = if kind.is_dir() {
        "a directory"
    } else if kind.is_block_device() {
        "a block device, and only files are supported"
    } else {
        "not a regular file"
    };
    Err(Error::new(ErrorKind::Invalid, format!("the volume is {what}: {}", path.display())))
}

/// Takes the lock, waiting a moment for it: the kernel takes a while to let go of the transfers, and with them of
/// the files, of a process that was killed.
pub(super) fn lock(file: &File, path: &Path, mut pause: impl FnMut()) -> Result<()> {
    for _ in 0..LOCK_RETRY_COUNT_MAX {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => pause(),
            Err(error) => return Err(unavailable("cannot lock the volume", path, error.into())),
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        format!("the volume is in use by another process or store: {}", path.display()),
    ))
}

pub(super) fn wait_for_lock() {
    thread::sleep(LOCK_RETRY_INTERVAL);
}

/// Gives the new, empty `file` its length, with blocks for all of it where the file system can.
fn reserve(file: &File, path: &Path, size_bytes: u64) -> Result<()> {
    // Asked first, so that a volume far too large does not take every free block before it fails.
    if let Ok(space) = rustix::fs::fstatvfs(file) {
        let available_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if available_bytes < size_bytes {
            return Err(Error::new(
                ErrorKind::Full,
                format!(
                    "no room for the volume {}: {size_bytes} bytes wanted, {available_bytes} available",
                    path.display()
                ),
            ));
        }
    }
    match allocate(file, size_bytes) {
        Ok(()) => Ok(()),
        Err(error) => {
            let kind = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
                io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => ErrorKind::Invalid,
                _ => ErrorKind::Unavailable,
            };
            Err(Error::io(kind, format!("cannot reserve {size_bytes} bytes for the volume {}", path.display()), error))
        }
    }
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

#[cfg(not(target_os = "linux"))]
fn allocate(file: &File, size_bytes: u64) -> io::Result<()> {
    file.set_len(size_bytes)
}

#[cfg(target_os = "linux")]
mod direct {
    use std::{fs::File, os::unix::fs::FileExt};

    use rustix::fs::{AtFlags, OFlags, StatxFlags};

    use super::ALIGNMENT_BYTES_MIN;
    use crate::device::{AlignedBuffer, BUFFER_ALIGNMENT_BYTES};

    /// Makes transfers of `file` go past the page cache and says on what alignment; `None`: they cannot.
    pub(super) fn turn_on(file: &File) -> Option<u32> {
        let alignment_bytes = alignment_bytes(file)?;
        let flags = rustix::fs::fcntl_getfl(file).ok()?;
        rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        // Some file systems take the flag and then refuse every transfer.
        let mut probe = AlignedBuffer::with_len(BUFFER_ALIGNMENT_BYTES);
        match file.read_at(probe.as_mut_slice(), 0) {
            Ok(_) => Some(alignment_bytes),
            Err(_) => {
                rustix::fs::fcntl_setfl(file, flags).ok()?;
                None
            }
        }
    }

    /// The alignment direct transfers need, if it is one this engine's buffers and records have.
    fn alignment_bytes(file: &File) -> Option<u32> {
        let asked = StatxFlags::DIOALIGN;
        match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, asked) {
            Ok(answer) if answer.stx_mask & asked.bits() != 0 => {
                let (offset, memory) = (answer.stx_dio_offset_align, answer.stx_dio_mem_align);
                let is_possible = offset.is_power_of_two()
                    && memory.is_power_of_two()
                    && offset.max(memory) as usize <= BUFFER_ALIGNMENT_BYTES;
                is_possible.then_some(offset.max(ALIGNMENT_BYTES_MIN))
            }
            // Before Linux 6.1 nobody can tell; a page satisfies every disk.
            _ => Some(BUFFER_ALIGNMENT_BYTES as u32),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod direct {
    pub(super) fn turn_on(_file: &std::fs::File) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests;
