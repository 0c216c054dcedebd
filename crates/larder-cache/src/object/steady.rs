//! The short way for the two events of a body that flows: bytes that a run brings within a chunk, and a client that
//! takes some of what is there. Where nothing new has to be planned, the consequences are a wake-up and bytes to drop.
//!
//! The way must do exactly what the long one does. Builds with debug assertions walk both after each event, so the
//! exhaustive model compares them in every state. Wherever a condition is costly to decide, the answer is the long way.

use super::{
    Actions, Arrival, CursorId, Event, Head, RunId, chunk_map::Place, core::Core, cursors::Cursor, plan::Reads,
    runs::OriginRun,
};
use std::ops::Range;

/// An event that may need no new plan, with parts of the state before it: the moved client's position or the response's
/// next byte, and the numbers of responses and clients.
#[derive(Clone, Debug)]
pub(super) struct Step {
    kind: StepKind,
    runs: usize,
    cursors: usize,
}

#[derive(Clone, Debug)]
enum StepKind {
    /// A client moved. The second field is its position before the move.
    Moved(CursorId, u64),
    /// A response brought bytes. The second field is the position of its next byte before they came.
    Came(RunId, u64),
}

impl<H: Head> Core<H> {
    /// Returns the event and parts of the state as a step, if the event may need no new plan. Must be called before the
    /// event is applied.
    pub(super) fn step_of(&self, event: &Event<H>) -> Option<Step> {
        let is_waiting = self.patience.is_some() || self.trouble.read_at.is_some() || self.retries.ask_at.is_some();
        if is_waiting || self.keep.is_some() || !self.retries.may_find_same() {
            return None;
        }
        let kind = match event {
            Event::Moved(id, _) => {
                let cursor = self.cursor(*id).filter(|cursor| !cursor.is_left_behind)?;
                StepKind::Moved(*id, cursor.position())
            }
            Event::Came(id, Arrival::Bytes(_)) => {
                let run = self.runs.iter().find(|run| run.id == *id)?;
                StepKind::Came(*id, run.next)
            }
            _ => return None,
        };
        Some(Step { kind, runs: self.runs.len(), cursors: self.cursors.len() })
    }

    /// Executes a step without a new plan, if nothing follows from it but a wake-up and bytes to drop. Returns `false`
    /// if a plan is needed; nothing is changed then.
    pub(super) fn follow_step(&mut self, step: &Step, actions: &mut Actions) -> bool {
        if self.runs.len() != step.runs || self.cursors.len() != step.cursors || !self.is_steady() {
            return false;
        }
        match step.kind {
            StepKind::Moved(id, from) => self.follow_move(id, from, actions),
            StepKind::Came(id, from) => self.follow_bytes(id, from, actions),
        }
    }

    /// Returns whether the object is in its usual state: at most one response in progress, and every client with a
    /// promise, a single span, and nobody held up.
    fn is_steady(&self) -> bool {
        let flows = |run: &OriginRun| run.is_open && run.unwanted_until.is_none() && !run.is_all_here();
        let is_served = |cursor: &Cursor| {
            cursor.is_promised
                && !cursor.is_left_behind
                && cursor.holds_until.is_none()
                && cursor.terms.may_ask
                && cursor.has_one_span()
        };
        self.runs.len() <= 1
            && self.runs.iter().all(flows)
            && self.cursors.iter().all(is_served)
            && self.map.has_only_chunks()
            // The first bytes may stay, or go all at once.
            && (self.is_storing || !self.map.is_in_memory(0))
    }

    fn follow_bytes(&mut self, id: RunId, from: u64, actions: &mut Actions) -> bool {
        let Some(run) = self.runs.first().filter(|run| run.id == id && run.paused_until.is_none()) else {
            return false;
        };
        let to = run.next;
        let is_within = self.map.chunk_of(from) == self.map.chunk_of(to);
        let is_near = |cursor: &Cursor| to < cursor.position().saturating_add(self.sizes.lead);
        let is_taker = |cursor: &Cursor| cursor.position() <= from && cursor.span_end() > to && is_near(cursor);
        let waits_for_run = |cursor: &Cursor| self.has_bytes(cursor) || cursor.position() >= to;
        let is_quiet = is_within
            && from < to
            && self.map.place(to).0 == Place::Absent
            && self.cursors.iter().any(is_taker)
            && (self.is_storing || self.is_divisible() || self.cursors.iter().all(is_near))
            && self.cursors.iter().all(waits_for_run)
            && self.map.held_bytes_after_reads() < self.room();
        if is_quiet {
            (0..self.cursors.len()).for_each(|index| self.wake(index, actions));
        }
        is_quiet
    }

