//! Reads a flight for one request: its own, or one that was in progress.
//!
//! Owns: the decision whether a flight's response answers the request, and the response made from it. `share` reacts if
//! it does not. Invariant: a response that was fetched for another request is used only if the caching rules permit it
//! for this one, and if this client may read it.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode, header};
use larder_device::pinned;
use larder_http::{
    BodyPlace, CacheStatus, Precondition, Reason, ReceivedHead, Reuse, SelectingFields, StoredHead,
    cache_status::{Forward, RequestHandling, Tier},
    conditional,
    reuse::Age,
};

use super::{
    hit::{self, BodyPortion},
    pass::{PassedResponse, with_origin_status},
    plan::FetchPlan,
    query::{Answer, AnswerBody, AnswerKind, AnswerResponse, CacheQuery},
};
use crate::http::{
    body::{continuation::ContinuedBody, open_body::OpenBody},
    entry::ResourceMarker,
    fetch::{
        part::is_all_wanted,
        presence::{self, ReadyAnswer},
        reader::FlightReader,
        stage::{Audience, ConfirmedEntry, FetchStage, KeptPart, OpenHead, PartSource, PrivateResponse},
    },
    fetcher::{ClientRequest as _, Fetcher},
};

/// The answer from a flight (a shared fetch), or the reason why this request cannot use it.
pub(super) type FlightAnswer<F> = Result<Result<Answer<F>, <F as Fetcher>::Failure>, UnusedReason>;

/// The reason why a request cannot use the response of a flight (a shared fetch).
pub(super) enum UnusedReason {
    /// The response is a variant for other requests. The marker leads to the variant for this request.
    OtherVariant(Arc<ResourceMarker>),
    /// The response must not be given to this request. The request needs a fetch of its own.
    NotForUs,
    /// The response is older than this request accepts. It was requested before this request arrived.
    TooOld,
    /// The response is a 304 to another request's condition. It does not tell whether responses can be shared, so the
    /// request tries another shared fetch.
    Again,
    /// The origin confirmed the stored response, but its body is no longer available.
    Incomplete,
}

/// A response that a flight (a shared fetch) offers to a waiting request.
struct OfferedResponse<'a> {
    head: &'a StoredHead,
    body_len: Option<u64>,
    /// The marker that lists the resource's variants, if the response varies.
    marker: Option<&'a Arc<ResourceMarker>>,
    /// Whether the origin sent the response to this request, not to another one that shares the fetch.
    is_own: bool,
}

/// A request that waits for a flight, a fetch that it shares with others.
pub(super) struct FlightReading<'a, F: Fetcher> {
    pub(super) by: CacheQuery<'a, F>,
    pub(super) sharing: &'a FetchPlan<F>,
}

impl<F: Fetcher> Clone for FlightReading<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fetcher> Copy for FlightReading<'_, F> {}

