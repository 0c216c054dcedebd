//! The bytes of a body that are in memory: a contiguous run of pieces up to the last byte received.
//!
//! Owns: the pieces. [`BodyBudget`] counts them, and `shared` decides which are dropped. Invariant: there is no gap
//! between the start and the end. Cost: pieces are shared by reference; a piece near the end is found quickly.

use std::{collections::VecDeque, sync::Arc};

use bytes::{Bytes, BytesMut};

use crate::body_budget::BodyBudget;

/// The contiguous bytes in memory.
pub(super) struct Window {
    budget: Arc<BodyBudget>,
    pieces: VecDeque<Bytes>,
    start: u64,
    end: u64,
}

impl Window {
    /// Creates an empty window on a body from `start` on.
    pub(super) fn at_place(start: u64, budget: Arc<BodyBudget>) -> Self {
        Self { budget, pieces: VecDeque::new(), start, end: start }
    }

    /// Returns how many bytes the window may hold.
    pub(super) fn share_bytes(&self) -> u64 {
        self.budget.share_bytes()
    }

    /// Returns how many bytes the window holds.
    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Appends received bytes. Tiny pieces are merged, so that an origin that sends byte by byte does not cost one
    /// reference per byte.
    pub(super) fn push(&mut self, bytes: Bytes) {
        self.end += bytes.len() as u64;
        if bytes.len() < TINY_BYTES
            && let Some(last) = self.pieces.back_mut().filter(|last| last.len() < TINY_TOGETHER_BYTES)
        {
            let mut joined = BytesMut::with_capacity(last.len() + bytes.len());
            joined.extend_from_slice(last);
            joined.extend_from_slice(&bytes);
            *last = self.budget.count(joined.freeze());
        } else {
            self.pieces.push_back(self.budget.count(bytes));
        }
    }

    /// Drops the pieces that lie entirely before `position`.
    pub(super) fn trim(&mut self, position: u64) {
        while let Some(first) = self.pieces.front() {
            let end = self.start + first.len() as u64;
            if end > position {
                break;
            }
            self.start = end;
            self.pieces.pop_front();
        }
    }

    /// Returns the position of the window's first byte in the body.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the position after the last byte received.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the contiguous bytes from `position` on. Searches from the end, because most readers are near it.
    pub(super) fn at(&self, position: u64) -> Option<Bytes> {
        if position < self.start {
            return None;
        }
        let mut end = self.end;
        for piece in self.pieces.iter().rev() {
            if position >= end {
                return None;
            }
            let start = end - piece.len() as u64;
            if position >= start {
                return Some(piece.slice(usize::try_from(position - start).ok()?..));
            }
            end = start;
        }
        None
    }

    /// Returns `len` bytes from `position` on, or fewer if the window ends before that.
    pub(super) fn copy_out(&self, position: u64, len: u64) -> Vec<Bytes> {
        let end = position + len;
        let mut position = position;
        let mut pieces = Vec::new();
        while position < end {
            let Some(mut piece) = self.at(position) else { break };
            piece.truncate(usize::try_from(end - position).unwrap_or(usize::MAX));
            position += piece.len() as u64;
            pieces.push(piece);
        }
        pieces
    }
}

/// A piece shorter than this is merged with the one before it, if that is short too.
const TINY_BYTES: usize = 256;
const TINY_TOGETHER_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Window {
        Window::at_place(0, Arc::new(BodyBudget::new(1000)))
    }

    /// Returns a window of 10 pieces of 300 bytes. Each byte has its piece's number as its value.
    fn window() -> Window {
        let mut window = empty();
        (0..10_u8).for_each(|number| window.push(vec![number; 300].into()));
        window
    }

    #[test]
    fn bytes_are_found_at_their_place() {
        let window = window();
        assert_eq!((window.start(), window.end()), (0, 3000));
        assert_eq!(window.at(0).unwrap(), vec![0; 300]);
        assert_eq!(window.at(599).unwrap(), vec![1; 1]);
        assert_eq!(window.at(2999).unwrap(), vec![9; 1]);
        assert!(window.at(3000).is_none() && window.at(u64::MAX).is_none());
        assert!(empty().at(0).is_none());
    }

    #[test]
    fn trimming_lets_go_of_whole_pieces_only() {
        let mut window = window();
        window.trim(899);
        assert_eq!(window.start(), 600);
        assert!(window.at(599).is_none());
        assert_eq!(window.at(600).unwrap(), vec![2; 300]);
        window.trim(u64::MAX);
        assert_eq!((window.start(), window.end()), (3000, 3000));
    }

    #[test]
    fn copies_are_cut_at_both_ends() {
        let copied = window().copy_out(250, 100).concat();
        assert_eq!(copied, [vec![0; 50], vec![1; 50]].concat());
        assert_eq!(window().copy_out(2990, 100).concat().len(), 10);
    }

    #[test]
    fn bytes_one_by_one_are_put_together() {
        let mut window = empty();
        (0..100_000_u32).for_each(|number| window.push(vec![number as u8].into()));
        assert!(window.pieces.len() <= 100, "{}", window.pieces.len());
        let whole = window.copy_out(0, 100_000).concat();
        assert!(whole.iter().enumerate().all(|(index, byte)| *byte == index as u8));
    }

    #[test]
    fn what_windows_hold_is_counted_until_they_let_go_of_it() {
        let mut window = window();
        let mut other = Window::at_place(0, Arc::clone(&window.budget));
        other.push(vec![0; 50].into());
        assert_eq!(other.budget.held_bytes(), 3050);
        assert!(other.budget.is_used_up());
        window.trim(2100);
        assert_eq!(other.budget.held_bytes(), 950);
        assert!(!window.budget.is_used_up());
        drop(other);
        assert_eq!(window.budget.held_bytes(), 900);
        let budget = Arc::clone(&window.budget);
        drop(window);
        assert_eq!(budget.held_bytes(), 0);
    }
}
