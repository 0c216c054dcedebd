//! Makes stored responses invalid: for PURGE, for requests that change their target, and for other nodes.
//!
//! Owns: the choice between the two ways, the only ones there are. The responses of one resource are removed at once.
//! All else is a record in the log of purges ([`crate::ground::cache::purges`]), by which every lookup judges what it
//! finds. Invariant: an invalidation that succeeded survives a crash, for as many nodes as its origin demands.
use http::Uri;

use crate::{
    ground::{
        cache::{
            invalidation::{self, NotInvalid},
            purges::{PurgeMode, PurgeResult, PurgeScope},
        },
        clock,
        target::path_of,
    },
    run::worker::Worker,
};

/// A change after which some stored responses must not be used any more.
pub(crate) struct Invalidation<'a> {
    pub(crate) subject: InvalidationSubject<'a>,
    pub(crate) effect: PurgeMode,
    pub(crate) by: InvalidatedBy,
}

/// The responses to invalidate, with all their variants and the fetches of them that are in progress.
pub(crate) enum InvalidationSubject<'a> {
    /// The responses of the resource with this key.
    Resource(&'a [u8]),
    /// The responses for a URL, from every origin that serves it.
    Url(&'a Uri),
    /// The responses for all URLs that begin with this one. A `*` at its end is ignored.
    Prefix(&'a Uri),
    /// The responses for all URLs that are below one of these URLs.
    Below(Vec<&'a Uri>),
    /// The responses for all URLs with this URL's host.
    Site(&'a Uri),
    Tags(Vec<Box<str>>),
    All,
}

/// The party that invalidates responses. It decides which other nodes of the fleet learn of the invalidation, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidatedBy {
    /// An operator. All nodes of the fleet learn of the purge before it is acknowledged.
    Operator,
    /// A client's request, such as a PUT (RFC 9111 4.4). The node that owns the resource learns of it with the next
    /// request.
    Request,
    /// Another node of the fleet, which told this node of the change.
    Node,
}

/// Invalidates stored responses.
///
/// # Errors
/// The subject cannot have stored responses, or the invalidation is in effect but may be lost in a crash, see
/// [`NotInvalid`].
pub(crate) async fn invalidate(worker: &Worker, invalidation: Invalidation<'_>) -> Result<PurgeResult, NotInvalid> {
    let Invalidation { subject, effect, by } = invalidation;
    let cache = &worker.cache;
    // Other nodes read only the log of purges, so every purge must be in it. Requests to parents are limited by it too.
    let is_log_read =
        by == InvalidatedBy::Operator && (worker.shared.fleet.is_some() || worker.shared.config.has_parents());
    let is_removal = effect == PurgeMode::Hard && !is_log_read;
    let keys = match &subject {
        InvalidationSubject::Resource(key) if is_removal => Some(vec![key.to_vec()]),
        InvalidationSubject::Url(uri) if is_removal => {
            Some(invalidation::primaries_of(cache, uri).ok_or(NotInvalid::NoUrl)?)
        }
        _ => None,
    };
    if let Some(keys) = keys {
        if let Some(siblings) = worker.shared.siblings.as_ref().filter(|_| by == InvalidatedBy::Request) {
            keys.iter().for_each(|key| siblings.note_change(key));
        }
        return invalidation::remove_resources(cache, &keys).await.map(|()| PurgeResult::default());
    }
    let is_all = matches!(subject, InvalidationSubject::All);
    let scopes = scopes(worker, subject).ok_or(NotInvalid::NoUrl)?;
    let result = invalidation::record(cache, scopes, effect, clock::now()).await?;
    if is_all && effect == PurgeMode::Hard {
        // No stored response can be served again, so the space is released.
        Box::pin(invalidation::empty(cache)).await;
    }
    if let Some(link) = worker.shared.fleet.as_ref().filter(|_| by == InvalidatedBy::Operator) {
        link.await_sent(&cache.shared.purges, result.number).await.map_err(NotInvalid::NotShared)?;
    }
    Ok(result)
}

/// Returns the scopes that the log of purges records for a subject. `None` if no response of the subject can be stored.
fn scopes(worker: &Worker, subject: InvalidationSubject<'_>) -> Option<Vec<PurgeScope>> {
    let cache = &worker.cache;
    Some(match subject {
        InvalidationSubject::All => vec![PurgeScope::All],
        InvalidationSubject::Tags(tags) => tags.into_iter().map(PurgeScope::Tag).collect(),
        InvalidationSubject::Site(uri) => vec![invalidation::site_scope(cache, uri)?],
        InvalidationSubject::Url(uri) => vec![invalidation::url_scope(cache, uri)?],
        InvalidationSubject::Resource(key) => vec![invalidation::scope_of_key(key)],
        InvalidationSubject::Prefix(uri) => {
            let path = path_of(uri);
            invalidation::prefix_scopes(cache, uri, path.strip_suffix('*').unwrap_or(path))?
        }
        InvalidationSubject::Below(uris) => {
            let below = |uri: &Uri| format!("{}/", uri.path().trim_end_matches('/'));
            let scopes = uris.into_iter().filter_map(|uri| invalidation::prefix_scopes(cache, uri, &below(uri)));
            scopes.flatten().collect()
        }
    })
}
