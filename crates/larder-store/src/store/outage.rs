//! A volume that fails while the store is open, and its return.
//!
//! Owns: the order of both. While a volume is out, what is to be removed from it is deferred (`volume::arrears`),
//! and the others have it on record that it is out, so that a start after a crash empties it. A probe finds that
//! it works again; then the record counts no longer, what was deferred is written, all volumes note that it is one
//! of them, and only then it is used. Does not: decide when it is out or probed (`volume::health`). Invariant:
//! nothing that was removed or replaced while a volume was out is found again, whenever the process ends; each
//! removal is covered by the record or by what is deferred until it is written. Cost: two small writes per volume
//! and change.

use super::EngineVolumes;
use crate::{
    Error, ErrorKind, Result,
    device::block_on,
    families::AnyEngine,
    volume::{Volume, membership, superblocks},
};
use std::{io, thread};

impl EngineVolumes {
    /// Records each volume's failure on the others as soon as it happens. A volume that is alone has none to
    /// record it.
    pub(super) fn record_outages_as_they_come(&self) {
        for engine in self.all().filter(|_| !self.is_lone()) {
            // Weak, and an identity: the volume owns this.
            let (weak, lost) = (self.downgrade(), engine.volume().id);
            engine.volume().health.set_on_out(move || {
                let Some(volumes) = Self::upgrade(&weak) else { return };
                // Not here: a completion must not block.
                let work = move || {
                    let lost = volumes.all().map(AnyEngine::volume).find(|volume| volume.id == lost);
                    block_on(volumes.record_outage(lost.expect("a store's volumes stay the same")));
                };
                if let Err(error) = thread::Builder::new().name("larder-outage".into()).spawn(work) {
                    tracing::error!(%error, "cannot record that a volume is out");
                }
            });
        }
    }

    /// Does what is due now on one volume. One that is out is probed, and nothing else.
    pub(super) async fn maintain(&self, engine: &AnyEngine) {
        if !engine.volume().health.is_out() || self.take_back(engine, false).await {
            engine.maintain().await;
        }
    }

    /// Probes a volume that is out, if that is due or `insists`, and takes it back if it works. Returns whether it
    /// is in use.
    pub(super) async fn take_back(&self, engine: &AnyEngine, insists: bool) -> bool {
        let volume = engine.volume();
        let Some(_turn) = volume.health.begin_probe(volume.clock.now(), insists) else {
            return !volume.health.is_out();
        };
        let probed = superblocks::probe(volume).await.map_err(cannot_probe);
        let outcome = match probed {
            Ok(()) => self.settle(engine).await,
            Err(error) => Err(error),
        };
        let path = volume.options.path.display();
        match &outcome {
            Ok(()) => tracing::warn!(volume = %path, "volume is back: its entries are found again"),
            Err(error) => tracing::info!(volume = %path, %error, "volume still fails"),
        }
        outcome.is_ok()
    }

    /// Settles what a volume has missed that works again, and uses it.
    async fn settle(&self, engine: &AnyEngine) -> Result<()> {
        let volume = engine.volume();
        let _pass = self.membership().pass().await;
        // In this order: a removal that relied on the record was deferred before, and is written now; one that
        // comes later is acknowledged only when it is written.
        volume.health.set_recorded(false);
        let outcome = self.make_up_for(engine).await;
        match outcome {
            Ok(()) => volume.health.set_in_use(volume.clock.now()),
            // Some volumes may have recorded that this one rejoined.
            Err(_) => self.record(volume).await,
        }
        outcome
    }

    async fn make_up_for(&self, engine: &AnyEngine) -> Result<()> {
        let volume = engine.volume();
        // Writes that its start could not do come first: without them nothing can be removed.
        engine.maintain().await;
        engine.pay_arrears(true).await;
        volume.check_arrears()?;
        if self.is_lone() {
            return Ok(());
        }
        let volumes: Vec<&Volume> = self.all().map(|engine| &**engine.volume()).collect();
        membership::rejoin(&volumes, volume).await
    }

    /// Sees to it before a close that what volumes that are out have missed is not forgotten.
    pub(super) async fn record_outages(&self) {
        for engine in self.all().filter(|engine| !engine.volume().health.is_safe()) {
            self.record_outage(engine.volume()).await;
        }
    }

    /// Makes it durable that `lost` is out, unless it is back already.
    async fn record_outage(&self, lost: &Volume) {
        let _pass = self.membership().pass().await;
        if lost.health.is_out() {
            self.record(lost).await;
        }
    }

    /// Makes it durable on the volumes in use that `lost` is out. For the task that has passed the gate.
    async fn record(&self, lost: &Volume) {
        if self.is_lone() {
            return;
        }
        let volumes: Vec<&Volume> = self.all().map(|engine| &**engine.volume()).collect();
        match membership::record_outage(&volumes, lost).await {
            true => lost.health.set_recorded(true),
            false => tracing::error!("no other volume can note that a volume is out"),
        }
    }
}

fn cannot_probe(source: io::Error) -> Error {
    Error::io(ErrorKind::Unavailable, "its superblock cannot be read and written", source)
}
