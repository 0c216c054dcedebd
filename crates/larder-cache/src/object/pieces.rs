//! The bytes of a body that are in memory, as the pieces in which they arrived.

use super::span_set::SpanSet;
use bytes::Bytes;
use smallvec::SmallVec;
use std::{collections::BTreeMap, ops::Range};

/// The parts of a body that are in memory: disjoint pieces, keyed by the position of their first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pieces {
    pieces: BTreeMap<u64, Bytes>,
    spans: SpanSet,
    bytes: u64,
}

impl Pieces {
    /// Adds `bytes`, which begin at `start`. Skips those that are in memory already.
    pub(super) fn insert(&mut self, start: u64, bytes: &Bytes) {
        let span = start..start + bytes.len() as u64;
        if !self.spans.meets(&span) && !span.is_empty() {
            self.bytes += span.end - span.start;
            self.pieces.insert(start, bytes.clone());
            self.spans.insert(span);
            debug_assert!(self.is_consistent(), "{self:?}");
            return;
        }
        for hole in self.spans.holes(span) {
            let from = (hole.start - start) as usize;
            let to = (hole.end - start) as usize;
            self.bytes += hole.end - hole.start;
            self.pieces.insert(hole.start, bytes.slice(from..to));
            self.spans.insert(hole);
        }
        debug_assert!(self.is_consistent(), "{self:?}");
    }

    /// Adds `bytes`, which begin at `start`, except for those that are in memory already.
    ///
    /// An origin may send a few bytes at a time. Such a short piece is joined with the one before it: both are copied,
    /// and the copy is passed through `counted`.
    pub(super) fn append(&mut self, start: u64, bytes: &Bytes, mut counted: impl FnMut(Bytes) -> Bytes) {
        if bytes.len() >= SHORT_BYTES || self.spans.meets(&(start..start + bytes.len() as u64)) {
            return self.insert(start, bytes);
        }
        let before = self.last_before(start).filter(|(first, piece)| end(*first, piece) == start);
        let Some((first, piece)) = before.filter(|(_, piece)| piece.len() < JOINED_BYTES) else {
            return self.insert(start, bytes);
        };
        let joined = [&piece[..], &bytes[..]].concat();
        self.pieces.insert(first, counted(Bytes::from(joined)));
        self.spans.insert(start..start + bytes.len() as u64);
        self.bytes += bytes.len() as u64;
        debug_assert!(self.is_consistent(), "{self:?}");
    }

    /// Removes all bytes of `span` from memory.
    pub(super) fn remove(&mut self, span: Range<u64>) {
        if self.spans.next_from(span.start) >= span.end {
            return;
        }
        while let Some((start, piece)) =
            self.last_before(span.end).filter(|(start, piece)| end(*start, piece) > span.start)
        {
            self.pieces.remove(&start);
            let stop = end(start, &piece);
            if stop > span.end {
                self.pieces.insert(span.end, piece.slice((span.end - start) as usize..));
            }
            if start < span.start {
                self.pieces.insert(start, piece.slice(..(span.start - start) as usize));
            }
            self.bytes -= stop.min(span.end) - start.max(span.start);
        }
        self.spans.remove(span);
        debug_assert!(self.is_consistent(), "{self:?}");
    }

    /// Returns the bytes from `at` to the end of the piece that contains it. `None` if the byte `at` is not in memory.
    pub(super) fn get(&self, at: u64) -> Option<Bytes> {
        let (&start, piece) = self.pieces.range(..=at).next_back()?;
        (at < end(start, piece)).then(|| piece.slice((at - start) as usize..))
    }

    /// Returns the bytes of `span` as pieces. All of them must be in memory.
    pub(super) fn of(&self, span: Range<u64>) -> SmallVec<[Bytes; 4]> {
        debug_assert!(self.spans.covers(&span), "{span:?} is not in memory");
        let mut found = SmallVec::new();
        let mut at = span.start;
        while let Some(piece) = self.get(at).filter(|_| at < span.end) {
            let taken = (piece.len() as u64).min(span.end - at);
            found.push(piece.slice(..taken as usize));
            at += taken;
        }
        found
    }

    /// Returns which bytes are in memory.
    pub(super) fn spans(&self) -> &SpanSet {
        &self.spans
    }

    /// Returns how many bytes are in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn last_before(&self, at: u64) -> Option<(u64, Bytes)> {
        self.pieces.range(..at).next_back().map(|(start, piece)| (*start, piece.clone()))
    }

    fn is_consistent(&self) -> bool {
        let mut spans = SpanSet::default();
        self.pieces.iter().for_each(|(start, piece)| spans.insert(*start..end(*start, piece)));
        spans == self.spans && self.bytes == self.pieces.values().map(|piece| piece.len() as u64).sum::<u64>()
    }
}

/// Length in bytes below which a piece is joined with the one before it.
const SHORT_BYTES: usize = 256;

/// Length in bytes from which a piece is not extended by further short ones.
const JOINED_BYTES: usize = 1024;

fn end(start: u64, piece: &Bytes) -> u64 {
    start + piece.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_piece_adds_only_what_is_missing() {
        let mut pieces = Pieces::default();
        pieces.insert(2, &Bytes::from_static(b"cd"));
        pieces.insert(0, &Bytes::from_static(b"abXXef"));
        assert_eq!(pieces.of(0..6).concat(), b"abcdef");
        assert_eq!(pieces.bytes(), 6);
    }

    #[test]
    fn short_pieces_are_joined_and_counted() {
        let mut pieces = Pieces::default();
        let mut joined = Vec::new();
        for at in 0..3 {
            pieces.append(at, &Bytes::from_static(b"x"), |bytes| {
                joined.push(bytes.len());
                bytes
            });
        }
        assert_eq!((pieces.get(0).as_deref(), joined), (Some(&b"xxx"[..]), vec![2, 3]));
        pieces.append(3, &Bytes::from(vec![b'y'; 256]), |_| unreachable!("it is not short"));
        assert_eq!((pieces.get(0).map(|piece| piece.len()), pieces.bytes()), (Some(3), 259));
    }

    #[test]
    fn removed_span_cuts_pieces() {
        let mut pieces = Pieces::default();
        pieces.insert(0, &Bytes::from_static(b"abcd"));
        pieces.insert(4, &Bytes::from_static(b"efgh"));
        pieces.remove(1..6);
        assert_eq!(pieces.get(0).as_deref(), Some(&b"a"[..]));
        assert_eq!([pieces.get(1), pieces.get(5)], [None, None]);
        assert_eq!(pieces.get(6).as_deref(), Some(&b"gh"[..]));
        pieces.remove(0..8);
        assert_eq!(pieces, Pieces::default());
    }

    #[test]
    fn middle_of_one_piece_can_be_removed() {
        let mut pieces = Pieces::default();
        pieces.insert(0, &Bytes::from_static(b"abcdef"));
        pieces.remove(2..4);
        assert_eq!(pieces.get(0).as_deref(), Some(&b"ab"[..]));
        assert_eq!(pieces.get(4).as_deref(), Some(&b"ef"[..]));
    }
}
