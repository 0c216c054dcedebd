//! The origin's responses as they arrive: whether they belong to this body, and what follows when one ends or breaks
//! off.

use super::{Action, Actions, Arrival, CursorEnd, Head, RunId, Tick, core::Core, runs::OriginRun};
use bytes::Bytes;
use std::ops::Range;

/// Handles what arrives from the origin: heads, bytes, ends and failures of responses.
impl<H: Head> Core<H> {
    pub(super) fn arrive(&mut self, now: Tick, id: RunId, arrival: Arrival<H>, actions: &mut Actions) {
        let Some(index) = self.runs.iter().position(|run| run.id == id) else {
            return;
        };
        let is_true = match arrival {
            Arrival::Head { head, span, is_whole } => self.arrive_head(index, &head, (span, is_whole), actions),
            Arrival::Bytes(bytes) => {
                self.patience = self.patience.map(|patience| patience.after_progress(now));
                self.arrive_bytes(index, &bytes)
            }
            Arrival::End(received) if self.has_ended_well(index, received) => return self.end_run(index, actions),
            Arrival::End(_) | Arrival::Broken => return self.lose_run(now, index, actions),
        };
        if !is_true {
            actions.push(Action::Stop(id));
            self.lose_run(now, index, actions);
        }
    }

    /// Accepts the head of a response, or hands the response to the driver (the code around the core) if it has another
    /// representation. Returns `false` if the head does not match the request.
    fn arrive_head(&mut self, index: usize, head: &H, announced: (Range<u64>, bool), actions: &mut Actions) -> bool {
        let (span, is_whole) = announced;
        if self.runs[index].is_open {
            return false;
        }
        if head.validator().is_none() || head.validator() != self.head.validator() {
            let run = self.runs.remove(index);
            actions.push(Action::Other(run.id));
            self.retries.see_other();
            self.outdate(actions);
            return true;
        }
        if head.len() != self.map.len() {
            return false;
        }
        if is_whole { self.open_whole(index, actions) } else { self.open_range(index, span) }
    }

    /// Opens a run (a response of the origin) that brings the whole body.
    ///
    /// If a range was requested, the whole body shows that the origin does not support ranges. Unanswered requests for
    /// ranges are stopped, because this run brings their bytes, too.
    fn open_whole(&mut self, index: usize, actions: &mut Actions) -> bool {
        let len = self.map.end();
        let run = &mut self.runs[index];
        run.is_open = true;
        run.next = 0;
        run.end = len;
        if run.is_range {
            self.has_no_ranges = true;
            self.map.avoid_nothing();
            self.stop_runs(actions, |_, run| run.is_range && !run.is_open);
        }
        true
    }

    fn open_range(&mut self, index: usize, span: Range<u64>) -> bool {
        let len = self.map.end();
        let run = &mut self.runs[index];
        let is_true = span.start == run.next && span.start < span.end && span.end <= len;
        if is_true {
            run.is_open = true;
            run.end = span.end;
        }
        is_true
    }

    /// Adds bytes of a response to the object. Returns `false` if the response did not announce all of them.
    fn arrive_bytes(&mut self, index: usize, bytes: &Bytes) -> bool {
        let run = &mut self.runs[index];
        if !run.is_open {
            return false;
        }
        let kept = bytes.slice(..(run.end - run.next).min(bytes.len() as u64) as usize);
        let head = &self.head;
        self.map.append(run.next, &kept, |joined| head.counted(joined));
        self.retries.see_same();
        run.next += kept.len() as u64;
        run.received += kept.len() as u64;
        if run.received >= self.sizes.chunk {
            self.retries.forget_failures();
        }
        kept.len() == bytes.len()
    }

    /// Returns whether all bytes that the response announced have come. `received` is the number of body bytes that the
    /// driver received, if it is known.
    fn has_ended_well(&self, index: usize, received: Option<u64>) -> bool {
        let run = &self.runs[index];
        let is_all_here = run.is_all_here() || run.is_open && self.is_open_ended(run);
        is_all_here && received.is_none_or(|received| received == run.received)
    }

    /// Returns whether the length of the body becomes known only at the end of this response.
    fn is_open_ended(&self, run: &OriginRun) -> bool {
        run.end == u64::MAX && self.map.len().is_none()
    }

    fn end_run(&mut self, index: usize, actions: &mut Actions) {
        let run = self.runs.remove(index);
        if self.is_open_ended(&run) {
            self.set_len(run.next);
        }
        self.is_end_proved |= self.map.len() == Some(run.next);
        self.retries.forget_failures();
        self.commit(actions);
    }

    /// Sets the length of the body, which became known when the response ended. Spans beyond it are cut.
    fn set_len(&mut self, len: u64) {
        self.map.set_len(len);
        for cursor in &mut self.cursors {
            cursor.clip(len);
        }
        self.keep = self.keep.take().map(|keep| keep.start..keep.end.min(len)).filter(|keep| !keep.is_empty());
    }

    /// Removes a response that broke off.
    ///
    /// Clients that waited for it and were sent nothing yet leave the object and send requests of their own. So each
    /// gets the origin's own error.
    fn lose_run(&mut self, now: Tick, index: usize, actions: &mut Actions) {
        self.end_cursors(actions, |core, cursor| {
            let depends = || core.view(now).survey(cursor.remaining()).runs.contains(&index);
            (!cursor.is_promised && depends()).then_some(CursorEnd::AskAlone)
        });
        let run = self.runs.remove(index);
        if run.is_all_here() && run.end < self.map.end() {
            return;
        }
        if run.is_all_here() && self.is_divisible() {
            self.drop_unproved_end();
        }
        let is_wanted = self.keep.is_some() || !self.cursors.is_empty();
        if self.is_divisible() && is_wanted && !self.retries.fail(now, run.received > 0) {
            self.end_retries(now, actions);
        }
    }

    /// Drops the last chunk from memory, so that it is requested again. Keeps it if its response ended as announced, or
    /// may still do so.
    fn drop_unproved_end(&mut self) {
        if !self.is_end_proved && !self.awaits_proof() {
            let last = self.map.chunk_of(self.map.end().saturating_sub(1));
            self.map.drop_from_memory(self.map.span_of(last));
        }
    }

    /// Gives up asking the origin, after too many failures. Ends the cursors (clients) whose missing bytes only the
    /// origin could serve.
    fn end_retries(&mut self, now: Tick, actions: &mut Actions) {
        self.retries.forget_failures();
        self.map.avoid_nothing();
        self.keep = None;
        self.end_cursors(actions, |core, cursor| core.end_at_gap(now, cursor));
    }

    /// Returns whether a response in progress reaches the end of the body. If it then ends as announced, it proves that
    /// the body is complete.
    pub(super) fn awaits_proof(&self) -> bool {
        self.runs.iter().any(|run| run.end == self.map.end())
    }
}
