//! Decides whether a response of another node of the fleet is stored here too.
//!
//! Owns: the order of the decisions. `cache::copies` knows which resources are popular and how much room there is.
//! Invariant: room is taken before anything is stored. A copy that fails later does not give its room back, so copies
//! never take more than their share.

use larder_http::StoredHead;

use crate::{
    cache::storing::{self, StoreAdmission, StorePlace},
    clock,
    flight::source::FetchContext,
};

/// Decides about a response: it is stored if its resource was fetched from its owner before, within an hour, and if
/// there is room for copies.
pub(super) fn admission(
    means: &FetchContext,
    place: &StorePlace,
    head: &StoredHead,
    body_len: Option<u64>,
) -> StoreAdmission {
    let cache = &means.cache;
    let is_popular = cache.shared.copies.note_fetch(&place.primary, clock::now());
    // A body of unknown length could take any room.
    let Some(len) = body_len.filter(|_| is_popular) else { return StoreAdmission::Refused };
    let is_granted = storing::admission(cache, place, head, body_len) == StoreAdmission::Granted && reserve(means, len);
    if is_granted { StoreAdmission::Granted } else { StoreAdmission::Refused }
}

/// Returns whether a part of a body that another node sends is stored here.
pub(crate) fn admits_part(means: &FetchContext, primary: &[u8], len: u64) -> bool {
    means.cache.shared.copies.is_popular(primary, clock::now()) && reserve(means, len)
}

/// Takes room for a copy of `len` bytes. Returns `false` if there is too little.
fn reserve(means: &FetchContext, len: u64) -> bool {
    let shared = &means.cache.shared;
    let Some(store) = &shared.store else { return false };
    let is_granted = shared.copies.take(store, len);
    if is_granted {
        means.metrics.sibling_copy_bytes.add(len);
    }
    is_granted
}
