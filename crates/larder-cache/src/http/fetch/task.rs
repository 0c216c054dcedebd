//! The task of one flight: sends the request to the origin, shares the response, and stores it.
//!
//! Owns: the exchange with the origin, from the request to the commit, independent of the client that started it.
//! Invariants: only a body that ended as its framing announced is committed. The flight leaves the table only after the
//! commit or a failure. Memory: see `shared`.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header, response};
use larder_device::pinned;
use larder_http::{
    Reason, ReceivedFacts, Reuse, Ruling, SelectingFields, Storability, StoredHead, Timestamp,
    fields::{Fields, strip_hop_by_hop},
    storable::{self, Exchange},
    validate,
};

use super::{
    reader::FlightReader,
    shared::Flight,
    stage::{Audience, ConfirmedEntry, FetchStage, KeptPart, PartSource, PrivateResponse},
    table::ShardIndex,
};
use crate::{
    ChangeMoment,
    http::{
        ResponseCache,
        confirmation::{self, Confirmation},
        entry::{EntryBody, ResourceMarker},
        fetcher::{ClientRequest as _, FetchEvent, Fetcher, IncomingBody as _, Refusal, RequestEdits},
        groups::{self, PageAsker},
        http_cache::HttpCache,
        lookup::{self, FoundResponse, LookupResult},
        storing::{self, StorePlace},
    },
};

/// A fetch: the task that gets a response from the origin for a flight, which is the set of requests that share it.
pub struct Fetch<F: Fetcher> {
    /// The cache.
    pub http: Arc<HttpCache<F>>,
    /// The client's request that started the fetch.
    pub asked: Arc<F::Asked>,
    /// The flight to which the response is announced.
    pub flight: Arc<Flight<F>>,
    /// The key of the resource.
    pub primary: Arc<[u8]>,
    /// The shard of the table that has the flight. `None` if the flight is not in the table.
    pub shard: Option<ShardIndex>,
    /// The stored response that the origin is asked to confirm. `None` if there is none.
    pub before: Option<FoundResponse>,
    /// Whether the stored response may be served if the origin fails.
    pub stale_if_error: bool,
    /// The marker that lists the resource's variants, if the lookup found one.
    pub marker: Option<Arc<ResourceMarker>>,
    /// The page group of the request, which its Referer determines. 0 if there is none.
    pub group: u32,
    /// An earlier flight whose response head must arrive before this fetch begins.
    pub after: Option<Arc<Flight<F>>>,
    /// The moment before the lookup, see
    /// [`FetchPlan::absent_since`](crate::http::answer::plan::FetchPlan::absent_since).
    pub absent_since: Option<ChangeMoment>,
}

impl<F: Fetcher> Fetch<F> {
    /// Returns the cache.
    pub(super) fn cache(&self) -> &Arc<ResponseCache> {
        self.http.fetcher.cache()
    }

    /// Runs the fetch until its response is received and stored, or has failed.
    pub async fn run(self) {
        self.http.fetcher.note(FetchEvent::Begun);
        // Dropping the guard wakes all readers, however the fetch ends.
        let mut landing = LandingGuard(self);
        if let Some(after) = landing.0.after.take() {
            Box::pin(landing.0.follow(&after)).await;
        } else if landing.0.has_changed() {
            Box::pin(landing.0.look_again()).await;
        }
        landing.0.flight.leave();
        landing.0.fly().await;
    }

    /// Waits until the head of another fetch's response has arrived. Then takes what is stored as the response to
    /// confirm.
    async fn follow(&mut self, after: &Arc<Flight<F>>) {
        if let Some(mut reader) = FlightReader::join(after) {
            reader.stage().await;
        }
        self.look_again().await;
    }

    /// Returns whether the response to confirm may have been removed, replaced or purged between the lookup and the
    /// start of this flight.
    ///
    /// A later removal is noticed by `Flight::work`.
    fn has_changed(&self) -> bool {
        self.before.as_ref().is_some_and(|found| !lookup::is_unchanged(self.cache(), &self.primary, found))
    }

