//! Foretells the steps of a request, with the functions that decide those of real requests.
//!
//! Owns: replacements for the steps that contact an origin or change something. Invariant: nothing is sent, and no
//! stored response is changed. The imagined client may use this proxy and sends no body. Cost: two lookups of the
//! stored response, and one of the origin's name, which may take a second.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use http::{HeaderMap, Method, Request, Uri, Version, header, uri::PathAndQuery};
use larder_cache::http::answer::look::{self, LookVerdict};
use larder_http::{
    Precondition, conditional,
    route::{self, Route, RouteFacts},
};

use super::{
    ExplainedRequest, ForeseenResponse,
    outlook::{is_for_us, target_refusal},
};
use crate::{
    ground::{
        errors::Failure,
        target::{Origin, path_of},
    },
    road::{
        admission,
        admitted::AdmittedRequest,
        client::peer::Client,
        exchange::ClientExchange,
        intercept::{self, Interception},
        steps::{Onward, Step, Trace, Verdict},
        target::{OwnTarget, TargetKind, with_key},
        tunnel,
    },
    run::worker::Worker,
    targets::{asked::RequestHead, listings},
};

impl Worker {
    /// Returns the steps that a request would take now, or `None` if no client can send such a request.
    pub(super) async fn foretell(self: &Arc<Self>, asked: &ExplainedRequest<'_>) -> Option<Trace> {
        let mut request = self.imagined_request(asked)?;
        let config = &self.shared.config;
        let address = config.clients.first().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |network| network.addr());
        let client = Arc::new(Client::imagined(self, SocketAddr::new(address, 0)));
        let mut exchange = ClientExchange::begin(&client, &mut request);
        // No client waits for this exchange, so its end is not counted.
        exchange.note_answered();
        while !matches!(exchange.trace.step(), Step::Deliver | Step::Done) {
            let step = exchange.foretell_step(&mut request).await.unwrap_or_else(|_| {
                exchange.trace.note_failure();
                Step::Deliver
            });
            exchange.trace.enter(step);
        }
        Some(exchange.trace)
    }

    /// Creates the request as a client would send it: to this proxy as a server, or through it.
    fn imagined_request(&self, asked: &ExplainedRequest<'_>) -> Option<Request<String>> {
        let &ExplainedRequest { method, uri, fields } = asked;
        let authority = uri.authority()?.as_str();
        let target = if method == Method::CONNECT {
            let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            let port = uri.port_u16().unwrap_or(default_port);
            format!("{}:{port}", uri.host()?).parse().ok()?
        } else if is_for_us(&self.shared, uri) {
            let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
            Uri::from(path)
        } else {
            uri.clone()
        };
        let mut request = Request::new(String::new());
        *request.method_mut() = method.clone();
        *request.uri_mut() = target;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = HeaderMap::clone(fields);
        request.headers_mut().insert(header::HOST, authority.parse().ok()?);
        Some(request)
    }
}

impl ClientExchange {
    /// Takes the current step without contacting an origin, and returns the next one.
    async fn foretell_step(&mut self, request: &mut Request<String>) -> Result<Step, Failure> {
        let onward = match self.trace.step() {
            Step::Gate => self.pass_gate(None, request)?,
            Step::Resolve => self.resolve(request)?,
            Step::Memory => {
                // The stored response is looked up first, because a lookup puts it in memory, where a later client
                // would find it.
                self.look_up(request).await;
                return Ok(self.peek_into_memory(request).err().unwrap_or(Step::Deliver));
            }
            Step::Own => {
                if let TargetKind::Own(OwnTarget::Registry(..)) = self.target.kind {
                    self.check_client()?;
                }
                return Ok(Step::Deliver);
            }
            Step::Tunnel => return self.foretell_tunnel(request).await,
            Step::Admit => return self.foretell_admission(request).await,
            Step::Cache => return Ok(self.foretell_cache().await),
            Step::Fetch | Step::Pass | Step::Change => {
                self.check_way(&self.admitted().asked.origin).await?;
                return Ok(Step::Deliver);
            }
            Step::Switch | Step::Deliver | Step::Done => return Ok(Step::Done),
        };
        match onward {
            Onward::To(step) => Ok(step),
            Onward::Served(_) | Onward::Switched(_) => Ok(Step::Deliver),
        }
    }

