//! The write side of the disk table: commits, removals and new heads write through, except for what waits in `gather`.
//!
//! Cost: one write for the bin, and one for a remainder. The set is read first only if it has several ways, is not in
//! memory, and was not read by the preceding miss. If memory has the set, the headers of bins with the key's tag are
//! read, to see whose they are. A removal overwrites the start of the bin. Invariant: a set is held
//! until its writes are done, even if the caller is dropped.

use super::{
    BinGroup, DirtySet, RETRY_PAUSE, SetHold, TableEngine, TableState,
    gather::{EntryStep, PlacedEntry},
    read::LookupTarget,
    summary::{BinContent, SetSummary},
};
use crate::sync::IgnorePoison;
use crate::{
    Error, ErrorKind, Result,
    device::{AlignedBuffer, Completion, PendingTransfer},
    engine::kit::{
        effects::completion_for,
        room::spent,
        sets::{SetPlace, UnpackedSet},
    },
    format::{
        bin::{BIN_HEADER_BYTES, BinHeader, RestsOfGroup},
        record::RecordParts,
    },
    units::{BLOCK_BYTES, SetNumber},
    volume::counters::add,
};
use bytes::Bytes;
use std::{
    io,
    sync::{Arc, Mutex},
};

/// The known content of a set before the set is changed.
pub(super) struct SetView {
    /// The content as it is kept in memory; `None` if the set is not in memory.
    pub(super) contents: Option<UnpackedSet>,
    pub(super) summary: Option<SetSummary>,
    /// Ways to wipe before memory can be relied on.
    pub(super) stale: Vec<usize>,
}

/// The way for an entry, and the number of the write that stores it.
struct ChosenWay {
    way: usize,
    sequence: u64,
}

/// The place of a bin: its set and its way.
#[derive(Clone, Copy)]
pub(super) struct BinAt {
    pub(super) set: SetNumber,
    pub(super) way: usize,
}

/// A change of a set, until its writes are done.
pub(super) struct SetChange {
    pub(super) hold: SetHold,
    pub(super) dirty_bytes: u64,
    pub(super) rest_at: Option<u64>,
    pub(super) bins: Vec<(usize, BinContent)>,
}

/// Writes in flight, with the changes that they belong to.
struct SetWrites {
    changes: Vec<SetChange>,
    /// The number of the group that is written; `None` if no group is written.
    group: Option<u64>,
    completion: Completion<()>,
    left: usize,
    outcome: io::Result<()>,
}

impl TableEngine {
    /// Stores an entry. With `found`, stores it only if the change counter of its set still has this value. Returns
    /// whether the entry was stored.
    pub(super) async fn put(self: &Arc<Self>, mut record: RecordParts<'_>, found: Option<u32>) -> Result<bool> {
        let len = record.len_bytes();
        let rest = len.saturating_sub(self.layout.first_bytes());
        if rest > self.layout.ring_len_bytes {
            return Err(Error::new(ErrorKind::Full, "the entry is longer than the ring of the store"));
        }
        let target = self.target(record.key);
        let hold = self.hold(target.set).await?;
        if found.is_some_and(|changes| changes != self.lock().changes(target.set)) {
            return Ok(false);
        }
        let mut view = self.view(target.set).await?;
        let own = self.take_own(&target, &mut view).await;
        let ChosenWay { way, sequence } = self.choose(&target, &view, own)?;
        record.meta.sequence = sequence as u32;
        let mut encoded = vec![0; len as usize];
        record.encode(self.volume.id, &mut encoded);
        let encoded = Bytes::from(encoded);
        let header = BinHeader {
            hash: target.hash,
            sequence,
            record_bytes: len as u32,
            rest_at: 0,
            offset_bytes: self.layout.bin_offset_bytes(target.set, way as u64),
            rests: RestsOfGroup::default(),
        };
        let at = BinAt { set: target.set, way };
        let stale = view.stale.clone();
        let entry = PlacedEntry { hold, at, header, record: encoded, stale, rest_bytes: rest };
        self.write_or_gather(entry, (&target, &view), BinGroup(record.meta.group)).await.map(|()| true)
    }

