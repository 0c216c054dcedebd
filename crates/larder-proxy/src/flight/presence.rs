//! Whether a stored response can be answered from, found out before its first byte goes out.
//!
//! Owns: which chunks a request needs, the look at each, and what is begun so that the answer comes: the first bytes, or a
//! fetch of what is missing. Does not: stream. Invariant: what is called a hit was there, every chunk of what is asked for,
//! with its key compared, just before; a body with a gap is called one only once the origin has agreed to go on with it.
//! Design: the index knows an entry by a few bits of its hash, and says of one chunk in 500 that is gone that it is there, so
//! of a body of 1,000 for certain of one sooner or later. So each chunk's record is looked at, and where it lies is remembered
//! (see `sightings`). Alternatives that lost: positions in the head (wrong after reclaim has moved a chunk, and a change of
//! what is stored), reading ahead of the client only (a gap shows when it is too late to call the answer something
//! else, and cannot be filled without a validator). Cost: a lookup in memory for each chunk that was seen before, else a
//! transfer of 4 KiB, [`LOOKS_AT_ONCE_MAX`] at once; then one chunk is read, which the answer begins with anyway.

use std::{iter, ops::Range, sync::Arc};

use http::{HeaderMap, Method, StatusCode};
use larder_http::{Precondition, RangeOutcome, conditional, range, reuse};
use larder_store::Store;
use tokio::task::JoinSet;

use crate::{
    asked::RequestHead,
    cache::{
        Cache,
        chunks::{AbsenceReason, ChunkedBody, covers},
        entry::{CHUNK_BYTES, CachedEntry, EntryBody},
        lookup::{self, FoundResponse, StoreTrouble},
        patience::ReadPatience,
        sightings::{BodySightings, ChunkSighting},
    },
    flight::{
        rest,
        source::{BodySource, FetchContext},
        stage::FetchStage,
    },
};

/// What of a stored response is there for a request.
pub(crate) enum Availability {
    /// All of it; no body if it needs none from the store.
    There(Option<ChunkedPlan>),
    /// Not all, but the rest can be asked for: this is where the first gap begins.
    Lacking(ChunkedPlan, u64),
    /// Not all, and there is no way to the rest.
    Gone,
}

/// A body in chunks, and what is wanted of it, in order.
pub(crate) struct ChunkedPlan {
    source: Arc<BodySource>,
    wanted: Vec<Range<u64>>,
}

/// What an answer can be made from.
pub(crate) struct ReadyAnswer {
    /// The body, if it is in chunks.
    pub(crate) body: Option<Arc<BodySource>>,
    /// What the origin answered, if it goes on with what is stored.
    pub(crate) continued: Option<StatusCode>,
}

/// How much of what a request wants of a stored response is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AvailableExtent {
    /// All of it.
    Whole,
    /// Not all, but the rest can be asked for.
    Lacking,
    /// Not all, and there is no way to the rest.
    Gone,
}

/// Looks what of a stored response is there. It asks no origin.
pub(crate) async fn look(
    means: &Arc<FetchContext>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
    entry: &CachedEntry,
) -> Availability {
    let EntryBody::Chunks { len, .. } = entry.body else { return Availability::There(None) };
    let Some(body) = BodySource::of(means, asked, key, entry) else { return Availability::Gone };
    let source = Arc::new(body);
    let wanted = wanted(&asked.method, &asked.fields, entry, len);
    // RFC 9111 5.2.1.7.
    let is_alone = reuse::is_only_if_cached(&asked.fields, &means.cache.http);
    match first_missing(&source.chunks, &wanted).await {
        Ok(None) if wanted.is_empty() => Availability::There(None),
        Ok(None) => Availability::There(Some(ChunkedPlan { source, wanted })),
        Ok(Some(_)) if is_alone || !source.chunks.can_go_on() => Availability::Gone,
        Ok(Some(missing)) => Availability::Lacking(ChunkedPlan { source, wanted }, missing),
        Err(StoreTrouble) => Availability::Gone,
    }
}

/// Looks how much of a stored response there is for a request that nobody makes.
pub(crate) async fn extent(
    cache: &Arc<Cache>,
    primary: &Arc<[u8]>,
    found: &FoundResponse,
    method: &Method,
    fields: &HeaderMap,
) -> AvailableExtent {
    let EntryBody::Chunks { len, .. } = found.entry.body else { return AvailableExtent::Whole };
    let Some(chunks) = ChunkedBody::of(cache, primary, &found.key, &found.entry).map(Arc::new) else {
        return AvailableExtent::Gone;
    };
    let is_alone = reuse::is_only_if_cached(fields, &cache.http);
    match first_missing(&chunks, &wanted(method, fields, &found.entry, len)).await {
        Ok(None) => AvailableExtent::Whole,
        Ok(Some(_)) if !is_alone && chunks.can_go_on() => AvailableExtent::Lacking,
        Ok(Some(_)) | Err(StoreTrouble) => AvailableExtent::Gone,
    }
}

