//! The part of a volume that is common to all engines: the device, the identity, the clocks, the counters and the
//! invalidation rules.
//!
//! Owns: the superblock (and with it the invalidation rules), counted I/O, and the single place that decides whether
//! the bytes of a read are the requested entry. The engines know the positions of entries. Invariant: [`Volume::judge`]
//! accepts only a whole record of this volume under exactly that key, not expired and not invalidated. Cost: one pass
//! of CRC32C over the record.

pub(crate) mod base;
pub(crate) mod changed_keys;
pub(crate) mod counters;
pub(crate) mod evictions;
pub(crate) mod failure;
pub(crate) mod fence;
pub(crate) mod health;
pub(crate) mod journal_marks;
pub(crate) mod loading;
pub(crate) mod membership;
pub(crate) mod neighbors;
pub(crate) mod pending_removals;
pub(crate) mod pins;
pub(crate) mod protected_keys;
pub(crate) mod read_batches;
pub(crate) mod shared_flush;
pub(crate) mod superblock_keeper;
pub(crate) mod superblocks;
mod sync_watch;
pub(crate) mod turn;
pub(crate) mod waiters;
pub(crate) mod wakeup;
mod wear;

use crate::{
    Error, ErrorKind, Policy, ReadAxis, Result, StoreOptions,
    clock::has_expired,
    device::{AlignedBuffer, Device, Directory},
    format::{
        VolumeId,
        record::{DecodedRecord, RecordKind},
        superblock::Superblock,
    },
    hash::FullHash,
    sync::atomic::AtomicBool,
    units::BLOCK_BYTES,
};
use base::VolumeBase;
use bytes::Bytes;
use counters::add;
use failure::VolumeFailure;
use journal_marks::JournalMarks;
use neighbors::{NeighborRecord, RecordSink};
use read_batches::LookupReads;
use shared_flush::SharedFlush;
use std::{
    io,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use turn::TaskTurn;

/// Number of attempts to read a block when the store is opened. After a transient fault, a retry saves the entries in
/// the block.
const START_READ_ATTEMPT_COUNT: u32 = 3;

/// A volume as its current engine uses it. All parts of the engine share it.
///
/// If the engine fails, the next one gets a new `Volume` on the same [`VolumeBase`] ([`Self::successor`]).
pub(crate) struct Volume {
    /// The parts of the volume that outlive the engine.
    base: Arc<VolumeBase>,
    /// The device. Watches all writes and syncs, and refuses writes once the engine has failed.
    pub(crate) device: Arc<dyn Device>,
    /// The directory of policies that keep entries in files. Watches changes and syncs like `device`.
    pub(crate) directory: Option<Arc<dyn Directory>>,
    pub(crate) id: VolumeId,
    /// Whether this opening created the volume, so that it certainly has no entries. Reading zeros would not prove it,
    /// because the device may have read at a wrong position.
    pub(crate) is_new: bool,
    pub(crate) flushes: SharedFlush,
    pub(crate) failure: VolumeFailure,
    /// Progress of the journal's pages (written and durable), in policies that have a journal.
    pub(crate) journal: JournalMarks,
    /// The reads of lookups that wait to be sorted; `None` if lookups read at once.
    lookup_reads: Option<LookupReads>,
    /// When to retry the first writes of this run, if they failed; in milliseconds of the clock.
    start_retry_at: AtomicU64,
    /// Whether a task is doing the first writes of this run, or a later reservation of numbers. Only one task may.
    is_starting: AtomicBool,
}

impl Deref for Volume {
    type Target = VolumeBase;

    fn deref(&self) -> &VolumeBase {
        &self.base
    }
}

/// Pause before the first writes of a run are retried, if they failed.
pub(crate) const START_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Returns the error of a store that accepts nothing because its first writes failed.
pub(crate) fn cannot_begin() -> Error {
    Error::new(ErrorKind::Unavailable, "the store accepts nothing: the first write after its start failed")
}

/// The verdict on a record that was read in search of a key.
pub(crate) enum KeyVerdict {
    /// The entry of the key, verified and current.
    Sound(DecodedRecord),
    /// A valid record of another key.
    FalseMatch,
    /// The entry of the key, but it has expired or was invalidated.
    Useless,
    /// Not a valid record of this volume: damaged, or overwritten.
    Damaged,
}

impl Volume {
    /// Waits until all entries of an earlier run are loaded.
    pub(crate) async fn loaded(&self) {
        self.waiting.wait(|| self.is_loaded()).await;
    }

    /// Waits until the entries of an earlier run that the caller needs are loaded: until `is_loaded` returns `true`, or
    /// all entries are loaded.
    pub(crate) async fn loaded_part(&self, is_loaded: impl Fn() -> bool) {
        self.waiting.wait(|| self.is_loaded() || is_loaded()).await;
    }

    /// Returns whether all entries of an earlier run are loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.counters.loaded.load(Ordering::Acquire)
    }

    /// Wakes the tasks that wait in [`Self::loaded_part`], because another part of the entries is loaded.
    pub(crate) fn note_loaded_part(&self) {
        self.waiting.note_part();
    }

    /// Notes that all entries of an earlier run are loaded, and wakes the tasks that wait for it.
    pub(crate) fn set_loaded(&self) {
        self.waiting.set_loaded(&self.counters.loaded);
    }

    pub(crate) fn new(
        device: Arc<dyn Device>,
        superblock: Superblock,
        policy: &'static Policy,
        options: &StoreOptions,
    ) -> Self {
        Self::on(Arc::new(VolumeBase::new(device, superblock, policy, options)))
    }

    /// Returns this volume with `directory`, in which its policy keeps entries as files.
    pub(crate) fn with_directory(mut self, directory: Arc<dyn Directory>, options: &StoreOptions) -> Self {
        let base = Arc::get_mut(&mut self.base).expect("nobody else has a volume that is being opened");
        base.options = options.clone();
        base.directory = Some(directory);
        Self::on(self.base).made_now(self.is_new)
    }

    /// Returns a volume on the same base for the next engine, after this volume's engine failed.
    pub(crate) fn successor(&self) -> Self {
        Self::on(Arc::clone(&self.base))
    }

    fn on(base: Arc<VolumeBase>) -> Self {
        let failure = VolumeFailure::default();
        let device = base.watched_device(failure.mark());
        let id = base.superblock().id;
        let options = &base.options;
        let sorts_reads = options.tuning.sorted_reads || base.policy.reads == ReadAxis::SortedBatches;
        let lookup_reads =
            sorts_reads.then(|| LookupReads::new(&device, &options.tuning, &options.clock, options.background));
        Self {
            directory: base.watched_directory(failure.mark()),
            device,
            id,
            is_new: false,
            flushes: SharedFlush::default(),
            failure,
            journal: JournalMarks::default(),
            lookup_reads,
            start_retry_at: AtomicU64::new(0),
            is_starting: AtomicBool::new(false),
            base,
        }
    }

    /// Makes this volume fail when one of its syncs fails.
    pub(crate) fn watch_syncs(self: &Arc<Self>) {
        for watch in self.watches() {
            let volume = Arc::downgrade(self);
            watch.set_on_loss(move |error| {
                if let Some(volume) = volume.upgrade() {
                    volume.fail_sync(error);
                }
            });
        }
    }

    /// Returns this volume with the given value of `is_new`.
    pub(crate) fn made_now(self, is_new: bool) -> Self {
        Self { is_new, ..self }
    }

    /// Returns the right to do the first writes of this run, or `None` if another task has it or no retry is due yet. A
    /// second task would undo what was stored after the first one finished.
    pub(crate) fn start_turn(&self) -> Option<TaskTurn<'_>> {
        let turn = TaskTurn::take(&self.is_starting)?;
        let is_due = self.clock.now().as_millis() as u64 >= self.start_retry_at.load(Ordering::Relaxed);
        if is_due {
            self.note_failed_start();
        }
        is_due.then_some(turn)
    }

    /// Returns the right to reserve numbers by writing a new header to the volume, or `None` if another task has it. If
    /// two tasks reserved numbers at once, the task with the lower end could write last, and undo the other's
    /// reservation.
    pub(crate) fn head_turn(&self) -> Option<TaskTurn<'_>> {
        TaskTurn::take(&self.is_starting)
    }

    /// Returns whether no task is reserving numbers ([`Self::head_turn`]).
    pub(crate) fn head_is_free(&self) -> bool {
        !self.is_starting.load(Ordering::Acquire)
    }

    /// Schedules a retry of the first writes of this run, because they failed.
    pub(crate) fn note_failed_start(&self) {
        let at = self.clock.now() + START_RETRY_PAUSE;
        self.start_retry_at.store(at.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns whether the volume has a new identity on the device. The present engine still uses the old one, and the
    /// next start finds no entries.
    pub(crate) fn starts_over(&self) -> bool {
        self.superblock().id != self.id
    }

    /// Reads `len_bytes` at `offset_bytes`. Neither number has to be aligned.
    pub(crate) async fn read(&self, offset_bytes: u64, len_bytes: u64) -> Result<Bytes> {
        // The maintenance thread may read for a long time, and batches must not wait for it.
        self.submit_due_reads();
        let (aligned_start, skip, aligned_len) = self.aligned(offset_bytes, len_bytes);
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, aligned_len);
        let outcome = self.device.read(aligned_start, aligned_len as usize).await;
        self.note_transfer(&outcome);
        let buffer: AlignedBuffer = outcome.map_err(|source| self.read_failed(aligned_start, source))?;
        Ok(Bytes::from_owner(buffer).slice(skip..skip + len_bytes as usize))
    }

    /// Reads like [`Self::read`], for a lookup. If the store sorts the reads of lookups, the read waits for a batch.
    pub(crate) async fn read_in_batch(&self, offset_bytes: u64, len_bytes: u64) -> Result<Bytes> {
        let (aligned_start, skip, aligned_len) = self.aligned(offset_bytes, len_bytes);
        let outcome = self.read_aligned_in_batch(aligned_start, aligned_len).await;
        self.note_transfer(&outcome);
        let buffer = outcome.map_err(|source| self.read_failed(aligned_start, source))?;
        Ok(Bytes::from_owner(buffer).slice(skip..skip + len_bytes as usize))
    }

    /// Reads for a lookup like [`Self::read_in_batch`], but the offset and the length must be aligned. Counts the read.
    /// The caller notes its outcome.
    pub(crate) async fn read_aligned_in_batch(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<AlignedBuffer> {
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, len_bytes);
        // The thread that submits batches must not wait for one.
        match self.lookup_reads.as_ref().filter(|_| !self.is_on_maintenance_thread()) {
            Some(reads) => reads.read(offset_bytes, len_bytes, || self.wakeup.wake()).await,
            None => self.device.read(offset_bytes, len_bytes as usize).await,
        }
    }

    /// Submits the batch of lookup reads if its first read has waited long enough.
    pub(crate) fn submit_due_reads(&self) {
        self.lookup_reads.iter().for_each(LookupReads::submit_due);
    }

    /// Submits the pending batch of lookup reads. After this call, each lookup submits its read without a batch.
    pub(crate) fn end_read_batches(&self) {
        self.lookup_reads.iter().for_each(LookupReads::end);
    }

    /// Returns the time until the batch of lookup reads must be submitted; `None` if none waits.
    pub(crate) fn reads_due(&self) -> Option<Duration> {
        self.lookup_reads.as_ref()?.due()
    }

    /// Reads whole blocks while the store is opened. Retries a failed read a few times, because otherwise the entries
    /// in these blocks are lost for good.
    ///
    /// # Errors
    /// Every attempt failed. Each failure is counted.
    pub(crate) async fn read_for_start(&self, offset_bytes: u64, len_bytes: u64) -> Result<AlignedBuffer> {
        assert!(offset_bytes.is_multiple_of(BLOCK_BYTES) && len_bytes > 0, "whole blocks are read");
        let mut attempts_left = START_READ_ATTEMPT_COUNT;
        loop {
            attempts_left -= 1;
            match self.device.read(offset_bytes, len_bytes as usize).await {
                Ok(buffer) => return Ok(buffer),
                Err(source) => {
                    let error = self.read_failed(offset_bytes, source);
                    if attempts_left == 0 {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Returns the smallest aligned range that contains `len_bytes` at `offset_bytes`, as three numbers: the start of
    /// the range, where the wanted bytes begin in it, and its length.
    pub(crate) fn aligned(&self, offset_bytes: u64, len_bytes: u64) -> (u64, usize, u64) {
        let alignment = u64::from(self.device.alignment_bytes());
        let start = offset_bytes / alignment * alignment;
        let skip = offset_bytes - start;
        (start, skip as usize, (skip + len_bytes).next_multiple_of(alignment))
    }

    /// Writes the whole of `buffer` at `offset_bytes`. The offset and the length must be aligned.
    pub(crate) async fn write(&self, offset_bytes: u64, buffer: Arc<AlignedBuffer>) -> Result<()> {
        let failed = |source| {
            Error::io(ErrorKind::Unavailable, format!("cannot write the store at byte {offset_bytes}"), source)
        };
        self.check_writable().map_err(failed)?;
        add(&self.counters.writes, 1);
        add(&self.counters.written_bytes, buffer.len() as u64);
        let outcome = self.device.write(offset_bytes, buffer).await;
        self.note_write(&outcome);
        outcome.map_err(failed)
    }

    /// Returns whether a read brings along entries that were not requested.
    pub(crate) fn brings_neighbors(&self) -> bool {
        self.policy.brings_neighbors()
    }

    /// Returns a sink for neighbors, or `None` if the store has no receiver. Call this before checking which of the
    /// read records are current: the receiver only learns of replacements after this call.
    pub(crate) fn neighbors(&self) -> Option<RecordSink> {
        self.begin_neighbors.get().map(|begin| begin())
    }

    /// Returns a record that was read along with a requested one, if it is an entry that may be served. `decoded` is
    /// the decoded start of the record.
    ///
    /// The body is not verified here, because many neighbors are never used. Reading it verifies it.
    pub(crate) fn neighbor(self: &Arc<Self>, record: Bytes, decoded: DecodedRecord) -> Option<NeighborRecord> {
        let is_entry = decoded.body_is_here() && decoded.len_bytes() <= record.len() && !self.is_useless(&decoded);
        let key = record.slice(decoded.key.clone());
        if !is_entry || self.pending_removals.hides(&key) {
            return None;
        }
        add(&self.counters.neighbors, 1);
        add(&self.counters.neighbor_bytes, record.len() as u64);
        Some(NeighborRecord { volume: Arc::clone(self), key, record, decoded })
    }

    /// Counts an I/O failure that loses no entry. Logs the first one.
    pub(crate) fn note_failure(&self, error: &Error) {
        if self.counters.io_errors.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!("{error}");
        }
    }

    /// Makes all completed writes durable by a sync.
    pub(crate) async fn sync(&self) -> Result<()> {
        let changed_until = self.changed_keys.flushed();
        if let Some(directory) = &self.directory {
            let outcome = directory.sync().await;
            outcome.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot sync the store's files", source))?;
        }
        let until = self.journal.written_until();
        let outcome = self.device.sync().await;
        if outcome.is_ok() {
            self.journal.note_durable(until);
            self.changed_keys.note_durable(changed_until);
        }
        outcome.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot sync the store", source))
    }

    /// Notes the outcome of an I/O operation. After too many failures in a row, excludes the volume until a probe
    /// succeeds.
    pub(crate) fn note_transfer<T>(&self, outcome: &io::Result<T>) {
        let (Some(failures), Err(error)) = (self.health.note(outcome, || self.clock.now()), outcome) else { return };
        add(&self.counters.outages, 1);
        let volume = self.options.path.display();
        tracing::error!(%volume, %error, failures, "volume failed: lookups of its keys miss until it works again");
        self.wakeup.wake();
    }

    /// Calls `defer` if the volume is excluded, to defer a change until the volume is back. Returns `true` if the
    /// volume is excluded and the exclusion is durably recorded: the next start then empties the volume, so the change
    /// survives a kill.
    pub(crate) fn defers(&self, defer: impl FnOnce(&Self)) -> bool {
        if !self.health.is_out() {
            return false;
        }
        defer(self);
        self.health.is_out_and_safe()
    }

    /// Notes the outcome of a write, and whether a sync is needed.
    pub(crate) fn note_write(&self, outcome: &io::Result<()>) {
        self.note_transfer(outcome);
        match outcome {
            Ok(()) => self.wakeup.written(),
            Err(error) => {
                if self.counters.io_errors.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!("cannot write to the store, entries are lost: {error}");
                }
            }
        }
    }

    /// Decides what `record` is for a lookup of `key`. `record` was read to its end.
    pub(crate) fn judge(&self, record: &Bytes, hash: FullHash, key: &[u8]) -> KeyVerdict {
        let Ok(decoded) = DecodedRecord::decode(self.id, record) else { return KeyVerdict::Damaged };
        if decoded.meta.hash != hash || record[decoded.key.clone()] != *key {
            return KeyVerdict::FalseMatch;
        }
        if decoded.meta.kind != RecordKind::Entry {
            return KeyVerdict::Useless;
        }
        if !decoded.verifies_here(record) {
            return KeyVerdict::Damaged;
        }
        if self.is_useless(&decoded) {
            return KeyVerdict::Useless;
        }
        KeyVerdict::Sound(decoded)
    }

    /// Returns whether an entry has expired or was invalidated.
    pub(crate) fn is_useless(&self, decoded: &DecodedRecord) -> bool {
        has_expired(decoded.meta.expires_at, self.clock.now_s()) || !self.admits(decoded.meta.epoch)
    }

    fn read_failed(&self, offset_bytes: u64, source: io::Error) -> Error {
        add(&self.counters.io_errors, 1);
        Error::io(ErrorKind::Unavailable, format!("cannot read the store at byte {offset_bytes}"), source)
    }
}
