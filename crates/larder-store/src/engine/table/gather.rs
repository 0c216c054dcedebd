//! Groups of remainders: long entries of a page wait for each other, so that their remainders are next to each other in
//! the ring.
//!
//! Owns: which entries wait, and when a group's writes begin. A waiting entry has its way and holds its set, and
//! lookups find it in memory like one that is being written. Its bin can only be written when the place of its
//! remainder is known. Invariants: a task that needs a set, or the memory, makes the group go at once, so no task waits
//! for a window. A group leaves memory in the same step in which the ring gives it its place. Cost: the waiting entries
//! in memory, up to half of the bytes that may be dirty. Source: HashCache (NSDI 2009), related objects in the log.

use super::{
    BinGroup, SetHold, TableEngine, TableState,
    read::LookupTarget,
    ring::NoPlace,
    write::{BinAt, SetView},
};
use crate::{
    Error, ErrorKind, Result,
    engine::kit::gathering::WaitingGroups,
    format::bin::{BinHeader, RestsOfGroup},
    units::BLOCK_BYTES,
};
use bytes::Bytes;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// Maximum number of bytes of the records of a group. One read fetches the remainders of all these records, their parts
/// outside the bins.
const GROUP_BYTES_MAX: u64 = 128 << 10;
/// A group may take at most 1/`GROUP_DIVISOR` of the ring, the circular log for the parts of records that do not fit in
/// bins, and of the bytes that may wait in memory.
const GROUP_DIVISOR: u64 = 8;

/// An entry that has been given a way of its set, and whose writes have not begun.
pub(super) struct PlacedEntry {
    pub(super) hold: SetHold,
    pub(super) at: BinAt,
    pub(super) header: BinHeader,
    pub(super) record: Bytes,
    /// Ways of the set that are wiped along with the write.
    pub(super) stale: Vec<usize>,
    /// Bytes of the record that do not fit in the bin.
    pub(super) rest_bytes: u64,
}

/// The entries that wait for others of their group, and the groups that are being written.
pub(super) struct GatheredEntries {
    pub(super) waiting: WaitingGroups<BinGroup, PlacedEntry>,
    record_bytes_max: u64,
    /// Numbers of the groups whose writes are in flight.
    writing: BTreeSet<u64>,
    next_number: u64,
    /// Whether a group was lost since the last flush, because a write failed.
    has_lost: bool,
}

/// The next step of an entry that is to be written.
pub(super) enum EntryStep {
    /// The entry waits for others of its group.
    Waits,
    /// The entry is written now. `Some` is the place of its remainder in the ring, the circular log. `None` means that
    /// the whole record fits in its bin.
    Goes(Option<u64>),
    /// This group must be written first. Then the entry's next step is determined again.
    After(BinGroup),
}

/// A group that was taken from memory, to be written.
struct LeavingGroup {
    entries: Vec<PlacedEntry>,
    rest_at: u64,
    number: u64,
}

impl GatheredEntries {
    pub(super) fn new(window: Duration, ring_len_bytes: u64, dirty_bytes_max: u64) -> Self {
        let bytes_max = dirty_bytes_max / 2;
        let group_bytes_max = GROUP_BYTES_MAX.min(ring_len_bytes / GROUP_DIVISOR).min(bytes_max / GROUP_DIVISOR);
        Self {
            waiting: WaitingGroups::new(window, group_bytes_max, bytes_max),
            record_bytes_max: group_bytes_max,
            writing: BTreeSet::new(),
            next_number: 0,
            has_lost: false,
        }
    }

    /// Notes that the writes of group `number` have ended.
    pub(super) fn written(&mut self, number: u64, ok: bool) {
        assert!(self.writing.remove(&number), "the group was being written");
        self.has_lost |= !ok;
    }
}

impl TableEngine {
    /// Starts to write the group `id`, if the group still waits in memory.
    pub(super) async fn write_group(self: &Arc<Self>, id: BinGroup) {
        if let Some(LeavingGroup { entries, rest_at, number }) = self.wait(|state| state.take_group(id)).await {
            // The outcome is noted where the writes end.
            drop(self.write_entries(entries, Some(rest_at), Some(number)));
        }
    }

    /// Starts to write the groups that have waited long enough.
    pub(super) async fn release_complete(self: &Arc<Self>) {
        let now = self.volume.clock.now();
        while let Some(id) = self.complete_group(now) {
            self.write_group(id).await;
        }
    }

    fn complete_group(&self, now: Duration) -> Option<BinGroup> {
        self.lock().gathered.waiting.complete(now)
    }

