//! Finds the stored response for a request. It looks in memory before the store, and for the marker before its
//! variants.
//!
//! Whether the response may be used is decided elsewhere. Invariant: it was stored for this resource and these
//! selecting fields (RFC 9111 4.1). A damaged entry, a store error, or a store that does not respond counts as a miss.
//!
//! Cost: one lookup in memory for a hit there; one device read for a hit in the store; one more lookup for each rule by
//! which the resource varies.

use std::{pin::pin, sync::Arc};

use crate::{ChangeMoment, purges::PurgeVerdict};
use bytes::Bytes;
use http::{HeaderMap, header};
use larder_http::{BodyPlace, Head, TargetList, Timestamp, language};
use larder_store::{MemoryHits, Reader, Store};

use crate::http::{
    ResponseCache, StoreEvent,
    entry::{CachedEntry, EntryBody, ResourceMarker},
    hot::{HotContent, HotItem},
    patience::{self, ReadPatience},
    tiered,
};

/// The result of a lookup for a request.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use http::HeaderMap;
/// use larder_cache::http::{fetcher::Fetcher, lookup::{LookupResult, find}};
///
/// let (responses, fields) = (site.fetcher.cache(), HeaderMap::new());
/// let key = fetcher::store(&site, "/news").await;
/// assert!(matches!(find(responses, &key, &fields).await, LookupResult::Found(_)));
/// let unknown = (*b"Phttps://site.example/unknown").into();
/// assert!(matches!(find(responses, &unknown, &fields).await, LookupResult::Nothing));
/// # });
/// ```
pub enum LookupResult {
    /// A stored response that the request's selecting fields select.
    Found(FoundResponse),
    /// The resource varies, and the variant that the request's selecting fields select is not stored. The marker lists
    /// the stored variants.
    OtherVariants(Arc<ResourceMarker>),
    /// Nothing is stored that this request could use.
    Nothing,
}

/// A stored response, and where it was found. It may be stale: [`ResponseCache::judge`] decides whether it answers a
/// request.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use http::HeaderMap;
/// use larder_cache::http::{fetcher::Fetcher, lookup::{LookupResult, find, is_unchanged}};
///
/// let (responses, fields) = (site.fetcher.cache(), HeaderMap::new());
/// let key = fetcher::store(&site, "/news").await;
/// let LookupResult::Found(found) = find(responses, &key, &fields).await else { panic!("it is stored") };
/// assert_eq!(found.key, key, "it does not vary");
/// assert!(is_unchanged(responses, &key, &found));
/// # });
/// ```
#[derive(Clone)]
pub struct FoundResponse {
    /// The stored response.
    pub entry: Arc<CachedEntry>,
    /// The key under which the response is stored: the primary key, or that of a variant.
    pub key: Arc<[u8]>,
    /// The marker that led to the response. `None` if the resource does not vary.
    pub marker: Option<Arc<ResourceMarker>>,
    /// Whether the response was found in memory, not in the store.
    pub from_memory: bool,
    /// The moment when the lookup began.
    pub since: ChangeMoment,
}

impl FoundResponse {
    /// Returns whether both responses have the same body in chunks.
    pub(super) fn has_body_of(&self, other: &Self) -> bool {
        match (&self.entry.body, &other.entry.body) {
            (EntryBody::Chunks { representation, .. }, EntryBody::Chunks { representation: others, .. }) => {
                representation == others
            }
            _ => false,
        }
    }
}

/// A response that was found in memory.
pub struct MemoryResponse {
    /// The response.
    pub entry: CachedEntry,
    /// The key of the response, if it is a variant.
    pub variant: Option<Vec<u8>>,
    /// Whether to report the hit to the store, see [`MemoryResponse::report`].
    is_reported: bool,
}

impl MemoryResponse {
    /// Reports this hit to the store, if it is one of those that are reported. `primary` is the key of the resource.
    pub fn report(&self, cache: &ResponseCache, primary: &[u8]) {
        if self.is_reported {
            report_hit(cache, self.variant.as_deref().unwrap_or(primary));
        }
    }
}

