//! State that the connections of one worker share.
//!
//! Owns: the worker's state under one configuration, and the state that survives a reload. `run::threads` runs the
//! worker. Invariant: a request sees one configuration from beginning to end. Cost: on a hit, workers share nothing
//! except the memory cache's shard.

use larder_device::IgnorePoison;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use http::Uri;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    figures::{
        access_log::{LineBuffer, OpenLogLine},
        log_format::SentResponse,
        metrics::WorkerMetrics,
    },
    ground::{
        cache::{Cache, http_cache::HttpCache},
        config::{Limits, SitePolicy},
        exchange_budget::{ExchangePlace, PlaceUse},
        lag::ThreadLag,
        overload::{AddressCount, Shortage},
        target::path_of,
        unfinished::UnfinishedWork,
        watch::WorkerDeadlines,
    },
    origins::{access::OriginRouter, fetcher::OriginFetcher},
    road::client::socket::TunneledConnection,
    run::shared::{BoundedCounts, ProxyState, policies::PolicyInForce},
};

/// The state that one worker's connections share under one configuration, for requests with one policy.
pub(crate) struct Worker {
    pub(crate) shared: Arc<ProxyState>,
    pub(crate) policy: Arc<SitePolicy>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) watches: Arc<WorkerDeadlines>,
    pub(crate) origins: Arc<OriginRouter>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) http: Arc<HttpCache<OriginFetcher>>,
    thread: Arc<WorkerThread>,
    /// Whether a newer configuration has replaced this one.
    is_superseded: Arc<AtomicBool>,
    log_buffer: Arc<LineBuffer>,
    /// Variants of this worker with the policies of sites, by the site's index. Empty if no site has its own policy.
    of_sites: Vec<Option<Arc<Self>>>,
}

/// The state of a worker's thread. It survives reloads.
pub(crate) struct WorkerThread {
    index: usize,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) watches: Arc<WorkerDeadlines>,
    pub(crate) unfinished: Arc<UnfinishedWork>,
    lag: Arc<ThreadLag>,
    /// Sends a connection inside an intercepted tunnel to the task that serves it.
    inside: UnboundedSender<TunneledConnection>,
    /// The workers of all configurations in use, the current one last.
    workers: Mutex<Vec<Weak<Worker>>>,
}

impl Worker {
    /// Creates the worker for a configuration, which becomes the current one on its thread.
    pub(crate) fn new(thread: &Arc<WorkerThread>, shared: Arc<ProxyState>) -> Arc<Self> {
        let WorkerThread { index, metrics, watches, unfinished, .. } = &**thread;
        let general = &shared.policies.general;
        let origins = OriginRouter::new(*index, &shared.origins, metrics, watches, &general.policy);
        let is_superseded = Arc::default();
        let log_buffer = Arc::default();
        let under = |PolicyInForce { policy, cache: rules }: &PolicyInForce, of_sites| {
            let noted = Arc::clone(metrics);
            let origins = Arc::new(origins.under(policy));
            let cache = Arc::new(Cache {
                shared: Arc::clone(&shared.cache),
                events: Arc::new(move |event| noted.note_store(event)),
                http: Arc::clone(&rules.http),
                groups: Arc::clone(&rules.groups),
                stall: policy.limits.stall,
            });
            let fetcher = Arc::new(OriginFetcher {
                cache: Arc::clone(&cache),
                metrics: Arc::clone(metrics),
                origins: Arc::clone(&origins),
                places: Arc::clone(&shared.places),
                listings: Arc::clone(&shared.listings),
                marks: Arc::clone(&shared.marks),
                bodies: Arc::clone(&shared.bodies),
                siblings: shared.siblings.clone(),
                unfinished: Arc::clone(unfinished),
            });
            let flights = Arc::clone(&shared.flights);
            let http = Arc::new(HttpCache { flights, fetcher, entry_bytes_max: rules.entry_bytes_max });
            Arc::new(Self {
                shared: Arc::clone(&shared),
                policy: Arc::clone(policy),
                metrics: Arc::clone(metrics),
                watches: Arc::clone(watches),
                origins,
                cache,
                http,
                thread: Arc::clone(thread),
                is_superseded: Arc::clone(&is_superseded),
                log_buffer: Arc::clone(&log_buffer),
                of_sites,
            })
        };
        let of_site = |own: &Option<PolicyInForce>| own.as_ref().map(|own| under(own, Vec::new()));
        let worker = under(general, shared.policies.of_sites.iter().map(of_site).collect());
        thread.note(&worker);
        worker
    }

    /// Returns whether any site has its own policy.
    pub(crate) fn has_policies(&self) -> bool {
        !self.of_sites.is_empty()
    }

    /// Returns the variant of this worker with the policy of the first site that matches a request.
    ///
    /// `authority` is the request's host, if `uri` does not contain it.
    pub(crate) fn under_policy_of(
        self: &Arc<Self>,
        uri: &Uri,
        authority: Option<&str>,
        listener: Option<SocketAddr>,
    ) -> &Arc<Self> {
        if !self.has_policies() {
            return self;
        }
        let authority = authority.or_else(|| Some(uri.authority()?.as_str()));
        let site = authority.and_then(|authority| self.shared.routes.site(authority, path_of(uri), listener));
        site.and_then(|site| self.of_sites[site].as_ref()).unwrap_or(self)
    }

