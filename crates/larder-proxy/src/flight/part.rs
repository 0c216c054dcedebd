//! Fetches a range of a response that is not stored: requests a part, and stores it as a part (RFC 9111 3.3, 3.4).
//!
//! Owns: which part is requested, and how much of it is stored. A part of at most [`CHUNK_BYTES`] is collected and
//! stored before its readers are served. `flight::rest` moves a longer one and stores its whole chunks, and fetches
//! missing parts later.
//!
//! Invariants: a part is kept only if its Content-Range agrees with its length. Without a strong entity tag the
//! remainder cannot be requested, so the part is kept only if it is all that was requested. Memory: one chunk, or a
//! flight's window.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response};
use larder_http::{
    BodyPlace, RangeOutcome, Reason, ReceivedHead, SelectingFields, Storability, StoredHead, TargetList, Timestamp,
    cache_control,
    framing::CompletedBody,
    partial::{self, Part},
    range::{self, ByteRange, RangeRequest},
    span::Span,
    storable,
};

use crate::{
    asked::RequestHead,
    cache::{
        chunks::{BodyKeys, ChunkedBody, PlacedBytes, strong_tag},
        committed_body::CommittedBody,
        entry::{CHUNK_BYTES, CachedEntry, EntryBody, random},
        storing::{self, StoreAdmission, StorePlace},
    },
    errors::Failure,
    flight::{
        copying,
        fetch::{Fetch, OriginAnswer},
        rest::{self, LongPart},
        source::BodySource,
        stage::{Audience, FetchStage, KeptPart, PartSource, PrivateResponse},
    },
    origin::body::OriginBody,
};

/// A part of a response, as it is shared and stored.
struct FetchedPart {
    part: Part,
    place: StorePlace,
    head: StoredHead,
    /// Additional fields for the first requester alone.
    own: HeaderMap,
    /// The only bytes that will ever be available, if the remainder cannot be requested.
    alone: Option<Span>,
}

impl Fetch {
    /// Returns the range to request, if a part suffices: the client's first range.
    ///
    /// One response has all of it, because another one may have another entity tag. Further ranges are requested by
    /// that tag. A short range is extended to whole chunks, which can be stored. A long one has whole chunks inside,
    /// and its client should not wait for bytes before them.
    pub(super) fn part_to_ask(&self) -> Option<HeaderValue> {
        // A digest can only be checked on the whole body.
        if self.asked.before.digest.is_some()
            || self.asked.question.is_some()
            || self.before.is_some()
            || self.asked.method != Method::GET
            || self.cache().shared.store.is_none()
        {
            return None;
        }
        let range = match range::parse(&self.asked.fields) {
            RangeRequest::Absent => return None,
            RangeRequest::Single(range) => range,
            RangeRequest::Many(ranges) => *ranges.first()?,
        };
        // The pieces of a divided body are requested from their owners, so another node sends only the first chunk.
        let is_from_node = self.flights.means.siblings.is_some() && !self.asked.is_by_sibling;
        let text = match range {
            // If a client wants everything from near the start, the whole response is fetched.
            ByteRange::From { first, last: None } if first <= CHUNK_BYTES => return None,
            ByteRange::From { first, last } => {
                let start = first - first % CHUNK_BYTES;
                let chunk_end = start.checked_add(CHUNK_BYTES)?;
                let end = last.and_then(|last| last.checked_add(1)?.checked_next_multiple_of(CHUNK_BYTES));
                match (end, last) {
                    _ if is_from_node => format!("bytes={start}-{}", chunk_end - 1),
                    (Some(end), _) if end - start <= SHORT_RANGE_BYTES_MAX => format!("bytes={start}-{}", end - 1),
                    (_, Some(last)) => format!("bytes={first}-{last}"),
                    (_, None) => format!("bytes={first}-"),
                }
            }
            ByteRange::Suffix { len } if is_from_node => format!("bytes=-{}", len.min(CHUNK_BYTES)),
            ByteRange::Suffix { len } => format!("bytes=-{len}"),
        };
        HeaderValue::try_from(text).ok()
    }

