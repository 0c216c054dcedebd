//! Decides about probes, reads, requests and runs: a function of the bytes that are present, coming and wanted.
//!
//! [`plan`] is pure, and the core calls it after every event. It never repeats a step that is in progress, because
//! those are part of its argument.

use super::{
    OriginAsk, Sizes, Tick,
    asks::asks,
    chunk_map::{ChunkMap, Place},
    cursors::Cursor,
    runs::OriginRun,
    survey::{Survey, survey},
};
use smallvec::SmallVec;
use std::ops::Range;

/// Most probes of the store at a time.
const PROBES_MAX: usize = 64;

/// Most reads of the store at a time.
const READS_MAX: usize = 4;

/// The facts that the plan depends on.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) sizes: Sizes,
    pub(super) map: &'a ChunkMap,
    pub(super) runs: &'a [OriginRun],
    pub(super) cursors: &'a [Cursor],
    /// The bytes that the cache itself wants to be stored.
    pub(super) keep: Option<Range<u64>>,
    pub(super) now: Tick,
    /// Whether arriving bytes are stored.
    pub(super) is_storing: bool,
    /// Whether another request can continue a run.
    pub(super) is_divisible: bool,
    /// Whether requests may be sent now.
    pub(super) may_ask: bool,
    /// Whether the store may be read now.
    pub(super) may_read: bool,
    /// Greatest distance from a run's next byte to a byte for which a client waits for the run, see [`Sizes::ahead`].
    pub(super) reach: u64,
    /// Most bytes that may be in memory.
    pub(super) room: u64,
}

/// The next steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Chunks to probe the store for.
    pub(super) probes: SmallVec<[u64; 4]>,
    /// Ranges to read.
    pub(super) reads: Reads,
    /// Requests to send.
    pub(super) asks: SmallVec<[OriginAsk; 1]>,
    /// The verdict on each run, in the order of the runs.
    pub(super) verdicts: SmallVec<[Verdict; 2]>,
}

/// Ranges to read from the store.
pub(super) type Reads = SmallVec<[Range<u64>; 4]>;

/// A verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The run goes on.
    Go,
    /// The run waits.
    Hold,
    /// No client wants the run. It continues to the end of a chunk and then waits; after a while it is stopped.
    Unwanted { goes_on: bool },
    /// The run is stopped, because what it would bring is present or coming.
    Stop,
}

/// Returns the next steps, which follow from what the clients and the cache itself want.
pub(super) fn plan(view: &View<'_>) -> Plan {
    let surveys: Surveys = view.cursors.iter().map(|cursor| view.survey(cursor.remaining())).collect();
    let kept = view.kept_survey();
    Plan {
        probes: probes(view, &surveys, &kept),
        reads: reads(view),
        asks: asks(view, &surveys, &kept),
        verdicts: (0..view.runs.len()).map(|run| verdict(view, run, &surveys, &kept)).collect(),
    }
}

/// The surveys of all cursors, in the order of the cursors.
pub(super) type Surveys = SmallVec<[Survey; 2]>;

