//! Lists the stored responses one by one while the store is in use, by scanning the store.
//!
//! Owns: the selection of the keys that can answer a request, each once. Bodies are not read. Invariant: purged
//! responses, and variants that no marker leads to, are not listed.
//!
//! Cost: one read of the store's used part, one more of the front of each response, and eight bytes of memory per
//! response listed.

use std::collections::HashSet;

use larder_http::{Head, StoredHead, Timestamp, UrlPatterns, key::KeyOf};
use larder_store::{Reader, Result, ScanSummary, Store};

use crate::http::{
    ResponseCache,
    mark::OriginMark,
    pins::{record::fingerprint, stored_len, wait},
};
use crate::purges::PurgeVerdict;

/// A report from a scan of the stored responses: its progress, or a response that it found.
pub enum WalkStep<'a> {
    /// The progress of the scan. Reported repeatedly.
    Passed {
        /// Number of bytes that were scanned.
        bytes: u64,
        /// Size of the whole store in bytes.
        of: u64,
    },
    /// A response that matches the patterns.
    Response(&'a Response<'a>),
}

/// A stored response that a scan has found.
pub struct Response<'a> {
    /// The URL of the response.
    pub url: &'a str,
    /// The key under which the response is stored.
    pub key: &'a [u8],
    /// The head of the response, with the effects of all purges.
    pub head: StoredHead,
    /// Reads the body of the response's entry.
    pub reader: Reader,
}

/// Calls `meet` with each stored response that `patterns` match, and with the progress, until `meet` returns `false`.
/// Blocks to read the whole store.
///
/// # Errors
/// The store cannot list its keys, or is closed.
pub fn each(
    cache: &ResponseCache,
    store: &Store,
    patterns: &UrlPatterns,
    meet: &mut dyn FnMut(WalkStep<'_>) -> bool,
) -> Result<()> {
    let mut seen = HashSet::new();
    store.scan(&mut |scanned| match scanned {
        ScanSummary::Passed { bytes, of } => meet(WalkStep::Passed { bytes, of }),
        ScanSummary::Key(key) => {
            let of = KeyOf::parse(key).filter(is_of_get);
            let named = of.and_then(|of| Some((of, of.url()?))).filter(|(_, url)| patterns.contain(url));
            let Some((of, url)) = named.filter(|_| seen.insert(fingerprint(key))) else { return true };
            let Some((head, reader)) = response(cache, store, key, &of) else { return true };
            meet(WalkStep::Response(&Response { url, key, head, reader }))
        }
        _ => true,
    })
}

/// Returns whether a key belongs to a GET of its URL. Keys of git's POST requests have `#` and more text after the
/// origin's name.
fn is_of_get(of: &KeyOf<'_>) -> bool {
    !OriginMark::of_key(of.primary).name().is_some_and(|name| name.contains('#'))
}

/// Reads the response under a key. `None` if there is none that may be served.
fn response(cache: &ResponseCache, store: &Store, key: &[u8], of: &KeyOf<'_>) -> Option<(StoredHead, Reader)> {
    let targets = &cache.http.targets;
    // No marker leads to this variant, so it is unreachable.
    if of.entry != of.primary && !matches!(stored_len(store, targets, key), Ok(Some(_))) {
        return None;
    }
    let reader = wait(store.front(key)).ok()??;
    let Ok(Head::Response(head)) = Head::decode(reader.head(), targets) else { return None };
    match cache.shared.purges.judge_head(&head, key) {
        PurgeVerdict::Stands => Some((head, reader)),
        PurgeVerdict::StaleSince(at_ms) => Some((head.stale_since(Timestamp::from_millis(at_ms)), reader)),
        PurgeVerdict::Unconfirmed => Some((head.unconfirmed(), reader)),
        PurgeVerdict::Gone => None,
    }
}
