//! Where the bytes of a body are: in memory, in the store, about to come from it, or nowhere.
//!
//! The store holds chunks, and one part of some chunks. The map keeps a set of the stored bytes, so a stored body of
//! any length takes one span. A chunk is unknown until the store was probed for it.

mod work;

use super::{Sizes, Tick, pieces::Pieces, span_set::SpanSet};
use bytes::Bytes;
use smallvec::SmallVec;
use std::ops::Range;

/// The place of a byte of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The byte is in memory.
    Memory,
    /// The byte is in the store, and is being read from there.
    Reading,
    /// The byte is in the store, and is not being read.
    Store,
    /// The byte may be in the store, which has not been probed for its chunk yet.
    Unknown,
    /// The byte is neither in memory nor in the store, or the store could not read it.
    Absent,
}

/// Numbers of the chunks for which one kind of operation of the store is in progress.
type ChunkList = SmallVec<[u64; 4]>;

/// For all bytes of one body: whether they are in memory, in the store, or neither.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkMap {
    chunk: u64,
    block: u64,
    len: Option<u64>,
    pieces: Pieces,
    stored: SpanSet,
    unknown: SpanSet,
    /// A part that the store could not read. It is requested from the origin, although it may still be in the store.
    avoided: Range<u64>,
    probing: ChunkList,
    reading: SmallVec<[Range<u64>; 4]>,
    /// Numbers of the chunks that are being stored, each with the time from which its write counts as too slow.
    storing: SmallVec<[(u64, Tick); 4]>,
    /// Parts of chunks that are being stored, as ranges of the body.
    parts: SmallVec<[Range<u64>; 2]>,
    /// Bytes of the chunks that are not stored on this node of a fleet, because another node stores them.
    skipped: SpanSet,
    /// Bytes that the store refused to take as a part of a chunk. They are not offered again.
    refused: SpanSet,
}

impl ChunkMap {
    /// Creates the map of a body of which nothing is in the store.
    pub(super) fn empty(sizes: Sizes, len: Option<u64>) -> Self {
        assert!(sizes.block > 0 && sizes.chunk.is_multiple_of(sizes.block), "blocks divide a chunk");
        Self {
            chunk: sizes.chunk,
            block: sizes.block,
            len,
            pieces: Pieces::default(),
            stored: SpanSet::default(),
            unknown: SpanSet::default(),
            avoided: 0..0,
            probing: ChunkList::new(),
            reading: SmallVec::new(),
            storing: SmallVec::new(),
            parts: SmallVec::new(),
            skipped: SpanSet::default(),
            refused: SpanSet::default(),
        }
    }

    /// Creates the map of a stored body. Its chunks have not been probed, so any byte may be in the store.
    pub(super) fn unprobed(sizes: Sizes, len: u64) -> Self {
        Self { unknown: SpanSet::of(0..len), ..Self::empty(sizes, Some(len)) }
    }

    /// Returns the length of the body. `None` if it is not known yet.
    pub(super) fn len(&self) -> Option<u64> {
        self.len
    }

    /// Sets the length of the body, which became known when its response ended.
    pub(super) fn set_len(&mut self, len: u64) {
        self.len = Some(len);
    }

    /// Returns the end of the body, `u64::MAX` if its length is unknown.
    pub(super) fn end(&self) -> u64 {
        self.len.unwrap_or(u64::MAX)
    }

    /// Returns the number of the chunk that contains the byte `at`.
    pub(super) fn chunk_of(&self, at: u64) -> u64 {
        at / self.chunk
    }

    /// Returns the bytes of a chunk, as a range of the body. Ends at the end of the body.
    pub(super) fn span_of(&self, chunk: u64) -> Range<u64> {
        let start = chunk * self.chunk;
        start.min(self.end())..start.saturating_add(self.chunk).min(self.end())
    }

    /// Returns where the byte `at` is, and the position up to which the following bytes are in the same place.
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

    /// Returns whether all bytes of `span` are in `place`.
    pub(super) fn is_place(&self, span: &Range<u64>, place: Place) -> bool {
        let mut at = span.start;
        while at < span.end {
            let (found, end) = self.place(at);
            if found != place {
                return false;
            }
            at = end;
        }
        true
    }