/// Finds a response in memory, without reading the store, and counts a hit of it if `is_counted` is true. The request
/// must have no [`larder_http::telling::IDENTITY_FIELDS`].
pub fn find_hot(
    cache: &ResponseCache,
    primary: &[u8],
    request_fields: &HeaderMap,
    is_counted: bool,
) -> Option<MemoryResponse> {
    let settings = &cache.http;
    let look = |item: &HotItem| (item.content(), is_counted && item.hits().is_some_and(MemoryHits::count));
    let (content, is_reported) = cache.shared.hot.get_with(primary, look)?;
    match content {
        HotContent::Response(packed) => {
            let entry = packed.unpack(&settings.targets);
            if stands(cache, primary, &entry) {
                Some(MemoryResponse { entry, variant: None, is_reported })
            } else {
                None
            }
        }
        HotContent::Marker(marker) => marker.rules.rules().iter().find_map(|rule| {
            let key = marker.variant_key(primary, rule, request_fields, settings)?;
            let (content, is_reported) = cache.shared.hot.get_with(&key, look)?;
            let HotContent::Response(packed) = content else { return None };
            let entry = packed.unpack(&settings.targets);
            let is_ours = entry.head.matches(request_fields, settings) && stands(cache, &key, &entry);
            is_ours.then_some(MemoryResponse { entry, variant: Some(key), is_reported })
        }),
        HotContent::Chunk(_) => None,
    }
}

/// Counts a hit of the response under `key` from memory, and reports some of these hits to the store.
pub fn note_memory_hit(cache: &ResponseCache, key: &[u8]) {
    let is_reported = cache.shared.hot.peek_with(key, |item| item.hits().is_some_and(MemoryHits::count));
    if is_reported == Some(true) {
        report_hit(cache, key);
    }
}

/// Reports a hit from memory to the store, because it would otherwise take the entry for unused and evict it.
fn report_hit(cache: &ResponseCache, key: &[u8]) {
    if let Some(store) = &cache.shared.store {
        store.touch(key);
    }
}

fn stands(cache: &ResponseCache, key: &[u8], entry: &CachedEntry) -> bool {
    judge(cache, key, entry) == PurgeVerdict::Stands
}

/// Returns what all purges so far mean for a response that was found in memory. If they do not concern it, memory
/// remembers that.
fn judge(cache: &ResponseCache, key: &[u8], entry: &CachedEntry) -> PurgeVerdict {
    let judged_count = entry.judged_count();
    let verdict = cache.shared.purges.judge(entry, key);
    if entry.judged_count() > judged_count {
        cache.shared.hot.peek_with(key, |item| item.note_judged(entry.judged_count()));
    }
    verdict
}

/// Returns whether a response is still current: since it was found, it was not removed, replaced or purged. `primary`
/// is the key of its resource.
///
/// Call this after the work that may confirm the response has begun: the work itself notices only later removals. May
/// return `false` because another resource has changed, but rarely.
pub fn is_unchanged(cache: &ResponseCache, primary: &[u8], found: &FoundResponse) -> bool {
    let hot = &cache.shared.hot;
    hot.is_unchanged(&found.key, found.since)
        && (*found.key == *primary || hot.is_unchanged(primary, found.since))
        && cache.shared.purges.judge_head(&found.entry.head, &found.key) != PurgeVerdict::Gone
}

/// Finds the stored response for a request with these fields, in memory or in the store.
pub async fn find(cache: &ResponseCache, primary: &Arc<[u8]>, request_fields: &HeaderMap) -> LookupResult {
    let since = cache.shared.hot.moment();
    let marker = match find_one(cache, primary).await {
        None => return LookupResult::Nothing,
        Some((EntryContent::Response(entry), _)) if !entry.head.matches(request_fields, &cache.http) => {
            return LookupResult::Nothing;
        }
        Some((EntryContent::Response(entry), from_memory)) => {
            let key = Arc::clone(primary);
            return LookupResult::Found(FoundResponse { entry, key, marker: None, from_memory, since });
        }
        Some((EntryContent::Marker(marker), _)) => marker,
    };
    match find_variant(cache, primary, &marker, request_fields, since).await {
        Some(found) => LookupResult::Found(found),
        None => LookupResult::OtherVariants(marker),
    }
}

/// Finds the variant of a resource that a request selects. `since` is the moment when the lookup began.
pub async fn find_variant(
    cache: &ResponseCache,
    primary: &[u8],
    marker: &Arc<ResourceMarker>,
    request_fields: &HeaderMap,
    since: ChangeMoment,
) -> Option<FoundResponse> {
    let settings = &cache.http;
    for rule in marker.rules.rules() {
        let Some(key) = marker.variant_key(primary, rule, request_fields, settings) else { continue };
        if let Some((EntryContent::Response(entry), from_memory)) = find_one(cache, &key).await
            && entry.head.matches(request_fields, settings)
        {
            let marker = Some(Arc::clone(marker));
            return Some(FoundResponse { entry, key: key.into(), marker, from_memory, since });
        }
    }
    None
}