    /// Returns the worker of the thread's current configuration.
    pub(crate) fn latest(self: &Arc<Self>) -> Arc<Self> {
        if !self.is_superseded.load(Acquire) {
            return Arc::clone(self);
        }
        // While the thread is stopping, the current worker may be gone already.
        self.thread.latest().unwrap_or_else(|| Arc::clone(self))
    }

    /// Returns the measured scheduling delay of the worker's thread.
    pub(crate) fn lag(&self) -> &Arc<ThreadLag> {
        &self.thread.lag
    }

    /// Serves a connection inside an intercepted tunnel. The connection counts as a client connection.
    pub(crate) fn serve_inside(&self, inside: TunneledConnection) {
        // Sending fails only while the worker is stopping, when no new connection is served.
        let _ = self.thread.inside.send(inside);
    }

    /// Appends a line to the access log, if there is one.
    pub(crate) fn write_log_line(&self, line: &OpenLogLine, sent: SentResponse) {
        if let Some(log) = &self.shared.access_log {
            let dropped = self.log_buffer.push(log, &self.shared.config.log_format, line, sent);
            self.metrics.log_lines_dropped.add(dropped);
        }
    }

    /// Passes the buffered lines to the access log's writer.
    pub(crate) fn flush_log(&self) {
        if let Some(log) = &self.shared.access_log {
            self.metrics.log_lines_dropped.add(self.log_buffer.flush(log));
        }
    }
}

/// The default memory for connections and exchanges is 1/`CONNECTIONS_SHARE` of the memory limit.
pub const CONNECTIONS_SHARE: u64 = 16;
impl Drop for Worker {
    fn drop(&mut self) {
        // The last lines include those of exchanges that the stop cut off.
        if let Some(log) = &self.shared.access_log {
            self.log_buffer.flush_last(log);
        }
    }
}

impl WorkerThread {
    /// Creates the state of the thread with this index. The first configuration is added later.
    pub(crate) fn new(index: usize, metrics: Arc<WorkerMetrics>, inside: UnboundedSender<TunneledConnection>) -> Self {
        let watches = Arc::default();
        let unfinished = Arc::default();
        let lag = Arc::default();
        Self { index, metrics, watches, unfinished, lag, inside, workers: Mutex::default() }
    }

    /// Returns the worker of the current configuration. `None` while the thread is stopping.
    pub(crate) fn latest(&self) -> Option<Arc<Worker>> {
        self.workers().last().and_then(Weak::upgrade)
    }

    /// Returns the workers of all configurations that are still in use.
    pub(crate) fn all(&self) -> Vec<Arc<Worker>> {
        let mut workers = self.workers();
        workers.retain(|worker| worker.strong_count() > 0);
        workers.iter().filter_map(Weak::upgrade).collect()
    }

    fn note(&self, worker: &Arc<Worker>) {
        for before in self.all() {
            before.is_superseded.store(true, Release);
        }
        self.workers().push(Arc::downgrade(worker));
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Weak<Worker>>> {
        self.workers.lock().ignore_poison()
    }
}

/// Counts a connection until it ends. If it becomes a tunnel, it is counted until the tunnel ends.
pub(crate) struct ConnectionPresence {
    thread: Arc<WorkerThread>,
    counts: Arc<BoundedCounts>,
    place: ExchangePlace,
    /// The connection's place in the limit for its client address. `None` without such a limit.
    of_client: Option<AddressCount>,
}

impl ConnectionPresence {
    /// Counts a connection, or a task that continues after its connection has ended.
    pub(crate) fn of(worker: &Worker) -> Self {
        let thread = Arc::clone(&worker.thread);
        let counts = Arc::clone(&worker.shared.counts);
        counts.connections.fetch_add(1, AcqRel);
        thread.metrics.connections_open.add(1);
        let place = worker.shared.places.take_anyway(PlaceUse::Connection);
        Self { thread, counts, place, of_client: None }
    }

    /// Returns the limit that the connection exceeds, or `None`.
    ///
    /// `client` is the client's address, or `None` if the connection may carry the requests of several clients.
    pub(crate) fn shortage(&mut self, limits: &Limits, client: Option<IpAddr>) -> Option<Shortage> {
        if let (Some(client), Some(count_max)) = (client, limits.client_connection_count_max) {
            self.of_client = self.counts.client_connections.take(client, count_max);
            if self.of_client.is_none() {
                return Some(Shortage::ClientConnections);
            }
        }
        if self.counts.connections.load(Acquire) > limits.connection_count_max {
            return Some(Shortage::Connections);
        }
        (!self.place.is_within_limit()).then_some(Shortage::Memory)
    }
}

impl Drop for ConnectionPresence {
    fn drop(&mut self) {
        self.counts.connections.fetch_sub(1, AcqRel);
        self.thread.metrics.connections_open.take(1);
        self.thread.unfinished.note_ended();
    }
}
