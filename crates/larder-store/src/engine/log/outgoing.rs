//! Passes entries that reclaim drops to the receiver of evictions, if the store has one.
//!
//! Invariant: what is passed on was its key's entry when it was read, and its checksums were right. Cost: one read for
//! each entry that the receiver wants, before the segment is released.

use super::{LogEngine, reclaim::NeededRecord};
use crate::{
    Hints, Reader,
    clock::has_expired,
    format::record::DecodedRecord,
    volume::evictions::{EvictedEntry, EvictionReceiver},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;

/// Number of entries that are read at the same time.
const READ_BATCH: usize = 16;

impl LogEngine {
    /// Passes entries of `lost` to the receiver of evictions, if the receiver wants them.
    pub(super) async fn pass_on(self: &Arc<Self>, lost: impl Iterator<Item = NeededRecord>) {
        let Some(receiver) = self.volume.evictions.get() else { return };
        let is_wanted = |lost: &NeededRecord| (receiver.wants)(lost.slot.hits, u64::from(lost.listing.len_bytes));
        let wanted: Vec<NeededRecord> = lost.filter(is_wanted).collect();
        for batch in wanted.chunks(READ_BATCH) {
            self.pass_batch_on(receiver, batch).await;
        }
    }

    async fn pass_batch_on(self: &Arc<Self>, receiver: &EvictionReceiver, batch: &[NeededRecord]) {
        let mut sink = (receiver.begin)();
        let reads = batch.iter().map(async |lost| {
            let outcome = self.read_front(lost.listing.key_hash, lost.slot, lost.listing.sectors() + 1).await;
            (lost, outcome)
        });
        for (lost, outcome) in join_all(reads).await {
            let Ok(Some((record, decoded))) = outcome else { continue };
            if let Some(entry) = self.verified(lost, record, decoded).await {
                sink(entry);
            }
        }
        drop(sink);
        (receiver.finish)().await;
    }

    /// Returns the entry of a record with its verified body; `None` if the record is no longer that of the key's
    /// current entry.
    async fn verified(
        self: &Arc<Self>,
        lost: &NeededRecord,
        record: Bytes,
        decoded: DecodedRecord,
    ) -> Option<EvictedEntry> {
        let position = lost.slot.position;
        let meta = decoded.meta.clone();
        let key = record.slice(decoded.key.clone());
        let head = record.slice(decoded.head.clone());
        let is_useless = has_expired(meta.expires_at, self.volume.clock.now_s())
            || !self.volume.admits(meta.epoch)
            || self.volume.pending_removals.hides(&key);
        if is_useless || !self.is_newest(meta.hash, position).await {
            return None;
        }
        let hints = Hints { site: meta.site.0, group: meta.group.into(), expires_at: meta.expires_at };
        let reader = Reader::of_front(Arc::clone(self), position, record, decoded);
        let body = reader.read(0..reader.len()).await.ok().flatten()?;
        Some(EvictedEntry { key, head, body, hints })
    }
}
