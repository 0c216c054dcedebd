//! Opens a storable response to its readers, and decides how much of it this node fetches and stores.
//!
//! Owns: the decisions that depend on the response's head. `carry` moves the body. Invariant: once readers may be
//! served, everything that depends on the head is final.
//!
//! Of a long body that is divided among the nodes of a fleet (`siblings::pieces`), only the first chunk is taken from
//! this response, which is then dropped. The readers request the remainder like gaps of a stored body, from the owner
//! of each piece.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, header::CONTENT_ENCODING};
use larder_http::{BodyPlace, Reason, ReceivedHead, Reuse, Ruling, SelectingFields, StoredHead, reuse};

use crate::{
    cache::{
        chunks::{PlacedBytes, is_divisible},
        entry::{CHUNK_BYTES, random},
        storing::{self, StoreAdmission, StorePlace},
    },
    errors::Failure,
    exchange_budget::PlaceUse,
    flight::{
        carry::ResponseCarrier,
        copying,
        fetch::{Fetch, OriginAnswer, is_gone, put_verified},
        part::entry_of,
        stage::{Audience, FetchStage, KeptPart, OpenHead, PartSource},
    },
    listings,
    origin::body::OriginBody,
};

/// The head of a body that is divided.
struct DividedHead {
    head: StoredHead,
    /// Additional fields for the first requester alone.
    own: HeaderMap,
    len: u64,
}

impl Fetch {
    /// Shares a response with the readers, and stores it at `place`.
    pub(super) async fn open(&self, answer: OriginAnswer, mut place: StorePlace, selecting: SelectingFields) {
        let status = answer.head.status;
        let cache = self.cache();
        let has_arrived = answer.body.has_arrived();
        let place_of_fetch =
            if has_arrived { None } else { self.cache().shared.places.take_soon(PlaceUse::Fetch).await };
        if place_of_fetch.is_none() && !has_arrived {
            return self.flight.set_stage(FetchStage::Failed(Failure::Overloaded));
        }
        if self.before.is_some() {
            Box::pin(self.forget_elsewhere(&place)).await;
        }
        if let Some(found) = self.before.as_ref().filter(|_| is_gone(status)) {
            // The old response is removed even if the new one is not stored in the end, because the origin has
            // replaced it.
            drop(Box::pin(storing::remove(self.cache(), &found.key)).await);
        }
        place.group = self.group_of(&answer.head.headers);
        let OriginAnswer { mut head, body, request_time, response_time } = answer;
        let settings = &cache.http;
        let may_have_digest = status == StatusCode::OK && !head.headers.contains_key(CONTENT_ENCODING);
        let digest = match &self.asked.before.digest {
            // An encoded body has another digest.
            _ if !may_have_digest => None,
            Some(named) => Some(named.clone()),
            None if Ruling::of(&head.headers).is_some_and(|ruling| ruling.immutable) => {
                Box::pin(listings::known_digest(cache, &self.asked)).await
            }
            None => None,
        };
        if digest.is_some() {
            put_verified(&mut head.headers);
        }
        let total_len = body.remaining();
        let received = ReceivedHead { status, fields: head.headers, request_time, response_time };
        let place_of_body = BodyPlace::Whole { len: total_len.unwrap_or(0) };
        let (head, own) = StoredHead::split(received, place_of_body, selecting, &settings.targets);
        let head = head.after_purges(self.flight.work.purge_count);
        let fresh = reuse::decide(&Method::GET, &HeaderMap::new(), &head, response_time, settings);
        let shareable = matches!(fresh, Reuse::Fresh { .. });
        let audience = if shareable { Audience::Shared } else { Audience::FirstAsker };
        self.note_audience(audience);
        // This is decided before the head is shared, because Cache-Status must say whether the response is stored.
        let behind = total_len.is_some_and(|len| len > CHUNK_BYTES) && cache.shared.patience.is_behind();
        let may_divide = shareable && !behind && digest.is_none();
        let divided_len = total_len.filter(|len| may_divide && self.is_divided(&head, *len));
        if !behind {
            place.admission = match (body.is_from_sibling, divided_len) {
                // A sibling stores it for all nodes, so it stays in memory here unless it is popular.
                (true, None) => copying::admission(cache, &place, &head, total_len),
                (true, Some(_)) => copying::admission(cache, &place, &head, Some(CHUNK_BYTES)),
                (false, _) => storing::admission(cache, &place, &head, total_len),
            };
        }
        if let Some(len) = divided_len.filter(|_| body.is_from_sibling || place.admission != StoreAdmission::Refused) {
            // Boxed, because it takes kilobytes that no other response needs.
            return Box::pin(self.open_divided(DividedHead { head, own, len }, body, place)).await;
        }
        let marker = place.marker.as_ref().map(|(marker, _)| Arc::clone(marker));
        let is_admitted = place.admission == StoreAdmission::Granted;
        let unstored = behind.then_some(Reason::StoreBehind);
        let open = Arc::new(OpenHead { head, own, total_len, audience, unstored, is_admitted, marker });
        // From here on readers may be served, so everything that depends on the head is final.
        self.flight.set_stage(FetchStage::Open(Arc::clone(&open)));
        // Boxed, because it takes kilobytes that the fetch does not need while it waits for the origin.
        Box::pin(ResponseCarrier::new(self, &open, place, digest).run(body)).await;
    }

    /// Returns whether the nodes of the fleet divide a body of `len` bytes.
    pub(super) fn is_divided(&self, head: &StoredHead, len: u64) -> bool {
        let asked = &self.asked;
        // A digest can only be checked on the whole body.
        let is_plain = asked.method == Method::GET && asked.question.is_none() && asked.before.digest.is_none();
        let is_whole_here = asked.line.is_down()
            || self.cache().shared.store.is_none()
            || Ruling::of(head.fields()).and_then(|ruling| ruling.finishes_abandoned) == Some(true);
        let is_usable = head.status() == StatusCode::OK && is_divisible(head.fields());
        is_plain && !is_whole_here && is_usable && self.flights.means.may_divide(asked, len)
    }

    /// Shares a body that is divided.
    async fn open_divided(&self, divided: DividedHead, body: OriginBody, place: StorePlace) {
        let DividedHead { head, own, len } = divided;
        let Some(bytes) = body.first(CHUNK_BYTES as usize).await else {
            let why = "its response ended early".to_owned();
            let failure = Failure::Broken { host: self.asked.origin.to_string(), why };
            return self.flight.set_stage(FetchStage::Failed(failure));
        };
        let status = head.status();
        let arrived = PlacedBytes { start: 0, bytes };
        let head = head.with_body(BodyPlace::Chunks { len, representation: random() });
        let is_stored = self.keep_part(&place, &head, &arrived, None).await;
        let entry = Arc::new(entry_of(head, &arrived));
        let source = PartSource::Arrived { status, is_stored };
        let marker = place.marker.map(|(marker, _)| marker);
        let key = place.key;
        let audience = Audience::Shared;
        let arrived = Some(arrived);
        let kept = KeptPart { entry, key, marker, own, audience, alone: None, source, arrived };
        self.flight.set_stage(FetchStage::Part(Arc::new(kept)));
    }
}
