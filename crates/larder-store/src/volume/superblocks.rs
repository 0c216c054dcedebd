//! Changes a volume's superblock: its label, its epochs, and whether a start may believe the volume.
//!
//! Which changes are made is decided elsewhere, and [`super::superblock_keeper`] makes them durable.

use super::Volume;
use crate::{
    Error, ErrorKind, Result,
    device::{Completion, PendingTransfer, block_on},
    format::superblock::Superblock,
    units::{SUPERBLOCK_BYTES, superblock_offsets},
};
use std::{io, sync::Arc};

/// Invalidates the whole volume. The new epoch takes effect only when it is durable, so that no entry written before
/// can belong to it. If the write fails, the invalidation becomes pending, even if the caller has stopped waiting.
///
/// # Errors
/// `Unavailable` if the superblock cannot be written.
pub(crate) async fn invalidate_all(volume: &Arc<Volume>) -> Result<()> {
    let (completion, pending) = Completion::pair();
    let owner = Arc::clone(volume);
    let done = Completion::callback(move |outcome: io::Result<()>| {
        completion.complete(outcome.inspect_err(|_| owner.defer_all()));
    });
    volume.superblocks.change(|superblock| superblock.epochs.invalidate_all(), done);
    pending.await.map_err(cannot_write)
}

/// Stores `label`, a number of the store's user.
///
/// # Errors
/// `Unavailable` if the superblock cannot be written.
pub(crate) async fn set_label(volume: &Volume, label: u64) -> Result<()> {
    change(volume, move |superblock| superblock.label = label).await.map_err(cannot_write)
}

fn cannot_write(source: io::Error) -> Error {
    Error::io(ErrorKind::Unavailable, "cannot write the store's superblock", source)
}

/// Changes the superblock like [`change`]. Blocks.
pub(crate) fn change_blocking(volume: &Volume, alter: impl FnOnce(&mut Superblock) + Send + 'static) -> io::Result<()> {
    block_on(change(volume, alter))
}

/// Changes the superblock by `alter`, first on the device and then in memory. The change waits for earlier ones. It is
/// completed even if the future is dropped.
pub(crate) fn change(volume: &Volume, alter: impl FnOnce(&mut Superblock) + Send + 'static) -> PendingTransfer<()> {
    let (completion, pending) = Completion::pair();
    change_with(volume, alter, completion);
    pending
}

/// Changes the superblock like [`change`], and completes `done` when the change is in effect.
pub(crate) fn change_with(volume: &Volume, alter: impl FnOnce(&mut Superblock) + Send + 'static, done: Completion<()>) {
    volume.superblocks.change(alter, done);
}

/// Checks whether an excluded volume works again, by reading both superblocks and writing them. If the device lost a
/// durable superblock, it may have lost more, so the volume is emptied.
///
/// `is_doubtful` requests that the next start empties the volume unless [`believe`] is called before. `is_emptied`
/// requests that it is emptied now.
///
/// # Errors
/// A read or write failed, or the device now holds another volume.
pub(crate) async fn probe(volume: &Volume, is_doubtful: bool, is_emptied: bool) -> io::Result<()> {
    if let Some(directory) = &volume.directory {
        directory.sync().await?;
    }
    let mut found = None;
    for offset_bytes in superblock_offsets(volume.shape.size_bytes) {
        let block = volume.device.read(offset_bytes, SUPERBLOCK_BYTES as usize).await?;
        let copy = Superblock::decode(block.as_slice()).ok().filter(|copy| copy.id == volume.superblock().id);
        found = found.max(copy.map(|copy| copy.generation));
    }
    let found = found.ok_or_else(|| io::Error::other("neither superblock is this volume's"))?;
    let is_set_back = found < volume.superblock().generation;
    if is_set_back {
        tracing::error!("the device has lost synced data: the volume is emptied");
    }
    change(volume, move |superblock| {
        superblock.is_doubtful |= is_doubtful;
        if is_set_back || is_emptied {
            superblock.epochs.invalidate_all();
        }
    })
    .await
}

/// Records in the superblock that the next start must empty the volume.
///
/// # Errors
/// The record is not durable.
pub(crate) fn doubt(volume: &Volume) -> PendingTransfer<()> {
    change(volume, |superblock| superblock.is_doubtful = true)
}

