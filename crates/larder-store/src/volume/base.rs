//! The part of a volume that outlives its engine: the bare device, the superblock, the counters, and all that was
//! promised and is not durable yet.
//!
//! Owns: [`VolumeBase`], and the watched device that each engine gets. Invariant: an engine that has failed writes
//! nothing more, although its successor writes to the same device. Cost: none.

use super::{
    changed_keys::ChangedKeys,
    counters::Counters,
    evictions::EvictionReceiver,
    failure::FailureMark,
    health::VolumeHealth,
    loading::LoadWaiters,
    neighbors::BeginNeighbors,
    pending_removals::PendingRemovals,
    pins::PinnedKeys,
    protected_keys::ProtectedKeys,
    superblock_keeper::SuperblockKeeper,
    sync_watch::{SyncWatch, WatchedDevice, WatchedDirectory},
    wakeup::MaintenanceWakeup,
    wear::WearLimit,
};
use crate::{
    Clock, Error, ErrorKind, Policy, Result, StoreOptions,
    device::{Device, Directory},
    format::superblock::{Superblock, VolumeShape},
    hash::{FullHash, KeyHash, KeyHasher},
};
use std::{
    sync::{
        Arc, OnceLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::ThreadId,
};

/// The part of a volume that outlives its engine.
pub(crate) struct VolumeBase {
    device: Arc<dyn Device>,
    pub(super) directory: Option<Arc<dyn Directory>>,
    device_watch: Arc<SyncWatch>,
    files_watch: Arc<SyncWatch>,
    pub(crate) policy: &'static Policy,
    pub(crate) shape: VolumeShape,
    pub(crate) options: StoreOptions,
    pub(crate) hasher: KeyHasher,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) wakeup: MaintenanceWakeup,
    pub(crate) health: VolumeHealth,
    /// The limit on bytes written per day; `None` if there is none.
    pub(crate) wear: Option<WearLimit>,
    pub(crate) protected_keys: ProtectedKeys,
    pub(crate) pins: PinnedKeys,
    /// Removals and invalidations that are not yet durable.
    pub(crate) pending_removals: PendingRemovals,
    /// Keys that were stored or removed and whose last change may not be durable yet.
    pub(crate) changed_keys: ChangedKeys,
    pub(crate) begin_neighbors: OnceLock<BeginNeighbors>,
    /// The receiver of evicted entries, if there is one.
    pub(crate) evictions: OnceLock<Arc<EvictionReceiver>>,
    pub(crate) waiting: LoadWaiters,
    /// The volume's maintenance thread. Not set if the store has no threads of its own.
    pub(crate) maintenance_thread: OnceLock<ThreadId>,
    /// The superblock in memory, and its changes that wait to be written.
    pub(crate) superblocks: Arc<SuperblockKeeper>,
    closed: AtomicBool,
}

impl VolumeBase {
    pub(super) fn new(
        device: Arc<dyn Device>,
        superblock: Superblock,
        policy: &'static Policy,
        options: &StoreOptions,
    ) -> Self {
        let device_watch = Arc::new(SyncWatch::default());
        Self {
            directory: None,
            files_watch: Arc::default(),
            policy,
            shape: superblock.shape.clone(),
            options: options.clone(),
            hasher: KeyHasher::new(superblock.hash_key),
            clock: options.clock.clone(),
            counters: Counters::default(),
            wakeup: MaintenanceWakeup::default(),
            health: VolumeHealth::default(),
            wear: WearLimit::new(superblock.shape.size_bytes, options.tuning.writes_per_day, options.clock.now()),
            protected_keys: ProtectedKeys::new(superblock.shape.size_bytes),
            pins: PinnedKeys::new(
                superblock.shape.size_bytes,
                superblock.shape.segment_bytes,
                if policy.can_pin() { options.tuning.pin_share } else { 0.0 },
            ),
            pending_removals: PendingRemovals::default(),
            changed_keys: ChangedKeys::default(),
            begin_neighbors: OnceLock::new(),
            evictions: OnceLock::new(),
            waiting: LoadWaiters::default(),
            maintenance_thread: OnceLock::new(),
            superblocks: SuperblockKeeper::new(Arc::clone(&device), Arc::clone(&device_watch), superblock),
            device,
            device_watch,
            closed: AtomicBool::new(false),
        }
    }

    /// Returns a device for an engine. It refuses writes once `failure` is set.
    pub(super) fn watched_device(&self, failure: FailureMark) -> Arc<dyn Device> {
        let inner = Arc::clone(&self.device);
        let watch = Arc::clone(&self.device_watch);
        Arc::new(WatchedDevice { inner, watch, failure })
    }

    /// Returns a directory for an engine, if the policy keeps entries in files. It refuses changes once `failure` is
    /// set.
    pub(super) fn watched_directory(&self, failure: FailureMark) -> Option<Arc<dyn Directory>> {
        let watch = Arc::clone(&self.files_watch);
        let inner = self.directory.clone()?;
        Some(Arc::new(WatchedDirectory { inner, watch, failure }))
    }

    /// Returns the watches, which count writes and syncs, of the directory and of the device, in the order in which a
    /// sync covers them.
    pub(super) fn watches(&self) -> [&SyncWatch; 2] {
        [&self.files_watch, &self.device_watch]
    }

    /// Waits until no write or sync of an engine is in flight.
    pub(crate) async fn drained(&self) {
        for watch in self.watches() {
            watch.drained().await;
        }
    }

    /// Returns the maximum number of bytes that the volume may take, including its files.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.shape.size_bytes + if self.directory.is_some() { self.shape.files_bytes() } else { 0 }
    }

    /// Closes the volume. From now on, stores, removals and lookups fail.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the store is closed"));
        }
        Ok(())
    }

    /// Returns the superblock that is in effect.
    pub(crate) fn superblock(&self) -> RwLockReadGuard<'_, Superblock> {
        self.superblocks.present()
    }

    /// Returns the epoch that entries written now belong to.
    pub(crate) fn epoch(&self) -> u32 {
        self.superblock().epochs.current
    }

    /// Returns whether an entry of `epoch` may be served: no invalidation, even a pending one, covers it.
    pub(crate) fn admits(&self, epoch: u32) -> bool {
        self.superblock().epochs.admits(epoch) && !self.pending_removals.hides_all()
    }

    /// Returns the low half of a key's hash, which the index uses, and the full hash.
    pub(crate) fn hash(&self, key: &[u8]) -> (KeyHash, FullHash) {
        let hash = self.hasher.hash(key);
        (hash.key_hash(), hash)
    }
}
