//! Invalidates the entries of a site, or all entries.
//!
//! Owns: which volumes take part. The superblock of each volume records the invalidation. Invariant: a volume that
//! cannot record it hides the entries until it can.

use super::Store;
use crate::{
    Result,
    families::AnyEngine,
    units::Site,
    volume::{superblock_keeper::Invalidation, superblocks},
};
use futures_util::future::join_all;

impl Store {
    /// Invalidates all matching entries that were begun before this call. The invalidation is durable when this
    /// returns. See [`Store::has_room_to_invalidate`] for the number of sites.
    ///
    /// # Errors
    /// `Unavailable` if a superblock cannot be written. The consequences are those described at [`Store::remove`].
    pub async fn invalidate(&self, which: Invalidation) -> Result<()> {
        self.check_open()?;
        if which == Invalidation::All {
            self.volumes.all().for_each(|engine| engine.volume().pins.clear());
        }
        let is_in_use = |engine: &AnyEngine| !engine.volume().defers(|volume| volume.defer_rule(which));
        let owing: Vec<AnyEngine> = self.volumes.all().filter(is_in_use).collect();
        let done = join_all(owing.iter().map(|engine| superblocks::invalidate(engine.volume(), which))).await;
        done.into_iter().collect()
    }

    /// Returns whether every volume in use has room for the invalidation of this site.
    ///
    /// Each volume has room for 256 sites. One more than that also invalidates the entries of all sites that were begun
    /// before the oldest of these invalidations.
    pub fn has_room_to_invalidate(&self, site: u64) -> bool {
        self.volumes.sound().all(|engine| engine.volume().superblock().epochs.has_room_for(Site(site)))
    }
}