    /// Looks the request up again, and takes the response that is stored now as the one to confirm.
    async fn look_again(&mut self) {
        let found = lookup::find(self.cache(), &self.primary, self.asked.fields()).await;
        match found {
            LookupResult::Found(found) if matches!(found.entry.body, EntryBody::Whole(_)) => {
                self.marker.clone_from(&found.marker);
                self.before = Some(found);
            }
            // The availability of this long body was checked before. That result still counts.
            LookupResult::Found(found) if self.before.as_ref().is_some_and(|before| before.has_body_of(&found)) => {
                self.before = Some(found);
            }
            LookupResult::Found(found) => (self.before, self.marker) = (None, found.marker),
            LookupResult::OtherVariants(marker) => (self.before, self.marker) = (None, Some(marker)),
            LookupResult::Nothing => (self.before, self.marker) = (None, None),
        }
    }

    async fn fly(&self) {
        if let Some(found) = &self.before {
            let validators = validate::request_fields(&found.entry.head);
            let led_to = found.entry.head.ruling().and_then(|ruling| ruling.chain).map(|chain| chain.led_to);
            let edits = RequestEdits { whole: true, added: validators, only_at: led_to };
            if !edits.added.is_empty() && Box::pin(self.confirm(found, &edits)).await {
                return;
            }
        }
        if let Some(kept) = self.stored_meanwhile().await {
            return self.flight.set_stage(FetchStage::Part(Arc::new(kept)));
        }
        let added = match self.part_to_ask() {
            Some(range) => vec![(header::RANGE, range)],
            None => self.conditions(),
        };
        let edits = RequestEdits { whole: true, added, only_at: None };
        let answer = match self.ask(&edits).await {
            Ok(answer) => answer,
            Err(failure) => return self.flight.set_stage(FetchStage::Failed(failure)),
        };
        let range = edits.added.iter().find(|(name, _)| *name == header::RANGE);
        match range.filter(|_| answer.head.status == StatusCode::PARTIAL_CONTENT) {
            Some((_, range)) => Box::pin(self.accept_part(answer, range)).await,
            None => self.accept(answer).await,
        }
    }

    /// Returns a usable response that another fetch has stored since this request's lookup, before this flight entered
    /// the table.
    async fn stored_meanwhile(&self) -> Option<KeptPart<F>> {
        let cache = self.cache();
        let store = cache.shared.store.as_ref()?;
        if self.before.is_some() || self.shard.is_none() {
            return None;
        }
        // A flight that stored something has changed its key before it left the table.
        let is_absent = self.absent_since.is_some_and(|since| cache.shared.hot.is_unchanged(&self.primary, since));
        if is_absent || !store.may_contain(&self.primary) {
            return None;
        }
        // Boxed, because the lookup takes kilobytes for a moment only, while the fetch waits for the origin for long.
        let looking = Box::pin(lookup::find(cache, &self.primary, self.asked.fields()));
        let LookupResult::Found(found) = looking.await else { return None };
        let decision = cache.judge(&self.asked.terms(), &found.entry.head, self.http.fetcher.now());
        // A body in chunks is excluded: it is read later, when the fetch can no longer replace a failing store.
        let usable = matches!(decision, Reuse::Fresh { .. }) && matches!(found.entry.body, EntryBody::Whole(_));
        let FoundResponse { entry, key, marker, .. } = found;
        let own = HeaderMap::new();
        let source = PartSource::Cache;
        let audience = Audience::Shared;
        usable.then(|| KeptPart { entry, key, marker, own, audience, alone: None, source, body: None })
    }

    /// Remembers whether requests can share the resource's responses. If they cannot, later requests do not wait for
    /// each other's fetches.
    pub(super) fn note_audience(&self, audience: Audience) {
        let uncollapsible = &self.cache().shared.uncollapsible;
        match audience {
            Audience::Shared => uncollapsible.remove(&self.primary),
            Audience::FirstAsker => uncollapsible.insert(&self.primary),
        }
    }

    /// Returns which of the waiting requests may use a stored response whose head a 304 has updated to `head`.
    ///
    /// If the new fields forbid storing the response, only the first requester may use it, as with a whole response
    /// (RFC 9111 5.2.2.5, 5.2.2.7).
    fn audience_of_updated(&self, head: &StoredHead) -> Audience {
        let settings = &self.cache().http;
        if let Storability::Refuse { .. } = storable::decide_updated(self.asked.fields(), head, settings) {
            self.note_audience(Audience::FirstAsker);
            return Audience::FirstAsker;
        }
        if head.freshness().lifetime_millis(settings) > 0 {
            self.note_audience(Audience::Shared);
        }
        Audience::Shared
    }

