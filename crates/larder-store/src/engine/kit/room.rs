//! The parts of a commit that all policies share: waiting for room, counting, and replacing a head.
//!
//! Invariant: a commit waits for a bounded time. It does not wait in a store without a maintenance thread, nor on that
//! thread itself, because nothing else would make room.

use crate::{
    Error, ErrorKind, Hints, Reader, Result,
    engine::{Engine, ReadExtent},
    format::record::{BodyPart, RecordKind, RecordMeta, RecordParts, checksum_count},
    volume::{Volume, counters::add},
};
use bytes::Bytes;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Poll, Waker},
    thread,
    time::Duration,
};

/// Why there is no space for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Nothing is free now. There will be space when writes have completed, something is evicted, or the entries of an
    /// earlier run are loaded.
    Now,
    /// The record is too long for the layout and never fits.
    Ever,
    /// Changes cannot be written, because the last write failed. There will be space when a retry succeeds.
    Stalled,
    /// The layout has used all its sequence numbers. There is no space before the store is opened again.
    Spent,
}

/// Text of the error if there is no space for an entry.
pub(crate) const NO_ROOM: &str = "the store has no room now";

/// Text of the error if changes cannot be written to the journal.
const STALLED: &str = "the store accepts no entries until its pending changes are written";

impl Volume {
    /// Returns the deadline by which a commit that begins now must find space.
    pub(crate) fn room_deadline(&self) -> Duration {
        let waits = self.options.background && !self.is_on_maintenance_thread();
        self.clock.now() + if waits { self.options.room_wait } else { Duration::ZERO }
    }

    /// Returns whether the calling thread is the volume's maintenance thread.
    pub(crate) fn is_on_maintenance_thread(&self) -> bool {
        self.maintenance_thread.get() == Some(&thread::current().id())
    }

    /// Marks the calling thread as the volume's maintenance thread. This thread makes space for other tasks, so it
    /// never waits for space itself.
    pub(crate) fn set_maintenance_thread(&self) {
        let is_first = self.maintenance_thread.set(thread::current().id()).is_ok();
        assert!(is_first, "a volume has one maintenance thread");
    }

    /// Repeats `attempt` until it succeeds or `deadline` has passed. An attempt without success must register the
    /// waker, to be woken when there may be space. `too_long` is the text of the error for an entry that never fits.
    pub(crate) async fn wait_for_room<T>(
        &self,
        deadline: Duration,
        too_long: &'static str,
        mut attempt: impl FnMut(&Waker) -> std::result::Result<T, NoRoom>,
    ) -> Result<T> {
        poll_fn(|context| {
            self.check_open()?;
            match attempt(context.waker()) {
                Ok(appended) => Poll::Ready(Ok(appended)),
                Err(NoRoom::Ever) => Poll::Ready(Err(Error::new(ErrorKind::Full, too_long))),
                Err(NoRoom::Spent) => Poll::Ready(Err(spent())),
                Err(NoRoom::Stalled) => Poll::Ready(Err(Error::new(ErrorKind::Unavailable, STALLED))),
                Err(NoRoom::Now) if self.clock.now() >= deadline => {
                    Poll::Ready(Err(Error::new(ErrorKind::Full, NO_ROOM)))
                }
                Err(NoRoom::Now) => Poll::Pending,
            }
        })
        .await
    }

    /// Counts a commit of `bytes` by its outcome. `Ok(false)` means that nothing was stored, because the entry to be
    /// replaced was no longer the current one of its key.
    pub(crate) fn count_commit(&self, bytes: u64, outcome: &Result<bool>) {
        match outcome {
            Ok(true) => {
                add(&self.counters.commits, 1);
                add(&self.counters.admitted_bytes, bytes);
            }
            Ok(false) => {}
            Err(_) => add(&self.counters.rejected, 1),
        }
    }
}

/// Returns the error of a volume that has used all its sequence numbers.
pub(crate) fn spent() -> Error {
    let place =
        "the store takes nothing more, as it has used all its sequence numbers: start it again, and it begins empty";
    Error::new(ErrorKind::Unavailable, place)
}

/// Returns the result of a flush. `all_written` says whether everything committed before the flush is on the device.
///
/// # Errors
/// `Unavailable` if `all_written` is `false`.
pub(crate) fn flushed(all_written: bool) -> Result<()> {
    if all_written {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unavailable, "committed entries could not be written to the store"))
}

/// Stores `record` by [`Engine::store`], and counts the outcome.
pub(crate) async fn commit<E: Engine>(
    engine: &Arc<E>,
    record: RecordParts<'_>,
    found: Option<E::Found>,
) -> Result<bool> {
    let bytes = record.content_bytes();
    // Pinned where it is made: awaited as a value, its kilobytes would be copied once more.
    let outcome = pin!(engine.store(record, found)).await;
    engine.volume().count_commit(bytes, &outcome);
    outcome
}

