//! Removes stored responses, or marks them stale: the command PURGE. It concerns a URL, a prefix, a host, a tag, or
//! everything.
//!
//! Owns: the command's syntax and the response. [`invalidation`] executes it. Invariant:
//! `200` is sent only for a purge that survives a crash.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request};
use larder_http::tags::{TAG_FIELDS, TAG_SIZE_MAX, split_tags};

use super::page;
use crate::{
    ground::{
        cache::{
            invalidation::NotInvalid,
            purges::{PurgeLimits, PurgeMode, PurgeResult},
        },
        target::path_of,
    },
    road::{
        client::response_body::ResponseBody,
        explain,
        invalidation::{self, InvalidatedBy, Invalidation, InvalidationSubject},
    },
    run::worker::Worker,
};

/// Executes a PURGE command and returns the response.
pub(super) async fn purge(worker: &Arc<Worker>, request: &request::Parts) -> Response<ResponseBody> {
    let (subject, mode) = match subject(request).and_then(|subject| Ok((subject, mode(&request.headers)?))) {
        Ok(asked) => asked,
        Err(text) => return page(StatusCode::BAD_REQUEST, Bytes::from(text)),
    };
    // The lookup only influences the status. It comes first, and the purge follows even if it finds nothing, because a
    // response that is being fetched or cannot be read now must be purged too.
    let is_stored = match &subject {
        InvalidationSubject::Url(uri) => explain::is_stored(worker, uri).await,
        _ => true,
    };
    let invalidation = Invalidation { subject, effect: mode, by: InvalidatedBy::Operator };
    let done = invalidation::invalidate(worker, invalidation).await;
    let told = match (mode, is_stored) {
        (_, false) => "nothing was stored",
        (PurgeMode::Hard, true) => "purged",
        (PurgeMode::Soft | PurgeMode::Validate, true) => "made stale",
    };
    match done {
        Ok(PurgeResult { is_widened: true, .. }) => {
            let text = format!(
                "{told}\nnote: there are more than {} single purges, so what was stored before the older \
                 ones, at their sites or anywhere, is validated before use\n",
                PurgeLimits::RESPONSES.count
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

/// Returns what to purge, according to the fields and target of a PURGE. The error tells the operator why this is
/// unclear.
fn subject(request: &request::Parts) -> Result<InvalidationSubject<'_>, String> {
    let uri = &request.uri;
    let tags = tags(&request.headers)?;
    let ends_in_star = path_of(&request.uri).ends_with('*');
    match (request.headers.get(SCOPE).map(|scope| scope.as_bytes()), tags) {
        (None | Some(b"tag"), Some(tags)) => Ok(InvalidationSubject::Tags(tags)),
        (Some(b"tag"), None) => Err("a purge by tag needs tags in Surrogate-Key or Cache-Tag\n".to_owned()),
        (Some(_), Some(_)) => Err("use either Purge-Scope or tags (Surrogate-Key, Cache-Tag)\n".to_owned()),
        (None, None) if ends_in_star => Ok(InvalidationSubject::Prefix(uri)),
        (None | Some(b"url"), None) => Ok(InvalidationSubject::Url(uri)),
        (Some(b"prefix"), None) => Ok(InvalidationSubject::Prefix(uri)),
        (Some(b"site"), None) => Ok(InvalidationSubject::Site(uri)),
        (Some(b"all"), None) => Ok(InvalidationSubject::All),
        (Some(_), None) => Err("Purge-Scope must be url, prefix, site, tag or all\n".to_owned()),
    }
}

/// Returns the tags that a PURGE names, or `None` if it names none.
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

/// The field that says what to purge if the target and tags of a PURGE do not.
const SCOPE: &str = "purge-scope";
/// The field that selects a hard purge (removal) or a soft one (marking as stale).
const MODE: &str = "purge-mode";
/// The field by which clients of Fastly select a soft purge.
const FASTLY_SOFT: &str = "fastly-soft-purge";
const NO_URL: &str = "PURGE needs a whole URL, such as PURGE http://example.com/path HTTP/1.1\n";
/// Number of bytes that the error message shows of a tag that is too long.
const SHOWN_BYTES: usize = 40;
