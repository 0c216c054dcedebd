//! Opens a storable response to its readers, and decides how much of it this node fetches and stores.
//!
//! Owns: the decisions that depend on the response's head. `body` moves the body. Invariant: once readers may
//! be served, everything that depends on the head is final.
//!
//! Of a long body that is divided among the nodes of a fleet ([`Fetcher::divides`]), only the first chunk is taken from
//! this response, which is then dropped. The readers request the remainder like gaps of a stored body, from the owner
//! of each piece.

use std::{iter, ops::Range, pin::pin, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use larder_device::pinned;
use larder_http::{
    BodyPlace, Reason, ReceivedHead, Reuse, StoredHead, cache_control::RequestDirectives, framing::CompletedBody, reuse,
};

use super::{
    part::SharedPart,
    stage::{Audience, FetchStage, OpenHead},
    task::{Fetch, OriginAnswer, PlacedResponse, is_gone, put_verified},
};
use crate::http::{
    body::{
        fill::{BodyChecks, FillPlan},
        long_body::{ArrivingPart, BegunBody, LongBody},
        open_body::OpenBody,
        receiving::ReceivedRun,
        storage::LandedBody,
    },
    chunks::{BodyKeys, is_divisible},
    committed_body::CommittedBody,
    entry::{CHUNK_BYTES, random},
    fetcher::{ClientRequest as _, FetchEvent, Fetcher, IncomingBody as _},
    storing::{self, StoreAdmission, StorePlace},
};

/// A response of the origin that brings the whole body, and is shared by all waiting requests.
struct WholeResponse {
    head: Arc<StoredHead>,
    /// Fields of the response that only the first requester gets.
    own: HeaderMap,
    total_len: Option<u64>,
    audience: Audience,
    /// Whether the store is so far behind with its writes that it cannot take this response.
    behind: bool,
}

/// The head of a response whose body the nodes of the fleet divide among themselves.
struct DividedHead {
    head: StoredHead,
    /// Fields of the response that only the first requester gets.
    own: HeaderMap,
    len: u64,
}

impl<F: Fetcher> Fetch<F> {
    /// Gives a response to the waiting requests, and stores it at its place.
    pub(super) async fn open(&self, answer: OriginAnswer<F::Body>, placed: PlacedResponse) {
        let PlacedResponse { mut place, selecting, facts } = placed;
        let status = answer.head.status;
        let cache = self.cache();
        let has_arrived = answer.body.has_arrived();
        let _place_of_fetch = match has_arrived {
            true => None,
            false => match self.http.fetcher.take_place().await {
                Ok(place) => Some(place),
                Err(failure) => return self.flight.set_stage(FetchStage::Failed(failure)),
            },
        };
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
        let checks = self.http.fetcher.checks(&self.asked, status, &head.headers).await;
        let mut facts = Some(facts);
        if checks.named.is_some() {
            put_verified(&mut head.headers);
            facts = None;
        }
        let total_len = body.remaining();
        let received = ReceivedHead { status, fields: head.headers, request_time, response_time };
        let place_of_body = BodyPlace::Whole { len: total_len.unwrap_or(0) };
        let (head, own) = StoredHead::split(received, facts, place_of_body, selecting, &settings.targets);
        let head = head.after_purges(self.flight.work.purge_count);
        let plain = RequestDirectives::default();
        let fresh = reuse::decide_by_directives(&Method::GET, &plain, &head, response_time, settings);
        let shareable = matches!(fresh, Reuse::Fresh { .. });
        let audience = if shareable { Audience::Shared } else { Audience::FirstAsker };
        self.note_audience(audience);
        // This is decided before the head is shared, because Cache-Status must say whether the response is stored.
        let behind = total_len.is_some_and(|len| len > CHUNK_BYTES) && cache.shared.patience.is_behind();
        let may_divide = shareable && !behind && checks.named.is_none();
        let divided_len = total_len.filter(|len| may_divide && self.is_divided(&head, *len));
        let mut copy = None;
        if !behind {
            let arriving_len = divided_len.map(|_| CHUNK_BYTES).or(total_len);
            copy = self.http.fetcher.admit_copy(&body, &place, &head, arriving_len);
            place.admission = copy.unwrap_or_else(|| storing::admission(cache, &place, &head, total_len));
        }
        if let Some(len) = divided_len.filter(|_| copy.is_some() || place.admission != StoreAdmission::Refused) {
            // Boxed, because it takes kilobytes that no other response needs.
            return Box::pin(self.open_divided(DividedHead { head, own, len }, body, place)).await;
        }
        let whole = WholeResponse { head: Arc::new(head), own, total_len, audience, behind };
        // Boxed, because it takes kilobytes that the fetch does not need while it waits for the origin.
        pinned(|| self.share_whole(whole, (body, checks), place)).await;
    }

    /// Gives a response to the waiting requests while its body arrives, and stores it at `place`.
    async fn share_whole(&self, whole: WholeResponse, (mut body, checks): (F::Body, BodyChecks), place: StorePlace) {
        if let Some(arrived) = Some(&mut body).filter(|_| !checks.are_any()).and_then(F::Body::take_arrived) {
            return self.share_arrived(whole, arrived, place).await;
        }
        let WholeResponse { head, own, total_len, audience, behind } = whole;
        let marker = place.marker.as_ref().map(|(marker, _)| Arc::clone(marker));
        let is_admitted = place.admission == StoreAdmission::Granted;
        let unstored = behind.then_some(Reason::StoreBehind);
        let is_usual = head.status() == StatusCode::OK && self.asked.has_parts();
        let part = ArrivingPart {
            len: total_len,
            span: 0..total_len.unwrap_or(u64::MAX),
            is_whole: true,
            is_stored: unstored.is_none(),
            is_kept: true,
            may_continue: is_usual && !checks.are_any(),
        };
        let begun = self.begin_body(place, &head, part);
        let open_body = OpenBody::Arriving(Arc::clone(&begun.body));
        let open = OpenHead { head, own, total_len, audience, unstored, is_admitted, marker, body: open_body };
        // From here on readers may be served, so everything that depends on the head is final.
        self.share_body(FetchStage::Open(Arc::new(open)), &begun.body, 0..total_len.unwrap_or(u64::MAX));
        self.land_body(begun, body, checks).await;
    }

    /// Gives a response whose body arrived with its head to the waiting requests, and stores it at `place`.
    async fn share_arrived(&self, whole: WholeResponse, arrived: (Bytes, CompletedBody), place: StorePlace) {
        let WholeResponse { head, own, total_len, audience, behind } = whole;
        let (bytes, completed) = arrived;
        let cache = self.cache();
        let bytes = cache.shared.bodies.count(bytes);
        let is_stored = completed.len() <= self.size_max(head.ruling());
        let marker = place.marker.as_ref().map(|(marker, _)| Arc::clone(marker));
        let is_admitted = place.admission == StoreAdmission::Granted;
        let unstored = behind.then_some(Reason::StoreBehind);
        let body = OpenBody::Whole(bytes.clone());
        let open = OpenHead { head: Arc::clone(&head), own, total_len, audience, unstored, is_admitted, marker, body };
        // Clients do not wait for this commit, but a stop of the proxy does.
        let late = self.http.fetcher.begin_late_commit();
        self.flight.set_stage(FetchStage::Open(Arc::new(open)));
        if is_stored {
            let body = CommittedBody::Whole(completed, vec![bytes]);
            // Pinned where it is made: awaited as a value, its kilobytes would be copied once more.
            pin!(storing::commit(cache, &place, &head, body, &self.flight.work)).await;
            self.http.fetcher.note(FetchEvent::Stored { primary: &place.primary, head: &head });
        } else {
            self.forget_unkept().await;
        }
        drop(late);
    }

    /// Creates the body of a response, which will be stored at `place`. `part` is what the response brings.
    pub(super) fn begin_body(&self, place: StorePlace, head: &Arc<StoredHead>, part: ArrivingPart) -> BegunBody<F> {
        let keys = BodyKeys {
            primary: Arc::clone(&place.primary),
            key: Arc::clone(&place.key),
            representation: representation_of(head),
        };
        let ruling = head.ruling();
        let plan = FillPlan {
            place,
            head: Arc::clone(head),
            work: self.flight.work.clone(),
            size_max: self.size_max(ruling.clone()),
            len: part.len,
            finishes: ruling.and_then(|ruling| ruling.finishes_abandoned),
            is_part: !part.is_whole,
            may_announce: self.before.is_none(),
        };
        LongBody::begin(&self.http.fetcher, &self.asked, keys, plan, part)
    }

    /// Announces a stage of the fetch, with a body of which `span` arrives. Keeps the start of `span` in memory until
    /// the requests that wait now have begun to read.
    pub(super) fn share_body(&self, stage: FetchStage<F>, body: &Arc<LongBody<F>>, span: Range<u64>) {
        if span.is_empty() {
            return self.flight.set_stage(stage);
        }
        let spans = iter::once(span).collect();
        let guard = body.attach(&self.http.fetcher, &self.asked, spans);
        self.flight.set_stage_with(stage, guard);
    }

    /// Receives a body and stores it. If it could have been stored but was not, removes the older response, for whose
    /// validation the origin sent this one.
    pub(super) async fn land_body(&self, begun: BegunBody<F>, received: F::Body, checks: BodyChecks) {
        let BegunBody { body, run, control, span } = begun;
        body.receive(ReceivedRun { id: run, control, body: received, span }, checks).await;
        if body.land(|| self.is_in_table()).await == LandedBody::Unkept {
            self.forget_unkept().await;
        }
    }

    /// Returns whether the nodes of the fleet divide this body, of `len` bytes, among themselves.
    pub(super) fn is_divided(&self, head: &StoredHead, len: u64) -> bool {
        let asked = &self.asked;
        // Asked first, because most nodes are alone, and the rest reads the fields.
        if !self.http.fetcher.divides(asked, len) {
            return false;
        }
        // A digest can only be checked on the whole body.
        let is_plain = *asked.method() == Method::GET && asked.has_parts() && !asked.names_digest();
        let is_whole_here = asked.terms().line.is_down()
            || self.cache().shared.store.is_none()
            || head.ruling().and_then(|ruling| ruling.finishes_abandoned) == Some(true);
        is_plain && !is_whole_here && head.status() == StatusCode::OK && is_divisible(head.fields())
    }

    /// Gives a response to the waiting requests whose body the nodes of the fleet divide. This response brings the
    /// first chunk of the body.
    async fn open_divided(&self, divided: DividedHead, received: F::Body, place: StorePlace) {
        let DividedHead { head, own, len } = divided;
        let head = head.with_body(BodyPlace::Chunks { len, representation: random() });
        let status = head.status();
        let shared = SharedPart { head, own, len, span: 0..CHUNK_BYTES, alone: None, status };
        Box::pin(self.share_part(shared, received, place)).await;
    }
}

/// Returns the representation number in a head. If the head has none, because its body is not in chunks, returns a new
/// one.
fn representation_of(head: &StoredHead) -> u64 {
    match head.body() {
        BodyPlace::Chunks { representation, .. } => representation,
        BodyPlace::Whole { .. } => random(),
    }
}