/// Replaces the head of `key`'s entry. Returns `false` if there is no entry, or if the entry was replaced meanwhile.
///
/// Making space for the new head may move the entry. If so, it is looked up again, as often as
/// [`Engine::HEAD_ATTEMPTS_MAX`] allows.
pub(crate) async fn update_head<E: Engine>(engine: &Arc<E>, key: &[u8], head: Bytes, hints: Hints) -> Result<bool> {
    let mut first_content = None;
    for _ in 0..E::HEAD_ATTEMPTS_MAX {
        let Some((found, Some(reader))) = engine.find(key, ReadExtent::Front).await? else { return Ok(false) };
        let content = reader.content();
        // If the entry was replaced since it was first read, the replacement wins: the new head does not belong to its
        // body.
        if first_content.as_ref().is_some_and(|first| *first != content) {
            return Ok(false);
        }
        first_content = Some(content);
        if let Some(renewal) = HeadRenewal::new(&reader, hints).await?
            && commit(engine, renewal.record(key, &head), Some(found)).await?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Repeats `attempt`, which appends a record, until there is space. In a store with a maintenance thread, this waits a
/// bounded time. Otherwise it flushes and maintains once. `too_long` is the text of the error for an entry that never
/// fits.
pub(crate) async fn append_with_room<E: Engine, T>(
    engine: &Arc<E>,
    too_long: &'static str,
    flush: impl Future<Output = Result<()>>,
    mut attempt: impl FnMut(Option<&Waker>) -> std::result::Result<T, NoRoom>,
) -> Result<T> {
    let volume = engine.volume();
    if !volume.options.background {
        if let Ok(appended) = attempt(None) {
            return Ok(appended);
        }
        flush.await?;
        engine.maintain().await;
    }
    volume.wait_for_room(volume.room_deadline(), too_long, |waker| attempt(Some(waker))).await
}

/// An entry that is stored again with a new head.
struct HeadRenewal {
    meta: RecordMeta,
    parts: Vec<BodyPart>,
    checksums: Vec<u32>,
    body: Vec<Bytes>,
}

impl HeadRenewal {
    /// Prepares the new record. The body stays where it is on the device, or is copied if it cannot stay there. Returns
    /// `None` if the body is damaged.
    async fn new(reader: &Reader, hints: Hints) -> Result<Option<Self>> {
        let decoded = reader.decoded();
        let with = |kind| RecordMeta::new(kind, decoded.meta.hash, hints, decoded.meta.epoch, reader.len());
        let Some((kind, parts)) = reader.body_in_place() else {
            let Some(body) = reader.read(0..reader.len()).await? else { return Ok(None) };
            let body = vec![body];
            let checksums = decoded.checksums_in_one_piece(reader.record(), &body);
            return Ok(Some(Self { meta: with(RecordKind::Entry), parts: Vec::new(), checksums, body }));
        };
        let mut checksums = decoded.checksums(reader.record());
        if matches!(kind, RecordKind::InParts(_)) {
            checksums.resize(checksum_count(reader.len(), parts.len()), 0);
        }
        Ok(Some(Self { meta: with(kind), parts, checksums, body: Vec::new() }))
    }

    fn record<'a>(&'a self, key: &'a [u8], head: &'a [u8]) -> RecordParts<'a> {
        RecordParts {
            meta: self.meta.clone(),
            key,
            head,
            parts: &self.parts,
            checksums: &self.checksums,
            body: &self.body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreOptions, device::MemoryDevice};

    /// Guards against a store that never closes. If the maintenance thread waited for space while it retries removals,
    /// it would wait forever, because only this thread makes space.
    #[test]
    fn maintenance_thread_waits_for_no_room() {
        let size_bytes = 16 << 20;
        let options = StoreOptions { segment_size_bytes: Some(1 << 20), ..StoreOptions::new("", size_bytes) };
        let store = Store::open_on(Arc::new(MemoryDevice::new(size_bytes)), &options).unwrap();
        let volume = Arc::clone(store.first_engine().volume());
        assert!(volume.room_deadline() > volume.clock.now(), "others wait");
        // As if this thread were the maintenance thread.
        let with = Volume::new(Arc::clone(&volume.device), volume.superblock().clone(), volume.policy, &volume.options);
        with.set_maintenance_thread();
        assert!(with.room_deadline() <= with.clock.now());
        let elsewhere = thread::scope(|scope| scope.spawn(|| with.room_deadline()).join().unwrap());
        assert!(elsewhere > with.clock.now());
    }
}
