//! Removes stored responses, or marks them stale: the command PURGE. It concerns a URL, a prefix, a host, a tag, or
//! everything.
//!
//! Owns: the command's syntax and the response. Purging is in `cache::invalidation` and `cache::purges`. Invariant:
//! `200` is sent only for a purge that survives a crash.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Uri, request};
use larder_http::tags::{TAG_FIELDS, TAG_SIZE_MAX, split_tags};

use super::page;
use crate::{
    cache::{
        Cache,
        invalidation::{self, NotInvalid},
        purges::{COUNT_MAX, PurgeMode, PurgeResult, PurgeScope},
    },
    client::response_body::ResponseBody,
    origin::target::path_of,
    request::explain,
    worker::Worker,
};

/// The responses that a PURGE names.
enum PurgeSubject {
    Url,
    Prefix,
    Site,
    All,
    Tags(Vec<Box<str>>),
}

/// Executes a PURGE.
pub(super) async fn purge(worker: &Arc<Worker>, request: &request::Parts) -> Response<ResponseBody> {
    let (subject, mode) = match subject(request).and_then(|subject| Ok((subject, mode(&request.headers)?))) {
        Ok(asked) => asked,
        Err(text) => return page(StatusCode::BAD_REQUEST, Bytes::from(text)),
    };
    let cache = &worker.cache;
    let uri = &request.uri;
    // Other nodes read the log of purges only, so every purge must be in it. Requests to parents are limited by the
    // purges in it, too.
    let is_logged = worker.shared.fleet.is_some() || worker.shared.config.has_parents();
    // The lookup comes before the purge and only affects the status. Even if nothing is found, the purge is executed,
    // because a response that is being fetched or is unreadable now must be purged too.
    let is_stored = !matches!(subject, PurgeSubject::Url) || explain::is_stored(worker, uri).await;
    let done = match (subject, mode) {
        (PurgeSubject::Url, PurgeMode::Hard) if !is_logged => invalidation::invalidate(cache, uri).await.map(|()| None),
        (PurgeSubject::All, PurgeMode::Hard) if !is_logged => invalidation::invalidate_all(cache).await.map(|()| None),
        (subject, mode) => match scopes(cache, uri, subject) {
            Some(scopes) => purge_everywhere(worker, scopes, mode).await.map(Some),
            None => Err(NotInvalid::NoUrl),
        },
    };
    let told = match (mode, is_stored) {
        (_, false) => "nothing was stored",
        (PurgeMode::Hard, true) => "purged",
        (PurgeMode::Soft | PurgeMode::Validate, true) => "made stale",
    };
    match done {
        Ok(Some(PurgeResult { is_widened: true, .. })) => {
            let text = format!(
                "{told}\nnote: there are more than {COUNT_MAX} single purges, so what was stored before the older \
                 ones, at their sites or anywhere, is validated before use\n"
            );
            page(StatusCode::OK, text.into())
        }
        Ok(_) => page(StatusCode::OK, format!("{told}\n").into()),
        Err(NotInvalid::NoUrl) => page(StatusCode::BAD_REQUEST, NO_URL.into()),
        Err(NotInvalid::NotDurable(why)) => {
            let text = format!(
                "not purged permanently: {why}\nit is no longer served as fresh, and the purge is retried; after a \
                 crash it may reappear\n"
            );
            page(StatusCode::SERVICE_UNAVAILABLE, text.into())
        }
        Err(NotInvalid::NotShared(why)) => {
            let text = format!(
                "{told} on this node only, because the log of purges cannot be reached: {why}\nthe purge is added to the \
                 log as soon as possible; until then, other nodes do not know it\n"
            );
            page(StatusCode::SERVICE_UNAVAILABLE, text.into())
        }
    }
}

/// Purges on this node, and waits until other nodes can read the purge.
async fn purge_everywhere(
    worker: &Worker,
    scopes: Vec<PurgeScope>,
    mode: PurgeMode,
) -> Result<PurgeResult, NotInvalid> {
    let result = invalidation::purge(&worker.cache, scopes, mode).await?;
    if let Some(link) = &worker.shared.fleet {
        link.await_sent(&worker.cache.shared.purges, result.number).await.map_err(NotInvalid::NotShared)?;
    }
    Ok(result)
}

