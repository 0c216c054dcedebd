//! Retries pending removals: the engine removes keys, the superblock invalidates everything.

use super::AnyEngine;
use crate::{
    Error, ErrorKind, Result,
    volume::{pending_removals::DueRemovals, superblocks},
};
use futures_util::future::join_all;

impl AnyEngine {
    /// Retries the pending removals if a retry is due, or at once with `is_forced`.
    pub(crate) async fn retry_pending(&self, is_forced: bool) {
        let volume = self.volume();
        while let Some(DueRemovals { all, keys }) = volume.pending_removals.begin(volume.clock.now(), is_forced) {
            let mut is_done = true;
            if all {
                match superblocks::change(volume, |superblock| superblock.epochs.invalidate_all()).await {
                    Ok(()) => volume.pending_removals.finish_all(),
                    Err(_) => is_done = false,
                }
            }
            let removed = join_all(keys.iter().map(|(key, _)| self.remove_pending(key))).await;
            for ((key, number), outcome) in keys.iter().zip(removed) {
                match outcome {
                    Ok(()) => volume.pending_removals.finish_key(key, *number),
                    Err(_) => is_done = false,
                }
            }
            volume.pending_removals.end(volume.clock.now(), is_done);
            if !is_done {
                return;
            }
        }
    }

    /// Invalidates the whole volume by a new epoch if removals are still pending when the store closes. Nothing can
    /// retry them later.
    ///
    /// # Errors
    /// `Unavailable` if the epoch cannot be written either. The removed entries may then come back at the next start.
    pub(crate) async fn empty_if_pending(&self) -> Result<()> {
        let volume = self.volume();
        // An excluded volume is emptied before it rejoins, provided that the other volumes recorded the exclusion.
        if volume.pending_removals.is_clear() || volume.health.is_out_and_safe() {
            return Ok(());
        }
        let emptied = superblocks::change(volume, |superblock| superblock.epochs.invalidate_all()).await;
        emptied.inspect(|()| volume.pending_removals.finish_all()).map_err(|source| {
            let place = "removals could not be written, so removed entries may return at the next start";
            Error::io(ErrorKind::Unavailable, place, source)
        })
    }
}
