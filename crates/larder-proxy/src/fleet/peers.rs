//! The state of the other nodes of the fleet, or of its shared log.
//!
//! Owns: whether purges made elsewhere may be unknown here, and whether they are still being read.

use larder_device::IgnorePoison;
use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// The state of the other nodes, as far as this node knows it. Survives a reload.
#[derive(Default)]
pub(crate) struct FleetPeers {
    known: Mutex<Vec<PeerState>>,
    changed: Notify,
    /// Number of entries of the shared log that were skipped since the start.
    skipped_count: AtomicU64,
}

/// The state of another node or of the shared log, as far as this node knows it.
#[derive(Clone, Debug)]
pub(crate) struct PeerState {
    pub(crate) name: Box<str>,
    /// The last time at which this node knew all purges in the peer's log. `None` if it never did.
    pub(crate) contact: Option<Instant>,
    /// Whether the node has responded, or failed to respond, since this node started.
    is_tried: bool,
    /// Whether the node's log contains purges that are not applied here yet.
    is_behind: bool,
    /// Why the node's log cannot be read. `None` if there is no error.
    pub(crate) fault: Option<String>,
    /// The position in the node's log up to which purges are applied here.
    pub(crate) position: u64,
    /// The end of the node's log when it last responded.
    pub(crate) end: u64,
    /// The position in this node's log up to which the other node has applied all purges. `None` until that node
    /// requests some.
    pub(crate) applied: Option<u64>,
}

impl FleetPeers {
    /// Sets the names of the logs to read, after a reload. Logs that remain keep their state.
    pub(crate) fn set(&self, names: &[Box<str>]) {
        let mut known = self.lock();
        let before = std::mem::take(&mut *known);
        let state = |name: &str| {
            before.iter().find(|peer| &*peer.name == name).cloned().unwrap_or_else(|| PeerState::new(name.into()))
        };
        *known = names.iter().map(|name| state(name)).collect();
        drop(known);
        self.changed.notify_one();
    }

    /// Records that a log was read, how far its purges are applied here, and where it ends.
    pub(crate) fn note_read(&self, name: &str, position: u64, end: u64) {
        self.change(name, |peer| {
            if let Some(fault) = peer.fault.take() {
                tracing::info!(log = name, %fault, "purges of the fleet can be read again");
            }
            (peer.position, peer.end, peer.is_tried, peer.is_behind) = (position, end, true, position < end);
            peer.contact = (position >= end).then(Instant::now);
        });
    }

    /// Records that a log cannot be read, and logs the reason if it is new.
    pub(crate) fn note_failed(&self, name: &str, fault: &str) {
        self.change(name, |peer| {
            if peer.fault.as_deref() != Some(fault) {
                tracing::warn!(log = name, %fault, "purges of the fleet cannot be read: some may be missing here");
            }
            (peer.is_tried, peer.is_behind, peer.fault) = (true, false, Some(fault.to_owned()));
        });
    }

    /// Records how far a node has applied the purges made here.
    pub(crate) fn note_applied(&self, name: &str, position: u64) {
        self.change(name, |peer| peer.applied = Some(position));
    }

    /// Counts an entry of the shared log that was skipped.
    pub(super) fn note_skipped(&self) {
        self.skipped_count.fetch_add(1, Relaxed);
    }

    /// Returns the number of entries of the shared log that were skipped since the start.
    pub(crate) fn skipped_count(&self) -> u64 {
        self.skipped_count.load(Relaxed)
    }

    /// Returns the state of all nodes, or of the shared log.
    pub(crate) fn states(&self) -> Vec<PeerState> {
        self.lock().clone()
    }

    /// Returns whether purges of at least one node are still to be read. Nodes that failed to respond do not count.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.lock().iter().any(|peer| peer.is_behind || !peer.is_tried)
    }

    /// Returns whether other nodes may have made purges that this node does not know, because no contact was possible
    /// for `timeout`.
    pub(super) fn is_unsure(&self, timeout: Duration, now: Instant) -> bool {
        let is_known = |peer: &PeerState| peer.contact.is_some_and(|at| now.saturating_duration_since(at) <= timeout);
        !self.lock().iter().all(is_known)
    }

    /// Waits until the state of any node changes.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut PeerState)) {
        if let Some(peer) = self.lock().iter_mut().find(|peer| &*peer.name == name) {
            change(peer);
        }
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PeerState>> {
        self.known.lock().ignore_poison()
    }
}

impl PeerState {
    fn new(name: Box<str>) -> Self {
        Self { name, contact: None, is_tried: false, is_behind: false, fault: None, position: 0, end: 0, applied: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn is_unsure(peers: &FleetPeers, after: Duration) -> bool {
        peers.is_unsure(TIMEOUT, Instant::now() + after)
    }

    /// Checks that a node that starts first learns what was purged while it was down, but does not wait for dead nodes.
    #[test]
    fn node_is_ready_once_all_that_respond_are_read_and_sure_once_all_are() {
        let peers = FleetPeers::default();
        assert!(!peers.is_catching_up() && !is_unsure(&peers, TIMEOUT * 9), "there are no others");
        peers.set(&["b".into(), "c".into()]);
        assert!(peers.is_catching_up() && is_unsure(&peers, Duration::ZERO));
        peers.note_read("b", 5, 9);
        peers.note_failed("c", "no route");
        assert!(peers.is_catching_up(), "more is to be read from b");
        peers.note_read("b", 9, 9);
        assert!(!peers.is_catching_up() && is_unsure(&peers, Duration::ZERO), "c may have purged anything");
        peers.note_read("c", 0, 0);
        assert!(!is_unsure(&peers, TIMEOUT / 2) && is_unsure(&peers, TIMEOUT * 2));
        // A node is silent from its last response on, not from the first failure.
        peers.note_failed("c", "no route");
        assert!(!peers.is_catching_up() && !is_unsure(&peers, TIMEOUT / 2) && is_unsure(&peers, TIMEOUT * 2));
    }

    #[test]
    fn node_that_dies_before_it_was_read_to_its_end_leaves_doubt() {
        let peers = FleetPeers::default();
        peers.set(&["b".into()]);
        peers.note_read("b", 3, 3);
        peers.note_read("b", 4, 7);
        assert!(peers.is_catching_up() && is_unsure(&peers, Duration::ZERO));
        peers.note_failed("b", "gone");
        assert!(!peers.is_catching_up() && is_unsure(&peers, Duration::ZERO));
    }

    #[test]
    fn nodes_that_stay_in_the_configuration_keep_their_state() {
        let peers = FleetPeers::default();
        peers.set(&["b".into(), "c".into()]);
        peers.note_read("b", 3, 3);
        peers.set(&["b".into()]);
        assert!(!peers.is_catching_up() && !is_unsure(&peers, Duration::ZERO));
        peers.set(&["b".into(), "c".into()]);
        assert!(peers.is_catching_up());
    }
}