    /// Returns whether other requests can still join this fetch.
    pub(super) fn is_in_table(&self) -> bool {
        self.shard.is_some_and(|shard| self.http.flights.has(shard, &self.flight))
    }

    /// Returns the conditions of the client's request that are sent to the origin. If nothing is stored, the origin can
    /// then answer the client with a 304.
    fn conditions(&self) -> Vec<(http::HeaderName, http::HeaderValue)> {
        let fields = self.asked.fields();
        let names = [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];
        let is_repeated = |name| self.asked.has(name) && fields.get_all(name).iter().count() > 1;
        if self.before.is_some() || names.iter().any(is_repeated) {
            return Vec::new();
        }
        let present = names.into_iter().filter(|name| self.asked.has(name));
        present.filter_map(|name| fields.get(&name).cloned().map(|value| (name, value))).collect()
    }

    /// Asks the origin to confirm a stored response, and handles its reply. Returns `false` if the reply is a 304 for
    /// another response, so that the whole response must be requested.
    async fn confirm(&self, found: &FoundResponse, edits: &RequestEdits) -> bool {
        let mut answer = match self.ask(edits).await {
            Ok(answer) => answer,
            Err(failure) => {
                self.flight.set_stage(FetchStage::Failed(failure));
                return true;
            }
        };
        if answer.head.status != StatusCode::NOT_MODIFIED {
            self.accept(answer).await;
            return true;
        }
        // The 304 names a validator other than the stored one, so it confirms another response (RFC 9111 4.3.4).
        if !validate::selects(&answer.head.headers, &found.entry.head) {
            return false;
        }
        let stored_status = found.entry.head.status();
        // A 304 need not repeat the media type. Rules by type are applied as if to the stored response.
        if stored_status != StatusCode::OK || !answer.head.headers.contains_key(header::CONTENT_TYPE) {
            if let Some(stored_type) = found.entry.head.fields().first(&header::CONTENT_TYPE) {
                let stored_type = HeaderValue::from_bytes(stored_type).expect("it was a field's value");
                answer.head.headers.entry(header::CONTENT_TYPE).or_insert(stored_type);
            }
            let fields = &mut answer.head.headers;
            self.http.fetcher.put_confirmed_ruling(&self.asked, stored_status, fields);
        }
        if found.entry.head.freshness().is_verified {
            put_verified(&mut answer.head.headers);
        }
        let settings = &self.cache().http;
        let exchange = self.exchange(&answer.head, answer.request_time, answer.response_time);
        let head = validate::freshen(&found.entry.head, &exchange, settings);
        // A purge between the request and its 304 also concerns the confirmed response.
        let head = head.after_purges(self.flight.work.purge_count);
        let own = validate::first_askers_own(&answer.head.headers, &head);
        let group = self.group_of(head.fields());
        let place = StorePlace::renewed(&self.primary, found, &head, self.asked.fields(), settings);
        let place = place.map(|place| StorePlace { group, ..place });
        let entry = Arc::new(found.entry.with_head(head.clone()));
        let marker = place.as_ref().and_then(|place| place.marker.as_ref()).map(|(marker, _)| Arc::clone(marker));
        let audience = self.audience_of_updated(&head);
        let confirmed = ConfirmedEntry { entry, key: Arc::clone(&found.key), marker, own, audience };
        let stays = place.as_ref().is_some_and(|place| place.key == found.key);
        let storing = confirmation::confirm(
            self.cache(),
            self.asked.fields(),
            found,
            Confirmation { place, head, work: self.flight.work.clone() },
        );
        // If the response moves to another key, it is stored first, because readers look for it there.
        if stays {
            // Clients do not wait for this commit, but a stop of the proxy does.
            let late = self.http.fetcher.begin_late_commit();
            self.flight.set_stage(FetchStage::Confirmed(Arc::new(confirmed)));
            storing.await;
            drop(late);
        } else {
            storing.await;
            self.flight.set_stage(FetchStage::Confirmed(Arc::new(confirmed)));
        }
        true
    }

