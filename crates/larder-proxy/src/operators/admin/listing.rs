//! Lists the stored responses one by one: the command LIST.
//!
//! Owns: the command's syntax, the output and its order. The store is scanned in `ground::cache::responses`. The body
//! of `LIST /` is a line with options, followed by patterns, one per line. Without a pattern everything is listed.
//! Cost: a sorted list keeps all its lines in memory.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use bytes::Bytes;
use http::Response as HttpResponse;
use larder_http::{UrlPatterns, fields::media_type};
use larder_store::MemoryHits;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    pinning,
    progress::{self, OperatorFailure},
};
use crate::{
    ground::{
        cache::{
            Cache,
            responses::{self, Response, WalkStep},
        },
        clock,
    },
    road::client::response_body::ResponseBody,
    run::worker::Worker,
};

/// The options of a LIST command.
#[derive(Deserialize)]
struct ListingRequest {
    sort: Option<SortOrder>,
    /// Maximum number of responses to list. 0 means all.
    limit: usize,
}

/// The order in which responses are listed.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SortOrder {
    /// By length of the body, the longest first.
    Size,
    /// By time since the origin sent or confirmed the response, the longest first.
    Age,
    /// By number of hits from memory, the most first.
    Hits,
}

/// Answers a LIST command, whose options and patterns are in `body`.
pub(super) fn list(worker: &Arc<Worker>, body: &Bytes) -> HttpResponse<ResponseBody> {
    let cache = Arc::clone(&worker.cache);
    let body = body.clone();
    progress::answer(move |teller| {
        let store = pinning::store_of(&cache)?;
        let (line, patterns) = body.split_at(body.iter().position(|octet| *octet == b'\n').unwrap_or(body.len()));
        let wanted: ListingRequest = serde_json::from_slice(line).map_err(|error| OperatorFailure {
            problem: format!("the list command is malformed: {error}"),
            help: "use the same version of larder on both ends".to_owned(),
        })?;
        let mut patterns = pinning::parse(patterns)?;
        if patterns.is_empty() {
            patterns = pinning::parse(b"*")?;
        }
        if !store.can_scan() {
            return Err(OperatorFailure {
                problem: "a store of this policy cannot list its entries while it is in use".to_owned(),
                help: "larder show URL shows one URL; larder help tuning lists the policies".to_owned(),
            });
        }
        let limit = if wanted.limit == 0 { usize::MAX } else { wanted.limit };
        let mut first = TopEntries { sort: wanted.sort, limit: limit.min(SORTED_COUNT_MAX), heap: BinaryHeap::new() };
        let mut count = 0_u64;
        let mut body_bytes = 0_u64;
        let mut told_count = 0;
        let walked = responses::each(&cache, &store, &UrlPatterns::new(patterns), &mut |met| match met {
            WalkStep::Passed { bytes, of } => teller.progress(bytes, of),
            WalkStep::Response(response) => {
                (count, body_bytes) = (count + 1, body_bytes + response.head.body().len());
                match first.sort {
                    Some(sort) => first.note(sort, &cache, response),
                    None if told_count < limit => {
                        told_count += 1;
                        teller.line(&describe(&cache, response))
                    }
                    None => true,
                }
            }
        });
        walked.map_err(|error| OperatorFailure {
            problem: format!("cannot list: {error}"),
            help: "list again when the proxy runs and its disk responds".to_owned(),
        })?;
        first.heap.into_sorted_vec().iter().try_for_each(|Reverse(ranked)| teller.line(&ranked.line).then_some(()));
        Ok(json!({ "responses": count, "body_bytes": body_bytes }))
    })
}

/// The highest-ranking entries of a sorted list so far.
struct TopEntries {
    sort: Option<SortOrder>,
    limit: usize,
    /// The entries, with the lowest rank on top, so that a higher-ranking entry can replace it.
    heap: BinaryHeap<Reverse<RankedEntry>>,
}

struct RankedEntry {
    rank: u64,
    line: Value,
}

impl TopEntries {
    /// Adds a response if it ranks high enough. Returns true, so that the listing continues.
    fn note(&mut self, sort: SortOrder, cache: &Cache, response: &Response<'_>) -> bool {
        let rank = match sort {
            SortOrder::Size => response.head.body().len(),
            SortOrder::Age => clock::now().millis_since(response.head.response_time()).max(0).unsigned_abs(),
            SortOrder::Hits => hits(cache, response.key).unwrap_or(0).into(),
        };
        let is_full = self.heap.len() >= self.limit;
        if is_full && self.heap.peek().is_none_or(|Reverse(last)| rank <= last.rank) {
            return true;
        }
        self.heap.push(Reverse(RankedEntry { rank, line: describe(cache, response) }));
        if is_full {
            self.heap.pop();
        }
        true
    }
}

impl PartialEq for RankedEntry {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for RankedEntry {}

impl PartialOrd for RankedEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RankedEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

fn describe(cache: &Cache, response: &Response<'_>) -> Value {
    let Response { url, key, head, .. } = response;
    let freshness = head.freshness();
    let now = clock::now();
    let variant: Vec<String> = head
        .selecting()
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}", String::from_utf8_lossy(value?))))
        .collect();
    json!({
        "url": url,
        "status": head.status().as_u16(),
        "bytes": head.body().len(),
        "type": media_type(head.fields()),
        "age_secs": freshness.age_millis(now) / 1000,
        "ttl_secs": freshness.left_millis(now, &cache.http).div_euclid(1000),
        "hits": hits(cache, key),
        "in_memory": cache.shared.hot.contains(key),
        "pinned": cache.shared.store.as_ref().is_some_and(|store| store.is_pinned(key)),
        "variant": variant,
    })
}

/// Returns the number of hits of an entry in memory. `None` if the entry is not in memory.
fn hits(cache: &Cache, key: &[u8]) -> Option<u32> {
    cache.shared.hot.peek_with(key, |item| item.hits().map(MemoryHits::get))?
}

/// Maximum length of a sorted list.
const SORTED_COUNT_MAX: usize = 100_000;
