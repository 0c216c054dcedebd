//! Verifies that every chunk a response needs is on disk before its first byte is sent.
//!
//! Owns: the list of chunks that a request needs, the probe of each, and the start of the response: its first bytes, or
//! a fetch of the missing ones. Streaming is done elsewhere. Invariant: when a response is called a hit, every
//! requested chunk has just been found, with its key compared. A response over gaps begins only after the origin has
//! confirmed that it has their bytes, under the same validator: otherwise the response would break off where an
//! origin's servers disagree in their validators.
//!
//! The index recognizes entries by a few hash bits, so it reports one missing chunk in 500 as present. A body of 1,000
//! chunks would hit that case sooner or later. So the record of each chunk is probed, and its location is remembered
//! (see `sightings`).
//!
//! Rejected: storing chunk locations in the head (reclaim moves chunks, and the format would change); checking only
//! just ahead of the client (a gap would be found after the status was sent, and cannot be filled without a validator).
//!
//! Cost: a lookup in memory for each chunk seen before, otherwise one 4 KiB read, [`LOOKS_AT_ONCE_MAX`] at a time. Then
//! one chunk is read, with which the response starts anyway.

use std::{iter, ops::Range, sync::Arc};

use http::{HeaderMap, Method};
use larder_http::{Precondition, RangeOutcome, conditional, range};
use larder_store::Store;
use tokio::task::JoinSet;

use crate::{
    asked::{RequestHead, RequestTerms},
    cache::{
        Cache,
        chunks::{ChunkedBody, PlacedBytes, covers},
        entry::{CHUNK_BYTES, CachedEntry, EntryBody},
        lookup::{self, FoundResponse, StoreTrouble},
        patience::ReadPatience,
        shared_reads::AbsenceReason,
        sightings::{BodySightings, ChunkSighting},
        tiered,
    },
    flight::{
        reader::FlightReader,
        rest,
        shared::Flight,
        source::{BodySource, FetchContext},
        stage::{ContinuedBody, FetchStage, KeptPart},
    },
};

/// The available share of a stored response, with the data to answer a request.
pub(crate) enum Availability {
    /// Everything. `None` if the response needs no body from the store.
    There(Option<ChunkedPlan>),
    /// A part. The remainder can be requested. The ranges are the first gaps.
    Lacking(ChunkedPlan, Vec<Range<u64>>),
    /// A part, and the remainder cannot be requested.
    Gone,
}

/// A body in chunks, and the requested ranges in order.
pub(crate) struct ChunkedPlan {
    source: Arc<BodySource>,
    wanted: Vec<Range<u64>>,
    /// A fetch of the body that may already have ended.
    run: Option<Arc<Flight>>,
}

/// The part of a body that may not be stored.
#[derive(Default)]
struct AtHand<'a> {
    /// Bytes in memory.
    arrived: Option<&'a PlacedBytes>,
    /// A fetch of further bytes.
    run: Option<Arc<Flight>>,
}

/// The data from which a response can be built.
pub(crate) struct ReadyAnswer {
    /// The body, if it is in chunks.
    pub(crate) body: Option<Arc<BodySource>>,
    /// The origin's response, if the origin continues the stored body.
    pub(crate) continued: Option<ContinuedBody>,
}

/// The available share of the requested part of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AvailableExtent {
    /// Everything.
    Whole,
    /// A part is available, and the remainder can be requested.
    Lacking,
    /// A part is available, and the remainder cannot be requested.
    Gone,
}

/// Checks the availability of a stored response, without contacting an origin.
pub(crate) async fn look(
    means: &Arc<FetchContext>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
    entry: &CachedEntry,
) -> Availability {
    look_beyond(means, asked, (key, entry), AtHand::default()).await
}

/// Checks the availability of a part that a flight has brought or is bringing, like [`look`]. `run` brings a
/// long part.
pub(crate) async fn look_at_part(
    means: &Arc<FetchContext>,
    asked: &Arc<RequestHead>,
    kept: &KeptPart,
    run: Option<Arc<Flight>>,
) -> Availability {
    let at_hand = AtHand { arrived: kept.arrived.as_ref(), run };
    look_beyond(means, asked, (&kept.key, &kept.entry), at_hand).await
}

/// Checks the availability of a body, of which a part is at hand.
async fn look_beyond(
    means: &Arc<FetchContext>,
    asked: &Arc<RequestHead>,
    (key, entry): (&Arc<[u8]>, &CachedEntry),
    AtHand { arrived, run }: AtHand<'_>,
) -> Availability {
    let EntryBody::Chunks { len, .. } = entry.body else { return Availability::There(None) };
    let Some(body) = BodySource::of(means, asked, key, entry) else { return Availability::Gone };
    let source = Arc::new(body);
    let wanted = wanted(&asked.method, &asked.fields, entry, len);
    let plan = |source| ChunkedPlan { source, wanted: wanted.clone(), run: run.clone() };
    if let Some(arrived) = arrived {
        source.set_begun(arrived.clone());
        if source.is_between_nodes() && wanted.first().is_some_and(|span| arrived.span().contains(&span.start)) {
            return Availability::There(Some(plan(source)));
        }
    }
    // RFC 9111 5.2.1.7: such a request must not reach the origin, so a gap cannot be filled.
    let is_alone = asked.terms().is_only_if_cached(&means.cache.http);
    match first_gaps(&source.chunks, &wanted, arrived).await {
        Ok(_) if wanted.is_empty() => Availability::There(None),
        Ok(gaps) if gaps.is_empty() => Availability::There(Some(plan(source))),
        Ok(_) if is_alone || !source.chunks.can_go_on() => Availability::Gone,
        Ok(gaps) => Availability::Lacking(plan(source), gaps),
        Err(StoreTrouble) => Availability::Gone,
    }
}

