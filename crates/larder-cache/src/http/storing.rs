//! Stores responses, replaces their heads, and removes them.
//!
//! Owns: the keys of a response, and the order in which its parts become visible: chunks before the head that refers to
//! them, a variant before the marker that leads to it.
//!
//! Invariants: a response fetched before its resource was invalidated is not found afterwards (RFC 9111 4.4). Responses
//! of one resource are stored one after another, and none replaces a response that was requested after it. While a
//! response with a short body is written, or waits for the write of another, requests get it from memory, if that can
//! keep it, and not the older response that it replaces. Clients do not notice a store error: it is counted, the
//! response that could not be stored is kept in memory, and the stored response that it should have replaced is
//! removed.

mod in_memory;
mod writing;

use std::{iter, sync::Arc};

use crate::{
    KeyCommit,
    purges::{PurgeVerdict, host_range},
    works::CommitOrder,
};
use bytes::Bytes;
use http::{HeaderMap, header};
use larder_http::{BodyPlace, Settings, StoredHead, VaryRule, fields::Fields, language};
use larder_store::{Hints, Store};

use crate::http::{
    ResponseCache, StoreEvent,
    committed_body::CommittedBody,
    entry::{CHUNK_BYTES, EntryBody, ResourceMarker},
    lookup::FoundResponse,
    patience, pins, tiered,
    work::ResourceWork,
};
use in_memory::{commit_to_memory, show};
use writing::{UnwrittenEntry, write};

/// The place where a response is stored: under the key of its resource or, if the response varies, that of a variant.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::ACCEPT_LANGUAGE};
/// use larder_cache::http::storing::StorePlace;
/// use larder_http::{Settings, VaryRule};
///
/// let primary = (*b"Phttps://site.example/").into();
/// let fields = HeaderMap::from_iter([(ACCEPT_LANGUAGE, HeaderValue::from_static("de"))]);
/// let place = |rule| StorePlace::new(&primary, &rule, &fields, None, &Settings::default());
/// assert_eq!(place(VaryRule::Fields([].into())).expect("every request selects it").key, primary);
/// assert_ne!(place(VaryRule::Fields([ACCEPT_LANGUAGE].into())).expect("some requests select it").key, primary);
/// assert!(place(VaryRule::Star).is_none());
/// ```
pub struct StorePlace {
    /// The key of the resource.
    pub primary: Arc<[u8]>,
    /// The key of the response: the key of the resource, or that of a variant.
    pub key: Arc<[u8]>,
    /// The marker that leads to the variant, and whether the marker must be stored, too. `None` if the response does
    /// not vary.
    pub marker: Option<(Arc<ResourceMarker>, bool)>,
    /// The page group that the response belongs to, see [`crate::http::groups`]. 0 if it belongs to none.
    pub group: u32,
    /// Whether the store has already agreed to take the response.
    pub admission: StoreAdmission,
}

/// Whether the store has agreed to take a response. That is decided before the body arrives, so that Cache-Status can
/// report it.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use larder_http::{Settings, VaryRule};
/// use http::HeaderMap;
/// use larder_cache::http::{fetcher::Fetcher, lookup::{LookupResult, find}, storing::*};
///
/// let (responses, fields) = (site.fetcher.cache(), HeaderMap::new());
/// # let key = fetcher::store(&site, "/news").await;
/// # let LookupResult::Found(found) = find(responses, &key, &fields).await else { panic!("it is stored") };
/// # let head = &found.entry.head;
/// let place = StorePlace::new(&key, &VaryRule::from_fields(&fields), &fields, None, &responses.http);
/// let place = place.expect("it does not vary");
/// assert_eq!(place.admission, StoreAdmission::Open);
/// // A store with room takes every response.
/// assert_eq!(admission(responses, &place, head, Some(1000)), StoreAdmission::Granted);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAdmission {
    /// Nothing was decided. The store decides once the whole body has arrived.
    Open,
    /// The store will take the response.
    Granted,
    /// The store has refused the response, which stays in memory while there is room. Without a store, memory has
    /// refused it.
    Refused,
}

