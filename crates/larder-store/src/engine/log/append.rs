//! The write side: appends commits, removals and new heads to the log, and sends due transfers to the device.
//!
//! Invariant: a record and its slot appear together, under the log's lock.

use super::{
    LogEngine,
    index::{IndexSlot, InsertOutcome, LogIndex, SizeClass, SlotMatches},
    layout::{
        AppendRole, AppendedRecord, FlushedGroups, LogState, LogTransfer, LostRecord, MovedRecord,
        RESERVE_SEGMENTS_MIN, place_after,
    },
    parts::ClientAppender,
    read::{RecognizedEntries, RecordAge},
};
use crate::{
    Hints, Result,
    engine::kit::{
        effects::{Effects, completion_for},
        room::{NoRoom, append_with_room, flushed, spent},
    },
    format::record::{RecordKind, RecordMeta, RecordParts},
    hash::FullHash,
    sync::atomic::Ordering,
    units::{Sector, SegmentId},
    volume::{cannot_begin, counters::add, waiters::wait_for},
};
use std::{io, sync::Arc, task::Waker};

/// Maximum number of times that an append reads the records of its key's slots again because other tasks changed the
/// slots in the meantime.
const RECOGNIZED_MAX: u32 = 4;

/// The condition under which a record is appended, and the entries that it replaces.
#[derive(Clone, Copy, Debug)]
pub(super) enum AppendCondition<'a> {
    /// The records of all slots that may be the key's were read. The slots that are the key's are replaced.
    Recognized(&'a RecognizedEntries),
    /// The key's entry must still be at this position. The new record replaces it.
    StillAt(Sector),
    /// Like `StillAt`, for an entry that reclaim rewrites. `hits` is the number of hits with which the new slot starts.
    Reinserted { from: Sector, hits: u8 },
    /// No condition. Nothing is replaced yet: the records of the address's other slots must be read first, to find out
    /// which of them are the key's.
    Beside,
    /// No condition. The record is a part of a body, which has no slot in the index.
    Part,
}

/// The result of an append for which there was space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendAttempt {
    Appended(AppendedRecord),
    /// Nothing was appended, because the key's entry is no longer the expected one.
    Changed,
    /// Nothing was appended, because there is a slot that may be the key's and whose record was not read yet.
    Unrecognized,
    /// Nothing was appended. This many bytes of the body must first be appended as a part, a record of their own.
    InParts(u64),
}

impl LogEngine {
    /// Appends the record of an entry, which replaces the key's current record. With `still_at`, appends only if the
    /// key's entry is still at that position. Returns whether the record was appended.
    pub(super) async fn append_entry(
        self: &Arc<Self>,
        mut record: RecordParts<'_>,
        still_at: Option<Sector>,
    ) -> Result<bool> {
        let outcome = self.append(&mut record, still_at).await.map(|appended| appended.is_some());
        self.tend_positions().await;
        outcome
    }

    pub(super) async fn remove_entry(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.volume.check_open()?;
        self.check_begun()?;
        let hash = self.volume.hash(key).1;
        let meta = RecordMeta::new(RecordKind::Tombstone, hash, Hints::default(), self.volume.epoch(), 0);
        let mut record = RecordParts { meta, key, head: &[], parts: &[], checksums: &[], body: &[] };
        let failed_before = self.lock_log().failed_units();
        // The key is hidden while its removal is pending (see `pending_removals`), so nothing has to be read first: a
        // device that does not respond does not block the removal on reads.
        let beside = self.index.has_room_beside(hash.key_hash());
        let appended = if beside {
            match self.append_if(&mut record, AppendCondition::Beside).await? {
                AppendAttempt::Appended(appended) => Some(appended),
                AppendAttempt::Changed | AppendAttempt::Unrecognized | AppendAttempt::InParts(_) => {
                    unreachable!("a removal next to its entry has no condition, and no body")
                }
            }
        } else {
            self.append(&mut record, None).await?
        };
        let Some(appended) = appended else { return Ok(()) };
        let end = self.age(appended.position);
        self.flush_through(appended.ticket, failed_before, FlushedGroups::None).await?;
        if beside {
            self.clear_through(hash, end).await;
        }
        Ok(())
    }

