//! Changes a volume's superblock: its identity, label, membership and invalidation rules.
//!
//! Owns: the order of changes. A change is made durable in both copies before it takes effect in memory. Which changes
//! are made is decided elsewhere. Invariants: one copy is always whole; memory is never newer than the copies. Cost:
//! two small writes and two syncs.

use super::{
    Volume,
    waiters::{TaskWaiters, wait_for},
};
use crate::{
    Error, ErrorKind, Result,
    device::{AlignedBuffer, Completion, Device, block_on},
    format::superblock::Superblock,
    units::{SUPERBLOCK_BYTES, Site, last_superblock_bytes},
};
use std::{
    io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// The entries that [`crate::Store::invalidate`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// All entries.
    All,
    /// The entries whose `Hints::site` was this.
    Site(u64),
}

/// Admits one change at a time, including its I/O.
#[derive(Default)]
pub(crate) struct SuperblockGate(Mutex<GateState>);

#[derive(Default)]
struct GateState {
    is_taken: bool,
    waiting: TaskWaiters,
}

/// The right to make a change.
pub(crate) struct GatePass<'a>(&'a SuperblockGate);

impl SuperblockGate {
    /// Waits until no other change is in progress, and returns the right to make one.
    pub(crate) async fn pass(&self) -> GatePass<'_> {
        let take = |state: &mut GateState| {
            let is_free = !mem::replace(&mut state.is_taken, true);
            is_free.then(|| GatePass(self))
        };
        wait_for(|| self.lock(), take).await
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsMut<TaskWaiters> for GateState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

impl Drop for GatePass<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_taken = false;
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }
}

/// Applies an invalidation, first durably, then in memory, so that no entry written before it can carry the new epoch.
/// If the write fails, the invalidation becomes pending.
///
/// # Errors
/// `Unavailable` if it is not durable.
pub(crate) async fn invalidate(volume: &Arc<Volume>, which: Invalidation) -> Result<()> {
    let owner = Arc::clone(volume);
    let done = apart(move || {
        change_blocking(&owner, |superblock| apply(superblock, which)).inspect_err(|_| owner.defer_rule(which))
    });
    done.await.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the store's superblock", source))
}

/// Stores the label, a number of the store's user.
///
/// # Errors
/// `Unavailable` if it is not durable.
pub(crate) async fn set_label(volume: &Arc<Volume>, label: u64) -> Result<()> {
    let owner = Arc::clone(volume);
    let done = apart(move || change_blocking(&owner, |superblock| superblock.label = label));
    done.await.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the store's superblock", source))
}

/// Applies an invalidation to a superblock.
pub(crate) fn apply(superblock: &mut Superblock, which: Invalidation) {
    match which {
        Invalidation::All => superblock.epochs.invalidate_all(),
        Invalidation::Site(site) => superblock.epochs.invalidate_site(Site(site)),
    }
}

/// Runs blocking work on a new thread. This is rare.
pub(crate) async fn apart(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let (completion, pending) = Completion::pair();
    thread::Builder::new().name("larder-superblock".into()).spawn(move || completion.complete(work()))?;
    pending.await
}

/// Changes the superblock like [`change`]. Blocks.
pub(crate) fn change_blocking(volume: &Volume, alter: impl FnOnce(&mut Superblock)) -> io::Result<()> {
    block_on(change(volume, alter))
}

/// Changes the superblock, first on the device and then in memory. The future must run to its end: otherwise a write
/// still in flight could land after a later one.
pub(crate) async fn change(volume: &Volume, alter: impl FnOnce(&mut Superblock)) -> io::Result<()> {
    // Only other changes of this superblock wait here, not its readers.
    let _pass = volume.superblock_gate.pass().await;
    let mut superblock = volume.superblock().clone();
    superblock.generation += 1;
    alter(&mut superblock);
    write(&volume.device, &superblock).await?;
    volume.set_superblock(superblock);
    Ok(())
}

/// Checks whether a failed volume works again, by reading both superblocks and writing them. If the device lost a
/// superblock that was durable, it may have lost more, so the volume is emptied.
///
/// # Errors
/// An operation failed, or the device now holds another volume.
pub(crate) async fn probe(volume: &Volume) -> io::Result<()> {
    if let Some(directory) = &volume.directory {
        directory.sync().await?;
    }
    let mut found = None;
    for offset_bytes in [0, last_superblock_bytes(volume.shape.size_bytes)] {
        let block = volume.device.read(offset_bytes, SUPERBLOCK_BYTES as usize).await?;
        let copy = Superblock::decode(block.as_slice()).ok().filter(|copy| copy.id == volume.superblock().id);
        found = found.max(copy.map(|copy| copy.generation));
    }
    let found = found.ok_or_else(|| io::Error::other("neither superblock is this volume's"))?;
    let is_set_back = found < volume.superblock().generation;
    if is_set_back {
        tracing::error!("the device has lost synced data: the volume is emptied");
    }
    change(volume, |superblock| {
        if is_set_back {
            superblock.epochs.invalidate_all();
        }
    })
    .await
}

/// Writes one copy after the other, so that one of them is always whole.
pub(crate) async fn write(device: &Arc<dyn Device>, superblock: &Superblock) -> io::Result<()> {
    let mut block = AlignedBuffer::with_len(SUPERBLOCK_BYTES as usize);
    superblock.encode(block.as_mut_slice());
    let block = Arc::new(block);
    for offset_bytes in [0, last_superblock_bytes(superblock.shape.size_bytes)] {
        device.write(offset_bytes, Arc::clone(&block)).await?;
        device.sync().await?;
    }
    Ok(())
}
