//! The other nodes of this node's fleet: the state of each, and whether purges made on them may be unknown here.
//!
//! Owns: the decision whether stored responses can be trusted. `peers` has the state of the nodes, `reading` reads logs
//! of purges, `serving` sends this node's log, `message` has the formats, and `ground::cache::purges` applies and keeps
//! the purges.
//!
//! Invariant: a response that was purged on another node more than [`crate::Fleet::node_timeout`] ago is served only
//! after validation. While a node is silent for longer than that, every response must be validated if it was stored
//! before the last check, which is repeated at that interval. After a start, everything stored before must be validated
//! until all nodes that respond have been read.
//!
//! There is neither consensus nor gossip. Each purge is in the log of one node, and each node reads the logs of all
//! others (`node_log`). Or each node appends its purges to a stream of Redis or NATS, and all read that (`shared_log`).

mod connecting;
pub(crate) mod keys;
pub(crate) mod link;
pub(crate) mod message;
mod node_log;
pub(crate) mod peers;
mod reading;
pub(crate) mod secret;
pub(crate) mod serving;
#[cfg_attr(
    not(any(feature = "log-redis", feature = "log-nats")),
    expect(dead_code, reason = "only the clients use some parts")
)]
pub(crate) mod shared_log;
pub(crate) mod tls;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use self::{
    link::FleetLink,
    node_log::NodeLog,
    reading::LogSource,
    shared_log::{SharedLogClient, sending},
};
use crate::ground::{cache::purges::Purges, config::Fleet};

/// Starts the tasks that read the purges of all other nodes, directly or from the shared log.
pub(crate) fn follow_all(link: &Arc<FleetLink>, fleet: &Fleet, purges: &Arc<Purges>, tasks: &mut JoinSet<()>) {
    tasks.spawn(keep_doubt(Arc::clone(link), Arc::clone(purges)));
    let mut follow = |source, name: &str| {
        tasks.spawn(reading::follow(source, name.into(), Arc::clone(link), Arc::clone(purges)));
    };
    let Some(shared) = &link.shared else {
        return fleet.peers().for_each(|node| follow(LogSource::Node(NodeLog::new(node.clone())), &node.name));
    };
    let name = shared.log.to_string();
    follow(LogSource::Shared(SharedLogClient::default()), &name);
    tasks.spawn(sending::send_all(Arc::clone(link), Arc::clone(purges), name.into()));
}

/// Requires validation of stored responses while other nodes may have made purges that this node does not know.
///
/// Runs until the worker stops.
async fn keep_doubt(link: Arc<FleetLink>, purges: Arc<Purges>) {
    let mut renewed = Instant::now();
    loop {
        let now = Instant::now();
        let is_due = match (link.peers.is_unsure(link.timeout, now), purges.is_in_doubt()) {
            (false, true) => {
                purges.trust();
                tracing::info!("the purges of all nodes of the fleet are known again");
                false
            }
            (true, false) => {
                tracing::warn!("purges of other nodes may be missing: stored responses are validated before use");
                true
            }
            (true, true) => now.saturating_duration_since(renewed) >= link.timeout,
            (false, false) => false,
        };
        if is_due {
            renewed = now;
            let purges = Arc::clone(&purges);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || purges.doubt()).await {
                tracing::warn!(%error, "cannot record since when purges may be missing: more is validated than necessary");
            }
        }
        // A node can fall silent without an event, so the state is also checked at intervals.
        let _ = tokio::time::timeout(DOUBT_INTERVAL, link.peers.changed()).await;
    }
}

/// Interval between two checks for silent nodes.
const DOUBT_INTERVAL: Duration = Duration::from_millis(200);
