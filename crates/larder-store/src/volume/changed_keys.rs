//! Keys that were stored or removed and whose last change may not be durable.
//!
//! Owns: the keys, and which of them a flush or a sync covers. If the device loses the writes since the last good sync,
//! or the engine loses its unwritten entries, older entries of exactly these keys can come back. They are then
//! removed again (`volume::fence`). Invariant: a change stays on the list until a flush that began after it has ended
//! and a sync that began after that flush has succeeded. Beyond [`KEY_BYTES_MAX`] the list knows only that anything may
//! have changed.
//!
//! Cost: a copy of the key and a lock for each change.

use crate::format::record;
use crate::sync::IgnorePoison;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

/// Maximum bytes of keys in the list, including the overhead of each key. Beyond that, the whole volume counts as
/// changed.
pub(super) const KEY_BYTES_MAX: usize = 4 << 20;
pub(super) const KEY_OVERHEAD_BYTES: usize = 64;
/// Age of the oldest unflushed change at which a flush is planned, although no caller requests one.
const PREPARE_AGE: Duration = Duration::from_secs(5);
/// Time between planning a flush and running it. It is longer than any policy keeps an entry in memory, so that by then
/// everything is written anyway and the flush writes nothing early.
const FLUSH_PAUSE: Duration = Duration::from_secs(13);
/// Bytes of unflushed keys at which a flush runs at once, although no caller requests one.
const FLUSH_BYTES: usize = KEY_BYTES_MAX / 4;
const LEN_BYTES: usize = size_of::<u16>();
const _: () = assert!(record::KEY_BYTES_MAX <= u16::MAX as usize, "a length takes two bytes");

/// The changed keys of a volume.
#[derive(Default)]
pub(crate) struct ChangedKeys(Mutex<ChangeLog>);

/// The list of changes in order. A position in the list is the number of bytes added before it since the volume was
/// opened.
#[derive(Default)]
struct ChangeLog {
    /// The keys, each preceded by its length in two bytes.
    bytes: VecDeque<u8>,
    key_count: usize,
    /// Position of the first byte of `bytes`.
    start: u64,
    /// Position before which changes are missing, because the list was full. If one of them is lost, its key is
    /// unknown.
    unknown_until: u64,
    /// Position up to which the most recently begun flush covers the changes. `flushed` is that position for the last
    /// flush that succeeded.
    flush_begun: u64,
    flushed: u64,
    /// Position up to which the last sync covers the changes.
    durable: u64,
    /// Time of the first change that no flush covers; `None` if there is none.
    unflushed_since: Option<Duration>,
    prepared: Option<ChangesBefore>,
}

/// All changes before a position. They were made at or before the time `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangesBefore {
    until: u64,
    pub(crate) at: Duration,
}

/// The changes that the device or the engine may have lost.
pub(crate) enum LostChanges {
    Keys(Vec<Box<[u8]>>),
    /// More changes than the list can hold, so any key may be among them.
    Unknown,
}

impl ChangedKeys {
    /// Adds `key`, which is about to be changed. Returns the position of the change, for [`Self::confirm`].
    pub(super) fn note(&self, key: &[u8], now: Duration) -> u64 {
        self.lock().add(key, now)
    }

    /// Adds `key` again after its change was made, if a flush has begun since [`Self::note`]. That flush may have
    /// missed the change.
    pub(super) fn confirm(&self, position: u64, key: &[u8], now: Duration) {
        let mut log = self.lock();
        if log.flush_begun >= position {
            log.add(key, now);
        }
    }

    /// Notes that a flush begins. Returns the changes that it will cover.
    pub(crate) fn begin_flush(&self, now: Duration) -> ChangesBefore {
        self.lock().begin_flush(now)
    }

    /// Notes that the flush that covers the changes `of` succeeded. If there are later changes, plans the next flush at
    /// once.
    pub(crate) fn end_flush(&self, of: ChangesBefore, now: Duration) {
        let mut log = self.lock();
        log.flushed = log.flushed.max(of.until);
        let has_others = log.flushed < log.end();
        log.unflushed_since = has_others.then_some(of.at);
        log.prepared = has_others.then(|| log.begin_flush(now));
    }

    /// Returns the changes to flush now, if they have waited long enough or are many enough to be worth a write.
    /// Returns `None` if no flush is due.
    pub(crate) fn due_flush(&self, now: Duration) -> Option<ChangesBefore> {
        let mut log = self.lock();
        let since = log.unflushed_since?;
        // Without a thread of its own, a store may be maintained so rarely that everything is old.
        let is_overdue = log.prepared.is_none() && now >= since + PREPARE_AGE + FLUSH_PAUSE;
        if is_overdue || log.bytes.len() >= FLUSH_BYTES {
            return Some(log.begin_flush(now));
        }
        if log.prepared.is_none() && now >= since + PREPARE_AGE {
            log.prepared = Some(log.begin_flush(now));
        }
        log.prepared.filter(|prepared| now >= prepared.at + FLUSH_PAUSE)
    }

    /// Returns the position up to which a sync that begins now will make the changes durable.
    pub(crate) fn flushed(&self) -> u64 {
        self.lock().flushed
    }

    /// Notes that a sync succeeded. `until` is what [`Self::flushed`] returned when the sync began.
    pub(crate) fn note_durable(&self, until: u64) {
        let mut log = self.lock();
        log.durable = log.durable.max(until);
        while log.start < until && !log.bytes.is_empty() {
            log.forget_first();
        }
    }

