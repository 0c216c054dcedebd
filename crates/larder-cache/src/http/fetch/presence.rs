//! Verifies that every chunk a response needs is on disk before its first byte is sent.
//!
//! Owns: the list of bytes that a request needs, and the start of the response: its first bytes, or the origin's
//! promise of the missing ones. Invariant: when a response is called a hit, every requested chunk has just been found,
//! with its key compared.
//!
//! The index recognizes entries by a few hash bits, so it reports one missing chunk in 500 as present. A body of 1,000
//! chunks would hit that case sooner or later. So the record of each chunk is probed, and its location is remembered
//! (see `crate::http::sightings`).
//!
//! Rejected: storing chunk locations in the head (reclaim moves chunks, and the format would change); checking only
//! just ahead of the client (a gap would be found after the status was sent, and cannot be filled without a validator).
//!
//! Cost: a lookup in memory for each chunk seen before, otherwise one 4 KiB read, `LOOKS_AT_ONCE_MAX` at a time. Then
//! the first bytes are read, with which the response starts anyway.

use std::{iter, sync::Arc};

use http::{HeaderMap, Method};
use larder_http::{
    Precondition, RangeOutcome, conditional, range,
    route::{AvailableExtent, RequestTerms},
};
use tokio::task::JoinSet;

use super::stage::KeptPart;
use crate::{
    chunk_format::chunks_of,
    http::{
        ResponseCache,
        body::{continuation::ContinuedBody, cursor::BodyCursor, long_body::LongBody},
        chunks::{ChunkedBody, covers},
        entry::{CachedEntry, EntryBody},
        fetcher::{ClientRequest as _, Fetcher},
        lookup::{FoundResponse, StoreTrouble},
    },
    object::{ProbeEnd, Spans},
};

/// The availability of those bytes of a stored response that a request wants.
pub enum Availability<F: Fetcher> {
    /// All bytes that the request wants are available. `None` if it wants no bytes from the store.
    There(Option<BodyPlan<F>>),
    /// Some of the wanted bytes are missing, and the missing ones can be requested.
    Lacking(BodyPlan<F>),
    /// Some of the wanted bytes are missing and cannot be requested, or the store does not respond.
    Gone,
}

/// A body, and the parts of it that a request wants.
pub struct BodyPlan<F: Fetcher> {
    body: Arc<LongBody<F>>,
    fetcher: Arc<F>,
    asked: Arc<F::Asked>,
    wanted: Spans,
}

/// A body from which the answer to a request can be built at once.
pub(crate) struct ReadyAnswer<F: Fetcher> {
    /// The client's cursor in a body in chunks. `None` if the answer needs no bytes from the store.
    pub(crate) body: Option<BodyCursor<F>>,
    /// The origin's response that brings the missing bytes. `None` if none are missing.
    pub(crate) continued: Option<ContinuedBody>,
}

/// Checks how much of a stored response is available for a request. Does not contact an origin.
pub async fn look<F: Fetcher>(
    fetcher: &Arc<F>,
    asked: &Arc<F::Asked>,
    key: &Arc<[u8]>,
    entry: &CachedEntry,
) -> Availability<F> {
    let Some(plan) = plan_of(fetcher, asked, key, entry) else {
        return if matches!(entry.body, EntryBody::Whole(_)) { Availability::There(None) } else { Availability::Gone };
    };
    if plan.wanted.is_empty() {
        return Availability::There(None);
    }
    let chunks = plan.body.chunks.clone();
    // RFC 9111 5.2.1.7: such a request must not reach the origin, so a gap cannot be filled.
    let is_alone = asked.terms().is_only_if_cached(&fetcher.cache().http);
    match are_there(&chunks, &plan.wanted).await {
        Ok(true) => Availability::There(Some(plan)),
        Ok(false) if is_alone || !chunks.can_go_on() => Availability::Gone,
        Ok(false) => Availability::Lacking(plan),
        Err(StoreTrouble) => Availability::Gone,
    }
}

/// Returns how much of a response is available for a request, if a flight (a shared fetch) has brought or is bringing a
/// part of it.
pub async fn look_at_part<F: Fetcher>(fetcher: &Arc<F>, asked: &Arc<F::Asked>, kept: &KeptPart<F>) -> Availability<F> {
    let EntryBody::Chunks { len, .. } = kept.entry.body else { return Availability::There(None) };
    let Some(body) = &kept.body else { return look(fetcher, asked, &kept.key, &kept.entry).await };
    let wanted = wanted(asked.method(), asked.fields(), &kept.entry, len);
    let plan = BodyPlan { body: Arc::clone(body), fetcher: Arc::clone(fetcher), asked: Arc::clone(asked), wanted };
    Availability::There((!plan.wanted.is_empty()).then_some(plan))
}

/// Returns a cursor over the bytes of a stored response that a request wants. Does not check whether they are
/// available. `None` if the request wants no bytes from the store.
pub fn attach<F: Fetcher>(
    fetcher: &Arc<F>,
    asked: &Arc<F::Asked>,
    key: &Arc<[u8]>,
    entry: &CachedEntry,
) -> Option<BodyCursor<F>> {
    let plan = plan_of(fetcher, asked, key, entry)?;
    (!plan.wanted.is_empty()).then(|| plan.attach())
}