/// Finds the variant in the language that a request prefers, although it was stored for a request with another
/// Accept-Language (RFC 9111 4.1).
pub async fn find_by_language(
    cache: &ResponseCache,
    primary: &[u8],
    marker: &Arc<ResourceMarker>,
    request_fields: &HeaderMap,
    since: ChangeMoment,
) -> Option<FoundResponse> {
    if marker.languages.is_empty() || !cache.http.normalize_language {
        return None;
    }
    let preferred = language::preferred(request_fields)?;
    let (_, accepted) = marker.languages.iter().find(|(known, _)| *known == preferred)?;
    let mut fields = request_fields.clone();
    fields.insert(header::ACCEPT_LANGUAGE, accepted.clone());
    let found = find_variant(cache, primary, marker, &fields, since).await?;
    (language::of_response(found.entry.head.fields()) == Some(preferred)).then_some(found)
}

/// Returns the response or marker under a key, and whether it was in memory.
///
/// An entry from the store is put in memory. A head whose body is still arriving is not returned.
async fn find_one(cache: &ResponseCache, key: &[u8]) -> Option<(EntryContent, bool)> {
    find_any(cache, key).await.filter(|(one, _)| !still_arrives(cache, one))
}

fn still_arrives(cache: &ResponseCache, one: &EntryContent) -> bool {
    let EntryContent::Response(entry) = one else { return false };
    let EntryBody::Chunks { representation, .. } = entry.body else { return false };
    cache.shared.arrivals.has(representation)
}

/// Finds the response or marker under a key, as [`find_one`] does, but also a response whose body is still arriving.
async fn find_any(cache: &ResponseCache, key: &[u8]) -> Option<(EntryContent, bool)> {
    let moment = cache.shared.hot.moment();
    let targets = &cache.http.targets;
    let kept = cache.shared.hot.get_with(key, HotItem::content);
    if let Some(one) = kept.and_then(|content| EntryContent::of(content, targets)) {
        return after_purges(cache, key, one, Some(moment)).map(|one| (one, true));
    }
    let store = cache.shared.store.as_ref()?;
    let (head, body) = match read(cache, store, key).await {
        Some((reader, body)) => (reader.head(), body),
        None => tiered::find(cache, key).await?,
    };
    let survivors = &cache.shared.survivors;
    let memory = &survivors.hot;
    let len_bytes = (head.len() + body.len()) as u64;
    let admitted = memory.admits(key, len_bytes);
    // Copied to release the larger buffer, which the device reuses. Only while few clients wait for their bodies, those
    // that memory does not keep are sent from that buffer.
    let is_copied = admitted || survivors.are_exchanges_many() && memory.can_keep(len_bytes);
    let mut one = decode(head, body, targets)?;
    if is_copied {
        let item = one.hot_item();
        one = EntryContent::of(item.content(), targets)?;
        // Lookups in memory do not check whether a body is still arriving, so the head of such a body is not kept.
        if admitted && !still_arrives(cache, &one) {
            memory.insert(key, item, moment);
        }
    }
    after_purges(cache, key, one, admitted.then_some(moment)).map(|one| (one, false))
}

/// Applies all purges to the response under a key. Returns `None` if it was purged.
///
/// `kept_since` is the moment before the response was read, if it is in memory. The result then replaces it there.
fn after_purges(
    cache: &ResponseCache,
    key: &[u8],
    one: EntryContent,
    kept_since: Option<ChangeMoment>,
) -> Option<EntryContent> {
    let EntryContent::Response(entry) = &one else { return Some(one) };
    let judged_count = cache.shared.purges.latest();
    match judge(cache, key, entry) {
        PurgeVerdict::Stands => Some(one),
        PurgeVerdict::StaleSince(since_ms) => {
            let stale = Arc::new(entry.stale_since(Timestamp::from_millis(since_ms), judged_count));
            if let Some(moment) = kept_since {
                cache.shared.hot.insert(key, HotItem::response(&stale), moment);
            }
            Some(EntryContent::Response(stale))
        }
        // Not put in memory: the doubt may end without a validation.
        PurgeVerdict::Unconfirmed => Some(EntryContent::Response(Arc::new(entry.unconfirmed()))),
        PurgeVerdict::Gone => {
            cache.shared.hot.remove(key);
            None
        }
    }
}

