//! What readers need to know about each segment, without taking the log's lock.
//!
//! Cost: 20 bytes of memory per segment, 1.25 MiB per terabyte at 16 MiB a segment.

use crate::{
    format::{LogOrder, SegmentUse},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    units::SegmentId,
};

/// Maximum lifetime of a short-lived entry, in seconds.
const SHORT_LIFE_S: u32 = 3600;

/// The properties of each segment that readers need. The log writes them; readers read them without the log's lock.
pub(crate) struct SegmentTable(Box<[SegmentState]>);

#[derive(Default)]
struct SegmentState {
    /// Sequence of the segment's present use; 0 before the first use.
    sequence: AtomicU32,
    /// Anchor of the present use ([`SegmentUse::anchor`]).
    anchor: AtomicU32,
    /// Unix time in seconds after which all short-lived entries of the segment have expired.
    short_deadline: AtomicU32,
    /// Unix time in seconds after which all entries of the segment that are not short-lived have expired.
    long_deadline: AtomicU32,
    /// Whether the device may lack a part of the segment.
    dirty: AtomicBool,
}

impl SegmentTable {
    pub(crate) fn new(segment_count: u32) -> Self {
        Self((0..segment_count).map(|_| SegmentState::default()).collect())
    }

    /// Begins the use `of` of a segment.
    pub(crate) fn begin(&self, segment: SegmentId, of: SegmentUse, dirty: bool) {
        let state = &self.0[segment.index()];
        state.short_deadline.store(0, Ordering::Relaxed);
        state.long_deadline.store(0, Ordering::Relaxed);
        state.dirty.store(dirty, Ordering::Relaxed);
        state.anchor.store(of.anchor, Ordering::Relaxed);
        state.sequence.store(of.sequence, Ordering::Release);
    }

    /// Notes that an entry was stored in a segment. Returns whether the entry is short-lived.
    pub(crate) fn note(&self, segment: SegmentId, expires_at: u32, now_s: u32) -> bool {
        let state = &self.0[segment.index()];
        let short_lived = expires_at != 0 && expires_at <= now_s.saturating_add(SHORT_LIFE_S);
        let deadline = if short_lived { &state.short_deadline } else { &state.long_deadline };
        deadline.fetch_max(if expires_at == 0 { u32::MAX } else { expires_at }, Ordering::Relaxed);
        short_lived
    }

    /// Returns whether all entries of a segment with this value of `short_lived` have expired.
    pub(crate) fn is_useless(&self, segment: SegmentId, short_lived: bool, now_s: u32) -> bool {
        let state = &self.0[segment.index()];
        let deadline = if short_lived { &state.short_deadline } else { &state.long_deadline };
        now_s > deadline.load(Ordering::Relaxed)
    }

    /// Returns the Unix times in seconds after which the segment's short-lived entries, and its other entries, have
    /// expired.
    pub(crate) fn deadlines(&self, segment: SegmentId) -> (u32, u32) {
        let state = &self.0[segment.index()];
        (state.short_deadline.load(Ordering::Relaxed), state.long_deadline.load(Ordering::Relaxed))
    }

    /// Restores the deadlines that an earlier run saved in the checkpoint.
    pub(crate) fn note_deadlines(&self, segment: SegmentId, short: u32, long: u32) {
        let state = &self.0[segment.index()];
        state.short_deadline.fetch_max(short, Ordering::Relaxed);
        state.long_deadline.fetch_max(long, Ordering::Relaxed);
    }

    pub(crate) fn set_clean(&self, segment: SegmentId) {
        self.0[segment.index()].dirty.store(false, Ordering::Release);
    }

    pub(crate) fn is_dirty(&self, segment: SegmentId) -> bool {
        self.0[segment.index()].dirty.load(Ordering::Acquire)
    }

    pub(crate) fn sequence(&self, segment: SegmentId) -> u32 {
        self.0[segment.index()].sequence.load(Ordering::Acquire)
    }

    /// Returns the segment's present use.
    pub(crate) fn segment_use(&self, segment: SegmentId) -> SegmentUse {
        let sequence = self.sequence(segment);
        SegmentUse { sequence, anchor: self.0[segment.index()].anchor.load(Ordering::Relaxed) }
    }

    pub(crate) fn order(&self, segment: SegmentId) -> LogOrder {
        self.segment_use(segment).order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_useless_only_when_the_last_of_their_kind_is() {
        let table = SegmentTable::new(2);
        let segment = SegmentId(1);
        table.begin(segment, SegmentUse::main(5), true);
        assert!(table.note(segment, 1100, 1000) && table.note(segment, 1200, 1000));
        assert!(!table.note(segment, 90_000, 1000));
        assert!(!table.is_useless(segment, true, 1200) && table.is_useless(segment, true, 1201));
        assert!(!table.is_useless(segment, false, 1201));
        table.note(segment, 0, 1000);
        assert!(!table.is_useless(segment, false, u32::MAX), "an entry without a deadline is never useless");
    }
}
