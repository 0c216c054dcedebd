//! Collects the metrics of an exchange, and its line in the access log.
//!
//! When the response's ticket is dropped, it counts the bytes and writes the line.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, header, uri::Authority};

use crate::{
    figures::outcome::Outcome,
    ground::{
        delays::Pacer,
        errors::Failure,
        overload::Shortage,
        target::{host_of, path_of},
    },
    operators::query_log::{QueryPlace, QueryStart},
    road::{
        account::{LineStart, text_of},
        client::{
            encoded::{EncodedHit, EncodedResponse},
            response_body::ResponseBody,
            ticket::{ExchangeContext, Ticket},
        },
        exchange::ClientExchange,
        served::ServedResponse,
        steps::Step,
    },
};

impl ClientExchange {
    /// Copies the facts to count and log from a request, before the request is consumed.
    pub(super) fn account_for(&mut self, request: &Request<impl Sized>) {
        self.account.line = self.log_line(request);
        if self.account.query.is_none() && self.target.is_counted() {
            self.account.query = self.log_query(request, None);
        }
        // Rates are limited only for requests that were resolved. A refusal before that is short.
        if self.trace.has(Step::Memory) {
            self.account.pacer = self.pacer(request).map(Box::new);
        }
    }

    /// Adds the request to the query log, if that is enabled. `name` is the scheme and authority of a cacheable
    /// resource.
    pub(super) fn log_query(&self, request: &Request<impl Sized>, name: Option<(&str, &str)>) -> Option<QueryPlace> {
        let Self { client, worker, target, account, .. } = self;
        if !worker.shared.config.query_log {
            return None;
        }
        let uri = request.uri();
        let method = request.method();
        let (scheme, authority) = name.unwrap_or_else(|| {
            let host = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
            let authority = uri.authority().map(Authority::as_str).or_else(host);
            (uri.scheme_str().unwrap_or(client.scheme()), authority.unwrap_or("-"))
        });
        let query = QueryStart {
            started: account.started,
            client: client.address_of(target),
            method,
            scheme,
            authority,
            target: if method == Method::CONNECT { "" } else { path_of(uri) },
        };
        Some(worker.metrics.queries.begin(&query))
    }

    /// Reserves the memory to send a response in pieces. A body that is in memory needs none.
    ///
    /// # Errors
    /// No memory is left for it.
    pub(super) fn admit_body(&mut self, served: &ServedResponse) -> Result<(), Failure> {
        let needs_more = !served.response.body().is_at_hand();
        let has_memory = match &mut self.account.room {
            Some(room) if needs_more => room.place.begin_streaming(self.client.is_http2()),
            _ => true,
        };
        if has_memory { Ok(()) } else { Err(Failure::Overloaded(Shortage::Memory)) }
    }

    /// Counts an exchange, and attaches the ticket that completes the count when the response is dropped.
    ///
    /// Health checks are neither counted nor logged: load balancers send one per second, and they say nothing about the
    /// load. Neither are requests of other nodes for the log of purges.
    pub(super) fn finish(&mut self, mut served: ServedResponse) -> Box<Response<ResponseBody>> {
        if !self.target.is_counted() {
            self.note_answered();
            let ticket = Ticket::new(Arc::clone(&self.client), None, None);
            served.response.body_mut().attach(ticket);
            return served.response;
        }
        self.client.count(served.outcome);
        if let Some(reason) = served.why.filter(|_| served.outcome.is_miss()) {
            self.client.worker.metrics.misses[reason.index()].add(1);
        }
        let pacer = self.account.take_pacer();
        let ticket = self.ticket(&served, !served.response.body().is_at_hand());
        if self.client.says_goodbye() {
            served.response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let body = served.response.body_mut();
        if let Some(pacer) = pacer {
            body.pace(pacer);
        }
        body.attach(ticket);
        served.response
    }

    /// Counts a hit with an encoded head, as [`Self::finish`] counts other responses. The access log is disabled then,
    /// see [`Self::may_encode`].
    pub(super) fn deliver_encoded(&mut self, request: &Request<impl Sized>, hit: EncodedHit) -> EncodedResponse {
        self.trace.enter(Step::Deliver);
        self.client.count(Outcome::MemoryHit);
        let pacer = self.pacer(request);
        let about = self.account.context(Outcome::MemoryHit, hit.status, false);
        self.note_answered();
        let ticket = Ticket::new(Arc::clone(&self.client), None, Some(about));
        self.trace.enter(Step::Done);
        let mut response = EncodedResponse { head: hit.head, body: ResponseBody::full(hit.body) };
        if let Some(pacer) = pacer {
            response.body.pace(pacer);
        }
        response.body.attach(ticket);
        response
    }

    /// Creates the ticket that completes the exchange when it is dropped. `takes_time` says that the body follows
    /// later.
    pub(super) fn ticket(&mut self, served: &ServedResponse, takes_time: bool) -> Ticket {
        self.note_answered();
        let about = self.account.context(served.outcome, served.response.status(), takes_time);
        let about = ExchangeContext { why: served.why, ..about };
        let line = self.account.line.take().map(|line| line.end(served, self.trace.to_string()));
        Ticket::new(Arc::clone(&self.client), line, Some(about)).holding(self.account.room.take())
    }

    /// Returns the limiter for a response, if a rate limit applies to this client and host.
    fn pacer(&self, request: &Request<impl Sized>) -> Option<Pacer> {
        let delays = &self.worker.shared.delays;
        if delays.is_empty() {
            return None;
        }
        let authority = match request.method() {
            &Method::CONNECT => request.uri().authority()?.as_str(),
            _ => self.target.key_parts(&self.worker.shared.routes, self.client.scheme(), request)?.1,
        };
        delays.pacer(self.client.address_of(&self.target), host_of(authority))
    }

    /// Copies the facts for the access log from a request. `None` if the access log is disabled.
    fn log_line(&self, request: &Request<impl Sized>) -> Option<Box<LineStart>> {
        let Self { client, worker, target, account, .. } = self;
        worker.shared.access_log.as_ref()?;
        let uri = request.uri();
        let url = if request.method() == Method::CONNECT || uri.scheme().is_some() {
            uri.to_string()
        } else {
            let host = request.headers().get(header::HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
            format!("{}://{}{}", client.scheme(), host.as_deref().unwrap_or("-"), path_of(uri))
        };
        let config = &worker.shared.config;
        let url = if config.log_queries { url } else { without_query(&url) };
        let fields = request.headers();
        let wanted = config.log_format.request_fields.iter().map(|name| {
            let value = text_of(fields, name)?;
            let is_url = *name == header::REFERER && !config.log_queries;
            Some(if is_url { without_query(&value) } else { value })
        });
        let user = worker.shared.passwords.as_ref().and_then(|passwords| passwords.user(fields));
        let method = request.method().clone();
        let version = request.version();
        let fields = wanted.collect();
        let worker = Arc::clone(worker);
        let client = client.address_of(target);
        let started = account.started;
        Some(Box::new(LineStart { worker, started, client, method, url, version, user, fields }))
    }
}

/// Returns a URL whose query, if any, is replaced by a placeholder.
fn without_query(url: &str) -> String {
    url.split_once('?').map_or_else(|| url.to_owned(), |(before, _)| format!("{before}?"))
}
