//! The cache: the memory cache, the store, the facts remembered about stored responses, and the pauses during which a
//! failing store is not used.
//!
//! Requests, flights and origins are elsewhere. Invariant: the cache's callers never see a fault of the store.

use std::{ops::Deref, sync::Arc, time::Duration};

use larder_http::{Rules, Settings};

use crate::{
    cache::{groups::PageGroups, mark::KeyMarks, patience::StorePatience, survivors::CacheSurvivors},
    config::CacheSettings,
    listings::ListingTable,
    metrics::WorkerMetrics,
};

pub(crate) mod arrivals;
pub(crate) mod chunks;
pub(crate) mod committed_body;
pub(crate) mod confirmation;
pub(crate) mod copies;
pub(crate) mod entry;
pub(crate) mod groups;
pub(crate) mod hot;
pub(crate) mod invalidation;
pub(crate) mod key_set;
pub(crate) mod key_slots;
pub(crate) mod lookup;
pub(crate) mod mark;
pub(crate) mod neighbors;
pub(crate) mod patience;
pub(crate) mod pins;
pub(crate) mod purges;
pub(crate) mod responses;
pub(crate) mod sightings;
pub(crate) mod storing;
pub(crate) mod survivors;
pub(crate) mod tag_changes;
pub(crate) mod tiered;
pub(crate) mod work;

/// The cache as one worker uses it for the requests of one site.
pub(crate) struct Cache {
    pub(crate) shared: Arc<CacheShared>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// The site's settings.
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
    /// Time after which a client that makes no progress is dropped.
    pub(crate) stall: Duration,
}

/// The caching policy of one site.
pub(crate) struct CachePolicy {
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
    /// Longest body to store, in bytes.
    pub(crate) entry_bytes_max: u64,
}

impl CachePolicy {
    /// Creates the policy from the site's settings. All sites share the key rules in `all`. Sites with the same time
    /// window share `groups`.
    pub(crate) fn new(settings: &CacheSettings, all: &CacheSettings, groups: &Arc<PageGroups>) -> Self {
        let http = Settings { key_rules: all.http.key_rules.clone(), ..settings.http.clone() };
        let groups = match settings.group_window == all.group_window {
            true => Arc::clone(groups),
            false => Arc::new(PageGroups::new(settings.group_window)),
        };
        Self { http: Arc::new(http), groups, entry_bytes_max: settings.entry_bytes_max }
    }
}

/// The parts of the cache that all workers share under one configuration.
pub(crate) struct CacheShared {
    pub(crate) patience: StorePatience,
    pub(crate) rules: Rules,
    /// The origins that can respond for a URL.
    pub(crate) key_marks: Arc<dyn KeyMarks>,
    /// The places of packages' listings.
    pub(crate) listings: ListingTable,
    /// Longest body that is stored, in bytes.
    pub(crate) entry_bytes_max: u64,
    pub(crate) survivors: Arc<CacheSurvivors>,
}

impl Deref for CacheShared {
    type Target = CacheSurvivors;

    fn deref(&self) -> &CacheSurvivors {
        &self.survivors
    }
}
