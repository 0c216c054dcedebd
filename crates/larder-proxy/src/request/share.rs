//! Answers a request from a flight: its own, or one that is in progress.
//!
//! Owns: the reader's reaction to each outcome of the flight. Invariant: readers that cannot use a shared response
//! start their own fetches at once, not one after the other.

use std::sync::Arc;

use http::{Response, StatusCode, header};
use larder_http::{
    BodyPlace, CacheStatus, Precondition, Reason, ReceivedHead, Reuse, SelectingFields, StoredHead,
    cache_status::{Forward, RequestHandling, Tier},
    conditional,
    reuse::{self, Age},
};

use crate::{
    asked::RequestHead,
    cache::{
        entry::{CHUNK_BYTES, ResourceMarker, outgoing_fields},
        lookup::{self, FoundResponse},
    },
    client::response_body::ResponseBody,
    clock,
    errors::Failure,
    flight::{
        fetch::Fetch,
        part::is_all_wanted,
        presence::{self, ReadyAnswer},
        reader::FlightReader,
        shared::Flight,
        source::BodySource,
        stage::{ConfirmedEntry, ContinuedBody, FetchStage, KeptPart, OpenHead, PartSource, PrivateResponse},
        table::JoinedFlight,
    },
    outcome::{MissReason, Outcome},
    request::{
        access::Permission,
        hit::{self, BodyPortion, HitRequest},
        pass::{self, PassedResponse},
        serve::{self, age_of, or_stale, stale_answer},
        served::ServedResponse,
    },
    worker::Worker,
};

/// The facts about a request before it joins a flight.
pub(crate) struct FetchPlan {
    /// The resource's key.
    pub(crate) primary: Arc<[u8]>,
    /// The stored response to validate or replace.
    pub(crate) before: Option<FoundResponse>,
    /// Whether the stored response may be served in place of an error.
    pub(crate) may_serve_on_error: bool,
    /// The marker of the resource's variants.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    /// Why the request goes to the origin.
    pub(crate) forward: CacheStatus,
    /// Whether the request demands a response no older than itself.
    pub(crate) is_reload: bool,
    /// The origin's answer about this client. It determines which responses, fetched with other credentials, the client
    /// may read.
    pub(crate) permission: Option<Arc<Permission>>,
}

impl FetchPlan {
    /// Creates the plan for a request whose client must get its own response from the origin.
    pub(crate) fn alone(primary: &Arc<[u8]>, forward: CacheStatus) -> Self {
        Self {
            primary: Arc::clone(primary),
            before: None,
            may_serve_on_error: false,
            marker: None,
            forward,
            is_reload: false,
            permission: None,
        }
    }
}

/// Answers by a flight.
///
/// # Errors
/// The origin is unreachable, and no stale response may be served.
pub(crate) async fn fly(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    mut sharing: FetchPlan,
) -> Result<ServedResponse, Failure> {
    let told =
        sharing.before.as_ref().is_none_or(|found| found.entry.head.selecting().cover_what_is_told(&asked.fields));
    // A request with more selecting fields than the stored request had may get a response made for it alone, so no
    // other client may share it.
    let mut alone = !told
        || worker.cache.shared.uncollapsible.contains(&sharing.primary)
        // A flight with other credentials could bring a response that this client may not read.
        || (asked.before.checks_authorization && sharing.permission.is_none());
    // Each outcome below changes the plan, so repeating makes progress. The limit stops an origin whose `Vary` changes
    // with every response.
    for _ in 0..ATTEMPT_COUNT_MAX {
        let mut reader = board(worker, asked, &sharing, alone);
        let ended_before = !reader.is_first() && reader.flight().is_complete();
        let stage = reader.stage().await;
        let reading = FlightReading { worker, asked, sharing: &sharing };
        match reading.take(reader, stage, ended_before).await {
            FlightOutcome::Served(served) => return served,
            FlightOutcome::OtherVariant(marker) => {
                // A newer marker means that the response to confirm is not this request's variant.
                sharing.before = None;
                // Another waiting request may have fetched this variant meanwhile.
                if let Some(found) =
                    Box::pin(lookup::find_variant(&worker.cache, &sharing.primary, &marker, &asked.fields)).await
                    && (FlightReading { worker, asked, sharing: &sharing })
                        .may_read(&found.entry.head, Some(found.entry.body_len()))
                    && let Some(served) = serve::if_fresh(worker, asked, &found).await
                {
                    return served;
                }
                sharing.marker = Some(marker);
            }
            FlightOutcome::NotForUs => alone = true,
            FlightOutcome::TooOld => sharing.is_reload = true,
            FlightOutcome::Again => {}
            FlightOutcome::Incomplete => (sharing.before, sharing.may_serve_on_error) = (None, false),
        }
    }
    pass::pass(worker, asked, None, sharing.forward).await
}

