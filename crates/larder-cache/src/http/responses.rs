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

/// One step of a scan of the stored responses.
pub enum WalkStep<'a> {
    /// Progress: the number of bytes scanned, and the size of the store.
    Passed {
        /// Bytes seen so far.
        bytes: u64,
        /// Bytes of the whole store.
        of: u64,
    },
    /// A response.
    Response(&'a Response<'a>),
}

/// A stored response that a scan has found.
pub struct Response<'a> {
    /// The URL of the response.
    pub url: &'a str,
    /// The key of its entry.
    pub key: &'a [u8],
    /// The head, with all purges applied.
    pub head: StoredHead,
    /// Reads the entry.
    pub reader: Reader,
}

/// Calls `meet` with each stored response that `patterns` match, until `meet` returns `false`. Blocks to read the whole
/// store.
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

/// Returns whether a key belongs to a GET of its URL. The key of a git POST request differs: after the origin's name
/// comes `#` with more text.
fn is_of_get(of: &KeyOf<'_>) -> bool {
    !OriginMark::of_key(of.primary).name().is_some_and(|name| name.contains('#'))
}

/// Reads the response under a key, if it can be served.
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