impl Availability {
    /// Returns how much is there.
    pub(crate) fn extent(&self) -> AvailableExtent {
        match self {
            Self::There(_) => AvailableExtent::Whole,
            Self::Lacking(..) => AvailableExtent::Lacking,
            Self::Gone => AvailableExtent::Gone,
        }
    }

    /// Reads the first bytes, or begins to fetch the first that are missing. `None`: the answer has to come from elsewhere.
    pub(crate) async fn ready(self) -> Option<ReadyAnswer> {
        match self {
            Self::There(None) => Some(ReadyAnswer { body: None, continued: None }),
            // What takes kilobytes for a moment is not part of what waits.
            Self::There(Some(body)) => Box::pin(body.open()).await,
            Self::Lacking(body, missing) => Box::pin(body.fill(missing)).await,
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
            Err(AbsenceReason::Gap) => self.fill(first.start).await,
            // Whatever else is wanted of the store would take as long.
            Err(AbsenceReason::Trouble) => None,
        }
    }

    /// Asks the origin for what is missing from `missing` on.
    async fn fill(self, missing: u64) -> Option<ReadyAnswer> {
        let end = self.wanted.iter().find(|span| span.contains(&missing))?.end;
        let mut reader = rest::board(&self.source, missing, rest::gap_end(&self.source.chunks, missing, end)).await;
        let FetchStage::Continued(status) = reader.stage().await else { return None };
        self.source.set_rest(missing, reader);
        Some(ReadyAnswer { body: Some(self.source), continued: Some(status) })
    }
}

/// The bytes of a body of `len` that a request wants from the store.
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

/// Where the first of the wanted bytes lies that are not there.
async fn first_missing(body: &Arc<ChunkedBody>, wanted: &[Range<u64>]) -> Result<Option<u64>, StoreTrouble> {
    let Some((store, known)) = body.cache.shared.store.as_ref().zip(body.known()) else { return Ok(Some(0)) };
    let mut unknown = Vec::new();
    for number in wanted.iter().flat_map(chunks_of) {
        if !body.was_seen(number) {
            unknown.push(number);
        }
    }
    unknown.dedup();
    let mut missing = look_at(body, store, &known, unknown).await?;
    missing.sort_unstable();
    for number in missing {
        let span = body.span(number);
        for wanted in wanted.iter().filter(|wanted| wanted.start < span.end && span.start < wanted.end) {
            let within = wanted.start.max(span.start)..wanted.end.min(span.end);
            let is_whole = within == span;
            let fragment = if is_whole { None } else { body.read_fragment(number).await };
            if !fragment.is_some_and(|fragment| covers(&fragment.span(), &within)) {
                return Ok(Some(within.start));
            }
        }
    }
    Ok(None)
}

fn chunks_of(span: &Range<u64>) -> Range<u64> {
    span.start / CHUNK_BYTES..span.end.div_ceil(CHUNK_BYTES)
}

/// Looks at chunks, some at once; what it finds is noted. Those that are not there.
async fn look_at(
    body: &Arc<ChunkedBody>,
    store: &Store,
    known: &Arc<BodySightings>,
    numbers: Vec<u64>,
) -> Result<Vec<u64>, StoreTrouble> {
    let (mut missing, mut looks) = (Vec::new(), JoinSet::new());
    let mut numbers = numbers.into_iter();
    loop {
        while looks.len() < LOOKS_AT_ONCE_MAX
            && let Some(number) = numbers.next()
        {
            let key = body.chunk_key(number);
            if store.may_contain(&key) {
                let (cache, store) = (Arc::clone(&body.cache), store.clone());
                looks.spawn(async move { (number, lookup::ask(&cache, ReadPatience::Short, store.sight(&key)).await) });
            } else {
                known.note(number, ChunkSighting::Absent);
                missing.push(number);
            }
        }
        // The error is of a runtime that stops.
        let Some(looked) = looks.join_next().await else { return Ok(missing) };
        let (number, seen) = looked.map_err(|_| StoreTrouble)?;
        let seen = seen?;
        known.note(number, seen.map_or(ChunkSighting::Absent, ChunkSighting::Seen));
        if seen.is_none() {
            missing.push(number);
        }
    }
}

/// Chunks that are looked at at once, for one answer.
const LOOKS_AT_ONCE_MAX: usize = 64;