/// Checks the availability of a stored response for a hypothetical request.
pub(crate) async fn extent(
    cache: &Arc<Cache>,
    primary: &Arc<[u8]>,
    found: &FoundResponse,
    terms: RequestTerms<'_>,
) -> AvailableExtent {
    let EntryBody::Chunks { len, .. } = found.entry.body else { return AvailableExtent::Whole };
    let Some(chunks) = ChunkedBody::of(cache, primary, &found.key, &found.entry).map(Arc::new) else {
        return AvailableExtent::Gone;
    };
    let is_alone = terms.is_only_if_cached(&cache.http);
    match first_gaps(&chunks, &wanted(terms.method, terms.fields, &found.entry, len), None).await {
        Ok(gaps) if gaps.is_empty() => AvailableExtent::Whole,
        Ok(_) if !is_alone && chunks.can_go_on() => AvailableExtent::Lacking,
        Ok(_) | Err(StoreTrouble) => AvailableExtent::Gone,
    }
}

impl Availability {
    /// Returns the available extent.
    pub(crate) fn extent(&self) -> AvailableExtent {
        match self {
            Self::There(_) => AvailableExtent::Whole,
            Self::Lacking(..) => AvailableExtent::Lacking,
            Self::Gone => AvailableExtent::Gone,
        }
    }

    /// Reads the first bytes, or begins to fetch the missing ones. Returns `None` if the response must come from
    /// another source.
    pub(crate) async fn ready(self) -> Option<ReadyAnswer> {
        match self {
            Self::There(None) => Some(ReadyAnswer { body: None, continued: None }),
            // Boxed, because it takes kilobytes for a moment only.
            Self::There(Some(body)) => Box::pin(body.open()).await,
            Self::Lacking(body, gaps) => Box::pin(body.fill(gaps)).await,
            Self::Gone => None,
        }
    }
}

impl ChunkedPlan {
    async fn open(self) -> Option<ReadyAnswer> {
        let first = self.wanted.first()?.clone();
        let number = first.start / CHUNK_BYTES;
        match Arc::clone(&self.source).read(number, first.clone(), ReadPatience::Short).await {
            Ok(bytes) => {
                self.source.set_begun(bytes);
                Some(ReadyAnswer { body: Some(self.source), continued: None })
            }
            Err(AbsenceReason::Gap | AbsenceReason::Trouble) if !self.source.chunks.can_go_on() => None,
            Err(AbsenceReason::Gap) => {
                let end = rest::gap_end(&self.source.chunks, first.start, first.end).min(first.end);
                self.fill(iter::once(first.start..end).collect()).await
            }
            // Any other operation of the store would take as long, so the origin is used.
            Err(AbsenceReason::Trouble) => None,
        }
    }

    /// Requests the bytes of the first gaps, one after the other, and waits until the origin has confirmed them.
    async fn fill(self, gaps: Vec<Range<u64>>) -> Option<ReadyAnswer> {
        let mut continued = None;
        let mut gaps = gaps.into_iter();
        let mut gap = gaps.next()?;
        let count_max = if self.source.is_between_nodes() { 1 } else { CONFIRMED_COUNT_MAX };
        for _ in 0..count_max {
            // Not by the table of fetches, which a short fetch may have left although nobody has read its bytes.
            let running = self.run.as_ref().and_then(|run| FlightReader::join_at(run, gap.start));
            let mut reader = match running {
                Some(reader) => reader,
                None => rest::board(&self.source, gap.start, gap.end).await,
            };
            let FetchStage::Continued(answer) = reader.stage().await else { return None };
            continued.get_or_insert(answer);
            // The fetch may end within the gap: where another one begins, or the piece of another node.
            let end = reader.flight().limit();
            if end > gap.start {
                let wanted_end = self.wanted.iter().find(|span| span.contains(&gap.start))?.end;
                self.source.add_rest(gap.start..wanted_end, reader);
                gap.start = end;
            }
            if gap.is_empty() {
                let Some(next) = gaps.next() else { break };
                gap = next;
            }
        }
        Some(ReadyAnswer { body: Some(self.source), continued })
    }
}

