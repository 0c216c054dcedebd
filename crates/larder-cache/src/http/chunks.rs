//! Stores and reads long bodies, which are stored in chunks with one entry each.
//!
//! Owns: reads from memory, the store and the second tier. `crate::chunk_format` has the form of the chunks, and
//! `crate::body` streams bodies and fetches missing chunks.
//!
//! Invariant: the bytes returned are exactly the bytes at that position of that representation. Either the store
//! verified them under the representation's own key, or the origin sent them under the same strong validator and length
//! (RFC 9110 14.4, 15.3.7.3). A missing chunk may have one stored fragment (RFC 9111 3.4).
//!
//! Cost: one device read per chunk, or two for a part of a chunk. A missing chunk costs one more lookup, for its
//! fragment.

use std::{
    future::poll_fn,
    ops::Range,
    pin::pin,
    sync::{Arc, OnceLock},
    task::Poll,
};

use crate::{
    chunk_format::{chunk_key, chunk_span, fragment_key, read_chunk},
    object::ProbeEnd,
};
use bytes::Bytes;
use http::{HeaderValue, header};
use larder_http::{StoredHead, entity_tag::EntityTag, fields::Fields, partial};

use crate::http::{
    ResponseCache,
    entry::{CachedEntry, EntryBody},
    hot::{HotContent, HotItem},
    lookup::{self, StoreTrouble},
    patience::ReadPatience,
    sightings::{BodySightings, ChunkSighting},
    storing, tiered,
};

/// A long body, which is stored in chunks. Each chunk is an entry of the store. The methods of
/// [`Fetcher`](crate::http::fetcher::Fetcher) that concern a body take it as an argument.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
/// use larder_cache::http::{chunks::{BodyKeys, ChunkedBody}, fetcher::Fetcher};
///
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let (status, fields) = (http::StatusCode::OK, http::HeaderMap::new());
/// # let received = ReceivedHead { status, fields, request_time: now, response_time: now };
/// # let (len, representation) = (2_500_000, 7);
/// # let place = BodyPlace::Chunks { len, representation };
/// # let head = StoredHead::new(received, place, Default::default(), &TargetList::default());
/// # let key = fetcher::store(&site, "/film").await;
/// let keys = BodyKeys { primary: key.clone(), key, representation: 7 };
/// let body = ChunkedBody::new(site.fetcher.cache(), keys, &head, Some(2_500_000));
/// assert_eq!(body.span(0), 0..1 << 20);
/// assert_eq!(body.span(2), 2 << 20..2_500_000);
/// # });
/// ```
pub struct ChunkedBody {
    /// The cache that has the chunks.
    pub cache: Arc<ResponseCache>,
    /// The keys of the body's resource, and of the entry with its head.
    pub place: BodyKeys,
    /// Length of the whole body in bytes. Unset until it is known.
    len: OnceLock<u64>,
    /// The validator that distinguishes this representation from others (RFC 9110 8.8.1). `None` if the response has
    /// none.
    pub validator: Option<HeaderValue>,
    /// Whether the origin serves ranges, so that any part of the body can be requested.
    pub is_divisible: bool,
}

/// The reason why neither memory nor the store has supplied some bytes.
#[doc(hidden)] // the error of `ChunkedBody::read`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceReason {
    /// Neither memory nor the store has the bytes.
    Gap,
    /// The store failed or did not respond in time, so the bytes may still be stored.
    Trouble,
}

/// Two keys: that of a body's resource, and that of the entry with the body's head. They differ if the resource varies.
///
/// ```
/// use larder_cache::http::chunks::BodyKeys;
///
/// let primary: std::sync::Arc<[u8]> = (*b"Phttps://site.example/film").into();
/// // A resource that does not vary: its only response has the resource's key.
/// let keys = BodyKeys { key: primary.clone(), primary, representation: 7 };
/// assert_eq!(keys.key, keys.primary);
/// ```
#[derive(Clone)]
pub struct BodyKeys {
    /// The key of the resource.
    pub primary: Arc<[u8]>,
    /// The key of the entry that has the head.
    pub key: Arc<[u8]>,
    /// The number that distinguishes this body from others that are, or were, stored under the same key.
    pub representation: u64,
}

impl From<StoreTrouble> for AbsenceReason {
    fn from(_: StoreTrouble) -> Self {
        Self::Trouble
    }
}

/// Returns the strong entity tag in a response's fields. `None` if there is none, or only a weak one.
pub fn strong_tag(fields: &impl Fields) -> Option<&[u8]> {
    let value = fields.first(&header::ETAG)?;
    EntityTag::parse(value).filter(|tag| !tag.weak).map(|_| value)
}

/// Returns whether a response with these fields belongs to a body whose parts can be requested and joined: it has a
/// strong entity tag, and its origin says that it serves byte ranges.
pub fn is_divisible(fields: &impl Fields) -> bool {
    let has_bytes = |value: &[u8]| value.eq_ignore_ascii_case(b"bytes");
    strong_tag(fields).is_some() && fields.first(&header::ACCEPT_RANGES).is_some_and(has_bytes)
}

