//! Appends the purges made on this node to the shared log.
//!
//! Owns: the order of entries, and retries. Invariants: every purge in this node's own log is appended, in order, also
//! after a crash or an outage. A purge counts as sent only once this node has read it back from the shared log, so an
//! entry that got lost is noticed like that of any other node. An entry may be appended twice, which costs hits only.

use std::{sync::Arc, time::Duration};

use super::{SharedLogClient, entry::EntryContent};
use crate::{
    fleet::link::FleetLink,
    ground::cache::purges::{LogSlice, Purge, Purges},
};

/// Appends this node's purges to the shared log, as long as the worker runs.
pub(crate) async fn send_all(link: Arc<FleetLink>, purges: Arc<Purges>, name: Box<str>) {
    let mut sender = LogSender { link, purges, name, client: SharedLogClient::default(), appended: 0 };
    loop {
        if let Err(fault) = sender.step().await {
            // The reader of the same log reports its faults to the operator.
            tracing::debug!(%fault, "purges cannot be appended to the log of the fleet");
            sender.client.disconnect();
            sender.appended = 0;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

struct LogSender {
    link: Arc<FleetLink>,
    purges: Arc<Purges>,
    name: Box<str>,
    client: SharedLogClient,
    /// The number of the last purge that was appended over the current connection.
    appended: u64,
}

impl LogSender {
    /// Waits for new purges, and appends them.
    async fn step(&mut self) -> Result<(), String> {
        let mut end = self.purges.log_end();
        let Some(position) = self.purges.position(&self.name) else {
            // The reader has not found its position yet.
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        };
        self.appended = self.appended.max(position.sent);
        let appended = self.appended;
        let waited = tokio::time::timeout(IDLE_INTERVAL, end.wait_for(|end| *end > appended)).await;
        match waited.map(|seen| seen.map(drop)) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err("this proxy stops".to_owned()),
            Err(_) => return self.client.keep_open().await,
        }
        let LogSlice { is_reset, purges, position, .. } = self.purges.slice(self.purges.log_id(), appended);
        if is_reset {
            tracing::warn!("more purges are unsent than this node keeps: all nodes validate what they stored");
            self.client.append(&self.link, &self.purges, position, EntryContent::Unknown).await?;
        }
        for made in purges.chunk_by(|one, next| one.number == next.number) {
            self.append(made).await?;
        }
        self.appended = position;
        Ok(())
    }

    async fn append(&mut self, made: &[Purge]) -> Result<(), String> {
        let Some(Purge { number, .. }) = made.first() else { return Ok(()) };
        let content = EntryContent::Purges(made.to_vec());
        self.client.append(&self.link, &self.purges, *number, content).await
    }
}

/// Interval at which an idle connection is used, so that the server keeps it open for the next purge.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// Pause after a failure, and between checks whether the reader of the same log has found its position.
const PAUSE: Duration = Duration::from_millis(200);