impl View<'_> {
    /// Returns what is still needed for all bytes of `spans` to be present.
    pub(super) fn survey(&self, spans: impl Iterator<Item = Range<u64>>) -> Survey {
        survey(self.map, self.runs, self.reach, spans)
    }

    /// Returns what is still needed for the bytes that the cache itself wants to store.
    pub(super) fn kept_survey(&self) -> Survey {
        self.survey(self.keep.iter().flat_map(|keep| self.map.unstored_of(keep.clone())))
    }

    /// Returns whether a client waits for its next byte.
    pub(super) fn is_hungry(&self, cursor: &Cursor) -> bool {
        cursor.is_active() && !self.map.is_in_memory(cursor.position())
    }

    /// Returns whether memory is used up.
    pub(super) fn is_full(&self) -> bool {
        self.map.held_bytes_after_reads() >= self.room
    }

    /// Returns whether a read can begin after `others`.
    pub(super) fn may_read_after(&self, others: &Reads) -> bool {
        self.may_read && self.map.reads() + others.len() < READS_MAX
    }

    /// Returns whether this number of bytes may still come, to complete a chunk for the store.
    ///
    /// They may exceed the room by a chunk if the object's share is at least a chunk, because giving up storing would
    /// cost more.
    pub(super) fn may_complete(&self, bytes: u64) -> bool {
        let excess = if self.room >= self.sizes.chunk { self.sizes.chunk } else { 0 };
        self.map.held_bytes_after_reads() + bytes <= self.room.saturating_add(excess)
    }

    /// Returns whether the run at `index` continues to the end of its chunk although memory is used up.
    ///
    /// A chunk that is complete can be stored, which frees memory. The runs that need the least memory for that come
    /// first, so at least one can always continue.
    fn completes(&self, index: usize) -> bool {
        let to_come = |run: &OriginRun| {
            let chunk = self.map.chunk_of(run.next);
            let span = self.map.span_of(chunk);
            let is_owed = self.map.is_storable(chunk) && self.map.has_all(span.start..run.next);
            let is_within = run.next > span.start && run.end >= span.end;
            if is_owed && is_within { span.end - run.next } else { 0 }
        };
        let own = to_come(&self.runs[index]);
        if !self.is_storing || own == 0 {
            return false;
        }
        let others = self.runs.iter().enumerate().map(|(other, run)| (to_come(run), other));
        let before: u64 = others.filter(|other| *other < (own, index)).map(|(bytes, _)| bytes).sum();
        before == 0 && self.room >= self.sizes.chunk || self.may_complete(before + own)
    }

    /// Returns how many bytes can be read in addition to `others`, which will be read too. `None` if there is no room.
    ///
    /// If nothing is being read and nothing in memory can be read again, there is always room for one block.
    pub(super) fn room_after(&self, others: &Reads) -> Option<u64> {
        let is_only = self.map.reads() + others.len() == 0 && !self.map.holds_readable();
        let left = self.left_after(others);
        (self.may_read_after(others) && (is_only || left >= self.sizes.block)).then_some(left)
    }

    /// Returns whether `bytes` can be read or requested ahead, in addition to `others`.
    ///
    /// Memory for another chunk must stay free. Otherwise the bytes would have to be dropped again as soon as a client
    /// waited for that chunk.
    pub(super) fn may_get_ahead_after(&self, others: &Reads, bytes: u64) -> bool {
        let fits = self.left_after(others) >= bytes.saturating_add(self.sizes.chunk);
        fits && self.may_read_after(others)
    }

    fn left_after(&self, others: &Reads) -> u64 {
        let taken: u64 = others.iter().map(|range| range.end - range.start).sum();
        self.room.saturating_sub(self.map.held_bytes_after_reads() + taken)
    }

    /// Returns whether runs wait for the slowest cursor, because bytes that it misses could not be read or requested
    /// again.
    pub(super) fn is_slowest_in_charge(&self) -> bool {
        !(self.is_storing || self.is_divisible)
    }

    /// Returns whether runs take this cursor's position into account.
    pub(super) fn sets_pace(&self, cursor: &Cursor) -> bool {
        !cursor.is_left_behind || self.is_slowest_in_charge()
    }

    /// Returns the byte at which `run` waits for its cursors.
    ///
    /// The fastest cursor sets the pace if the others can get the bytes again: from the store, or by another request in
    /// a divisible body. Otherwise the slowest does.
    pub(super) fn limit(&self, run: &OriginRun, followers: impl Iterator<Item = u64>) -> u64 {
        let pace = if self.is_slowest_in_charge() { followers.min() } else { followers.max() };
        // Each run has its part of the room, so that none takes the memory from the others.
        let part = if self.runs.len() > 1 { self.room / self.runs.len() as u64 } else { u64::MAX };
        let lead = self.sizes.lead.min(part.max(self.sizes.block));
        let limit = pace.map_or(run.next, |position| position.saturating_add(lead));
        // A stored run leaves no part of a chunk when it waits.
        let chunk = self.map.span_of(self.map.chunk_of(limit.saturating_sub(1)));
        if self.is_storing && pace.is_some() { limit.max(chunk.end) } else { limit }
    }
}

/// Returns the chunks to probe: wanted ones of which it is not known whether the store has them.
fn probes(view: &View<'_>, surveys: &Surveys, kept: &Survey) -> SmallVec<[u64; 4]> {
    let mut found = SmallVec::new();
    if !view.may_read {
        return found;
    }
    for (cursor, survey) in view.cursors.iter().zip(surveys) {
        if survey.unknown.is_some() {
            cursor.remaining().for_each(|span| probe_span(view, span, &mut found));
        }
    }
    if let (Some(keep), Some(_)) = (&view.keep, kept.unknown) {
        probe_span(view, keep.clone(), &mut found);
    }
    found
}

/// Adds the unknown chunks of `span`.
fn probe_span(view: &View<'_>, span: Range<u64>, found: &mut SmallVec<[u64; 4]>) {
    let mut at = span.start;
    while at < span.end && view.map.probes() + found.len() < PROBES_MAX {
        let (place, end) = view.map.place(at);
        if place != Place::Unknown {
            at = end;
            continue;
        }
        let chunk = view.map.chunk_of(at);
        if !view.map.is_probing(chunk) && !found.contains(&chunk) {
            found.push(chunk);
        }
        at = view.map.span_of(chunk).end;
    }
}

