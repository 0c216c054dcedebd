//! The store's work for a body, and its answers: probes, reads, writes of chunks and of parts of chunks.

use super::ChunkMap;
use crate::object::{ProbeEnd, StoreEnd, Tick, span_set::SpanSet};
use smallvec::SmallVec;
use std::ops::Range;

impl ChunkMap {
    /// Returns whether a chunk, or a part of one, is being written to the store.
    pub(in crate::object) fn is_writing(&self) -> bool {
        !(self.storing.is_empty() && self.parts.is_empty())
    }

    /// Returns whether a probe or a read of the store is in progress.
    pub(in crate::object) fn is_reading_or_probing(&self) -> bool {
        !(self.probing.is_empty() && self.reading.is_empty())
    }

    /// Returns the number of probes of the store that are in progress.
    pub(in crate::object) fn probes(&self) -> usize {
        self.probing.len()
    }

    /// Returns the number of reads from the store that are in progress.
    pub(in crate::object) fn reads(&self) -> usize {
        self.reading.len()
    }

    /// Returns whether bytes of `chunk` are being read from the store.
    pub(in crate::object) fn is_reading(&self, chunk: u64) -> bool {
        let span = self.span_of(chunk);
        self.reading.iter().any(|range| range.start < span.end && span.start < range.end)
    }

    /// Returns whether the store is being probed for `chunk`.
    pub(in crate::object) fn is_probing(&self, chunk: u64) -> bool {
        self.probing.contains(&chunk)
    }

    /// Returns whether `chunk`, or a part of it, is being stored.
    pub(in crate::object) fn is_storing(&self, chunk: u64) -> bool {
        let span = self.span_of(chunk);
        let is_whole = self.storing.iter().any(|(other, _)| *other == chunk);
        is_whole || self.parts.iter().any(|part| span.contains(&part.start))
    }

    /// Returns the time from which the oldest write of a chunk in progress counts as too slow. `None` if no chunk is
    /// being written.
    pub(in crate::object) fn overdue_at(&self) -> Option<Tick> {
        self.storing.iter().map(|(_, overdue_at)| *overdue_at).min()
    }

    /// Returns whether `chunk` is to be stored: the store lacks some of it, and the chunk is not left to another node.
    pub(in crate::object) fn is_storable(&self, chunk: u64) -> bool {
        !self.unstored_of(self.span_of(chunk)).is_empty()
    }

    /// Records that the store is being probed for `chunk`.
    pub(in crate::object) fn begin_probe(&mut self, chunk: u64) {
        assert!(!self.probing.contains(&chunk), "chunk {chunk} is being probed");
        self.probing.push(chunk);
    }

    /// Records what a probe of the store found of `chunk`. Returns `false`, and changes nothing, if no such probe was
    /// in progress.
    pub(in crate::object) fn end_probe(&mut self, chunk: u64, end: &ProbeEnd) -> bool {
        if !take(&mut self.probing, &chunk) {
            return false;
        }
        let span = self.span_of(chunk);
        let found = match end {
            ProbeEnd::Whole => span.clone(),
            ProbeEnd::Part(part) => part.start.max(span.start)..part.end.min(span.end),
            ProbeEnd::Absent => 0..0,
            ProbeEnd::Trouble => return true,
        };
        self.unknown.remove(span);
        self.stored.insert(found);
        true
    }

    /// Records that the store may have lost `chunk`, which is then probed again. Does nothing if the whole chunk is in
    /// memory, or bytes of it are being read.
    pub(in crate::object) fn doubt(&mut self, chunk: u64) {
        let span = self.span_of(chunk);
        if !self.is_reading(chunk) && !self.is_chunk_in_memory(chunk) {
            self.stored.remove(span.clone());
            self.unknown.insert(span);
        }
    }

    /// Records that `range` is being read from the store.
    pub(in crate::object) fn begin_read(&mut self, range: Range<u64>) {
        assert!(!self.reading.contains(&range), "{range:?} is being read");
        self.reading.push(range);
    }

    /// Records that the read of `range` has ended. Returns `false` if no such read was in progress.
    pub(in crate::object) fn end_read(&mut self, range: &Range<u64>) -> bool {
        take(&mut self.reading, range)
    }