/// Decides, before its body arrives, whether a response will be stored. Its Cache-Status can then report that.
///
/// If the length of the body is unknown, this can be decided only while the store has room for everything.
pub fn admission(
    cache: &ResponseCache,
    place: &StorePlace,
    head: &StoredHead,
    body_len: Option<u64>,
) -> StoreAdmission {
    let Some(store) = &cache.shared.store else {
        let hot = &cache.shared.hot;
        let Some(len) = body_len.filter(|len| hot.can_keep(*len)) else { return StoreAdmission::Open };
        // Most responses are never requested again, and in a full memory each would displace another.
        return if hot.admits(&place.key, len) { StoreAdmission::Granted } else { StoreAdmission::Refused };
    };
    if cache.shared.patience.is_resting() {
        return StoreAdmission::Open;
    }
    if cache.shared.pins.name(&place.key) {
        return StoreAdmission::Granted;
    }
    let is_granted = match body_len {
        // Chunks reach the second tier through the store only.
        Some(len) if len > CHUNK_BYTES => store.admits(&place.key, len) || tiered::wants(cache, CHUNK_BYTES),
        Some(len) => store.admits(&place.key, (place.key.len() + head.encoded_len_max()) as u64 + len),
        None if store.has_room(&place.key) => true,
        None => return StoreAdmission::Open,
    };
    if is_granted { StoreAdmission::Granted } else { StoreAdmission::Refused }
}

impl StorePlace {
    /// Returns the place for a response that varies by `rule`. `before` is the present marker of the resource's
    /// variants. `None` if no request could select the response.
    pub fn new(
        primary: &Arc<[u8]>,
        rule: &VaryRule,
        request_fields: &HeaderMap,
        before: Option<&Arc<ResourceMarker>>,
        settings: &Settings,
    ) -> Option<Self> {
        if rule.is_empty() {
            return Some(Self {
                primary: Arc::clone(primary),
                key: Arc::clone(primary),
                marker: None,
                group: 0,
                admission: StoreAdmission::Open,
            });
        }
        let known = before.filter(|marker| marker.rules.rules().first() == Some(rule));
        let marker = match known {
            Some(marker) => (Arc::clone(marker), false),
            None => (Arc::new(ResourceMarker::including(rule.clone(), before)), true),
        };
        let key = marker.0.variant_key(primary, rule, request_fields, settings)?;
        Some(Self {
            primary: Arc::clone(primary),
            key: key.into(),
            marker: Some(marker),
            group: 0,
            admission: StoreAdmission::Open,
        })
    }

    /// Returns the place for a stored response after it has got a new head.
    ///
    /// The place is the present one, unless the new head varies on more fields. `None` if no request could select the
    /// response, or if it would have to move but its body is in chunks.
    pub fn renewed(
        primary: &Arc<[u8]>,
        before: &FoundResponse,
        head: &StoredHead,
        request_fields: &HeaderMap,
        settings: &Settings,
    ) -> Option<Self> {
        if before.entry.head.selecting().cover(&head.selecting().rule()) {
            let primary = Arc::clone(primary);
            let key = Arc::clone(&before.key);
            return Some(Self { primary, key, marker: None, group: 0, admission: StoreAdmission::Open });
        }
        let EntryBody::Whole(_) = before.entry.body else { return None };
        Self::new(primary, &head.selecting().rule(), request_fields, before.marker.as_ref(), settings)
    }

    /// Returns the keys that are written when the response is stored: its own and, if the marker must be stored, that
    /// of the resource.
    fn written_keys(&self) -> impl Iterator<Item = &[u8]> {
        let is_marked = matches!(self.marker, Some((_, true)));
        iter::once(&*self.key).chain(is_marked.then_some(&*self.primary))
    }

    /// Returns this place with a marker that also leads from the language of the response to it. Requests that prefer
    /// that language then find the response, too.
    pub fn in_language_of(self, response_fields: &impl Fields, request_fields: &HeaderMap) -> Self {
        let Some((marker, _)) = &self.marker else { return self };
        let mut lines = request_fields.get_all(header::ACCEPT_LANGUAGE).iter();
        let (Some(accepted), None) = (lines.next(), lines.next()) else { return self };
        let led = language::of_response(response_fields).and_then(|tag| marker.with_language(&tag, accepted));
        match led {
            Some(led) => Self { marker: Some((Arc::new(led), true)), ..self },
            None => self,
        }
    }
}

/// Stores a response: in the store or, without a store, in memory. Returns whether the response was stored.
///
/// It is not stored if the resource has changed since `work` began. The [`http`](crate::http) module has an example.
pub async fn commit(
    cache: &Arc<ResponseCache>,
    place: &StorePlace,
    head: &StoredHead,
    body: CommittedBody,
    work: &ResourceWork,
) -> bool {
    commit_somewhere(cache, place, head, body, work).await != CommitOutcome::Nowhere
}