/// Returns the ranges to read: first the next bytes of each cursor that waits, the longest waiting first. Then, if
/// memory allows, the bytes behind them.
fn reads(view: &View<'_>) -> Reads {
    let mut found = Reads::new();
    if !view.may_read {
        return found;
    }
    let mut active: SmallVec<[&Cursor; 4]> = view.cursors.iter().filter(|cursor| cursor.is_active()).collect();
    active.sort_by_key(|cursor| cursor.stands_from);
    for cursor in active.iter().filter(|cursor| view.is_hungry(cursor)) {
        read_at(view, cursor.position(), &mut found);
    }
    for cursor in active.iter().filter(|cursor| !cursor.is_standing(view.now)) {
        let limit = cursor.position().saturating_add(view.sizes.lead);
        for span in cursor.remaining().take_while(|span| span.start < limit) {
            read_ahead(view, span.start..span.end.min(limit), &mut found);
        }
    }
    found
}

/// Adds the chunk at `at`, or as many blocks of it as memory allows.
fn read_at(view: &View<'_>, at: u64, found: &mut Reads) {
    let is_due = view.map.place(at).0 == Place::Store && !found.iter().any(|range| range.contains(&at));
    let Some(room) = view.room_after(found).filter(|_| is_due) else {
        return;
    };
    let range = view.map.read_at(at, room);
    found.retain(|other| other.end <= range.start || range.end <= other.start);
    found.push(range);
}

/// Adds the chunks of `span` that are in the store alone, as far as they can be read now.
fn read_ahead(view: &View<'_>, span: Range<u64>, found: &mut Reads) {
    let mut at = span.start;
    while at < span.end {
        let (place, end) = view.map.place(at);
        if place != Place::Store {
            at = end;
            continue;
        }
        let next = view.map.read_at(at, u64::MAX);
        at = next.end.min(end);
        if found.iter().any(|range| range.start < next.end && next.start < range.end) {
            continue;
        }
        if !view.may_get_ahead_after(found, next.end - next.start) {
            return;
        }
        found.push(next);
    }
}

/// Returns what happens to the run at `index`.
fn verdict(view: &View<'_>, index: usize, surveys: &Surveys, kept: &Survey) -> Verdict {
    let run = &view.runs[index];
    if run.is_all_here() {
        let is_awaited = view.keep.is_some() || view.cursors.iter().any(|cursor| cursor.end() == run.end);
        return if is_awaited { Verdict::Go } else { Verdict::Unwanted { goes_on: true } };
    }
    if view.is_divisible && run.is_open && is_overtaken(view, index) {
        return Verdict::Stop;
    }
    let is_kept = kept.runs.contains(&index);
    let followers: SmallVec<[&Cursor; 4]> = followers(view, index, surveys).collect();
    if followers.is_empty() && !is_kept {
        let is_within = view.is_storing && !run.next.is_multiple_of(view.sizes.chunk);
        let goes_on = is_within && (!view.is_full() || view.completes(index));
        return Verdict::Unwanted { goes_on };
    }
    let positions = followers.iter().filter(|cursor| view.sets_pace(cursor)).map(|cursor| cursor.position());
    let kept_to = view.keep.as_ref().filter(|_| is_kept).map_or(0, |keep| keep.end);
    let is_ahead = run.next >= view.limit(run, positions).max(kept_to);
    let is_full = || view.is_full() && !view.completes(index);
    if run.is_open && (is_ahead || is_full()) { Verdict::Hold } else { Verdict::Go }
}

/// Returns the cursors that need bytes of the run at `index`.
fn followers<'a>(view: &View<'a>, index: usize, surveys: &Surveys) -> impl Iterator<Item = &'a Cursor> {
    let needed = view.cursors.iter().zip(surveys).filter(move |(_, survey)| survey.runs.contains(&index));
    needed.map(|(cursor, _)| cursor)
}

/// Returns whether the bytes that the run would bring next are present, or come in another run, and are so many that a
/// new request after them is worthwhile.
fn is_overtaken(view: &View<'_>, index: usize) -> bool {
    let run = &view.runs[index];
    let mut at = run.next;
    while at < run.end {
        let (place, end) = view.map.place(at);
        at = match place {
            Place::Memory | Place::Reading | Place::Store => end,
            Place::Unknown | Place::Absent => match coming_ahead(view.runs, index, at) {
                Some(end) => end,
                None => break,
            },
        };
    }
    let overlap = at.min(run.end) - run.next;
    overlap > 0 && (overlap >= view.sizes.gap || at >= run.end)
}

/// Returns the end of another run that is ahead of the run at `index` and brings the byte `at`. Of two runs that are
/// equally far, the older one is ahead.
fn coming_ahead(runs: &[OriginRun], index: usize, at: u64) -> Option<u64> {
    let run = &runs[index];
    let is_ahead = |other: &&OriginRun| other.next > run.next || other.next == run.next && other.id < run.id;
    runs.iter().filter(is_ahead).find(|other| other.brings(at)).map(|other| other.end)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of spans may have one")]
mod tests;
