//! Fetches a range of a response that is not stored: requests a part, and stores it as a part (RFC 9111 3.3, 3.4).
//!
//! Owns: which part is requested, and whether it is stored. `body` moves and stores it, and fetches missing parts
//! later.
//!
//! Invariant: without a strong entity tag the remainder cannot be requested, so the part is kept only if it is all that
//! was requested.

use std::{ops::Range, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header, response};
use larder_http::{
    RangeOutcome, Reason, ReceivedHead, Ruling, SelectingFields, Storability, StoredHead, TargetList, Timestamp,
    cache_control,
    partial::{self, Part},
    range::{self, ByteRange, RangeRequest},
    span::Span,
    storable,
};

use super::{
    stage::{Audience, FetchStage, KeptPart, PartSource, PrivateResponse},
    task::{Fetch, OriginAnswer},
};
use crate::http::{
    body::{fill::BodyChecks, long_body::ArrivingPart},
    chunks::strong_tag,
    committed_body::CommittedBody,
    entry::{CHUNK_BYTES, CachedEntry, EntryBody, random},
    fetcher::{ClientRequest as _, FetchEvent, Fetcher},
    storing::{self, StoreAdmission, StorePlace},
};

/// A part of a response, with what is needed to store it and to give it to the waiting requests.
pub(super) struct SharedPart {
    /// The head of the whole response, not of the 206.
    pub(super) head: StoredHead,
    /// Fields of the 206 that only the first requester gets.
    pub(super) own: HeaderMap,
    /// Length of the whole body in bytes.
    pub(super) len: u64,
    /// The part of the body that arrives.
    pub(super) span: Range<u64>,
    /// The arriving part, if no other bytes can ever be requested. `None` if the remainder can be requested.
    pub(super) alone: Option<Span>,
    /// The status of the response that brings the part, usually 206.
    pub(super) status: StatusCode,
}