/// Stores a response as [`commit`] does, and waits until it is on the device, so that a kill of the process cannot lose
/// it. Without a store, memory is enough.
///
/// Returns `false` if the response may be lost. It may be stored nevertheless.
pub async fn commit_for_good(
    cache: &Arc<ResponseCache>,
    place: &StorePlace,
    head: &StoredHead,
    body: CommittedBody,
    work: &ResourceWork,
) -> bool {
    match (commit_somewhere(cache, place, head, body, work).await, cache.shared.store.clone()) {
        (CommitOutcome::Nowhere, _) | (CommitOutcome::InMemory, Some(_)) => false,
        (CommitOutcome::InMemory | CommitOutcome::InStore, None) => true,
        (CommitOutcome::InStore, Some(store)) => {
            match patience::write(cache, (), async move { store.flush().await }).await {
                Some(Ok(())) => true,
                Some(Err(error)) => {
                    note_error(cache, &error);
                    false
                }
                None => false,
            }
        }
    }
}

/// The place where a commit has put a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitOutcome {
    InStore,
    InMemory,
    Nowhere,
}

async fn commit_somewhere(
    cache: &Arc<ResponseCache>,
    place: &StorePlace,
    head: &StoredHead,
    body: CommittedBody,
    work: &ResourceWork,
) -> CommitOutcome {
    let body = body.into_bytes(head);
    // The purge is judged before the write only to save it: a lookup judges again.
    if is_purged(cache, &place.key, head) {
        return CommitOutcome::Nowhere;
    }
    let show = |order: &CommitOrder<'_>| show(cache, place, head, &body, order);
    let Some(commit) = work.begin_commit(cache, &place.key, show).await else { return CommitOutcome::Nowhere };
    let to_memory = |order: &CommitOrder<'_>| commit_to_memory(cache, place, head, &body, order);
    let Some(store) = &cache.shared.store else {
        if place.admission == StoreAdmission::Refused {
            // The older response must not outlive this one.
            cache.shared.hot.remove(&place.key);
            return CommitOutcome::Nowhere;
        }
        return end(cache, place, commit, CommitOutcome::InMemory, to_memory).await;
    };
    // The chunks of a body were all admitted, so their head is stored unconditionally. Without a head, the chunks would
    // never be found.
    let is_whole = matches!(head.body(), BodyPlace::Whole { .. });
    let is_offer = is_whole && place.admission == StoreAdmission::Open;
    let is_refused = is_whole && place.admission == StoreAdmission::Refused;
    let hints = hints(cache, place, head);
    let encoded = Bytes::from(head.encode());
    let key = &place.key;
    let head_copy = encoded.clone();
    let entry = UnwrittenEntry { key, is_offer, head: head_copy, body: &body, hints, commit: Some((&commit, key)) };
    // The variant is stored before the marker that leads to it. A crash in between leaves an entry that nobody finds,
    // but never a marker without its variant.
    let is_stored = !is_refused
        && write(cache, store, entry).await
        && write_marker(cache, store, place, Hints { expires_at: 0, ..hints }, &commit).await;
    if !is_stored {
        remove_replaced(cache, store, place).await;
        if is_whole && cache.shared.tier.is_some() && !commit.is_outdated() {
            tiered::offer(cache, &place.key, (encoded, body.clone()), hints).await;
        }
        return end(cache, place, commit, CommitOutcome::InMemory, to_memory).await;
    }
    pins::spare_chunks(cache, store, &place.key, head.body()).await;
    if !is_whole {
        tiered::note_long(cache, &place.key);
    }
    // Memory is cleared only after the write. If it were cleared before, a reader could load the old entry into memory
    // again meanwhile.
    end(cache, place, commit, CommitOutcome::InStore, |order| {
        place.written_keys().filter(|key| order.is_newest(key)).for_each(|key| cache.shared.hot.remove(key));
    })
    .await
}

/// Writes the marker that leads to the variant at `place`, if the store does not have it. Returns `false` if it could
/// not be stored.
async fn write_marker(
    cache: &Arc<ResponseCache>,
    store: &Store,
    place: &StorePlace,
    hints: Hints,
    commit: &KeyCommit,
) -> bool {
    let Some((marker, true)) = &place.marker else { return true };
    let head = marker.rules.encode().into();
    let body = &[marker.encode_rest()];
    let key = &place.primary;
    let entry = UnwrittenEntry { key, is_offer: false, head, body, hints, commit: Some((commit, key)) };
    write(cache, store, entry).await
}

/// Removes the older entries from the store that a response at `place` should have replaced there. They must not
/// outlive that response, which is only in memory.
async fn remove_replaced(cache: &Arc<ResponseCache>, store: &Store, place: &StorePlace) {
    for key in place.written_keys() {
        if store.may_contain(key) || tiered::has(cache, key) {
            drop(remove_stored(cache, key).await);
        }
    }
}

