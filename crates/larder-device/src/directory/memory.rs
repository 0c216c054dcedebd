//! A directory in memory: for tests, and for measuring policies that use files without a disk.
//!
//! Owns: the files' bytes, and a limit on them. Nothing is durable. Invariant: all work completes inside `submit`.
//! Cost: one copy.

use crate::ignore_poison::IgnorePoison;
use std::{
    collections::BTreeMap,
    io,
    sync::{Mutex, MutexGuard},
};

use super::{Directory, FileName, FileWork};

/// A directory whose files are in memory, for tests of code that takes a [`Directory`]. Nothing is durable.
///
/// ```
/// use larder_device::{AlignedBuffer, Directory, FileName, MemoryDirectory, block_on};
/// use std::{io::ErrorKind, sync::Arc};
///
/// let files = Arc::new(MemoryDirectory::new(4));
/// let directory: Arc<dyn Directory> = files.clone();
/// let name = FileName::new("a").unwrap();
/// block_on(directory.write(name.clone(), 0, Arc::new(AlignedBuffer::with_len(4)))).unwrap();
/// assert_eq!(files.contents(&name), Some(vec![0; 4]));
///
/// // A fifth byte does not fit, as on a full disk.
/// let refused = block_on(directory.write(name, 4, Arc::new(AlignedBuffer::with_len(1))));
/// assert_eq!(refused.unwrap_err().kind(), ErrorKind::StorageFull);
/// ```
pub struct MemoryDirectory {
    size_bytes_max: u64,
    files: Mutex<BTreeMap<FileName, Vec<u8>>>,
}

impl_debug!(MemoryDirectory { size_bytes_max });

impl MemoryDirectory {
    /// Creates an empty directory. Writes fail as on a full disk if all files together would become longer than
    /// `size_bytes_max`.
    pub fn new(size_bytes_max: u64) -> Self {
        Self { size_bytes_max, files: Mutex::default() }
    }

    /// Returns the length of all files in total, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.lock().values().map(|bytes| bytes.len() as u64).sum()
    }

    /// Returns a copy of the bytes of `file`; `None` if it does not exist.
    pub fn contents(&self, file: &FileName) -> Option<Vec<u8>> {
        self.lock().get(file).cloned()
    }

    fn read(&self, file: &FileName, offset_bytes: u64, to: &mut [u8]) -> io::Result<()> {
        let files = self.lock();
        let bytes = files.get(file).ok_or(io::ErrorKind::NotFound)?;
        let part = usize::try_from(offset_bytes)
            .ok()
            .and_then(|start| bytes.get(start..start.checked_add(to.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        to.copy_from_slice(part);
        Ok(())
    }

    fn write(&self, file: FileName, offset_bytes: u64, from: &[u8]) -> io::Result<()> {
        let end = offset_bytes.checked_add(from.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        let mut files = self.lock();
        let held_bytes: u64 = files.values().map(|bytes| bytes.len() as u64).sum();
        let grown_bytes = end.saturating_sub(files.get(&file).map_or(0, |bytes| bytes.len() as u64));
        if grown_bytes > self.size_bytes_max.saturating_sub(held_bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = files.entry(file).or_default();
        let start = offset_bytes as usize;
        let end = end as usize;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(from);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileName, Vec<u8>>> {
        self.files.lock().ignore_poison()
    }
}

impl Directory for MemoryDirectory {
    fn submit(&self, work: FileWork) {
        // No lock is held when a completion runs, because it may submit another operation.
        match work {
            FileWork::Read { file, offset_bytes, mut buffer, completion } => {
                let outcome = self.read(&file, offset_bytes, buffer.as_mut_slice());
                completion.complete(outcome.map(|()| buffer));
            }
            FileWork::Write { file, offset_bytes, buffer, completion } => {
                let outcome = self.write(file, offset_bytes, buffer.as_slice());
                drop(buffer);
                completion.complete(outcome);
            }
            FileWork::Remove { file, completion } => {
                let removed = self.lock().remove(&file);
                completion.complete(removed.map(drop).ok_or(io::ErrorKind::NotFound.into()));
            }
            FileWork::List { completion } => {
                let names = self.lock().keys().cloned().collect();
                completion.complete(Ok(names));
            }
            FileWork::Clear { completion } => {
                self.lock().clear();
                completion.complete(Ok(()));
            }
            FileWork::Sync { completion } => completion.complete(Ok(())),
        }
    }

    fn block_bytes(&self) -> u32 {
        1
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}