/// Records in the superblock that the next start need not empty the volume, unless the engine has failed in the
/// meantime.
///
/// # Errors
/// `Unavailable` if the superblock cannot be written.
pub(crate) async fn believe(volume: &Volume) -> Result<()> {
    // A failure sets the mark before it queues its doubt. So either this change finds the mark, or it is followed by
    // that doubt, but it never ends one.
    let failure = volume.failure.mark();
    change(volume, move |superblock| superblock.is_doubtful &= failure.is_set()).await.map_err(cannot_write)
}

/// Empties the volume before it is used, if its superblock says so.
///
/// # Errors
/// `Unavailable` if the superblock cannot be written.
pub(crate) fn empty_if_doubtful(volume: &Volume) -> Result<()> {
    if !volume.superblock().is_doubtful {
        return Ok(());
    }
    let volume_path = volume.options.path.display();
    tracing::error!(volume = %volume_path, "a sync or the engine failed before the last stop: the volume is emptied");
    let emptied = change_blocking(volume, |superblock| {
        superblock.epochs.invalidate_all();
        superblock.is_doubtful = false;
    });
    emptied.map_err(cannot_write)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Policy, Store, StoreOptions,
        device::{FaultPlan, FaultyDevice},
    };
    use futures_util::FutureExt;

    fn store_on_faulty_device() -> (Arc<FaultyDevice>, Store) {
        let device = Arc::new(FaultyDevice::new(8 << 20, 1, FaultPlan::default()));
        let policy = Policy::named("log").expect("it is in the table");
        let options = StoreOptions { policy, background: false, ..StoreOptions::new("", 8 << 20) };
        let store = Store::open_on(Arc::clone(&device) as _, &options).expect("nothing fails");
        (device, store)
    }

    /// Guards against an invalidation that is undone by an earlier change, or that waits for a caller that does not
    /// poll.
    #[test]
    fn changes_end_in_order_although_their_callers_have_gone() {
        let (device, store) = store_on_faulty_device();
        let volume = Arc::clone(store.first_engine().volume());
        let before = volume.superblock().clone();
        device.set_plan(FaultPlan { slow_transfers_ppm: 1_000_000, ..FaultPlan::default() });
        drop(change(&volume, |superblock| superblock.label = 1));
        assert_eq!(device.waiting_count(), 1, "the first copy is on its way");
        let mut second = Box::pin(invalidate_all(&volume));
        assert!((&mut second).now_or_never().is_none());
        drop(second);
        let third = change(&volume, |superblock| superblock.label += 1);
        assert_eq!((device.waiting_count(), volume.superblock().label), (1, before.label), "one change at a time");
        while device.turn() {}
        let after = volume.superblock().clone();
        assert_eq!((after.label, after.generation), (2, before.generation + 3));
        assert_eq!(after.epochs.current, before.epochs.current + 1);
        assert!(third.now_or_never().expect("it is done").is_ok());
    }

    /// Protects removals that were acknowledged because the next start would empty the volume.
    #[test]
    fn doubt_of_an_engine_that_has_failed_is_not_ended() {
        let (_device, store) = store_on_faulty_device();
        let volume = Arc::clone(store.first_engine().volume());
        block_on(doubt(&volume)).unwrap();
        block_on(believe(&volume)).unwrap();
        assert!(!volume.superblock().is_doubtful);
        block_on(doubt(&volume)).unwrap();
        volume.failure.set();
        block_on(believe(&volume)).unwrap();
        assert!(volume.superblock().is_doubtful);
    }

    #[test]
    fn an_invalidation_that_cannot_be_written_is_pending_although_its_caller_has_gone() {
        let (device, store) = store_on_faulty_device();
        let volume = Arc::clone(store.first_engine().volume());
        let plan = FaultPlan { slow_transfers_ppm: 1_000_000, write_errors_ppm: 1_000_000, ..FaultPlan::default() };
        device.set_plan(plan);
        let mut gone = Box::pin(invalidate_all(&volume));
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        while device.turn() {}
        assert!(volume.pending_removals.hides_all());
        device.set_plan(FaultPlan::default());
    }
}
