//! Takes one request from its head to its response.
//!
//! Owns: the order of attempts: refusal, tunnel, memory, store, origin. `larder_http` has the caching rules, `flight`
//! fetches, and `hit` serves hits. Invariant: every response carries a ticket, so every exchange is counted and logged
//! once. Cost: a hit from memory is answered within the call. Everything else costs a future on the heap.

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use http::{Method, Request, Response, Version};
use larder_http::{cache_status::Forward, invalidate};
use larder_wire::WireFault;

use crate::{
    asked::RequestHead,
    build_caches,
    cache::mark::OriginMark,
    client::{
        answer::{ClientAnswer, ClientResponse},
        http2,
        opaque::PendingOpaque,
        peer::Client,
        response_body::ResponseBody,
    },
    clock,
    errors::Failure,
    fleet::{link::FleetLink, serving},
    metrics::{CountGuard, WorkerMetrics},
    origin::{request_body::ClientBody, target::path_of},
    outcome::Outcome,
    popular::PopularitySubject,
    readiness::Readiness,
    received_body::{IncomingBody, ReceivedBody},
    request::{
        accounting::{RequestNote, RequestStart, finish, finish_encoded, finish_health_check, log_query},
        admission, build_cache, change, encode, final_recipient, intercept,
        memory::{self, MemoryAnswer},
        nodes, pac,
        pending::{ExchangeEnd, PendingExchange},
        question,
        refusal::RefusalForm,
        registry, resolve, serve,
        served::ServedResponse,
        target::{Target, TargetKind},
        tunnel::{self, TunnelTarget},
        upgrade::{self, SwitchedConnection, UpgradeReply},
    },
    worker::Worker,
};

/// Answers a request. `fault` is the fault in its octets, if any.
pub(crate) fn answer(
    client: &Arc<Client>,
    mut request: Request<IncomingBody>,
    fault: Option<WireFault>,
) -> ClientAnswer {
    let started = Instant::now();
    if client.is_http2() {
        http2::join_cookies(request.headers_mut());
    }
    // Determined once, so that a request sees one configuration.
    let worker = client.worker.latest();
    let named_client = client.named_in(request.headers(), &worker.shared.config.fleet);
    let mut target = Target { named_client, ..Target::default() };
    if let Err(failure) = resolve::resolve(client, &worker, fault, &mut target, &mut request) {
        return refuse(client, &worker, &target, &request, &failure);
    }
    match &target.kind {
        TargetKind::HealthCheck => {
            let response = Readiness::of(&worker.shared).response();
            ClientAnswer::ready(finish_health_check(client, response))
        }
        TargetKind::PurgeLog(link) => {
            let link = Arc::clone(link);
            ClientAnswer::Later(Box::pin(send_purges(Arc::clone(client), worker, link, request)))
        }
        _ => exchange(client, &worker, &mut target, request, started),
    }
}

/// Answers a client's request, from memory at once if possible. Otherwise it takes the target.
fn exchange(
    client: &Arc<Client>,
    worker: &Arc<Worker>,
    target: &mut Target,
    mut request: Request<IncomingBody>,
    started: Instant,
) -> ClientAnswer {
    let worker = worker_for(client, worker, target, &request);
    let name = target.name(&worker.shared.routes, client.scheme(), &request);
    let named = name.map(|(scheme, authority, _)| (scheme, authority));
    let query = log_query(client, worker, (target, &request), named, started);
    let met = RequestNote { started, subject: subject_of(worker, &request, name), query };
    let may_encode = may_encode(client, worker, target, &request);
    match memory::answer(client, worker, (target, &request), name, may_encode) {
        ControlFlow::Break(MemoryAnswer::Encoded(response)) => {
            let start = RequestStart::new(client, worker, target, &request, met);
            ClientAnswer::Ready(Some(ClientResponse::Encoded(finish_encoded(client, start, response))))
        }
        ControlFlow::Break(MemoryAnswer::Served(mut served)) => {
            prepare(worker, target, true, &mut served);
            nodes::prove(worker, target.sibling(), &mut served);
            ClientAnswer::ready(finish(client, RequestStart::new(client, worker, target, &request, met), served))
        }
        ControlFlow::Continue(key) => {
            let Some(place) = PendingExchange::room(worker, &request) else {
                return refuse(client, worker, target, &request, &Failure::Overloaded);
            };
            let begun = PendingExchange::new(client, worker, met, (key, std::mem::take(target)), place);
            if client.is_http2() {
                admission::detach(&mut request);
            }
            ClientAnswer::Later(Box::pin(run(begun, request)))
        }
    }
}

