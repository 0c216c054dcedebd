//! What is cached: the memory tier and the store, what is known besides of what is there, and when the store is left alone.
//!
//! Owns: all of that. Does not: know of requests, flights or origins. Invariant: a fault of the store is none of its users'.

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

/// What is cached, as one worker uses it for the requests of a site.
pub(crate) struct Cache {
    pub(crate) shared: Arc<CacheShared>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// The site's settings.
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
}

/// How the responses of a site are cached.
pub(crate) struct SitePolicy {
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
    /// The longest body that is stored.
    pub(crate) entry_bytes_max: u64,
}

impl SitePolicy {
    /// What these settings say. The rules for keys are of all sites, and so are `groups` where their time is the same.
    pub(crate) fn new(settings: &CacheSettings, all: &CacheSettings, groups: &Arc<PageGroups>) -> Self {
        let http = Settings { key_rules: all.http.key_rules.clone(), ..settings.http.clone() };
        let groups = match settings.group_window == all.group_window {
            true => Arc::clone(groups),
            false => Arc::new(PageGroups::new(settings.group_window)),
        };
        Self { http: Arc::new(http), groups, entry_bytes_max: settings.entry_bytes_max }
    }
}

/// What is cached, for all workers.
pub(crate) struct CacheShared {
    pub(crate) hot: Arc<HotTier>,
    pub(crate) store: Option<Store>,
    /// The memory for bytes of bodies on their way.
    pub(crate) bodies: Arc<BodyBudget>,
    /// Pieces of long bodies that several clients may want at once.
    pub(crate) reads: Arc<SharedReads>,
    /// Where the chunks of long bodies were seen.
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
    /// How long a client may be without progress.
    pub(crate) stall: Duration,
}

impl CacheShared {
    /// Now, for work that may store something.
    pub(crate) fn begin(&self) -> WorkStart {
        self.purges.begin(self.epochs.now())
    }

    /// Whether what began then, of the resource with this key, is for whoever asks now: it was neither invalidated nor purged since.
    pub(crate) fn is_current(&self, primary: &[u8], began: WorkStart) -> bool {
        self.epochs.is_unchanged(primary, began.moment) && !self.purges.may_concern(primary, began)
    }
}
