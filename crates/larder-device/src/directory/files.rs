//! A directory on a real file system, with operations on threads of its own.
//!
//! Owns: the folder `files` in the store's directory, and a lock on that directory for as long as this exists. The page
//! cache is used; links are not followed. Invariant: at most one store uses a directory, in this process and all
//! others. A directory that holds anything but a store is refused, so foreign files are never removed. Cost: two
//! context switches, an open and a close per operation.

use crate::ignore_poison::IgnorePoison;
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    num::NonZeroUsize,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use rustix::fs::{FlockOperation, OFlags};

use super::{Directory, FileName, FileWork};
use crate::{DeviceError, DeviceErrorKind, Result, pool::ThreadPool, queue::too_much_waits, volume};

/// A directory on a real file system, with operations on threads of its own. Use it for data in many files that is read
/// and written without blocking the caller.
///
/// While it is open, no other process can open the same directory.
///
/// ```
/// use larder_device::{AlignedBuffer, Directory, FileName, FilesDirectory, block_on};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("files");
/// let directory = FilesDirectory::open(&path, FilesDirectory::THREAD_COUNT_DEFAULT)?;
/// let directory: Arc<dyn Directory> = Arc::new(directory);
/// let name = FileName::new("a/1").unwrap();
/// block_on(directory.write(name.clone(), 0, Arc::new(AlignedBuffer::with_len(5))))?;
/// assert_eq!(block_on(directory.list())?, [name]);
/// # Ok(())
/// # }
/// ```
pub struct FilesDirectory {
    root: Arc<LockedFolder>,
    pool: ThreadPool<FileWork>,
}

impl_debug!(FilesDirectory {});

/// The folder that contains the files, and the lock on the store's directory.
struct LockedFolder {
    path: PathBuf,
    files: PathBuf,
    block_bytes: u32,
    /// Locked while folders are created or removed. Otherwise a folder could be removed before a new file is created in
    /// it.
    folders: Mutex<()>,
    lock: File,
}

impl FilesDirectory {
    /// Name of the file that marks a directory as that of a store. The lock is on this file.
    pub(crate) const LOCK_NAME: &str = "larder.lock";
    /// Name of the folder in the store's directory that contains all files.
    pub const FOLDER_NAME: &str = "files";
    /// Default number of threads, which is also the number of operations that run at the same time.
    pub const THREAD_COUNT_DEFAULT: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not 0");

    /// Opens the directory of a store at `path`. Creates it if `path` does not exist or is an empty directory.
    ///
    /// # Errors
    /// `Invalid`: `path` is not a directory, or contains something that is not part of a store. `Unavailable`: the
    /// parent directory does not exist, or the system refuses the access or a thread. `InUse`: another store uses the
    /// directory, even after retries for a second.
    pub fn open(path: &Path, thread_count: NonZeroUsize) -> Result<Self> {
        let root = Arc::new(LockedFolder::open(path)?);
        let pool = ThreadPool::start("larder-files", thread_count, {
            let root = Arc::clone(&root);
            move |work| root.work(work)
        })
        .map_err(|error| {
            DeviceError::io(DeviceErrorKind::Unavailable, "cannot start the directory's threads", error)
        })?;
        Ok(Self { root, pool })
    }
}

impl Directory for FilesDirectory {
    fn submit(&self, work: FileWork) {
        if let Err(work) = self.pool.push(work) {
            refuse(work);
        }
    }

    fn block_bytes(&self) -> u32 {
        self.root.block_bytes
    }

    fn name(&self) -> &'static str {
        "files"
    }

    fn release(&self) {
        self.root.unlock();
    }
}

fn refuse(work: FileWork) {
    let error = too_much_waits();
    match work {
        FileWork::Read { completion, .. } => completion.complete(Err(error)),
        FileWork::List { completion } => completion.complete(Err(error)),
        FileWork::Write { completion, .. }
        | FileWork::Remove { completion, .. }
        | FileWork::Clear { completion }
        | FileWork::Sync { completion } => completion.complete(Err(error)),
    }
}

