//! Excludes a volume that fails while the store is open, and takes it back later.
//!
//! Owns: the order of both. While a volume is excluded, removals from it are deferred (`volume::pending_removals`), and
//! the other volumes record the exclusion, so that a start after a crash empties it. When a probe finds that it works
//! again, the record stops counting, the deferred removals are written, all volumes note its return, and only then is
//! it used. When to exclude or probe a volume is decided elsewhere (`volume::health`).
//!
//! A volume whose engine failed (`volume::fence`) gets a new one first, which loads what is on the device, like a start
//! after a kill. Its superblock says until its return that a start must not believe it.
//!
//! Invariant: an entry that was removed or replaced while its volume was excluded is never found again, whenever the
//! process ends. Until a removal is written, it is either deferred or covered by the record. Cost: two small writes per
//! volume and change.

use super::EngineVolumes;
use crate::{
    Error, ErrorKind, Result,
    device::block_on,
    families::AnyEngine,
    volume::{Volume, membership, superblocks},
};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread,
};

impl EngineVolumes {
    /// Ensures that the exclusion of a volume is recorded on the other volumes as soon as it happens. Does nothing for
    /// a store of a single volume.
    pub(super) fn record_outages_as_they_come(&self) {
        for index in (0..self.count()).filter(|_| !self.is_lone()) {
            // Weak: the volume owns this callback.
            let weak = self.downgrade();
            self.at(index).volume().health.set_on_out(move || {
                let Some(volumes) = Self::upgrade(&weak) else { return };
                // A completion must not block, so a thread writes the record.
                let work = move || block_on(volumes.record_outage(volumes.at(index).volume()));
                if let Err(error) = thread::Builder::new().name("larder-outage".into()).spawn(work) {
                    tracing::error!(%error, "cannot record that a volume failed");
                }
            });
        }
    }

    /// Does the work that is due on the volume with this index. If the volume is excluded, only probes it.
    pub(super) async fn maintain(&self, index: usize) {
        if !self.at(index).volume().health.is_out() || self.take_back(index, false).await {
            self.at(index).maintain().await;
        }
    }

    /// Probes an excluded volume if a probe is due or `is_forced` is set, and puts it back in use if it works. If its
    /// engine has failed, the volume gets a new one. Returns whether the volume is in use.
    pub(super) async fn take_back(&self, index: usize, is_forced: bool) -> bool {
        let engine = self.at(index);
        let volume = engine.volume();
        if !volume.failure.is_set() {
            return self.take_back_with_its_engine(index, is_forced).await;
        }
        // A closed store gets no engine that nobody would close.
        if volume.is_closed() {
            return false;
        }
        let Some(_turn) = volume.health.begin_probe(volume.clock.now(), is_forced) else { return false };
        let outcome = match self.open_again(index).await {
            Ok(opened) => self.settle(&opened).await,
            Err(error) => Err(error),
        };
        report_return(volume, &outcome)
    }

    /// Puts a volume back in use like [`Self::take_back`], unless its engine has failed. In that case, the volume stays
    /// excluded.
    pub(super) async fn take_back_with_its_engine(&self, index: usize, is_forced: bool) -> bool {
        let engine = self.at(index);
        let volume = engine.volume();
        if volume.failure.is_set() {
            return false;
        }
        let Some(_turn) = volume.health.begin_probe(volume.clock.now(), is_forced) else {
            return !volume.health.is_out();
        };
        let outcome = match superblocks::probe(volume, false, false).await.map_err(cannot_probe) {
            Ok(()) => self.settle(&engine).await,
            Err(error) => Err(error),
        };
        report_return(volume, &outcome)
    }

    /// Opens a volume again after its engine has failed, if the device accepts writes. Returns the new engine, which
    /// has loaded the entries on the device.
    async fn open_again(&self, index: usize) -> Result<AnyEngine> {
        let engine = self.at(index);
        let volume = engine.volume();
        volume.end_read_batches();
        // The new engine would miss a write that lands after it has read its place.
        volume.drained().await;
        // An assertion that fails again at once may do so because of what is on the device.
        let is_emptied = volume.failure.is_assertion() && volume.health.has_relapsed();
        superblocks::probe(volume, true, is_emptied).await.map_err(cannot_probe)?;
        volume.counters.loaded.store(false, Ordering::Release);
        let opened = AnyEngine::new(Arc::new(volume.successor()))?;
        self.replace(index, opened.clone());
        opened.load().await;
        opened.volume().fence(|| ())?;
        Ok(opened)
    }