    /// Clears the slots of a removed key that stayed in the index until the removal was durable. `end` is the age of
    /// the removal's own record; slots of newer records stay.
    async fn clear_through(&self, hash: FullHash, end: RecordAge) {
        let key_hash = hash.key_hash();
        let is_older = |other: Sector| self.age(other) < end;
        let older = self.index.peek(key_hash).iter().filter(|slot| is_older(slot.position)).collect();
        let recognized = self.recognize_among(hash, &older).await;
        // No segment is reused while the log is locked, so the records read are still the older ones.
        let log = self.lock_log();
        for &unreadable in recognized.unreadable.iter().filter(|&&unreadable| is_older(unreadable)) {
            self.forget_through(key_hash, unreadable);
        }
        let its_own = Some(end.position).filter(|&position| self.age(position) == end);
        let own: Vec<_> = recognized.own.into_iter().filter(|&own| is_older(own)).chain(its_own).collect();
        self.index.remove(key_hash, &own);
        drop(log);
    }

    /// Appends a record. Waits a bounded time for space. Returns `None` if `still_at` is given and the key's entry is
    /// no longer there.
    async fn append(
        self: &Arc<Self>,
        record: &mut RecordParts<'_>,
        still_at: Option<Sector>,
    ) -> Result<Option<AppendedRecord>> {
        let attempt = self.append_divided(record, ClientAppender { engine: self, still_at }).await?;
        Ok(if let AppendAttempt::Appended(appended) = attempt { Some(appended) } else { None })
    }

    /// Appends a record like [`Self::append`], but does not divide it into parts. Never returns `Unrecognized`.
    pub(super) async fn append_undivided(
        self: &Arc<Self>,
        record: &mut RecordParts<'_>,
        still_at: Option<Sector>,
    ) -> Result<AppendAttempt> {
        self.check_begun()?;
        let hash = record.meta.hash;
        let by_address = record.meta.kind == RecordKind::Tombstone && self.index.removes_by_address();
        let mut recognized = match still_at {
            Some(_) => RecognizedEntries::default(),
            None if by_address => RecognizedEntries::all_own(&self.index.peek(hash.key_hash())),
            // The index does not have all positions, so they must be read first.
            None if self.index.removes_by_address() => self.recognize(hash).await,
            // Most keys are new, and have no records to read. The first attempt finds whether this one does.
            None => RecognizedEntries::default(),
        };
        for round in 1.. {
            let condition = still_at.map_or(AppendCondition::Recognized(&recognized), AppendCondition::StillAt);
            match self.append_if(record, condition).await? {
                attempt @ (AppendAttempt::Appended(_) | AppendAttempt::Changed | AppendAttempt::InParts(_)) => {
                    return Ok(attempt);
                }
                AppendAttempt::Unrecognized if round <= RECOGNIZED_MAX && !by_address => {
                    recognized = self.recognize(hash).await;
                }
                AppendAttempt::Unrecognized => {
                    recognized = RecognizedEntries::all_own(&self.index.peek(hash.key_hash()))
                }
            }
        }
        unreachable!("rounds are counted without end")
    }

    /// Checks that the log accepts records.
    ///
    /// # Errors
    /// `Unavailable`: the superblock could not be written at the start, or no sequence is left.
    fn check_begun(&self) -> Result<()> {
        match self.lock_log().is_barred() {
            None => Ok(()),
            Some(_) if self.volume.starts_over() => Err(spent()),
            Some(_) => Err(cannot_begin()),
        }
    }

    /// Appends a record if `condition` holds. Waits a bounded time for space.
    pub(super) async fn append_if(
        self: &Arc<Self>,
        record: &mut RecordParts<'_>,
        condition: AppendCondition<'_>,
    ) -> Result<AppendAttempt> {
        self.has_appended.store(true, Ordering::Release);
        // A reader may protect entries at any time. From then on, clients must not take the room to rewrite them.
        if self.reclaim_only_segments() > 0 {
            self.keep_for_reclaim();
        }
        let too_long = "the entry is longer than a segment of the store";
        let flush = async {
            let (last, failed_before) = self.lock_log().last_ticket_and_failures();
            let now = self.volume.clock.now();
            self.flush_through(last, failed_before, FlushedGroups::BegunBy(now)).await
        };
        let attempt = |waker: Option<&Waker>| self.try_append(record, AppendRole::Client, condition, waker);
        append_with_room(self, too_long, flush, attempt).await
    }

