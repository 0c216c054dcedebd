//! Work that may store a response: fetches, uploads, and responses read from a file.
//!
//! Owns: the moment at which the work began, by which changes of its resource since then are recognized. Changes of one
//! resource mark its work ([`ActiveKeys`]); purges by site, prefix, tag, or of everything are compared by number
//! ([`Purges`](crate::purges::Purges)). Invariant: neither affects the work on another resource.

use std::sync::Arc;

use crate::{ActiveKeys, KeyCommit, KeyWork, MarkedCommits, purges::PurgeVerdict};
use larder_http::StoredHead;
use tokio::time::timeout;

use crate::http::{CacheShared, ResponseCache, patience};

/// Work on a resource that may store a response of it, from the moment when the request is sent. A change of the
/// resource in the meantime makes it outdated, and nothing that it brings is stored.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{fetcher::Fetcher, invalidation::remove_resources};
///
/// let responses = site.fetcher.cache();
/// let key = fetcher::store(&site, "/news").await;
/// let (work, other) = (responses.shared.begin(&key), responses.shared.begin(&(*b"another key").into()));
/// assert!(remove_resources(responses, &[key.to_vec()]).await.is_ok());
/// assert!(!work.is_current() && other.is_current());
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct ResourceWork {
    key: KeyWork,
    /// Number of purges that were recorded when the work began. A stored head keeps this number.
    pub purge_count: u64,
    /// Number of purges that had been made when the work began, whether recorded or not.
    seen_count: u64,
}

impl ResourceWork {
    /// Begins work on the resource `primary`, after this many purges.
    pub fn new(works: &Arc<ActiveKeys>, primary: &Arc<[u8]>, purge_count: u64, seen_count: u64) -> Self {
        Self { key: works.begin(primary), purge_count, seen_count }
    }

    /// Returns whether the resource was not changed since the work began. Purges are not considered.
    pub fn is_current(&self) -> bool {
        self.key.is_current()
    }

    /// Begins to store the response that the work brought. Waits until older commits of the resource have ended.
    ///
    /// Returns `None` if the resource was changed since the work began.
    pub(super) async fn begin_commit(&self, cache: &ResponseCache) -> Option<KeyCommit> {
        let older = self.key.older_commits();
        if !older.is_empty() {
            // A store that takes too long is paused, so the commit will hardly reach it, either.
            drop(Box::pin(ended(cache, older)).await);
        }
        self.key.begin_commit()
    }

    /// Makes older work on the resource outdated, unless this work is outdated itself. Returns whether it did.
    pub fn outdate_others(&mut self) -> bool {
        self.key.outdate_others()
    }

    /// Returns this work after its own change of the resource, which does not make it outdated. Purges still do.
    pub fn after_own_change(self) -> Self {
        Self { key: self.key.renewed(), ..self }
    }
}

impl CacheShared {
    /// Begins work that may store a response of the resource `primary`.
    pub fn begin(&self, primary: &Arc<[u8]>) -> ResourceWork {
        let (purge_count, seen_count) = self.purges.counts();
        ResourceWork::new(&self.works, primary, purge_count, seen_count)
    }

    /// Returns whether the result of this work may answer a request that arrives now. `head` is the head that it
    /// brought, if it has arrived.
    ///
    /// It may if the resource was neither invalidated nor purged since the work began. Before the head arrives, any
    /// purge by tag may concern it.
    pub fn is_current(&self, work: &ResourceWork, head: impl FnOnce() -> Option<StoredHead>) -> bool {
        if !work.is_current() {
            return false;
        }
        let key = work.key.key();
        let stands = |head: StoredHead| self.purges.judge_head(&head, key) == PurgeVerdict::Stands;
        !self.purges.may_concern_key(key, work.seen_count) || head().is_some_and(stands)
    }
}

/// Waits until these commits have ended. A commit that outlasts this wait undoes itself later.
///
/// # Errors
/// The store does not respond.
pub(super) async fn ended(cache: &ResponseCache, marked: MarkedCommits) -> Result<(), String> {
    let limit = cache.shared.patience.limit();
    timeout(limit, marked.ended()).await.map_err(|_| patience::NO_ANSWER.to_owned())
}
