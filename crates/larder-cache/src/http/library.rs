//! The responses of a [`Cache`]: the same state that the proxy has, over the memory and the store of a library's cache.
//!
//! Invariant: [`Cache::clear`] removes responses, too, and [`Cache::sync`] and [`Cache::close`] wait until those are
//! stored whose clients have them. Purges are not recorded: a removal removes the response from the store.

use std::{sync::Arc, time::Duration};

use larder_http::{Rules, Settings};

use super::{
    CacheShared, ResponseCache,
    groups::PageGroups,
    late_commits::{LateCommit, LateCommits},
    mark::{KeyMarks, OriginMark},
    patience::StorePatience,
    pins::Pins,
    survivors::{CacheSurvivors, SurvivorParts},
};
use crate::{Cache, MemoryCache, cache::CacheParts};

/// The state of the HTTP responses in a [`Cache`].
pub(crate) struct LibraryResponses {
    survivors: Arc<CacheSurvivors>,
    commits: Arc<LateCommits>,
}

impl Cache {
    /// Returns the cache of HTTP responses in the memory and the store of this cache. All calls return caches of the
    /// same responses. They need a tokio runtime with time enabled.
    ///
    /// Do not use the same cache for values, too: values and responses may each take the whole memory.
    pub fn responses(&self, settings: Settings) -> Arc<ResponseCache> {
        let responses = self.parts().responses.get_or_init(|| LibraryResponses::new(self.parts()));
        let shared = CacheShared {
            patience: StorePatience::new(STORE_PATIENCE),
            rules: Rules::default(),
            key_marks: Arc::new(OwnServers),
            entry_bytes_max: self.value_bytes_max(),
            survivors: Arc::clone(&responses.survivors),
        };
        Arc::new(ResponseCache {
            shared: Arc::new(shared),
            events: Arc::new(|event| tracing::debug!(?event, "the store of a cache did not do all")),
            http: Arc::new(settings),
            groups: Arc::new(PageGroups::new(Duration::ZERO)),
            stall: CLIENT_STALL,
        })
    }

    /// Returns a guard for a response that is being stored. [`Cache::sync`] and [`Cache::close`] wait until it is
    /// dropped. `None` if the cache has no responses.
    pub fn begin_late_commit(&self) -> Option<LateCommit> {
        Some(self.parts().responses.get()?.commits.begin())
    }
}

impl LibraryResponses {
    fn new(parts: &CacheParts) -> Self {
        let survivors = CacheSurvivors::new(SurvivorParts {
            hot: Arc::new(MemoryCache::new(parts.memory.capacity_bytes())),
            store: Some(parts.store.clone()),
            tier: None,
            pins: Pins::open(None, None, None),
            purges: Arc::clone(&parts.purges),
            // The pieces that the program keeps are counted, too, so a limit would stop the bodies that it reads.
            body_bytes: u64::MAX,
            are_exchanges_many: Box::new(|| false),
        });
        Self { survivors: Arc::new(survivors), commits: Arc::default() }
    }

    /// Drops all responses from memory, after a purge of everything.
    pub(crate) fn forget_all(&self) {
        self.survivors.hot.clear();
    }

    /// Waits until all responses are stored that clients already have.
    pub(crate) async fn stored(&self) {
        self.commits.all_ended().await;
    }
}

/// Key marks for a library without configured origins: every URL is answered by its own server.
struct OwnServers;

impl KeyMarks for OwnServers {
    fn marks_of(&self, _: &str, _: &str, _: &str) -> Vec<OriginMark<'_>> {
        vec![OriginMark::NONE]
    }
}

/// Maximum time to wait for the store. If it takes longer, requests go to the origin for a while.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// Time for which a client may make no progress before it no longer delays a body.
const CLIENT_STALL: Duration = Duration::from_mins(1);