    fn follow_move(&mut self, id: CursorId, from: u64, actions: &mut Actions) -> bool {
        let Ok(index) = self.cursors.binary_search_by_key(&id, |cursor| cursor.id) else {
            return false;
        };
        let cursor = &self.cursors[index];
        let to = cursor.position();
        if cursor.is_at_end() || !self.keeps_pace(cursor, to) || !self.is_window_quiet(cursor) {
            return false;
        }
        let Some(dropped) = self.dropped_by(index, from..to) else {
            return false;
        };
        let is_roomy = self.room().saturating_sub(self.map.held_bytes_after_reads()) >= 2 * self.sizes.chunk;
        if !is_roomy && (self.cursors.len() > 1 || !self.has_bytes(cursor)) {
            return false;
        }
        for span in dropped {
            self.map.drop_from_memory(span);
        }
        self.wake(index, actions);
        true
    }

    /// Returns whether the response in progress stays as it is after the client's move to `to`: received, or paused.
    fn keeps_pace(&self, cursor: &Cursor, to: u64) -> bool {
        let Some(run) = self.runs.first() else {
            return true;
        };
        if run.paused_until.is_none() {
            return to <= run.next && (self.is_storing || self.is_divisible() || self.has_bytes(cursor));
        }
        let fastest = self.cursors.iter().map(Cursor::position).max().unwrap_or(0);
        let limit = fastest.saturating_add(self.sizes.lead);
        let chunk = self.map.span_of(self.map.chunk_of(limit));
        self.has_bytes(cursor) && run.next >= if self.is_storing { chunk.end } else { limit }
    }

    /// Returns whether the client's next bytes, up to [`Sizes::lead`](super::Sizes::lead) ahead, are all in memory,
    /// being read, or coming in the response in progress.
    fn is_window_quiet(&self, cursor: &Cursor) -> bool {
        let end = cursor.position().saturating_add(self.sizes.lead).min(cursor.span_end());
        let mut at = cursor.position();
        while at < end {
            let (place, until) = self.map.place(at);
            at = match place {
                Place::Memory | Place::Reading => until,
                Place::Absent => return self.runs.first().is_some_and(|run| run.next == at && run.end >= end),
                Place::Store | Place::Unknown => return false,
            };
        }
        true
    }

    /// Returns the bytes to drop from memory once the client has taken `taken`. `None` if the other clients or the
    /// store may need some of them, which only a full pass can tell.
    fn dropped_by(&self, index: usize, taken: Range<u64>) -> Option<Reads> {
        let mut dropped = Reads::new();
        let mut at = taken.start;
        while at < taken.end {
            let chunk = self.map.chunk_of(at);
            let span = self.map.span_of(chunk);
            let part = at..taken.end.min(span.end);
            at = part.end;
            if self.is_surely_owed(chunk) {
                continue;
            }
            let others = || self.cursors.iter().enumerate().filter(|(other, _)| *other != index);
            let wants_all = |other: &Cursor| {
                let is_near = span.start < other.position().saturating_add(self.sizes.lead);
                other.position() <= part.start && other.span_end() >= part.end && is_near
            };
            if others().any(|(_, other)| wants_all(other)) {
                continue;
            }
            let is_owed = self.is_storing && self.map.is_storable(chunk);
            if is_owed || others().any(|(_, other)| other.position() < part.end) {
                return None;
            }
            dropped.push(part);
        }
        Some(dropped)
    }

    /// Returns whether `chunk` certainly stays in memory for the store: it is being stored, or a response will complete
    /// it and memory has all of it that came so far.
    fn is_surely_owed(&self, chunk: u64) -> bool {
        let span = self.map.span_of(chunk);
        let brings = |run: &OriginRun| {
            span.contains(&run.next) && run.end >= span.end && self.map.is_all_in_memory(span.start..run.next)
        };
        let is_owed = self.is_storing && self.map.is_storable(chunk);
        is_owed && (self.map.is_storing(chunk) || self.runs.iter().any(brings))
    }
}
