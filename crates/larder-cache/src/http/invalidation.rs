//! Removes the responses of resources, or records a purge of them.
//!
//! Owns: the keys of a URI, and the order of the steps: work in progress is marked before anything is removed, so that
//! a response that is being fetched meanwhile is not stored. A response that was being stored at that moment is gone
//! when the invalidation returns.
//!
//! The caller chooses between a removal and a purge. [`remove`] removes a single entry, and [`crate::purges`] keeps the
//! list of purges.

use std::sync::Arc;

use http::Uri;
use larder_http::{
    Timestamp,
    key::{path_of, primary_key},
};
use tokio::task::spawn_blocking;

use crate::purges::{PurgeMode, PurgeResult, PurgeScope};

use super::{
    ResponseCache, patience,
    purged::{host_of_key, url_of},
    storing::{note_error, remove},
    tiered, work,
};

/// The reason why an invalidation may not last. The responses are hidden in any case, but may reappear after a crash,
/// so log the reason.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{fetcher::Fetcher, invalidation::{NotInvalid, remove_resources}};
///
/// let key = fetcher::store(&site, "/news").await;
/// match remove_resources(site.fetcher.cache(), &[key.to_vec()]).await {
///     Ok(()) | Err(NotInvalid::NoUrl) => {}
///     Err(NotInvalid::NotDurable(reason) | NotInvalid::NotShared(reason)) => eprintln!("not permanent: {reason}"),
/// }
/// assert!(fetcher::get(&site, "/news").await.expect("the origin answers").is_from_origin);
/// # });
/// ```
#[derive(Debug)]
pub enum NotInvalid {
    /// Nothing had to be hidden, because no response of this URI can be stored.
    NoUrl,
    /// The response is hidden, but the store could not make that durable. It may reappear after a crash.
    NotDurable(String),
    /// The response is hidden on this node, but other nodes of the fleet could not be notified yet.
    NotShared(String),
}

/// Removes the stored responses of the resources with these keys, and all their variants (RFC 9111 4.4). Fetches of
/// them in progress store nothing.
///
/// # Errors
/// Some of the responses may reappear after a crash. The error has the reason.
pub async fn remove_resources(cache: &Arc<ResponseCache>, keys: &[Vec<u8>]) -> Result<(), NotInvalid> {
    let mut outcome = Ok(());
    for key in keys {
        // Before the mark, so that work that begins between the two notices that the response it found is gone.
        cache.shared.hot.remove(key);
        let marked = cache.shared.works.mark(key);
        let removed = remove(cache, key).await;
        outcome = work::ended(cache, marked).await.and(removed).map_err(NotInvalid::NotDurable).and(outcome);
    }
    outcome
}

/// Removes everything from memory and from the store, to free space. Entries that cannot be removed are overwritten
/// later.
pub async fn empty(cache: &Arc<ResponseCache>) {
    cache.shared.hot.clear();
    if let Some(store) = cache.shared.store.clone() {
        let clearing = tiered::begin_clearing(cache).await;
        if let Some(Err(error)) = patience::write(cache, clearing, async move { store.clear().await }).await {
            note_error(cache, &error);
        }
    }
}

/// Makes a purge at the time `now`, and records it. Later lookups apply it to what they find, so the store is not read
/// here.
///
/// # Errors
/// The purge is in effect, but the purged responses may reappear after a crash.
pub async fn record(
    cache: &Arc<ResponseCache>,
    scopes: Vec<PurgeScope>,
    mode: PurgeMode,
    now: Timestamp,
) -> Result<PurgeResult, NotInvalid> {
    let purges = Arc::clone(&cache.shared.purges);
    let purging = spawn_blocking(move || purges.purge(scopes, mode, now.as_millis()));
    let done = patience::write(cache, (), async move { Ok(purging.await) }).await;
    let outcome = match done {
        Some(Ok(Ok(purged))) => purged,
        Some(Ok(Err(_)) | Err(_)) | None => Err("the write does not complete".to_owned()),
    };
    outcome.map_err(NotInvalid::NotDurable)
}

/// Returns the purge scope for the URL in a resource's key, with all its variants.
pub fn scope_of_key(key: &[u8]) -> PurgeScope {
    PurgeScope::Url(url_of(key).into())
}

/// Returns the purge scope for the whole site of `uri`. `None` if responses of `uri` cannot be stored.
pub fn site_scope(cache: &ResponseCache, uri: &Uri) -> Option<PurgeScope> {
    let primary = primary_of(cache, uri)?;
    Some(PurgeScope::Site(host_of_key(&primary).into()))
}

/// Returns the purge scope for `uri` and all its variants.
pub fn url_scope(cache: &ResponseCache, uri: &Uri) -> Option<PurgeScope> {
    Some(PurgeScope::Url(String::from_utf8(primary_of(cache, uri)?.split_off(1)).ok()?.into()))
}

/// Returns the purge scopes for all URLs of the origin of `uri` whose paths begin with `path`. There are two: one for
/// the path as given, and one for the path as the key rules rewrite it.
pub fn prefix_scopes(cache: &ResponseCache, uri: &Uri, path: &str) -> Option<Vec<PurgeScope>> {
    let scheme = uri.scheme_str()?;
    let authority = uri.authority()?.as_str();
    let keys = [primary_key(scheme, authority, path), cache.http.key_rules.key(scheme, authority, path)];
    let mut scopes = Vec::new();
    for key in keys {
        let scope = PurgeScope::Prefix(String::from_utf8(key.ok()?.split_off(1)).ok()?.into());
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    Some(scopes)
}

/// Returns the keys under which responses of `uri` can be stored: one for each origin that can respond for it. `None`
/// if it has no keys.
pub fn primaries_of(cache: &ResponseCache, uri: &Uri) -> Option<Vec<Vec<u8>>> {
    let primary = primary_of(cache, uri)?;
    let marks = cache.shared.key_marks.marks_of(uri.scheme_str()?, uri.authority()?.as_str(), path_of(uri));
    Some(marks.into_iter().map(|mark| mark.on(primary.clone())).collect())
}

fn primary_of(cache: &ResponseCache, uri: &Uri) -> Option<Vec<u8>> {
    let rules = &cache.http.key_rules;
    rules.key(uri.scheme_str()?, uri.authority()?.as_str(), path_of(uri)).ok()
}