    /// Divides stored bytes into those that are being read and those that are not.
    ///
    /// Returns [`Place::Reading`] if the byte `at` is being read, otherwise [`Place::Store`], and the end of the bytes
    /// in the same place, at most `until`.
    fn place_in_store(&self, at: u64, until: u64) -> (Place, u64) {
        if let Some(range) = self.reading.iter().find(|range| range.contains(&at)) {
            return (Place::Reading, until.min(range.end));
        }
        let next = self.reading.iter().map(|range| range.start).filter(|start| *start > at).min();
        (Place::Store, until.min(next.unwrap_or(until)))
    }

    /// Returns the largest range that can be read at once for the byte `at`: its chunk, or the stored part of the
    /// chunk. The byte must be in the store.
    pub(super) fn unit_at(&self, at: u64) -> Range<u64> {
        let chunk = self.span_of(self.chunk_of(at));
        let stored = self.stored.span_at(at).expect("the byte is in the store");
        stored.start.max(chunk.start)..stored.end.min(chunk.end)
    }

    /// Returns the bytes to read for the byte `at`: its chunk, or the stored part of it, if that has at most `bytes`
    /// and nothing of it is being read.
    ///
    /// Otherwise, returns consecutive blocks, beginning with the one that contains `at`. They end before the next byte
    /// that is being read. There are as many as fit in `bytes`, but at least one.
    pub(super) fn read_at(&self, at: u64, bytes: u64) -> Range<u64> {
        let unit = self.unit_at(at);
        let begun = self.reading.iter().filter(|range| range.start < unit.end && unit.start < range.end);
        let begun: SmallVec<[u64; 4]> = begun.map(|range| range.start).collect();
        if begun.is_empty() && unit.end - unit.start <= bytes {
            return unit;
        }
        let chunk = self.span_of(self.chunk_of(at)).start;
        let first = at - (at - chunk) % self.block;
        let start = first.max(unit.start);
        let next = begun.into_iter().filter(|next| *next > at).min().unwrap_or(unit.end);
        let end = start.saturating_add(bytes).min(next);
        let whole_blocks = end - (end - chunk) % self.block;
        let end = if end == next { end } else { whole_blocks.max(first + self.block) };
        start..end.min(next)
    }

    /// Returns whether the byte `at` is in memory.
    pub(super) fn is_in_memory(&self, at: u64) -> bool {
        self.pieces.spans().end_at(at).is_some()
    }

    /// Returns whether the byte `at` can be read from the store.
    pub(super) fn is_readable(&self, at: u64) -> bool {
        !self.avoided.contains(&at) && self.stored.end_at(at).is_some()
    }

    /// Returns whether memory has bytes that can be read again from the store, so that they can be dropped at any time.
    pub(super) fn holds_readable(&self) -> bool {
        let is_held = |(span, is_readable): &(Range<u64>, bool)| *is_readable && self.pieces.spans().meets(span);
        self.chunks_in_memory().iter().any(|&chunk| self.units_of(chunk).iter().any(is_held))
    }

    /// Divides a chunk into the parts that can be read from the store (`true`) and those that cannot (`false`), in
    /// ascending order.
    pub(super) fn units_of(&self, chunk: u64) -> SmallVec<[(Range<u64>, bool); 3]> {
        let span = self.span_of(chunk);
        let mut readable = SpanSet::of(span.clone());
        self.unreadable_of(span.clone()).into_iter().for_each(|hole| readable.remove(hole));
        let mut units: SmallVec<[(Range<u64>, bool); 3]> =
            readable.holes(span).into_iter().map(|hole| (hole, false)).collect();
        units.extend(readable.iter().map(|span| (span.clone(), true)));
        units.sort_by_key(|(span, _)| span.start);
        units
    }

    /// Returns the blocks of a chunk that have bytes in memory, each with whether it can be read from the store.
    pub(super) fn blocks_in_memory(&self, chunk: u64) -> SmallVec<[(Range<u64>, bool); 4]> {
        let start = self.span_of(chunk).start;
        let mut blocks = SmallVec::new();
        for (unit, is_readable) in self.units_of(chunk) {
            let mut at = unit.start;
            while at < unit.end {
                let end = (at - (at - start) % self.block + self.block).min(unit.end);
                if self.pieces.spans().meets(&(at..end)) {
                    blocks.push((at..end, is_readable));
                }
                at = end;
            }
        }
        blocks
    }

    fn unreadable_of(&self, span: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        let mut holes = self.stored.holes(span.clone());
        holes.push(self.avoided.start.max(span.start)..self.avoided.end.min(span.end));
        holes
    }

