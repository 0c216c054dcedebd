//! The state of the cache that survives a reload.
//!
//! Owns: the list of that state, its beginning, and its changes by a reload. `CacheShared` dereferences to it.

use std::{io, sync::Arc};

use larder_cache::{ActiveKeys, MemoryCache};
use larder_store::Store;

use crate::{
    body_budget::BodyBudget,
    cache::{
        arrivals::Arrivals, copies::SiblingCopies, hot::HotItem, key_set::KeySet, pins::Pins, purges::Purges,
        sightings::ChunkSightings, tag_changes::TagChanges,
    },
    config::ProxyConfig,
    exchange_budget::ExchangeBudget,
    tier::Tier,
};

/// The state of the cache that survives a reload.
pub(crate) struct CacheSurvivors {
    pub(crate) hot: Arc<MemoryCache<HotItem>>,
    pub(crate) store: Option<Store>,
    /// The second tier, for entries that the store has evicted.
    pub(crate) tier: Option<Arc<Tier>>,
    /// The memory for bodies in transfer.
    pub(crate) bodies: Arc<BodyBudget>,
    /// The memory for connections and exchanges.
    pub(crate) places: Arc<ExchangeBudget>,
    /// The known locations of the chunks of long bodies.
    pub(crate) sightings: ChunkSightings,
    /// Long bodies whose heads are hidden because the bodies are still arriving.
    pub(crate) arrivals: Arc<Arrivals>,
    /// The work in progress, by resource key.
    pub(crate) works: Arc<ActiveKeys>,
    /// Resources whose responses cannot be shared. Requests for them do not wait for one another's fetches.
    pub(crate) uncollapsible: KeySet,
    /// Resources whose entity tags differ from one response to the next.
    pub(crate) tag_changes: TagChanges,
    /// The room for copies of other nodes' responses, and the popular ones among them.
    pub(crate) copies: SiblingCopies,
    pub(crate) pins: Pins,
    pub(crate) purges: Arc<Purges>,
}

impl CacheSurvivors {
    /// Creates the state at start.
    ///
    /// # Errors
    /// The journal of the second tier cannot be opened.
    pub(crate) fn open(config: &ProxyConfig, store: Option<&Store>) -> io::Result<Self> {
        // First, because nothing may be stored before.
        let pins = Pins::open(config.state_file("pins"), config.state_file("pinned"), store);
        let peers = config.fleet.log_names();
        let purges = Purges::open(config.state_file("purges"), store, &peers);
        // Before any request is served: others may have purged what is stored.
        if !peers.is_empty()
            && let Err(error) = purges.doubt()
        {
            tracing::warn!(%error, "the record of purges cannot be written: everything is validated before use");
        }
        let hot = open_memory_cache(config, store);
        Ok(Self {
            store: store.cloned(),
            tier: open_tier(config, store)?,
            places: Arc::new(ExchangeBudget::new(config.exchange_bytes(), Arc::clone(&hot))),
            hot,
            bodies: Arc::new(BodyBudget::new(config.window_bytes())),
            sightings: ChunkSightings::default(),
            arrivals: Arc::default(),
            works: Arc::default(),
            uncollapsible: KeySet::default(),
            tag_changes: TagChanges::default(),
            copies: SiblingCopies::default(),
            pins,
            purges: Arc::new(purges),
        })
    }

    /// Adapts the state to another configuration. The memory cache is resized if possible, and emptied if responses are
    /// marked differently.
    pub(crate) fn adapt(&self, before: &ProxyConfig, after: &ProxyConfig) {
        if marking(after) != marking(before) {
            // The prepared fields of cached entries contain these marks.
            self.hot.clear();
        }
        self.places.set_max_bytes(after.exchange_bytes());
        self.hot.set_capacity_bytes(after.hot_bytes.min(self.places.cache_bytes_max()));
        self.bodies.set_max_bytes(after.window_bytes());
        self.purges.set_peers(&after.fleet.log_names());
    }
}

/// Returns the settings that decide how responses are marked.
fn marking(config: &ProxyConfig) -> (bool, bool, Option<&str>) {
    (config.add_via, config.add_cache_status, config.marking_name())
}

/// Opens the second tier, if one is configured and the store can have one.
fn open_tier(config: &ProxyConfig, store: Option<&Store>) -> io::Result<Option<Arc<Tier>>> {
    let Some(place) = config.tier.place() else { return Ok(None) };
    let Some((store, path)) = store.zip(config.state_file("tier")) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a second tier needs a store"));
    };
    Tier::open(&config.tier, place, &path, store).map(Some)
}

/// Creates the memory cache.
fn open_memory_cache(config: &ProxyConfig, store: Option<&Store>) -> Arc<MemoryCache<HotItem>> {
    let brings_unasked = store.is_some_and(Store::brings_neighbors);
    Arc::new(if brings_unasked {
        MemoryCache::with_room_for_unrequested(config.hot_bytes)
    } else {
        MemoryCache::new(config.hot_bytes)
    })
}