    /// Records that the store does not have `chunk`.
    pub(in crate::object) fn set_absent(&mut self, chunk: u64) {
        self.stored.remove(self.span_of(chunk));
    }

    /// Returns whether `span` is requested from the origin although it may be in the store, because the store could not
    /// read it.
    pub(in crate::object) fn is_avoided(&self, span: &Range<u64>) -> bool {
        self.avoided.start <= span.start && span.end <= self.avoided.end
    }

    /// Stops reading `span` from the store. A part before it that was avoided stays avoided if it adjoins `span`.
    pub(in crate::object) fn avoid(&mut self, span: Range<u64>) {
        let adjoins = self.avoided.start <= span.start && span.start <= self.avoided.end;
        self.avoided = if adjoins { self.avoided.start..self.avoided.end.max(span.end) } else { span };
    }

    /// Permits all reads from the store again, even of the part that was avoided.
    pub(in crate::object) fn avoid_nothing(&mut self) {
        self.avoided = 0..0;
    }

    /// Records that a write of `chunk` begins. From the time `overdue_at` on, the write counts as too slow.
    pub(in crate::object) fn begin_store(&mut self, chunk: u64, overdue_at: Tick) {
        assert!(!self.is_storing(chunk), "chunk {chunk} is being stored");
        self.storing.push((chunk, overdue_at));
    }

    /// Records the result of writing `chunk` to the store.
    pub(in crate::object) fn end_store(&mut self, chunk: u64, end: StoreEnd) {
        let Some(place) = self.storing.iter().position(|(other, _)| *other == chunk) else {
            return;
        };
        self.storing.swap_remove(place);
        let span = self.span_of(chunk);
        match end {
            StoreEnd::Done => {
                self.unknown.remove(span.clone());
                self.stored.insert(span);
            }
            StoreEnd::Skipped => self.skipped.insert(span),
            StoreEnd::Refused => {}
        }
    }

    /// Returns the longest part of `chunk` in memory, if it is worth storing: longer than what the store has of the
    /// chunk, and not refused before.
    pub(in crate::object) fn part_to_store(&self, chunk: u64) -> Option<Range<u64>> {
        let span = self.span_of(chunk);
        if self.unknown.meets(&span) {
            return None;
        }
        let length = |part: &Range<u64>| part.end - part.start;
        let longest = self.pieces.spans().within(span.clone()).max_by_key(length)?;
        let stored: u64 = self.stored.within(span).map(|part| length(&part)).sum();
        (length(&longest) > stored && !self.refused.covers(&longest)).then_some(longest)
    }

    /// Returns the stored bytes of `chunk` that would be lost if `part` was stored, because the store keeps one part of
    /// a chunk.
    pub(in crate::object) fn replaced_by(&self, chunk: u64, part: &Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        let mut replaced = SpanSet::default();
        self.stored.within(self.span_of(chunk)).for_each(|stored| replaced.insert(stored));
        replaced.remove(part.clone());
        replaced.iter().cloned().collect()
    }

    /// Records that a write of `part`, a part of `chunk`, begins. What the store had of the chunk counts as absent from
    /// now on.
    pub(in crate::object) fn begin_part(&mut self, chunk: u64, part: Range<u64>) {
        self.stored.remove(self.span_of(chunk));
        self.parts.push(part);
    }

    /// Records the result of writing a part of `chunk`. If it was stored, it replaces what the store had of the chunk.
    pub(in crate::object) fn end_part(&mut self, chunk: u64, end: StoreEnd) {
        let span = self.span_of(chunk);
        let Some(place) = self.parts.iter().position(|part| span.contains(&part.start)) else {
            return;
        };
        let part = self.parts.swap_remove(place);
        match end {
            StoreEnd::Done => {
                self.stored.remove(span);
                self.stored.insert(part);
            }
            StoreEnd::Skipped => self.skipped.insert(span),
            StoreEnd::Refused => self.refused.insert(part),
        }
    }
}

/// Removes `entry` from a list. Returns whether the list contained it.
fn take<A: smallvec::Array>(list: &mut SmallVec<A>, entry: &A::Item) -> bool
where
    A::Item: PartialEq,
{
    let found = list.iter().position(|other| other == entry);
    found.map(|at| list.swap_remove(at)).is_some()
}
