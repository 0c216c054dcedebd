//! Work that a stop of the proxy waits for: connections, and responses that are still being stored after their clients
//! have received them.

use std::sync::Arc;

use crate::ground::cache::late_commits::LateCommits;
use tokio::sync::Notify;

/// The unfinished work of one worker, for which a stop waits.
#[derive(Default)]
pub(crate) struct UnfinishedWork {
    pub(crate) late_commits: Arc<LateCommits>,
    connection_ended: Notify,
}

impl UnfinishedWork {
    /// Records that a connection has ended, and wakes a stop that waits for this.
    pub(crate) fn note_ended(&self) {
        self.connection_ended.notify_one();
    }

    /// Waits until no connection is open and no response is still being stored. `has_connections` returns whether one
    /// is open.
    pub(crate) async fn all_ended(&self, has_connections: impl Fn() -> bool) {
        while has_connections() || self.late_commits.are_any() {
            self.late_commits.all_ended().await;
            if has_connections() {
                self.connection_ended.notified().await;
            }
        }
    }
}
