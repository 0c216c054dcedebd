//! Finds a value in memory or on disk.

use super::{Cache, MemoryValue};
use crate::{
    CacheEvent, Error, Result, Value,
    chunk_format::READ_ATTEMPTS,
    head::{Freshness, ValueHead},
    keys::value_key,
    purges::PurgeVerdict,
    value::{ChunkedValue, EntryValue, ValueBody},
};
use bytes::Bytes;
use larder_store::Reader;
use std::sync::Arc;

/// A found value, fresh or stale.
pub(super) struct FoundValue {
    pub(super) value: Value,
    pub(super) freshness: Freshness,
    pub(super) is_in_memory: bool,
}

impl Cache {
    /// Finds a value as [`Cache::find`] does. If a fetched value of `key` is still being stored, waits for that first:
    /// callers of the fetch may already have the value, so a lookup must not miss it.
    pub(super) async fn find_stored(&self, key: &[u8]) -> Result<Option<FoundValue>> {
        if let Some(stored) = self.parts.fetches.storing(key) {
            stored.storing.await;
        }
        self.find(key).await
    }

    pub(super) async fn find(&self, key: &[u8]) -> Result<Option<FoundValue>> {
        let now_ms = self.now_ms();
        if let Some(kept) = self.parts.memory.get(key)
            && let Some(freshness) = self.freshness(&kept.head, now_ms)
        {
            if kept.hits.count() {
                self.parts.store.touch(&value_key(key));
            }
            let body = ValueBody::Memory(kept.bytes.clone());
            let value = Value::new(body, kept.head.len_bytes, kept.head.lifetime, now_ms);
            return Ok(Some(FoundValue { value, freshness, is_in_memory: true }));
        }
        for _ in 0..READ_ATTEMPTS {
            let moment = self.parts.memory.moment();
            let Some((reader, head)) = self.read_entry(key).await? else { return Ok(None) };
            let Some(freshness) = self.freshness(&head, now_ms) else { return Ok(None) };
            let len_bytes = head.len_bytes;
            let lifetime = head.lifetime;
            let body = match head.chunks {
                Some(chunks) => {
                    ValueBody::Chunks(Arc::new(ChunkedValue::new(&self.parts.store, key, chunks, len_bytes)))
                }
                None if self.parts.memory.admits(key, len_bytes) => {
                    let Some(bytes) = reader.read(0..len_bytes).await? else { continue };
                    self.parts.memory.insert(key, MemoryValue::new(head, bytes.clone()), moment);
                    ValueBody::Memory(bytes)
                }
                None => ValueBody::Entry(Arc::new(EntryValue::new(&self.parts.store, key, reader))),
            };
            let value = Value::new(body, len_bytes, lifetime, now_ms);
            return Ok(Some(FoundValue { value, freshness, is_in_memory: false }));
        }
        Ok(None)
    }

    /// Returns the head of the value that is on disk for `key`. `None` if there is no value, or if it is expired or
    /// removed.
    pub(super) async fn find_head(&self, key: &[u8]) -> Result<Option<ValueHead>> {
        let found = self.read_entry(key).await?;
        Ok(found.map(|(_, head)| head).filter(|head| self.freshness(head, self.now_ms()).is_some()))
    }

    /// Reads the entry of a key from the store. Returns `None` if there is none, or if it is not valid in this version
    /// of the format.
    pub(super) async fn read_entry(&self, key: &[u8]) -> Result<Option<(Reader, ValueHead)>> {
        let Some(reader) = self.parts.store.get(&value_key(key)).await? else { return Ok(None) };
        let head = ValueHead::decode(&reader.head());
        let matches = |head: &ValueHead| match head.chunks {
            Some(_) => reader.is_empty() && head.len_bytes > 0,
            None => reader.len() == head.len_bytes,
        };
        Ok(head.filter(matches).map(|head| (reader, head)))
    }

    /// Returns whether a value is fresh or stale. `None` if it is expired or was removed by a tag.
    pub(super) fn freshness(&self, head: &ValueHead, now_ms: u64) -> Option<Freshness> {
        let freshness = head.lifetime.at(now_ms);
        let is_usable = freshness != Freshness::Expired && !self.is_removed(head);
        is_usable.then_some(freshness)
    }

    /// Returns whether a value was removed by the removal of one of its tags, or of everything.
    pub(super) fn is_removed(&self, head: &ValueHead) -> bool {
        let purges = &self.parts.purges;
        let tags = || Box::new(head.tags.iter().map(|tag| tag.name().into())) as Box<dyn Iterator<Item = _>>;
        purges.latest() != head.purge_count && purges.judge_entry(head.purge_count, || "", tags) != PurgeVerdict::Stands
    }

    pub(super) fn note_hit(&self, key: &[u8], found: &FoundValue) {
        self.note(match found.freshness {
            Freshness::Stale => CacheEvent::StaleHit { key },
            _ if found.is_in_memory => CacheEvent::MemoryHit { key },
            _ => CacheEvent::DiskHit { key },
        });
    }
}

impl FoundValue {
    /// Returns all bytes of the value. `None` if a part of them was evicted.
    pub(super) async fn bytes(&self) -> Result<Option<Bytes>> {
        match self.value.bytes().await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::Gone) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