/// Returns whether nothing adds to the fields of a response from memory, or logs them, and the client speaks
/// HTTP/1.1.
fn may_encode(client: &Client, worker: &Worker, target: &Target, request: &Request<IncomingBody>) -> bool {
    request.version() == Version::HTTP_11
        && worker.shared.access_log.is_none()
        && target.wish.is_none()
        && target.sibling().is_none()
        && !target.is_build_cache()
        && !client.says_goodbye()
}

/// Answers another node of the fleet that reads the log of purges.
async fn send_purges(
    client: Arc<Client>,
    worker: Arc<Worker>,
    link: Arc<FleetLink>,
    request: Request<IncomingBody>,
) -> Response<ResponseBody> {
    let mut ending = ExchangeEnd { client, is_answered: false };
    let (parts, _) = request.into_parts();
    let response = serving::answer(&ending.client, &link, &worker.shared.cache.purges, &parts).await;
    ending.note_answered();
    finish_health_check(&ending.client, response)
}

/// Returns the subject under which a request is counted as popular.
fn subject_of(
    worker: &Worker,
    request: &Request<IncomingBody>,
    name: Option<(&str, &str, OriginMark<'_>)>,
) -> Option<PopularitySubject> {
    let WorkerMetrics { popular, sites, .. } = &*worker.metrics;
    match name {
        Some((scheme, authority, _)) => Some(popular.see(sites, authority, Some((scheme, path_of(request.uri()))))),
        None if request.method() == Method::CONNECT => {
            Some(popular.see(sites, request.uri().authority()?.as_str(), None))
        }
        None => None,
    }
}

/// Returns the worker configured for the site of a request.
fn worker_for<'a>(
    client: &Client,
    worker: &'a Arc<Worker>,
    target: &Target,
    request: &Request<IncomingBody>,
) -> &'a Arc<Worker> {
    let routes = &worker.shared.routes;
    if routes.has_manners() {
        let named = target.name(routes, client.scheme(), request);
        let path = path_of(request.uri());
        worker.for_site(named.and_then(|(_, authority, _)| routes.site(authority, path, Some(client.listener))))
    } else {
        worker
    }
}

/// Refuses a request before it is looked up.
fn refuse(
    client: &Arc<Client>,
    worker: &Arc<Worker>,
    target: &Target,
    request: &Request<IncomingBody>,
    failure: &Failure,
) -> ClientAnswer {
    let served = ServedResponse::failure(&worker.shared.marks, failure, RefusalForm::for_request(request));
    let started = Instant::now();
    let query = log_query(client, worker, (target, request), None, started);
    let met = RequestNote { started, subject: None, query };
    ClientAnswer::ready(finish(client, RequestStart::of_refused(client, worker, target, request, met), served))
}

/// Answers a request that memory alone cannot answer.
///
/// Its state stays in memory while the request waits for an origin. So the functions below hand on no large values, of
/// which each async function would keep a copy. A value that is matched ends before the wait.
fn run(
    mut begun: PendingExchange,
    request: Request<IncomingBody>,
) -> impl Future<Output = Response<ResponseBody>> + Send {
    let request = Box::new(request);
    async move {
        let response = respond(&mut begun, request).await;
        // From here on, the response's ticket accounts for the exchange.
        begun.ending.note_answered();
        response
    }
}

async fn respond(begun: &mut PendingExchange, request: Box<Request<IncomingBody>>) -> Response<ResponseBody> {
    if request.method() == Method::CONNECT {
        let start = begun.start(&request);
        return Box::pin(run_tunnel(begun, *request, start)).await;
    }
    if upgrade::is_asked(&request) {
        let start = begun.start(&request);
        return Box::pin(run_upgrade(begun, *request, start)).await;
    }
    if let Some(response) = answer_itself(begun, &request) {
        return response;
    }
    run_request(begun, request).await
}

/// Answers a request for this proxy itself.
fn answer_itself(begun: &mut PendingExchange, request: &Request<IncomingBody>) -> Option<Response<ResponseBody>> {
    let PendingExchange { ending: ExchangeEnd { client, .. }, worker, target, .. } = begun;
    let own = pac::answer(client, worker, target, request);
    let served = own.or_else(|| final_recipient::answer_for_server(client, worker, target, request))?;
    let start = begun.start(request);
    Some(finish(&begun.ending.client, start, served))
}