    /// Empties the list. Returns its keys, whose last changes may be lost.
    pub(crate) fn take(&self) -> LostChanges {
        let mut log = self.lock();
        let is_known = log.unknown_until <= log.durable;
        let mut keys = Vec::with_capacity(log.key_count);
        while !log.bytes.is_empty() {
            keys.push(log.pop());
        }
        log.durable = log.start;
        log.unflushed_since = None;
        log.prepared = None;
        if is_known { LostChanges::Keys(keys) } else { LostChanges::Unknown }
    }

    fn lock(&self) -> MutexGuard<'_, ChangeLog> {
        self.0.lock().ignore_poison()
    }
}

impl ChangeLog {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn begin_flush(&mut self, now: Duration) -> ChangesBefore {
        self.flush_begun = self.end();
        ChangesBefore { until: self.flush_begun, at: now }
    }

    fn add(&mut self, key: &[u8], now: Duration) -> u64 {
        let len = u16::try_from(key.len()).expect("a key is at most 16 KiB long");
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(key);
        self.key_count += 1;
        self.unflushed_since.get_or_insert(now);
        // In the measure of the pending removals, so that those of all keys fit there.
        if self.bytes.len() + self.key_count * KEY_OVERHEAD_BYTES > KEY_BYTES_MAX {
            (self.start, self.unknown_until) = (self.end(), self.end());
            (self.bytes, self.key_count) = (VecDeque::new(), 0);
        }
        self.end()
    }

    fn pop(&mut self) -> Box<[u8]> {
        let key = self.bytes.range(LEN_BYTES..self.first_end()).copied().collect();
        self.forget_first();
        key
    }

    fn forget_first(&mut self) {
        let end = self.first_end();
        self.bytes.drain(..end);
        self.key_count -= 1;
        self.start += end as u64;
        assert_eq!(self.bytes.is_empty(), self.key_count == 0, "every key is counted");
    }

    /// Returns the bytes that the first key in the list takes, with its length field.
    fn first_end(&self) -> usize {
        LEN_BYTES + usize::from(u16::from_le_bytes([self.bytes[0], self.bytes[1]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn lost(changed: &ChangedKeys) -> Option<Vec<Vec<u8>>> {
        match changed.take() {
            LostChanges::Keys(keys) => Some(keys.into_iter().map(Vec::from).collect()),
            LostChanges::Unknown => None,
        }
    }

    /// Guards against a change that is taken off the list although the sync does not cover it.
    #[test]
    fn change_stays_until_a_flush_and_then_a_sync_cover_it() {
        let changed = ChangedKeys::default();
        let first = changed.note(b"first", NOW);
        let flush = changed.begin_flush(NOW);
        changed.confirm(first, b"first", NOW);
        changed.note(b"second", NOW);
        let before = changed.flushed();
        changed.end_flush(flush, NOW);
        changed.note_durable(before);
        changed.note_durable(changed.flushed());
        assert_eq!(lost(&changed), Some(vec![b"first".to_vec(), b"second".to_vec()]));
        assert_eq!(lost(&changed), Some(Vec::new()), "they are taken once");
    }

    #[test]
    fn what_a_flush_and_a_sync_cover_is_forgotten() {
        let changed = ChangedKeys::default();
        let first = changed.note(b"first", NOW);
        changed.confirm(first, b"first", NOW);
        changed.end_flush(changed.begin_flush(NOW), NOW);
        assert_eq!(changed.due_flush(NOW + 10 * FLUSH_PAUSE), None);
        changed.note_durable(changed.flushed());
        assert_eq!(lost(&changed), Some(Vec::new()));
    }

    /// Guards against a flush that writes the first objects of a page before the page's other objects have come.
    #[test]
    fn flush_that_nobody_asked_for_covers_only_what_has_long_been_there() {
        let changed = ChangedKeys::default();
        changed.note(b"first", NOW);
        let prepared_at = NOW + PREPARE_AGE;
        assert_eq!((changed.due_flush(PREPARE_AGE / 2), changed.due_flush(prepared_at)), (None, None));
        changed.note(b"second", prepared_at);
        let due = changed.due_flush(prepared_at + FLUSH_PAUSE).unwrap();
        assert_eq!(due.at, prepared_at);
        changed.end_flush(due, prepared_at + FLUSH_PAUSE);
        changed.note_durable(changed.flushed());
        assert_eq!(lost(&changed), Some(vec![b"second".to_vec()]));
    }

    /// Guards against a change that is forgotten because the list was full.
    #[test]
    fn too_many_changes_are_unknown_until_a_sync_covers_them() {
        let changed = ChangedKeys::default();
        let key = [7; 1000];
        (0..KEY_BYTES_MAX / 1000).for_each(|_| _ = changed.note(&key, NOW));
        let flush = changed.begin_flush(NOW);
        changed.note(b"later", NOW);
        changed.end_flush(flush, NOW);
        changed.note_durable(changed.flushed());
        assert_eq!(lost(&changed), Some(vec![b"later".to_vec()]));
        (0..KEY_BYTES_MAX / 1000).for_each(|_| _ = changed.note(&key, NOW));
        assert_eq!(lost(&changed), None);
    }
}