impl<F: Fetcher> Fetch<F> {
    /// Returns the range to request, made from the client's first range. `None` if the whole response must be
    /// requested.
    ///
    /// The client's further ranges are requested later, with the entity tag of the first response: responses to
    /// simultaneous requests may have different tags. A short range is extended to whole chunks, so that the store gets
    /// whole chunks. A long range contains whole chunks anyway, and its client should not wait for the bytes before it.
    pub(super) fn part_to_ask(&self) -> Option<HeaderValue> {
        // A digest can only be checked on the whole body.
        if self.asked.names_digest()
            || !self.asked.has_parts()
            || self.before.is_some()
            || *self.asked.method() != Method::GET
            || self.cache().shared.store.is_none()
            || !self.asked.names().may_have(&header::RANGE)
        {
            return None;
        }
        let range = match range::parse(self.asked.fields()) {
            RangeRequest::Absent => return None,
            RangeRequest::Single(range) => range,
            RangeRequest::Many(ranges) => *ranges.first()?,
        };
        // The pieces of a divided body are requested from their owners, so another node sends only the first chunk.
        let is_from_node = self.http.fetcher.asks_nodes(&self.asked);
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

    /// Accepts the 206 that answers a request for `range`. Stores its part and gives it to the waiting requests, or
    /// gives it to the first requester alone.
    pub(super) async fn accept_part(&self, answer: OriginAnswer<F::Body>, range: &HeaderValue) {
        let cache = self.cache();
        let OriginAnswer { head, body, request_time, response_time } = answer;
        let (part, mut place, selecting) = match self.place_of_part(&head, request_time, response_time) {
            Ok(placed) => placed,
            Err(reason) => {
                // Further ranges are forwarded at once. A rounded one would be requested in vain, and then forwarded.
                self.note_audience(Audience::FirstAsker);
                let is_exact = self.asked.fields().get(header::RANGE) == Some(range);
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
        if let Some(admission) = self.http.fetcher.admit_copy(&body, &place, &head, Some(part.span.len())) {
            place.admission = admission;
        }
        let span = part.span.first..part.span.last + 1;
        let status = StatusCode::PARTIAL_CONTENT;
        let shared = SharedPart { head, own, len: part.total_len, span, alone, status };
        self.share_part(shared, body, place).await;
    }

    /// Decides where the part in a 206 is stored, or returns the reason why it is not.
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
        if !has_tag && !is_all_wanted(self.asked.fields(), &part.span, part.total_len) {
            return Err(Reason::Partial);
        }
        let exchange = self.exchange(head, request_time, response_time);
        let rule = match storable::decide_part(&exchange, &part, settings) {
            Storability::Store { rule, .. } => rule,
            Storability::Refuse { reason } => return Err(reason),
        };
        let place = StorePlace::new(&self.primary, &rule, self.asked.fields(), self.marker.as_ref(), settings);
        let (place, selecting) = place.zip(rule.select(self.asked.fields(), settings)).ok_or(Reason::VaryStar)?;
        let can_be_kept = part.span.len() <= CHUNK_BYTES || (has_tag && has_whole_chunk(&part));
        if can_be_kept && part.total_len <= self.size_max(Ruling::of(&head.headers)) {
            Ok((part, place, selecting))
        } else {
            Err(Reason::Partial)
        }
    }

    /// Gives a part to the waiting requests while it arrives, and stores it if its place permits that.
    pub(super) async fn share_part(&self, shared: SharedPart, received: F::Body, mut place: StorePlace) {
        let SharedPart { head, own, len, span, alone, status } = shared;
        let cache = self.cache();
        let is_long = span.end - span.start > CHUNK_BYTES;
        let is_behind = is_long && cache.shared.patience.is_behind();
        let is_stored = place.admission != StoreAdmission::Refused && !is_behind;
        // Of a divided body, this node stores the pieces that it owns. Without the head, it would not find them.
        let is_divided = self.is_divided(&head, len);
        if !is_stored && is_divided {
            storing::commit(cache, &place, &head, CommittedBody::Part, &self.flight.work).await;
            place.admission = StoreAdmission::Open;
        }
        self.http.fetcher.note(FetchEvent::Stored { primary: &place.primary, head: &head });
        let marker = place.marker.as_ref().map(|(marker, _)| Arc::clone(marker));
        let key = Arc::clone(&place.key);
        let source = PartSource::Arrived { status, is_stored };
        let head = Arc::new(head);
        let part = ArrivingPart {
            len: Some(len),
            span: span.clone(),
            is_whole: false,
            is_stored: is_stored || is_divided,
            is_kept: is_stored,
            may_continue: true,
        };
        let begun = self.begin_body(place, &head, part);
        let representation = begun.body.chunks.place.representation;
        let entry = CachedEntry::new(StoredHead::clone(&head), EntryBody::Chunks { len, representation });
        let kept = KeptPart {
            entry: Arc::new(entry),
            key,
            marker,
            own,
            audience: Audience::Shared,
            alone,
            source,
            body: Some(Arc::clone(&begun.body)),
        };
        self.share_body(FetchStage::Part(Arc::new(kept)), &begun.body, span);
        self.land_body(begun, received, BodyChecks::default()).await;
    }
}

/// Returns whether the present part `there` of a body contains everything that a request with these fields wants.
pub(crate) fn is_all_wanted(request_fields: &HeaderMap, there: &Span, total_len: u64) -> bool {
    let RangeRequest::Single(wanted) = range::parse(request_fields) else { return false };
    match range::resolve(wanted, total_len) {
        RangeOutcome::Single { first, last } => there.first <= first && last <= there.last,
        RangeOutcome::Whole | RangeOutcome::Many(_) | RangeOutcome::NotSatisfiable => false,
    }
}

/// Returns whether a part contains at least one whole chunk of its body.
fn has_whole_chunk(part: &Part) -> bool {
    let end = part.span.last + 1;
    let stored_end = if end == part.total_len { end } else { end - end % CHUNK_BYTES };
    part.span.first.checked_next_multiple_of(CHUNK_BYTES).is_some_and(|start| start < stored_end)
}

/// Returns the head of the whole response, made from that of a 206 with a part of it.
fn head_of(mut received: ReceivedHead, part: &Part, selecting: SelectingFields, targets: &TargetList) -> StoredHead {
    // The origin sent a 206, so it supports ranges, and the missing parts can be requested.
    received.fields.entry(header::ACCEPT_RANGES).or_insert(HeaderValue::from_static("bytes"));
    partial::whole_head(received, part, random(), selecting, targets)
}

/// Maximum length in bytes of a range that is extended to whole chunks. A longer range contains a whole chunk anyway.
const SHORT_RANGE_BYTES_MAX: u64 = 2 * CHUNK_BYTES;