/// Returns the subject of a request, from its fields and target.
fn subject(request: &request::Parts) -> Result<PurgeSubject, String> {
    let tags = tags(&request.headers)?;
    let ends_in_star = path_of(&request.uri).ends_with('*');
    match (request.headers.get(SCOPE).map(|scope| scope.as_bytes()), tags) {
        (None | Some(b"tag"), Some(tags)) => Ok(PurgeSubject::Tags(tags)),
        (Some(b"tag"), None) => Err("a purge by tag needs tags in Surrogate-Key or Cache-Tag\n".to_owned()),
        (Some(_), Some(_)) => Err("use either Purge-Scope or tags (Surrogate-Key, Cache-Tag)\n".to_owned()),
        (None, None) if ends_in_star => Ok(PurgeSubject::Prefix),
        (None | Some(b"url"), None) => Ok(PurgeSubject::Url),
        (Some(b"prefix"), None) => Ok(PurgeSubject::Prefix),
        (Some(b"site"), None) => Ok(PurgeSubject::Site),
        (Some(b"all"), None) => Ok(PurgeSubject::All),
        (Some(_), None) => Err("Purge-Scope must be url, prefix, site, tag or all\n".to_owned()),
    }
}

/// Returns the tags that a request names, or `None` if it has neither of their fields.
fn tags(fields: &HeaderMap) -> Result<Option<Vec<Box<str>>>, String> {
    if !TAG_FIELDS.iter().any(|name| fields.contains_key(name)) {
        return Ok(None);
    }
    let mut tags = Vec::new();
    for line in TAG_FIELDS.iter().flat_map(|name| fields.get_all(name)) {
        let line = line.to_str().map_err(|_| "a tag must be visible ASCII\n".to_owned())?;
        tags.extend(split_tags(line).map(Box::<str>::from));
    }
    if let Some(long) = tags.iter().find(|tag| tag.len() > TAG_SIZE_MAX) {
        return Err(format!("a tag has at most {TAG_SIZE_MAX} bytes: {}...\n", &long[..SHOWN_BYTES]));
    }
    match tags.is_empty() {
        true => Err("Surrogate-Key or Cache-Tag contains no tag\n".to_owned()),
        false => Ok(Some(tags)),
    }
}

fn mode(fields: &HeaderMap) -> Result<PurgeMode, String> {
    let is_soft_by_fastly = fields.get(FASTLY_SOFT).is_some_and(|value| value.as_bytes() == b"1");
    match fields.get(MODE).map(|mode| mode.as_bytes()) {
        None if is_soft_by_fastly => Ok(PurgeMode::Soft),
        Some(b"soft") => Ok(PurgeMode::Soft),
        None | Some(b"hard") => Ok(PurgeMode::Hard),
        Some(_) => Err("Purge-Mode must be hard or soft\n".to_owned()),
    }
}

/// Returns the scopes to purge, or `None` if the target must be a URL and is not.
fn scopes(cache: &Cache, uri: &Uri, subject: PurgeSubject) -> Option<Vec<PurgeScope>> {
    Some(match subject {
        PurgeSubject::All => vec![PurgeScope::All],
        PurgeSubject::Tags(tags) => tags.into_iter().map(PurgeScope::Tag).collect(),
        PurgeSubject::Site => vec![invalidation::site_scope(cache, uri)?],
        PurgeSubject::Url => vec![invalidation::url_scope(cache, uri)?],
        PurgeSubject::Prefix => {
            let path = path_of(uri);
            invalidation::prefix_scopes(cache, uri, path.strip_suffix('*').unwrap_or(path))?
        }
    })
}

/// The field that names the subject of a PURGE, if its target and tags do not.
const SCOPE: &str = "purge-scope";
/// The field that selects a hard or a soft purge.
const MODE: &str = "purge-mode";
/// The field with which clients of Fastly select a soft purge.
const FASTLY_SOFT: &str = "fastly-soft-purge";
const NO_URL: &str = "PURGE needs a whole URL, such as PURGE http://example.com/path HTTP/1.1\n";
/// Number of bytes shown of a tag that is too long.
const SHOWN_BYTES: usize = 40;
