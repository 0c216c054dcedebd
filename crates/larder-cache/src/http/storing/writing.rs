//! Writes one entry to the store.
//!
//! Owns: the conditions of a write: the store's pause, pins, and a change of the resource meanwhile. Invariant: an
//! entry whose resource has changed since its commit began is removed as soon as its write ends, however late that is.

use std::sync::Arc;

use bytes::Bytes;
use larder_store::{Hints, Store, Writer};

use super::note_error;
use crate::{
    KeyCommit,
    chunk_format::filled,
    http::{ResponseCache, StoreEvent, patience, pins, tiered},
};

/// An entry that is about to be written to the store.
pub(super) struct UnwrittenEntry<'a> {
    pub(super) key: &'a [u8],
    /// Whether the store may skip the write because entries like this one are not worth the room.
    pub(super) is_offer: bool,
    pub(super) head: Bytes,
    pub(super) body: &'a [Bytes],
    pub(super) hints: Hints,
    /// The commit of which the write is a part, with the key. `None` for a chunk, which no lookup finds without a head.
    pub(super) commit: Option<(&'a KeyCommit, &'a Arc<[u8]>)>,
}

/// Writes an entry. Removes it again if its resource has changed meanwhile. Returns whether the entry is stored.
pub(super) async fn write(cache: &Arc<ResponseCache>, store: &Store, entry: UnwrittenEntry<'_>) -> bool {
    let UnwrittenEntry { key, mut is_offer, head, body, mut hints, commit } = entry;
    if head.len() > Writer::HEAD_MAX_BYTES {
        return false;
    }
    // A paused store is not called at all, because each call would wait for its own time limit.
    if !cache.shared.patience.admits() {
        cache.note(StoreEvent::Bypassed);
        return false;
    }
    let len_bytes = (head.len() + body.iter().map(Bytes::len).sum::<usize>()) as u64;
    let was_named = cache.shared.pins.name(key);
    if was_named && pins::spare(cache, store, key, len_bytes).await {
        // Pinned entries must survive a time without uplink, however long it lasts. So the store may not skip a pinned
        // entry, and it never expires.
        (is_offer, hints.expires_at) = (false, 0);
    }
    let written = match filled(store, key, head, body.iter().cloned(), hints) {
        Ok(writer) => {
            let change = tiered::change(cache, key).await;
            // The commit lasts as long as the write, even if nobody waits for it any more.
            let undone = commit.map(|(commit, key)| (commit.clone(), store.clone(), Arc::clone(key)));
            let writing = async move {
                let is_stored = if is_offer { writer.offer().await? } else { writer.commit().await.map(|()| true)? };
                match undone.filter(|(commit, ..)| commit.is_outdated()) {
                    Some((_commit, store, key)) => store.remove(&key).await.map(|()| false),
                    None => Ok(is_stored),
                }
            };
            patience::write(cache, change, writing).await
        }
        Err(error) => Some(Err(error)),
    };
    match written {
        Some(Ok(is_stored)) => {
            // The pattern may have been added while the entry was being written. In that case the pin is set here,
            // because no other code would set it.
            if is_stored && !was_named {
                pins::spare_stored(cache, store, key).await;
            }
            is_stored
        }
        Some(Err(error)) => {
            note_error(cache, &error);
            false
        }
        None => false,
    }
}
