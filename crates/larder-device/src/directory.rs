//! The directory interface: asynchronous operations on named files, for policies that keep entries in files.
//!
//! Owns: the [`Directory`] trait, the [`FileWork`] submitted to it, and the [`FileName`] that cannot lead out of it.
//! The content of files is decided elsewhere. Operations on one file are not ordered: a caller that needs an order
//! waits for the first. Invariant: all work completes exactly once, with an error if its directory goes away. Cost: one
//! allocation per awaited operation. Source: docs/internals/rfcs/0002-directory.md.

mod files;
mod memory;

use std::{fmt, sync::Arc};

pub use self::{files::FilesDirectory, memory::MemoryDirectory};
use crate::{AlignedBuffer, Completion, PendingTransfer};

/// A set of named files with asynchronous I/O. Offsets and lengths need not be aligned.
///
/// ```
/// use larder_device::{AlignedBuffer, Directory, FileName, MemoryDirectory, block_on};
/// use std::sync::Arc;
///
/// # fn main() -> std::io::Result<()> {
/// let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::new(1 << 20));
/// let name = FileName::new("a/1").unwrap();
/// let mut buffer = AlignedBuffer::with_len(3);
/// buffer.as_mut_slice().copy_from_slice(b"abc");
/// block_on(directory.write(name.clone(), 0, Arc::new(buffer)))?;
/// assert_eq!(block_on(directory.read(name, 1, 2))?.as_slice(), b"bc");
/// # Ok(())
/// # }
/// ```
pub trait Directory: Send + Sync + 'static {
    /// Starts `work` and returns at once. The work's completion gets the outcome, possibly before this call returns. If
    /// the system moves only a part of the bytes, the directory continues with the remainder.
    fn submit(&self, work: FileWork);

    /// Returns the unit in bytes, a power of two, to which a file's space on the disk is rounded up.
    fn block_bytes(&self) -> u32;

    /// Returns the name of the implementation for logs and metrics, such as `files`.
    fn name(&self) -> &'static str;

    /// Releases the lock that keeps other stores from using the directory, like [`crate::Device::release`].
    fn release(&self) {}
}

/// An operation for a directory. The directory owns the buffer until it completes the operation.
///
/// The methods of `dyn Directory`, such as `read`, create one and return a future. Create one yourself to get the
/// outcome by a callback, or in a directory that wraps another one.
///
/// ```
/// use larder_device::{Completion, Directory, FileName, FileWork, MemoryDirectory};
/// use std::io::ErrorKind;
///
/// let directory = MemoryDirectory::new(1 << 20);
/// let file = FileName::new("a/1").unwrap();
/// let completion = Completion::callback(|outcome: std::io::Result<()>| {
///     assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotFound);
/// });
/// directory.submit(FileWork::Remove { file, completion });
/// ```
#[derive(Debug)]
pub enum FileWork {
    /// Fills the whole buffer with the bytes of a file from `offset_bytes` on.
    Read {
        /// Name of the file. If it does not exist, the error is `NotFound`.
        file: FileName,
        /// Offset in the file, in bytes.
        offset_bytes: u64,
        /// Memory for the bytes. Its length is the number of bytes to read. If the file is shorter, the error is
        /// `UnexpectedEof`.
        buffer: AlignedBuffer,
        /// Gets the filled buffer.
        completion: Completion<AlignedBuffer>,
    },
    /// Writes the whole buffer at `offset_bytes` of a file. Creates the file, and the directories in its name, if they
    /// do not exist. A gap before the offset reads as zeros.
    Write {
        /// Name of the file.
        file: FileName,
        /// Offset in the file, in bytes.
        offset_bytes: u64,
        /// The bytes to write. The buffer is shared, so that it can still be read meanwhile.
        buffer: Arc<AlignedBuffer>,
        /// Completed when the system has the bytes. They only survive a power loss after a later `Sync`.
        completion: Completion<()>,
    },
    /// Removes a file, and its directory if that is then empty.
    Remove {
        /// Name of the file. If it does not exist, the error is `NotFound`.
        file: FileName,
        /// Completed when the file is removed.
        completion: Completion<()>,
    },
    /// Lists all files, in no particular order. Files created or removed during the listing may be included or not.
    List {
        /// Gets the names of the files.
        completion: Completion<Vec<FileName>>,
    },
    /// Removes all files.
    Clear {
        /// Completed when all files are removed.
        completion: Completion<()>,
    },
    /// Makes all work durable that was completed before this operation was submitted.
    Sync {
        /// Completed when all work that was completed before this operation was submitted survives a power loss.
        completion: Completion<()>,
    },
}

