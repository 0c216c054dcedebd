//! A request with all that is known of it, until its client has the response.
//!
//! Owns: the request's state between its steps, which `steps` lists, and the end of the exchange if its client leaves.
//! Invariant: every response carries a ticket, so every exchange is counted and logged once.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use http::{Method, Request, Response};
use larder_cache::http::answer::plan::FetchPlan;
use larder_http::invalidate;

use crate::{
    build_caches,
    client::{http2, peer::Client, response_body::ResponseBody},
    clock,
    errors::Failure,
    fetcher::OriginFetcher,
    metrics::CountGuard,
    origin::request_body::ClientBody,
    outcome::Outcome,
    overload::{ExchangeRoom, Shortage},
    received_body::IncomingBody,
    request::{
        account::Account,
        admitted::AdmittedRequest,
        encode,
        refusal::{self, RefusalForm},
        served::ServedResponse,
        steps::{Step, Trace},
        target::Target,
    },
    shared::BoundedCounts,
    worker::Worker,
};

/// A request with all that is known of it.
///
/// Over HTTP/2, its client may abandon it while the connection's other requests continue.
pub(super) struct ClientExchange {
    pub(super) client: Arc<Client>,
    /// The worker of the request's site. Determined once, so that a request sees one configuration.
    pub(super) worker: Arc<Worker>,
    pub(super) target: Target,
    pub(super) trace: Trace,
    pub(super) account: Account,
    /// The resource's key, if it was looked up in memory.
    pub(super) key: Option<Vec<u8>>,
    /// The form in which a failure is reported.
    form: RefusalForm,
    /// Whether the method is GET or HEAD.
    is_read: bool,
    is_answered: bool,
    /// The request, from the first wait until a step consumes it.
    request: Option<Box<Request<IncomingBody>>>,
    /// The request once it is admitted.
    pub(super) admitted: Option<AdmittedRequest>,
    /// The body of an admitted request that changes something.
    pub(super) body: Option<Box<ClientBody>>,
    /// The way to the origin of a request that has a key.
    pub(super) plan: Option<Box<FetchPlan<OriginFetcher>>>,
    waiting: Option<WaitingCount>,
    /// The count of open changes, so that a proxy that hands over waits for the invalidation.
    counting: Option<CountGuard>,
}

/// Counts a request while it has no response.
struct WaitingCount(Arc<BoundedCounts>);

impl ClientExchange {
    /// Begins the exchange of a request whose head has arrived.
    pub(super) fn begin(client: &Arc<Client>, request: &mut Request<impl Sized>) -> Self {
        if client.is_http2() {
            http2::join_cookies(request.headers_mut());
        }
        let worker = client.worker.latest();
        let named_client = client.named_in(request.headers(), &worker.shared.config.fleet);
        Self {
            client: Arc::clone(client),
            worker,
            target: Target { named_client, ..Target::default() },
            trace: Trace::new(),
            account: Account::begin(),
            key: None,
            form: RefusalForm::Text,
            is_read: true,
            is_answered: false,
            request: None,
            admitted: None,
            body: None,
            plan: None,
            waiting: None,
            counting: None,
        }
    }

