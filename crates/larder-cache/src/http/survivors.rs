//! The state of the cache that survives a change of its settings.
//!
//! Owns: the list of that state. `CacheShared` dereferences to it.

use std::sync::Arc;

use larder_store::Store;

use super::{
    arrivals::Arrivals, body_budget::BodyBudget, copies::SiblingCopies, hot::HotItem, key_set::KeySet, pins::Pins,
    sightings::ChunkSightings, tag_changes::TagChanges, tier::Tier,
};
use crate::{ActiveKeys, MemoryCache, purges::Purges};

/// The state of the cache that survives a change of its settings.
pub struct CacheSurvivors {
    /// The memory cache.
    pub hot: Arc<MemoryCache<HotItem>>,
    /// The store, if there is one.
    pub store: Option<Store>,
    /// The second tier, for entries that the store has evicted.
    pub tier: Option<Arc<Tier>>,
    /// The memory for bodies in transfer.
    pub bodies: Arc<BodyBudget>,
    /// Returns true if so many responses wait for their clients that each should free its spare buffers.
    are_exchanges_many: Box<dyn Fn() -> bool + Send + Sync>,
    /// The known locations of the chunks of long bodies.
    pub(super) sightings: ChunkSightings,
    /// Long bodies whose heads are hidden because the bodies are still arriving.
    pub arrivals: Arc<Arrivals>,
    /// The work in progress, by resource key.
    pub works: Arc<ActiveKeys>,
    /// Resources whose responses cannot be shared. Requests for them do not wait for one another's fetches.
    pub uncollapsible: KeySet,
    /// Resources whose entity tags differ from one response to the next.
    pub tag_changes: TagChanges,
    /// The room for copies of other nodes' responses, and the popular ones among them.
    pub copies: SiblingCopies,
    /// The pinned responses of the store.
    pub pins: Pins,
    /// The purges of the store's responses.
    pub purges: Arc<Purges>,
}

/// The parts of [`CacheSurvivors`] that depend on settings.
pub struct SurvivorParts {
    /// The memory cache.
    pub hot: Arc<MemoryCache<HotItem>>,
    /// The store. Without one, responses are kept in memory only.
    pub store: Option<Store>,
    /// The second tier behind the store.
    pub tier: Option<Arc<Tier>>,
    /// The pinned responses of the store.
    pub pins: Pins,
    /// The purges of the store's responses.
    pub purges: Arc<Purges>,
    /// The memory for bodies in transfer, in bytes.
    pub body_bytes: u64,
    /// Returns true if so many responses wait for their clients that each should free its spare buffers.
    pub are_exchanges_many: Box<dyn Fn() -> bool + Send + Sync>,
}

impl CacheSurvivors {
    /// Creates the state at start.
    pub fn new(parts: SurvivorParts) -> Self {
        let SurvivorParts { hot, store, tier, pins, purges, body_bytes, are_exchanges_many } = parts;
        Self {
            hot,
            store,
            tier,
            bodies: Arc::new(BodyBudget::new(body_bytes)),
            are_exchanges_many,
            sightings: ChunkSightings::default(),
            arrivals: Arc::default(),
            works: Arc::default(),
            uncollapsible: KeySet::default(),
            tag_changes: TagChanges::default(),
            copies: SiblingCopies::default(),
            pins,
            purges,
        }
    }

    /// Returns whether responses should keep no buffer longer than their bodies.
    pub(super) fn are_exchanges_many(&self) -> bool {
        (self.are_exchanges_many)()
    }
}
