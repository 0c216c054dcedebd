//! Where the bytes of a body are: in memory, in the store, about to come from it, or nowhere.
//!
//! The store holds whole chunks. What it holds is kept as a set of bytes, so a body of any length that lies there as a
//! whole takes one span. A chunk is unknown until the store was probed for it.

use super::{Sizes, pieces::Pieces, span_set::SpanSet};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;

/// The place of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory.
    Memory,
    /// In the store, and being read.
    Reading,
    /// In the store.
    Store,
    /// Perhaps in the store, which has not been probed for it.
    Unknown,
    /// Neither in memory nor in the store.
    Absent,
}

/// Chunks that the store works on.
type ChunkList = SmallVec<[u64; 4]>;

/// The places of all bytes of one body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkMap {
    chunk: u64,
    len: Option<u64>,
    pieces: Pieces,
    stored: SpanSet,
    unknown: SpanSet,
    /// A part that the store could not read: the origin serves it, although it may be in the store.
    avoided: Range<u64>,
    probing: ChunkList,
    reading: ChunkList,
    storing: ChunkList,
}

impl ChunkMap {
    /// Returns the map of a body of which nothing is in the store.
    pub(super) fn empty(sizes: Sizes, len: Option<u64>) -> Self {
        assert!(sizes.chunk > 0, "a chunk has bytes");
        Self {
            chunk: sizes.chunk,
            len,
            pieces: Pieces::default(),
            stored: SpanSet::default(),
            unknown: SpanSet::default(),
            avoided: 0..0,
            probing: ChunkList::new(),
            reading: ChunkList::new(),
            storing: ChunkList::new(),
        }
    }

    /// Returns the map of an entry of the store, whose chunks have not been probed.
    pub(super) fn unprobed(sizes: Sizes, len: u64) -> Self {
        Self { unknown: SpanSet::of(0..len), ..Self::empty(sizes, Some(len)) }
    }

    /// Returns the length of the body, if it is known.
    pub(super) fn len(&self) -> Option<u64> {
        self.len
    }

    /// Sets the length of a body that has ended.
    pub(super) fn set_len(&mut self, len: u64) {
        self.len = Some(len);
    }

    /// Returns the end of the body, `u64::MAX` if its length is unknown.
    pub(super) fn end(&self) -> u64 {
        self.len.unwrap_or(u64::MAX)
    }

    /// Returns the chunk that contains `at`.
    pub(super) fn chunk_of(&self, at: u64) -> u64 {
        at / self.chunk
    }

    /// Returns the bytes of a chunk.
    pub(super) fn span_of(&self, chunk: u64) -> Range<u64> {
        let start = chunk * self.chunk;
        start.min(self.end())..start.saturating_add(self.chunk).min(self.end())
    }

    /// Returns where the byte `at` is, and the end of the bytes after it that are in the same place.
    pub(super) fn place(&self, at: u64) -> (Place, u64) {
        if let Some(end) = self.pieces.spans().end_at(at) {
            return (Place::Memory, end);
        }
        let until = self.pieces.spans().next_from(at);
        if self.avoided.contains(&at) {
            return (Place::Absent, until.min(self.avoided.end));
        }
        let until =
            if self.avoided.start > at && !self.avoided.is_empty() { until.min(self.avoided.start) } else { until };
        if let Some(end) = self.stored.end_at(at) {
            return self.place_in_store(at, until.min(end));
        }
        let until = until.min(self.stored.next_from(at));
        if let Some(end) = self.unknown.end_at(at) {
            return (Place::Unknown, until.min(end));
        }
        (Place::Absent, until.min(self.unknown.next_from(at)))
    }

    /// Returns [`Place::Reading`] for a chunk that is being read, otherwise [`Place::Store`] until the next one that
    /// is.
    fn place_in_store(&self, at: u64, until: u64) -> (Place, u64) {
        let chunk = self.chunk_of(at);
        if self.reading.contains(&chunk) {
            return (Place::Reading, until.min(self.span_of(chunk).end));
        }
        let next = self.reading.iter().filter(|&&other| other > chunk).map(|&other| self.span_of(other).start).min();
        (Place::Store, until.min(next.unwrap_or(until)))
    }