    /// Accepts the 206 for `range`: stores its part and shares it, or gives it to the first requester alone.
    pub(super) async fn accept_part(&self, answer: OriginAnswer, range: &HeaderValue) {
        let cache = self.cache();
        let OriginAnswer { head, body, request_time, response_time } = answer;
        let (part, mut place, selecting) = match self.place_of_part(&head, request_time, response_time) {
            Ok(placed) => placed,
            Err(reason) => {
                // Further ranges are forwarded at once. A rounded one would be requested in vain, and then forwarded.
                self.note_audience(Audience::FirstAsker);
                let is_exact = self.asked.fields.get(header::RANGE) == Some(range);
                let private = PrivateResponse { status: head.status, fields: head.headers, body, reason, is_exact };
                return self.flight.set_private(private);
            }
        };
        let targets = &cache.http.targets;
        let own = cache_control::first_askers_own(&head.headers, targets);
        let is_alone = strong_tag(&head.headers).is_none() && part.span.len() < part.total_len;
        let alone = is_alone.then_some(part.span);
        let received = ReceivedHead { status: head.status, fields: head.headers, request_time, response_time };
        let head = head_of(received, &part, selecting, targets).after_purges(self.flight.work.purge_count);
        if body.is_from_sibling {
            place.admission = copying::admission(cache, &place, &head, Some(part.span.len()));
        }
        let fetched = FetchedPart { part, place, head, own, alone };
        // A long part is not collected first, because its client would wait for all of it.
        if part.span.len() > CHUNK_BYTES {
            self.share_long(fetched, body).await;
        } else {
            self.share_short(fetched, body).await;
        }
    }

    /// Decides where to store the part in a 206, or returns the reason not to store it.
    fn place_of_part(
        &self,
        head: &response::Parts,
        request_time: Timestamp,
        response_time: Timestamp,
    ) -> Result<(Part, StorePlace, SelectingFields), Reason> {
        let settings = &self.cache().http;
        let part = partial::part(head.status, &head.headers)?;
        let has_tag = strong_tag(&head.headers).is_some();
        // Without a strong tag the remainder can never be requested, so the part is useless to other clients.
        if !has_tag && !is_all_wanted(&self.asked, &part.span, part.total_len) {
            return Err(Reason::Partial);
        }
        let exchange = self.exchange(head, request_time, response_time);
        let rule = match storable::decide_part(&exchange, &part, settings) {
            Storability::Store { rule, .. } => rule,
            Storability::Refuse { reason } => return Err(reason),
        };
        let place = StorePlace::new(&self.primary, &rule, &self.asked.fields, self.marker.as_ref(), settings);
        let (place, selecting) = place.zip(rule.select(&self.asked.fields, settings)).ok_or(Reason::VaryStar)?;
        let can_be_kept = part.span.len() <= CHUNK_BYTES || (has_tag && has_whole_chunk(&part));
        if can_be_kept && part.total_len <= self.size_max(&head.headers) {
            Ok((part, place, selecting))
        } else {
            Err(Reason::Partial)
        }
    }

    /// Stores and shares a part of at most one chunk.
    async fn share_short(&self, fetched: FetchedPart, body: OriginBody) {
        let span = fetched.part.span;
        let len = usize::try_from(span.len()).unwrap_or(usize::MAX);
        // The part is collected before it is shared, because its length must agree with its Content-Range.
        let Some((bytes, completed)) = body.collect(len).await else {
            let why = "its response ended early".to_owned();
            return self
                .flight
                .set_stage(FetchStage::Failed(Failure::Broken { host: self.asked.origin.to_string(), why }));
        };
        let arrived = PlacedBytes { start: span.first, bytes };
        // Readers are served after this, so they find the part stored.
        let is_stored = self.keep_part(&fetched.place, &fetched.head, &arrived, Some(completed)).await;
        let entry = entry_of(fetched.head.clone(), &arrived);
        self.share(fetched, entry, is_stored, Some(arrived));
    }

    /// Shares a longer part, and stores its whole chunks while they arrive.
    async fn share_long(&self, fetched: FetchedPart, body: OriginBody) {
        let FetchedPart { part, place, head, .. } = &fetched;
        let cache = self.cache();
        let is_behind = self.cache().shared.patience.is_behind();
        // The head is stored before its chunks, so that requests that arrive meanwhile find this fetch by it. The
        // chunks that a response needs are verified each time.
        let is_stored = place.admission != StoreAdmission::Refused
            && !is_behind
            && storing::commit(cache, place, head, CommittedBody::Part, &self.flight.work).await;
        let BodyPlace::Chunks { len, representation } = head.body() else { return };
        let keys = BodyKeys { primary: Arc::clone(&place.primary), key: Arc::clone(&place.key), representation };
        let chunks = Arc::new(ChunkedBody::new(cache, keys, head, Some(len)));
        let source = Arc::new(BodySource::new(&self.flights.means, &self.asked, chunks));
        let span = part.span.first..part.span.last + 1;
        let holder = source.twin();
        let reader = rest::board_part(&source, LongPart { span: span.clone(), body, is_stored });
        holder.add_rest(span, reader);
        // Holds a reader, which keeps the fetch running, and its first bytes in memory, until the clients read them.
        self.flight.set_source(Arc::new(holder));
        let entry = CachedEntry::new(head.clone(), EntryBody::Chunks { len, representation });
        self.share(fetched, entry, is_stored, None);
    }