/// Some bytes, with their position in the body.
#[derive(Clone)]
pub(crate) struct PlacedBytes {
    /// Position in the body of the first byte.
    pub start: u64,
    /// The bytes of the body from `start` on.
    pub bytes: Bytes,
}

impl ChunkedBody {
    /// Creates the body that belongs to `head`. Not all its chunks need be stored.
    pub fn new(cache: &Arc<ResponseCache>, place: BodyKeys, head: &StoredHead, len: Option<u64>) -> Self {
        let validator = partial::validator(head.fields(), head.response_time());
        let validator = validator.map(|value| HeaderValue::from_bytes(value).expect("it was a field's value"));
        let cache = Arc::clone(cache);
        let is_divisible = is_divisible(head.fields());
        let len = len.map(OnceLock::from).unwrap_or_default();
        Self { cache, place, len, validator, is_divisible }
    }

    /// Returns the length of the whole body in bytes. `None` until it is known.
    pub fn body_len(&self) -> Option<u64> {
        self.len.get().copied()
    }

    /// Sets the length of a body that has arrived. Does nothing if a length is set already.
    pub fn set_len(&self, len: u64) {
        let _ = self.len.set(len);
    }

    /// Returns the body of a stored response. `primary` is the key of its resource. `None` if the body is not in
    /// chunks.
    pub fn of(cache: &Arc<ResponseCache>, primary: &Arc<[u8]>, key: &Arc<[u8]>, entry: &CachedEntry) -> Option<Self> {
        let EntryBody::Chunks { len, representation } = entry.body else { return None };
        let place = BodyKeys { primary: Arc::clone(primary), key: Arc::clone(key), representation };
        Some(Self::new(cache, place, &entry.head, Some(len)))
    }

    /// Returns this body in a form whose missing bytes are never requested from the origin. Used where a digest is
    /// checked: that needs the whole body, in order.
    pub fn without_rest(self) -> Self {
        Self { validator: None, ..self }
    }

    /// Returns whether missing bytes can be requested from the origin. That requires a known length and a validator.
    pub fn can_go_on(&self) -> bool {
        self.body_len().is_some() && self.validator.is_some()
    }

    /// Returns bytes of chunk `number`, which are the range `range` of the body, from memory or from the store.
    ///
    /// # Errors
    /// The bytes are not stored, or the store does not respond.
    #[doc(hidden)] // for larder-proxy
    pub async fn read(&self, number: u64, range: Range<u64>, waiting: ReadPatience) -> Result<Bytes, AbsenceReason> {
        let span = self.span(number);
        let key = self.chunk_key(number);
        if let Some(HotContent::Chunk(bytes)) = self.cache.shared.hot.get_with(&key, HotItem::content) {
            let whole = PlacedBytes { start: span.start, bytes };
            if let Some(bytes) = whole.slice(range.clone()).filter(|_| whole.span() == span) {
                return Ok(bytes);
            }
        }
        match self.read_from_store(&key, &span, &range, waiting).await? {
            Some(bytes) => Ok(bytes),
            None => {
                let fragment = Box::pin(self.read_fragment(number)).await;
                fragment.and_then(|fragment| fragment.slice(range)).ok_or(AbsenceReason::Gap)
            }
        }
    }

    /// Reads a part of a chunk from the store, or from the second tier. `span` is the chunk's range of the body.
    async fn read_from_store(
        &self,
        key: &[u8],
        span: &Range<u64>,
        range: &Range<u64>,
        waiting: ReadPatience,
    ) -> Result<Option<Bytes>, StoreTrouble> {
        let shared = &self.cache.shared;
        let Some(store) = &shared.store else { return Ok(None) };
        let moment = shared.hot.moment();
        let is_whole = range == span;
        let found = match lookup::ask(&self.cache, waiting, read_chunk(store, key, span, range)).await? {
            // A part is copied to release the larger buffer, which has whole blocks.
            Some(bytes) if !is_whole => Some(Bytes::copy_from_slice(&bytes)),
            Some(bytes) => Some(bytes),
            None => self.read_from_tier(key, span, range).await,
        };
        if let Some(bytes) = found.as_ref().filter(|_| is_whole) {
            shared.hot.insert(key, HotItem::chunk(bytes.clone()), moment);
        }
        Ok(found)
    }

    /// Reads a part of a chunk from the second tier. `span` is the chunk's range of the body. `None` if the tier does
    /// not have the chunk.
    async fn read_from_tier(&self, key: &[u8], span: &Range<u64>, range: &Range<u64>) -> Option<Bytes> {
        let (_, bytes) = tiered::find(&self.cache, key).await?;
        let whole = PlacedBytes { start: span.start, bytes };
        whole.slice(range.clone()).filter(|_| whole.span() == *span)
    }

