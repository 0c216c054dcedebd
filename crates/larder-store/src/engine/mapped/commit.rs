//! The write side: commits, removals and new heads, and the I/O they lead to.
//!
//! Invariants: a change is acknowledged only when it is as durable as the policy requires. A commit makes its entry
//! visible and passes it to the schedule in one step. Policies that write through return when the entry is on the
//! device, the others when it is in memory. A new head rewrites the whole record, because these policies have no other
//! place for it.

use super::{
    MappedEngine,
    dirty::DirtyEntry,
    map::{MapEntry, MapPlace},
    state::{MappedState, StorePhase},
};
use crate::{
    Error, ErrorKind, MappedRow, Result,
    device::{AlignedBuffer, Completion, PendingTransfer},
    engine::kit::{
        map_checkpoint,
        room::{NO_ROOM, NoRoom, flushed},
    },
    format::record::RecordParts,
    hash::KeyHash,
    units::{SECTOR_BYTES, Site},
    volume::{cannot_begin, waiters::wait_for},
};
use std::{sync::Arc, task::Waker, time::Duration};

/// A record that is about to be stored.
pub(super) struct PendingWrite {
    pub(super) key_hash: KeyHash,
    pub(super) site: Site,
    pub(super) sequence: u32,
    pub(super) sectors: u32,
    pub(super) expires_at: u32,
    /// Number of sectors that may still be evicted to find contiguous space for this record.
    pub(super) evictable: u64,
    /// The bytes of the record, padded to whole slots.
    pub(super) record: Arc<AlignedBuffer>,
    pub(super) now: Duration,
}

impl PendingWrite {
    pub(super) fn entry(&self, place: MapPlace) -> MapEntry {
        let Self { sectors, sequence, expires_at, .. } = *self;
        MapEntry { place, sectors, sequence, expires_at }
    }

    pub(super) fn dirty(&self, place: Option<MapPlace>, done: Option<Completion<()>>) -> DirtyEntry {
        let record = Arc::clone(&self.record);
        let Self { key_hash, sectors, now: since, .. } = *self;
        DirtyEntry {
            key_hash,
            record,
            sectors,
            place,
            pieces_left: 0,
            failed: false,
            dropped: false,
            since,
            ticket: 0,
            done,
        }
    }
}

impl MappedEngine {
    /// Removes a key's entry. With a journal, waits until the removal is written to it. Also waits if the map has no
    /// entry, because another caller's removal of it may not be written yet. Without a journal, no I/O is needed: after
    /// a close, only entries in the map are found, and after a crash none.
    pub(super) async fn remove_entry(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.volume.check_open()?;
        let (key_hash, _) = self.volume.hash(key);
        self.wait_loaded().await;
        self.update(|state| {
            state.remove(key_hash);
            match state.phase {
                // The entry may be in a snapshot that the next run trusts.
                StorePhase::Unusable => Err(cannot_begin()),
                StorePhase::Closed => Err(Error::new(ErrorKind::Closed, "the store is closed")),
                StorePhase::Loading | StorePhase::Open => Ok(()),
            }
        })?;
        map_checkpoint::write_down(self).await
    }

    /// Makes `record` the entry of its key. With `still_by`, the number of a write, does so only if that write stored
    /// the present entry. Returns whether the record was stored.
    pub(super) async fn store_record(
        self: &Arc<Self>,
        mut record: RecordParts<'_>,
        still_by: Option<u32>,
    ) -> Result<bool> {
        let deadline = self.volume.clock.now() + self.volume.options.room_wait;
        let Some(sequence) = self.next_number(deadline).await? else {
            return Err(Error::new(ErrorKind::Full, NO_ROOM));
        };
        record.meta.sequence = sequence;
        if !self.volume.options.background {
            // Without a maintenance thread, no other task does this.
            map_checkpoint::make_room(self).await;
        }
        let mut write = self.encode(&record);
        let waits = self.row.waits_for_device();
        let (mut done, pending) = if waits {
            let (completion, pending) = Completion::pair();
            (Some(completion), Some(pending))
        } else {
            (None, None)
        };
        let admitted = loop {
            let attempt = |waker: &Waker| self.admit(&mut write, still_by, &mut done, waker);
            if let Some(admitted) = self.volume.wait_for_room(deadline, no_run(self.row), attempt).await? {
                break admitted;
            }
            if self.volume.clock.now() > deadline {
                return Err(Error::new(ErrorKind::Full, NO_ROOM));
            }
            map_checkpoint::write_down(self).await?;
        };
        match pending {
            Some(pending) if admitted => wait_written(pending).await.map(|()| true),
            _ => Ok(admitted),
        }
    }