    /// Returns whether the shortcut in `steady` may rely on the store: it has whole chunks only, in at most five spans,
    /// and all of them can be read.
    pub(super) fn has_only_chunks(&self) -> bool {
        let is_edge = |at: u64| at.is_multiple_of(self.chunk) || Some(at) == self.len;
        let are_edges = |span: &Range<u64>| is_edge(span.start) && is_edge(span.end);
        self.avoided.is_empty()
            && self.parts.is_empty()
            && self.stored.iter().take(5).filter(|span| are_edges(span)).count() == self.stored.iter().count()
    }

    /// Returns whether all bytes of `span` are in memory.
    pub(super) fn is_all_in_memory(&self, span: Range<u64>) -> bool {
        self.pieces.spans().covers(&span)
    }

    /// Returns whether the store has any bytes of the body.
    pub(super) fn has_stored(&self) -> bool {
        self.stored.iter().next().is_some()
    }

    /// Returns whether all bytes of `span` are in memory or in the store.
    pub(super) fn has_all(&self, span: Range<u64>) -> bool {
        self.stored.holes(span).iter().all(|hole| self.pieces.spans().covers(hole))
    }

    /// Returns the parts of `span` that are not in the store, without the chunks that this node does not store because
    /// another node does.
    pub(super) fn unstored_of(&self, span: Range<u64>) -> SmallVec<[Range<u64>; 2]> {
        let holes = self.stored.holes(span);
        holes.into_iter().flat_map(|hole| self.skipped.holes(hole)).collect()
    }

    /// Returns whether the whole body is in the store.
    pub(super) fn is_whole_stored(&self) -> bool {
        self.len.is_some_and(|len| self.stored.covers(&(0..len)))
    }

    /// Returns the bytes in memory that begin at `at`, up to the end of their piece. `None` if the byte `at` is not in
    /// memory.
    pub(super) fn get(&self, at: u64) -> Option<Bytes> {
        self.pieces.get(at)
    }

    /// Returns the bytes of `span`, all of which are in memory, as the pieces in which they arrived.
    pub(super) fn pieces_of(&self, span: Range<u64>) -> SmallVec<[Bytes; 4]> {
        self.pieces.of(span)
    }

    /// Returns how many bytes are in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.pieces.bytes()
    }

    /// Returns how many bytes will be in memory when all reads in progress have ended.
    pub(super) fn held_bytes_after_reads(&self) -> u64 {
        self.held_bytes() + self.reading.iter().map(|range| range.end - range.start).sum::<u64>()
    }

    /// Returns the numbers of the chunks that have bytes in memory, in ascending order.
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

    /// Adds bytes that were read from the store.
    pub(super) fn insert(&mut self, start: u64, bytes: &Bytes) {
        self.pieces.insert(start, bytes);
    }

    /// Adds bytes that came from the origin. Short pieces are copied into one, which is passed through `counted` so
    /// that the driver can count its memory.
    pub(super) fn append(&mut self, start: u64, bytes: &Bytes, counted: impl FnMut(Bytes) -> Bytes) {
        self.pieces.append(start, bytes, counted);
    }

    /// Drops bytes from memory.
    pub(super) fn drop_from_memory(&mut self, span: Range<u64>) {
        self.pieces.remove(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{ProbeEnd, StoreEnd};

    const SIZES: Sizes = Sizes { chunk: 4, block: 2, cut: u64::MAX, ahead: 8, lead: 8, gap: 2, kept: 0, least: 4 };

    #[test]
    fn place_of_a_byte_ends_where_the_next_place_begins() {
        let mut map = ChunkMap::unprobed(SIZES, 18);
        assert_eq!(map.place(0), (Place::Unknown, 18));
        for chunk in 0..5 {
            map.begin_probe(chunk);
            map.end_probe(chunk, &if chunk < 3 { ProbeEnd::Whole } else { ProbeEnd::Absent });
        }
        assert_eq!(map.place(1), (Place::Store, 12));
        assert_eq!(map.place(12), (Place::Absent, u64::MAX));
        map.begin_read(4..8);
        assert_eq!([map.place(1), map.place(5)], [(Place::Store, 4), (Place::Reading, 8)]);
        map.insert(2, &Bytes::from_static(b"cd"));
        assert_eq!([map.place(1), map.place(2)], [(Place::Store, 2), (Place::Memory, 4)]);
    }

    #[test]
    fn avoided_part_of_the_store_counts_as_absent() {
        let mut map = ChunkMap::unprobed(SIZES, 16);
        map.avoid(4..12);
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
            map.begin_store(chunk, Tick(0));
            map.end_store(chunk, StoreEnd::Done);
        }
        assert!(map.is_whole_stored());
    }
}
