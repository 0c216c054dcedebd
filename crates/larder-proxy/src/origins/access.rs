//! A worker's access to origins: its connections and names, and the state that all workers share.
//!
//! Owns: the connections and the resolver. A router has the policy of the requests that it sends, so that connections
//! know no limits of their own. The content of requests is irrelevant here.

use std::{net::SocketAddr, ops::Deref, path::PathBuf, sync::Arc};

use larder_wire::HeadLimits;

use crate::{
    figures::metrics::WorkerMetrics,
    fleet::tls::FleetTls,
    ground::{
        config::{Parent, SitePolicy, TargetRules},
        errors::Failure,
        target::{Origin, OriginWay},
        watch::WorkerDeadlines,
    },
    origins::{
        dns::DnsResolver,
        parent,
        pool::{ConnectionPool, OwnConnection},
        room::OriginRooms,
        survivors::OriginSurvivors,
        tls::OriginTls,
        ways::{OriginWays, ParentGroup},
    },
    targets::lists::{ActiveLists, ListVerdict},
};

/// A worker's access to origins: its connections and its resolver, for requests with one policy.
pub(crate) struct OriginRouter {
    pub(crate) shared: Arc<OriginsShared>,
    pub(crate) policy: Arc<SitePolicy>,
    /// The index of the worker.
    pub(crate) worker: usize,
    /// The connections, which the routers of all policies share.
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) dns: Arc<DnsResolver>,
    pub(crate) watches: Arc<WorkerDeadlines>,
    pub(crate) metrics: Arc<WorkerMetrics>,
}

/// The state of origins that all workers share under one configuration.
pub(crate) struct OriginsShared {
    /// Maximum size of a response's head.
    pub(crate) heads: HeadLimits,
    /// The addresses that clients may reach.
    pub(crate) targets: TargetRules,
    /// A file with additional CAs to trust.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether HTTP/2 is offered to origins.
    pub(crate) http2: bool,
    /// Lists of hosts that clients may not reach.
    pub(crate) lists: Option<Arc<ActiveLists>>,
    /// The parent proxies. `None` if there are none.
    pub(crate) parents: Option<Arc<ParentGroup>>,
    /// The addresses of this proxy's listeners. Requests to them would loop, so they are refused.
    pub(crate) own_addresses: Vec<SocketAddr>,
    pub(crate) tls: OriginTls,
    /// TLS with the other nodes of the fleet. `None` if the fleet does not use TLS.
    pub(crate) fleet_tls: Option<Arc<FleetTls>>,
    /// Limits the connections to each origin.
    pub(crate) rooms: OriginRooms<OwnConnection>,
    pub(crate) survivors: Arc<OriginSurvivors>,
}

impl Deref for OriginsShared {
    type Target = OriginSurvivors;

    fn deref(&self) -> &OriginSurvivors {
        &self.survivors
    }
}

impl OriginRouter {
    /// Creates the router of the worker with index `worker`.
    pub(crate) fn new(
        worker: usize,
        shared: &Arc<OriginsShared>,
        metrics: &Arc<WorkerMetrics>,
        watches: &Arc<WorkerDeadlines>,
        policy: &Arc<SitePolicy>,
    ) -> Self {
        let shared = Arc::clone(shared);
        let policy = Arc::clone(policy);
        let metrics = Arc::clone(metrics);
        let watches = Arc::clone(watches);
        Self { shared, policy, worker, pool: Arc::default(), dns: Arc::default(), watches, metrics }
    }

    /// Returns a router with another policy that uses the same connections.
    pub(crate) fn under(&self, policy: &Arc<SitePolicy>) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            policy: Arc::clone(policy),
            worker: self.worker,
            pool: Arc::clone(&self.pool),
            dns: Arc::clone(&self.dns),
            watches: Arc::clone(&self.watches),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

impl OriginsShared {
    /// Returns the ways to an origin, through parents or directly, that a request can try. `None` if the general
    /// parents are not used for the origin.
    pub(crate) fn ways(&self, origin: &Origin, key: Option<&[u8]>) -> Option<OriginWays> {
        OriginWays::new(self.parents.as_ref(), origin, key)
    }

    /// Returns the parents of an origin, in the order in which they are tried.
    pub(crate) fn parents_of<'a>(&'a self, origin: &'a Origin) -> &'a [Arc<Parent>] {
        match (&origin.way, &self.parents) {
            (OriginWay::By(parent), _) => std::slice::from_ref(parent),
            (OriginWay::Usual, Some(parents)) => parents.leading_to(origin),
            (OriginWay::Direct | OriginWay::Sibling, _) | (OriginWay::Usual, None) => &[],
        }
    }

    /// Returns whether requests to an origin go to a parent in absolute form, so that the parent can cache them.
    pub(crate) fn may_be_cached(&self, origin: &Origin) -> bool {
        parent::takes_absolute_form(origin) && !self.parents_of(origin).is_empty()
    }

    /// Returns the parent through which an origin is contacted, or `None` if it is contacted directly.
    pub(crate) fn parent_of<'a>(&'a self, origin: &'a Origin) -> Option<&'a Parent> {
        self.parents_of(origin).first().map(|parent| &**parent)
    }

    /// Checks that no host list blocks a target that a client named.
    ///
    /// # Errors
    /// A list blocks the host.
    pub(crate) fn check_listed(&self, origin: &Origin) -> Result<(), Failure> {
        let why = match self.lists.as_ref().filter(|_| !origin.trusted).map(|lists| lists.listed(&origin.host)) {
            Some(ListVerdict::Blocked) => "a block list names it",
            Some(ListVerdict::NotAllowed) => "no allow list names it",
            Some(ListVerdict::Not | ListVerdict::Allowed) | None => return Ok(()),
        };
        Err(Failure::Blocked { host: origin.host.to_string(), why })
    }

    /// Records the result of a request to an origin: logs a fault, and updates the state of the uplink.
    pub(crate) fn note<T>(&self, origin: &Origin, outcome: Result<T, &Failure>) {
        // The result for another node says nothing about the uplink, and `siblings` logs faults of nodes.
        if origin.way == OriginWay::Sibling {
            return;
        }
        let failure = outcome.err();
        if let Some(failure) = failure {
            self.complaints.note(failure);
        }
        self.uplink.note(origin, failure);
    }
}