/// Returns the byte ranges of a body of `len` bytes that a request needs from the store.
fn wanted(method: &Method, fields: &HeaderMap, entry: &CachedEntry, len: u64) -> Vec<Range<u64>> {
    let has_body = method != Method::HEAD && matches!(conditional::evaluate(fields, &entry.head), Precondition::Pass);
    if !has_body {
        return Vec::new();
    }
    match range::select(method, fields, &entry.head, len) {
        RangeOutcome::Whole => iter::once(0..len).collect(),
        RangeOutcome::Single { first, last } => iter::once(first..last + 1).collect(),
        RangeOutcome::Many(spans) => spans.iter().map(|span| span.first..span.last + 1).collect(),
        RangeOutcome::NotSatisfiable => Vec::new(),
    }
}

/// Returns the first requested ranges that are missing, in the order in which they are sent. `arrived` is a part in
/// memory.
async fn first_gaps(
    body: &Arc<ChunkedBody>,
    wanted: &[Range<u64>],
    arrived: Option<&PlacedBytes>,
) -> Result<Vec<Range<u64>>, StoreTrouble> {
    let Some((store, known)) = body.cache.shared.store.as_ref().zip(body.known()) else {
        return Ok(wanted.first().cloned().into_iter().collect());
    };
    let within = |number, span: &Range<u64>| {
        let chunk = body.span(number);
        span.start.max(chunk.start)..span.end.min(chunk.end)
    };
    let has_arrived = |part: &Range<u64>| arrived.is_some_and(|arrived| covers(&arrived.span(), part));
    let mut unknown = Vec::new();
    for span in wanted {
        unknown.extend(chunks_of(span).filter(|&number| !has_arrived(&within(number, span)) && !body.was_seen(number)));
    }
    unknown.dedup();
    let mut missing = look_at(body, store, &known, unknown).await?;
    missing.sort_unstable();
    let mut gaps: Vec<Range<u64>> = Vec::new();
    for span in wanted {
        let chunks = chunks_of(span);
        let first = missing.partition_point(|number| *number < chunks.start);
        for number in missing[first..].iter().copied().take_while(|number| *number < chunks.end) {
            let part = within(number, span);
            if has_arrived(&part) || has_fragment(body, number, &part).await {
                continue;
            }
            let is_full = gaps.len() == CONFIRMED_COUNT_MAX;
            match gaps.last_mut() {
                Some(gap) if gap.end == part.start && part.start > span.start => gap.end = part.end,
                _ if is_full => return Ok(gaps),
                _ => gaps.push(part),
            }
        }
    }
    Ok(gaps)
}

/// Returns whether a part of a missing chunk is stored.
async fn has_fragment(body: &ChunkedBody, number: u64, part: &Range<u64>) -> bool {
    *part != body.span(number) && body.read_fragment(number).await.is_some_and(|found| covers(&found.span(), part))
}

fn chunks_of(span: &Range<u64>) -> Range<u64> {
    span.start / CHUNK_BYTES..span.end.div_ceil(CHUNK_BYTES)
}

/// Probes chunks, several at a time, and records the results. Returns the absent ones.
async fn look_at(
    body: &Arc<ChunkedBody>,
    store: &Store,
    known: &Arc<BodySightings>,
    numbers: Vec<u64>,
) -> Result<Vec<u64>, StoreTrouble> {
    let mut missing = Vec::new();
    let mut looks = JoinSet::new();
    let mut numbers = numbers.into_iter();
    loop {
        while looks.len() < LOOKS_AT_ONCE_MAX
            && let Some(number) = numbers.next()
        {
            let key = body.chunk_key(number);
            if store.may_contain(&key) {
                let cache = Arc::clone(&body.cache);
                let store = store.clone();
                looks
                    .spawn(async move { (number, lookup::ask(&cache, ReadPatience::Short, store.locate(&key)).await) });
            } else {
                known.note(number, ChunkSighting::Absent);
                push_missing(body, number, &mut missing);
            }
        }
        // An error here means that the runtime is stopping.
        let Some(looked) = looks.join_next().await else { return Ok(missing) };
        let (number, seen) = looked.map_err(|_| StoreTrouble)?;
        let seen = seen?;
        known.note(number, seen.map_or(ChunkSighting::Absent, ChunkSighting::Seen));
        if seen.is_none() {
            push_missing(body, number, &mut missing);
        }
    }
}

/// Adds a chunk that the store does not have to the missing ones, unless the second tier has it. If the tier then does
/// not respond in time, the chunk is a gap, which the origin fills.
fn push_missing(body: &ChunkedBody, number: u64, missing: &mut Vec<u64>) {
    if !tiered::has(&body.cache, &body.chunk_key(number)) {
        missing.push(number);
    }
}

/// Most chunks probed at a time for one response.
const LOOKS_AT_ONCE_MAX: usize = 64;
/// Most fetches of missing bytes that the origin confirms before a response begins. Each takes a connection, and memory
/// for its first bytes, until the client has received what precedes them. More gaps than these are rare, and requested
/// when the client reaches them.
const CONFIRMED_COUNT_MAX: usize = 3;
