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

/// Named files with asynchronous I/O at any offset and length.
pub trait Directory: Send + Sync + 'static {
    /// Starts `work` and returns at once. The completion delivers the outcome, possibly before this call returns. The
    /// directory continues short reads and writes.
    fn submit(&self, work: FileWork);

    /// Returns the unit, in bytes, to which the space of a file is rounded up. It is a power of two.
    fn block_bytes(&self) -> u32;

    /// Returns the name of the implementation for logs and metrics, such as `files`.
    fn name(&self) -> &'static str;

    /// As [`crate::Device::release`].
    fn release(&self) {}
}

/// An operation for a directory. The directory owns the buffer until completion.
#[derive(Debug)]
pub enum FileWork {
    /// Fills the whole buffer from `offset_bytes` of a file.
    Read {
        /// The file; `NotFound` if it does not exist.
        file: FileName,
        /// The offset in the file.
        offset_bytes: u64,
        /// The destination; its length is the number of bytes. `UnexpectedEof` if the file is shorter.
        buffer: AlignedBuffer,
        /// Receives the filled buffer.
        completion: Completion<AlignedBuffer>,
    },
    /// Writes the whole buffer at `offset_bytes` of a file. Creates the file, and the directories in its name, if they
    /// do not exist. A gap before the offset reads as zeros.
    Write {
        /// The file.
        file: FileName,
        /// The offset in the file.
        offset_bytes: u64,
        /// The bytes; shared, so that they can be read while they are being written.
        buffer: Arc<AlignedBuffer>,
        /// Called when the system has the bytes. They are durable only after a `Sync`.
        completion: Completion<()>,
    },
    /// Removes a file, and its directory if that is then empty.
    Remove {
        /// The file; `NotFound` if it does not exist.
        file: FileName,
        /// Called when the file is gone.
        completion: Completion<()>,
    },
    /// Lists all files, in no particular order. Files created or removed during the listing may be included or not.
    List {
        /// Receives the names.
        completion: Completion<Vec<FileName>>,
    },
    /// Removes all files.
    Clear {
        /// Called when all files are gone.
        completion: Completion<()>,
    },
    /// Makes all work durable that completed before this was submitted.
    Sync {
        /// Called when the sync is done.
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

    /// Makes completed work durable.
    pub fn sync(&self) -> PendingTransfer<()> {
        self.start(|completion| FileWork::Sync { completion })
    }

    fn start<T>(&self, work: impl FnOnce(Completion<T>) -> FileWork) -> PendingTransfer<T> {
        let (completion, pending) = Completion::pair();
        self.submit(work(completion));
        pending
    }
}

/// The name of a file in a directory. It has parts of letters, digits, `-`, `_` and `.`, separated by `/`. No part
/// begins with a dot, so no name leads out of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Box<str>);

impl FileName {
    /// Most parts of a name.
    pub const PART_COUNT_MAX: usize = 4;
    /// Most bytes of a part; every file system supports that.
    pub(crate) const PART_BYTES_MAX: usize = 64;

    /// Returns `name` as a file name, if it is a valid one.
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

    /// Returns the name.
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

    /// At stake: files outside the directory that are read, overwritten or removed.
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
