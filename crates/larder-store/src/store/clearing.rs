//! Removes all entries at once.
//!
//! Owns: which volumes take part. The superblock of each volume records the new epoch. Invariant: a volume that cannot
//! record it hides its entries until it can.

use super::Store;
use crate::{Result, families::AnyEngine, volume::superblocks};
use futures_util::future::join_all;

impl Store {
    /// Removes all entries whose writing began before this call. The removal is durable when this returns.
    ///
    /// # Errors
    /// `Unavailable` if a superblock cannot be written. Lookups then miss all entries of that volume, and the write is
    /// retried, as described at [`Store::remove`].
    pub async fn clear(&self) -> Result<()> {
        self.check_open()?;
        self.volumes.all().for_each(|engine| engine.volume().pins.clear());
        let is_in_use = |engine: &AnyEngine| !engine.volume().defers(|volume| volume.defer_all());
        let in_use: Vec<AnyEngine> = self.volumes.all().filter(is_in_use).collect();
        let done = join_all(in_use.iter().map(|engine| superblocks::invalidate_all(engine.volume()))).await;
        done.into_iter().collect()
    }
}
