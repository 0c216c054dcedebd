//! Stores the new head of a response that its origin has confirmed.
//!
//! Owns: the choice between a new head at the same place, a move to another key, and a removal. `storing` writes.
//! Invariants: a response that was invalidated while it was being confirmed does not return, neither to memory nor to
//! the store. A new head never gets to the body of another response, which was stored meanwhile.

use std::sync::Arc;

use crate::{KeyCommit, works::CommitOrder};
use http::HeaderMap;
use larder_http::{Reason, Storability, StoredHead, storable};

use crate::http::{
    ResponseCache,
    committed_body::CommittedBody,
    entry::{CachedEntry, EntryBody},
    hot::HotItem,
    lookup::{self, FoundResponse},
    patience,
    storing::{StorePlace, commit, hints, is_purged, note_error, remove},
    tiered,
    work::ResourceWork,
};

/// The outcome of a validation: the origin has just confirmed a stored response with a 304. [`confirm`] stores the
/// response's new head.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use larder_http::{Settings, Timestamp, storable::Exchange};
/// use http::{HeaderMap, Method, StatusCode};
/// use larder_cache::http::{confirmation::*, fetcher::Fetcher, lookup::{LookupResult, find}, storing::StorePlace};
/// use larder_http::validate::freshen;
///
/// let (responses, fields) = (site.fetcher.cache(), HeaderMap::new());
/// let key = fetcher::store(&site, "/news").await;
/// let LookupResult::Found(found) = find(responses, &key, &fields).await else { panic!("it is stored") };
/// let work = responses.shared.begin(&key);
/// # let now = Timestamp::from_secs(1_800_000_060);
/// # let (method, request_fields, status) = (&Method::GET, &fields, StatusCode::NOT_MODIFIED);
/// # let (response_fields, request_time, response_time) = (&fields, now, now);
/// # let answer = Exchange { method, request_fields, status, response_fields, request_time, response_time };
/// // `answer` is a 304, a minute later.
/// let head = freshen(&found.entry.head, &answer, &Settings::default());
/// let place = StorePlace::renewed(&key, &found, &head, &fields, &responses.http);
/// confirm(responses, &fields, &found, Confirmation { place, head, work }).await;
/// let LookupResult::Found(found) = find(responses, &key, &fields).await else { panic!("it stays stored") };
/// assert_eq!(found.entry.head.response_time(), answer.response_time);
/// # });
/// ```
pub struct Confirmation {
    /// The keys under which the new head is stored. `None` if the response can no longer be stored.
    pub place: Option<StorePlace>,
    /// The new head: the stored one with the fields of the 304.
    pub head: StoredHead,
    /// Shows whether the resource has changed since the validation began.
    pub work: ResourceWork,
}

/// Stores the new head of a response that the origin confirmed, at the place that the head calls for (see
/// [`StorePlace::renewed`]).
///
/// Removes the response if its new fields forbid storing it (RFC 9111 3.2), or if `place` is `None`.
///
/// Does nothing if another response was stored under its key since it was found.
///
/// The response stays unchanged if the confirmed request had credentials (RFC 9111 3.5), or had fields of
/// [`larder_http::telling`] that are not selecting fields. If the response varies on more fields than before, it is not
/// kept under the old rule (RFC 9111 4.1).
pub async fn confirm(
    cache: &Arc<ResponseCache>,
    request_fields: &HeaderMap,
    before: &FoundResponse,
    now: Confirmation,
) {
    let Confirmation { place, head, work } = now;
    let selecting = before.entry.head.selecting();
    if !selecting.cover_what_is_told(request_fields) || is_purged(cache, &before.key, &head) {
        return;
    }
    match (storable::decide_updated(request_fields, &head, &cache.http), place) {
        (Storability::Store { .. }, Some(place)) if place.key == before.key => {
            let entry = before.entry.with_head(head);
            if let Some(commit) = begin_renewal(cache, &place, before, &entry, &work).await {
                freshen(cache, &place, &entry, commit).await;
            }
        }
        (Storability::Store { .. }, Some(place)) => {
            // The old entry is removed first, because requests that the response no longer matches would find it there.
            drop(remove(cache, &before.key).await);
            if let EntryBody::Whole(body) = &before.entry.body {
                let body = CommittedBody::of_stored(&head, body.clone());
                commit(cache, &place, &head, body, &work).await;
            }
        }
        (Storability::Refuse { reason: Reason::Authorization | Reason::RequestNoStore }, Some(place))
            if place.key == before.key => {}
        (Storability::Refuse { .. } | Storability::Store { .. }, _) => drop(remove(cache, &before.key).await),
    }
}

/// Begins a commit that gives a confirmed response its new head, and replaces the head in memory.
///
/// Returns `None` if the response was removed since it was found, because its body must not return, or if another was
/// stored under its key: the new head does not belong to that one's body.
async fn begin_renewal(
    cache: &Arc<ResponseCache>,
    place: &StorePlace,
    before: &FoundResponse,
    entry: &CachedEntry,
    work: &ResourceWork,
) -> Option<KeyCommit> {
    let mut is_shown = false;
    let show = |order: &CommitOrder<'_>| {
        // Each of the two may miss that the response is unchanged, but neither says so wrongly.
        let is_unchanged = || order.is_first() || lookup::is_unchanged(cache, &place.primary, before);
        is_shown = !order.must_wait() && order.is_newest(&place.key) && is_unchanged();
        if is_shown {
            // A buffer that the body was read into from the store is longer than it.
            let item = if before.from_memory { HotItem::renewed(entry) } else { HotItem::response(entry) };
            cache.shared.hot.replace(&place.key, item);
        }
        is_shown
    };
    work.begin_commit(cache, &place.key, show).await.filter(|_| is_shown)
}

/// Replaces the head of a confirmed response in the store.
async fn freshen(cache: &Arc<ResponseCache>, place: &StorePlace, entry: &CachedEntry, commit: KeyCommit) {
    if let Some(store) = &cache.shared.store {
        let mut hints = hints(cache, place, &entry.head);
        let head = entry.head.encode().into();
        if store.is_pinned(&place.key) {
            hints.expires_at = 0;
        }
        let store = store.clone();
        let key = Arc::clone(&place.key);
        if cache.shared.patience.admits() {
            let change = tiered::change(cache, &key).await;
            let commit = commit.clone();
            let updating = async move {
                let updated = store.update_head(&key, head, hints).await;
                if commit.is_outdated() { store.remove(&key).await.map(|()| false) } else { updated }
            };
            if let Some(Err(error)) = patience::write(cache, change, updating).await {
                note_error(cache, &error);
            }
        }
    }
    if commit.is_outdated() || is_purged(cache, &place.key, &entry.head) {
        drop(remove(cache, &place.key).await);
    }
}
