//! The store's answers, and what is stored: chunks, parts of chunks that nothing completes, and the head.

use super::{
    Action, Actions, CursorEnd, Head, ProbeEnd, ReadEnd, StoreEnd, Tick,
    chunk_map::Place,
    core::{CommittedExtent, Core},
    memory::Patience,
    plan::Reads,
};
use std::ops::Range;

/// Time in milliseconds after which the write of a chunk counts as too slow. If a client then waits for memory, storing
/// is given up.
const WRITE_MILLIS_MAX: u64 = 1_000;

/// Results of the store's work: of probes, reads and writes.
impl<H: Head> Core<H> {
    pub(super) fn end_probe(&mut self, now: Tick, chunk: u64, end: &ProbeEnd, actions: &mut Actions) {
        if !self.map.end_probe(chunk, end) {
            return;
        }
        let span = self.map.span_of(chunk);
        match end {
            ProbeEnd::Whole => self.is_end_proved |= self.is_last(chunk),
            // A part that reaches the end was stored only because the response had ended as announced.
            ProbeEnd::Part(part) => self.is_end_proved |= self.is_last(chunk) && part.end == span.end,
            ProbeEnd::Absent => {}
            ProbeEnd::Trouble => self.avoid_unprobed(now, span, actions),
        }
        // A chunk that was doubted may be the last one that the store seemed to lack. Without any response of the
        // origin, nothing is new.
        if self.next_run > 0 {
            self.commit(actions);
        }
    }

    /// Requests a chunk from the origin for which the probe of the store failed.
    ///
    /// If the origin cannot serve it, the clients that need it for their promise end: each sends a request of its own.
    fn avoid_unprobed(&mut self, now: Tick, span: Range<u64>, actions: &mut Actions) {
        let needs = |part: Range<u64>| part.start < span.end && span.start < part.end;
        self.end_cursors(actions, |core, cursor| {
            let may_go_around = core.can_continue() && cursor.terms.may_ask;
            let is_stuck = !may_go_around && !cursor.is_promised && cursor.remaining().any(needs);
            is_stuck.then_some(CursorEnd::AskAlone)
        });
        self.avoid(now, span, actions);
    }

    pub(super) fn end_read(&mut self, now: Tick, range: Range<u64>, found: ReadEnd, actions: &mut Actions) {
        if !self.map.end_read(&range) {
            return;
        }
        match found {
            ReadEnd::Bytes(bytes) if bytes.len() as u64 == range.end - range.start => {
                self.map.insert(range.start, &bytes);
                self.trouble.forget();
            }
            ReadEnd::Bytes(_) | ReadEnd::Absent => self.map.set_absent(self.map.chunk_of(range.start)),
            ReadEnd::Trouble => self.avoid(now, range, actions),
        }
    }

    /// Requests a part from the origin that the store could not read. If the origin cannot serve it, reads it again
    /// later.
    fn avoid(&mut self, now: Tick, span: Range<u64>, actions: &mut Actions) {
        if self.map.is_avoided(&span) {
            return;
        }
        if self.can_continue() && self.is_askable(&span) {
            let len = self.trouble.avoid(self.sizes.lead);
            self.map.avoid(span.start..span.start.saturating_add(len));
        } else if !self.trouble.wait(now) {
            self.trouble.forget();
            self.end_cursors(actions, |core, cursor| {
                let is_hungry = core.view(now).is_hungry(cursor) && span.contains(&cursor.position());
                is_hungry.then_some(CursorEnd::Broken)
            });
        }
    }

    /// Returns whether bytes of `span` may be requested: the cache itself wants them, or a client that may cause
    /// requests.
    fn is_askable(&self, span: &Range<u64>) -> bool {
        let meets = |part: &Range<u64>| part.start < span.end && span.start < part.end;
        let mut askers = self.cursors.iter().filter(|cursor| cursor.terms.may_ask);
        self.keep.as_ref().is_some_and(meets) || askers.any(|cursor| cursor.remaining().any(|part| meets(&part)))
    }

    pub(super) fn end_store(&mut self, now: Tick, (chunk, end): (u64, StoreEnd), actions: &mut Actions) {
        self.map.end_store(chunk, end);
        // A chunk less is what the client waits for.
        self.patience = self.patience.map(|_| Patience::new(now));
        match end {
            StoreEnd::Done | StoreEnd::Skipped => self.commit(actions),
            StoreEnd::Refused => self.give_up(actions),
        }
    }

