//! The engine's directory in virtual time: files of a modeled file system.
//!
//! A file that is written for the first time is created: looked up, named, given an inode and data. A file that is
//! written again is kept open by its user: its pages wait in memory and are written later. Owns: the files' bytes and
//! places. Nothing waits. Invariant: all work completes inside `submit`; bytes read are bytes written.

use super::{
    disk::{Disk, DiskOperation, DiskWork, PieceReads},
    open_files::OpenFiles,
    parameters::Model,
    sparse::{SECTOR_BYTES, SparseBytes},
    tree::{Inode, Tree},
};
use larder_device::IgnorePoison;
use larder_device::{Directory, FileName, FileWork};
use std::{
    collections::HashMap,
    io,
    sync::{Mutex, MutexGuard},
};

/// A directory of the engine on a modeled disk, in virtual time.
pub struct ModelDirectory {
    fragment_bytes: u32,
    state: Mutex<DirectoryState>,
}

struct DirectoryState {
    disk: Disk,
    tree: Tree,
    open: OpenFiles,
    files: HashMap<FileName, File>,
    open_count: u32,
    passed_ns: u64,
}

struct File {
    inode: Inode,
    /// The number by which `OpenFiles` knows the file. `None` if the file is not kept open.
    open: Option<u32>,
    len_bytes: u64,
    contents: SparseBytes,
}

impl ModelDirectory {
    /// Creates an empty directory that can use the whole disk.
    pub fn new(model: &Model) -> Self {
        let capacity_bytes = model.disk.capacity_bytes();
        let state = DirectoryState {
            disk: Disk::new(&model.disk),
            tree: Tree::new(&model.files, capacity_bytes),
            open: OpenFiles::new(&model.files, &model.system, capacity_bytes),
            files: HashMap::new(),
            open_count: 0,
            passed_ns: 0,
        };
        Self { fragment_bytes: model.files.fragment_bytes as u32, state: Mutex::new(state) }
    }

    /// Sets how a program divides entries into reads.
    #[must_use]
    pub fn reading(self, reads: PieceReads) -> Self {
        self.lock().tree.set_reads(reads);
        self
    }

    /// Returns the virtual time that all operations have taken, in nanoseconds. Includes searching directories.
    pub fn passed_ns(&self) -> u64 {
        self.lock().passed_ns
    }

    /// Sets the virtual time, and writes the inode and directory blocks whose delay is over.
    pub fn note_time(&self, now_ns: u64) {
        let mut state = self.lock();
        let DirectoryState { disk, tree, .. } = &mut *state;
        let ns = tree.write_delayed(disk, now_ns);
        state.passed_ns += ns;
    }

    /// Begins to record the operations of the disk, for [`Self::take_operations`].
    pub fn record_operations(&self) {
        self.lock().disk.record_operations();
    }

    /// Returns the operations of the disk that were recorded since the last call.
    pub fn take_operations(&self) -> Vec<DiskOperation> {
        self.lock().disk.take_operations()
    }

    /// Returns what the disk has done since it was created.
    pub fn served(&self) -> DiskWork {
        self.lock().disk.served()
    }

    fn lock(&self) -> MutexGuard<'_, DirectoryState> {
        self.state.lock().ignore_poison()
    }
}

impl Directory for ModelDirectory {
    fn submit(&self, work: FileWork) {
        // No lock is held while a completion runs, because it may submit again.
        match work {
            FileWork::Read { file, offset_bytes, mut buffer, completion } => {
                let outcome = self.lock().read(&file, offset_bytes, buffer.as_mut_slice());
                completion.complete(outcome.map(|()| buffer));
            }
            FileWork::Write { file, offset_bytes, buffer, completion } => {
                let outcome = self.lock().write(file, offset_bytes, buffer.as_slice());
                drop(buffer);
                completion.complete(outcome);
            }
            FileWork::Remove { file, completion } => {
                let outcome = self.lock().remove(&file);
                completion.complete(outcome);
            }
            FileWork::List { completion } => {
                let names = self.lock().files.keys().cloned().collect();
                completion.complete(Ok(names));
            }
            FileWork::Clear { completion } => {
                self.lock().files.clear();
                completion.complete(Ok(()));
            }
            FileWork::Sync { completion } => completion.complete(Ok(())),
        }
    }

    fn block_bytes(&self) -> u32 {
        self.fragment_bytes
    }

    fn name(&self) -> &'static str {
        "model"
    }
}

impl DirectoryState {
    fn write(&mut self, name: FileName, offset_bytes: u64, from: &[u8]) -> io::Result<()> {
        if !offset_bytes.is_multiple_of(SECTOR_BYTES as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len_bytes = from.len() as u64;
        let Some(file) = self.files.get_mut(&name) else {
            let (inode, ns) = self.tree.create(&mut self.disk, name.as_str(), offset_bytes + len_bytes);
            self.passed_ns += ns;
            let mut contents = SparseBytes::default();
            contents.write(offset_bytes, from);
            self.files.insert(name, File { inode, open: None, len_bytes: offset_bytes + len_bytes, contents });
            return Ok(());
        };
        let open = *file.open.get_or_insert_with(|| {
            self.open_count += 1;
            self.open_count
        });
        self.passed_ns += self.open.write(&mut self.disk, open, offset_bytes, len_bytes);
        file.len_bytes = file.len_bytes.max(offset_bytes + len_bytes);
        file.contents.write(offset_bytes, from);
        Ok(())
    }

    fn read(&mut self, name: &FileName, offset_bytes: u64, to: &mut [u8]) -> io::Result<()> {
        let file = self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let len_bytes = to.len() as u64;
        if offset_bytes.checked_add(len_bytes).is_none_or(|end| end > file.len_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.passed_ns += match file.open {
            Some(open) => self.open.read(&mut self.disk, open, offset_bytes, len_bytes),
            None => self.tree.read(&mut self.disk, file.inode, offset_bytes, len_bytes),
        };
        file.contents.read(offset_bytes, to);
        Ok(())
    }

    fn remove(&mut self, name: &FileName) -> io::Result<()> {
        let file = self.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
        self.passed_ns += self.tree.remove(&mut self.disk, name.as_str(), file.inode);
        Ok(())
    }
}
