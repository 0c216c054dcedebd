//! The clients of an object: what each wants, and how far it has come.

use super::{CursorId, CursorTerms, Spans, Tick};
use std::ops::Range;

/// Time after which a client that has bytes to take, but takes none, counts as standing still, in milliseconds.
pub(super) const STANDING_AFTER_MILLIS: u64 = 1_000;

/// Total time for which one client may hold up others. After that, the client is disconnected (`CursorEnd::TooSlow`).
const HOLD_UP_MILLIS_MAX: u64 = 10_000;

/// A client that reads a body: what it wants, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cursor {
    pub(super) id: CursorId,
    pub(super) terms: CursorTerms,
    spans: Spans,
    position: u64,
    /// Whether the client has its promise that the bytes will come, so that the head of its response may have been
    /// sent.
    pub(super) is_promised: bool,
    /// Whether the client found no bytes at its position and must be woken when some are there.
    pub(super) is_waiting: bool,
    /// Whether the bytes at the client's position were dropped, because it was too slow. Nothing is fetched for such a
    /// client until it moves.
    pub(super) is_left_behind: bool,
    /// Whether the client was left behind once (its bytes were dropped), and then moved again.
    ///
    /// Each time that a client is left behind costs a request. So such a client is left behind again only while it
    /// stands still.
    pub(super) is_back: bool,
    /// The time from which the client counts as standing still, unless it moves before.
    pub(super) stands_from: Tick,
    /// Milliseconds for which the client may still hold up others before it is disconnected.
    patience_millis: u64,
    /// The time at which the client is disconnected for holding up others. `None` while it holds up nobody.
    pub(super) holds_until: Option<Tick>,
}

impl Cursor {
    /// Creates a client at the start of its first span.
    pub(super) fn new(id: CursorId, spans: Spans, terms: CursorTerms, now: Tick) -> Self {
        debug_assert!(spans.iter().all(|span| span.start < span.end), "{spans:?}");
        debug_assert!(spans.is_sorted_by(|before, after| before.end <= after.start), "{spans:?}");
        Self {
            id,
            terms,
            position: spans.first().map_or(0, |span| span.start),
            spans,
            is_promised: false,
            is_waiting: true,
            is_left_behind: false,
            is_back: false,
            stands_from: now.after(STANDING_AFTER_MILLIS),
            patience_millis: HOLD_UP_MILLIS_MAX,
            holds_until: None,
        }
    }

    /// Returns the position in the body of the next byte that the client takes.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the end of the client's last span, 0 if it has none.
    pub(super) fn end(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.end)
    }

    /// Iterates over what the client has not taken yet of its spans.
    pub(super) fn remaining(&self) -> impl Iterator<Item = Range<u64>> {
        let left = |span: &Range<u64>| span.start.max(self.position)..span.end;
        self.spans.iter().map(left).filter(|span| !span.is_empty())
    }

    /// Returns whether the client wants a single contiguous part of the body.
    pub(super) fn has_one_span(&self) -> bool {
        self.spans.len() == 1
    }

    /// Returns whether the client has taken all its bytes.
    pub(super) fn is_at_end(&self) -> bool {
        self.position >= self.end()
    }

    /// Returns the end of the span that the client is reading, or its position if it has taken all spans.
    pub(super) fn span_end(&self) -> u64 {
        self.remaining().next().map_or(self.position, |span| span.end)
    }

    /// Moves the client to `position`. If a span ends there, moves it on to the start of the next one.
    pub(super) fn move_to(&mut self, position: u64, now: Tick) {
        debug_assert!(position >= self.position || self.remaining().next().is_some(), "{self:?} moves back");
        self.is_back |= self.is_left_behind;
        self.position = self.position.max(position.min(self.end()));
        let next = self.remaining().next().map(|span| span.start);
        self.position = next.unwrap_or(self.position);
        self.is_left_behind = false;
        self.stands_from = now.after(STANDING_AFTER_MILLIS);
    }

    /// Cuts the client's spans at the end of the body, whose length became known.
    pub(super) fn clip(&mut self, len: u64) {
        self.spans.retain_mut(|span| {
            span.end = span.end.min(len);
            !span.is_empty()
        });
    }

    /// Returns whether bytes can be sent to the client: it has its promise, was not left behind, and has not taken all
    /// its bytes.
    pub(super) fn is_active(&self) -> bool {
        self.is_promised && !self.is_left_behind && !self.is_at_end()
    }

    /// Returns whether the client has taken no bytes for so long that it counts as standing still.
    pub(super) fn is_standing(&self, now: Tick) -> bool {
        self.stands_from <= now
    }

    /// Starts or stops counting the time for which the client holds up others.
    pub(super) fn set_holding(&mut self, is_holding: bool, now: Tick) {
        match (is_holding, self.holds_until) {
            (true, None) => self.holds_until = Some(now.after(self.patience_millis)),
            (false, Some(until)) => {
                self.patience_millis = until.0.saturating_sub(now.0);
                self.holds_until = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::PromiseRule;
    use smallvec::smallvec;

    const TERMS: CursorTerms = CursorTerms { may_ask: true, promise: PromiseRule::All };

    #[test]
    fn position_skips_to_the_next_span() {
        let mut cursor = Cursor::new(CursorId(1), smallvec![2..4, 8..12], TERMS, Tick(0));
        assert_eq!(cursor.position(), 2);
        cursor.move_to(4, Tick(0));
        assert_eq!(cursor.position(), 8);
        cursor.move_to(12, Tick(0));
        assert!(cursor.is_at_end());
    }

    #[test]
    fn time_that_a_cursor_holds_up_others_adds_up() {
        let mut cursor = Cursor::new(CursorId(1), smallvec![0..4], TERMS, Tick(0));
        cursor.set_holding(true, Tick(0));
        cursor.set_holding(true, Tick(1_000));
        cursor.set_holding(false, Tick(4_000));
        cursor.set_holding(true, Tick(50_000));
        assert_eq!(cursor.holds_until, Some(Tick(56_000)));
    }

    #[test]
    fn spans_are_cut_at_the_end_of_the_body() {
        let mut cursor = Cursor::new(CursorId(1), smallvec![2..4, 8..u64::MAX], TERMS, Tick(0));
        cursor.clip(8);
        assert_eq!(cursor.end(), 4);
    }
}