/// Stores one chunk of a response. `primary` is the key of its resource. A chunk belongs to no page group, because it
/// is as long as many other entries together.
pub async fn commit_chunk(cache: &Arc<ResponseCache>, primary: &[u8], key: &[u8], body: Vec<Bytes>) -> bool {
    let hints = Hints { site: site_of(primary), ..Hints::default() };
    let Some(store) = &cache.shared.store else { return false };
    let is_short = body.iter().map(Bytes::len).sum::<usize>() < CHUNK_BYTES as usize;
    let entry = UnwrittenEntry { key, is_offer: false, head: Bytes::new(), body: &body, hints, commit: None };
    let is_stored = write(cache, store, entry).await;
    if is_stored && is_short {
        tiered::note_long(cache, key);
    }
    is_stored
}

/// Stores a fragment of a chunk. `start` is its position in the body, and `primary` the key of the resource.
pub async fn commit_fragment(cache: &Arc<ResponseCache>, primary: &[u8], key: &[u8], start: u64, bytes: Bytes) -> bool {
    let hints = Hints { site: site_of(primary), ..Hints::default() };
    match &cache.shared.store {
        Some(store) => {
            let head = Bytes::copy_from_slice(&start.to_le_bytes());
            let body = &[bytes];
            write(cache, store, UnwrittenEntry { key, is_offer: false, head, body, hints, commit: None }).await
        }
        None => false,
    }
}

/// Returns whether a response was purged after it was requested. The response under its key may then be a newer one,
/// which must stay.
pub(super) fn is_purged(cache: &ResponseCache, key: &[u8], head: &StoredHead) -> bool {
    cache.shared.purges.judge_head(head, key) != PurgeVerdict::Stands
}

pub(super) fn no_answer() -> Result<(), String> {
    Err(patience::NO_ANSWER.to_owned())
}

/// Removes an entry from memory and the store, even while the store is paused.
///
/// # Errors
/// The store could not record the removal; the text tells the operator why. The entry is hidden nevertheless, and
/// recording is retried.
pub async fn remove(cache: &Arc<ResponseCache>, key: &[u8]) -> Result<(), String> {
    cache.shared.hot.remove(key);
    let outcome = remove_stored(cache, key).await;
    cache.shared.hot.remove(key);
    outcome
}

/// Removes an entry from the store as [`remove`] does, but leaves memory as it is.
async fn remove_stored(cache: &Arc<ResponseCache>, key: &[u8]) -> Result<(), String> {
    let Some(store) = cache.shared.store.clone() else { return Ok(()) };
    let owned = Box::<[u8]>::from(key);
    let change = tiered::change(cache, key).await;
    match patience::write(cache, change, async move { store.remove(&owned).await }).await {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => {
            note_error(cache, &error);
            Err(error.to_string())
        }
        None => no_answer(),
    }
}

/// Ends a commit with a last change of memory. If the resource has changed while the response was being stored, removes
/// the response instead.
async fn end(
    cache: &Arc<ResponseCache>,
    place: &StorePlace,
    commit: KeyCommit,
    done: CommitOutcome,
    change: impl FnOnce(&CommitOrder<'_>),
) -> CommitOutcome {
    let Some(outdated) = commit.end(change) else { return done };
    drop(remove(cache, &place.primary).await);
    drop(outdated);
    CommitOutcome::Nowhere
}

pub(super) fn note_error(cache: &ResponseCache, error: &larder_store::Error) {
    cache.note(StoreEvent::Failed);
    tracing::debug!(%error, "the store cannot be written, continuing without it");
}

pub(super) fn hints(cache: &ResponseCache, place: &StorePlace, head: &StoredHead) -> Hints {
    Hints { site: site_of(&place.primary), group: u64::from(place.group), expires_at: expires_at(cache, head) }
}

/// Returns the time after which a response is useless, in seconds since the Unix epoch. 0 if there is none, because the
/// origin can validate the response.
pub fn expires_at(cache: &ResponseCache, head: &StoredHead) -> u32 {
    if head.has_validator() {
        return 0;
    }
    let settings = &cache.http;
    let on_error_secs = match head.freshness().stale_if_error_secs {
        Some(secs) => i64::from(secs),
        None => i64::try_from(settings.stale_if_error_max.as_secs()).unwrap_or(i64::MAX),
    };
    let stale_secs = on_error_secs.max(head.freshness().stale_while_revalidate_secs.unwrap_or(0).into());
    let last = head.fresh_until(settings).plus_secs(stale_secs).plus_secs(1).as_secs();
    u32::try_from(last.max(1)).unwrap_or(0)
}

/// Returns a hash (FNV-1a) of the host in a key. It is the same in every run. The papers on web caches call this number
/// the server.
pub(super) fn site_of(primary: &[u8]) -> u64 {
    let host = &primary[host_range(primary)];
    host.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests;
