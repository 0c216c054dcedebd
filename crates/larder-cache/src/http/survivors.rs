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

/// The state of the cache that outlives a change of its settings.
pub struct CacheSurvivors {
    /// The memory cache.
    pub hot: Arc<MemoryCache<HotItem>>,
    /// The store, if there is one.
    pub store: Option<Store>,
    /// The second tier, for entries that the store has evicted.
    pub tier: Option<Arc<Tier>>,
    /// The memory for bodies in transfer.
    pub bodies: Arc<BodyBudget>,
    /// Returns `true` if many responses wait for their clients, so that each response should free its spare buffers.
    are_exchanges_many: Box<dyn Fn() -> bool + Send + Sync>,
    /// The locations at which chunks of long bodies were seen in the store.
    pub(super) sightings: ChunkSightings,
    /// Long bodies whose heads are hidden because the bodies are still arriving.
    pub arrivals: Arc<Arrivals>,
    /// The work in progress that may store a response, by the key of the resource.
    pub works: Arc<ActiveKeys>,
    /// Resources whose responses requests cannot share. Requests for them do not wait for each other's fetches.
    pub uncollapsible: KeySet,
    /// Resources whose entity tags alternate from one response to the next.
    pub tag_changes: TagChanges,
    /// The resources that were recently fetched from other nodes, and the room for copies of them.
    pub copies: SiblingCopies,
    /// The pinned URL patterns and keys.
    pub pins: Pins,
    /// The purges of the store's responses.
    pub purges: Arc<Purges>,
}

/// The parts of [`CacheSurvivors`] that the caller creates, because they depend on settings.
pub struct SurvivorParts {
    /// The memory cache.
    pub hot: Arc<MemoryCache<HotItem>>,
    /// The store. Without one, responses are kept in memory only.
    pub store: Option<Store>,
    /// The second tier behind the store.
    pub tier: Option<Arc<Tier>>,
    /// The pinned URL patterns and keys.
    pub pins: Pins,
    /// The purges of the store's responses.
    pub purges: Arc<Purges>,
    /// Limit in bytes for the memory of all bodies in transfer.
    pub body_bytes: u64,
    /// Returns `true` if many responses wait for their clients, so that each response should free its spare buffers.
    pub are_exchanges_many: Box<dyn Fn() -> bool + Send + Sync>,
}

impl CacheSurvivors {
    /// Creates the state at the start of the program.
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

    /// Returns whether so many responses wait for their clients that none should keep a buffer longer than its body.
    pub(super) fn are_exchanges_many(&self) -> bool {
        (self.are_exchanges_many)()
    }
}