impl<F: Fetcher> FlightReading<'_, F> {
    /// Answers the request from the stage that the flight (a shared fetch) has reached. `ended_before` tells that the
    /// flight had already ended when this request joined it.
    pub(super) async fn take(
        self,
        reader: FlightReader<F>,
        stage: FetchStage<F>,
        ended_before: bool,
    ) -> FlightAnswer<F> {
        let Self { by, sharing } = self;
        if stage.audience() == Audience::FirstAsker && !reader.is_first() {
            // A 304 that answered only the first requester's condition says nothing about this request.
            let is_about_nothing = reader.flight().answered_a_condition();
            return Err(if is_about_nothing { UnusedReason::Again } else { UnusedReason::NotForUs });
        }
        let stale = sharing.before.as_ref().filter(|_| sharing.may_serve_on_error);
        // The rarer stages are boxed, so that they do not enlarge the future that waits for the origin.
        match stage {
            FetchStage::Open(open) => self.take_open(reader, &open, ended_before).await,
            FetchStage::Confirmed(found) => self.take_confirmed(&found, reader.is_first()).await,
            FetchStage::Part(kept) => Box::pin(self.take_part(&kept, reader.is_first())).await,
            FetchStage::OriginFailing => {
                let served = stale.and_then(|found| by.stale_answer(found));
                served.map(Ok).ok_or(UnusedReason::NotForUs)
            }
            FetchStage::Private => match reader.flight().take_private() {
                Some(response) => Ok(pinned(|| self.private(*response)).await),
                None => Err(UnusedReason::NotForUs),
            },
            FetchStage::Waiting => Err(UnusedReason::NotForUs),
            FetchStage::Failed(failure) => Ok(by.or_stale(Err(failure), stale)),
        }
    }

    /// Returns whether the client may receive a response that was fetched with another client's credentials.
    pub(super) fn may_read(self, head: &StoredHead, body_len: Option<u64>) -> bool {
        !self.by.asked.checks_access()
            || !head.freshness().checks_authorization
            || self.sharing.permission.as_ref().is_some_and(|permission| F::permits(permission, head, body_len))
    }

    /// Decides how this request may use the response that a flight (a shared fetch) offers.
    ///
    /// # Errors
    /// The client may not read the response, or the response is another variant.
    fn judge(self, offered: &OfferedResponse<'_>) -> Result<Reuse, UnusedReason> {
        let asked = &self.by.asked;
        let cache = self.by.cache();
        let OfferedResponse { head, body_len, marker, is_own } = *offered;
        require(is_own || self.may_read(head, body_len), UnusedReason::NotForUs)?;
        if !head.matches(asked.fields(), &cache.http) {
            return Err(marker.cloned().map_or(UnusedReason::NotForUs, UnusedReason::OtherVariant));
        }
        let decision = cache.judge(&asked.terms(), head, self.by.now());
        require(is_own || !decision.is_by_other_rule(), UnusedReason::NotForUs)?;
        Ok(decision)
    }

    /// Returns whether the response is older than the request's `max-age` permits. Never true in a reload, because then
    /// the response was requested after this request arrived.
    fn is_too_old(self, decision: &Reuse) -> bool {
        let is_over_age = matches!(decision, Reuse::MustValidate { reason: Reason::RequestMaxAge, .. });
        !self.sharing.is_reload && is_over_age
    }

    /// Answers the request with the stored response that the origin has just confirmed. Checks first that the request
    /// may use it.
    async fn take_confirmed(self, found: &ConfirmedEntry, is_first: bool) -> FlightAnswer<F> {
        let head = &found.entry.head;
        let body_len = Some(found.entry.body_len());
        // The origin itself has judged the first reader's credentials. The other readers are judged here.
        let offered = OfferedResponse { head, body_len, marker: found.marker.as_ref(), is_own: is_first };
        let decision = self.judge(&offered)?;
        require(is_first || !self.is_too_old(&decision), UnusedReason::TooOld)?;
        Box::pin(self.confirmed(found, is_first)).await.ok_or(UnusedReason::Incomplete)
    }

    /// Checks that a request may use a response that was fetched for another one, and that is arriving or being stored.
    fn check_open(self, open: &OpenHead<F>, ended_before: bool) -> Result<(), UnusedReason> {
        let head = &open.head;
        let marker = open.marker.as_ref();
        let offered = OfferedResponse { head, body_len: open.total_len, marker, is_own: false };
        let decision = self.judge(&offered)?;
        require(!self.is_too_old(&decision), UnusedReason::TooOld)?;
        // Only requests that joined before its end may share a stale response (RFC 9111 4). For later requests, it is a
        // stored response to validate.
        let is_current = !ended_before || matches!(decision, Reuse::Fresh { .. });
        require(is_current, UnusedReason::NotForUs)
    }

    /// Answers with a response that is arriving, or that has arrived and is being stored.
    async fn take_open(self, reader: FlightReader<F>, open: &OpenHead<F>, ended_before: bool) -> FlightAnswer<F> {
        let Self { by, sharing } = self;
        let first = reader.is_first();
        if !first {
            self.check_open(open, ended_before)?;
        }
        let age = by.age_of(&open.head);
        let (status, kind) = match (ended_before, &sharing.before) {
            (true, _) => (CacheStatus::hit(age.ttl_secs).from_tier(Tier::Memory), AnswerKind::MemoryHit),
            (false, Some(_)) => (arriving(sharing, open, !first), AnswerKind::RefreshModified),
            (false, None) => (arriving(sharing, open, !first), AnswerKind::Miss),
        };
        // A response that comes straight from the origin has an Age only if it arrived with one (RFC 9111 5.1).
        let age_secs = (ended_before || age.age_secs > 0).then_some(age.age_secs);
        let Some(response) = self.open_response(reader, open, age_secs, status).await else {
            return Ok(by.pass(sharing.forward).await);
        };
        let conditional = ended_before && response.status() == StatusCode::NOT_MODIFIED;
        let kind = if conditional { AnswerKind::ConditionalHit } else { kind };
        let is_from_origin = !ended_before;
        Ok(Ok(Answer { response, kind, status, is_from_origin }))
    }

    /// Answers with a stored or arriving part of a response. If the request needs more, and the remainder cannot be
    /// fetched, passes the client's own request on to the origin.
    async fn take_part(self, kept: &KeptPart<F>, is_first: bool) -> FlightAnswer<F> {
        let Self { by, sharing } = self;
        let asked = by.asked;
        let entry = &kept.entry;
        let marker = kept.marker.as_ref();
        let from_origin = kept.source != PartSource::Cache;
        let body_len = Some(entry.body_len());
        let is_own = is_first && from_origin;
        let decision = self.judge(&OfferedResponse { head: &entry.head, body_len, marker, is_own })?;
        let is_there = kept.alone.is_none_or(|there| is_all_wanted(asked.fields(), &there, entry.body_len()));
        let is_new = sharing.is_reload && from_origin;
        let may_share = is_there && (is_new || matches!(decision, Reuse::Fresh { .. }));
        require(is_first || may_share, UnusedReason::NotForUs)?;
        let Age { age_secs, ttl_secs } = by.age_of(&entry.head);
        let (status, kind) = match kept.source {
            PartSource::Arrived { status, is_stored } => {
                let status = status_of(sharing, status, !is_first);
                (if is_stored { stored(status) } else { status }, AnswerKind::Miss)
            }
            PartSource::Cache => (CacheStatus::hit(ttl_secs), AnswerKind::MemoryHit),
        };
        let wanted = by.hit(age_secs, status);
        let ready = presence::look_at_part(&by.http.fetcher, asked, kept).await.ready().await;
        let Some(mut answered) = ready.and_then(|ready| hit::answer(&wanted, entry, ready.body)) else {
            return Ok(by.pass(sharing.forward).await);
        };
        let fields = answered.response.headers_mut();
        if from_origin && age_secs == 0 {
            fields.remove(header::AGE);
        }
        if is_first {
            hit::add(fields, &kept.own);
        }
        let is_from_origin = from_origin;
        Ok(Ok(Answer { response: AnswerResponse::Made(answered.response), kind, status, is_from_origin }))
    }

    /// Returns the response for a request that waited for an open flight, a shared fetch whose head has arrived. `None`
    /// if the request must go to the origin by itself.
    async fn open_response(
        self,
        reader: FlightReader<F>,
        open: &OpenHead<F>,
        age_secs: Option<u64>,
        cache_status: CacheStatus,
    ) -> Option<AnswerResponse<F>> {
        let marks = self.by.marks();
        let request_fields = self.by.asked.fields();
        if let OpenBody::Whole(bytes) = &open.body
            && self.by.asked.takes_plain()
            && hit::is_plain(&self.by.hit(0, cache_status), &open.head, bytes.len())
        {
            let own = if reader.is_first() { open.own.clone() } else { HeaderMap::new() };
            return Some(AnswerResponse::arrived(&open.head, own, bytes, age_secs));
        }
        let response = match conditional::evaluate(request_fields, &open.head) {
            Precondition::Pass => {
                let mut fields = marks.outgoing_fields(open.head.fields());
                marks.put_times(&mut fields, age_secs, cache_status);
                if reader.is_first() {
                    hit::add(&mut fields, &open.own);
                }
                self.arriving_response(open, fields).await?
            }
            Precondition::NotModified => hit::not_modified((marks, request_fields), &open.head, age_secs, cache_status),
            Precondition::Failed => return None,
        };
        Some(AnswerResponse::Made(response))
    }

    /// Returns a response with these fields and the body that the flight (a shared fetch) brings. `None` if the body
    /// cannot promise the portion that the request wants.
    async fn arriving_response(self, open: &OpenHead<F>, mut fields: HeaderMap) -> Option<Response<AnswerBody<F>>> {
        let asked = self.by.asked;
        let (status, portion) = match open.total_len {
            Some(total_len) => hit::portion(asked.method(), asked.fields(), &open.head, total_len, &mut fields),
            None => (open.head.status(), BodyPortion::Span(0..u64::MAX)),
        };
        let spans = portion.spans();
        if spans.is_empty() {
            return Some(hit::respond(status, fields, AnswerBody::Empty));
        }
        let body = match &open.body {
            OpenBody::Whole(bytes) => return Some(hit::respond(status, fields, hit::whole_body(bytes, portion))),
            OpenBody::Arriving(body) => body,
        };
        let fetcher = &self.by.http.fetcher;
        let is_whole = spans.first().is_some_and(|span| *span == (0..open.total_len.unwrap_or(u64::MAX)));
        let cursor = if is_whole && !body.is_complete() {
            // The head was announced to this request, whatever has become of the body since.
            body.attach_waiting(fetcher, asked, spans)
        } else {
            let mut cursor = body.attach(fetcher, asked, spans);
            cursor.ready().await.ok()?;
            cursor
        };
        Some(hit::respond(status, fields, hit::cursor_body(portion, cursor)))
    }

    /// Answers with the stored response that the origin has just confirmed. Returns `None` if its body is no longer
    /// available.
    async fn confirmed(self, found: &ConfirmedEntry, is_first: bool) -> Option<Result<Answer<F>, F::Failure>> {
        let Self { by, sharing } = self;
        let asked = by.asked;
        let entry = &found.entry;
        let presence = Box::pin(presence::look(&by.http.fetcher, asked, &found.key, entry)).await;
        let ReadyAnswer { body, continued } = presence.ready().await?;
        let status = continued.map_or_else(|| status_of(sharing, StatusCode::NOT_MODIFIED, !is_first), completed);
        let age_secs = by.age_of(&entry.head).age_secs;
        let wanted = by.hit(age_secs, status);
        Some(match hit::answer(&wanted, entry, body) {
            Some(mut answered) => {
                if is_first {
                    hit::add(answered.response.headers_mut(), &found.own);
                }
                let kind = if continued.is_some() { AnswerKind::Miss } else { AnswerKind::RefreshUnmodified };
                let response = AnswerResponse::Made(answered.response);
                Ok(Answer { response, kind, status, is_from_origin: true })
            }
            None => by.pass(sharing.forward).await,
        })
    }

    /// Answers with a response that the origin sent for this client alone.
    async fn private(self, response: PrivateResponse<F>) -> Result<Answer<F>, F::Failure> {
        let Self { by, sharing } = self;
        let asked = by.asked;
        let PrivateResponse { status, fields, body, reason, is_exact } = response;
        let cache_status = status_of(sharing, status, false).because(reason);
        let is_partial = asked.has(&header::RANGE);
        if is_partial && !is_exact && matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            // The fetch requested more than the client wants, in order to store it. Only the client's part is needed
            // now.
            drop(body);
            by.pass(cache_status).await
        } else if let Some(response) = self.unmodified(status, &fields, cache_status) {
            let response = AnswerResponse::Made(response);
            Ok(Answer { response, kind: AnswerKind::Miss, status: cache_status, is_from_origin: true })
        } else {
            Ok(by.respond(PassedResponse { status, fields, body }, cache_status))
        }
    }

    /// Returns a 304 if the request's own condition shows that the client already has this response.
    fn unmodified(
        self,
        status: StatusCode,
        fields: &HeaderMap,
        cache_status: CacheStatus,
    ) -> Option<Response<AnswerBody<F>>> {
        let by = self.by;
        let request_fields = by.asked.fields();
        let is_conditional = by.asked.has(&header::IF_NONE_MATCH) || by.asked.has(&header::IF_MODIFIED_SINCE);
        let head = is_conditional.then(|| {
            let now = by.now();
            let received = ReceivedHead { status, fields: fields.clone(), request_time: now, response_time: now };
            let body = BodyPlace::Whole { len: 0 };
            let targets = &by.cache().http.targets;
            StoredHead::new(received, body, SelectingFields::default(), targets)
        })?;
        let is_met = conditional::evaluate(request_fields, &head) == Precondition::NotModified;
        is_met.then(|| hit::not_modified((by.marks(), request_fields), &head, None, cache_status))
    }
}

