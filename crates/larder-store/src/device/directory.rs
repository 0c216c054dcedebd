//! The directory interface: asynchronous operations on named files, for policies that keep entries in files.
//!
//! Owns: the [`Directory`] trait, the [`FileWork`] submitted to it, and the [`FileName`] that cannot lead out of it.
//! The content of files is decided elsewhere. Operations on one file are not ordered: a caller that needs an order
//! waits for the first. Invariant: all work completes exactly once, with an error if its directory goes away. Cost: one
//! allocation per awaited operation. Source: docs/rfcs/0002-directory.md.

mod files;
mod memory;

use std::{fmt, sync::Arc};

pub use self::{files::FilesDirectory, memory::MemoryDirectory};
use super::{AlignedBuffer, Completion, PendingTransfer};

/// Named files with asynchronous transfers at any offset and length.
pub trait Directory: Send + Sync + 'static {
    /// Starts `work` and returns at once; the work's completion tells the outcome, possibly before this call
    /// returns. A short transfer is continued by the directory.
    fn submit(&self, work: FileWork);

    /// Returns the unit, in bytes, to which the space of a file is rounded up; a power of two.
    fn block_bytes(&self) -> u32;

    /// Returns one word for logs and metrics, such as `files`.
    fn name(&self) -> &'static str;

    /// As [`super::Device::release`].
    fn release(&self) {}
}

/// One piece of work for a directory. The directory owns the buffer until completion.
pub enum FileWork {
    /// Fill the buffer's whole length from `offset_bytes` of a file.
    Read {
        /// The file; `NotFound` if it does not exist.
        file: FileName,
        /// The offset in the file.
        offset_bytes: u64,
        /// The destination; its length is the number of bytes. `UnexpectedEof` if the file ends before.
        buffer: AlignedBuffer,
        /// Gets the filled buffer.
        completion: Completion<AlignedBuffer>,
    },
    /// Write the buffer's whole length at `offset_bytes` of a file. The file, and the directories its name leads
    /// through, come into being if need be; a place before the offset that was never written reads as zeros.
    Write {
        /// The file.
        file: FileName,
        /// The offset in the file.
        offset_bytes: u64,
        /// The bytes; shared, so that they can be read while they are being written.
        buffer: Arc<AlignedBuffer>,
        /// Told when the bytes are with the system (durable only after a `Sync`).
        completion: Completion<()>,
    },
    /// Remove a file, and its directory if that is empty then.
    Remove {
        /// The file; `NotFound` if it does not exist.
        file: FileName,
        /// Told when it is gone.
        completion: Completion<()>,
    },
    /// Name every file there is, in no order. Files that come and go meanwhile may be named or not.
    List {
        /// Gets the names.
        completion: Completion<Vec<FileName>>,
    },
    /// Remove every file.
    Clear {
        /// Told when all are gone.
        completion: Completion<()>,
    },
    /// Make all that completed before this was submitted durable.
    Sync {
        /// Told when it is done.
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

    /// Names every file.
    pub fn list(&self) -> PendingTransfer<Vec<FileName>> {
        self.start(|completion| FileWork::List { completion })
    }

    /// Removes every file.
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

/// The name of a file in a directory: parts of letters, digits, `-`, `_` and `.`, with `/` between them. No part
/// begins with a point, so no name leads out of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(Box<str>);

impl FileName {
    /// Parts a name has at most.
    pub const PART_COUNT_MAX: usize = 4;
    /// Bytes a part has at most; every file system takes that.
    pub const PART_BYTES_MAX: usize = 64;

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

    /// At stake: files of others, read, overwritten or removed.
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