impl LockedFolder {
    /// Releases the lock, so that another store can use the directory. Nothing may be written afterwards.
    fn unlock(&self) {
        if let Err(error) = rustix::fs::flock(&self.lock, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %error, "cannot unlock the store's directory");
        }
    }

    fn open(path: &Path) -> Result<Self> {
        let unavailable = |what: &str, error| {
            DeviceError::io(
                DeviceErrorKind::Unavailable,
                format!("cannot {what} the store's directory {}", path.display()),
                error,
            )
        };
        if is_absent_or_refused(path)? {
            // Parent directories are not created: if one is missing, the path is probably wrong, and an error is
            // better.
            let made = DirBuilder::new().mode(FOLDER_MODE).create(path);
            made.or_else(unless_there).map_err(|error| unavailable("make", error))?;
        }
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path.join(FilesDirectory::LOCK_NAME))
            .map_err(|error| unavailable("mark", error))?;
        volume::lock(&lock, path, volume::wait_for_lock)?;
        let files = path.join(FilesDirectory::FOLDER_NAME);
        make_folder(&files).map_err(|error| unavailable("prepare", error))?;
        let space = rustix::fs::fstatvfs(&lock).map_err(|error| unavailable("examine", error.into()))?;
        let block_bytes = u32::try_from(space.f_frsize).ok().filter(|bytes| bytes.is_power_of_two());
        Ok(Self {
            path: path.to_owned(),
            files,
            block_bytes: block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT),
            folders: Mutex::default(),
            lock,
        })
    }

    fn work(&self, work: FileWork) {
        match work {
            FileWork::Read { file, offset_bytes, mut buffer, completion } => {
                let outcome = self.read(&file, offset_bytes, buffer.as_mut_slice());
                completion.complete(outcome.map(|()| buffer));
            }
            FileWork::Write { file, offset_bytes, buffer, completion } => {
                let outcome = self.write(&file, offset_bytes, buffer.as_slice());
                // Dropped before the completion, so that its receiver can become the only owner.
                drop(buffer);
                completion.complete(outcome);
            }
            FileWork::Remove { file, completion } => completion.complete(self.remove(&file)),
            FileWork::List { completion } => completion.complete(self.list()),
            FileWork::Clear { completion } => completion.complete(self.clear()),
            FileWork::Sync { completion } => completion.complete(self.sync()),
        }
    }

    fn read(&self, file: &FileName, offset_bytes: u64, to: &mut [u8]) -> io::Result<()> {
        let file = options().open(self.place(file))?;
        file.read_exact_at(to, offset_bytes)
    }

    fn write(&self, file: &FileName, offset_bytes: u64, from: &[u8]) -> io::Result<()> {
        let place = self.place(file);
        let mut options = options();
        options.write(true).create(true).mode(FILE_MODE);
        let file = match options.open(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let _alone = self.lock_folders();
                make_folder(place.parent().expect("a file is in a folder"))?;
                options.open(&place)?
            }
            opened => opened?,
        };
        file.write_all_at(from, offset_bytes)
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        let place = self.place(file);
        fs::remove_file(&place)?;
        let _alone = self.lock_folders();
        let folders = place.ancestors().skip(1).take_while(|folder| *folder != self.files);
        for folder in folders {
            // Fails as long as the folder contains other files.
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<FileName>> {
        let mut names = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(self.files.join(&folder)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.is_empty() => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                let kind = entry.file_type()?;
                // Skips names that the directory cannot have created.
                let Some(file) = FileName::new(path.as_str()) else { continue };
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    names.push(file);
                }
            }
        }
        Ok(names)
    }

    fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.files) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => make_folder(&self.files),
        }
    }

    /// Syncs all files, and the folders that name them, in one call.
    #[cfg(target_os = "linux")]
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.lock)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync(&self) -> io::Result<()> {
        rustix::fs::sync();
        Ok(())
    }

    fn lock_folders(&self) -> MutexGuard<'_, ()> {
        self.folders.lock().ignore_poison()
    }

    fn place(&self, file: &FileName) -> PathBuf {
        self.files.join(file.as_str())
    }
}

impl Drop for LockedFolder {
    fn drop(&mut self) {
        self.unlock();
    }
}

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Size of a block in bytes, if the file system does not report it.
const BLOCK_BYTES_DEFAULT: u32 = 4096;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Creates `folder` in the store's directory, and its parents if they do not exist. Only the owner can access them.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)
}

/// Ignores the error that the directory exists already. Another store may be creating it at the same time, and the lock
/// decides which of the two may use it.
fn unless_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// Returns whether nothing is at `path`.
///
/// # Errors
/// `Invalid` if `path` has content that is not a store's.
fn is_absent_or_refused(path: &Path) -> Result<bool> {
    let invalid = |what: &str| Err(DeviceError::new(DeviceErrorKind::Invalid, format!("{what}: {}", path.display())));
    let cannot_look = |error| {
        let place = format!("cannot read the store's directory {}", path.display());
        DeviceError::io(DeviceErrorKind::Unavailable, place, error)
    };
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => return invalid("the path of a store of files must be a directory"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(cannot_look(error)),
    }
    let is_empty = fs::read_dir(path).map_err(cannot_look)?.next().is_none();
    if is_empty || path.join(FilesDirectory::LOCK_NAME).is_file() {
        return Ok(false);
    }
    invalid("the directory contains something else, and a store of files needs a directory of its own")
}