    /// Admits a write if there is space. If the buffers are full, writes the buffers and tries once more. Returns
    /// `None` if space becomes free as soon as the journal is written.
    fn admit(
        self: &Arc<Self>,
        write: &mut PendingWrite,
        still_by: Option<u32>,
        done: &mut Option<Completion<()>>,
        waker: &Waker,
    ) -> std::result::Result<Option<bool>, NoRoom> {
        loop {
            let (outcome, sent, busy) = self.update(|state| {
                let outcome = state.admit(write, still_by, done);
                if outcome == Err(NoRoom::Now) {
                    state.waiting.add(waker);
                }
                (outcome, !state.effects.transfers.is_empty(), state.is_busy())
            });
            if busy {
                self.volume.wakeup.wake_if_idle();
            }
            if outcome != Err(NoRoom::Now) || !sent {
                return outcome;
            }
        }
    }

    /// Returns the number for a write, once the entries of an earlier run are loaded. Returns `None` if they are not
    /// loaded by `deadline`.
    async fn next_number(&self, deadline: Duration) -> Result<Option<u32>> {
        let number = |state: &mut MappedState| {
            Some(match state.phase {
                _ if self.volume.is_closed() => self.volume.check_open().map(|()| None),
                StorePhase::Open => Ok(state.numbers.take().map(|number| number as u32)),
                StorePhase::Loading if self.volume.clock.now() < deadline => return None,
                StorePhase::Loading => Ok(None),
                StorePhase::Unusable => Err(cannot_begin()),
                StorePhase::Closed => Err(Error::new(ErrorKind::Closed, "the store is closed")),
            })
        };
        wait_for(|| self.lock(), number).await
    }

    fn encode(&self, record: &RecordParts<'_>) -> PendingWrite {
        let sectors = record.len_sectors();
        let len = record.len_bytes() as usize;
        let (written_bytes, evictable) = {
            let state = self.lock();
            (state.space.written_by(sectors) * SECTOR_BYTES, state.evictable_for(sectors))
        };
        let mut buffer = AlignedBuffer::with_len(written_bytes as usize);
        let target = buffer.as_mut_slice();
        record.encode(self.volume.id, &mut target[..len]);
        target[len..].fill(0);
        PendingWrite {
            key_hash: record.meta.hash.key_hash(),
            site: record.meta.site,
            sequence: record.meta.sequence,
            sectors: sectors as u32,
            expires_at: record.meta.expires_at,
            evictable,
            record: Arc::new(buffer),
            now: self.volume.clock.now(),
        }
    }

    /// Writes all buffers. Waits until everything committed before is on the device.
    pub(super) async fn flush_all(self: &Arc<Self>) -> Result<()> {
        let (ticket, failed_before) = self.send_all();
        let failed = |state: &mut MappedState| (!state.dirty.holds_up_to(ticket)).then_some(state.failed_writes);
        let all_written = flushed(wait_for(|| self.lock(), failed).await == failed_before);
        map_checkpoint::write_down(self).await.and(all_written)
    }

    /// Submits the writes of all buffers. Returns the number of the last commit, and how many writes had failed before.
    fn send_all(self: &Arc<Self>) -> (u64, u64) {
        let now = self.volume.clock.now();
        self.update(|state| {
            let before = (state.dirty.last_ticket(), state.failed_writes);
            state.send_all(now);
            before
        })
    }
}

/// Returns the text of the error for an entry for which there is no contiguous free space.
fn no_run(row: MappedRow) -> &'static str {
    match row {
        MappedRow::Bitmap => {
            "no free run is as long as the entry: esp evicts by time and demand, not until an entry fits; later entries \
             may fit, and other policies evict until this one does"
        }
        MappedRow::Files(_) | MappedRow::SizeClasses | MappedRow::Slots(_) => {
            "the store has no room for the entry in one piece"
        }
    }
}

async fn wait_written(pending: PendingTransfer<()>) -> Result<()> {
    pending.await.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the entry to the store", source))
}