/// Answers a request that is neither for a tunnel nor for this proxy itself.
async fn run_request(begun: &mut PendingExchange, request: Box<Request<IncomingBody>>) -> Response<ResponseBody> {
    let mut start = begun.start(&request);
    let PendingExchange { ending: ExchangeEnd { client, .. }, worker, key, target, .. } = begun;
    // Counted from here on, so that a proxy that hands over waits for the invalidation.
    let is_change = !invalidate::is_safe(request.method());
    let _counting = is_change.then(|| CountGuard::begin(&worker.metrics, |metrics| &metrics.changes_open));
    let form = RefusalForm::for_request(&request);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let answered = match &target.kind {
        TargetKind::BuildCache(cache) => Box::pin(build_cache::answer(client, worker, target, cache, request)).await,
        TargetKind::Registry(mirrored, ask) => {
            Box::pin(registry::answer(client, worker, target, (mirrored, *ask), &request)).await
        }
        _ => serve_request(client, worker, target, request, key.take()).await,
    };
    let mut served = match answered.and_then(|served| start.admit_body(client, served)) {
        Ok(mut served) => {
            nodes::prove(worker, target.sibling(), &mut served);
            served
        }
        Err(failure) => {
            // If the client's body broke off, the client is at fault for the origin's reaction.
            let failure = client.fatal_fault().map_or(failure, Failure::BadRequest);
            failed(client, worker, &failure, form)
        }
    };
    client.interim.close();
    prepare(worker, target, is_read, &mut served);
    finish(client, start, served)
}

/// Creates the response to a request that failed, which a session may record.
fn failed(client: &Client, worker: &Worker, failure: &Failure, form: RefusalForm) -> ServedResponse {
    client.session.iter().for_each(|session| session.note_failure(failure));
    ServedResponse::failure(&worker.shared.marks, failure, form)
}

/// Prepares a response for the client: one of a build cache for browsers, one of a mirror so that it leads back, and in
/// the coding that the client prefers. `is_entry` says that a response of a build cache is one of its entries.
fn prepare(worker: &Worker, target: &Target, is_entry: bool, served: &mut ServedResponse) {
    if target.is_build_cache() {
        build_caches::disarm(is_entry, served.response.headers_mut());
    }
    if let Some(mirrored) = target.mirror() {
        let status = served.response.status();
        if let Some(replacing) = mirrored.dress(status, served.response.headers_mut()) {
            let body = std::mem::replace(served.response.body_mut(), ResponseBody::empty());
            *served.response.body_mut() = body.replacing(replacing);
        }
    }
    let compression = &worker.cache.http.compression;
    if let Some(wish) = target.wish.as_ref().filter(|_| !compression.codings.is_empty()) {
        let response = std::mem::replace(&mut served.response, Response::new(ResponseBody::empty()));
        served.response = encode::encoded(compression, wish, response);
    }
}

async fn serve_request(
    client: &Arc<Client>,
    worker: &Arc<Worker>,
    target: &Target,
    mut request: Box<Request<IncomingBody>>,
    key: Option<Vec<u8>>,
) -> Result<ServedResponse, Failure> {
    let asked = admission::admit(client, worker, target, &mut request, key).await?;
    nodes::catch_up(worker, target.sibling(), asked.key.as_deref()).await?;
    // The head must have no second owner, because a git question may be made from it.
    let named = client.session.as_ref().map(|session| Box::new((session, asked.method.clone(), asked.uri())));
    let served = serve_admitted(worker, asked, request).await;
    if let (Err(Failure::Offline { .. }), Some((session, method, Some(uri)))) = (&served, named.map(|named| *named)) {
        let method = if method == Method::GET { String::new() } else { format!("{method} ") };
        session.note_missing(format!("{method}{uri}"));
    }
    served
}

async fn serve_admitted(
    worker: &Arc<Worker>,
    mut asked: Arc<RequestHead>,
    request: Box<Request<IncomingBody>>,
) -> Result<ServedResponse, Failure> {
    let mut body = ClientBody::Arriving(ReceivedBody::of_request(request));
    if question::may_be(&asked) {
        let read = question::read(worker, body).await?;
        asked = question::asked(asked, &read);
        body = ClientBody::Read(read);
    }
    // A question's body is part of its key, so that it is answered like a GET.
    let has_no_body = asked.question.is_some() || (body.is_empty() && !asked.has_body());
    let is_cached = matches!(asked.method, Method::GET | Method::HEAD) && has_no_body;
    match (is_cached, &asked.key) {
        (true, Some(key)) => {
            // Not needed any more, and it would stay while the request waits.
            drop(body);
            serve_cached(worker, &asked, key).await
        }
        _ if asked.line.is_down() => Err(asked.offline()),
        (true, None) => serve::from_origin(worker, &asked, Forward::Bypass).await,
        (false, _) => Box::pin(change::change(worker, &asked, body)).await,
    }
}