    /// Writes the groups that were begun by `time`, and the groups with an entry for a suspect set, one whose bytes are
    /// not trusted. Waits until the device has them.
    ///
    /// # Errors
    /// `Unavailable` if a group was lost since the last call, because a write failed.
    pub(super) async fn flush_groups(self: &Arc<Self>, time: Duration) -> Result<()> {
        let ids = {
            let state = self.lock();
            let is_suspect = |entry: &PlacedEntry| state.suspects.contains(entry.at.set);
            let waiting = &state.gathered.waiting;
            waiting.ids(|group| group.first_at <= time || group.records.iter().any(is_suspect))
        };
        for id in ids {
            self.write_group(id).await;
        }
        let next = self.lock().gathered.next_number;
        let has_lost = self
            .wait(|TableState { gathered, .. }| {
                let are_written = gathered.writing.first().is_none_or(|&number| number >= next);
                are_written.then(|| std::mem::take(&mut gathered.has_lost))
            })
            .await;
        if has_lost {
            return Err(Error::new(ErrorKind::Unavailable, "entries of a group could not be written to the store"));
        }
        Ok(())
    }
}

impl TableState {
    /// Decides what happens to an entry now. Returns `None` if the entry must wait for the end of a write. If the entry
    /// is to wait for its group, takes it from `entry`.
    pub(super) fn next_step(
        &mut self,
        entry: &mut Option<PlacedEntry>,
        (target, view): (&LookupTarget<'_>, &SetView),
        group: BinGroup,
        (now, dirty_bytes_max): (Duration, u64),
    ) -> Option<EntryStep> {
        let PlacedEntry { ref record, rest_bytes, .. } = *entry.as_ref()?;
        let len_bytes = record.len() as u64;
        if self.dirty_bytes > 0 && self.dirty_bytes + len_bytes > dirty_bytes_max {
            let only_waits = self.dirty_bytes == self.gathered.waiting.bytes();
            return self.gathered.waiting.most_idle(None).filter(|_| only_waits).map(EntryStep::After);
        }
        if rest_bytes == 0 {
            self.gathered.waiting.note_arrival(group, now);
            return Some(EntryStep::Goes(None));
        }
        if group == BinGroup(0) || len_bytes > self.gathered.record_bytes_max {
            let place = self.ring.place(rest_bytes);
            assert_ne!(place, Err(NoPlace::Ever), "the length was compared with that of the ring");
            return place.ok().map(|at| EntryStep::Goes(Some(at)));
        }
        if self.gathered.waiting.is_over(group, len_bytes, now) {
            return Some(EntryStep::After(group));
        }
        if self.gathered.waiting.is_full(len_bytes) {
            return self.gathered.waiting.most_idle(Some(group)).map(EntryStep::After);
        }
        let entry = entry.take()?;
        self.begin_put(target, entry.at.way, entry.record.clone(), view);
        if let Some(Some(dirty)) = self.held.get_mut(&target.set) {
            dirty.waits_in = Some(group);
        }
        self.gathered.waiting.put(group, entry, len_bytes, now);
        Some(EntryStep::Waits)
    }

    /// Takes a group from memory and gives it a place in the ring, the circular log. Returns `Some(None)` if the group
    /// does not wait, and `None` if the ring has no place now.
    fn take_group(&mut self, id: BinGroup) -> Option<Option<LeavingGroup>> {
        let Some(group) = self.gathered.waiting.group(id) else { return Some(None) };
        let blocks: u64 = group.records.iter().map(PlacedEntry::rest_blocks).sum();
        let place = self.ring.place(blocks * BLOCK_BYTES);
        assert_ne!(place, Err(NoPlace::Ever), "a group is shorter than the ring");
        let rest_at = place.ok()?;
        let mut entries = self.gathered.waiting.take(id)?.records;
        let mut blocks_before = 0;
        for entry in &mut entries {
            entry.header.rest_at = rest_at + blocks_before * BLOCK_BYTES;
            entry.header.rests = RestsOfGroup { blocks_before: blocks_before as u16, blocks: blocks as u16 };
            blocks_before += entry.rest_blocks();
            if let Some(Some(dirty)) = self.held.get_mut(&entry.at.set) {
                dirty.waits_in = None;
            }
        }
        let number = self.gathered.next_number;
        self.gathered.next_number += 1;
        self.gathered.writing.insert(number);
        Some(Some(LeavingGroup { entries, rest_at, number }))
    }
}

impl PlacedEntry {
    fn rest_blocks(&self) -> u64 {
        self.rest_bytes.div_ceil(BLOCK_BYTES)
    }
}
