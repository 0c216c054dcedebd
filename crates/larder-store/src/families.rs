//! The only match over the engines, and the only module that knows all of them.
//!
//! Owns: [`AnyEngine`], and what every engine does for its volume (pending removals, syncs). Nothing is decided here.
//! Invariant: every call of an engine passes the fence of its volume (`volume::fence`). Cost: one match per call, no
//! allocation.

mod pending_removals;

pub(crate) use crate::engine::mapped::listed_count;
use crate::{
    EngineRow, Error, ErrorKind, Hints, Reader, Result, StoreOptions,
    device::{Completion, FileWork, Transfer, block_on, pinned},
    engine::{
        Engine, EngineGauges, FlushExtent, LocatedEntry, Location, ReadExtent,
        clusters::{self, ClustersEngine},
        kit::{room, walk::WalkItem},
        log::{self, LogEngine},
        mapped::{self, MappedEngine},
        table::{self, TableEngine},
        tiny::{self, TinyEngine},
    },
    format::{record::RecordParts, superblock::VolumeShape},
    hash::KeyHash,
    volume::{Volume, changed_keys::ChangesBefore, fence::NotedChange, pending_removals::RemovalGuard},
};
use bytes::Bytes;
use std::{
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// The engine of a volume, one variant for each family of policies.
#[derive(Clone)]
pub(crate) enum AnyEngine {
    Log(Arc<LogEngine>),
    Mapped(Arc<MappedEngine>),
    Table(Arc<TableEngine>),
    Clusters(Arc<ClustersEngine>),
    Tiny(Arc<TinyEngine>),
}

/// Expands `$call` for each variant, so that it runs on the engine inside.
macro_rules! each {
    ($any:expr, $engine:ident => $call:expr) => {
        match $any {
            AnyEngine::Log($engine) => $call,
            AnyEngine::Mapped($engine) => $call,
            AnyEngine::Table($engine) => $call,
            AnyEngine::Clusters($engine) => $call,
            AnyEngine::Tiny($engine) => $call,
        }
    };
}

/// Returns the layout of a new volume with these options.
///
/// # Errors
/// `Invalid` if the policy does not support the options.
pub(super) fn shape_of(options: &StoreOptions) -> Result<VolumeShape> {
    match options.policy.engine {
        EngineRow::Log(row) => log::shape_of(options, row),
        EngineRow::Mapped(_) => mapped::shape_of(options),
        EngineRow::Table(row) => table::shape_of(options, row),
        EngineRow::Tiny => tiny::shape_of(options),
        EngineRow::Clusters => clusters::shape_of(options),
    }
}

/// Scans and verifies every record of a volume, as long as `goes_on` returns `true`. Passes what it finds to `meet`. On
/// a volume in use, records that are just being written can look damaged.
pub(super) fn walk(volume: &Volume, goes_on: &dyn Fn() -> bool, meet: &mut dyn FnMut(WalkItem<'_>)) {
    match volume.policy.engine {
        EngineRow::Log(_) => log::walk(volume, goes_on, meet),
        EngineRow::Mapped(row) => mapped::walk(volume, row, meet),
        EngineRow::Table(_) => table::walk(volume, goes_on, meet),
        EngineRow::Tiny => tiny::walk(volume, goes_on, meet),
        EngineRow::Clusters => clusters::walk(volume, goes_on, meet),
    }
}

impl AnyEngine {
    /// Creates the engine for the policy of `volume`.
    ///
    /// # Errors
    /// `Corrupt` if the policy cannot use the layout in the superblock.
    pub(crate) fn new(volume: Arc<Volume>) -> Result<Self> {
        volume.watch_syncs();
        let damaged = || Error::new(ErrorKind::Corrupt, "the superblock's layout does not match its policy");
        Ok(match volume.policy.engine {
            EngineRow::Log(row) => Self::Log(Arc::new(LogEngine::new(volume, row).ok_or_else(damaged)?)),
            EngineRow::Mapped(row) => Self::Mapped(Arc::new(MappedEngine::new(volume, row))),
            EngineRow::Table(row) => Self::Table(Arc::new(TableEngine::new(volume, row).ok_or_else(damaged)?)),
            EngineRow::Clusters => Self::Clusters(Arc::new(ClustersEngine::new(volume)?)),
            EngineRow::Tiny => Self::Tiny(Arc::new(TinyEngine::new(volume)?)),
        })
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        each!(self, engine => engine.volume())
    }

    pub(crate) async fn load(&self) {
        each!(self, engine => self.run_fenced(pin!(engine.load())).await);
        self.volume().set_loaded();
    }

    pub(crate) async fn get(&self, key: &[u8], extent: ReadExtent) -> Result<Option<Reader>> {
        if self.volume().pending_removals.hides(key) {
            return self.volume().check_open().map(|()| None);
        }
        each!(self, engine => {
            let found = self.volume().fenced(pin!(engine.find(key, extent))).await?;
            Ok(found.and_then(|(_, reader)| reader))
        })
    }

    /// Waits until everything that an earlier run may have stored under `key` is loaded. The rest of the volume may
    /// still be loading.
    pub(crate) async fn loaded_part(&self, key: &[u8]) {
        self.volume().loaded_part(|| self.has_loaded_part(key)).await;
    }

    /// Returns whether everything that an earlier run may have stored under `key` is loaded.
    pub(crate) fn has_loaded(&self, key: &[u8]) -> bool {
        self.volume().is_loaded() || self.has_loaded_part(key)
    }

    fn has_loaded_part(&self, key: &[u8]) -> bool {
        match self {
            Self::Log(engine) => engine.index.has_loaded(engine.volume().hash(key).0),
            Self::Mapped(_) | Self::Clusters(_) | Self::Table(_) | Self::Tiny(_) => false,
        }
    }

    pub(crate) async fn locate(&self, key: &[u8]) -> Result<Option<LocatedEntry>> {
        if self.volume().pending_removals.hides(key) {
            return self.volume().check_open().map(|()| None);
        }
        // Only an index that has the full hash of every entry needs no position.
        let location = match self {
            Self::Log(engine) => {
                let found = self.volume().fenced(pin!(engine.find(key, ReadExtent::Key))).await?;
                found.map(|(position, _)| engine.location_at(position))
            }
            Self::Mapped(engine) => self.has(engine, key).await?.then_some(Location::Known),
            Self::Clusters(engine) => self.has(engine, key).await?.then_some(Location::Known),
            Self::Table(engine) => self.has(engine, key).await?.then_some(Location::Passing),
            Self::Tiny(engine) => self.has(engine, key).await?.then_some(Location::Passing),
        };
        Ok(location.map(LocatedEntry))
    }

    async fn has<E: Engine>(&self, engine: &Arc<E>, key: &[u8]) -> Result<bool> {
        Ok(self.volume().fenced(pin!(engine.find(key, ReadExtent::Key))).await?.is_some())
    }

    pub(crate) fn is_at(&self, key_hash: KeyHash, location: Location) -> bool {
        self.volume().fence(|| each!(self, engine => engine.may_contain(key_hash, Some(location)))).unwrap_or(false)
    }

    pub(crate) async fn commit(&self, record: RecordParts<'_>) -> Result<()> {
        if let Err(error) = self.check_pending().await {
            // An entry that cannot be replaced must not resurface either.
            if self.may_contain(record.meta.hash.key_hash()) {
                self.volume().defer_removal(record.key);
            }
            return Err(error);
        }
        self.volume().pending_removals.note_commit(record.key);
        let _noted = NotedChange::new(self.volume(), record.key);
        // Boxed, because it would add kilobytes to every future that may write, and each move of it would copy them.
        each!(self, engine => self.volume().fenced(pinned(|| room::commit(engine, record, None)).as_mut()).await.map(drop))
    }

    pub(crate) fn admits(&self, key_hash: KeyHash, len_bytes: u64) -> bool {
        let admits = || self.admitting().is_none_or(|engine| engine.admits(key_hash, len_bytes));
        self.volume().fence(admits).unwrap_or(false)
    }

    pub(crate) fn has_room(&self) -> bool {
        let has_room = || self.admitting().is_none_or(|engine| engine.has_room());
        self.volume().fence(has_room).unwrap_or(false)
    }

    /// Returns the engine if it is the log engine. No other engine can refuse to store an entry.
    fn admitting(&self) -> Option<&LogEngine> {
        match self {
            Self::Log(engine) => Some(engine),
            Self::Mapped(_) | Self::Table(_) | Self::Clusters(_) | Self::Tiny(_) => None,
        }
    }

    /// Removes the entry of `key`. If the write fails, the removal becomes pending: the key is hidden, and the write is
    /// retried.
    pub(crate) async fn remove(&self, key: &[u8]) -> Result<()> {
        let removal = RemovalGuard::new(self.volume(), key);
        let outcome = self.remove_pending(key).await;
        removal.end(&outcome);
        outcome
    }

    /// Removes an entry whose removal is already pending.
    pub(super) async fn remove_pending(&self, key: &[u8]) -> Result<()> {
        let _noted = NotedChange::new(self.volume(), key);
        // Boxed like a commit.
        each!(self, engine => self.volume().fenced(Box::pin(engine.remove(key)).as_mut()).await)
    }

    pub(crate) async fn update_head(&self, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
        if self.volume().pending_removals.hides(key) {
            return self.volume().check_open().map(|()| false);
        }
        self.check_pending().await?;
        let _noted = NotedChange::new(self.volume(), key);
        each!(self, engine => self.volume().fenced(pin!(room::update_head(engine, key, head, hints))).await)
    }

    /// Retries pending removals before an entry is stored, in a store without a maintenance thread. Such a store has no
    /// other occasion to retry, and accepts nothing while a removal is pending.
    async fn check_pending(&self) -> Result<()> {
        let volume = self.volume();
        if !volume.pending_removals.is_clear() && !volume.options.background {
            Box::pin(self.retry_pending(true)).await;
        }
        volume.check_pending()
    }

    pub(crate) fn may_contain(&self, key_hash: KeyHash) -> bool {
        self.volume().fence(|| each!(self, engine => engine.may_contain(key_hash, None))).unwrap_or(true)
    }

    pub(crate) fn touch(&self, key_hash: KeyHash) {
        // A volume that has failed counts no hits.
        let _ = self.volume().fence(|| each!(self, engine => engine.touch(key_hash)));
    }

    pub(crate) fn gauges(&self) -> EngineGauges {
        self.volume().fence(|| each!(self, engine => engine.gauges())).unwrap_or_default()
    }

    /// Calls [`Engine::check`], unless the volume has failed.
    pub(crate) fn check(&self) {
        if !self.volume().failure.is_set() {
            each!(self, engine => engine.check());
        }
    }

    pub(crate) fn next_due(&self) -> Option<Duration> {
        let volume = self.volume();
        let probe_due = volume.health.probe_due(volume.clock.now());
        let work_due = || {
            let due = volume.fence(|| each!(self, engine => engine.next_due())).unwrap_or_default();
            due.into_iter().chain(volume.pending_due()).chain(volume.reads_due()).min()
        };
        probe_due.or_else(work_due)
    }

    /// Does the work that is due now, including the sync of written data.
    pub(crate) async fn maintain(&self) {
        // A failure of the volume has been reported.
        let _ = self.volume().fence(|| self.volume().submit_due_reads());
        each!(self, engine => self.run_fenced(pin!(engine.maintain())).await);
        self.retry_pending(false).await;
        let volume = self.volume();
        let interval = volume.options.sync_interval;
        if volume.wakeup.sync_is_due(volume.clock.now(), interval) {
            // A failure has been reported, and the changes stay on their list.
            let _ = if self.gauges().dirty_bytes == 0 {
                // A flush with nothing to write tells which changes the sync covers.
                self.flush().await
            } else if let Some(due) = volume.changed_keys.due_flush(volume.clock.now()) {
                volume.fenced(pin!(self.flush_changes(due))).await
            } else {
                Ok(())
            };
        }
        if volume.wakeup.begin_sync(volume.clock.now(), interval) {
            submit_sync(volume);
        }
    }

    /// Runs `work` inside the fence of the volume. `work` reports its own errors; a failed assertion is reported by the
    /// fence.
    async fn run_fenced(&self, work: Pin<&mut impl Future<Output = ()>>) {
        let call = async {
            work.await;
            Ok(())
        };
        let _ = self.volume().fenced(pin!(call)).await;
    }

    /// Hands everything committed so far to the device. Concurrent calls share one flush.
    pub(crate) async fn flush(&self) -> Result<()> {
        let flush = pin!(self.volume().flushes.join(self.flush_noted()));
        self.volume().fenced(flush).await
    }

    /// Flushes the engine. On success, notes that all changes of keys made before this call are written.
    async fn flush_noted(&self) -> Result<()> {
        let volume = self.volume();
        self.flush_changes(volume.changed_keys.begin_flush(volume.clock.now())).await
    }

    async fn flush_changes(&self, changes: ChangesBefore) -> Result<()> {
        each!(self, engine => engine.flush(FlushExtent::CommittedBy(changes.at)).await)?;
        let volume = self.volume();
        volume.changed_keys.end_flush(changes, volume.clock.now());
        Ok(())
    }

    /// Writes all committed entries and makes them durable.
    pub(crate) async fn sync(&self) -> Result<()> {
        self.volume().fenced(pin!(self.flush_noted())).await?;
        self.volume().sync().await
    }

    /// Makes everything durable, including the data with which the next start finds all entries at once. Called when
    /// the store is closed.
    pub(crate) async fn finish(&self) -> Result<()> {
        each!(self, engine => self.volume().fenced(pin!(engine.flush(FlushExtent::Closing))).await)?;
        self.volume().sync().await
    }

    /// Closes the engine like [`Self::finish`], on a thread that may block.
    pub(crate) fn finish_blocking(&self) {
        if !self.volume().failure.is_set()
            && let Err(error) = block_on(self.finish())
        {
            tracing::error!("cannot finish the store: {error}");
        }
    }
}

/// Starts a sync of the policy's files, if it keeps any, and then of the device.
fn submit_sync(volume: &Arc<Volume>) {
    let covered = volume.changed_keys.flushed();
    let Some(directory) = &volume.directory else { return submit_device_sync(volume, covered) };
    let weak = Arc::downgrade(volume);
    let done = move |outcome: std::io::Result<()>| {
        let Some(volume) = weak.upgrade() else { return };
        match outcome {
            Ok(()) => submit_device_sync(&volume, covered),
            Err(error) => note_synced(&volume, Err(error)),
        }
    };
    directory.submit(FileWork::Sync { completion: Completion::callback(done) });
}

/// Starts a sync of the device. When it succeeds, the changes of keys before the position `covered` are durable.
fn submit_device_sync(volume: &Arc<Volume>, covered: u64) {
    let weak = Arc::downgrade(volume);
    let until = volume.journal.written_until();
    let done = move |outcome: std::io::Result<()>| {
        let Some(volume) = weak.upgrade() else { return };
        if outcome.is_ok() {
            volume.journal.note_durable(until);
            volume.changed_keys.note_durable(covered);
        }
        note_synced(&volume, outcome);
    };
    volume.device.submit(Transfer::Sync { completion: Completion::callback(done) });
}

fn note_synced(volume: &Volume, outcome: std::io::Result<()>) {
    if let Err(error) = &outcome {
        volume.counters.io_errors.fetch_add(1, Ordering::Relaxed);
        tracing::error!("cannot sync the store: {error}");
    }
    volume.wakeup.synced(outcome.is_ok());
}