/// Returns `reason` as an error if `holds` is false.
fn require(holds: bool, reason: UnusedReason) -> Result<(), UnusedReason> {
    if holds { Ok(()) } else { Err(reason) }
}

fn status_of<F: Fetcher>(sharing: &FetchPlan<F>, origin: StatusCode, is_collapsed: bool) -> CacheStatus {
    let mut cache_status = with_origin_status(sharing.forward, origin);
    if let RequestHandling::Forwarded { collapsed, .. } = &mut cache_status.handling {
        *collapsed = is_collapsed;
    }
    cache_status
}

/// Returns the Cache-Status of a response that is arriving. It says that the response is being stored, or why not.
fn arriving<F: Fetcher>(sharing: &FetchPlan<F>, open: &OpenHead<F>, is_collapsed: bool) -> CacheStatus {
    let status = status_of(sharing, open.head.status(), is_collapsed);
    match open.unstored {
        None if open.is_admitted => stored(status),
        None => status,
        Some(reason) => status.because(reason),
    }
}

/// Returns the Cache-Status of a response of which a part was stored. `continued` is the response that brings its
/// missing bytes.
pub(super) fn completed(continued: ContinuedBody) -> CacheStatus {
    let status = with_origin_status(CacheStatus::forwarded(Forward::Partial), continued.status);
    if continued.is_stored { stored(status) } else { status }
}

/// Returns a Cache-Status that also says that the response is being stored.
fn stored(mut cache_status: CacheStatus) -> CacheStatus {
    if let RequestHandling::Forwarded { stored, .. } = &mut cache_status.handling {
        *stored = true;
    }
    cache_status
}
