//! The requests to the origin: for bytes that are neither present nor coming, joined where one request serves several
//! wants.

use super::{
    OriginAsk, PromiseRule, Sizes,
    cursors::Cursor,
    plan::{Reads, Surveys, View},
    survey::Survey,
};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Maximum number of gaps in one span that get a request each. With more gaps, a single request covers them all.
const GAPS_MAX: usize = 3;

/// Returns the requests to send: for wanted bytes that are neither present nor coming.
pub(super) fn asks(view: &View<'_>, surveys: &Surveys, kept: &Survey) -> SmallVec<[OriginAsk; 1]> {
    if !view.may_ask {
        return SmallVec::new();
    }
    let mut gaps: SmallVec<[Range<u64>; 4]> = SmallVec::new();
    for (cursor, survey) in view.cursors.iter().zip(surveys) {
        gaps.extend(due_gaps(view, cursor, survey));
    }
    gaps.extend(kept_gap(view, kept));
    gaps.sort_by_key(|gap| gap.start);
    let requested = join(view.sizes, gaps);
    requested.into_iter().flat_map(|gap| requests(view, gap)).collect()
}

/// Returns whether a client or the cache itself needs the byte `at` to be requested now, because nothing brings it.
pub(super) fn is_due(view: &View<'_>, at: u64) -> bool {
    let mut cursors = view.cursors.iter();
    let kept = view.kept_survey();
    kept_gap(view, &kept).is_some_and(|gap| gap.contains(&at))
        || cursors.any(|cursor| {
            let survey = view.survey(cursor.remaining());
            due_gaps(view, cursor, &survey).iter().any(|gap| gap.contains(&at))
        })
}

/// Returns the gap that must be requested now for the bytes that the cache itself wants to store.
fn kept_gap(view: &View<'_>, kept: &Survey) -> Option<Range<u64>> {
    let first = kept.gaps.first().filter(|_| kept.unknown.is_none());
    first.map(|gap| before_cut(view.sizes, gap.clone()))
}

/// Returns the part of a gap before the first position at which the body is divided ([`Sizes::cut`]).
fn before_cut(sizes: Sizes, gap: Range<u64>) -> Range<u64> {
    gap.start..gap.end.min((gap.start / sizes.cut + 1).saturating_mul(sizes.cut))
}

/// Returns the gaps that must be requested now for a cursor (a client).
///
/// Before the cursor's promise, these are all of its gaps, or only the first one if the promise needs no more. After
/// the promise, it is the next gap, once the cursor comes near.
fn due_gaps(view: &View<'_>, cursor: &Cursor, survey: &Survey) -> SmallVec<[Range<u64>; 2]> {
    if !cursor.terms.may_ask {
        return SmallVec::new();
    }
    if !cursor.is_promised {
        let all = if survey.unknown.is_some() { SmallVec::new() } else { survey.gaps.clone() };
        let mut joined: SmallVec<[Range<u64>; 2]> =
            cursor.remaining().flat_map(|span| join_many(&all, &span)).collect();
        if cursor.terms.promise == PromiseRule::First {
            joined.truncate(1);
            joined.iter_mut().for_each(|gap| *gap = before_cut(view.sizes, gap.clone()));
        }
        return joined;
    }
    let near = cursor.position().saturating_add(view.sizes.lead);
    // The pieces of a divided body are requested one after the other.
    let asks_ahead = cursor.terms.promise != PromiseRule::First;
    let is_near =
        |gap: &Range<u64>| asks_ahead && gap.start < near && view.may_get_ahead_after(&Reads::new(), view.sizes.chunk);
    let is_due = |gap: &Range<u64>| gap.start == cursor.position() || is_near(gap) && !cursor.is_standing(view.now);
    // What is behind the gap may be absent, too.
    let is_known = |gap: &Range<u64>| survey.unknown != Some(gap.end);
    let next = survey.gaps.first().filter(|gap| cursor.is_active() && is_due(gap) && is_known(gap));
    next.map(|gap| before_cut(view.sizes, gap.clone())).into_iter().collect()
}

/// Returns the gaps in one span. If there are more than `GAPS_MAX`, returns a single gap from the start of the first
/// one to the end of the last one.
fn join_many(gaps: &[Range<u64>], span: &Range<u64>) -> SmallVec<[Range<u64>; 2]> {
    let within: SmallVec<[Range<u64>; 2]> = gaps.iter().filter(|gap| span.contains(&gap.start)).cloned().collect();
    match (within.first(), within.last()) {
        (Some(first), Some(last)) if within.len() > GAPS_MAX => smallvec![first.start..last.end],
        _ => within,
    }
}

/// Joins gaps, sorted by their start, that overlap or have few bytes between them.
///
/// A gap that begins far behind the start of another one gets a request of its own, so that its client need not wait
/// for the bytes before it.
fn join(sizes: Sizes, gaps: impl IntoIterator<Item = Range<u64>>) -> SmallVec<[Range<u64>; 2]> {
    let mut joined: SmallVec<[Range<u64>; 2]> = SmallVec::new();
    for mut gap in gaps {
        if let Some(last) = joined.last_mut() {
            let is_awaited = gap.start - last.start <= sizes.ahead && gap.start <= last.end;
            let is_close = gap.start >= last.end && gap.start - last.end < sizes.gap;
            if is_awaited || is_close {
                last.end = last.end.max(gap.end);
                continue;
            }
            gap.end = gap.end.max(last.end);
            last.end = last.end.min(gap.start);
        }
        joined.push(gap);
    }
    joined
}

/// Returns the requests for a gap, divided at each multiple of [`Sizes::cut`]. If the bytes will be stored, the
/// requests cover whole chunks.
fn requests(view: &View<'_>, gap: Range<u64>) -> SmallVec<[OriginAsk; 1]> {
    let mut left = if view.is_storing { round_out(view, gap) } else { gap };
    let mut found = SmallVec::new();
    while !left.is_empty() {
        let span = before_cut(view.sizes, left.clone());
        left.start = span.end;
        let is_whole = view.map.len() == Some(span.end) && span.start == 0;
        found.push(if is_whole { OriginAsk::Whole } else { OriginAsk::Range { span, if_range: true } });
    }
    found
}

/// Extends a gap to whole chunks, but not over bytes that are present or coming.
fn round_out(view: &View<'_>, gap: Range<u64>) -> Range<u64> {
    let before = view.map.span_of(view.map.chunk_of(gap.start)).start..gap.start;
    let after = gap.end..view.map.span_of(view.map.chunk_of(gap.end - 1)).end;
    let start = view.survey(std::iter::once(before)).gaps.last().filter(|hole| hole.end == gap.start).cloned();
    let end = view.survey(std::iter::once(after)).gaps.first().filter(|hole| hole.start == gap.end).cloned();
    start.map_or(gap.start, |hole| hole.start)..end.map_or(gap.end, |hole| hole.end)
}
