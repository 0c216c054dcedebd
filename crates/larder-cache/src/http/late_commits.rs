//! Commits for which no client waits: responses that are still being stored although their clients have them.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire},
    },
};

use tokio::sync::Notify;

/// The late commits: responses that are still being stored although their clients already have them.
///
/// ```
/// use larder_cache::http::late_commits::LateCommits;
/// use std::sync::Arc;
///
/// let commits = Arc::new(LateCommits::default());
/// let commit = commits.begin();
/// assert!(commits.are_any());
/// drop(commit);
/// assert!(!commits.are_any());
/// ```
#[derive(Default)]
pub struct LateCommits {
    count: AtomicUsize,
    ended: Notify,
}

/// A guard for a response that is still being stored although its client already has it. Before it ends, the program
/// waits until the guard is dropped.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # let directory = tempfile::tempdir().unwrap();
/// # runtime.block_on(async {
/// use larder_cache::Cache;
/// use larder_http::Settings;
///
/// let cache = Cache::builder(directory.path()).disk("32MB").open()?;
/// assert!(cache.begin_late_commit().is_none(), "the cache has no responses");
/// let responses = cache.responses(Settings::default());
/// let commit = cache.begin_late_commit().expect("it has responses");
/// drop(commit);
/// cache.sync().await?; // waits until the commit is dropped
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct LateCommit(Arc<LateCommits>);

impl LateCommits {
    /// Records that a response is being stored for which no client waits, until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> LateCommit {
        self.count.fetch_add(1, AcqRel);
        LateCommit(Arc::clone(self))
    }

    /// Returns whether any response is being stored for which no client waits.
    pub fn are_any(&self) -> bool {
        self.count.load(Acquire) > 0
    }

    /// Waits until no response is being stored for which no client waits.
    pub async fn all_ended(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Registered first, so that no end is missed meanwhile.
            ended.as_mut().enable();
            if !self.are_any() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for LateCommit {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, AcqRel);
        self.0.ended.notify_waiters();
    }
}