    pub(super) fn end_part(&mut self, chunk: u64, end: StoreEnd, actions: &mut Actions) {
        self.map.end_part(chunk, end);
        self.commit(actions);
    }

    /// Stores each chunk that is in memory as a whole. The last chunk of the body waits until its response has ended as
    /// announced.
    pub(super) fn store_chunks(&mut self, now: Tick, actions: &mut Actions) {
        if !self.is_storing {
            return;
        }
        for chunk in self.map.chunks_in_memory() {
            let is_due = self.map.is_chunk_in_memory(chunk) && (self.is_end_proved || !self.is_last(chunk));
            if is_due && self.map.is_storable(chunk) && !self.map.is_storing(chunk) {
                self.map.begin_store(chunk, now.after(WRITE_MILLIS_MAX));
                actions.push(Action::Store(chunk, self.map.pieces_of(self.map.span_of(chunk))));
            }
        }
    }

    /// Reads the missing bytes of chunks from the store, if it has them all, so that the chunks can be stored as a
    /// whole.
    pub(super) fn complete_chunks(&mut self, now: Tick, actions: &mut Actions) {
        for chunk in self.map.chunks_in_memory() {
            let missing = self.map.missing_of(chunk);
            let Some(first) = missing.first().filter(|_| self.is_owed_to_store(now, chunk)) else {
                continue;
            };
            let is_readable = |hole: &Range<u64>| self.map.is_place(hole, Place::Store);
            if missing.iter().all(is_readable) && self.view(now).may_read_after(&Reads::new()) {
                let unit = self.map.unit_at(first.start);
                self.map.begin_read(unit.clone());
                actions.push(Action::Read(unit));
            }
        }
    }

    /// Stores parts of the chunks in memory that nothing will complete.
    pub(super) fn store_parts(&mut self, actions: &mut Actions) {
        for chunk in self.map.chunks_in_memory() {
            if let Some(part) = self.part_to_store(chunk) {
                self.map.begin_part(chunk, part.clone());
                let pieces = self.map.pieces_of(part.clone());
                actions.push(Action::StorePart { chunk, start: part.start, pieces });
            }
        }
    }

    /// Returns the part of `chunk` to store. `None` if the chunk is complete, if bytes of it are still coming, or if no
    /// part is worth storing.
    pub(super) fn part_to_store(&self, chunk: u64) -> Option<Range<u64>> {
        let can_be_found = self.is_storing && self.keeps_parts() && !self.is_outdated;
        if !can_be_found || !self.map.is_storable(chunk) || self.map.is_storing(chunk) {
            return None;
        }
        let missing = self.map.missing_of(chunk);
        let brings = |hole: &Range<u64>| self.runs.iter().any(|run| run.next < hole.end && hole.start < run.end);
        if missing.is_empty() || self.map.is_reading(chunk) || missing.iter().any(brings) {
            return None;
        }
        // The end of the body is stored only with the proof that this is the end.
        let is_proved = |part: &Range<u64>| self.is_end_proved || part.end < self.map.end();
        self.map.part_to_store(chunk).filter(is_proved).filter(|part| !self.takes_from_clients(chunk, part))
    }

    /// Returns whether storing `part` would replace stored bytes of `chunk` that clients want.
    fn takes_from_clients(&self, chunk: u64, part: &Range<u64>) -> bool {
        self.map.replaced_by(chunk, part).iter().any(|lost| {
            let wants = |span: Range<u64>| span.start < lost.end && lost.start < span.end;
            self.cursors.iter().any(|cursor| cursor.remaining().any(wants))
        })
    }

    /// Returns whether `chunk` contains the last byte of the body.
    fn is_last(&self, chunk: u64) -> bool {
        self.map.len() == Some(self.map.span_of(chunk).end)
    }

    /// Commits the head once the whole body is stored. If parts of the body may be stored, already commits it once the
    /// first bytes are.
    pub(super) fn commit(&mut self, actions: &mut Actions) {
        if self.keep.as_ref().is_some_and(|keep| self.map.unstored_of(keep.clone()).is_empty()) {
            self.keep = None;
        }
        if self.is_outdated || !self.is_storing {
            return;
        }
        if self.is_end_proved && self.map.is_whole_stored() {
            if self.committed != CommittedExtent::Whole {
                self.committed = CommittedExtent::Whole;
                actions.push(Action::CommitHead { is_whole: true });
            }
        } else if self.committed == CommittedExtent::Nothing && self.keeps_parts() && self.map.has_stored() {
            self.committed = CommittedExtent::Part;
            actions.push(Action::CommitHead { is_whole: false });
        }
    }
}