    /// Writes an entry, unless it waits for others of its group.
    async fn write_or_gather(
        self: &Arc<Self>,
        entry: PlacedEntry,
        (target, view): (&LookupTarget<'_>, &SetView),
        group: BinGroup,
    ) -> Result<()> {
        let limits = (self.volume.clock.now(), self.volume.options.dirty_bytes_max);
        let mut entry = Some(entry);
        let rest_at = loop {
            match self.wait(|state| state.next_step(&mut entry, (target, view), group, limits)).await {
                EntryStep::Waits => {
                    // A task that waits for the set now has to write the group.
                    let woken = self.lock().waiting.take();
                    woken.wake();
                    self.volume.wakeup.wake_if_idle();
                    return Ok(());
                }
                EntryStep::Goes(rest_at) => break rest_at,
                EntryStep::After(other) => self.write_group(other).await,
            }
        };
        let mut entry = entry.expect("an entry that goes does not wait");
        entry.header.rest_at = rest_at.unwrap_or_default();
        self.lock().begin_put(target, entry.at.way, entry.record.clone(), view);
        let pending = self.write_entries(vec![entry], rest_at, None);
        self.finished(pending).await
    }

    /// Starts the writes of entries. Their remainders, the parts outside their bins, are next to each other at the
    /// place `rest_at` in the ring. `group` is the number of their group. The returned future waits until all writes
    /// are done.
    pub(super) fn write_entries(
        self: &Arc<Self>,
        entries: Vec<PlacedEntry>,
        rest_at: Option<u64>,
        group: Option<u64>,
    ) -> PendingTransfer<()> {
        let mut writes: Vec<_> = entries.iter().flat_map(|entry| self.bin_writes(entry)).collect();
        writes.extend(rest_at.map(|rest_at| self.rests_write(&entries, rest_at)));
        let to_change = |(position, entry): (usize, PlacedEntry)| {
            let PlacedEntry { hold, at, header, record, stale, .. } = entry;
            let wiped = stale.iter().filter(|&&stale| stale != at.way).map(|&stale| (stale, BinContent::Empty));
            let own = BinContent::Entry { hash: header.hash, sequence: header.sequence };
            let bins = wiped.chain([(at.way, own)]).collect();
            // The ring has one place for all of them.
            let rest_at = rest_at.filter(|_| position == 0);
            SetChange { hold, dirty_bytes: record.len() as u64, rest_at, bins }
        };
        let changes = entries.into_iter().enumerate().map(to_change).collect();
        self.submit(changes, group, writes)
    }

    /// Removes the entry of `key` by overwriting the start of its bin.
    pub(super) async fn wipe(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.volume.check_open()?;
        let target = self.target(key);
        let hold = self.hold(target.set).await?;
        let view = self.bins_of(target.set).await?;
        let mut suspects = view.stale.clone();
        let shape = self.lock().memory.shape();
        let contents = view.contents.zip(shape).map(|(mut contents, shape)| {
            // The bins are not read to compare the key: one removal in thirty also drops another entry of the set.
            while let Some(way) = contents.find(shape.tag(target.hash.key_hash())) {
                contents.clear(way);
                if !suspects.contains(&way) {
                    suspects.push(way);
                }
            }
            contents
        });
        if contents.is_none() {
            let of_key = view.summary.map_or_else(Vec::new, |summary| summary.suspects(target.hash));
            suspects.extend(of_key.into_iter().filter(|way| !view.stale.contains(way)));
        }
        if suspects.is_empty() {
            return Ok(());
        }
        let writes = if suspects.len() as u64 == self.layout.ways && self.layout.ways > 1 {
            vec![self.wiping_all(target.set)]
        } else {
            suspects.iter().map(|&way| self.wiping(target.set, way)).collect()
        };
        {
            let mut state = self.lock();
            if let Some(contents) = contents {
                state.memory.write(target.set, &contents);
            }
            state.note_change(target.set);
            state.held.insert(target.set, Some(DirtySet { hash: target.hash, record: None, waits_in: None }));
        }
        let bins = suspects.into_iter().map(|way| (way, BinContent::Empty)).collect();
        let pending = self.submit(vec![SetChange { hold, dirty_bytes: 0, rest_at: None, bins }], None, writes);
        self.finished(pending).await
    }

    /// Returns the content of a set that must be known before an entry is added. Does not read a set with one way,
    /// because there is no way to choose.
    async fn view(&self, set: SetNumber) -> Result<SetView> {
        if let Some(view) = self.view_of_suspect(set) {
            return Ok(view);
        }
        if self.layout.ways == 1 {
            return Ok(SetView { contents: None, summary: self.lock().recent.find(set).copied(), stale: Vec::new() });
        }
        self.bins_of(set).await
    }

    /// Returns the content of a set. Reads the set if its content is not known.
    async fn bins_of(&self, set: SetNumber) -> Result<SetView> {
        if let Some(view) = self.view_of_suspect(set) {
            return Ok(view);
        }
        let (shape, known, changes) = {
            let mut state = self.lock();
            let contents = state.memory.read(set);
            let shape = state.memory.shape();
            let summary = state.recent.find(set).copied();
            if contents.is_some() || (shape.is_none() && summary.is_some()) {
                return Ok(SetView { contents, summary, stale: Vec::new() });
            }
            (shape, summary, state.changes(set))
        };
        let summary = match known {
            Some(summary) => summary,
            None => self.read_set(set, changes).await?.1,
        };
        let (contents, stale) = match shape {
            Some(shape) => {
                let (contents, stale) = summary.remembered(&shape);
                (Some(contents), stale)
            }
            None => (None, Vec::new()),
        };
        Ok(SetView { contents, summary: Some(summary), stale })
    }

    /// Returns the way with the key's present entry, if the set is in memory. A bin that cannot be read counts as the
    /// key's, because it may have an older entry of the key, which could come back. If several bins count as the key's,
    /// marks all but one of them for wiping.
    async fn take_own(&self, target: &LookupTarget<'_>, view: &mut SetView) -> Option<usize> {
        let shape = self.lock().memory.shape()?;
        let contents = view.contents.as_mut()?;
        let mut own = None;
        let ways: Vec<usize> = contents.ways_with(shape.tag(target.hash.key_hash())).collect();
        for way in ways {
            let header = self.header(target.set, way).await.ok().flatten();
            if header.is_some_and(|header| header.hash != target.hash) {
                continue;
            }
            if own.is_none() {
                own = Some(way);
            } else {
                contents.clear(way);
                view.stale.push(way);
            }
        }
        own
    }

    /// Chooses the way and the write number for an entry. `own` is the way with the key's present entry, if the set is
    /// in memory.
    fn choose(&self, target: &LookupTarget<'_>, view: &SetView, own: Option<usize>) -> Result<ChosenWay> {
        let mut state = self.lock();
        let sequence = state.numbers.take().ok_or_else(spent)?;
        let (way, evicts) = match (view.contents, view.summary) {
            (Some(contents), _) => {
                let way = own.unwrap_or_else(|| contents.least_recent());
                (way, own.is_none() && contents.ways()[way].tag != 0)
            }
            (None, Some(summary)) => {
                let way = summary.victim(target.hash);
                (way, summary.is_entry(way) && summary.newest(target.hash) != Some(way))
            }
            (None, None) => (0, false),
        };
        assert!((way as u64) < self.layout.ways, "a way of the set: {way}");
        add(&self.volume.counters.evicted, u64::from(evicts));
        Ok(ChosenWay { way, sequence })
    }

    /// Returns the writes for an entry in the table: its bin, and the stale bins, which are wiped.
    fn bin_writes(&self, entry: &PlacedEntry) -> Vec<(u64, AlignedBuffer)> {
        let PlacedEntry { at: BinAt { set, way }, ref header, ref record, ref stale, rest_bytes, .. } = *entry;
        let first = &record[..record.len() - rest_bytes as usize];
        let bin_len = (BIN_HEADER_BYTES + first.len()).next_multiple_of(BLOCK_BYTES as usize);
        // If the whole set must be wiped, one write wipes it and stores the bin.
        let wipes_all = stale.len() as u64 == self.layout.ways;
        let mut writes = if wipes_all {
            vec![self.wiping_all(set)]
        } else {
            let mut bin = AlignedBuffer::with_len(bin_len);
            bin.as_mut_slice().fill(0);
            let wiped = stale.iter().filter(|&&stale| stale != way).map(|&stale| self.wiping(set, stale));
            [(self.layout.bin_offset_bytes(set, way as u64), bin)].into_iter().chain(wiped).collect()
        };
        let at = if wipes_all { way * self.layout.bin_bytes as usize } else { 0 };
        let bytes = &mut writes[0].1.as_mut_slice()[at..at + bin_len];
        header.encode(self.volume.id, bytes);
        bytes[BIN_HEADER_BYTES..BIN_HEADER_BYTES + first.len()].copy_from_slice(first);
        writes
    }

    /// Returns the write for the remainders of entries, their parts outside the bins. They are next to each other at
    /// the place `rest_at` in the ring.
    fn rests_write(&self, entries: &[PlacedEntry], rest_at: u64) -> (u64, AlignedBuffer) {
        let padded = |entry: &PlacedEntry| entry.rest_bytes.next_multiple_of(BLOCK_BYTES) as usize;
        let len = entries.iter().map(padded).sum();
        let mut buffer = AlignedBuffer::with_len(len);
        let mut left = buffer.as_mut_slice();
        for entry in entries {
            let rest = &entry.record[entry.record.len() - entry.rest_bytes as usize..];
            let (own, others) = left.split_at_mut(padded(entry));
            own[..rest.len()].copy_from_slice(rest);
            own[rest.len()..].fill(0);
            left = others;
        }
        let offset_bytes = self.lock().ring.offset_bytes(rest_at, len as u64);
        (offset_bytes.expect("a place is not given out again while it is on its way"), buffer)
    }

    /// Returns the write that wipes all bins of a set.
    pub(super) fn wiping_all(&self, set: SetNumber) -> (u64, AlignedBuffer) {
        let mut buffer = AlignedBuffer::with_len(self.layout.set_bytes() as usize);
        buffer.as_mut_slice().fill(0);
        for (way, bin) in buffer.as_mut_slice().chunks_mut(self.layout.bin_bytes as usize).enumerate() {
            BinHeader::wiped(self.layout.bin_offset_bytes(set, way as u64)).encode(self.volume.id, bin);
        }
        (self.layout.set_offset_bytes(set), buffer)
    }

    /// Returns the write that wipes the bin in `way`.
    fn wiping(&self, set: SetNumber, way: usize) -> (u64, AlignedBuffer) {
        let mut buffer = AlignedBuffer::with_len(BLOCK_BYTES as usize);
        buffer.as_mut_slice().fill(0);
        let offset_bytes = self.layout.bin_offset_bytes(set, way as u64);
        BinHeader::wiped(offset_bytes).encode(self.volume.id, buffer.as_mut_slice());
        (offset_bytes, buffer)
    }

    /// Starts the writes of some changes. `group` is the number of the group that they write. The returned future waits
    /// until all writes are done.
    pub(super) fn submit(
        self: &Arc<Self>,
        changes: Vec<SetChange>,
        group: Option<u64>,
        writes: Vec<(u64, AlignedBuffer)>,
    ) -> PendingTransfer<()> {
        let (completion, pending) = Completion::pair();
        let writing = SetWrites { changes, group, completion, left: writes.len(), outcome: Ok(()) };
        let writing = Arc::new(Mutex::new(Some(writing)));
        for (offset_bytes, buffer) in writes {
            let writing = Arc::clone(&writing);
            let written = completion_for(self, move |engine, outcome| engine.written(&writing, outcome));
            self.volume.submit_write(offset_bytes, Arc::new(buffer), written);
        }
        self.volume.wakeup.wake_if_idle();
        pending
    }

    fn written(&self, writing: &Mutex<Option<SetWrites>>, outcome: io::Result<()>) {
        self.volume.note_write(&outcome);
        let mut slot = writing.lock().ignore_poison();
        let Some(state) = slot.as_mut() else { return };
        state.left -= 1;
        if state.outcome.is_ok() {
            state.outcome = outcome;
        }
        if state.left > 0 {
            return;
        }
        let Some(SetWrites { changes, group, completion, outcome, .. }) = slot.take() else { return };
        drop(slot);
        {
            let mut state = self.lock();
            for change in &changes {
                state.end_change(change, outcome.is_ok(), self.layout.ways as usize);
            }
            if let Some(number) = group {
                state.gathered.written(number, outcome.is_ok());
            }
            if outcome.is_err() {
                state.wipe_at = Some(self.volume.clock.now() + RETRY_PAUSE);
            }
        }
        drop(changes);
        completion.complete(outcome);
    }

    pub(super) async fn finished(&self, pending: PendingTransfer<()>) -> Result<()> {
        let outcome = pending.await;
        outcome
            .map_err(|source| Error::io(ErrorKind::Unavailable, "an entry could not be written to the store", source))
    }
}

impl TableState {
    /// Makes lookups find the entry in memory while it is being written, and records its way.
    pub(super) fn begin_put(&mut self, target: &LookupTarget<'_>, way: usize, record: Bytes, view: &SetView) {
        if let Some((mut contents, shape)) = view.contents.zip(self.memory.shape()) {
            contents.put(way, shape.tag(target.hash.key_hash()), 0, SetPlace::default());
            self.memory.write(target.set, &contents);
        }
        assert!(self.held.get(&target.set).is_some_and(Option::is_none), "one task at a time changes a set");
        self.dirty_bytes += record.len() as u64;
        self.note_change(target.set);
        self.held.insert(target.set, Some(DirtySet { hash: target.hash, record: Some(record), waits_in: None }));
    }

    /// Ends a change whose writes are done. If one of them failed, marks the set as suspect: its bytes are not trusted
    /// until the whole set is wiped.
    fn end_change(&mut self, change: &SetChange, ok: bool, ways: usize) {
        let set = change.hold.set;
        assert!(self.held.contains_key(&set), "a set is held until its change is over");
        assert!(change.dirty_bytes <= self.dirty_bytes, "what was on its way is counted");
        self.note_change(set);
        self.held.insert(set, None);
        self.dirty_bytes -= change.dirty_bytes;
        if let Some(at) = change.rest_at {
            self.ring.written(at);
        }
        if !ok {
            self.recent.forget(set);
            self.memory.forget(set);
            self.suspects.insert(set);
            return;
        }
        // A change of a suspect set replaces all of it.
        self.suspects.remove(set);
        let known = self.recent.find(set).copied();
        // For a set of one way, the last write is its whole content.
        if let Some(mut summary) = known.or_else(|| (ways == 1).then(|| SetSummary::empty(1))) {
            for &(way, bin) in &change.bins {
                summary.put(way, bin);
            }
            self.recent.remember(set, summary);
        }
    }
}
