//! Drops bytes from memory that nobody wants, and makes room when memory is used up.
//!
//! Bytes that can be read from the store leave at any time, those of standing cursors first. Bytes that are only in
//! memory stay for the cursors that have not reached them, and until the store has them.

use super::{
    Action, Actions, Head,
    chunk_map::Place,
    core::Core,
    cursors::Cursor,
    plan::{Reads, View},
    runs::OriginRun,
    span_set::SpanSet,
};
use crate::object::{CursorId, Tick};
use std::ops::Range;

/// Time in milliseconds after which storing is given up if no bytes arrive. It counts while a client waits because
/// memory is full of bytes that the store has not taken.
///
/// Storing is given up for good, so later clients have to wait for the origin.
const PATIENCE_MILLIS: u64 = 500;
/// Time in milliseconds after which storing is given up although bytes arrive, if no chunk becomes complete. It counts
/// while a client waits because memory is full of bytes that the store has not taken.
const CHUNK_PATIENCE_MILLIS: u64 = 10_000;
/// The deadlines for storing while a client waits because memory is full of bytes that the store has not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Patience {
    /// The time at which storing is given up unless more bytes arrive before.
    without_bytes: Tick,
    /// The time at which storing is given up even if bytes arrive.
    without_chunk: Tick,
}

impl Patience {
    pub(super) fn new(now: Tick) -> Self {
        Self { without_bytes: now.after(PATIENCE_MILLIS), without_chunk: now.after(CHUNK_PATIENCE_MILLIS) }
    }

    /// Returns the deadlines with the first one moved on, because bytes have arrived.
    pub(super) fn after_progress(self, now: Tick) -> Self {
        Self { without_bytes: now.after(PATIENCE_MILLIS), ..self }
    }

    /// Returns the time at which storing is given up: the earlier of the two deadlines.
    pub(super) fn end(self) -> Tick {
        self.without_bytes.min(self.without_chunk)
    }
}

/// The reason why a client waits, if another client or the store is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Memory is used up, so nothing can be read or received for the client.
    Memory,
    /// The response that brings the client's bytes waits until a slower client has caught up.
    Pace,
}

impl<H: Head> Core<H> {
    /// Drops the bytes from memory that neither a client nor the store needs any more.
    pub(super) fn release(&mut self, now: Tick) {
        if self.keeps_start() {
            return;
        }
        for chunk in self.map.chunks_in_memory() {
            if self.is_owed_to_store(now, chunk) {
                continue;
            }
            for (unit, is_readable) in self.map.units_of(chunk) {
                let wanted = self.wanted_of(unit.clone(), is_readable);
                for hole in wanted.holes(unit) {
                    self.map.drop_from_memory(hole);
                }
            }
        }
    }

    /// Returns whether all bytes that have arrived stay in memory, even those that no client needs.
    ///
    /// They stay if the body is not stored, while memory has room for them, so that a new client can still get the
    /// first bytes.
    pub(super) fn keeps_start(&self) -> bool {
        let has_room = || self.map.held_bytes_after_reads() < self.room().min(self.sizes.kept);
        !self.is_storing && !self.cursors.is_empty() && self.map.is_in_memory(0) && has_room()
    }

    /// Returns the bytes of `unit`, a chunk or a part of one, that must stay in memory for clients.
    ///
    /// Bytes that can be read from the store (`is_readable`) stay up to the end of the unit once a client comes near,
    /// so that they are read only once.
    fn wanted_of(&self, unit: Range<u64>, is_readable: bool) -> SpanSet {
        let comes_again = |cursor: &Cursor| is_readable || self.can_continue() && cursor.terms.may_ask;
        let is_owed = |cursor: &&Cursor| !(cursor.is_left_behind && comes_again(cursor));
        let mut wanted = SpanSet::default();
        for cursor in self.cursors.iter().filter(is_owed) {
            let near = cursor.position().saturating_add(self.sizes.lead.max(1));
            for span in cursor.remaining().take_while(|span| span.start < unit.end) {
                let part = span.start.max(unit.start)..span.end.min(unit.end);
                if !is_readable || part.start < near {
                    wanted.insert(part);
                }
            }
        }
        wanted
    }

    /// Returns whether `chunk` stays in memory until the store has it.
    ///
    /// It stays while it is being stored, or while its missing bytes are coming from the origin or from the store. If
    /// nothing more is coming, it stays if a part of it is worth storing.
    pub(super) fn is_owed_to_store(&self, now: Tick, chunk: u64) -> bool {
        if !self.is_storing || !self.map.is_storable(chunk) {
            return false;
        }
        self.map.is_storing(chunk)
            || self.is_being_completed(now, chunk)
            || self.is_part_coming(chunk)
            || self.part_to_store(chunk).is_some()
    }

