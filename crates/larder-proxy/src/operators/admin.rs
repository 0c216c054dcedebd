//! The admin listener: the dashboard, `/metrics`, `/healthz`, PURGE and EXPLAIN.
//!
//! Owns: the choice of the page, and `EXPLAIN http://host/path HTTP/1.1`, which describes how a GET with the same
//! fields would be handled, and why. `SHOW` also describes the stored response. `/healthz` is 503 until the store is
//! loaded. PURGE is in `purging`, other commands of the operator in `operator`. Removal is in `ground::cache::storing`.
//!
//! The listener has its own address, so that clients and operators can have different access. A web page cannot send
//! these commands, because browsers do not let it use their methods and targets. The user who runs the proxy can use
//! the control socket without a listener.

mod connections;
mod dashboard;
mod figures;
mod guard;
mod listing;
mod operator;
mod packing;
mod page;
mod pinning;
mod progress;
mod purging;
mod queries;

use std::sync::Arc;

use http::{Method, Response, StatusCode, header, request};
use larder_http::fields::strip_hop_by_hop;

use crate::{
    figures::{
        exposition::{
            self, process,
            sites::{self, SiteLabels},
        },
        metrics::family::MetricFamily,
    },
    ground::received_body::IncomingBody,
    operators::{overview::Overview, readiness::Readiness},
    road::{
        client::response_body::ResponseBody,
        explain::{self, ExplainedRequest},
        show,
    },
    run::{
        shared::ProxyState,
        worker::{Worker, WorkerThread},
    },
};

/// The state that the admin pages need in addition to that of the proxy.
#[derive(Clone)]
pub(crate) struct AdminPages {
    site_labels: Arc<SiteLabels>,
    started_s: f64,
}

use self::{dashboard::DashboardCommand, page::json, queries::QueryList};
pub(crate) use connections::{serve, serve_operator};
pub(crate) use page::page;

impl AdminPages {
    /// Creates the pages. The current time becomes the process's start time in metrics.
    pub(crate) fn new(state: &ProxyState) -> Self {
        let site_labels = Arc::<SiteLabels>::default();
        site_labels.sums(state);
        Self { site_labels, started_s: process::now_s() }
    }

    /// Reads all metrics, for `/metrics`.
    fn metrics(&self, state: &ProxyState) -> Vec<MetricFamily> {
        let sites = self.site_labels.sums(state);
        [exposition::families(state), sites::metrics(Some(&sites)), process::metrics(Some(&self.started_s))].concat()
    }

    async fn answer(
        &self,
        thread: &WorkerThread,
        comes_by: ComesBy,
        request: &request::Parts,
        body: IncomingBody,
    ) -> Response<ResponseBody> {
        let Some(worker) = &thread.latest() else {
            return page(StatusCode::SERVICE_UNAVAILABLE, "the proxy is stopping\n".into());
        };
        if comes_by == ComesBy::Listener
            && let Some(refusal) = guard::refusal(worker, request)
        {
            return refusal;
        }
        if let Some(answered) = operator::answer(worker, request, body).await {
            return answered;
        }
        if request.method.as_str() == "PURGE" {
            return purging::purge(worker, request).await;
        }
        if let method @ ("EXPLAIN" | "SHOW") = request.method.as_str() {
            return explain(worker, request, method).await;
        }
        if request.method == Method::POST {
            return match dashboard::command(request.clone()) {
                Ok(DashboardCommand::Purge(command)) => purging::purge(worker, &command).await,
                Ok(DashboardCommand::Explain(command)) => explain(worker, &command, "EXPLAIN").await,
                Err(refusal) => *refusal,
            };
        }
        if request.method != Method::GET && request.method != Method::HEAD {
            return page(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET, HEAD and the methods of larder's commands are allowed\n".into(),
            );
        }
        match request.uri.path() {
            "/healthz" | "/readyz" => Readiness::of(&worker.shared).response(),
            "/metrics" => figures::answer(&self.metrics(&worker.shared), &request.headers),
            "/overview.json" => json(&Overview::of(&worker.shared, &self.site_labels.sums(&worker.shared))),
            "/queries.json" => json(&QueryList::of(&worker.shared)),
            _ => dashboard::file(request).unwrap_or_else(|| {
                page(
                    StatusCode::NOT_FOUND,
                    "not found; this listener serves /, /metrics, /overview.json, /queries.json and /healthz\n".into(),
                )
            }),
        }
    }
}

/// The field of EXPLAIN and SHOW that names the method of the request in question. Default: GET.
const METHOD_FIELD: &str = "larder-method";

/// Answers EXPLAIN or SHOW. Host and Connection are not taken over to the explained request, because they belong to the
/// admin request.
async fn explain(worker: &Arc<Worker>, request: &request::Parts, method: &str) -> Response<ResponseBody> {
    let mut fields = request.headers.clone();
    fields.remove(header::HOST);
    strip_hop_by_hop(&mut fields);
    let asked = fields.remove(METHOD_FIELD).and_then(|name| Method::from_bytes(name.as_bytes()).ok());
    let asked = asked.unwrap_or(Method::GET);
    let asked = ExplainedRequest { method: &asked, uri: &request.uri, fields: &fields };
    let told = match method {
        "SHOW" => show::show(worker, &asked).await,
        _ => explain::explain(worker, &asked).await,
    };
    match told {
        Some(text) => page(StatusCode::OK, text.into()),
        None => {
            let text = format!("{method} needs a whole URL, such as {method} http://example.com/path HTTP/1.1\n");
            page(StatusCode::BAD_REQUEST, text.into())
        }
    }
}

/// The channel by which an admin request arrived. It decides whether the sender's permission must be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComesBy {
    /// Through the admin listener, to which any program that reaches its address can connect.
    Listener,
    /// Over the control socket, from a verified operator.
    Operator,
}