    /// Appends a record if `condition` holds and there is space now.
    pub(super) fn try_append(
        self: &Arc<Self>,
        record: &mut RecordParts<'_>,
        appender: AppendRole,
        condition: AppendCondition<'_>,
        waker: Option<&Waker>,
    ) -> std::result::Result<AppendAttempt, NoRoom> {
        // Index and log change together under this lock, so log order is commit order. Recovery relies on that.
        let mut log = self.lock_log();
        let matches = self.index.peek(record.meta.hash.key_hash());
        match condition {
            AppendCondition::StillAt(from) | AppendCondition::Reinserted { from, .. } if matches.at(from).is_none() => {
                return Ok(AppendAttempt::Changed);
            }
            // A pending removal may be newer than the record at that place. Appending would bring the key back.
            AppendCondition::StillAt(_) | AppendCondition::Reinserted { .. }
                if self.volume.pending_removals.hides(record.key) =>
            {
                return Ok(AppendAttempt::Changed);
            }
            // A slot added since the caller read the records may be the key's own. Appending now could leave two
            // entries of one key.
            AppendCondition::Recognized(recognized) if !recognized.covers(&matches) => {
                return Ok(AppendAttempt::Unrecognized);
            }
            AppendCondition::StillAt(_)
            | AppendCondition::Reinserted { .. }
            | AppendCondition::Recognized(_)
            | AppendCondition::Beside
            | AppendCondition::Part => {}
        }
        let is_newcomer = matches!(condition, AppendCondition::Recognized(_) | AppendCondition::Part)
            && self.is_newcomer(&log, record, &matches);
        let appender = if appender == AppendRole::Client && is_newcomer { AppendRole::Newcomer } else { appender };
        // The caller appends a part first and comes back. Under one lock, a long body would stop all other commits.
        if let Some(part_bytes) = log.part_due(record, appender) {
            return Ok(AppendAttempt::InParts(part_bytes));
        }
        let outcome = log.append(record, appender, self.volume.clock.moment());
        // The append may have released groups. Before the lock is released, the index must know the new places.
        let moves = self.follow_moves(&mut log);
        match outcome {
            Ok(appended) => {
                self.index_appended(record, appended, condition, &moves);
                if record.meta.kind == RecordKind::Tombstone {
                    let segment = self.geometry.segment_of(appended.position);
                    self.note_removed(record.meta.hash.key_hash(), segment, &log);
                }
            }
            // Registered under the lock that every release of a segment takes, so that no wakeup is lost.
            Err(NoRoom::Now) => waker.into_iter().for_each(|waker| log.as_mut().add(waker)),
            Err(NoRoom::Ever | NoRoom::Spent | NoRoom::Stalled) => {}
        }
        if let Ok(appended) = &outcome {
            assert!(self.geometry.segment_of(appended.position).is_some(), "a record lies within a segment");
        }
        let reclaim_due = log.free_count() < RESERVE_SEGMENTS_MIN;
        // I/O starts without the lock.
        let effects = log.take_effects();
        drop(log);
        self.perform(effects);
        if reclaim_due || outcome.is_err() {
            self.volume.wakeup.wake();
        } else {
            self.volume.wakeup.wake_if_idle();
        }
        outcome.map(AppendAttempt::Appended)
    }

    /// Returns whether a record goes to a probation segment, where it may be evicted before older entries. This is so
    /// if nothing shows demand for the entry yet, and if its eviction cannot bring back an older record of its key.
    fn is_newcomer(&self, log: &LogState, record: &RecordParts<'_>, matches: &SlotMatches) -> bool {
        let key_hash = record.meta.hash.key_hash();
        log.has_probation()
            && matches!(record.meta.kind, RecordKind::Entry | RecordKind::InParts(_) | RecordKind::Part)
            && matches.is_empty()
            && !self.volume.pins.contains(key_hash)
            && !self.volume.pending_removals.hides(record.key)
            && self.volume.counters.loaded.load(Ordering::Acquire)
            && self.is_unknown(key_hash)
    }