    /// Shares a part, whose bytes are in `arrived` or brought by another fetch.
    fn share(&self, fetched: FetchedPart, entry: CachedEntry, is_stored: bool, arrived: Option<PlacedBytes>) {
        let FetchedPart { place, head, own, alone, .. } = fetched;
        self.count_file(&head);
        let marker = place.marker.map(|(marker, _)| marker);
        let source = PartSource::Arrived { status: StatusCode::PARTIAL_CONTENT, is_stored };
        let kept = KeptPart {
            entry: Arc::new(entry),
            key: place.key,
            marker,
            own,
            audience: Audience::Shared,
            alone,
            source,
            arrived,
        };
        self.flight.set_stage(FetchStage::Part(Arc::new(kept)));
    }

    /// Stores a part, and then the head of the response that it belongs to, if the place admits it. Returns whether it
    /// does. If not, a whole body stays in memory, and a body that is divided among nodes is stored without the part:
    /// without its head, this node would not find the pieces that it owns. `completed` is the proof that all of a part
    /// has arrived that is the whole body.
    pub(super) async fn keep_part(
        &self,
        place: &StorePlace,
        head: &StoredHead,
        arrived: &PlacedBytes,
        completed: Option<CompletedBody>,
    ) -> bool {
        let cache = self.cache();
        let is_admitted = place.admission != StoreAdmission::Refused;
        let body = match head.body() {
            BodyPlace::Whole { .. } => {
                let Some(completed) = completed else { return false };
                CommittedBody::Whole(completed, vec![arrived.bytes.clone()])
            }
            BodyPlace::Chunks { len, representation } if is_admitted => {
                let primary = Arc::clone(&place.primary);
                let key = Arc::clone(&place.key);
                let keys = BodyKeys { primary, key, representation };
                ChunkedBody::new(cache, keys, head, Some(len)).keep(arrived).await;
                CommittedBody::Part
            }
            BodyPlace::Chunks { len, .. } if self.is_divided(head, len) => CommittedBody::Part,
            BodyPlace::Chunks { .. } => return false,
        };
        storing::commit(cache, place, head, body, &self.flight.work).await && is_admitted
    }
}

/// Returns whether a request needs no more than this span of the body.
pub(crate) fn is_all_wanted(asked: &RequestHead, there: &Span, total_len: u64) -> bool {
    let RangeRequest::Single(wanted) = range::parse(&asked.fields) else { return false };
    match range::resolve(wanted, total_len) {
        RangeOutcome::Single { first, last } => there.first <= first && last <= there.last,
        RangeOutcome::Whole | RangeOutcome::Many(_) | RangeOutcome::NotSatisfiable => false,
    }
}

/// Returns the entry with this head, of which a part has arrived.
pub(super) fn entry_of(head: StoredHead, arrived: &PlacedBytes) -> CachedEntry {
    let body = match head.body() {
        BodyPlace::Whole { .. } => EntryBody::Whole(arrived.bytes.clone()),
        BodyPlace::Chunks { len, representation } => EntryBody::Chunks { len, representation },
    };
    CachedEntry::new(head, body)
}

/// Returns whether a part contains a whole chunk of its body.
fn has_whole_chunk(part: &Part) -> bool {
    let end = part.span.last + 1;
    let stored_end = if end == part.total_len { end } else { end - end % CHUNK_BYTES };
    part.span.first.checked_next_multiple_of(CHUNK_BYTES).is_some_and(|start| start < stored_end)
}

/// Returns the head of the whole response that a part belongs to. If the part covers everything and is short, the head
/// is that of a complete response.
fn head_of(mut received: ReceivedHead, part: &Part, selecting: SelectingFields, targets: &TargetList) -> StoredHead {
    // The origin sent a 206, so it supports ranges, and the missing parts can be requested.
    received.fields.entry(header::ACCEPT_RANGES).or_insert(HeaderValue::from_static("bytes"));
    let head = partial::whole_head(received, part, random(), selecting, targets);
    let is_whole = part.span.len() == part.total_len && part.total_len <= CHUNK_BYTES;
    if is_whole { head.with_body(BodyPlace::Whole { len: part.total_len }) } else { head }
}

/// Longest range that is extended to whole chunks: with more, one of them is inside anyway.
const SHORT_RANGE_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
