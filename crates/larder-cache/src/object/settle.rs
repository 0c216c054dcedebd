//! What follows from the state for clients: promises, wake-ups and ends.

use super::{Action, Actions, CursorEnd, Head, PromiseRule, Tick, asks, core::Core, cursors::Cursor};

/// The effects of a change of the state on clients: promises, wake-ups and ends.
impl<H: Head> Core<H> {
    /// Gives the clients their promises, wakes those that have bytes to take, and ends those that are finished or
    /// cannot be served.
    pub(super) fn settle(&mut self, now: Tick, actions: &mut Actions) {
        for index in 0..self.cursors.len() {
            let is_due = !self.cursors[index].is_promised && self.can_promise(now, &self.cursors[index]);
            if is_due {
                self.cursors[index].is_promised = true;
                actions.push(Action::Promise(self.cursors[index].id));
            }
            self.wake(index, actions);
        }
        self.end_cursors(actions, |core, cursor| core.end_of(now, cursor));
    }

    /// Wakes the client at `index` if it waits and its next byte is in memory.
    pub(super) fn wake(&mut self, index: usize, actions: &mut Actions) {
        let has_bytes = self.has_bytes(&self.cursors[index]);
        let cursor = &mut self.cursors[index];
        if cursor.is_waiting && has_bytes {
            actions.push(Action::Wake(cursor.id));
        }
        cursor.is_waiting = !has_bytes;
    }

    /// Returns whether the client may be sent bytes and its next byte is in memory.
    pub(super) fn has_bytes(&self, cursor: &Cursor) -> bool {
        cursor.is_active() && self.map.is_in_memory(cursor.position())
    }

    /// Returns whether the client can be given its promise: the bytes that the promise needs are present, or come in
    /// responses whose heads have arrived.
    fn can_promise(&self, now: Tick, cursor: &Cursor) -> bool {
        if cursor.terms.promise == PromiseRule::Given {
            return true;
        }
        let is_open = |run: &usize| self.runs[*run].is_open;
        if cursor.terms.promise == PromiseRule::First && cursor.terms.may_ask && self.can_continue() {
            let first = cursor.remaining().next().map(|span| span.start..span.start + 1);
            let survey = self.view(now).survey(first.into_iter());
            return survey.unknown.is_none() && survey.gaps.is_empty() && survey.runs.iter().all(is_open);
        }
        let survey = self.view(now).survey(cursor.remaining());
        let are_open = survey.runs.iter().all(is_open);
        survey.unknown.is_none() && survey.gaps.is_empty() && are_open && !self.lacks_proof(cursor)
    }

    /// Returns whether the client wants the end of the body, but nothing proves that the body ends there: no response
    /// that ended as announced, and none in progress that may still do so.
    fn lacks_proof(&self, cursor: &Cursor) -> bool {
        self.map.len() == Some(cursor.end()) && !self.is_end_proved && !self.awaits_proof()
    }

    /// Returns the reason why the client ends now. `None` if it goes on.
    fn end_of(&self, now: Tick, cursor: &Cursor) -> Option<CursorEnd> {
        if cursor.is_promised && cursor.is_at_end() {
            let is_proof_coming = self.map.len() == Some(cursor.end()) && !self.is_end_proved && self.awaits_proof();
            let end = if self.lacks_proof(cursor) { CursorEnd::Broken } else { CursorEnd::Whole };
            return (!is_proof_coming).then_some(end);
        }
        let may_wait = self.can_continue() && (cursor.terms.may_ask || cursor.is_promised);
        if may_wait { None } else { self.end_at_gap(now, cursor) }
    }

    /// Ends clients that have a promise but may not cause requests, and whose next byte nothing brings. Returns whether
    /// it ended any.
    ///
    /// Such a client goes on while the cache or another client is about to request that byte.
    pub(super) fn end_stranded(&mut self, now: Tick, actions: &mut Actions) -> bool {
        let before = self.cursors.len();
        if self.cursors.iter().any(|cursor| !cursor.terms.may_ask) {
            self.end_cursors(actions, |core, cursor| {
                let is_alone =
                    cursor.is_active() && !cursor.terms.may_ask && !asks::is_due(&core.view(now), cursor.position());
                is_alone.then(|| core.end_at_gap(now, cursor)).flatten()
            });
        }
        self.cursors.len() < before
    }

    /// Returns the reason why a client ends if no further request is sent. `None` if the client still has bytes to
    /// take, or waits for a response in progress.
    pub(super) fn end_at_gap(&self, now: Tick, cursor: &Cursor) -> Option<CursorEnd> {
        let survey = self.view(now).survey(cursor.remaining());
        let gap = survey.gaps.first();
        if !cursor.is_promised {
            let is_unproved = survey.unknown.is_none() && self.lacks_proof(cursor);
            return (gap.is_some() || is_unproved).then_some(CursorEnd::AskAlone);
        }
        gap.filter(|gap| gap.start == cursor.position()).map(|_| CursorEnd::Broken)
    }

    /// Returns whether parts of different responses can be joined.
    pub(super) fn is_divisible(&self) -> bool {
        self.head.is_divisible() && !self.has_no_ranges
    }

    /// Returns whether another request may bring the missing bytes: the body is divisible, and the origin still has
    /// this representation as far as is known.
    pub(super) fn can_continue(&self) -> bool {
        self.is_divisible() && self.retries.may_find_same()
    }
}
