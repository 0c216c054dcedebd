//! The state of one client's request, from its head until its response is sent.
//!
//! Owns: the facts that the steps of a request share (`steps` lists them), and the end of the exchange if its client
//! leaves. Invariant: every response carries a ticket, so every exchange is counted and logged once.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use http::{Method, Request, Response};
use larder_cache::http::answer::plan::FetchPlan;
use larder_http::invalidate;

use crate::{
    figures::{metrics::CountGuard, outcome::Outcome},
    ground::{
        clock,
        errors::Failure,
        overload::{ExchangeRoom, Shortage},
        received_body::IncomingBody,
    },
    origins::{fetcher::OriginFetcher, request_body::ClientBody},
    road::{
        account::Account,
        admitted::AdmittedRequest,
        client::{http2_head, peer::Client, response_body::ResponseBody},
        encode,
        refusal::{self, RefusalForm},
        served::ServedResponse,
        steps::{Step, Trace},
        target::Target,
    },
    run::{shared::BoundedCounts, worker::Worker},
    targets::build_caches,
};

/// The state of one client's request, from its head until it has a response.
///
/// Over HTTP/2, the client may abandon the request while the connection's other requests continue.
pub(super) struct ClientExchange {
    pub(super) client: Arc<Client>,
    /// The worker, with the policy of the request's site. Chosen once, so that the request sees one configuration.
    pub(super) worker: Arc<Worker>,
    pub(super) target: Target,
    pub(super) trace: Trace,
    pub(super) account: Account,
    /// The form in which a failure is reported to the client.
    form: RefusalForm,
    /// Whether the method is GET or HEAD.
    is_read: bool,
    is_answered: bool,
    /// The request, kept from its first wait until a step consumes it.
    request: Option<Box<Request<IncomingBody>>>,
    /// The admitted request. `None` before the step `Admit`.
    pub(super) admitted: Option<AdmittedRequest>,
    /// The body of an admitted request that is not answered by the cache.
    pub(super) body: Option<Box<ClientBody>>,
    /// The cache's plan for contacting the origin, for a request that has a key.
    pub(super) plan: Option<Box<FetchPlan<OriginFetcher>>>,
    waiting: Option<WaitingCount>,
    /// Counts a request that may change something at the origin (an unsafe method) as in progress: the metric
    /// `changes_open`. A proxy that is being replaced waits until no such request is in progress.
    counting: Option<CountGuard>,
}

/// Counts a request as waiting until it has a response.
struct WaitingCount(Arc<BoundedCounts>);

impl ClientExchange {
    /// Begins an exchange. Call it when the request's head has arrived.
    pub(super) fn begin(client: &Arc<Client>, request: &mut Request<impl Sized>) -> Self {
        if client.is_http2() {
            http2_head::join_cookies(request.headers_mut());
        }
        let worker = client.worker.latest();
        let named_client = client.named_in(request.headers(), &worker.shared.config.fleet);
        Self {
            client: Arc::clone(client),
            worker,
            target: Target { named_client, ..Target::default() },
            trace: Trace::new(),
            account: Account::begin(),
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

    /// Reserves memory for a request that has to wait, and counts it against the limits on requests.
    ///
    /// # Errors
    /// Too many requests wait, no memory is left, or the processor cannot keep up.
    pub(super) fn make_room(&mut self, request: &Request<IncomingBody>) -> Result<(), Shortage> {
        if self.target.is_log() {
            // This request is for the log of purges. It is not limited, because it waits for purges and not for an
            // origin, and each node of the fleet sends only one at a time.
            return Ok(());
        }
        let shared = &self.worker.shared;
        let limits = &shared.config.limits;
        if shared.counts.waiting.load(Relaxed) >= limits.waiting_count_max {
            return Err(Shortage::Waiting);
        }
        if self.worker.lag().refuses(limits.lag) {
            return Err(Shortage::Processor);
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

    /// Keeps a request that has to wait for its response.
    pub(super) fn note_waiting(&mut self, mut request: Request<IncomingBody>) {
        if self.client.is_http2() {
            http2_head::detach(&mut request);
        }
        self.note_request(&request);
        if !self.target.is_log() {
            self.waiting = Some(WaitingCount::begin(&self.worker.shared.counts));
        }
        let is_change = matches!(self.trace.step(), Step::Admit | Step::Own) && !invalidate::is_safe(request.method());
        self.counting = is_change.then(|| CountGuard::begin(&self.worker.metrics, |metrics| &metrics.changes_open));
        self.request = Some(Box::new(request));
    }

    /// Copies the facts that are needed after the request was consumed.
    pub(super) fn note_request(&mut self, request: &Request<IncomingBody>) {
        self.is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if self.trace.step() != Step::Memory {
            self.form = RefusalForm::for_request(request);
        }
        self.account_for(request);
    }

    /// Takes the request that [`Self::note_waiting`] kept.
    pub(super) fn take_request(&mut self) -> Box<Request<IncomingBody>> {
        self.request.take().expect("a step that consumes the request is the first that waits")
    }

    /// Returns the admitted request. Must not be called before the step `Admit`.
    pub(super) fn admitted(&self) -> &AdmittedRequest {
        self.admitted.as_ref().expect("this step follows only an admission")
    }

    /// Turns the result of the last step into the client's response, and counts the exchange.
    pub(super) fn deliver(&mut self, answered: Result<ServedResponse, Failure>) -> Box<Response<ResponseBody>> {
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

    /// Marks the exchange as answered. From now on, the exchange ends when the response and its ticket are dropped.
    pub(super) fn note_answered(&mut self) {
        self.is_answered = true;
    }

    /// Creates the response to a request that failed, and records the failure.
    fn failed(&mut self, failure: Failure) -> ServedResponse {
        self.trace.note_failure();
        // If the client's body broke off, the origin's reaction to it is the client's fault.
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
        // A refusal is short. A client that does not read it must not keep memory from others.
        self.account.room = None;
        if let Failure::Overloaded(shortage) = failure {
            self.client.worker.metrics.refused[shortage as usize].add(1);
        }
        let outcome = if failure.is_denial() { Outcome::Denied } else { Outcome::Failed };
        let response = refusal::response(&self.worker.shared.marks.response.cache_name, &failure, self.form);
        ServedResponse { response: Box::new(response), outcome, origin: None, why: None }
    }

    /// Adds a request that could not be answered without its origin to the list for `larder missing`.
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

    /// Changes a response for its client: secures build cache responses against browsers, rewrites links of mirrors,
    /// and compresses.
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
            let response = std::mem::replace(&mut *served.response, Response::new(ResponseBody::empty()));
            *served.response = encode::encoded(compression, wish, response);
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