/// Returns whether the store still has a response under a key that was purged.
pub async fn is_purged(cache: &ResponseCache, key: &[u8]) -> bool {
    let Some(store) = cache.shared.store.as_ref().filter(|store| store.may_contain(key)) else { return false };
    let Some((reader, _)) = read(cache, store, key).await else { return false };
    let Ok(Head::Response(head)) = Head::decode(reader.head(), &cache.http.targets) else { return false };
    cache.shared.purges.judge_head(&head, key) == PurgeVerdict::Gone
}

/// Returns the representation number of the response under a key, whose body may still be arriving. `None` if the body
/// is not in chunks.
pub async fn representation(cache: &ResponseCache, key: &[u8]) -> Option<u64> {
    match find_any(cache, key).await? {
        (EntryContent::Response(entry), _) => match entry.body {
            EntryBody::Chunks { representation, .. } => Some(representation),
            EntryBody::Whole(_) => None,
        },
        (EntryContent::Marker(_), _) => None,
    }
}

/// The error of a read of the store that failed or took too long. It is then unknown whether the store has the entry.
#[doc(hidden)] // the error of `ask`, for larder-proxy
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTrouble;

/// Reads the entry under a key from the store, with its whole body. Returns `None` also if the entry is damaged, or if
/// the store fails or does not respond.
pub async fn read(cache: &ResponseCache, store: &Store, key: &[u8]) -> Option<(Reader, Bytes)> {
    try_read(cache, store, key, ReadPatience::Short).await.ok().flatten()
}

/// Reads an entry as [`read`] does, but returns an error if it is unknown whether the store has the entry.
pub(crate) async fn try_read(
    cache: &ResponseCache,
    store: &Store,
    key: &[u8],
    waiting: ReadPatience,
) -> Result<Option<(Reader, Bytes)>, StoreTrouble> {
    // Pinned here: each function below that took it by value would keep a copy of its kilobytes in its own future.
    let reading = pin!(async {
        let Some(reader) = store.get(key).await? else { return Ok(None) };
        let body = reader.read(0..reader.len()).await?;
        Ok::<_, larder_store::Error>(body.map(|body| (reader, body)))
    });
    ask(cache, waiting, reading).await
}

/// Awaits `reading`, a read of the store, within the limits of [`patience`].
#[doc(hidden)] // for larder-proxy
pub async fn ask<T>(
    cache: &ResponseCache,
    waiting: ReadPatience,
    reading: impl Future<Output = larder_store::Result<Option<T>>>,
) -> Result<Option<T>, StoreTrouble> {
    patience::read(cache, waiting, reading).await.ok_or(StoreTrouble)?.map_err(|error| {
        cache.note(StoreEvent::Failed);
        tracing::debug!(%error, "the store cannot be read, continuing without it");
        StoreTrouble
    })
}

/// The content of an entry under a key of a resource or variant.
pub enum EntryContent {
    /// A stored response.
    Response(Arc<CachedEntry>),
    /// The marker that lists the variants of a resource.
    Marker(Arc<ResourceMarker>),
}

impl EntryContent {
    /// Returns the content of an item of the memory cache. `None` for a chunk.
    fn of(hot: HotContent, targets: &TargetList) -> Option<Self> {
        match hot {
            HotContent::Response(packed) => Some(Self::Response(Arc::new(packed.unpack(targets)))),
            HotContent::Marker(marker) => Some(Self::Marker(marker)),
            HotContent::Chunk(_) => None,
        }
    }

    /// Returns a copy of the content for the memory cache.
    pub fn hot_item(&self) -> HotItem {
        match self {
            Self::Response(entry) => HotItem::response(entry),
            Self::Marker(marker) => HotItem::marker(Arc::clone(marker)),
        }
    }
}

/// Decodes an entry of the store. Returns `None` for a chunk, or if the head and the body do not belong together.
pub fn decode(head: Bytes, body: Bytes, targets: &TargetList) -> Option<EntryContent> {
    match Head::decode(head, targets).ok()? {
        Head::Response(head) => {
            let entry = match head.body() {
                BodyPlace::Whole { .. } => CachedEntry::whole(head, body)?,
                BodyPlace::Chunks { len, representation } => {
                    CachedEntry::new(head, EntryBody::Chunks { len, representation })
                }
            };
            Some(EntryContent::Response(Arc::new(entry)))
        }
        Head::VaryMarker(rules) => {
            ResourceMarker::decode(rules, &body).map(|marker| EntryContent::Marker(Arc::new(marker)))
        }
    }
}
