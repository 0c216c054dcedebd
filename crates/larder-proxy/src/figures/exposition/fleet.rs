//! The metrics of the fleet. A proxy without a fleet has none of them.

use std::sync::Arc;

use crate::{
    figures::metrics::family::{
        MetricFamily, MetricKind, MetricSeries, MetricValue, all_combinations, labeled, metric_table, series_of,
    },
    fleet::peers::PeerState,
    run::shared::ProxyState,
    targets::siblings::{PeerDifference, Siblings},
};

metric_table! {
    pub(super) fn log("larder_fleet_", state: ProxyState) {
        Gauge purges_unsynced = "1 while stored responses are validated before use because purges of other nodes may be unknown",
            u8::from(state.cache.purges.is_in_doubt());
        Gauge log_end = "Position of this node's last purge in its log",
            *state.cache.purges.log_end().borrow();
        Gauge log_sent =
            "Position of the last purge in this node's log that was sent to the shared log; 0 without a shared log",
            *state.cache.purges.log_sent().borrow();
        Counter log_skipped = "Entries of the shared log that were skipped: not written by a node, or appended twice",
            state.fleet.as_ref().map_or(0, |link| link.peers.skipped_count());
    }
}

metric_table! {
    pub(super) fn nodes("larder_fleet_node_", peers: Vec<PeerState>) {
        Gauge up[node] = "1 while the purges of a node of the fleet can be read",
            each(peers, |peer| Some(u64::from(peer.fault.is_none() && peer.contact.is_some())));
        Gauge lag_seconds[node] = "Time since this node last had read all purges of the other node",
            each(peers, |peer| peer.contact.map(|at| at.elapsed().as_secs()));
        Gauge log_end[node] = "Position of a node's last purge in its log, as of its last response",
            each(peers, |peer| peer.contact.map(|_| peer.end));
        Gauge position[node] = "Position in the other node's log of the last purge that this node has applied",
            each(peers, |peer| peer.contact.map(|_| peer.position));
        Gauge applied[node] = "Position of the last purge in this node's log that a node has applied",
            each(peers, |peer| peer.applied);
    }
}

metric_table! {
    pub(super) fn siblings("larder_sibling_", siblings: Arc<Siblings>) {
        Counter differences[reason] =
            "Requests between nodes that were refused: the nodes differ in their clocks, lists of nodes or key rules",
            all_combinations(
                &[&["clock", "rules"]],
                &[PeerDifference::Clock, PeerDifference::Rules].map(|reason| siblings.differences.count(reason)),
            );
    }
}

/// Returns a series for each node for which `figure` returns a value.
fn each(peers: &[PeerState], figure: impl Fn(&PeerState) -> Option<u64>) -> Vec<MetricSeries> {
    peers.iter().filter_map(|peer| Some(labeled(&[&peer.name], figure(peer)?))).collect()
}
