//! Collects the metrics of an exchange, and its line in the access log.
//!
//! Owns: the facts that must be copied from a request before the request is consumed. When the response's ticket is
//! dropped, it counts the bytes and writes the line.

use std::{sync::Arc, time::Instant};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header, uri::Authority,
};
use larder_http::fields::media_type;

use crate::{
    access_log::OpenLogLine,
    client::{
        encoded::EncodedResponse,
        peer::Client,
        response_body::ResponseBody,
        ticket::{ExchangeContext, LogLine, Ticket},
    },
    delays::Pacer,
    errors::Failure,
    exchange_budget::ExchangePlace,
    origin::target::{host_of, path_of},
    outcome::Outcome,
    popular::PopularitySubject,
    query_log::{QueryPlace, QueryStart},
    request::{served::ServedResponse, target::Target},
    worker::Worker,
};

/// Length of a usual status line and of the empty line after the head, in bytes.
const STATUS_LINE_BYTES: usize = 19;
/// Length of a field line's colon, space and line end, in bytes.
const FIELD_LINE_BYTES: usize = 4;

/// The facts about a request once its head has arrived.
#[derive(Clone, Copy)]
pub(super) struct RequestNote {
    pub(super) started: Instant,
    pub(super) subject: Option<PopularitySubject>,
    pub(super) query: Option<QueryPlace>,
}

impl RequestNote {
    /// Returns the facts once the response has a head. `takes_time` says that its body arrives later.
    fn context(self, outcome: Outcome, status: StatusCode, takes_time: bool) -> ExchangeContext {
        let Self { started, subject, query } = self;
        let first_byte_us = takes_time.then(|| u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        ExchangeContext { started, first_byte_us, subject, query, outcome, why: None, status }
    }
}

/// Records a request in the query log, if it is on. `name` is its scheme and authority, if a cache may answer it.
pub(super) fn log_query(
    client: &Client,
    worker: &Worker,
    (target, request): (&Target, &Request<impl Sized>),
    name: Option<(&str, &str)>,
    started: Instant,
) -> Option<QueryPlace> {
    let config = &worker.shared.config;
    if !config.query_log {
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
        started,
        client: client.address_of(target),
        method,
        scheme,
        authority,
        target: if method == Method::CONNECT { "" } else { path_of(uri) },
    };
    Some(worker.metrics.queries.begin(&query))
}

/// Counts an exchange, and attaches the ticket that is settled when its response is dropped.
pub(super) fn finish(
    client: &Arc<Client>,
    mut start: RequestStart,
    mut served: ServedResponse,
) -> Response<ResponseBody> {
    client.count(served.outcome);
    if let Some(reason) = served.why.filter(|_| served.outcome.is_miss()) {
        client.worker.metrics.misses[reason.index()].add(1);
    }
    let pacer = start.take_pacer();
    let ticket = start.ticket(client, &served, !served.response.body().is_at_hand());
    if client.says_goodbye() {
        served.response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    served.response.map(|body| body.paced(pacer).with_ticket(ticket))
}

/// Counts a hit whose head is encoded already, as [`finish`] does. There is no access log.
pub(super) fn finish_encoded(
    client: &Arc<Client>,
    mut start: RequestStart,
    mut response: EncodedResponse,
) -> EncodedResponse {
    client.count(Outcome::MemoryHit);
    let pacer = start.take_pacer();
    let about = start.met.context(Outcome::MemoryHit, response.status, false);
    response.body = response.body.paced(pacer).with_ticket(Ticket::new(Arc::clone(client), None, Some(about)));
    response
}

/// Attaches a ticket to the response to a health check, which is neither counted nor logged: balancers send them every
/// second, and they say nothing about the load.
pub(super) fn finish_health_check(client: &Arc<Client>, response: Response<ResponseBody>) -> Response<ResponseBody> {
    response.map(|body| body.with_ticket(Ticket::new(Arc::clone(client), None, None)))
}

/// Returns the pacer for a response, if a delay rule applies to this client and origin.
fn pacer_of(client: &Client, worker: &Worker, target: &Target, request: &Request<impl Sized>) -> Option<Pacer> {
    let delays = &worker.shared.delays;
    if delays.is_empty() {
        return None;
    }
    let authority = match request.method() {
        &Method::CONNECT => request.uri().authority()?.as_str(),
        _ => target.name(&worker.shared.routes, client.scheme(), request)?.1,
    };
    delays.pacer(client.address_of(target), host_of(authority))
}

/// The facts about a request, copied before the request is consumed.
pub(super) struct RequestStart {
    met: RequestNote,
    /// Boxed, because most exchanges have none, but each reserves room for it while it waits.
    line: Option<Box<LineStart>>,
    /// The pacer of the response body. Boxed for the same reason.
    pacer: Option<Box<Pacer>>,
    /// The memory of the exchange, if it needs more than its connection.
    place: Option<ExchangePlace>,
}

impl RequestStart {
    pub(super) fn new(
        client: &Client,
        worker: &Arc<Worker>,
        target: &Target,
        request: &Request<impl Sized>,
        met: RequestNote,
    ) -> Self {
        let pacer = pacer_of(client, worker, target, request).map(Box::new);
        Self { pacer, ..Self::of_refused(client, worker, target, request, met) }
    }

    /// Returns these facts with the memory of the exchange.
    pub(super) fn holding(self, place: Option<ExchangePlace>) -> Self {
        Self { place, ..self }
    }

    /// Reserves the memory to send a response in pieces, unless its body is in memory.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn admit_body(&mut self, client: &Client, served: ServedResponse) -> Result<ServedResponse, Failure> {
        let needs_more = !served.response.body().is_at_hand();
        let has_memory = match &mut self.place {
            Some(place) if needs_more => place.begin_streaming(client.is_http2()),
            _ => true,
        };
        if has_memory { Ok(served) } else { Err(Failure::Overloaded) }
    }

    /// Creates the facts for a request that is refused before any lookup. Its target was not checked, and its response
    /// is short.
    pub(super) fn of_refused(
        client: &Client,
        worker: &Arc<Worker>,
        target: &Target,
        request: &Request<impl Sized>,
        met: RequestNote,
    ) -> Self {
        Self { met, line: LineStart::new(client, worker, target, request, met.started), pacer: None, place: None }
    }

    /// Removes the subject, for an outer exchange whose inner requests are counted themselves.
    pub(super) fn without_subject(mut self) -> Self {
        self.met.subject = None;
        self
    }

    /// Takes the pacer, for a tunnel.
    pub(super) fn take_pacer(&mut self) -> Option<Pacer> {
        self.pacer.take().map(|pacer| *pacer)
    }

    /// Returns the ticket that completes the exchange when it is dropped. `takes_time` says that the body arrives later
    /// than the head.
    pub(super) fn ticket(self, client: &Arc<Client>, served: &ServedResponse, takes_time: bool) -> Ticket {
        let about = self.met.context(served.outcome, served.response.status(), takes_time);
        let about = ExchangeContext { why: served.why, ..about };
        let line = self.line.map(|line| line.end(served));
        Ticket::new(Arc::clone(client), line, Some(about)).holding(self.place)
    }
}

/// The facts about a request for the access log, copied before the request is consumed.
struct LineStart {
    worker: Arc<Worker>,
    started: Instant,
    client: std::net::IpAddr,
    method: Method,
    url: String,
    version: Version,
    user: Option<String>,
    fields: Vec<Option<String>>,
}

impl LineStart {
    /// Copies the facts, or returns `None` if there is no access log.
    fn new(
        client: &Client,
        worker: &Arc<Worker>,
        target: &Target,
        request: &Request<impl Sized>,
        started: Instant,
    ) -> Option<Box<Self>> {
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
        Some(Box::new(Self { worker, started, client, method, url, version, user, fields }))
    }

