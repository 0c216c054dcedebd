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

/// Maximum number of concurrent probes of the store for one object.
const PROBES_MAX: usize = 64;

/// Maximum number of concurrent reads from the store for one object.
const READS_MAX: usize = 4;

/// The state of an object, as far as the plan for its next steps depends on it.
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
    /// Whether parts of different responses can be joined, so that another request can continue a response.
    pub(super) is_divisible: bool,
    /// Whether requests may be sent to the origin now. False while a retry has to wait, or if the body cannot be
    /// continued.
    pub(super) may_ask: bool,
    /// Whether the store may be read now. False for a while after a read has failed.
    pub(super) may_read: bool,
    /// Maximum distance in bytes for which a client waits for a response: from the response's next byte to the
    /// client's, see [`Sizes::ahead`].
    pub(super) reach: u64,
    /// Maximum number of bytes of the object in memory.
    pub(super) room: u64,
}

/// The next steps for an object: probes, reads, requests, and a verdict on each response in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Numbers of the chunks for which the store is to be probed.
    pub(super) probes: SmallVec<[u64; 4]>,
    /// Ranges to read from the store.
    pub(super) reads: Reads,
    /// Requests to send to the origin.
    pub(super) asks: SmallVec<[OriginAsk; 1]>,
    /// The verdict on each run (a response in progress), in the order of the view.
    pub(super) verdicts: SmallVec<[Verdict; 2]>,
}

/// Ranges to read from the store.
pub(super) type Reads = SmallVec<[Range<u64>; 4]>;

/// The verdict on a run: a response of the origin, requested or in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The response is received: a client or the cache itself needs its next bytes.
    Go,
    /// The response is paused: it is far enough ahead of its clients, or memory is used up.
    Hold,
    /// No client wants the response. It is received while `goes_on` is set, otherwise paused. If no client comes, it is
    /// stopped after a while.
    Unwanted { goes_on: bool },
    /// The response is stopped, because the bytes that it would bring are present, or come in another response.
    Stop,
}

/// Returns the next steps for what the clients and the cache itself want.
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

/// For each cursor (client), what is still missing for its spans. In the order of the cursors.
pub(super) type Surveys = SmallVec<[Survey; 2]>;

impl View<'_> {
    /// Returns what is still missing until all bytes of `spans` are present.
    pub(super) fn survey(&self, spans: impl Iterator<Item = Range<u64>>) -> Survey {
        survey(self.map, self.runs, self.reach, spans)
    }

    /// Returns what is still missing until the bytes are present that the cache itself wants to store.
    pub(super) fn kept_survey(&self) -> Survey {
        self.survey(self.keep.iter().flat_map(|keep| self.map.unstored_of(keep.clone())))
    }

    /// Returns whether the client could be sent its next byte but must wait, because the byte is not in memory.
    pub(super) fn is_hungry(&self, cursor: &Cursor) -> bool {
        cursor.is_active() && !self.map.is_in_memory(cursor.position())
    }

    /// Returns whether memory is used up.
    pub(super) fn is_full(&self) -> bool {
        self.map.held_bytes_after_reads() >= self.room
    }

    /// Returns whether another read can begin in addition to `others`, the reads that are already planned.
    pub(super) fn may_read_after(&self, others: &Reads) -> bool {
        self.may_read && self.map.reads() + others.len() < READS_MAX
    }

    /// Returns whether memory has room for `bytes` more that complete a chunk for the store.
    ///
    /// They may exceed the object's memory by up to a chunk, if it may use at least a chunk: to give up storing would
    /// cost more.
    pub(super) fn may_complete(&self, bytes: u64) -> bool {
        let excess = if self.room >= self.sizes.chunk { self.sizes.chunk } else { 0 };
        self.map.held_bytes_after_reads() + bytes <= self.room.saturating_add(excess)
    }

    /// Returns whether the response at `index` is received to the end of its chunk although memory is used up.
    ///
    /// A complete chunk can be stored, which frees memory. The responses that need the fewest bytes for that come
    /// first, so that at least one can always continue.
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

    /// Returns how many bytes can be read in addition to `others`, the reads that are already planned. `None` if there
    /// is no room.
    ///
    /// Room for one block is always granted if nothing is being read and nothing in memory can be read again.
    pub(super) fn room_after(&self, others: &Reads) -> Option<u64> {
        let is_only = self.map.reads() + others.len() == 0 && !self.map.holds_readable();
        let left = self.left_after(others);
        (self.may_read_after(others) && (is_only || left >= self.sizes.block)).then_some(left)
    }

    /// Returns whether `bytes` can be read or requested ahead of clients, in addition to `others`, the reads that are
    /// already planned.
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

    /// Returns whether responses must wait for the slowest client. They must if the body is neither stored nor
    /// divisible, because bytes that the client has missed could then not be got again.
    pub(super) fn is_slowest_in_charge(&self) -> bool {
        !(self.is_storing || self.is_divisible)
    }

    /// Returns whether responses wait for this client. They do not wait for one that was left behind, unless the
    /// slowest client sets the pace.
    pub(super) fn sets_pace(&self, cursor: &Cursor) -> bool {
        !cursor.is_left_behind || self.is_slowest_in_charge()
    }

    /// Returns the position in the body at which `run`, a response in progress, waits for its clients. `followers` are
    /// their positions.
    ///
    /// The fastest client sets the pace if the others can get the bytes again: from the store, or by another request in
    /// a divisible body. Otherwise the slowest client does.
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

/// Returns the chunks for which the store is to be probed: those that are wanted and may be in the store.
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

/// Adds to `found` the chunks of `span` that may be in the store and are not being probed yet.
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

/// Returns the ranges to read from the store. First come the next bytes of each waiting client, the longest waiting
/// first. Then, if memory allows, come the bytes that clients take soon.
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

/// Adds to `found` the stored chunk that contains the byte `at`, or as many blocks of it as memory allows.
fn read_at(view: &View<'_>, at: u64, found: &mut Reads) {
    let is_due = view.map.place(at).0 == Place::Store && !found.iter().any(|range| range.contains(&at));
    let Some(room) = view.room_after(found).filter(|_| is_due) else {
        return;
    };
    let range = view.map.read_at(at, room);
    found.retain(|other| other.end <= range.start || range.end <= other.start);
    found.push(range);
}

/// Adds to `found` the chunks of `span` that are only in the store, for as long as memory has room for them.
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

/// Returns what happens to the response at `index`.
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

/// Returns the clients that need bytes of the response at `index`.
fn followers<'a>(view: &View<'a>, index: usize, surveys: &Surveys) -> impl Iterator<Item = &'a Cursor> {
    let needed = view.cursors.iter().zip(surveys).filter(move |(_, survey)| survey.runs.contains(&index));
    needed.map(|(cursor, _)| cursor)
}

/// Returns whether the response at `index` should be stopped, because its next bytes are present or come in another
/// response. They must be so many that a new request for the bytes after them is worthwhile.
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

/// Returns the end of a response that brings the byte `at` and is ahead of the response at `index`. Of two responses at
/// the same position, the older one is ahead.
fn coming_ahead(runs: &[OriginRun], index: usize, at: u64) -> Option<u64> {
    let run = &runs[index];
    let is_ahead = |other: &&OriginRun| other.next > run.next || other.next == run.next && other.id < run.id;
    runs.iter().filter(is_ahead).find(|other| other.brings(at)).map(|other| other.end)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of spans may have one")]
mod tests;