    /// Sends a request to the origin, and returns the response with the times of both.
    async fn ask(&self, edits: &RequestEdits) -> Result<OriginAnswer<F::Body>, F::Failure> {
        let request_time = self.http.fetcher.now();
        let (mut head, body) = self.http.fetcher.ask(&self.asked, edits).await?;
        // Removed before anything is decided, so that all decisions see the fields that are stored.
        strip_hop_by_hop(&mut head.headers);
        let response_time = self.http.fetcher.now();
        Ok(OriginAnswer { head, body, request_time, response_time })
    }

    /// Accepts a response of the origin. Stores it and gives it to the waiting requests, or gives it to the first
    /// requester alone.
    async fn accept(&self, answer: OriginAnswer<F::Body>) {
        let status = answer.head.status;
        // An error must neither replace a stale response that may be served instead, nor be shared.
        if self.stale_if_error && is_origin_error(status) {
            self.flight.set_stage(FetchStage::OriginFailing);
            return;
        }
        if status == StatusCode::NOT_MODIFIED {
            // The response answers the first requester's condition, so it means nothing to others.
            let OriginAnswer { head: response::Parts { headers: fields, .. }, body, .. } = answer;
            let private = PrivateResponse { status, fields, body, reason: Reason::Status, is_exact: true };
            return self.flight.set_private(private);
        }
        match self.place(&answer) {
            Err(reason) => {
                // The next requests do not wait for a response that they cannot share.
                self.note_audience(Audience::FirstAsker);
                if let Some(found) = self.before.as_ref().filter(|_| !status.is_server_error()) {
                    Box::pin(self.forget_replaced(found, status, reason)).await;
                }
                let OriginAnswer { head: response::Parts { status, headers: fields, .. }, body, .. } = answer;
                self.flight.set_private(PrivateResponse { status, fields, body, reason, is_exact: false });
            }
            Ok(placed) => pinned(|| self.open(answer, placed)).await,
        }
    }

    /// Removes the stored response if the origin, when asked to confirm it, sent a new one that is not stored (RFC 9111
    /// 4.3.3).
    ///
    /// A response which shows that the content is gone or has changed removes it however fresh it is. Other statuses,
    /// responses to one client's credentials, and responses to requests with `no-store` remove it only if it is stale.
    async fn forget_replaced(&self, found: &FoundResponse, status: StatusCode, reason: Reason) {
        let is_replaced = status == StatusCode::OK
            && was_validated(found)
            && !matches!(reason, Reason::Authorization | Reason::RequestNoStore | Reason::PageForFile);
        let settings = &self.cache().http;
        let head = &found.entry.head;
        let is_stale =
            head.freshness().lifetime_millis(settings) <= head.freshness().age_millis(self.http.fetcher.now());
        if is_gone(status) || is_replaced || is_stale {
            drop(storing::remove(self.cache(), &found.key).await);
        }
    }

    /// Removes the stored response if the origin, when asked to confirm it, sent a new one that could have been stored
    /// but was not.
    pub(super) async fn forget_unkept(&self) {
        if let Some(found) = self.before.as_ref().filter(|found| was_validated(found)) {
            drop(storing::remove(self.cache(), &found.key).await);
        }
    }

    /// Removes the response that was to be confirmed if its replacement is stored under another key, because it varies
    /// on other fields.
    ///
    /// Requests that the new response does not match would otherwise still find the old one (RFC 9111 4.1). Nothing is
    /// removed if the request has fields of [`larder_http::telling`] that the stored response was not selected by.
    pub(super) async fn forget_elsewhere(&self, place: &StorePlace) {
        let Some(found) = self.before.as_ref().filter(|found| found.key != place.key) else { return };
        if found.entry.head.selecting().cover_what_is_told(self.asked.fields()) {
            drop(storing::remove(self.cache(), &found.key).await);
        }
    }

    /// Returns the page group of a response with these fields: the one that the request's Referer determines, or a new
    /// one if other requests will name this response as their Referer.
    pub(super) fn group_of(&self, response_fields: &impl Fields) -> u32 {
        if groups::is_document(response_fields) {
            let asker = PageAsker { client: self.asked.client(), now: self.http.fetcher.now() };
            self.cache().groups.of_document(asker, &self.primary, self.group)
        } else {
            self.group
        }
    }

