//! Serves `/queries.json`, the last requests of all workers, for the dashboard's query log.
//!
//! Invariants: it lists at most [`QUERY_COUNT_SHOWN`] requests, the latest first, and none if the log is off. Queries
//! of URLs are left out unless they are logged too. `guard` checks who may read it.

use std::time::Instant;

use serde::Serialize;

use crate::{
    ground::clock,
    operators::query_log::{LoggedQuery, QueryState},
    run::shared::ProxyState,
};

/// The last requests, in the form that the dashboard reads.
#[derive(Serialize)]
pub(super) struct QueryList {
    /// Whether requests are recorded.
    on: bool,
    queries: Vec<QueryRow>,
}

/// A request, in the form that the dashboard reads.
#[derive(Serialize)]
struct QueryRow {
    /// The time at which the request arrived, in milliseconds of Unix time.
    at_ms: i64,
    client: String,
    method: &'static str,
    url: String,
    /// `hit`, `miss`, `tunnel`, `denied` or `failed`; `open` if it is in progress, `abandoned` if the client left
    /// first.
    result: &'static str,
    /// The outcome as Squid's code, such as `TCP_HIT`.
    outcome: Option<&'static str>,
    /// Why the response was a miss, as in Cache-Status.
    why: Option<&'static str>,
    status: Option<u16>,
    sent_bytes: u64,
    took_ms: f64,
}

impl QueryList {
    /// Collects the last requests of all workers, the latest first.
    pub(super) fn of(shared: &ProxyState) -> Self {
        let on = shared.config.query_log;
        let workers = shared.history.workers().iter().filter(|_| on);
        let mut logged: Vec<LoggedQuery> =
            workers.flat_map(|worker| worker.queries.all(shared.config.log_queries)).collect();
        logged.sort_unstable_by_key(|query| std::cmp::Reverse(query.started));
        logged.truncate(QUERY_COUNT_SHOWN);
        let now_ms = clock::now().as_millis();
        let now = Instant::now();
        let rows = logged.into_iter().map(|query| {
            let ago = now.saturating_duration_since(query.started);
            QueryRow::new(query, now_ms - i64::try_from(ago.as_millis()).unwrap_or(0))
        });
        Self { on, queries: rows.collect() }
    }
}

impl QueryRow {
    fn new(query: LoggedQuery, at_ms: i64) -> Self {
        let LoggedQuery { client, method, url, state, .. } = query;
        let client = client.to_canonical().to_string();
        let result = match state {
            QueryState::Open => "open",
            QueryState::Abandoned => "abandoned",
            QueryState::Answered(result) => result.outcome.kind().token(),
        };
        let row = Self {
            at_ms,
            client,
            method,
            url,
            result,
            outcome: None,
            why: None,
            status: None,
            sent_bytes: 0,
            took_ms: 0.0,
        };
        let QueryState::Answered(result) = state else { return row };
        Self {
            outcome: Some(result.outcome.squid_code()),
            why: result.why.map(|why| why.token()),
            status: Some(result.status.as_u16()),
            sent_bytes: result.sent_bytes,
            took_ms: result.took.as_secs_f64() * 1000.0,
            ..row
        }
    }
}

/// Maximum number of requests in the list.
const QUERY_COUNT_SHOWN: usize = 1000;
