//! Stores and reads long bodies, which are stored in chunks with one entry each.
//!
//! Owns: the chunks' keys, and reads from memory and the store. `chunk_reader` streams a body, `presence` determines
//! beforehand which chunks exist, and `flight::rest` fetches missing ones.
//!
//! Invariant: the bytes returned are exactly the bytes at that position of that representation. Either the store
//! verified them under the representation's own key, or the origin sent them under the same strong validator and length
//! (RFC 9110 14.4, 15.3.7.3). A missing chunk may have one stored fragment (RFC 9111 3.4). If memory is short, parts of
//! chunks are read instead of whole ones.
//!
//! Cost: one device read per chunk, shared by concurrent readers, or two for a part of a chunk. A missing chunk costs
//! one more lookup, for its fragment.

use larder_device::IgnorePoison;
use std::{
    future::poll_fn,
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
};

use bytes::Bytes;
use http::{HeaderValue, header};
use larder_http::{StoredHead, entity_tag::EntityTag, key, partial};

use crate::{
    body_budget::SHARE_BYTES_MIN,
    cache::{
        Cache,
        entry::{CHUNK_BYTES, CachedEntry, EntryBody},
        hot::HotItem,
        lookup::{self, StoreTrouble},
        patience::ReadPatience,
        shared_reads::{AbsenceReason, KeptPiece, PiecePlace, SharedPiece},
        sightings::{BodySightings, ChunkSighting},
        storing, tiered,
    },
};

/// A body that is stored in chunks.
pub(crate) struct ChunkedBody {
    pub(crate) cache: Arc<Cache>,
    pub(crate) place: BodyKeys,
    /// Length of the whole body, once known.
    pub(crate) len: Option<u64>,
    /// The validator that distinguishes this representation from others (RFC 9110 8.8.1), if it has one.
    pub(crate) validator: Option<HeaderValue>,
    /// Whether the origin sends any part of the body on request.
    pub(crate) is_divisible: bool,
    /// The piece that the reader takes in parts.
    kept: Mutex<Option<KeptPiece>>,
}

/// The keys of a body's resource and entry.
#[derive(Clone)]
pub(crate) struct BodyKeys {
    /// The resource's key.
    pub(crate) primary: Arc<[u8]>,
    /// The key of the entry that holds the head.
    pub(crate) key: Arc<[u8]>,
    pub(crate) representation: u64,
}

impl From<StoreTrouble> for AbsenceReason {
    fn from(_: StoreTrouble) -> Self {
        Self::Trouble
    }
}

/// Returns the strong entity tag in a response's fields, if there is one.
pub(crate) fn strong_tag(fields: &http::HeaderMap) -> Option<HeaderValue> {
    let value = fields.get(header::ETAG)?;
    EntityTag::parse(value.as_bytes()).filter(|tag| !tag.weak).map(|_| value.clone())
}

/// Returns whether the origin of a response with these fields says that it sends any part of the body on request, and
/// whether parts can be recognized as belonging together.
pub(crate) fn is_divisible(fields: &http::HeaderMap) -> bool {
    let has_bytes = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"bytes");
    strong_tag(fields).is_some() && fields.get(header::ACCEPT_RANGES).is_some_and(has_bytes)
}

/// Bytes and their position in the body.
#[derive(Clone)]
pub(crate) struct PlacedBytes {
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
}

impl ChunkedBody {
    /// Creates the body of `head`. The body need not be complete.
    pub(crate) fn new(cache: &Arc<Cache>, place: BodyKeys, head: &StoredHead, len: Option<u64>) -> Self {
        let validator = partial::validator(head.fields(), head.response_time()).cloned();
        let cache = Arc::clone(cache);
        let is_divisible = is_divisible(head.fields());
        Self { cache, place, len, validator, is_divisible, kept: Mutex::default() }
    }

    /// Returns the body of a stored response of the resource `primary`. `None` if the body is not in chunks.
    pub(crate) fn of(cache: &Arc<Cache>, primary: &Arc<[u8]>, key: &Arc<[u8]>, entry: &CachedEntry) -> Option<Self> {
        let EntryBody::Chunks { len, representation } = entry.body else { return None };
        let place = BodyKeys { primary: Arc::clone(primary), key: Arc::clone(key), representation };
        Some(Self::new(cache, place, &entry.head, Some(len)))
    }

    /// Returns this body in a form that never asks the origin for the remainder. A digest check needs a complete body.
    pub(crate) fn without_rest(self) -> Self {
        Self { validator: None, ..self }
    }

    /// Returns whether missing parts can be requested from the origin, which needs a known length and validator.
    pub(crate) fn can_go_on(&self) -> bool {
        self.len.is_some() && self.validator.is_some()
    }

