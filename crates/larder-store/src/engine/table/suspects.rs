//! Suspect sets, whose change failed: how a writer treats them, and how they are wiped.
//!
//! Invariants: no entry in a suspect set is found. A writer that changes such a set writes all of it. Otherwise it is
//! wiped here, with pauses between retries, until the device accepts the write. Cost: one write of the set; nothing
//! while no set is suspect.

use super::{
    RETRY_PAUSE, TableEngine,
    summary::{BinContent, SetSummary},
    write::{SetChange, SetView},
};
use crate::{Error, ErrorKind, Result, engine::kit::sets::UnpackedSet, units::SetNumber};
use std::sync::Arc;

/// Maximum number of sets that are wiped in one round.
const WIPES_MAX: u32 = 256;

impl TableEngine {
    /// Returns the view of a suspect set, whose bytes must not be trusted, for a task that is about to change it. The
    /// view is an empty set, because the whole set will be written. Returns `None` if the set is not suspect.
    pub(super) fn view_of_suspect(&self, set: SetNumber) -> Option<SetView> {
        let state = self.lock();
        let ways = self.layout.ways as usize;
        state.suspects.contains(set).then(|| SetView {
            contents: state.memory.shape().map(|shape| UnpackedSet::empty(&shape)),
            summary: Some(SetSummary::empty(ways)),
            stale: (0..ways).collect(),
        })
    }

    /// Wipes some suspect sets, whose bytes must not be trusted, if the pause after a failure is over.
    pub(super) async fn wipe_suspects(self: &Arc<Self>) {
        let now = self.volume.clock.now();
        // A clock that is set back does not prolong the pause.
        let is_time = self.lock().wipe_at.is_none_or(|at| at <= now || at > now + RETRY_PAUSE);
        if is_time && !self.volume.health.is_out() {
            self.wipe_some_suspects().await;
        }
    }

    /// Wipes all suspect sets, whose bytes must not be trusted, now.
    ///
    /// # Errors
    /// A set could not be wiped.
    pub(super) async fn wipe_all_suspects(self: &Arc<Self>) -> Result<()> {
        while self.wipe_some_suspects().await {}
        if self.lock().suspects.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "what failed to be written could not be wiped from the store"))
    }

    /// Wipes up to [`WIPES_MAX`] suspect sets. Returns whether more suspect sets are left and no wipe has failed.
    async fn wipe_some_suspects(self: &Arc<Self>) -> bool {
        for _ in 0..WIPES_MAX {
            let Some(set) = self.lock().suspects.next() else { return false };
            // A writer that holds the set is about to write all of it.
            let Some(hold) = self.try_hold(set) else { return false };
            self.lock().note_change(set);
            let bins = (0..self.layout.ways as usize).map(|way| (way, BinContent::Empty)).collect();
            let change = SetChange { hold, dirty_bytes: 0, rest_at: None, bins };
            let pending = self.submit(vec![change], None, vec![self.wiping_all(set)]);
            if self.finished(pending).await.is_err() {
                return false;
            }
        }
        true
    }
}