/// Returns how much of a stored response is available for a request. For `explain`, which only reports how the request
/// would be answered.
pub async fn extent(
    cache: &Arc<ResponseCache>,
    primary: &Arc<[u8]>,
    found: &FoundResponse,
    terms: RequestTerms<'_>,
) -> AvailableExtent {
    let EntryBody::Chunks { len, .. } = found.entry.body else { return AvailableExtent::Whole };
    let Some(chunks) = ChunkedBody::of(cache, primary, &found.key, &found.entry).map(Arc::new) else {
        return AvailableExtent::Gone;
    };
    let is_alone = terms.is_only_if_cached(&cache.http);
    match are_there(&chunks, &wanted(terms.method, terms.fields, &found.entry, len)).await {
        Ok(true) => AvailableExtent::Whole,
        Ok(false) if !is_alone && chunks.can_go_on() => AvailableExtent::Lacking,
        Ok(false) | Err(StoreTrouble) => AvailableExtent::Gone,
    }
}

fn plan_of<F: Fetcher>(
    fetcher: &Arc<F>,
    asked: &Arc<F::Asked>,
    key: &Arc<[u8]>,
    entry: &CachedEntry,
) -> Option<BodyPlan<F>> {
    let EntryBody::Chunks { len, .. } = entry.body else { return None };
    let body = LongBody::of_stored(fetcher, asked, key, entry)?;
    let wanted = wanted(asked.method(), asked.fields(), entry, len);
    Some(BodyPlan { body, fetcher: Arc::clone(fetcher), asked: Arc::clone(asked), wanted })
}

impl<F: Fetcher> BodyPlan<F> {
    fn attach(self) -> BodyCursor<F> {
        self.body.attach(&self.fetcher, &self.asked, self.wanted)
    }
}

impl<F: Fetcher> Availability<F> {
    /// Returns how much is available, without the body.
    pub fn extent(&self) -> AvailableExtent {
        match self {
            Self::There(_) => AvailableExtent::Whole,
            Self::Lacking(_) => AvailableExtent::Lacking,
            Self::Gone => AvailableExtent::Gone,
        }
    }

    /// Waits until an answer can begin: until its first bytes were read, or until the origin has promised the missing
    /// bytes. Returns `None` if the body is unavailable after all.
    pub(crate) async fn ready(self) -> Option<ReadyAnswer<F>> {
        match self {
            Self::There(None) => Some(ReadyAnswer { body: None, continued: None }),
            Self::There(Some(plan)) | Self::Lacking(plan) => {
                let mut cursor = plan.attach();
                let continued = cursor.begin().await.ok()?;
                Some(ReadyAnswer { body: Some(cursor), continued })
            }
            Self::Gone => None,
        }
    }
}

/// Returns the ranges that a request wants of a body of `len` bytes in the store, in ascending order.
fn wanted(method: &Method, fields: &HeaderMap, entry: &CachedEntry, len: u64) -> Spans {
    let has_body = method != Method::HEAD && matches!(conditional::evaluate(fields, &entry.head), Precondition::Pass);
    if !has_body {
        return Spans::new();
    }
    match range::select(method, fields, &entry.head, len) {
        RangeOutcome::Whole => iter::once(0..len).collect(),
        RangeOutcome::Single { first, last } => iter::once(first..last + 1).collect(),
        RangeOutcome::Many(spans) => {
            let mut spans: Spans = spans.iter().map(|span| span.first..span.last + 1).collect();
            spans.sort_by_key(|span| span.start);
            spans
        }
        RangeOutcome::NotSatisfiable => Spans::new(),
    }
}

/// Probes the store for the chunks of the wanted ranges, several at a time. Returns whether it has them all.
async fn are_there(body: &Arc<ChunkedBody>, wanted: &Spans) -> Result<bool, StoreTrouble> {
    let mut looks = JoinSet::new();
    let parts = wanted.iter().flat_map(|span| {
        chunks_of(span).map(|number| {
            let chunk = body.span(number);
            (number, span.start.max(chunk.start)..span.end.min(chunk.end))
        })
    });
    let mut unknown = parts.filter(|(number, _)| !body.was_seen(*number));
    loop {
        while looks.len() < LOOKS_AT_ONCE_MAX
            && let Some((number, part)) = unknown.next()
        {
            let body = Arc::clone(body);
            looks.spawn(async move { (body.probe(number).await, part) });
        }
        // An error here means that the runtime is stopping.
        let Some(looked) = looks.join_next().await else { return Ok(true) };
        match looked.map_err(|_| StoreTrouble)? {
            (ProbeEnd::Whole, _) => {}
            (ProbeEnd::Part(there), part) if covers(&there, &part) => {}
            (ProbeEnd::Part(_) | ProbeEnd::Absent, _) => return Ok(false),
            (ProbeEnd::Trouble, _) => return Err(StoreTrouble),
        }
    }
}

/// Maximum number of chunks for which the store is probed at a time, for one response.
const LOOKS_AT_ONCE_MAX: usize = 64;