    /// Returns whether a response in progress brings more of a part of `chunk` that will be stored. Returns `false`
    /// while memory is short, because clients must then not wait for the part to grow.
    fn is_part_coming(&self, chunk: u64) -> bool {
        let span = self.map.span_of(chunk);
        let brings_part = |run: &OriginRun| {
            let is_within = span.start < run.next && run.next < run.end.min(span.end);
            is_within && self.map.is_in_memory(run.next - 1)
        };
        self.share >= self.sizes.chunk && self.keeps_parts() && self.runs.iter().any(brings_part)
    }

    fn is_being_completed(&self, now: Tick, chunk: u64) -> bool {
        let span = self.map.span_of(chunk);
        let is_proof_coming = self.is_end_proved || span.end < self.map.end() || self.awaits_proof();
        if !is_proof_coming {
            return false;
        }
        let mut to_read = 0;
        let mut is_run_awaited = false;
        for hole in self.map.missing_of(chunk) {
            let mut at = hole.start;
            while at < hole.end {
                let (place, end) = self.map.place(at);
                let part = at..end.min(hole.end);
                match place {
                    Place::Store => to_read += part.end - part.start,
                    Place::Memory | Place::Reading => {}
                    Place::Absent if self.is_coming(&part) => is_run_awaited = true,
                    Place::Absent | Place::Unknown => return false,
                }
                at = part.end;
            }
        }
        let may_read = || self.is_divisible() && self.view(now).may_read && self.view(now).may_complete(to_read);
        to_read == 0 || is_run_awaited || may_read()
    }

    /// Returns whether a single response of the origin, requested or in progress, will bring all bytes of `part`.
    fn is_coming(&self, part: &Range<u64>) -> bool {
        self.runs.iter().any(|run| run.brings(part.start) && run.end >= part.end)
    }

    /// Frees memory while clients wait because it is used up. Tries the least harmful way first.
    pub(super) fn make_room(&mut self, now: Tick, actions: &mut Actions) {
        self.release(now);
        self.drop_excess(now);
        let mut is_patient = false;
        while self.block(now) == Some(Block::Memory) {
            let is_done = self.drop_read_ahead() || self.drop_standing(now);
            is_patient = !is_done && self.owes_to_store(now) && !self.is_patience_over(now);
            if is_patient
                || !(is_done || self.give_up_for_memory(now, actions) || self.leave_behind(now) || self.drop_later())
            {
                break;
            }
            self.release(now);
        }
        let patience = self.patience.unwrap_or_else(|| Patience::new(now));
        self.patience = is_patient.then_some(patience);
        self.count_hold_ups(now);
    }

    /// Drops bytes that can be read again if the object uses more than its share and the share is less than a chunk.
    ///
    /// With a larger share, stored bytes stay for their clients, because a store can lose what it has accepted.
    fn drop_excess(&mut self, now: Tick) {
        let room = self.view(now).room;
        if room >= self.sizes.chunk {
            return;
        }
        // One block in the excess is no reason to read it again.
        let enough = room.saturating_add(self.sizes.block.max(room / 4));
        while self.map.held_bytes() > enough && (self.drop_read_ahead() || self.drop_standing(now)) {}
    }

    /// Returns why a client waits, if another client or the store is the cause. `None` if no client waits for such a
    /// reason.
    pub(super) fn block(&self, now: Tick) -> Option<Block> {
        let view = self.view(now);
        let waiting = self.cursors.iter().filter(|cursor| view.is_hungry(cursor));
        waiting.filter_map(|cursor| self.block_of(&view, cursor)).next()
    }

