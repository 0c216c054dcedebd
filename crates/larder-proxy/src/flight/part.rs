//! Fetches a range of a response that is not stored: requests a part, and stores it as a part (RFC 9111 3.3, 3.4).
//!
//! Owns: which part is requested, and how much of it is stored. `cache::chunks` fetches missing parts later.
//!
//! Invariants: a part is kept only if its Content-Range agrees with its length. Without a strong entity tag the
//! remainder cannot be requested, so the part is kept only if it is all that was requested. Its head is stored after
//! it. Memory: one part of at most [`CHUNK_BYTES`].

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use larder_http::{
    BodyPlace, RangeOutcome, ReceivedHead, Storability, StoredHead, TargetList, cache_control, partial,
    range::{self, ByteRange, RangeRequest},
    span::Span,
    storable,
};

use crate::{
    asked::RequestHead,
    cache::{
        chunks::{BodyKeys, ChunkedBody, PlacedBytes, strong_tag},
        entry::{CHUNK_BYTES, CachedEntry, EntryBody, random},
        storing::{self, StoreAdmission, StorePlace},
    },
    errors::Failure,
    flight::{
        copying,
        fetch::{Fetch, OriginAnswer},
        stage::{FetchStage, KeptPart, PartSource, PrivateResponse},
    },
};

impl Fetch {
    /// Returns the range to request, if a part suffices: the chunk that contains the start of the client's first range,
    /// or the end of the body.
    ///
    /// Further ranges are fetched when they are read.
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
        let text = match range {
            // If a client wants everything from near the start, the whole response is fetched.
            ByteRange::From { first, last: None } if first <= CHUNK_BYTES => return None,
            ByteRange::From { first, .. } => {
                let start = first - first % CHUNK_BYTES;
                format!("bytes={start}-{}", start.checked_add(CHUNK_BYTES - 1)?)
            }
            ByteRange::Suffix { len } => format!("bytes=-{}", len.min(CHUNK_BYTES)),
        };
        HeaderValue::try_from(text).ok()
    }

    /// Accepts the 206 for `range`: stores its part and shares it, or gives it to the first requester alone.
    pub(super) async fn accept_part(&self, answer: OriginAnswer, range: &HeaderValue) {
        let cache = self.cache();
        let OriginAnswer { head, body, request_time, response_time } = answer;
        let tag = strong_tag(&head.headers);
        let kept = partial::part(head.status, &head.headers).and_then(|part| {
            // Without a strong tag the remainder can never be requested, so the part is useless to other clients.
            if tag.is_none() && !is_all_wanted(&self.asked, &part.span, part.total_len) {
                return Err(larder_http::Reason::Partial);
            }
            let exchange = self.exchange(&head, request_time, response_time);
            match storable::decide_part(&exchange, &part, &cache.http) {
                Storability::Store { rule, .. } => Ok((part, rule)),
                Storability::Refuse { reason } => Err(reason),
            }
        });
        let kept = kept.and_then(|(part, rule)| {
            let settings = &cache.http;
            let place = StorePlace::new(&self.primary, &rule, &self.asked.fields, self.marker.as_ref(), settings);
            let place = place.zip(rule.select(&self.asked.fields, settings)).ok_or(larder_http::Reason::VaryStar)?;
            let fits = part.span.len() <= CHUNK_BYTES && part.total_len <= self.size_max(&head.headers);
            if fits { Ok((part, place)) } else { Err(larder_http::Reason::Partial) }
        });
        let (part, (mut place, selecting)) = match kept {
            Ok(kept) => kept,
            Err(reason) => {
                cache.shared.uncollapsible.insert(&self.primary);
                let is_exact = self.asked.fields.get(header::RANGE) == Some(range);
                let private = PrivateResponse { status: head.status, fields: head.headers, body, reason, is_exact };
                return self.flight.set_private(private);
            }
        };
        let is_from_sibling = body.is_from_sibling;
        let len = usize::try_from(part.span.len()).unwrap_or(usize::MAX);
        // The part is collected before it is shared. It is at most one chunk, and its length must agree with its
        // Content-Range.
        let Some(bytes) = body.collect(len).await else {
            let why = "its response ended early".to_owned();
            return self
                .flight
                .set_stage(FetchStage::Failed(Failure::Broken { host: self.asked.origin.to_string(), why }));
        };
        let targets = &cache.http.targets;
        let own = cache_control::first_askers_own(&head.headers, targets);
        let arrived = PlacedBytes { start: part.span.first, bytes };
        let received = ReceivedHead { status: head.status, fields: head.headers, request_time, response_time };
        let alone = (tag.is_none() && part.span.len() < part.total_len).then_some(part.span);
        let head = head_of(received, &part, selecting, targets).after_purges(self.flight.began.purge_count);
        if is_from_sibling {
            place.admission = copying::admission(cache, &place, &head, Some(part.span.len()));
        }
        // Readers are served after this, so they find the part stored.
        let is_stored = self.keep_part(&place, &head, &arrived).await;
        self.count_file(&head);
        let entry = Arc::new(entry_of(head, &arrived));
        let marker = place.marker.map(|(marker, _)| marker);
        let source = PartSource::Arrived { status: StatusCode::PARTIAL_CONTENT, is_stored };
        let kept = KeptPart { entry, key: place.key, marker, own, alone, source, arrived: Some(arrived) };
        self.flight.set_stage(FetchStage::Part(Arc::new(kept)));
    }

    /// Stores a part, and then the head of the response that it belongs to, if the place admits it. Returns whether it
    /// does. If not, a whole body stays in memory, and a body that is divided among nodes is stored without the part:
    /// without its head, this node would not find the pieces that it owns.
    pub(super) async fn keep_part(&self, place: &StorePlace, head: &StoredHead, arrived: &PlacedBytes) -> bool {
        let (cache, began) = (self.cache(), self.flight.began);
        let is_admitted = place.admission != StoreAdmission::Refused;
        let body = match head.body() {
            BodyPlace::Whole { .. } => vec![arrived.bytes.clone()],
            BodyPlace::Chunks { len, representation } if is_admitted => {
                let (primary, key) = (Arc::clone(&place.primary), Arc::clone(&place.key));
                let keys = BodyKeys { primary, key, representation };
                ChunkedBody::new(cache, keys, head, Some(len)).keep(arrived).await;
                Vec::new()
            }
            BodyPlace::Chunks { len, .. } if self.is_divided(head, len) => Vec::new(),
            BodyPlace::Chunks { .. } => return false,
        };
        storing::commit(cache, place, head, body, began).await;
        is_admitted
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

/// Returns the head of the whole response that a part belongs to. If the part covers everything, the head is that of a
/// complete response.
fn head_of(
    mut received: ReceivedHead,
    part: &partial::Part,
    selecting: larder_http::SelectingFields,
    targets: &TargetList,
) -> StoredHead {
    // The origin sent a 206, so it supports ranges, and the missing parts can be requested.
    received.fields.entry(header::ACCEPT_RANGES).or_insert(HeaderValue::from_static("bytes"));
    let head = partial::whole_head(received, part, random(), selecting, targets);
    if part.span.len() == part.total_len { head.with_body(BodyPlace::Whole { len: part.total_len }) } else { head }
}