    /// Returns bytes of chunk `number` from memory or the store, which include the first of the `wanted` bytes in it.
    /// Their number depends on the free memory.
    pub(crate) async fn read(
        self: &Arc<Self>,
        number: u64,
        wanted: Range<u64>,
        waiting: ReadPatience,
    ) -> Result<PlacedBytes, AbsenceReason> {
        let span = self.span(number);
        let wanted = wanted.start.max(span.start)..wanted.end.min(span.end);
        let key = self.chunk_key(number);
        if let Some(HotItem::Chunk(bytes)) = self.cache.shared.hot.get(&key)
            && bytes.len() as u64 == span.end - span.start
        {
            return Ok(PlacedBytes { start: span.start, bytes });
        }
        let place = self.piece_at(&span, wanted.start, waiting);
        let read = self.cache.shared.reads.find_or_begin(place, || self.begin_reading(number, place, waiting));
        match read.get().await {
            Ok(piece) => Ok(self.share_of(piece, place, wanted.start)),
            Err(AbsenceReason::Trouble) => Err(AbsenceReason::Trouble),
            Err(AbsenceReason::Gap) => {
                let fragment = Box::pin(self.read_fragment(number)).await;
                fragment.filter(|fragment| covers(&fragment.span(), &wanted)).ok_or(AbsenceReason::Gap)
            }
        }
    }

    /// Returns the piece to read for the byte at `position` of the chunk `span`: the whole chunk if it is in memory or
    /// there is memory for it, otherwise one block of it.
    fn piece_at(&self, span: &Range<u64>, position: u64, waiting: ReadPatience) -> PiecePlace {
        let shared = &self.cache.shared;
        let representation = self.place.representation;
        let is_patient = waiting == ReadPatience::Long;
        let whole = PiecePlace { representation, start: span.start, end: span.end, is_patient };
        let len = span.end - span.start;
        if len <= BLOCK_BYTES || shared.bodies.share_bytes() >= len || shared.reads.find(&whole).is_some() {
            return whole;
        }
        let start = position - (position - span.start) % BLOCK_BYTES;
        PiecePlace { start, end: span.end.min(start + BLOCK_BYTES), ..whole }
    }

    /// Begins to read a piece of chunk `number` from the store.
    fn begin_reading(
        self: &Arc<Self>,
        number: u64,
        place: PiecePlace,
        waiting: ReadPatience,
    ) -> impl Future<Output = Result<Bytes, AbsenceReason>> + Send + use<> {
        let body = Arc::clone(self);
        let bodies = Arc::clone(&self.cache.shared.bodies);
        let len = place.end - place.start;
        // Counted before the task runs, so that the reads that begin together see each other. If memory is short, the
        // read first waits for others.
        let reserved = (!bodies.is_scarce()).then(|| bodies.reserve(len));
        async move {
            let (_turn, reserved) = match reserved {
                Some(reserved) => (None, reserved),
                None => (bodies.begin_read().await, bodies.reserve(len)),
            };
            body.read_from_store(number, place, waiting).await.map(|bytes| reserved.hold(bytes))
        }
    }

    /// Reads a piece of chunk `number` from the store.
    async fn read_from_store(
        &self,
        number: u64,
        place: PiecePlace,
        waiting: ReadPatience,
    ) -> Result<Bytes, AbsenceReason> {
        let shared = &self.cache.shared;
        let store = shared.store.as_ref().ok_or(AbsenceReason::Gap)?;
        let moment = shared.hot.moment();
        let key = self.chunk_key(number);
        let span = self.span(number);
        let len = span.end - span.start;
        let is_whole = place.end - place.start == len;
        let reading = async {
            let reader = if is_whole { store.get(&key).await? } else { store.front(&key).await? };
            let Some(reader) = reader.filter(|reader| reader.len() == len) else { return Ok(None) };
            reader.read(place.start - span.start..place.end - span.start).await
        };
        let bytes = match lookup::ask(&self.cache, waiting, reading).await? {
            Some(bytes) => bytes,
            None => self.read_from_tier(&key, &span, place).await.ok_or(AbsenceReason::Gap)?,
        };
        if is_whole {
            shared.hot.insert(&key, HotItem::Chunk(bytes.clone()), moment);
        }
        Ok(bytes)
    }

    /// Reads a piece of the chunk `span` from the second tier.
    async fn read_from_tier(&self, key: &[u8], span: &Range<u64>, place: PiecePlace) -> Option<Bytes> {
        let (_, body) = tiered::find(&self.cache, key).await?;
        let within = |at: u64| usize::try_from(at - span.start).ok();
        let start = within(place.start)?;
        let end = within(place.end)?;
        (body.len() as u64 == span.end - span.start).then(|| body.slice(start..end))
    }

