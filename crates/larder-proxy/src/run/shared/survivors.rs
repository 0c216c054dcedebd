//! The state that survives a reload.
//!
//! Owns: the list of that state, its beginning, and its changes by a reload. The cache and origins have lists of their
//! own. `ProxyState` dereferences to this one.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    sync::Arc,
};

use larder_http::fields::via::Pseudonym;
use larder_store::Store;

use super::BoundedCounts;
use crate::{
    figures::metrics::WorkerMetrics,
    fleet::peers::FleetPeers,
    ground::{
        cache::{body::table::BodyTable, fetch::table::FlightTable, neighbors, opening, survivors::CacheSurvivors},
        config::ProxyConfig,
        exchange_budget::ExchangeBudget,
    },
    operators::{
        history::History,
        missing::{self, MissingList},
    },
    origins::{fetcher::OriginFetcher, survivors::OriginSurvivors},
};

/// The state of a proxy that survives a reload.
pub(crate) struct Survivors {
    pub(crate) cache: Arc<CacheSurvivors>,
    /// The memory reserved for connections and exchanges.
    pub(crate) places: Arc<ExchangeBudget>,
    pub(crate) origins: Arc<OriginSurvivors>,
    pub(crate) flights: Arc<FlightTable<OriginFetcher>>,
    /// The bodies that requests share: long ones, and those that are still arriving.
    pub(crate) bodies: Arc<BodyTable>,
    /// Resources that were requested while offline and were not cached.
    pub(crate) missing: Arc<MissingList>,
    /// Totals of served requests over time.
    pub(crate) history: Arc<History>,
    /// The state of the fleet's other nodes, as far as this node knows it.
    pub(crate) fleet_peers: Arc<FleetPeers>,
    pub(crate) counts: Arc<BoundedCounts>,
    /// The name that this proxy uses if none is configured.
    pub(crate) random_name: Pseudonym,
}

impl Survivors {
    /// Creates the state when the proxy starts.
    ///
    /// # Errors
    /// The journal of the second tier cannot be opened.
    pub(crate) fn open(
        config: &ProxyConfig,
        store: Option<&Store>,
        workers: &[Arc<WorkerMetrics>],
    ) -> io::Result<Arc<Self>> {
        let (cache, places) = opening::open(config, store)?;
        // The store puts neighbors of a requested entry into the memory cache. All are decoded by one list of targeted
        // fields.
        let has_one_list =
            config.policies().all(|policy| policy.cache.http.targets == config.policy.cache.http.targets);
        if let Some(store) = store.filter(|_| has_one_list) {
            neighbors::connect(store, &cache.hot, &config.policy.cache.http.targets);
        }
        let fleet_peers = FleetPeers::default();
        fleet_peers.set(&config.fleet.log_names());
        Ok(Arc::new(Self {
            origins: Arc::new(OriginSurvivors::open(config, &cache.bodies)),
            cache: Arc::new(cache),
            places,
            flights: Arc::default(),
            bodies: Arc::default(),
            missing: Arc::new(MissingList::open(config.state_file(missing::FILE_KIND))),
            history: Arc::new(History::open(config.state_file("figures"), workers.to_vec())),
            fleet_peers: Arc::new(fleet_peers),
            counts: Arc::default(),
            random_name: random_name(),
        }))
    }

    /// Adapts the state to a new configuration.
    pub(crate) fn adapt(&self, before: &ProxyConfig, after: &ProxyConfig) {
        opening::adapt(&self.cache, &self.places, before, after);
        self.origins.adapt(before, after);
        self.fleet_peers.set(&after.fleet.log_names());
    }
}

/// Returns a name that no other proxy is likely to have. If two proxies of a chain had the same name, their requests
/// would look like a loop.
fn random_name() -> Pseudonym {
    // The standard library's hash keys are a source of random numbers.
    let drawn = RandomState::new().build_hasher().finish();
    Pseudonym::new(format!("larder-{:08x}", drawn as u32)).expect("it is letters, digits and a hyphen")
}
