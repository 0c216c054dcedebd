//! The cache: the memory cache, the store, the facts remembered about stored responses, and the pauses in which the
//! store is not used.
//!
//! Requests, flights and origins are outside. Invariant: a fault of the store never reaches the cache's callers.

use std::{sync::Arc, time::Duration};

use larder_http::{Rules, Settings};
use larder_store::Store;

use crate::{
    body_budget::BodyBudget,
    cache::{
        arrivals::Arrivals,
        epochs::ChangeEpochs,
        groups::PageGroups,
        hot::HotTier,
        lonely::Uncollapsible,
        mark::KeyMarks,
        patience::StorePatience,
        pins::Pins,
        purges::{Purges, WorkStart},
        shared_reads::SharedReads,
        sightings::ChunkSightings,
    },
    config::CacheSettings,
    metrics::WorkerMetrics,
};

pub(crate) mod arrivals;
pub(crate) mod chunks;
pub(crate) mod entry;
pub(crate) mod epochs;
pub(crate) mod groups;
pub(crate) mod hot;
pub(crate) mod invalidation;
pub(crate) mod lonely;
pub(crate) mod lookup;
pub(crate) mod mark;
pub(crate) mod neighbours;
pub(crate) mod patience;
pub(crate) mod pins;
pub(crate) mod purges;
pub(crate) mod responses;
pub(crate) mod shared_reads;
pub(crate) mod sightings;
pub(crate) mod storing;

/// The cache as one worker uses it for the requests of one site.
pub(crate) struct Cache {
    pub(crate) shared: Arc<CacheShared>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// The site's settings.
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
}

/// The caching policy of one site.
pub(crate) struct SitePolicy {
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
    /// The longest body that is stored.
    pub(crate) entry_bytes_max: u64,
}

impl SitePolicy {
    /// Creates the policy that these settings describe. Key rules are shared by all sites. `groups` are shared by sites
    /// with the same time window.
    pub(crate) fn new(settings: &CacheSettings, all: &CacheSettings, groups: &Arc<PageGroups>) -> Self {
        let http = Settings { key_rules: all.http.key_rules.clone(), ..settings.http.clone() };
        let groups = match settings.group_window == all.group_window {
            true => Arc::clone(groups),
            false => Arc::new(PageGroups::new(settings.group_window)),
        };
        Self { http: Arc::new(http), groups, entry_bytes_max: settings.entry_bytes_max }
    }
}

/// The parts of the cache that all workers share.
pub(crate) struct CacheShared {
    pub(crate) hot: Arc<HotTier>,
    pub(crate) store: Option<Store>,
    /// The memory for bytes of bodies on their way.
    pub(crate) bodies: Arc<BodyBudget>,
    /// Pieces of long bodies that several clients may want at once.
    pub(crate) reads: Arc<SharedReads>,
    /// The known locations of the chunks of long bodies.
    pub(crate) sightings: Arc<ChunkSightings>,
    /// Long bodies whose heads are not shown yet.
    pub(crate) arrivals: Arc<Arrivals>,
    /// Invalidations, by the resource's key.
    pub(crate) epochs: Arc<ChangeEpochs>,
    pub(crate) lonely: Arc<Uncollapsible>,
    pub(crate) patience: StorePatience,
    pub(crate) pins: Arc<Pins>,
    pub(crate) purges: Arc<Purges>,
    pub(crate) rules: Rules,
    /// The origins that may answer for a URL.
    pub(crate) key_marks: Arc<dyn KeyMarks>,
    /// Longest body that is stored, in bytes.
    pub(crate) entry_bytes_max: u64,
    /// Time after which a client that makes no progress is dropped.
    pub(crate) stall: Duration,
}

impl CacheShared {
    /// Returns the start of work that may store something.
    pub(crate) fn begin(&self) -> WorkStart {
        self.purges.begin(self.epochs.now())
    }

    /// Returns whether the result of work that started at `began`, on the resource under `primary`, may serve a request
    /// that arrives now: the resource was neither invalidated nor purged since.
    pub(crate) fn is_current(&self, primary: &[u8], began: WorkStart) -> bool {
        self.epochs.is_unchanged(primary, began.moment) && !self.purges.may_concern(primary, began)
    }
}
