//! The volumes of one store: which of them a key belongs to, and what becomes of a share whose volume is gone.
//!
//! Owns: the choice (weighted rendezvous hashing) and the outage of a volume. Does not: know how entries lie on a
//! volume. Invariant: a key's entry is looked for on one volume only, and no older entry of it stays on another
//! that is there; a volume that missed something is emptied before it is believed again. Cost: one hash per volume
//! and lookup. Source: Thaler and Ravishankar, rendezvous hashing (1998), weighted by -w / ln(h).

use crate::{
    Error, ErrorKind, Result,
    engine::Extent,
    families::AnyEngine,
    format::VolumeId,
    volume::{Volume, membership::record_outage, superblocks},
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
};

/// A store's volumes with their engines.
#[derive(Clone)]
pub(crate) struct Volumes(Arc<[AnyEngine]>);

impl Volumes {
    /// Volumes that were reconciled.
    pub(super) fn new(engines: Vec<AnyEngine>) -> Self {
        assert!(!engines.is_empty(), "a store has a volume");
        let volumes = Self(engines.into());
        // A volume that is alone has nobody to be told of its end.
        for engine in volumes.all().filter(|_| volumes.0.len() > 1) {
            let weak = Arc::downgrade(&volumes.0);
            let lost = engine.volume().id;
            engine.volume().health.set_on_out(move || {
                let Some(engines) = weak.upgrade() else { return };
                // Not here: a completion must not block.
                let work = move || Self(engines).record_outage(lost);
                if let Err(error) = thread::Builder::new().name("larder-outage".into()).spawn(work) {
                    tracing::error!(%error, "cannot record that a volume is out");
                }
            });
        }
        volumes
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &AnyEngine> {
        self.0.iter()
    }

    /// Those that are in use.
    pub(super) fn sound(&self) -> impl Iterator<Item = &AnyEngine> {
        self.all().filter(|engine| !engine.volume().health.is_out())
    }

    /// The volume `key` belongs to, in use or not.
    pub(super) fn of(&self, key: &[u8]) -> &AnyEngine {
        if let [only] = &*self.0 {
            return only;
        }
        let scored = self.all().map(|engine| (score(engine.volume(), key), engine));
        scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).expect("a store has a volume").1
    }

    /// The volume `key` belongs to, if it is in use.
    pub(super) fn sound_of(&self, key: &[u8]) -> Option<&AnyEngine> {
        let engine = self.of(key);
        (!engine.volume().health.is_out()).then_some(engine)
    }

    /// Removes what other volumes may still have of `key` from a time when it belonged to them.
    pub(crate) async fn remove_strays(&self, key: &[u8]) -> Result<()> {
        if self.0.len() == 1 {
            return Ok(());
        }
        let owner = self.of(key).volume().id;
        let mut outcome = Ok(());
        for engine in self.sound().filter(|engine| engine.volume().id != owner) {
            if may_have(engine, key).await {
                outcome = engine.remove(key).await.and(outcome);
            }
        }
        outcome
    }

    /// Removes `key` from its volume. One that is out is emptied before it is believed again, if that is on record.
    pub(super) async fn remove(&self, key: &[u8]) -> Result<()> {
        let engine = self.of(key);
        if engine.volume().health.is_out_and_safe() {
            return engine.volume().check_open();
        }
        engine.remove(key).await
    }

    /// Sees to it before a close that what volumes that are out have missed is not forgotten.
    pub(super) async fn record_outages(&self) {
        let is_unknown = |engine: &&AnyEngine| !engine.volume().health.is_safe() && self.0.len() > 1;
        for engine in self.all().filter(is_unknown) {
            let (volumes, lost) = (self.clone(), engine.volume().id);
            let work = move || {
                volumes.record_outage(lost);
                Ok(())
            };
            if let Err(error) = superblocks::apart(work).await {
                tracing::error!(%error, "cannot record that a volume is out");
            }
        }
    }

    /// Makes it durable that `lost` is out, so that what it missed is not forgotten when it returns.
    fn record_outage(&self, lost: VolumeId) {
        let volumes: Vec<&Volume> = self.all().map(|engine| &**engine.volume()).collect();
        let Some(out) = volumes.iter().find(|volume| volume.id == lost) else { return };
        match record_outage(&volumes, lost) {
            true => out.health.set_recorded(),
            false => tracing::error!("nothing could be written that tells that a volume was out"),
        }
    }
}

/// Whether `engine` may have an entry of `key`. Where memory says so it is read: a removal would also forget the
/// entry of another key that looks the same in memory.
async fn may_have(engine: &AnyEngine, key: &[u8]) -> bool {
    let volume = engine.volume();
    if !volume.counters.loaded.load(Ordering::Acquire) {
        return true;
    }
    engine.may_contain(volume.hash(key).0) && !matches!(engine.get(key, Extent::Front).await, Ok(None))
}

/// The error for work on a volume that is out.
pub(super) fn is_out() -> Error {
    Error::new(ErrorKind::Unavailable, "the volume of this entry was taken out after it had failed")
}

/// How strongly `key` is drawn to `volume`: the largest score has it. The half of the hash that does not place the
/// entry on its volume decides, so that neither leans on the other.
fn score(volume: &Volume, key: &[u8]) -> f64 {
    const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
    let bits = (volume.hash(key).1.0 >> 64) as u64 >> 11;
    let uniform = (bits as f64 + 0.5) * UNIT;
    volume.size_bytes() as f64 / -uniform.ln()
}