    /// Puts a volume that works again back in use, after writing the removals and invalidations that it missed.
    async fn settle(&self, engine: &AnyEngine) -> Result<()> {
        let volume = engine.volume();
        let _pass = self.membership().pass().await;
        // In this order: a removal that relied on the record was deferred before this point, and is written below. A
        // later removal is acknowledged only when it is written.
        volume.health.set_recorded(false);
        let outcome = self.make_up_for(engine).await;
        match outcome {
            Ok(()) => volume.health.set_in_use(volume.clock.now()),
            // Some volumes may already have noted that this one rejoined.
            Err(_) => self.record(volume).await,
        }
        if volume.failure.is_set() {
            // It failed after it had been taken back.
            volume.health.exclude_for_reopening(volume.clock.now());
        }
        outcome
    }

    async fn make_up_for(&self, engine: &AnyEngine) -> Result<()> {
        let volume = engine.volume();
        // First the writes that the start could not do: nothing can be removed without them.
        engine.maintain().await;
        let mut left_count = u64::MAX;
        while volume.pending_removals.count() < left_count {
            left_count = volume.pending_removals.count();
            engine.retry_pending(true).await;
            // More of them than a policy can take at once need room, which only this task can make.
            if !volume.pending_removals.is_clear() {
                engine.flush().await?;
                engine.maintain().await;
            }
        }
        volume.check_pending()?;
        if volume.superblock().is_doubtful {
            // What was removed must stay removed, also if the device loses what it has not made durable.
            engine.sync().await?;
            superblocks::believe(volume).await?;
        }
        if !self.is_lone() {
            let engines: Vec<AnyEngine> = self.all().collect();
            let volumes: Vec<&Volume> = engines.iter().map(|engine| &**engine.volume()).collect();
            membership::rejoin(&volumes, volume).await?;
        }
        // The engine may have failed in the meantime.
        volume.fence(|| ())
    }

    /// Records, before the store closes, which volumes are excluded. The next start then empties them, so that entries
    /// removed in the meantime do not come back.
    pub(super) async fn record_outages(&self) {
        for engine in self.all().filter(|engine| !engine.volume().health.is_safe()) {
            self.record_outage(engine.volume()).await;
        }
    }

    /// Records durably that `lost` is excluded, unless it is already back.
    async fn record_outage(&self, lost: &Volume) {
        let _pass = self.membership().pass().await;
        if lost.health.is_out() {
            self.record(lost).await;
        }
    }

    /// Records durably on the volumes in use that `lost` is excluded. The caller must hold the pass, the right to
    /// change which volumes are in use, of the [`MembershipGate`](crate::volume::membership::MembershipGate).
    async fn record(&self, lost: &Volume) {
        let is_doubtful = lost.superblock().is_doubtful;
        if is_doubtful {
            // The change that ends the doubt may have failed after one copy of the superblock had it.
            let is_durable = !lost.superblocks.is_unsure() || superblocks::doubt(lost).await.is_ok();
            lost.health.set_recorded(is_durable);
        }
        if self.is_lone() {
            return;
        }
        let engines: Vec<AnyEngine> = self.all().collect();
        let volumes: Vec<&Volume> = engines.iter().map(|engine| &**engine.volume()).collect();
        match membership::record_outage(&volumes, lost).await {
            true => lost.health.set_recorded(true),
            false => tracing::error!("no other volume can record that a volume failed"),
        }
    }
}

/// Logs whether an excluded volume could be put back in use. Returns whether it could.
fn report_return(volume: &Volume, outcome: &Result<()>) -> bool {
    let path = volume.options.path.display();
    match outcome {
        Ok(()) => tracing::warn!(volume = %path, "a volume works again: its entries are found again"),
        Err(error) => tracing::info!(volume = %path, %error, "a volume still fails"),
    }
    outcome.is_ok()
}

fn cannot_probe(source: io::Error) -> Error {
    Error::io(ErrorKind::Unavailable, "its superblock cannot be read and written", source)
}
