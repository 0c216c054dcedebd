//! Removes the values of removed tags one by one, so that the tags can be forgotten.
//!
//! Owns: the scan of the store on a thread of its own, and the decision that it was complete. Invariant: a tag is
//! forgotten only if no value is left that its removal covers. Cost: a read of the whole store, once for many thousand
//! removed tags, and a removal for each value.

use super::{Cache, ChangeGuard};
use crate::{
    Result,
    keys::{key_of_value, value_key},
};
use larder_device::block_on;
use larder_store::ScanSummary;
use std::{sync::Arc, thread};

impl Cache {
    /// Starts a thread that removes the values of removed tags, so that the tags can be forgotten. Does nothing while
    /// few tags are removed. If no thread can be started, or the store cannot list its keys, the tags stay recorded.
    pub(super) fn forget_old_tags(&self) {
        let Some(up_to) = self.parts.begun.begin_forgetting(&self.parts.purges) else { return };
        let cache = self.clone();
        let forget = move || {
            let is_complete = cache.remove_covered_values().unwrap_or_else(|error| {
                tracing::debug!(%error, "removed tags cannot be forgotten");
                false
            });
            cache.parts.begun.end_forgetting(&cache.parts.purges, is_complete.then_some(up_to));
        };
        if let Err(error) = thread::Builder::new().name("larder-forget".to_owned()).spawn(forget) {
            tracing::debug!(%error, "removed tags cannot be forgotten");
            self.parts.begun.end_forgetting(&self.parts.purges, None);
        }
    }

    /// Removes every value, on disk and in memory, that the removal of a tag or of everything covers. Returns `false`
    /// if some values may be left: the store cannot list its keys, or nobody uses the cache any more.
    fn remove_covered_values(&self) -> Result<bool> {
        if !self.parts.store.can_scan() {
            return Ok(false);
        }
        let mut outcome = Ok(true);
        self.parts.store.scan(&mut |met| {
            outcome = match met {
                // This thread must not keep a cache open that everybody else has dropped.
                _ if Arc::strong_count(&self.parts) == 1 => Ok(false),
                ScanSummary::Key(key) => {
                    key_of_value(key).map_or(Ok(true), |key| block_on(self.remove_if_covered(key)))
                }
                _ => Ok(true),
            };
            matches!(outcome, Ok(true))
        })?;
        // Memory may have values that the store has evicted.
        self.parts.memory.retain(|value| !self.is_removed(&value.head));
        outcome
    }

    /// Removes the value of `key` if the removal of a tag or of everything covers it. Always returns `true`, so that
    /// the scan goes on.
    async fn remove_if_covered(&self, key: &[u8]) -> Result<bool> {
        if self.is_covered(key).await? {
            let _alone = self.parts.writes.group(key).lock().await;
            // It may have been replaced meanwhile.
            if self.is_covered(key).await? {
                let _change = ChangeGuard::new(self, key);
                self.parts.store.remove(&value_key(key)).await?;
            }
        }
        Ok(true)
    }

    async fn is_covered(&self, key: &[u8]) -> Result<bool> {
        let found = self.read_entry(key).await?;
        Ok(found.is_some_and(|(_, head)| self.is_removed(&head)))
    }
}
