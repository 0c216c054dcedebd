//! Looks in the second tier for entries that the store does not have, passes entries on that the store does not admit,
//! and reports changes of keys.
//!
//! Owns: when an entry that was found in the second tier goes back into the store. The tier itself is in
//! [`crate::http::tier`].

use std::sync::Arc;

use bytes::Bytes;
use larder_store::{EvictedEntry, Hints};

use super::{
    ResponseCache,
    entry::CHUNK_BYTES,
    tier::{TierChange, TierClearing, TierEntry},
};

/// Finds an entry in the second tier that the store does not have. Returns its head and its body. Also puts the entry
/// back into the store, in the background.
pub(super) async fn find(cache: &ResponseCache, key: &[u8]) -> Option<(Bytes, Bytes)> {
    let tier = cache.shared.tier.as_ref().filter(|tier| tier.has(key))?;
    // Boxed, because it takes kilobytes in every lookup otherwise.
    let entry = Box::pin(tier.find(key)).await?;
    let head = entry.head.clone();
    let body = entry.body.clone();
    put_back(cache, key, entry);
    Some((head, body))
}

/// Returns whether the second tier has an entry of this key. Needs no I/O.
pub(crate) fn has(cache: &ResponseCache, key: &[u8]) -> bool {
    cache.shared.tier.as_ref().is_some_and(|tier| tier.has(key))
}

/// Returns whether the second tier would take an evicted entry of this length even if it was not requested again.
pub(super) fn wants(cache: &ResponseCache, len_bytes: u64) -> bool {
    cache.shared.tier.as_ref().is_some_and(|tier| tier.wants(0, len_bytes))
}

/// Marks an entry of a long body, its head or short last chunk, as requested again. On eviction it then goes to the
/// second tier.
///
/// The tier takes full chunks because of their length, but short entries only if they were requested again. Without the
/// head or the last chunk, the other chunks would be useless there.
pub(super) fn note_long(cache: &ResponseCache, key: &[u8]) {
    if let Some(store) = cache.shared.store.as_ref().filter(|_| wants(cache, CHUNK_BYTES)) {
        store.touch(key);
    }
}

/// Offers an entry to the second tier that the store did not admit.
pub(super) async fn offer(cache: &ResponseCache, key: &[u8], (head, body): (Bytes, Vec<Bytes>), hints: Hints) {
    let Some((tier, store)) = cache.shared.tier.as_ref().zip(cache.shared.store.as_ref()) else { return };
    let len_bytes = head.len() + body.iter().map(Bytes::len).sum::<usize>();
    if !tier.wants(0, len_bytes as u64) {
        return;
    }
    // An older entry of the key is forgotten. The store may have a newer one by now, which must not be shadowed later.
    drop(tier.change(key).await);
    let look = tier.begin_look();
    if !store.may_contain(key) {
        let key = Bytes::copy_from_slice(key);
        let body = body.concat().into();
        look.take(&EvictedEntry { key, head, body, hints });
    }
}

/// Begins a change of a key in the store, for the second tier. Hold the result until the store's operation has ended,
/// even if that takes too long to be waited for (see [`patience::write`](super::patience::write)).
pub(super) async fn change(cache: &ResponseCache, key: &[u8]) -> Option<TierChange> {
    match &cache.shared.tier {
        Some(tier) => Some(tier.change(key).await),
        None => None,
    }
}

/// Begins to make all entries of the store invalid, for the second tier. Hold the result until the store's operation
/// has ended.
pub(super) async fn begin_clearing(cache: &ResponseCache) -> Option<TierClearing> {
    match &cache.shared.tier {
        Some(tier) => Some(tier.begin_clearing().await),
        None => None,
    }
}

fn put_back(cache: &ResponseCache, key: &[u8], entry: TierEntry) {
    let (Some(tier), Some(store)) = (&cache.shared.tier, &cache.shared.store) else { return };
    if cache.shared.patience.is_resting() || store.may_contain(key) {
        return;
    }
    let hot = Arc::clone(&cache.shared.hot);
    tier.put_back(key.to_vec(), entry, move |key| hot.remove(key));
}
