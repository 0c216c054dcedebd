//! Invalidates or purges the responses of a URI, or all.
//!
//! Owns: the keys of a URI, and the order of the steps: work in progress is marked before anything is removed, so that
//! a response that is being fetched meanwhile is not stored. A response that was being stored at that moment is gone
//! when the invalidation returns.
//!
//! [`remove`] removes a single entry, and [`crate::cache::purges`] keeps the list of purges.

use std::sync::Arc;

use http::Uri;
use larder_http::key::primary_key;
use tokio::task::spawn_blocking;

use crate::{
    cache::{
        Cache, patience,
        purges::{PurgeMode, PurgeResult, PurgeScope, host_of_key},
        storing::{no_answer, remove},
        tiered, work,
    },
    clock,
    origin::target::path_of,
};

/// Why an invalidation is not permanent.
#[derive(Debug)]
pub(crate) enum NotInvalid {
    /// No response of this URI can be stored.
    NoUrl,
    /// The response is hidden, but the store could not make this durable. It may reappear after a crash.
    NotDurable(String),
    /// The response is hidden on this node, but other nodes of the fleet cannot learn this yet.
    NotShared(String),
}

/// Makes every stored response of a URI invalid, including variants and fetches in progress (RFC 9111 4.4).
///
/// # Errors
/// The URI can have no stored responses, or they may reappear after a crash.
pub(crate) async fn invalidate(cache: &Arc<Cache>, uri: &Uri) -> Result<(), NotInvalid> {
    let primaries = primaries_of(cache, uri).ok_or(NotInvalid::NoUrl)?;
    let mut outcome = Ok(());
    for primary in primaries {
        outcome = invalidate_key(cache, &primary).await.map_err(NotInvalid::NotDurable).and(outcome);
    }
    outcome
}

/// Makes every stored response of the resource `primary` invalid, including variants and fetches in progress.
///
/// # Errors
/// The responses may reappear after a crash, with the reason.
pub(crate) async fn invalidate_key(cache: &Arc<Cache>, primary: &[u8]) -> Result<(), String> {
    let marked = cache.shared.works.mark(primary);
    let removed = remove(cache, primary).await;
    work::ended(cache, marked).await.and(removed)
}

/// Makes all stored responses invalid, including fetches in progress.
///
/// # Errors
/// The responses may reappear after a crash.
pub(crate) async fn invalidate_all(cache: &Arc<Cache>) -> Result<(), NotInvalid> {
    let marked = cache.shared.works.mark_all();
    cache.shared.hot.clear();
    if let Some(store) = cache.shared.store.clone() {
        let clearing = tiered::begin_clearing(cache).await;
        let cleared = patience::write(cache, clearing, async move { store.clear().await }).await;
        let outcome = cleared.map_or_else(no_answer, |cleared| cleared.map_err(|error| error.to_string()));
        cache.shared.hot.clear();
        return work::ended(cache, marked).await.and(outcome).map_err(NotInvalid::NotDurable);
    }
    work::ended(cache, marked).await.map_err(NotInvalid::NotDurable)
}

/// Purges without reading the store, and records the purge.
///
/// # Errors
/// The purge is in effect, but the purged responses may reappear after a crash.
pub(crate) async fn purge(
    cache: &Arc<Cache>,
    scopes: Vec<PurgeScope>,
    mode: PurgeMode,
) -> Result<PurgeResult, NotInvalid> {
    let purges = Arc::clone(&cache.shared.purges);
    let purging = spawn_blocking(move || purges.purge(scopes, mode, clock::now()));
    let done = patience::write(cache, (), async move { Ok(purging.await) }).await;
    let outcome = match done {
        Some(Ok(Ok(purged))) => purged,
        Some(Ok(Err(_)) | Err(_)) | None => Err("the write does not complete".to_owned()),
    };
    outcome.map_err(NotInvalid::NotDurable)
}

/// Returns the purge scope for the whole site of `uri`.
pub(crate) fn site_scope(cache: &Cache, uri: &Uri) -> Option<PurgeScope> {
    let primary = primary_of(cache, uri)?;
    Some(PurgeScope::Site(host_of_key(&primary).into()))
}

/// Returns the purge scope for `uri` and all its variants.
pub(crate) fn url_scope(cache: &Cache, uri: &Uri) -> Option<PurgeScope> {
    Some(PurgeScope::Url(String::from_utf8(primary_of(cache, uri)?.split_off(1)).ok()?.into()))
}

/// Returns the purge scopes for the URLs of the same origin as `uri` whose paths begin with `path`: unchanged, and as
/// the key rules rewrite it.
pub(crate) fn prefix_scopes(cache: &Cache, uri: &Uri, path: &str) -> Option<Vec<PurgeScope>> {
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

/// Returns the purge scopes for everything below `uri`.
pub(crate) fn scopes_below(cache: &Cache, uri: &Uri) -> Option<Vec<PurgeScope>> {
    prefix_scopes(cache, uri, &format!("{}/", uri.path().trim_end_matches('/')))
}

/// Returns the keys under which responses of `uri` can be stored. `None` if it has no keys.
pub(crate) fn primaries_of(cache: &Cache, uri: &Uri) -> Option<Vec<Vec<u8>>> {
    let primary = primary_of(cache, uri)?;
    let marks = cache.shared.key_marks.marks_of(uri.scheme_str()?, uri.authority()?.as_str(), path_of(uri));
    Some(marks.into_iter().map(|mark| mark.on(primary.clone())).collect())
}

fn primary_of(cache: &Cache, uri: &Uri) -> Option<Vec<u8>> {
    let rules = &cache.http.key_rules;
    rules.key(uri.scheme_str()?, uri.authority()?.as_str(), path_of(uri)).ok()
}