impl dyn Directory {
    /// Reads `len_bytes` at `offset_bytes` of `file`.
    pub fn read(&self, file: FileName, offset_bytes: u64, len_bytes: usize) -> PendingTransfer<AlignedBuffer> {
        let buffer = AlignedBuffer::with_len(len_bytes);
        self.start(|completion| FileWork::Read { file, offset_bytes, buffer, completion })
    }

    /// Writes the whole of `buffer` at `offset_bytes` of `file`.
    pub fn write(&self, file: FileName, offset_bytes: u64, buffer: Arc<AlignedBuffer>) -> PendingTransfer<()> {
        self.start(|completion| FileWork::Write { file, offset_bytes, buffer, completion })
    }

    /// Removes `file`.
    pub fn remove(&self, file: FileName) -> PendingTransfer<()> {
        self.start(|completion| FileWork::Remove { file, completion })
    }

    /// Lists all files.
    pub fn list(&self) -> PendingTransfer<Vec<FileName>> {
        self.start(|completion| FileWork::List { completion })
    }

    /// Removes all files.
    pub fn clear(&self) -> PendingTransfer<()> {
        self.start(|completion| FileWork::Clear { completion })
    }

    /// Makes all completed work durable, so that it survives a power loss.
    pub fn sync(&self) -> PendingTransfer<()> {
        self.start(|completion| FileWork::Sync { completion })
    }

    fn start<T>(&self, work: impl FnOnce(Completion<T>) -> FileWork) -> PendingTransfer<T> {
        let (completion, pending) = Completion::pair();
        self.submit(work(completion));
        pending
    }
}

/// The name of a file in a [`Directory`]. It has up to four parts, separated by `/`, of letters, digits, `-`, `_` and
/// `.`.
///
/// No part begins with a dot, so a name that came from outside cannot lead out of the directory.
///
/// ```
/// use larder_device::FileName;
///
/// assert_eq!(FileName::new("0/ff/entry.1").unwrap().as_str(), "0/ff/entry.1");
/// assert_eq!(FileName::new("../etc/passwd"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Box<str>);

impl FileName {
    /// Maximum number of parts that a name can have.
    pub const PART_COUNT_MAX: usize = 4;
    /// Maximum length of a part of a name, in bytes. Every file system supports this length.
    pub(crate) const PART_BYTES_MAX: usize = 64;

    /// Returns `name` as a file name; `None` if it is not valid.
    pub fn new(name: impl Into<Box<str>>) -> Option<Self> {
        let name = name.into();
        let is_part = |part: &str| {
            (1..=Self::PART_BYTES_MAX).contains(&part.len())
                && !part.starts_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let is_name = name.split('/').all(is_part) && name.split('/').count() <= Self::PART_COUNT_MAX;
        is_name.then_some(Self(name))
    }

    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against files outside of the directory, which could be read, overwritten or removed.
    #[test]
    fn no_name_leads_out_of_the_directory() {
        let too_long = "a".repeat(FileName::PART_BYTES_MAX + 1);
        for name in
            ["", "/", "/a", "a/", "a//b", "..", "a/../b", ".", ".a", "a/.b", "a b", "a\\b", "a\0", "ä", &too_long]
        {
            assert_eq!(FileName::new(name), None, "{name:?}");
        }
        assert_eq!(FileName::new("a/b/c/d/e"), None);
        for name in ["a", "0/ff/0123456789abcdef", "a/b/c/d", "x..y", "A-1_2.tmp", &too_long[1..]] {
            assert_eq!(FileName::new(name).expect("it is a name").as_str(), name);
        }
    }
}
