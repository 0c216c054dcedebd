//! The fleet under one configuration.

use std::{sync::Arc, time::Duration};

use super::{peers::FleetPeers, secret::FleetSecret, shared_log::stream::SharedLogLink, tls::FleetTls};
use crate::cache::purges::Purges;

/// The fleet under one configuration.
pub(crate) struct FleetLink {
    /// The name of this node.
    pub(crate) own_name: Arc<str>,
    pub(crate) secret: Arc<FleetSecret>,
    pub(crate) peers: Arc<FleetPeers>,
    pub(crate) timeout: Duration,
    /// TLS between the nodes, if they use it.
    pub(crate) tls: Option<Arc<FleetTls>>,
    /// The log that all nodes append to and read, in place of each other's logs.
    pub(crate) shared: Option<SharedLogLink>,
}

impl FleetLink {
    /// Waits until the shared log, if there is one, has all purges made here up to a number.
    ///
    /// # Errors
    /// It does not have them in time. They are appended later. The text gives the operator the reason.
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

/// Times after which a purge that is not in the shared log is reported: the first if the log is known to be
/// unreachable, both together otherwise.
const SENT_PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