/// Answers a request for a resource that has a key.
async fn serve_cached(
    worker: &Arc<Worker>,
    asked: &Arc<RequestHead>,
    key: &Arc<[u8]>,
) -> Result<ServedResponse, Failure> {
    let served = serve::from_cache(worker, asked, key).await;
    if let Err(Failure::Offline { .. }) = &served
        && let Some(uri) = asked.uri()
    {
        worker.shared.missing.note(&uri.to_string(), &asked.fields, clock::now().as_secs());
    }
    served
}

async fn run_upgrade(
    begun: &PendingExchange,
    mut request: Request<IncomingBody>,
    mut start: RequestStart,
) -> Response<ResponseBody> {
    let PendingExchange { ending: ExchangeEnd { client, .. }, worker, target, .. } = begun;
    let answered = async {
        let asked = admission::admit(client, worker, target, &mut request, None).await?;
        asked.check_line()?;
        let reply = upgrade::ask(worker, &asked, PendingOpaque::of(&mut request, &client.switch)).await?;
        Ok((reply, asked.origin.host.clone()))
    };
    match answered.await {
        Ok((UpgradeReply::Switched(switched), origin)) => {
            client.count(Outcome::Tunnel);
            let SwitchedConnection { response, client_side, origin_side, watched } = *switched;
            let served = ServedResponse { response, outcome: Outcome::Tunnel, origin: Some(origin), why: None };
            let pacer = start.take_pacer();
            let ticket = start.ticket(client, &served, false);
            let leads_to = TunnelTarget { stream: origin_side, watched, pacer };
            tunnel::carry(worker, client_side, leads_to, ticket);
            served.response
        }
        Ok((UpgradeReply::Declined(served), _)) => finish(client, start, served),
        Err(failure) => finish(client, start, failed(client, worker, &failure, RefusalForm::Text)),
    }
}

async fn run_tunnel(
    begun: &PendingExchange,
    mut request: Request<IncomingBody>,
    start: RequestStart,
) -> Response<ResponseBody> {
    let PendingExchange { ending: ExchangeEnd { client, .. }, worker, target, .. } = begun;
    let opened = async {
        admission::check_client(client, worker, target)?;
        admission::check_password(client, &worker.shared, request.headers()).await?;
        let origin = tunnel::target(worker, &request)?;
        worker.shared.origins.check_listed(&origin)?;
        match intercept::interceptor(client, worker, &origin, client.address_of(target)) {
            Some(interceptor) => Ok((Err(interceptor), origin)),
            None if client.line_to(&origin).is_down() => {
                client.session.iter().for_each(|session| session.note_missing(format!("CONNECT {origin}")));
                Err(Failure::Offline { host: origin.to_string() })
            }
            None => Ok((Ok(tunnel::open(worker, &origin).await?), origin)),
        }
    };
    match opened.await {
        Ok((leads_to, origin)) => {
            let response = Response::new(ResponseBody::empty());
            let host = Some(origin.host.clone());
            let served = ServedResponse { response, outcome: Outcome::Tunnel, origin: host, why: None };
            // If the tunnel is intercepted, the requests inside it are counted instead.
            let mut start = if leads_to.is_ok() { start } else { start.without_subject() };
            let pacer = start.take_pacer();
            let ticket = start.ticket(client, &served, false);
            let peer = client.named_peer(target);
            let client_side = PendingOpaque::of(&mut request, &client.switch);
            match leads_to {
                Ok(socket) => {
                    client.count(Outcome::Tunnel);
                    tunnel::carry(worker, client_side, tunnel::watched(worker, socket, pacer), ticket);
                }
                // The requests inside are counted instead.
                Err(interceptor) => intercept::answer(
                    client,
                    worker,
                    intercept::TunnelOpening { client_side, origin, peer, interceptor: Arc::clone(interceptor) },
                    ticket,
                ),
            }
            served.response
        }
        Err(failure) => finish(client, start, failed(client, worker, &failure, RefusalForm::Text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::fetch::Fetch;

    /// Returns the bytes of the future that a function of one argument returns.
    fn future_bytes<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Each waiting exchange has both futures. The limits are sizes that the allocator has.
    #[test]
    fn what_waits_for_an_origin_takes_little() {
        let exchange = future_bytes(|(begun, request)| run(begun, request));
        let fetch = future_bytes(Fetch::run);
        assert!(exchange <= 1536 && fetch <= 2048, "an exchange takes {exchange} bytes, a fetch {fetch}");
    }
}