/// Validates a stored response in the background while it is being served, unless a validation is in progress (RFC 5861
/// 3).
///
/// The result is stored, or removes the stored response, like that of any flight.
pub(crate) fn refresh(worker: &Arc<Worker>, asked: &Arc<RequestHead>, sharing: &FetchPlan) {
    let reader = board(worker, asked, sharing, false);
    if reader.is_first() {
        // A flight may be abandoned when its first reader leaves, so this reader stays to the end.
        tokio::spawn(read_out(reader));
    }
}

async fn read_out(mut reader: FlightReader) {
    if matches!(reader.stage().await, FetchStage::Open(_)) {
        while let Some(Ok(_)) = std::future::poll_fn(|context| reader.poll_data(context)).await {}
    }
}

/// The outcome of a flight for one reader.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
enum FlightOutcome {
    Served(Result<ServedResponse, Failure>),
    /// The response is another variant. The marker leads to this reader's variant.
    OtherVariant(Arc<ResourceMarker>),
    /// This reader may not use the response.
    NotForUs,
    /// The response is older than this reader accepts. That never applies to a response that was requested after this
    /// request arrived.
    TooOld,
    /// The response answered another request's condition, which does not show whether a response can be shared.
    Again,
    /// The stored response was confirmed, but its body is unavailable.
    Incomplete,
}

/// Joins a flight, or begins one.
fn board(worker: &Arc<Worker>, asked: &Arc<RequestHead>, sharing: &FetchPlan, alone: bool) -> FlightReader {
    let is_reload = sharing.is_reload;
    let key = flight_key(worker, asked, sharing);
    let begin = || Flight::new(worker.cache.shared.begin(), is_reload, Arc::clone(&worker.cache.shared.bodies));
    let own = || JoinedFlight { reader: FlightReader::first(Arc::new(begin())), is_first: true, after: None };
    // A flight that began before an invalidation may bring the old response, so later requests do not join it.
    let is_current = |flight: &Flight| worker.cache.shared.is_current(&sharing.primary, flight.began);
    // A flight outside the table cannot be joined. Its response is for this client only.
    let joined = if alone { own() } else { worker.flights.table.join(&key, is_reload, is_current, begin) };
    let JoinedFlight { reader, is_first, after } = joined;
    if is_first {
        let fetch = Fetch {
            flights: Arc::clone(&worker.flights),
            asked: Arc::clone(asked),
            flight: Arc::clone(reader.flight()),
            primary: Arc::clone(&sharing.primary),
            table_key: (!alone).then_some(key),
            before: sharing.before.clone(),
            stale_on_error: sharing.may_serve_on_error,
            marker: sharing.marker.clone(),
            group: worker.cache.groups.of_referred(asked.asker(), &asked.fields),
            after,
        };
        // Boxed, because the runtime moves a spawned future four times, and this one takes kilobytes.
        tokio::spawn(Box::pin(fetch.run()));
    } else {
        worker.metrics.collapsed.add(1);
    }
    reader
}

/// Returns the key under which requests share a flight: the key of the stored response, or of the variant as far as it
/// is known.
fn flight_key(worker: &Worker, asked: &RequestHead, sharing: &FetchPlan) -> Arc<[u8]> {
    if let Some(found) = &sharing.before {
        return Arc::clone(&found.key);
    }
    let settings = &worker.cache.http;
    let variant = sharing.marker.as_ref().and_then(|marker| {
        let rule = marker.rules.rules().first()?;
        marker.variant_key(&sharing.primary, rule, &asked.fields, settings)
    });
    variant.map_or_else(|| Arc::clone(&sharing.primary), Arc::from)
}

/// A request that waits for a flight.
#[derive(Clone, Copy)]
struct FlightReading<'a> {
    worker: &'a Arc<Worker>,
    asked: &'a Arc<RequestHead>,
    sharing: &'a FetchPlan,
}

