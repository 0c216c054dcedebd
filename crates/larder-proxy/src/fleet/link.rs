//! This node's part of the fleet under one configuration.

use std::{sync::Arc, time::Duration};

use super::{peers::FleetPeers, secret::FleetSecret, shared_log::stream::SharedLogLink, tls::FleetTls};
use crate::ground::cache::purges::Purges;

/// This node's name, secrets and connections in the fleet, under one configuration.
pub(crate) struct FleetLink {
    /// The name of this node.
    pub(crate) own_name: Arc<str>,
    pub(crate) secret: Arc<FleetSecret>,
    pub(crate) peers: Arc<FleetPeers>,
    pub(crate) timeout: Duration,
    /// TLS between the nodes. `None` if the nodes do not use it.
    pub(crate) tls: Option<Arc<FleetTls>>,
    /// The log that all nodes append to and read. `None` if each node reads the logs of the other nodes.
    pub(crate) shared: Option<SharedLogLink>,
}

impl FleetLink {
    /// Waits until the shared log contains all purges made here up to `number`. If the fleet has no shared log, returns
    /// at once.
    ///
    /// # Errors
    /// The purges did not reach the log in time. They will be appended later. The text tells the operator why.
    pub(crate) async fn await_sent(&self, purges: &Purges, number: u64) -> Result<(), String> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let mut sent = purges.log_sent();
        for patience in SENT_PATIENCE {
            if tokio::time::timeout(patience, sent.wait_for(|sent| *sent >= number)).await.is_ok() {
                return Ok(());
            }
            if let Some(fault) = self.peers.states().into_iter().find_map(|peer| peer.fault) {
                return Err(format!("{}: {fault}", shared.log));
            }
        }
        Err(format!("{}: it does not respond in time", shared.log))
    }
}

/// Times to wait for a purge to appear in the shared log.
///
/// After the first time, the purge is reported as missing if the log is known to be unreachable. Otherwise the second
/// time follows.
const SENT_PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
