//! Work that a stop of the proxy waits for in addition to connections: responses that are still being stored after
//! their clients have received them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

/// The unfinished work of one worker.
#[derive(Default)]
pub(crate) struct UnfinishedWork {
    late_commit_count: AtomicUsize,
    /// Notified when a connection or a late commit ends.
    ended: Notify,
}

/// A commit that a stop of the proxy waits for.
pub(crate) struct LateCommit(Arc<UnfinishedWork>);

impl UnfinishedWork {
    /// Makes a stop of the proxy wait for a commit. Called if the client does not wait for it.
    pub(crate) fn begin_late_commit(self: &Arc<Self>) -> LateCommit {
        self.late_commit_count.fetch_add(1, Relaxed);
        LateCommit(Arc::clone(self))
    }

    /// Returns whether a late commit is in progress.
    pub(crate) fn has_late_commits(&self) -> bool {
        self.late_commit_count.load(Relaxed) > 0
    }

    /// Records that a connection has ended.
    pub(crate) fn note_ended(&self) {
        self.ended.notify_one();
    }

    /// Waits until a connection or a late commit ends.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

impl Drop for LateCommit {
    fn drop(&mut self) {
        self.0.late_commit_count.fetch_sub(1, Relaxed);
        self.0.note_ended();
    }
}