impl FlightReading<'_> {
    /// Returns the outcome of a flight's stage. `ended_before` says that the flight had ended before this request
    /// joined it.
    async fn take(self, reader: FlightReader, stage: FetchStage, ended_before: bool) -> FlightOutcome {
        let Self { worker, asked, sharing } = self;
        let stale = sharing.before.as_ref().filter(|_| sharing.may_serve_on_error);
        // The rarer stages are boxed, so that they do not enlarge the future that waits for the origin.
        match stage {
            FetchStage::Open(open) => self.take_open(reader, &open, ended_before).await,
            FetchStage::Confirmed(found) => {
                let settings = &worker.cache.http;
                // The origin itself has judged the first reader's credentials. The other readers are judged here.
                if !reader.is_first() && !self.may_read(&found.entry.head, Some(found.entry.body_len())) {
                    return FlightOutcome::NotForUs;
                }
                if !found.entry.head.matches(&asked.fields, settings) {
                    return found.marker.clone().map_or(FlightOutcome::NotForUs, FlightOutcome::OtherVariant);
                }
                let decision = reuse::decide(&asked.method, &asked.fields, &found.entry.head, clock::now(), settings);
                if !reader.is_first() && is_too_old(sharing, &decision) {
                    return FlightOutcome::TooOld;
                }
                match Box::pin(self.confirmed(&found, reader.is_first())).await {
                    Some(served) => FlightOutcome::Served(served),
                    None => FlightOutcome::Incomplete,
                }
            }
            FetchStage::Part(kept) => Box::pin(self.take_part(&kept, reader.is_first())).await,
            FetchStage::OriginFailing => match stale.and_then(|found| stale_answer(worker, asked, found)) {
                Some(served) => FlightOutcome::Served(Ok(served)),
                None => FlightOutcome::NotForUs,
            },
            FetchStage::Private if reader.is_first() => match reader.flight().take_private() {
                Some(response) => Box::pin(self.private(*response)).await,
                None => FlightOutcome::NotForUs,
            },
            // The 304 answered only the first requester's condition, so it says nothing about this request.
            FetchStage::Private if reader.flight().answered_a_condition() => FlightOutcome::Again,
            FetchStage::Private | FetchStage::Waiting | FetchStage::Continued(_) => FlightOutcome::NotForUs,
            FetchStage::Failed(failure) => FlightOutcome::Served(or_stale(worker, asked, Err(failure), stale)),
        }
    }

    /// Returns whether the client may read a response that was fetched for another request.
    fn may_read(self, head: &StoredHead, body_len: Option<u64>) -> bool {
        !self.asked.before.checks_authorization
            || !head.freshness().checks_authorization
            || self.sharing.permission.as_ref().is_some_and(|permission| permission.covers(head, body_len))
    }

    /// Answers from a response that is arriving, or has arrived and is being stored.
    async fn take_open(self, reader: FlightReader, open: &OpenHead, ended_before: bool) -> FlightOutcome {
        let Self { worker, asked, sharing } = self;
        let settings = &worker.cache.http;
        let first = reader.is_first();
        if !first {
            if !self.may_read(&open.head, open.total_len) {
                return FlightOutcome::NotForUs;
            }
            if !open.head.matches(&asked.fields, settings) {
                return open.marker.clone().map_or(FlightOutcome::NotForUs, FlightOutcome::OtherVariant);
            }
            let decision = reuse::decide(&asked.method, &asked.fields, &open.head, clock::now(), settings);
            if is_too_old(sharing, &decision) {
                return FlightOutcome::TooOld;
            }
            // Only requests that joined before its end may share a stale response (RFC 9111 4). For later requests, it
            // is a stored response to validate.
            if !open.shareable || (ended_before && !matches!(decision, Reuse::Fresh { .. })) {
                return FlightOutcome::NotForUs;
            }
        }
        let age = age_of(worker, &open.head);
        let (status, outcome) = match (ended_before, &sharing.before) {
            (true, _) => (CacheStatus::hit(age.ttl_secs).from_tier(Tier::Memory), Outcome::MemoryHit),
            (false, Some(_)) => (arriving(sharing, open, !first), Outcome::RefreshModified),
            (false, None) => (arriving(sharing, open, !first), Outcome::Miss),
        };
        // A response that comes straight from the origin has an Age only if it arrived with one (RFC 9111 5.1).
        let age_secs = (ended_before || age.age_secs > 0).then_some(age.age_secs);
        let Some(response) = self.open_response(reader, open, age_secs, status) else {
            return FlightOutcome::Served(pass::pass(worker, asked, None, sharing.forward).await);
        };
        let conditional = ended_before && response.status() == StatusCode::NOT_MODIFIED;
        let outcome = if conditional { Outcome::ConditionalHit } else { outcome };
        let origin = (!ended_before).then(|| asked.origin.host.clone());
        FlightOutcome::Served(Ok(ServedResponse { response, outcome, origin, why: MissReason::of(status) }))
    }

    /// Answers from a stored part. Missing parts are fetched as the client reads.
    async fn take_part(self, kept: &KeptPart, is_first: bool) -> FlightOutcome {
        let Self { worker, asked, sharing } = self;
        let (entry, settings) = (&kept.entry, &worker.cache.http);
        let from_origin = kept.source != PartSource::Cache;
        let is_own = is_first && from_origin;
        if !is_own && !self.may_read(&entry.head, Some(entry.body_len())) {
            return FlightOutcome::NotForUs;
        }
        if !entry.head.matches(&asked.fields, settings) {
            return kept.marker.clone().map_or(FlightOutcome::NotForUs, FlightOutcome::OtherVariant);
        }
        let decision = reuse::decide(&asked.method, &asked.fields, &entry.head, clock::now(), settings);
        let is_there = kept.alone.is_none_or(|there| is_all_wanted(asked, &there, entry.body_len()));
        let is_new = sharing.is_reload && from_origin;
        let may_share = is_there && (is_new || matches!(decision, Reuse::Fresh { .. }));
        if !is_first && !may_share {
            return FlightOutcome::NotForUs;
        }
        let Age { age_secs, ttl_secs } = age_of(worker, &entry.head);
        let (status, outcome) = match kept.source {
            PartSource::Arrived { status, is_stored } => {
                let status = status_of(sharing, status, !is_first);
                (if is_stored { stored(status) } else { status }, Outcome::Miss)
            }
            PartSource::Cache => (CacheStatus::hit(ttl_secs), Outcome::MemoryHit),
        };
        let wanted = HitRequest::by(&worker.shared.marks, asked, age_secs, status);
        let body = BodySource::of(&worker.flights.means, asked, &kept.key, entry);
        if let (Some(body), Some(arrived)) = (&body, &kept.arrived) {
            body.set_begun(arrived.clone());
        }
        match hit::answer(&wanted, entry, body.map(Arc::new)) {
            Some(answered) => {
                let origin = from_origin.then(|| asked.origin.host.clone());
                let mut response = answered.response;
                if from_origin && age_secs == 0 {
                    response.headers_mut().remove(header::AGE);
                }
                if is_first {
                    hit::add(response.headers_mut(), &kept.own);
                }
                FlightOutcome::Served(Ok(ServedResponse { response, outcome, origin, why: MissReason::of(status) }))
            }
            None => FlightOutcome::Served(pass::pass(worker, asked, None, sharing.forward).await),
        }
    }

    /// Returns the response to a reader of an open flight. `None` if the request should go to the origin directly.
    fn open_response(
        self,
        mut reader: FlightReader,
        open: &OpenHead,
        age_secs: Option<u64>,
        cache_status: CacheStatus,
    ) -> Option<Response<ResponseBody>> {
        let Self { worker, asked, .. } = self;
        match conditional::evaluate(&asked.fields, &open.head) {
            Precondition::Pass => {}
            Precondition::NotModified => {
                return Some(hit::not_modified(&worker.shared.marks, &open.head, age_secs, cache_status));
            }
            Precondition::Failed => return None,
        }
        let mut fields = outgoing_fields(open.head.fields(), &worker.shared.marks);
        hit::set_times(&worker.shared.marks, &mut fields, age_secs, cache_status);
        if reader.is_first() {
            hit::add(&mut fields, &open.own);
        }
        let Some(total_len) = open.total_len else {
            return Some(hit::respond(open.head.status(), fields, ResponseBody::flight(reader)));
        };
        let (status, portion) = hit::portion(&asked.method, &asked.fields, &open.head, total_len, &mut fields);
        // Several ranges may come in any order, but the body arrives in only one.
        let BodyPortion::Span(span) = portion else { return None };
        if span.start > reader.flight().produced() + CHUNK_BYTES {
            return None;
        }
        reader.set_span(span);
        Some(hit::respond(status, fields, ResponseBody::flight(reader)))
    }

    /// Answers from the stored response that the origin has confirmed. Returns `None` if its body is unavailable.
    async fn confirmed(self, found: &ConfirmedEntry, is_first: bool) -> Option<Result<ServedResponse, Failure>> {
        let Self { worker, asked, sharing } = self;
        let entry = &found.entry;
        let presence = Box::pin(presence::look(&worker.flights.means, asked, &found.key, entry)).await;
        let ReadyAnswer { body, continued } = presence.ready().await?;
        let status = continued.map_or_else(|| status_of(sharing, StatusCode::NOT_MODIFIED, false), completed);
        let age_secs = age_of(worker, &entry.head).age_secs;
        let wanted = HitRequest::by(&worker.shared.marks, asked, age_secs, status);
        Some(match hit::answer(&wanted, entry, body) {
            Some(mut answered) => {
                if is_first {
                    hit::add(answered.response.headers_mut(), &found.own);
                }
                let origin = Some(asked.origin.host.clone());
                let outcome = if continued.is_some() { Outcome::Miss } else { Outcome::RefreshUnmodified };
                Ok(ServedResponse { response: answered.response, outcome, origin, why: MissReason::of(status) })
            }
            None => pass::pass(worker, asked, None, sharing.forward).await,
        })
    }

    /// Answers from a response that is for this requester alone.
    async fn private(self, response: PrivateResponse) -> FlightOutcome {
        let Self { worker, asked, sharing } = self;
        let PrivateResponse { status, fields, body, reason, is_exact } = response;
        let cache_status = status_of(sharing, status, false).because(reason);
        let partial = asked.fields.contains_key(header::RANGE);
        if partial && !is_exact && matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            // The fetch requested more than the client wants, in order to store it. Only the client's part is needed
            // now.
            drop(body);
            return FlightOutcome::Served(pass::pass(worker, asked, None, cache_status).await);
        }
        let conditional =
            asked.fields.contains_key(header::IF_NONE_MATCH) || asked.fields.contains_key(header::IF_MODIFIED_SINCE);
        if conditional {
            let now = clock::now();
            let received = ReceivedHead { status, fields: fields.clone(), request_time: now, response_time: now };
            let (body, targets) = (BodyPlace::Whole { len: 0 }, &worker.cache.http.targets);
            let head = StoredHead::new(received, body, SelectingFields::default(), targets);
            if conditional::evaluate(&asked.fields, &head) == Precondition::NotModified {
                let response = hit::not_modified(&worker.shared.marks, &head, None, cache_status);
                let origin = Some(asked.origin.host.clone());
                let (outcome, why) = (Outcome::Miss, MissReason::of(cache_status));
                return FlightOutcome::Served(Ok(ServedResponse { response, outcome, origin, why }));
            }
        }
        FlightOutcome::Served(Ok(pass::respond(worker, asked, PassedResponse { status, fields, body }, cache_status)))
    }
}