    fn end(self, served: &ServedResponse) -> Box<LogLine> {
        let Self { worker, started, client, method, url, version, user, fields: request_fields } = self;
        let fields = served.response.headers();
        let wanted = &worker.shared.config.log_format.response_fields;
        let head_bytes = STATUS_LINE_BYTES
            + fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_LINE_BYTES).sum::<usize>();
        let line = OpenLogLine {
            node: worker.shared.config.fleet.node.clone(),
            started,
            client: client.to_canonical(),
            method,
            url,
            version,
            // The name is not logged if the client was refused for it.
            user: user.filter(|_| served.response.status() != StatusCode::PROXY_AUTHENTICATION_REQUIRED),
            outcome: served.outcome,
            why: served.why,
            status: served.response.status(),
            origin: served.origin.as_ref().map(|origin| origin.to_string()),
            content_type: media_type(fields).map(str::to_owned),
            head_bytes: head_bytes as u64,
            request_fields,
            response_fields: wanted.iter().map(|name| text_of(fields, name)).collect(),
        };
        Box::new(LogLine { worker, line })
    }
}

/// Returns a URL whose query, if any, is replaced by a placeholder.
fn without_query(url: &str) -> String {
    url.split_once('?').map_or_else(|| url.to_owned(), |(before, _)| format!("{before}?"))
}

fn text_of(fields: &HeaderMap, name: &HeaderName) -> Option<String> {
    fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
