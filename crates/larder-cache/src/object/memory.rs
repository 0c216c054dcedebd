//! Drops bytes from memory that nobody wants, and makes room when memory is used up.
//!
//! Bytes that can be read from the store leave at any time, those of standing cursors first. Bytes that are only in
//! memory are owed to the cursors before them, and to the store until it has them.

use super::{Action, Actions, Head, chunk_map::Place, core::Core, cursors::Cursor, plan::View, span_set::SpanSet};
use crate::object::{CursorId, Tick};
use std::ops::Range;

/// Why a client that waits gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Memory is used up.
    Memory,
    /// The run waits for a slower cursor.
    Pace,
}

impl<H: Head> Core<H> {
    /// Drops from memory what nobody wants.
    pub(super) fn release(&mut self) {
        for chunk in self.map.chunks_in_memory() {
            if self.is_owed_to_store(chunk) {
                continue;
            }
            let span = self.map.span_of(chunk);
            let wanted = self.wanted_of(span.clone());
            for hole in wanted.holes(span) {
                self.map.drop_from_memory(hole);
            }
        }
    }

    /// Returns the bytes of a chunk that cursors want. What can be read from the store is wanted when a cursor comes
    /// near, then as a whole, so that it is read once.
    fn wanted_of(&self, chunk: Range<u64>) -> SpanSet {
        let is_readable = self.map.is_readable(chunk.start);
        let is_owed = |cursor: &&Cursor| !(cursor.is_left_behind && (is_readable || self.can_continue()));
        let mut wanted = SpanSet::default();
        for cursor in self.cursors.iter().filter(is_owed) {
            let near = cursor.position().saturating_add(self.sizes.lead.max(1));
            for span in cursor.remaining().take_while(|span| span.start < chunk.end) {
                let part = span.start.max(chunk.start)..span.end.min(chunk.end);
                if !is_readable || part.start < near {
                    wanted.insert(part);
                }
            }
        }
        wanted
    }

    /// Returns whether `chunk` stays in memory until the store has it: it is being stored, or its remainder is coming.
    fn is_owed_to_store(&self, chunk: u64) -> bool {
        let span = self.map.span_of(chunk);
        if !self.is_storing || self.map.is_all_stored(&span) {
            return false;
        }
        if self.map.is_storing(chunk) {
            return true;
        }
        let is_coming = |hole: &Range<u64>| self.runs.iter().any(|run| run.brings(hole.start) && run.end >= hole.end);
        let is_proof_coming = || self.is_end_proved || span.end < self.map.end() || self.awaits_proof();
        let hole = self.map.missing_of(chunk);
        hole.iter().all(is_coming) && is_proof_coming()
    }

    /// Makes room for the clients that wait while memory is used up, in the order of the harm that it does.
    pub(super) fn make_room(&mut self, now: Tick, actions: &mut Actions) {
        self.release();
        while let Some(block) = self.block(now) {
            let is_done = block == Block::Memory
                && (self.drop_read_ahead()
                    || self.drop_standing(now)
                    || self.give_up_for_memory(actions)
                    || self.leave_behind(now)
                    || self.drop_later());
            if !is_done {
                break;
            }
            self.release();
        }
        self.count_hold_ups(now);
    }

    /// Returns what keeps a waiting client from its bytes, if something does that another client or the store causes.
    pub(super) fn block(&self, now: Tick) -> Option<Block> {
        let view = self.view(now);
        let waiting = self.cursors.iter().filter(|cursor| view.is_hungry(cursor));
        waiting.filter_map(|cursor| self.block_of(&view, cursor)).next()
    }

    /// Returns what keeps a waiting client from its bytes.
    fn block_of(&self, view: &View<'_>, cursor: &Cursor) -> Option<Block> {
        match self.map.place(cursor.position()).0 {
            Place::Store => (self.map.reads() == 0 && !view.may_read_after(0)).then_some(Block::Memory),
            Place::Absent => {
                let next = view.survey(std::iter::once(cursor.position()..cursor.position() + 1));
                let run = &self.runs[*next.runs.first()?];
                let is_behind = run.next >= self.pace_of(view, run.next);
                let is_full = self.map.held_bytes_after_reads() >= view.room && self.map.reads() == 0;
                match run.is_open {
                    true if is_full => Some(Block::Memory),
                    true if is_behind => Some(Block::Pace),
                    _ => None,
                }
            }
            Place::Memory | Place::Reading | Place::Unknown => None,
        }
    }

    /// Returns the byte up to which the slowest cursor allows a run of an indivisible body that is not stored.
    fn pace_of(&self, view: &View<'_>, next: u64) -> u64 {
        let is_behind = |cursor: &&Cursor| !cursor.is_at_end() && view.sets_pace(cursor) && cursor.position() <= next;
        let behind = self.cursors.iter().filter(is_behind);
        let slowest = behind.map(Cursor::position).min().filter(|_| view.is_slowest_in_charge());
        slowest.map_or(u64::MAX, |position| position.saturating_add(self.sizes.lead))
    }

