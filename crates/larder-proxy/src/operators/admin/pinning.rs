//! Protects stored responses from eviction: the commands PIN and UNPIN.
//!
//! Owns: the commands' syntax and output. Pinning is in `ground::cache::pins`. The body of a request has patterns, one
//! per line. `PIN /` without patterns lists the pins.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use larder_http::UrlPattern;
use larder_store::Store;
use serde_json::{Value, json};

use super::progress::{self, OperatorFailure, ProgressWriter};
use crate::{
    ground::cache::{
        Cache,
        pins::{NotPinned, PATTERN_COUNT_MAX, PinChange, PinTotals},
    },
    road::client::response_body::ResponseBody,
    run::worker::Worker,
};

/// Answers a PIN command: pins the responses that match the patterns in `body`. Without patterns, lists the pins.
pub(super) fn pin(worker: &Arc<Worker>, body: Bytes) -> Response<ResponseBody> {
    let cache = Arc::clone(&worker.cache);
    progress::answer(move |teller| {
        let store = store_of(&cache)?;
        let patterns = parse(&body)?;
        if patterns.is_empty() {
            return Ok(list(&cache, &store, teller));
        }
        let targets = &cache.http.targets;
        let mut progress = |done, of| teller.progress(done, of);
        let outcome = cache.shared.pins.add(&store, targets, patterns, &mut progress);
        let PinChange { result: pinned, unrecorded } = outcome.map_err(|why| failed(&why, &store))?;
        let responses = pinned.responses;
        let bytes = pinned.bytes;
        Ok(json!({ "responses": responses, "bytes": bytes, "unrecorded": unrecorded, "all": figures(&store) }))
    })
}

/// Answers an UNPIN command: removes the pins of the patterns in `body`, or all pins if `is_all` is true.
pub(super) fn unpin(worker: &Arc<Worker>, body: Bytes, is_all: bool) -> Response<ResponseBody> {
    let cache = Arc::clone(&worker.cache);
    progress::answer(move |_| {
        let store = store_of(&cache)?;
        let patterns = parse(&body)?;
        let removed = (!is_all).then_some(&patterns[..]);
        let outcome = cache.shared.pins.remove(&store, &cache.http.targets, removed);
        let PinChange { result: unknown, unrecorded } = outcome.map_err(|why| failed(&why, &store))?;
        let unknown: Vec<&str> = unknown.iter().map(UrlPattern::as_str).collect();
        Ok(json!({ "unknown": unknown, "unrecorded": unrecorded, "all": figures(&store) }))
    })
}

fn list(cache: &Cache, store: &Store, teller: &ProgressWriter) -> Value {
    let (by_pattern, sum) = cache.shared.pins.figures(store);
    for (pattern, PinTotals { responses, bytes }) in by_pattern {
        teller.line(&json!({ "pattern": pattern.as_str(), "responses": responses, "bytes": bytes }));
    }
    json!({ "responses": sum.responses, "bytes": sum.bytes, "all": figures(store) })
}

/// Returns the size of all pinned responses, and the limit on it, as JSON.
fn figures(store: &Store) -> Value {
    let stats = store.stats();
    json!({ "entries": stats.pinned_entries, "bytes": stats.pinned_bytes, "bytes_max": stats.pinned_bytes_max })
}

pub(super) fn store_of(cache: &Cache) -> Result<Store, OperatorFailure> {
    cache.shared.store.clone().ok_or_else(|| OperatorFailure {
        problem: "the proxy has no store on disk".to_owned(),
        help: "start it with --disk PATH".to_owned(),
    })
}

/// Parses a list of URL patterns, one per line.
pub(super) fn parse(body: &[u8]) -> Result<Vec<UrlPattern>, OperatorFailure> {
    let lines = std::str::from_utf8(body).unwrap_or("\u{fffd}").lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            line.parse().map_err(|error: larder_http::BadUrlPattern| OperatorFailure {
                problem: error.to_string(),
                help: "give a pattern such as http://deb.debian.org/* or https://example.com/map.png".to_owned(),
            })
        })
        .collect()
}

fn failed(why: &NotPinned, store: &Store) -> OperatorFailure {
    let (problem, help) = match why {
        NotPinned::Busy => ("another command is changing the pins".to_owned(), "try again in a moment"),
        NotPinned::Cannot(why) => (format!("cannot pin: {why}"), "larder help tuning lists the policies"),
        NotPinned::Abandoned => ("the command was interrupted".to_owned(), ""),
        NotPinned::TooMany => {
            (format!("more than {PATTERN_COUNT_MAX} patterns"), "combine them, such as http://a.example/*")
        }
        NotPinned::NoRoom { needed_bytes } => {
            let stats = store.stats();
            let problem = format!(
                "nothing was pinned: the matching responses have {needed_bytes} bytes, {} of at most {} are pinned",
                stats.pinned_bytes, stats.pinned_bytes_max
            );
            (problem, "pin less, unpin something, use a larger store, or raise pin_share (see larder help tuning)")
        }
    };
    OperatorFailure { problem, help: help.to_owned() }
}