    /// Makes an appended record the current one of its key in the index. Must be called under the log's lock. `moves`
    /// lists the records that the append has moved since `condition` was checked.
    fn index_appended(
        &self,
        record: &RecordParts<'_>,
        appended: AppendedRecord,
        condition: AppendCondition<'_>,
        moves: &[Vec<MovedRecord>],
    ) {
        if matches!(condition, AppendCondition::Part) {
            return;
        }
        let key_hash = record.meta.hash.key_hash();
        let size = SizeClass::holding(appended.sectors);
        let hits = match condition {
            AppendCondition::Reinserted { hits, .. } => hits,
            // A full index drops the entry with the fewest hits. A pinned one must not be dropped.
            _ if self.volume.pins.contains(key_hash) => IndexSlot::HITS_MAX,
            // An entry that gets a new head was requested, and its body may be on probation, where one hit saves it.
            AppendCondition::StillAt(_) => 1,
            AppendCondition::Recognized(_) | AppendCondition::Beside | AppendCondition::Part => 0,
        };
        let slot = IndexSlot { position: appended.position, size, hits, short_lived: appended.short_lived };
        let present = |&position: &Sector| place_after(moves, position);
        let replaced: Vec<Sector> = match &condition {
            AppendCondition::StillAt(from) | AppendCondition::Reinserted { from, .. } => vec![present(from)],
            AppendCondition::Beside | AppendCondition::Part => Vec::new(),
            AppendCondition::Recognized(recognized) => {
                // An unreadable record may be an older one of this key. If its slot stayed, it could resurface once it
                // is readable again.
                recognized.unreadable.iter().for_each(|position| _ = self.forget_through(key_hash, present(position)));
                recognized.own.iter().map(present).collect()
            }
        };
        if record.meta.kind == RecordKind::Tombstone && !matches!(condition, AppendCondition::Beside) {
            self.index.remove(key_hash, &replaced);
            self.index.note_removed(key_hash, slot);
        } else if let InsertOutcome::Displaced(slot, address) = self.index.insert(key_hash, slot, &replaced) {
            let counters = &self.volume.counters;
            // A full set drops its least recently used entry. That is its eviction policy, not a loss.
            let is_set = matches!(self.index, LogIndex::Sets(_));
            add(if is_set { &counters.evicted } else { &counters.displaced }, 1);
            let segment = self.geometry.segment_of(slot.position);
            self.note_dropped(address, segment);
        }
    }

    /// Changes the log by `change`, under its lock. Then starts the I/O that the change requires, and wakes the tasks
    /// that waited for it.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut LogState) -> T) -> T {
        let (answer, effects) = {
            let mut log = self.lock_log();
            let answer = change(&mut log);
            self.follow_moves(&mut log);
            (answer, log.take_effects())
        };
        self.perform(effects);
        answer
    }

    fn perform(self: &Arc<Self>, effects: Effects<LogTransfer>) {
        effects.begin(|transfer| {
            let (offset_bytes, buffer, written) = match transfer {
                LogTransfer::WriteUnit { ticket, offset_bytes, buffer } => {
                    let written = completion_for(self, move |engine, outcome| engine.unit_written(ticket, &outcome));
                    (offset_bytes, buffer, written)
                }
                LogTransfer::WriteTrailer { segment, offset_bytes, buffer } => {
                    let written =
                        completion_for(self, move |engine, outcome| engine.trailer_written(segment, &outcome));
                    (offset_bytes, buffer, written)
                }
            };
            self.checkpoints.note_log_bytes(buffer.len() as u64);
            self.volume.submit_write(offset_bytes, buffer, written);
        });
    }

    fn unit_written(self: &Arc<Self>, ticket: u64, outcome: &io::Result<()>) {
        self.volume.note_write(outcome);
        let (lost, effects) = {
            let mut log = self.lock_log();
            (log.unit_written(ticket, outcome.is_ok()), log.take_effects())
        };
        for LostRecord { key_hash, position, key } in lost {
            let matches = self.index.peek(key_hash);
            // Without a newer entry, the replaced one must not come back at the next start.
            if matches.is_empty() || matches.at(position).is_some() {
                self.volume.defer_removal(&key);
            }
            self.forget_through(key_hash, position);
        }
        self.perform(effects);
    }

    fn trailer_written(self: &Arc<Self>, segment: SegmentId, outcome: &io::Result<()>) {
        self.volume.note_write(outcome);
        self.change(|log| log.trailer_written(segment, outcome.is_ok()));
        self.volume.wakeup.wake();
    }

    /// Waits until the unit with the number `ticket` and all earlier units are on the device. First writes the open
    /// unit and the buffered groups that `groups` selects.
    ///
    /// # Errors
    /// `Unavailable` if more than `failed_before` units have failed by then.
    pub(super) async fn flush_through(
        self: &Arc<Self>,
        ticket: u64,
        failed_before: u64,
        groups: FlushedGroups,
    ) -> Result<()> {
        let last = self.change(|log| {
            log.seal_unit(groups, self.volume.clock.moment());
            // A record that waited for others of its group is in a later unit than the one open when it was appended.
            if self.reads_groups() { ticket.max(log.last_ticket_and_failures().0) } else { ticket }
        });
        let failed = |log: &mut LogState| (!log.is_pending(last)).then(|| log.failed_units());
        flushed(wait_for(|| self.lock_log(), failed).await == failed_before)
    }

    /// Completes the open segments with their trailers, and waits until all writes have ended.
    pub(super) async fn seal_and_wait(self: &Arc<Self>) {
        self.change(|log| log.seal_segment(self.volume.clock.moment()));
        wait_for(|| self.lock_log(), |log: &mut LogState| (!log.is_writing()).then_some(())).await;
    }
}