/// Returns whether a response is older than the request's max-age permits. A response that was requested after this
/// request arrived is always new enough.
fn is_too_old(sharing: &FetchPlan, decision: &Reuse) -> bool {
    !sharing.is_reload && matches!(decision, Reuse::MustValidate { reason: Reason::RequestMaxAge, .. })
}

fn status_of(sharing: &FetchPlan, origin: StatusCode, is_collapsed: bool) -> CacheStatus {
    let mut cache_status = pass::with_origin_status(sharing.forward, origin);
    if let RequestHandling::Forwarded { collapsed, .. } = &mut cache_status.handling {
        *collapsed = is_collapsed;
    }
    cache_status
}

/// Returns the Cache-Status of an arriving response, which says that it is being stored, or why not.
fn arriving(sharing: &FetchPlan, open: &OpenHead, is_collapsed: bool) -> CacheStatus {
    let status = status_of(sharing, open.head.status(), is_collapsed);
    match open.unstored {
        None if open.is_admitted => stored(status),
        None => status,
        Some(reason) => status.because(reason),
    }
}

/// Returns the Cache-Status of a partly stored response that this response continues.
pub(crate) fn completed(continued: ContinuedBody) -> CacheStatus {
    let status = pass::with_origin_status(CacheStatus::forwarded(Forward::Partial), continued.status);
    if continued.is_stored { stored(status) } else { status }
}

/// Adds to a Cache-Status that the response is being stored.
fn stored(mut cache_status: CacheStatus) -> CacheStatus {
    if let RequestHandling::Forwarded { stored, .. } = &mut cache_status.handling {
        *stored = true;
    }
    cache_status
}

/// Most flights that a request joins before it goes to the origin directly: for the resource, for its variant, and its
/// own.
const ATTEMPT_COUNT_MAX: usize = 3;
