//! Decides whether a response of another node of the fleet is stored here too.
//!
//! Owns: the order of the decisions. `larder_cache::http::copies` knows which resources are popular and how much
//! room there is. Invariant: room is taken before anything is stored. A copy that fails later does not give its room
//! back, so copies never take more than their share.

use larder_http::StoredHead;

use crate::{
    ground::{
        cache::storing::{self, StoreAdmission, StorePlace},
        clock,
    },
    origins::fetcher::OriginFetcher,
};

/// Decides whether another node's response is stored here.
///
/// It is stored if this node fetched the same resource from its owner within the last hour, and if there is room for
/// copies.
pub(super) fn admission(
    fetcher: &OriginFetcher,
    place: &StorePlace,
    head: &StoredHead,
    body_len: Option<u64>,
) -> StoreAdmission {
    let cache = &fetcher.cache;
    let is_popular = cache.shared.copies.note_fetch(&place.primary, clock::now());
    // Room cannot be reserved for a body of unknown length.
    let Some(len) = body_len.filter(|_| is_popular) else { return StoreAdmission::Refused };
    let is_granted =
        storing::admission(cache, place, head, body_len) == StoreAdmission::Granted && reserve(fetcher, len);
    if is_granted { StoreAdmission::Granted } else { StoreAdmission::Refused }
}

/// Decides whether a piece of a body from another node is stored here.
pub(super) fn admits_part(fetcher: &OriginFetcher, primary: &[u8], len: u64) -> bool {
    fetcher.cache.shared.copies.is_popular(primary, clock::now()) && reserve(fetcher, len)
}

/// Reserves room for a copy of `len` bytes. Returns false if there is not enough.
fn reserve(fetcher: &OriginFetcher, len: u64) -> bool {
    let shared = &fetcher.cache.shared;
    let Some(store) = &shared.store else { return false };
    let is_granted = shared.copies.take(store, len);
    if is_granted {
        fetcher.metrics.sibling_copy_bytes.add(len);
    }
    is_granted
}