    /// Returns whether the byte `at` is in memory.
    pub(super) fn is_in_memory(&self, at: u64) -> bool {
        self.pieces.spans().end_at(at).is_some()
    }

    /// Returns whether the byte `at` can be read from the store.
    pub(super) fn is_readable(&self, at: u64) -> bool {
        !self.avoided.contains(&at) && self.stored.end_at(at).is_some()
    }

    /// Returns whether bytes are in memory that can be read from the store at any time.
    pub(super) fn holds_readable(&self) -> bool {
        self.chunks_in_memory().iter().any(|&chunk| self.is_readable(self.span_of(chunk).start))
    }

    /// Returns whether the store has a chunk.
    pub(super) fn has_stored(&self) -> bool {
        self.stored.iter().next().is_some()
    }

    /// Returns whether all bytes of `span` are in the store.
    pub(super) fn is_all_stored(&self, span: &Range<u64>) -> bool {
        self.stored.covers(span)
    }

    /// Returns the parts of `span` that are not in the store.
    pub(super) fn unstored_of(&self, span: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        self.stored.holes(span)
    }

    /// Returns whether the whole body is in the store.
    pub(super) fn is_whole_stored(&self) -> bool {
        self.len.is_some_and(|len| self.stored.covers(&(0..len)))
    }

    /// Returns the bytes in memory from `at` on, up to the end of their piece.
    pub(super) fn get(&self, at: u64) -> Option<Bytes> {
        self.pieces.get(at)
    }

    /// Returns the pieces of a chunk that is in memory.
    pub(super) fn pieces_of(&self, chunk: u64) -> SmallVec<[Bytes; 4]> {
        self.pieces.of(self.span_of(chunk))
    }

    /// Returns how many bytes are in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.pieces.bytes()
    }

    /// Returns how many bytes will be in memory when all reads have ended.
    pub(super) fn held_bytes_after_reads(&self) -> u64 {
        self.held_bytes() + self.reading.len() as u64 * self.chunk
    }

    /// Returns the chunks of which bytes are in memory, in ascending order.
    pub(super) fn chunks_in_memory(&self) -> SmallVec<[u64; 16]> {
        let mut chunks = SmallVec::new();
        for span in self.pieces.spans().iter() {
            let first = self.chunk_of(span.start);
            let last = self.chunk_of(span.end - 1);
            let is_known = chunks.last() == Some(&first);
            chunks.extend(first + u64::from(is_known)..=last);
        }
        chunks
    }

    /// Returns whether all bytes of `chunk` are in memory.
    pub(super) fn is_chunk_in_memory(&self, chunk: u64) -> bool {
        let span = self.span_of(chunk);
        !span.is_empty() && self.pieces.spans().covers(&span)
    }

    /// Returns the bytes of `chunk` that are not in memory.
    pub(super) fn missing_of(&self, chunk: u64) -> SmallVec<[Range<u64>; 2]> {
        self.pieces.spans().holes(self.span_of(chunk))
    }

    /// Adds bytes that came from the origin.
    pub(super) fn insert(&mut self, start: u64, bytes: &Bytes) {
        self.pieces.insert(start, bytes);
    }

    /// Drops bytes from memory.
    pub(super) fn drop_from_memory(&mut self, span: Range<u64>) {
        self.pieces.remove(span);
    }

    /// Returns whether a probe, a read or a write is running.
    pub(super) fn is_store_at_work(&self) -> bool {
        !(self.probing.is_empty() && self.reading.is_empty() && self.storing.is_empty())
    }

    /// Returns the number of probes that are running.
    pub(super) fn probes(&self) -> usize {
        self.probing.len()
    }

    /// Returns the number of reads that are running.
    pub(super) fn reads(&self) -> usize {
        self.reading.len()
    }

    /// Returns whether the store is being probed for `chunk`.
    pub(super) fn is_probing(&self, chunk: u64) -> bool {
        self.probing.contains(&chunk)
    }

    /// Returns whether `chunk` is being stored.
    pub(super) fn is_storing(&self, chunk: u64) -> bool {
        self.storing.contains(&chunk)
    }

    /// Notes that a probe begins.
    pub(super) fn begin_probe(&mut self, chunk: u64) {
        assert!(!self.probing.contains(&chunk), "chunk {chunk} is being probed");
        self.probing.push(chunk);
    }

    /// Notes the result of a probe.
    pub(super) fn end_probe(&mut self, chunk: u64, is_found: bool) {
        if !take(&mut self.probing, chunk) {
            return;
        }
        let span = self.span_of(chunk);
        self.unknown.remove(span.clone());
        if is_found {
            self.stored.insert(span);
        }
    }

    /// Notes that a read begins.
    pub(super) fn begin_read(&mut self, chunk: u64) {
        assert!(!self.reading.contains(&chunk), "chunk {chunk} is being read");
        self.reading.push(chunk);
    }

    /// Notes that a read has ended. Returns whether it was running.
    pub(super) fn end_read(&mut self, chunk: u64) -> bool {
        take(&mut self.reading, chunk)
    }

    /// Notes that the store does not have `chunk`.
    pub(super) fn set_absent(&mut self, chunk: u64) {
        self.stored.remove(self.span_of(chunk));
    }

    /// Sets the part of the body that is not read from the store.
    pub(super) fn set_avoided(&mut self, span: Range<u64>) {
        self.avoided = span;
    }

    /// Notes that a write begins.
    pub(super) fn begin_store(&mut self, chunk: u64) {
        assert!(!self.storing.contains(&chunk), "chunk {chunk} is being stored");
        self.storing.push(chunk);
    }

    /// Notes the result of a write.
    pub(super) fn end_store(&mut self, chunk: u64, is_done: bool) {
        if take(&mut self.storing, chunk) && is_done {
            let span = self.span_of(chunk);
            self.unknown.remove(span.clone());
            self.stored.insert(span);
        }
    }
}

