//! Puts responses into memory that are not in the store, or not yet.
//!
//! Owns: the moment from which requests get a response that is being stored. Invariants: no response in memory is
//! replaced by one that was requested before it, and none is put there after its resource has changed: each change is
//! made while the commits of the resource stand still ([`CommitOrder`]).

use std::sync::Arc;

use crate::works::CommitOrder;
use bytes::Bytes;
use larder_http::{BodyPlace, StoredHead};
use larder_store::Store;

use super::StorePlace;
use crate::http::{ResponseCache, hot::HotItem, tiered};

/// Puts a response with a short body into memory before it is stored, and returns whether it did.
///
/// The older response stays in the store until the write ends, which can take long, and so can a wait for the commit of
/// another response. Requests that arrive meanwhile get the new response from memory, because its own client may have
/// it already.
pub(super) fn show(
    cache: &ResponseCache,
    place: &StorePlace,
    head: &StoredHead,
    body: &[Bytes],
    order: &CommitOrder<'_>,
) -> bool {
    let is_whole = matches!(head.body(), BodyPlace::Whole { .. });
    let Some(store) = cache.shared.store.as_ref().filter(|_| is_whole) else { return false };
    let is_shown = if order.must_wait() {
        // If memory cannot keep the response, the one that is being stored must stay there.
        memory_keeps(cache, head, body) && order.is_newest(&place.key)
    } else {
        may_replace(cache, store, place)
    };
    if is_shown {
        commit_to_memory(cache, place, head, body, order);
    }
    is_shown
}

/// Returns whether an older response may be found that one at `place` replaces.
pub(super) fn may_replace(cache: &ResponseCache, store: &Store, place: &StorePlace) -> bool {
    let may_have = |key: &[u8]| store.may_contain(key) || cache.shared.hot.contains(key) || tiered::has(cache, key);
    place.written_keys().any(may_have)
}

/// Puts a response into memory, where it replaces the older one. A body that memory cannot keep only removes that one.
/// A response that was requested later stays.
pub(super) fn commit_to_memory(
    cache: &ResponseCache,
    place: &StorePlace,
    head: &StoredHead,
    body: &[Bytes],
    order: &CommitOrder<'_>,
) {
    let hot = &cache.shared.hot;
    if order.is_newest(&place.key) {
        if memory_keeps(cache, head, body) {
            let item = HotItem::packed(head, body.iter().map(|piece| &piece[..]), head.purge_count());
            hot.replace(&place.key, item);
        } else {
            hot.remove(&place.key);
        }
    }
    if let Some((marker, true)) = &place.marker
        && order.is_newest(&place.primary)
    {
        hot.replace(&place.primary, HotItem::marker(Arc::clone(marker)));
    }
}

/// Returns whether memory can keep a response with this head and this body.
fn memory_keeps(cache: &ResponseCache, head: &StoredHead, body: &[Bytes]) -> bool {
    let body_len = body.iter().map(Bytes::len).sum::<usize>() as u64;
    matches!(head.body(), BodyPlace::Whole { len } if len == body_len) && cache.shared.hot.can_keep(body_len)
}