    /// Looks up the stored response to a request, which brings the response into memory.
    async fn look_up(&self, request: &Request<String>) {
        let cache = &self.worker.cache;
        let Some(parts) = self.target.key_parts(&self.worker.shared.routes, self.client.scheme(), request) else {
            return;
        };
        let key: Option<Arc<[u8]>> =
            with_key(&cache.http.key_rules, parts, path_of(request.uri()), |key| Arc::from(key));
        if let Some(key) = key {
            drop(look::locate(cache, &key, request.headers()).await);
        }
    }

    async fn foretell_tunnel(&self, request: &Request<String>) -> Result<Step, Failure> {
        self.check_client()?;
        self.check_password(request.headers()).await?;
        let shared = &self.worker.shared;
        let origin = tunnel::target(&shared.config, request)?;
        let address = self.client.address_of(&self.target);
        let interception = intercept::interception(&shared.origins, shared.interceptor.as_ref(), &origin, address);
        if !matches!(interception, Interception::Intercepted(_)) {
            shared.origins.check_listed(&origin)?;
            if self.client.line_to(&origin).is_down() {
                return Err(Failure::Offline { host: origin.to_string() });
            }
            self.check_way(&origin).await?;
        }
        Ok(Step::Done)
    }

    async fn foretell_admission(&mut self, request: &mut Request<String>) -> Result<Step, Failure> {
        self.judge_writer(request);
        self.check_head(request)?;
        let mut asked = self.take_apart(&self.target, request)?;
        self.check_trust(&asked).await?;
        let step = if self.target.is_build_cache() {
            self.step_in_build_cache(RequestHead::unshared(&mut asked))
        } else {
            admission::step_after(&asked, !asked.has_body())
        };
        if matches!(step, Step::Pass | Step::Change) {
            asked.check_line()?;
        }
        self.admitted = Some(AdmittedRequest { worker: Arc::clone(&self.worker), asked });
        Ok(step)
    }

    async fn foretell_cache(&mut self) -> Step {
        let admitted = self.admitted();
        let AdmittedRequest { worker, asked } = admitted;
        let cache = &worker.cache;
        let Some(key) = &asked.key else { return Step::Pass };
        let seen = ForeseenResponse::of(cache, key, asked.terms()).await;
        let stored = seen.stored(cache, asked.terms());
        let is_part = asked.fields.contains_key(header::RANGE) && stored.is_absent();
        let knows_digest = is_part && Box::pin(listings::knows_digest(&worker.http.fetcher, asked, key)).await;
        let is_never_stored = asked.before.is_never_stored;
        let facts = RouteFacts { knows_digest, is_never_stored, ..look::facts(cache, asked.terms(), key) };
        let route = route::decide(&facts, stored);
        let (verdict, step) = match &route {
            Route::Stored { response, .. }
                if conditional::evaluate(&asked.fields, &response.entry.head) == Precondition::Failed =>
            {
                let may_ask = admitted.query().check_may_ask().is_ok();
                (Verdict::Bypass, if may_ask { Step::Pass } else { Step::Deliver })
            }
            route => (Verdict::from(LookVerdict::from(route)), Step::from(route)),
        };
        self.trace.note(verdict);
        step
    }

    /// Checks that this proxy may connect to an origin's addresses.
    async fn check_way(&self, origin: &Origin) -> Result<(), Failure> {
        target_refusal(&self.worker.origins, origin).await.map_or(Ok(()), Err)
    }
}