    /// Returns the request and the response in the form that the caching rules take.
    pub(super) fn exchange<'a>(
        &'a self,
        answered: &'a response::Parts,
        request_time: Timestamp,
        response_time: Timestamp,
    ) -> Exchange<'a> {
        Exchange {
            method: self.asked.method(),
            request_fields: self.asked.fields(),
            status: answered.status,
            response_fields: &answered.headers,
            request_time,
            response_time,
        }
    }

    /// Returns the maximum length in bytes of a body that is stored. If the operator's ruling for the response sets no
    /// maximum, the general one applies.
    pub(super) fn size_max(&self, ruling: Option<Ruling>) -> u64 {
        ruling.and_then(|ruling| ruling.size_max).unwrap_or(self.http.entry_bytes_max)
    }

    /// Decides where a response is stored, or returns the reason why it is not.
    fn place(&self, answer: &OriginAnswer<F::Body>) -> Result<PlacedResponse, Reason> {
        let settings = &self.cache().http;
        let exchange = self.exchange(&answer.head, answer.request_time, answer.response_time);
        let (rule, facts) = match storable::decide(&exchange, settings) {
            Storability::Store { rule, facts, .. } => (rule, facts),
            Storability::Refuse { reason } => return Err(reason),
        };
        if answer.body.remaining().is_some_and(|len| len > self.size_max(Ruling::of(&answer.head.headers))) {
            return Err(Reason::NothingToReuse);
        }
        // A response to a request that names no user becomes a variant beside those of users, so that it does not
        // displace them.
        let of_users = self.marker.iter().flat_map(|marker| marker.rules.rules()).find(|rule| rule.is_of_users());
        let rule = of_users.filter(|_| rule.is_empty()).cloned().unwrap_or(rule);
        let place = StorePlace::new(&self.primary, &rule, self.asked.fields(), self.marker.as_ref(), settings);
        let selecting = rule.select(self.asked.fields(), settings);
        let place = place.map(|place| place.in_language_of(&answer.head.headers, self.asked.fields()));
        let (place, selecting) = place.zip(selecting).ok_or(Reason::VaryStar)?;
        Ok(PlacedResponse { place, selecting, facts })
    }
}

/// The place where a response is stored, and what its stored head needs.
pub(super) struct PlacedResponse {
    pub(super) place: StorePlace,
    pub(super) selecting: SelectingFields,
    /// The facts that the decision to store the response has read from its fields.
    pub(super) facts: ReceivedFacts,
}

/// A response of the origin, with the times of request and response.
pub(super) struct OriginAnswer<B> {
    pub(super) head: response::Parts,
    pub(super) body: B,
    pub(super) request_time: Timestamp,
    pub(super) response_time: Timestamp,
}

/// A guard which ensures that a fetch leaves the table and wakes the waiting requests, however it ends.
struct LandingGuard<F: Fetcher>(Fetch<F>);

impl<F: Fetcher> Drop for LandingGuard<F> {
    fn drop(&mut self) {
        let fetch = &self.0;
        fetch.flight.abandon_if_unfinished(|| F::refuse(&fetch.asked, Refusal::Aborted));
        if let Some(shard) = fetch.shard {
            fetch.http.flights.remove(shard, &fetch.flight);
        }
    }
}

/// Returns whether the request to the origin had the stored response's validators. Only then does a whole response show
/// that the stored one is outdated (RFC 9111 4.3.3).
fn was_validated(found: &FoundResponse) -> bool {
    !validate::request_fields(&found.entry.head).is_empty()
}

/// Marks a response as one that is stored only if its body has the known digest. The mark is in the operator's ruling,
/// a field of the response.
pub(super) fn put_verified(fields: &mut HeaderMap) {
    if let Some(ruling) = Ruling::of(fields) {
        Ruling { is_verified: true, ..ruling }.put(fields);
    }
}

/// Returns whether a status says that the content no longer exists (404 or 410).
pub(super) fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Returns whether a response with this status may be replaced by a stale one (RFC 5861 4).
pub fn is_origin_error(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
