//! Makes committed entries survive a crash of the process, or a power loss, on all volumes of a store.
//!
//! The engines write, and `volume::shared_flush` lets callers share a write. Invariant: a call succeeds only if no
//! committed entry waits for a volume that is excluded.

use super::{Store, volumes};
use crate::{Result, families::AnyEngine};
use futures_util::future::join_all;

impl Store {
    /// Hands all committed entries to the device, without waiting for a sync.
    ///
    /// When this returns, the entries survive a crash of the process. They survive a power loss only after the next
    /// sync. Call this before you acknowledge an entry to somebody who relies on it.
    ///
    /// # Cost
    /// At least one device write, which concurrent calls share. The write ends at a block boundary, so each call wastes
    /// up to 4 KiB of the volume.
    ///
    /// # Errors
    /// `Unavailable` if an entry could not be written, even one that another caller committed.
    pub async fn flush(&self) -> Result<()> {
        self.check_open()?;
        let waits_for_a_volume = self.waits_for_a_volume();
        let engines: Vec<AnyEngine> = self.volumes.sound().collect();
        let flushed = join_all(engines.iter().map(AnyEngine::flush)).await;
        flushed.into_iter().collect::<Result<()>>()?;
        if waits_for_a_volume { Err(volumes::is_out()) } else { Ok(()) }
    }

    /// Writes all committed entries and makes them durable, so that they survive a power loss.
    ///
    /// # Errors
    /// `Unavailable` if an entry could not be written or a sync failed.
    pub async fn sync(&self) -> Result<()> {
        self.check_open()?;
        let waits_for_a_volume = self.waits_for_a_volume();
        let engines: Vec<AnyEngine> = self.volumes.sound().collect();
        let synced = join_all(engines.iter().map(AnyEngine::sync)).await;
        synced.into_iter().collect::<Result<()>>()?;
        if waits_for_a_volume { Err(volumes::is_out()) } else { Ok(()) }
    }

    /// Returns whether an excluded volume may still have entries to write. If its engine failed, nobody can tell, so
    /// the answer is `true`.
    fn waits_for_a_volume(&self) -> bool {
        let may_wait = |engine: &AnyEngine| engine.volume().failure.is_set() || engine.gauges().dirty_bytes > 0;
        self.volumes.all().any(|engine| engine.volume().health.is_out() && may_wait(&engine))
    }
}
