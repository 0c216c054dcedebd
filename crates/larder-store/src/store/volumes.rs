//! The volumes of one store, and the choice of the volume for a key.
//!
//! Owns: the choice (weighted rendezvous hashing). The engines find entries on a volume; `outage` excludes volumes and
//! takes them back. Invariant: a key's entry is looked up on one volume only, and no older entry of it remains on
//! another volume in use. A volume that missed a change is updated or emptied before it is trusted again. Cost: one
//! hash per volume and lookup. Source: Thaler and Ravishankar, rendezvous hashing (1998), weighted by -w / ln(h).

use crate::sync::IgnorePoison;
use crate::{
    Error, ErrorKind, Result, engine::ReadExtent, families::AnyEngine, hash::KeyHasher,
    volume::membership::MembershipGate,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, RwLock, Weak, atomic::Ordering},
};

/// A store's volumes with their engines.
#[derive(Clone)]
pub(crate) struct EngineVolumes(Arc<StoreVolumes>);

/// The part of [`EngineVolumes`] that all clones share.
pub(super) struct StoreVolumes {
    slots: Box<[VolumeSlot]>,
    /// Lets one task at a time change which volumes are in use.
    membership: MembershipGate,
}

/// A volume of the store, and the engine that currently serves it.
struct VolumeSlot {
    path: PathBuf,
    hasher: KeyHasher,
    size_bytes: u64,
    /// The present engine. It is replaced if it fails.
    engine: RwLock<AnyEngine>,
}

impl EngineVolumes {
    /// Creates the set of a store's volumes. [`membership::reconcile`](crate::volume::membership::reconcile) must have
    /// compared them before.
    pub(super) fn new(engines: Vec<AnyEngine>) -> Self {
        assert!(!engines.is_empty(), "a store has a volume");
        let slots = engines.into_iter().map(VolumeSlot::new).collect();
        let volumes = Self(Arc::new(StoreVolumes { slots, membership: MembershipGate::default() }));
        volumes.record_outages_as_they_come();
        volumes
    }

    pub(super) fn downgrade(&self) -> Weak<StoreVolumes> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(weak: &Weak<StoreVolumes>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    pub(super) fn membership(&self) -> &MembershipGate {
        &self.0.membership
    }

    pub(super) fn count(&self) -> usize {
        self.0.slots.len()
    }

    pub(super) fn is_lone(&self) -> bool {
        self.count() == 1
    }

    /// Returns the engine of the volume with this index.
    pub(super) fn at(&self, index: usize) -> AnyEngine {
        self.0.slots[index].engine()
    }

    /// Returns the path of the volume with this index.
    pub(super) fn path(&self, index: usize) -> &Path {
        &self.0.slots[index].path
    }

    /// Replaces the engine of the volume with this index, because the old engine has failed.
    pub(super) fn replace(&self, index: usize, engine: AnyEngine) {
        let mut present = self.0.slots[index].engine.write().ignore_poison();
        assert!(present.volume().failure.is_set(), "only a failed engine is replaced");
        *present = engine;
    }

    /// Returns the engines of all volumes, in the order in which the volumes were opened.
    pub(super) fn all(&self) -> impl Iterator<Item = AnyEngine> {
        self.0.slots.iter().map(VolumeSlot::engine)
    }

    /// Returns the engines of the volumes in use.
    pub(super) fn sound(&self) -> impl Iterator<Item = AnyEngine> {
        self.all().filter(|engine| !engine.volume().health.is_out())
    }

    /// Returns the engine of the volume that `key` belongs to, whether that volume is in use or excluded.
    pub(crate) fn of(&self, key: &[u8]) -> AnyEngine {
        if let [only] = &*self.0.slots {
            return only.engine();
        }
        let scored = self.0.slots.iter().map(|slot| (slot.score(key), slot));
        scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).expect("a store has a volume").1.engine()
    }

    /// Returns the engine of the volume that `key` belongs to, or `None` if that volume is excluded.
    pub(super) fn sound_of(&self, key: &[u8]) -> Option<AnyEngine> {
        let engine = self.of(key);
        (!engine.volume().health.is_out()).then_some(engine)
    }

    /// Removes older entries of `key` from other volumes, to which the key belonged before the set of volumes changed.
    pub(crate) async fn remove_strays(&self, key: &[u8]) -> Result<()> {
        if self.is_lone() {
            return Ok(());
        }
        let owner = self.of(key).volume().id;
        let mut outcome = Ok(());
        for engine in self.all().filter(|engine| engine.volume().id != owner) {
            if engine.volume().health.is_out() {
                if memory_may_have(&engine, key) {
                    engine.volume().defers(|volume| volume.defer_removal(key));
                }
            // Boxed, because the state of a read would be part of every commit's.
            } else if Box::pin(may_have(&engine, key)).await {
                outcome = engine.remove(key).await.and(outcome);
            }
        }
        outcome
    }

    /// Removes `key` from its volume. If the volume is excluded, the removal is deferred until it rejoins.
    pub(super) async fn remove(&self, key: &[u8]) -> Result<()> {
        let engine = self.of(key);
        if engine.volume().defers(|volume| volume.defer_removal(key)) {
            return engine.volume().check_open();
        }
        engine.remove(key).await
    }

    /// Defers the removal of `key`'s old entry while its volume is excluded. A caller that cannot store a new entry
    /// calls this, because otherwise lookups would find the old entry once the volume is back.
    pub(super) fn defer_replaced(&self, key: &[u8]) {
        let engine = self.of(key);
        if memory_may_have(&engine, key) {
            engine.volume().defers(|volume| volume.defer_removal(key));
        }
    }
}

impl VolumeSlot {
    fn new(engine: AnyEngine) -> Self {
        let volume = engine.volume();
        let path = volume.options.path.clone();
        let hasher = volume.hasher.clone();
        let size_bytes = volume.size_bytes();
        Self { path, hasher, size_bytes, engine: RwLock::new(engine) }
    }

    fn engine(&self) -> AnyEngine {
        self.engine.read().ignore_poison().clone()
    }

    /// Returns the score of the volume for `key`; the volume with the highest score holds the key. The score uses the
    /// upper half of the hash and the volume's index the lower half, so that the keys of a volume spread evenly over
    /// its index.
    fn score(&self, key: &[u8]) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        let bits = (self.hasher.hash(key).0 >> 64) as u64 >> 11;
        let uniform = (bits as f64 + 0.5) * UNIT;
        self.size_bytes as f64 / -uniform.ln()
    }
}

/// Returns whether `engine` may have an entry of `key`. If the index matches, the entry is read to make sure: other
/// keys can have the same bits in the index, and removing `key` would also drop their entries.
async fn may_have(engine: &AnyEngine, key: &[u8]) -> bool {
    let is_loaded = engine.volume().counters.loaded.load(Ordering::Acquire);
    memory_may_have(engine, key) && !(is_loaded && matches!(engine.get(key, ReadExtent::Front).await, Ok(None)))
}

/// Returns whether `engine` may have an entry of `key`, without I/O. Returns `true` if the index cannot tell.
fn memory_may_have(engine: &AnyEngine, key: &[u8]) -> bool {
    let volume = engine.volume();
    !volume.counters.loaded.load(Ordering::Acquire) || engine.may_contain(volume.hash(key).0)
}

/// Returns the error for an operation whose volume is excluded.
pub(super) fn is_out() -> Error {
    Error::new(ErrorKind::Unavailable, "the volume of this entry has failed and is not used until it works again")
}