/// Removes `chunk` from a list. Returns whether it was there.
fn take(list: &mut ChunkList, chunk: u64) -> bool {
    let found = list.iter().position(|&other| other == chunk);
    found.map(|at| list.swap_remove(at)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { chunk: 4, ahead: 8, lead: 8, gap: 2, least: 4 };

    #[test]
    fn place_of_a_byte_ends_where_the_next_place_begins() {
        let mut map = ChunkMap::unprobed(SIZES, 18);
        assert_eq!(map.place(0), (Place::Unknown, 18));
        for chunk in 0..5 {
            map.begin_probe(chunk);
            map.end_probe(chunk, chunk < 3);
        }
        assert_eq!(map.place(1), (Place::Store, 12));
        assert_eq!(map.place(12), (Place::Absent, u64::MAX));
        map.begin_read(1);
        assert_eq!([map.place(1), map.place(5)], [(Place::Store, 4), (Place::Reading, 8)]);
        map.insert(2, &Bytes::from_static(b"cd"));
        assert_eq!([map.place(1), map.place(2)], [(Place::Store, 2), (Place::Memory, 4)]);
    }

    #[test]
    fn avoided_part_of_the_store_counts_as_absent() {
        let mut map = ChunkMap::unprobed(SIZES, 16);
        map.set_avoided(4..12);
        assert_eq!([map.place(0), map.place(4)], [(Place::Unknown, 4), (Place::Absent, 12)]);
    }

    #[test]
    fn last_chunk_is_shorter_and_known_when_the_length_is() {
        let mut map = ChunkMap::empty(SIZES, None);
        map.insert(0, &Bytes::from_static(b"abcdef"));
        assert_eq!(map.chunks_in_memory().as_slice(), [0, 1]);
        assert!(map.is_chunk_in_memory(0) && !map.is_chunk_in_memory(1));
        map.set_len(6);
        assert!(map.is_chunk_in_memory(1) && !map.is_chunk_in_memory(2));
        for chunk in 0..2 {
            map.begin_store(chunk);
            map.end_store(chunk, true);
        }
        assert!(map.is_whole_stored());
    }
}
