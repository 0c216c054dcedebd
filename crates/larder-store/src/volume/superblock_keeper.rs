//! The superblock of a volume in memory, and the order of its changes.
//!
//! Owns: the present superblock, and the queue of changes. A change is made durable in both copies before it takes
//! effect in memory. Invariants: one copy is always whole; memory is never newer than the copies; one change is written
//! at a time. The device's completions drive a change, so it ends even if its caller stops waiting: a write still in
//! flight never lands after that of a later change, and no later change waits for a task that nobody polls. Cost: two
//! small writes and two syncs.

use super::sync_watch::SyncWatch;
use crate::sync::IgnorePoison;
use crate::{
    device::{AlignedBuffer, Completion, Device, Transfer},
    format::superblock::Superblock,
    units::{SUPERBLOCK_BYTES, superblock_offsets},
};
use std::{
    array,
    collections::VecDeque,
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

/// The superblock of a volume, and the changes that wait to be written.
pub(crate) struct SuperblockKeeper {
    device: Arc<dyn Device>,
    /// Learns when a sync of the superblock has failed, because that may also lose other writes to the device. It does
    /// not count the writes of superblocks: a superblock takes effect only after its sync, so none can be lost.
    watch: Arc<SyncWatch>,
    present: RwLock<Superblock>,
    changes: Mutex<ChangeQueue>,
    /// Whether the last change failed. One copy may contain it, and the next start would use that copy.
    is_unsure: AtomicBool,
}

#[derive(Default)]
struct ChangeQueue {
    is_writing: bool,
    waiting: VecDeque<SuperblockChange>,
}

/// A change that waits to be written.
struct SuperblockChange {
    alter: Box<dyn FnOnce(&mut Superblock) + Send>,
    done: Completion<()>,
}

/// A changed superblock that is being written, one copy after the other.
struct SuperblockWrite {
    superblock: Superblock,
    block: Arc<AlignedBuffer>,
    /// Offsets of the copies that are not written yet.
    copies: array::IntoIter<u64, 2>,
    done: Completion<()>,
}

impl SuperblockKeeper {
    pub(crate) fn new(device: Arc<dyn Device>, watch: Arc<SyncWatch>, superblock: Superblock) -> Arc<Self> {
        Arc::new(Self {
            device,
            watch,
            present: RwLock::new(superblock),
            changes: Mutex::default(),
            is_unsure: AtomicBool::new(false),
        })
    }

    /// Returns the superblock that is in effect.
    pub(crate) fn present(&self) -> RwLockReadGuard<'_, Superblock> {
        self.present.read().ignore_poison()
    }

    /// Returns whether the next start may find a change that has failed, instead of the superblock in effect.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure.load(Ordering::SeqCst)
    }

    /// Changes the superblock by `alter`, after all earlier changes. Completes `done` when the change is durable and in
    /// effect.
    pub(super) fn change(self: &Arc<Self>, alter: impl FnOnce(&mut Superblock) + Send + 'static, done: Completion<()>) {
        self.lock().waiting.push_back(SuperblockChange { alter: Box::new(alter), done });
        self.begin_next();
    }

    /// Begins the next waiting change, unless one is being written.
    fn begin_next(self: &Arc<Self>) {
        let next = {
            let mut changes = self.lock();
            let next = if changes.is_writing { None } else { changes.waiting.pop_front() };
            changes.is_writing |= next.is_some();
            next
        };
        let Some(SuperblockChange { alter, done }) = next else { return };
        let mut superblock = self.present().clone();
        superblock.generation += 1;
        alter(&mut superblock);
        let block = block_of(&superblock);
        let copies = superblock_offsets(superblock.shape.size_bytes).into_iter();
        Arc::clone(self).write_next_copy(SuperblockWrite { superblock, block, copies, done });
    }

    /// Writes and syncs the next copy of the superblock. After the last copy, ends the change.
    fn write_next_copy(self: Arc<Self>, mut write: SuperblockWrite) {
        let Some(offset_bytes) = write.copies.next() else { return self.end(write, Ok(())) };
        let device = Arc::clone(&self.device);
        let buffer = Arc::clone(&write.block);
        let written = Completion::callback(move |outcome| match outcome {
            Ok(()) => self.sync_copy(write),
            Err(error) => self.end(write, Err(error)),
        });
        device.submit(Transfer::Write { offset_bytes, buffer, completion: written });
    }

    fn sync_copy(self: Arc<Self>, write: SuperblockWrite) {
        let device = Arc::clone(&self.device);
        let watch = Arc::clone(&self.watch);
        let synced = Completion::callback(move |outcome| match outcome {
            Ok(()) => self.write_next_copy(write),
            Err(error) => self.end(write, Err(error)),
        });
        device.submit(Transfer::Sync { completion: watch.sync(synced) });
    }

    /// Ends the present change with `outcome`: if it is durable, it takes effect. Begins the next change.
    fn end(self: Arc<Self>, write: SuperblockWrite, outcome: io::Result<()>) {
        self.is_unsure.store(outcome.is_err(), Ordering::SeqCst);
        if outcome.is_ok() {
            let mut present = self.present.write().ignore_poison();
            assert_eq!(present.generation + 1, write.superblock.generation, "changes are written one after the other");
            *present = write.superblock;
        }
        let was_writing = mem::replace(&mut self.lock().is_writing, false);
        assert!(was_writing, "a change that ends was being written");
        write.done.complete(outcome);
        self.begin_next();
    }

    fn lock(&self) -> MutexGuard<'_, ChangeQueue> {
        self.changes.lock().ignore_poison()
    }
}

/// Writes and syncs both copies of `superblock`, one after the other, so that one of them is always whole.
pub(crate) async fn write(device: &Arc<dyn Device>, superblock: &Superblock) -> io::Result<()> {
    let block = block_of(superblock);
    for offset_bytes in superblock_offsets(superblock.shape.size_bytes) {
        device.write(offset_bytes, Arc::clone(&block)).await?;
        device.sync().await?;
    }
    Ok(())
}

fn block_of(superblock: &Superblock) -> Arc<AlignedBuffer> {
    let mut block = AlignedBuffer::with_len(SUPERBLOCK_BYTES as usize);
    superblock.encode(block.as_mut_slice());
    Arc::new(block)
}
