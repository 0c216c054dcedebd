//! Work that may store a response: fetches, uploads, and responses read from a file.
//!
//! Owns: the moment at which the work began, by which changes of its resource since then are recognized. Changes of one
//! resource mark its work ([`ActiveKeys`]); purges by site, prefix, tag, or of everything are compared by number
//! ([`Purges`](crate::purges::Purges)). Invariant: neither affects the work on another resource.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use crate::{ActiveKeys, KeyCommit, KeyWork, MarkedCommits, purges::PurgeVerdict, works::CommitOrder};
use larder_http::StoredHead;

use crate::http::{CacheShared, ResponseCache, patience};

/// Work that may store a response of a resource. It begins before the request is sent. If the resource changes after
/// that, the work is outdated, and its response is not stored.
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
    /// Number of purges that were recorded when the work began. The stored head keeps this number.
    pub purge_count: u64,
    /// Number of purges that had been made when the work began, also those that were not recorded yet.
    seen_count: u64,
}

impl ResourceWork {
    /// Begins work on a resource, whose key is `primary`. See the fields for the two counts.
    pub fn new(works: &Arc<ActiveKeys>, primary: &Arc<[u8]>, purge_count: u64, seen_count: u64) -> Self {
        Self { key: works.begin(primary), purge_count, seen_count }
    }

    /// Returns whether the resource has not been changed since the work began. Does not take purges into account.
    pub fn is_current(&self) -> bool {
        self.key.is_current()
    }

    /// Begins to store the response that the work brought under the key `place`. First waits until other responses of
    /// the resource are no longer being stored. `show` puts the response into memory, already before a wait, and
    /// returns whether it did (see [`KeyWork::commit_in_turn`]).
    ///
    /// Returns `None` if the resource has changed since the work began, or if a response that was requested later has
    /// been stored under this key.
    pub(super) async fn begin_commit(
        &self,
        cache: &ResponseCache,
        place: &Arc<[u8]>,
        show: impl FnMut(&CommitOrder<'_>) -> bool,
    ) -> Option<KeyCommit> {
        let mut turn = pin!(self.key.commit_in_turn(place, show));
        if let Poll::Ready(commit) = poll_fn(|context| Poll::Ready(turn.as_mut().poll(context))).await {
            return commit;
        }
        // Boxed, because few commits wait. A store that takes too long is paused, so the commit will hardly reach it
        // either.
        match Box::pin(patience::within(cache.shared.patience.limit(), turn)).await {
            Some(commit) => commit,
            None => self.key.commit_out_of_turn(place),
        }
    }

    /// Makes all other work on the resource outdated. Returns `false`, and does nothing, if this work is outdated
    /// itself.
    pub fn outdate_others(&mut self) -> bool {
        self.key.outdate_others()
    }

    /// Returns this work as current, after it has changed the resource itself. Later changes, and all purges since it
    /// began, still make it outdated.
    pub fn after_own_change(self) -> Self {
        Self { key: self.key.renewed(), ..self }
    }
}

impl CacheShared {
    /// Begins work that may store a response of a resource, whose key is `primary`.
    pub fn begin(&self, primary: &Arc<[u8]>) -> ResourceWork {
        let (purge_count, seen_count) = self.purges.counts();
        ResourceWork::new(&self.works, primary, purge_count, seen_count)
    }

    /// Returns whether the response of this work may answer a request that arrives now. `head` returns its head, if
    /// that has arrived.
    ///
    /// It may if the resource was neither invalidated nor purged since the work began. Before the head arrives, a purge
    /// of any tag counts, because the response's tags are unknown.
    pub fn is_current(&self, work: &ResourceWork, head: impl FnOnce() -> Option<StoredHead>) -> bool {
        if !work.is_current() {
            return false;
        }
        let key = work.key.key();
        let stands = |head: StoredHead| self.purges.judge_head(&head, key) == PurgeVerdict::Stands;
        !self.purges.may_concern_key(key, work.seen_count) || head().is_some_and(stands)
    }
}

/// Waits until these commits (writes of responses) have ended. A commit that takes too long removes its response later
/// by itself.
///
/// # Errors
/// The commits have not ended in time, because the store does not respond.
pub(super) async fn ended(cache: &ResponseCache, marked: MarkedCommits) -> Result<(), String> {
    let limit = cache.shared.patience.limit();
    patience::within(limit, marked.ended()).await.ok_or_else(|| patience::NO_ANSWER.to_owned())
}