    /// Probes the store for chunk `number`, and remembers its location.
    pub(crate) async fn probe(&self, number: u64) -> ProbeEnd {
        let Some(store) = &self.cache.shared.store else { return ProbeEnd::Absent };
        if self.was_seen(number) {
            return ProbeEnd::Whole;
        }
        let key = self.chunk_key(number);
        let seen = if store.may_contain(&key) {
            match lookup::ask(&self.cache, ReadPatience::Short, store.locate(&key)).await {
                Ok(seen) => seen,
                Err(StoreTrouble) => return ProbeEnd::Trouble,
            }
        } else {
            None
        };
        if let Some(known) = self.known() {
            known.note(number, seen.map_or(ChunkSighting::Absent, ChunkSighting::Seen));
        }
        // If the second tier then does not respond in time, the chunk is a gap, which the origin fills.
        if seen.is_some() || tiered::has(&self.cache, &key) {
            return ProbeEnd::Whole;
        }
        let fragment = Box::pin(self.read_fragment(number)).await;
        fragment.map_or(ProbeEnd::Absent, |fragment| ProbeEnd::Part(fragment.span()))
    }

    /// Reads the fragment of chunk `number`, an entry with a part of the chunk. `None` if no fragment is stored.
    pub(crate) async fn read_fragment(&self, number: u64) -> Option<PlacedBytes> {
        let key = fragment_key(&self.place.key, self.place.representation, number);
        let store = self.cache.shared.store.as_ref().filter(|store| store.may_contain(&key))?;
        let (reader, bytes) = lookup::read(&self.cache, store, &key).await?;
        let start = u64::from_le_bytes(reader.head().as_ref().try_into().ok()?);
        let fragment = PlacedBytes { start, bytes };
        covers(&self.span(number), &fragment.span()).then_some(fragment)
    }

    /// Returns the range of the body that chunk `number` contains.
    pub fn span(&self, number: u64) -> Range<u64> {
        chunk_span(number, self.body_len())
    }

    /// Returns the key of chunk `number`.
    pub fn chunk_key(&self, number: u64) -> Vec<u8> {
        chunk_key(&self.place.key, self.place.representation, number)
    }

    /// Returns the known locations of the body's chunks in the store. `None` until the body's length is known.
    pub(crate) fn known(&self) -> Option<Arc<BodySightings>> {
        self.body_len().map(|len| self.cache.shared.sightings.of(self.place.representation, len))
    }

    /// Returns whether the store probably has chunk `number`. Consults only the index in memory.
    pub fn seems_there(&self, number: u64) -> bool {
        let Some(store) = &self.cache.shared.store else { return false };
        if tiered::has(&self.cache, &self.chunk_key(number)) {
            return true;
        }
        match self.known().map_or(ChunkSighting::Nothing, |known| known.known(number)) {
            ChunkSighting::Absent => false,
            ChunkSighting::Nothing | ChunkSighting::Seen(_) => store.may_contain(&self.chunk_key(number)),
        }
    }

    /// Returns whether chunk `number` was found in the store, and has not moved since.
    pub fn was_seen(&self, number: u64) -> bool {
        let Some((store, known)) = self.cache.shared.store.as_ref().zip(self.known()) else { return false };
        matches!(known.known(number), ChunkSighting::Seen(sighting) if store.is_at(&self.chunk_key(number), sighting))
    }

    /// Stores chunk `number`, and remembers its location. Returns whether the store took it.
    pub async fn store_chunk(&self, number: u64, pieces: Vec<Bytes>) -> bool {
        let key = self.chunk_key(number);
        if !storing::commit_chunk(&self.cache, &self.place.primary, &key, pieces).await {
            return false;
        }
        if let (Some(store), Some(known)) = (&self.cache.shared.store, self.known()) {
            // The new entry is still in memory, so one poll is usually enough. If not, a later reader finds the
            // location.
            let mut looking = pin!(store.locate(&key));
            let seen = poll_fn(|context| Poll::Ready(looking.as_mut().poll(context))).await;
            let seen = if let Poll::Ready(Ok(Some(sighting))) = seen {
                ChunkSighting::Seen(sighting)
            } else {
                ChunkSighting::Nothing
            };
            known.note(number, seen);
        }
        true
    }

    /// Stores a part of chunk `number` as the chunk's fragment. Returns whether the store took it.
    pub(crate) async fn store_fragment(&self, number: u64, part: PlacedBytes) -> bool {
        debug_assert!(covers(&self.span(number), &part.span()), "a fragment is in one chunk");
        let key = fragment_key(&self.place.key, self.place.representation, number);
        storing::commit_fragment(&self.cache, &self.place.primary, &key, part.start, part.bytes).await
    }

    /// Removes the stored head, because the origin now has another representation. Does nothing if the head is no
    /// longer that of this body.
    pub async fn forget(&self) {
        if lookup::representation(&self.cache, &self.place.key).await == Some(self.place.representation) {
            drop(storing::remove(&self.cache, &self.place.key).await);
        }
    }
}

impl PlacedBytes {
    /// Returns the range of the body that these bytes are.
    pub(crate) fn span(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// Returns the bytes of `span`, a range of the body. `None` unless all of them are here.
    pub(crate) fn slice(&self, span: Range<u64>) -> Option<Bytes> {
        let first = usize::try_from(span.start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(span.end.checked_sub(self.start)?).ok()?;
        (first <= end && end <= self.bytes.len()).then(|| self.bytes.slice(first..end))
    }
}

/// Returns whether `inner` lies entirely within `outer`.
pub fn covers(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