    /// Returns one reader's part of a piece, from its start or from `position`.
    ///
    /// If memory is short, a reader that shares the piece with no other gets only the start of it, so that it holds
    /// little if it stands still.
    fn share_of(&self, piece: SharedPiece, place: PiecePlace, position: u64) -> PlacedBytes {
        let shared = &self.cache.shared;
        let mut kept = self.kept.lock().ignore_poison();
        let is_kept = kept.as_ref().is_some_and(|kept| kept.is_of(&piece));
        let bytes = piece.as_ref();
        if bytes.len() as u64 > BLOCK_BYTES || !shared.bodies.is_scarce() || piece.is_shared(is_kept) {
            *kept = None;
            return PlacedBytes { start: place.start, bytes: piece.into_bytes() };
        }
        let first = usize::try_from(position - place.start).unwrap_or(usize::MAX).min(bytes.len());
        let end = bytes.len().min(first + SHARE_BYTES_MIN as usize);
        let part = shared.bodies.count(Bytes::copy_from_slice(&bytes[first..end]));
        if end == bytes.len() {
            *kept = None;
        } else if !is_kept {
            *kept = Some(shared.reads.keep(piece));
        }
        PlacedBytes { start: position, bytes: part }
    }

    /// Reads the fragment of a chunk, if one is stored.
    pub(crate) async fn read_fragment(&self, number: u64) -> Option<PlacedBytes> {
        let key = key::fragment_key(&self.place.key, self.place.representation, number);
        let store = self.cache.shared.store.as_ref().filter(|store| store.may_contain(&key))?;
        let (reader, bytes) = lookup::read(&self.cache, store, &key).await?;
        let start = u64::from_le_bytes(reader.head().as_ref().try_into().ok()?);
        let fragment = PlacedBytes { start, bytes };
        covers(&self.span(number), &fragment.span()).then_some(fragment)
    }

    /// Returns the byte range of chunk `number` within the body.
    pub(crate) fn span(&self, number: u64) -> Range<u64> {
        let start = number * CHUNK_BYTES;
        let end = start + CHUNK_BYTES;
        start..self.len.map_or(end, |len| end.min(len).max(start))
    }

    pub(crate) fn chunk_key(&self, number: u64) -> Vec<u8> {
        key::chunk_key(&self.place.key, self.place.representation, number)
    }

    /// Returns the known locations of the body's chunks, once its length is known.
    pub(crate) fn known(&self) -> Option<Arc<BodySightings>> {
        self.len.map(|len| self.cache.shared.sightings.of(self.place.representation, len))
    }

    /// Returns whether chunk `number` appears to be stored. Looks only in memory.
    pub(crate) fn seems_there(&self, number: u64) -> bool {
        let Some(store) = &self.cache.shared.store else { return false };
        if tiered::has(&self.cache, &self.chunk_key(number)) {
            return true;
        }
        match self.known().map_or(ChunkSighting::Nothing, |known| known.known(number)) {
            ChunkSighting::Absent => false,
            ChunkSighting::Nothing | ChunkSighting::Seen(_) => store.may_contain(&self.chunk_key(number)),
        }
    }

    /// Returns whether chunk `number` was seen and has not moved since.
    pub(crate) fn was_seen(&self, number: u64) -> bool {
        let Some((store, known)) = self.cache.shared.store.as_ref().zip(self.known()) else { return false };
        matches!(known.known(number), ChunkSighting::Seen(sighting) if store.is_at(&self.chunk_key(number), sighting))
    }

    /// Stores chunk `number`, and remembers its location.
    pub(crate) async fn store_chunk(&self, number: u64, pieces: Vec<Bytes>) -> bool {
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

    /// Stores the received part of the body chunk by chunk, and an incomplete chunk as a fragment.
    pub(crate) async fn keep(&self, arrived: &PlacedBytes) {
        let mut start = arrived.start;
        while start < arrived.span().end {
            let number = start / CHUNK_BYTES;
            let span = self.span(number);
            let end = arrived.span().end.min(span.end);
            let Some(bytes) = arrived.slice(start..end) else { return };
            if start == span.start && end == span.end {
                self.store_chunk(number, vec![bytes]).await;
            } else {
                let key = key::fragment_key(&self.place.key, self.place.representation, number);
                storing::commit_fragment(&self.cache, &self.place.primary, &key, start, bytes).await;
            }
            start = end;
        }
    }

    /// Removes the head if it still belongs to this body. Called when the origin has another representation.
    pub(crate) async fn forget(&self) {
        if lookup::representation(&self.cache, &self.place.key).await == Some(self.place.representation) {
            drop(storing::remove(&self.cache, &self.place.key).await);
        }
    }
}

impl PlacedBytes {
    pub(crate) fn span(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// Returns the bytes of this range of the body if all of them are present.
    pub(crate) fn slice(&self, span: Range<u64>) -> Option<Bytes> {
        let first = usize::try_from(span.start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(span.end.checked_sub(self.start)?).ok()?;
        (first <= end && end <= self.bytes.len()).then(|| self.bytes.slice(first..end))
    }
}

/// Length of a read if there is no memory for a whole chunk. The store has a checksum for each block of this size.
const BLOCK_BYTES: u64 = 64 << 10;

pub(crate) fn covers(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