    /// Drops a chunk that was read ahead of the cursors. Returns whether there was one.
    fn drop_read_ahead(&mut self) -> bool {
        self.drop_chunk(false, |_| false)
    }

    /// Drops a chunk whose cursors all stand still. Returns whether there was one.
    fn drop_standing(&mut self, now: Tick) -> bool {
        self.drop_chunk(false, |cursor| cursor.is_standing(now))
    }

    /// Drops bytes that no cursor takes next and that the origin can send again. Returns whether there were some. What
    /// a cursor without a promise wants stays, because its promise waits for all of it.
    fn drop_later(&mut self) -> bool {
        self.can_continue() && self.drop_chunk(true, |_| false)
    }

    /// Drops the last chunk that can be read again, or any with `is_any`, and has bytes for those cursors only that may
    /// wait. They are left behind.
    fn drop_chunk(&mut self, is_any: bool, may_wait: impl Fn(&Cursor) -> bool) -> bool {
        let map = &self.map;
        let feeds = |chunk: &Range<u64>, cursor: &Cursor| {
            cursor.is_active() && chunk.contains(&cursor.position()) && map.is_in_memory(cursor.position())
        };
        let wants = |chunk: &Range<u64>, cursor: &Cursor| {
            cursor.remaining().any(|span| span.start < chunk.end && chunk.start < span.end)
        };
        let may_go = |chunk: &Range<u64>| {
            let mut fed = self.cursors.iter().filter(|cursor| feeds(chunk, cursor));
            let is_free = || is_any && !self.cursors.iter().any(|cursor| !cursor.is_promised && wants(chunk, cursor));
            (map.is_readable(chunk.start) || is_free()) && fed.all(&may_wait)
        };
        let chunks = map.chunks_in_memory();
        let Some(chunk) = chunks.iter().rev().map(|&chunk| map.span_of(chunk)).find(may_go) else {
            return false;
        };
        for cursor in &mut self.cursors {
            cursor.is_left_behind |= feeds(&chunk, cursor);
        }
        self.map.drop_from_memory(chunk);
        true
    }

    /// Gives up storing if memory is full of what the store has not taken. Returns whether it did.
    fn give_up_for_memory(&mut self, actions: &mut Actions) -> bool {
        let is_owing = self.is_storing && self.map.chunks_in_memory().iter().any(|&chunk| self.is_owed_to_store(chunk));
        if is_owing {
            self.give_up(actions);
        }
        is_owing
    }

    /// Stops storing, for good.
    pub(super) fn give_up(&mut self, actions: &mut Actions) {
        if self.is_storing {
            self.is_storing = false;
            self.keep = None;
            actions.push(Action::GivenUp);
        }
    }

    /// Leaves the slowest cursor of a divisible body behind: it gets a run of its own when it moves. Returns whether
    /// there was one.
    fn leave_behind(&mut self, now: Tick) -> bool {
        let view = self.view(now);
        let may_go = |cursor: &&Cursor| {
            let is_owed = cursor.is_back && !cursor.is_standing(now);
            cursor.is_active() && !is_owed && !view.is_hungry(cursor) && !self.map.is_readable(cursor.position())
        };
        let slowest = slowest(self.cursors.iter().filter(|_| self.can_continue()).filter(may_go));
        let cursor = self.cursors.iter_mut().find(|cursor| Some(cursor.id) == slowest);
        cursor.map(|cursor| cursor.is_left_behind = true).is_some()
    }

    /// Counts the time for which the slowest cursor holds up others that cannot be served without it.
    fn count_hold_ups(&mut self, now: Tick) {
        let holder = self.block(now).and_then(|block| self.holder(now, block));
        for cursor in &mut self.cursors {
            cursor.set_holding(Some(cursor.id) == holder, now);
        }
    }

    /// Returns the slowest cursor that can take bytes, or could before it was left behind. One whose bytes can be read
    /// from the store does not count when memory is short.
    fn holder(&self, now: Tick, block: Block) -> Option<CursorId> {
        let view = self.view(now);
        let holds = |cursor: &&Cursor| {
            let is_only_in_memory = cursor.is_left_behind || !self.map.is_readable(cursor.position());
            let may_take = cursor.is_promised && !cursor.is_at_end() && !view.is_hungry(cursor);
            may_take && (block == Block::Pace || is_only_in_memory)
        };
        slowest(self.cursors.iter().filter(holds))
    }
}

/// Returns the cursor with the lowest position.
fn slowest<'a>(cursors: impl Iterator<Item = &'a Cursor>) -> Option<CursorId> {
    cursors.min_by_key(|cursor| cursor.position()).map(|cursor| cursor.id)
}