    /// Returns why this client waits, if another client or the store is the cause.
    fn block_of(&self, view: &View<'_>, cursor: &Cursor) -> Option<Block> {
        match self.map.place(cursor.position()).0 {
            Place::Store => (view.may_read && self.map.reads() == 0 && view.room_after(&Reads::new()).is_none())
                .then_some(Block::Memory),
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

    /// Returns the position at which responses wait for the slowest client, in a body that is neither divisible nor
    /// stored. `u64::MAX` in other bodies.
    fn pace_of(&self, view: &View<'_>, next: u64) -> u64 {
        let is_behind = |cursor: &&Cursor| !cursor.is_at_end() && view.sets_pace(cursor) && cursor.position() <= next;
        let behind = self.cursors.iter().filter(is_behind);
        let slowest = behind.map(Cursor::position).min().filter(|_| view.is_slowest_in_charge());
        slowest.map_or(u64::MAX, |position| position.saturating_add(self.sizes.lead))
    }

    /// Drops the last block that can be read again from the store and that no client takes next. Returns `false` if
    /// there is no such block.
    fn drop_read_ahead(&mut self) -> bool {
        self.drop_block(false, |_| false)
    }

    /// Drops the last block that can be read again from the store and whose clients all stand still. Returns `false` if
    /// there is no such block.
    fn drop_standing(&mut self, now: Tick) -> bool {
        self.drop_block(false, |cursor| cursor.is_standing(now))
    }

    /// Drops bytes that no client takes next and that the origin can send again. Returns whether it dropped any.
    ///
    /// If possible, it drops so many that a request for them is worthwhile. It keeps the bytes of a client without a
    /// promise, because the promise needs all of them, and of a client that may not cause a request.
    fn drop_later(&mut self) -> bool {
        let before = self.map.held_bytes();
        let has_room = |core: &Self| before - core.map.held_bytes() >= core.sizes.gap;
        while self.can_continue() && !has_room(self) && self.drop_block(true, |_| false) {}
        self.map.held_bytes() < before
    }

    /// Drops the last block in memory that can be read again from the store, and that only clients for which `may_wait`
    /// is true take next. With `is_any`, the block may also be one that the origin must send again.
    ///
    /// The clients that take the block next are left behind: they get bytes again when they move. Returns `false` if
    /// there is no such block.
    fn drop_block(&mut self, is_any: bool, may_wait: impl Fn(&Cursor) -> bool) -> bool {
        let map = &self.map;
        let feeds = |block: &Range<u64>, cursor: &Cursor| {
            cursor.is_active() && block.contains(&cursor.position()) && map.is_in_memory(cursor.position())
        };
        let wants = |block: &Range<u64>, cursor: &Cursor| {
            cursor.remaining().any(|span| span.start < block.end && block.start < span.end)
        };
        let is_bound = |cursor: &Cursor| !(cursor.is_promised && cursor.terms.may_ask);
        let may_go = |(block, is_readable): &(Range<u64>, bool)| {
            let mut fed = self.cursors.iter().filter(|cursor| feeds(block, cursor));
            let is_free = || is_any && !self.cursors.iter().any(|cursor| is_bound(cursor) && wants(block, cursor));
            (*is_readable || is_free()) && fed.all(&may_wait)
        };
        let chunks = map.chunks_in_memory();
        let blocks = chunks.iter().rev().flat_map(|&chunk| map.blocks_in_memory(chunk).into_iter().rev());
        let Some((block, _)) = blocks.into_iter().find(may_go) else {
            return false;
        };
        for cursor in &mut self.cursors {
            cursor.is_left_behind |= feeds(&block, cursor);
        }
        self.map.drop_from_memory(block);
        true
    }

    /// Returns whether memory has bytes that stay there until the store has taken them.
    fn owes_to_store(&self, now: Tick) -> bool {
        self.is_storing && self.map.chunks_in_memory().iter().any(|&chunk| self.is_owed_to_store(now, chunk))
    }

    /// Returns whether the store has had enough time to take the bytes that fill the memory while a client waits.
    fn is_patience_over(&self, now: Tick) -> bool {
        let has_come = |time: Option<Tick>| time.is_some_and(|time| time <= now);
        has_come(self.patience.map(Patience::end)) || has_come(self.map.overdue_at())
    }

    /// Gives up storing if memory has bytes that the store has not taken. Returns whether it did.
    fn give_up_for_memory(&mut self, now: Tick, actions: &mut Actions) -> bool {
        let is_owing = self.owes_to_store(now);
        if is_owing {
            self.give_up(actions);
        }
        is_owing
    }

    /// Stops storing the body, for good.
    pub(super) fn give_up(&mut self, actions: &mut Actions) {
        if self.is_storing {
            self.is_storing = false;
            self.keep = None;
            actions.push(Action::GivenUp);
        }
    }

    /// Leaves one client behind, if the body is divisible: nothing stays in memory for it, and when it moves, it gets a
    /// request of its own. Returns `false` if no client can be left behind.
    ///
    /// Chooses the client that has not moved for the longest time.
    fn leave_behind(&mut self, now: Tick) -> bool {
        let view = self.view(now);
        let may_go = |cursor: &&Cursor| {
            let is_owed = cursor.is_back && !cursor.is_standing(now) || !cursor.terms.may_ask;
            cursor.is_active() && !is_owed && !view.is_hungry(cursor) && !self.map.is_readable(cursor.position())
        };
        let candidates = self.cursors.iter().filter(|_| self.can_continue()).filter(may_go);
        let last_to_move = candidates.min_by_key(|cursor| (cursor.stands_from, cursor.position()));
        let left = last_to_move.map(|cursor| cursor.id);
        let cursor = self.cursors.iter_mut().find(|cursor| Some(cursor.id) == left);
        cursor.map(|cursor| cursor.is_left_behind = true).is_some()
    }

    /// Counts the time for which the slowest client holds up others that wait because of it.
    fn count_hold_ups(&mut self, now: Tick) {
        let holder = self.block(now).and_then(|block| self.holder(now, block));
        for cursor in &mut self.cursors {
            cursor.set_holding(Some(cursor.id) == holder, now);
        }
    }

    /// Returns the slowest of the clients that could take bytes now, or could before they were left behind. `block` is
    /// what the other clients wait for.
    ///
    /// While they wait for memory, a client whose bytes can be read from the store does not count.
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

/// Returns the client with the lowest position.
fn slowest<'a>(cursors: impl Iterator<Item = &'a Cursor>) -> Option<CursorId> {
    cursors.min_by_key(|cursor| cursor.position()).map(|cursor| cursor.id)
}