    /// Reserves what a request needs that waits.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn make_room(&mut self, request: &Request<IncomingBody>) -> Result<(), Shortage> {
        if self.target.is_log() {
            // One for each node of the fleet, which waits for purges, not for an origin.
            return Ok(());
        }
        let shared = &self.worker.shared;
        let limits = &shared.config.limits;
        if shared.counts.waiting.load(Relaxed) >= limits.waiting_count_max {
            return Err(Shortage::Waiting);
        }
        let client = self.client.address_of(&self.target);
        let of_client = limits.client_request_count_max.filter(|_| self.target.sibling().is_none());
        let of_client = match of_client.map(|count_max| shared.counts.client_requests.take(client, count_max)) {
            Some(None) => return Err(Shortage::ClientRequests),
            Some(counted) => counted,
            None => None,
        };
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
        let place = shared.places.begin_exchange(fields.sum::<usize>() as u64).ok_or(Shortage::Memory)?;
        self.account.room = Some(ExchangeRoom { place, _of_client: of_client });
        Ok(())
    }

    /// Keeps a request that waits for its response.
    pub(super) fn note_waiting(&mut self, mut request: Request<IncomingBody>) {
        if self.client.is_http2() {
            http2::detach(&mut request);
        }
        self.note_request(&request);
        if !self.target.is_log() {
            self.waiting = Some(WaitingCount::begin(&self.worker.shared.counts));
        }
        let is_change = matches!(self.trace.step(), Step::Admit | Step::Own) && !invalidate::is_safe(request.method());
        self.counting = is_change.then(|| CountGuard::begin(&self.worker.metrics, |metrics| &metrics.changes_open));
        self.request = Some(Box::new(request));
    }

    /// Copies the facts that are needed after the request is consumed.
    pub(super) fn note_request(&mut self, request: &Request<IncomingBody>) {
        self.is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if self.trace.step() != Step::Memory {
            self.form = RefusalForm::for_request(request);
        }
        self.account_for(request);
    }

    /// Takes the request that waits.
    pub(super) fn take_request(&mut self) -> Box<Request<IncomingBody>> {
        self.request.take().expect("a step that consumes the request is the first that waits")
    }

    /// Returns the request that was admitted.
    pub(super) fn admitted(&self) -> &AdmittedRequest {
        self.admitted.as_ref().expect("this step follows only an admission")
    }

    /// Accounts for the answer, and makes it the client's response.
    pub(super) fn deliver(&mut self, answered: Result<ServedResponse, Failure>) -> Response<ResponseBody> {
        // The response is moved as seldom as possible: each time costs a copy of some 400 bytes.
        let admitted = answered.as_ref().map_or(Ok(()), |served| self.admit_body(served));
        let mut served = match (answered, admitted) {
            (Ok(mut served), Ok(())) => {
                self.prove(&mut served);
                served
            }
            (Err(failure), _) | (_, Err(failure)) => self.failed(failure),
        };
        self.trace.enter(Step::Deliver);
        self.prepare(&mut served);
        let response = self.finish(served);
        self.trace.enter(Step::Done);
        response
    }

    /// Leaves the end of the exchange to its response, whose ticket accounts for it.
    pub(super) fn note_answered(&mut self) {
        self.is_answered = true;
    }

    /// Creates the response to a request that failed, and records the failure.
    fn failed(&mut self, failure: Failure) -> ServedResponse {
        self.trace.note_failure();
        // If the client's body broke off, the client is at fault for the origin's reaction.
        let failure = self.client.fatal_fault().map_or(failure, Failure::BadRequest);
        if let Some(session) = &self.client.session {
            session.note_failure(&failure);
        }
        if let Failure::Offline { .. } = failure {
            self.note_missing();
        }
        if let Some(served) = self.absence(&failure) {
            return served;
        }
        // A refusal needs little, and clients that do not take it must not keep memory from others.
        self.account.room = None;
        if let Failure::Overloaded(shortage) = failure {
            self.client.worker.metrics.refused[shortage as usize].add(1);
        }
        let outcome = if failure.is_denial() { Outcome::Denied } else { Outcome::Failed };
        let response = refusal::response(&self.worker.shared.marks.response.cache_name, &failure, self.form);
        ServedResponse { response, outcome, origin: None, why: None }
    }

    /// Records a request that could not be answered without its origin.
    fn note_missing(&self) {
        let admitted = self.admitted.as_ref().filter(|_| !self.target.is_build_cache());
        let Some(AdmittedRequest { asked, .. }) = admitted else { return };
        let Some(uri) = asked.uri() else { return };
        if self.trace.has(Step::Cache) {
            self.worker.shared.missing.note(&uri.to_string(), &asked.fields, clock::now().as_secs());
        }
        if let Some(session) = &self.client.session {
            let method = if asked.question.is_some() { &Method::POST } else { &asked.method };
            let method = if *method == Method::GET { String::new() } else { format!("{method} ") };
            session.note_missing(format!("{method}{uri}"));
        }
    }

    /// Prepares a response for the client: one of a build cache for browsers, one of a mirror so that it leads back,
    /// and in the coding that the client prefers.
    fn prepare(&self, served: &mut ServedResponse) {
        if self.target.is_build_cache() {
            build_caches::disarm(self.is_read, served.response.headers_mut());
        }
        if let Some(mirrored) = self.target.mirror() {
            let status = served.response.status();
            if let Some(replacing) = mirrored.dress(status, served.response.headers_mut()) {
                let body = std::mem::replace(served.response.body_mut(), ResponseBody::empty());
                *served.response.body_mut() = body.replacing(replacing);
            }
        }
        let compression = &self.worker.cache.http.compression;
        if let Some(wish) = self.target.wish.as_ref().filter(|_| !compression.codings.is_empty()) {
            let response = std::mem::replace(&mut served.response, Response::new(ResponseBody::empty()));
            served.response = encode::encoded(compression, wish, response);
        }
    }
}

impl Drop for ClientExchange {
    fn drop(&mut self) {
        if !self.is_answered {
            self.client.end(true);
            if let Some(query) = self.account.query {
                self.worker.metrics.queries.abandon(query);
            }
        }
    }
}

impl WaitingCount {
    fn begin(counts: &Arc<BoundedCounts>) -> Self {
        counts.waiting.fetch_add(1, Relaxed);
        Self(Arc::clone(counts))
    }
}

impl Drop for WaitingCount {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
