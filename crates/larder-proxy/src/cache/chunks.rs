//! Long bodies in chunks of their own entries: reading one, and fetching one that is gone.
//!
//! Owns: the chunks' keys and the repair. Does not: stream, see `chunk_reader`. Invariant: a chunk handed out
//! is exactly the bytes of that place in that representation: either the store verified it under the
//! representation's own key, or the origin sent it for the very same strong entity tag and length
//! (RFC 9110 14.4, 15.3.7.3). Where neither is possible it is an error, never other bytes. Of a chunk that is not there
//! one fragment may be (RFC 9111 3.4); what is missing is fetched once, however many wait for it.
//! Cost: one device read per chunk; for one that is missing a lookup more, for its fragment.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode, header};
use larder_http::{RangeOutcome, Reuse, entity_tag::EntityTag, key, range, reuse};
use larder_store::Writer;

use crate::{
    asked::{Asked, Edits},
    cache::{
        entry::{Entry, EntryBody},
        hot::Hot,
        lookup::{self, Found},
        storing,
    },
    client::response_body::BodyError,
    origin::{
        body::OriginBody,
        pool::{self, Outgoing, Repeat},
    },
    worker::Worker,
};

/// Length of every chunk of a body but the last, in bytes.
pub(crate) const CHUNK_BYTES: u64 = Writer::BODY_MAX_BYTES;

/// A body that is stored in chunks.
pub(crate) struct ChunkedBody {
    pub(crate) worker: Arc<Worker>,
    /// The request it is read for, by which missing chunks can be fetched.
    pub(crate) asked: Arc<Asked>,
    /// The resource's key.
    pub(crate) primary: Arc<[u8]>,
    /// The key of the entry that has the head.
    pub(crate) key: Arc<[u8]>,
    pub(crate) representation: u64,
    /// Length of the whole, once known.
    pub(crate) len: Option<u64>,
    /// The strong entity tag, if there is one.
    pub(crate) entity_tag: Option<HeaderValue>,
}

/// The strong entity tag among a response's fields, if it has one.
pub(crate) fn strong_tag(fields: &http::HeaderMap) -> Option<HeaderValue> {
    let value = fields.get(header::ETAG)?;
    EntityTag::parse(value.as_bytes()).filter(|tag| !tag.weak).map(|_| value.clone())
}

/// Whether a stored response's body can be served to its end, as far as memory tells: its chunks are there,
/// or the origin announced that it can be asked for those that are not. Cost: one lookup in the store's
/// index per chunk, no transfer.
fn is_servable(worker: &Worker, key: &[u8], entry: &Entry) -> bool {
    let EntryBody::Chunks { len, representation } = entry.body else { return true };
    let fields = entry.head.fields();
    let announced =
        fields.get(header::ACCEPT_RANGES).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"bytes"));
    if announced && strong_tag(fields).is_some() {
        return true;
    }
    let Some(store) = &worker.shared.store else { return false };
    (0..len.div_ceil(CHUNK_BYTES)).all(|number| store.may_contain(&key::chunk_key(key, representation, number)))
}

/// Whether a stored response can answer a request: its body can be served to its end, or it is fresh and what is wanted of
/// it is there, though the origin cannot be asked for the rest, or must not be (RFC 9111 5.2.1.7). Cost: none where memory
/// tells; else a transfer for each chunk of which only a fragment is there.
pub(crate) async fn serves(worker: &Arc<Worker>, asked: &Arc<Asked>, found: &Found) -> bool {
    let EntryBody::Chunks { len, .. } = found.entry.body else { return true };
    let (head, settings) = (&found.entry.head, &worker.shared.config.http);
    let alone = asked.method == Method::GET && reuse::is_only_if_cached(&asked.fields, settings);
    if !alone && is_servable(worker, &found.key, &found.entry) {
        return true;
    }
    let wanted = match range::select(&asked.method, &asked.fields, head, len) {
        RangeOutcome::Single { first, last } => first..last + 1,
        RangeOutcome::Whole if alone => 0..len,
        RangeOutcome::Whole | RangeOutcome::Many(_) | RangeOutcome::NotSatisfiable => return false,
    };
    let decision = reuse::decide(&asked.method, &asked.fields, head, worker.now(), settings);
    let Some(body) = ChunkedBody::of(worker, asked, &found.key, &found.entry) else { return false };
    matches!(decision, Reuse::Fresh { .. }) && body.has(wanted).await
}

/// Bytes and their place in the whole.
#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) start: u64,
    pub(crate) bytes: Bytes,
}

impl ChunkedBody {
    /// The body of a stored response, for a request; `None` if it is in one piece.
    pub(crate) fn of(worker: &Arc<Worker>, asked: &Arc<Asked>, key: &Arc<[u8]>, entry: &Entry) -> Option<Self> {
        let EntryBody::Chunks { len, representation } = entry.body else { return None };
        Some(Self {
            worker: Arc::clone(worker),
            asked: Arc::clone(asked),
            primary: Arc::clone(asked.key.as_ref()?),
            key: Arc::clone(key),
            representation,
            len: Some(len),
            entity_tag: strong_tag(entry.head.fields()),
        })
    }

    /// The bytes of chunk `number`.
    pub(crate) async fn read(self: Arc<Self>, number: u64) -> Result<Bytes, BodyError> {
        let span = self.span(number);
        self.read_within(number, span).await.map(|placed| placed.bytes)
    }

    /// Bytes of chunk `number` among which are those of `wanted` that are in it.
    pub(crate) async fn read_within(self: Arc<Self>, number: u64, wanted: Range<u64>) -> Result<Placed, BodyError> {
        let key = key::chunk_key(&self.key, self.representation, number);
        let span = self.span(number);
        if let Some(bytes) = self.read_chunk(&key, &span).await {
            return Ok(Placed { start: span.start, bytes });
        }
        let fragment = self.read_fragment(number, &span).await;
        let wanted = wanted.start.max(span.start)..wanted.end.min(span.end);
        if let Some(fragment) = fragment.as_ref().filter(|fragment| covers(&fragment.span(), &wanted)) {
            return Ok(fragment.clone());
        }
        let fetches = &self.worker.shared.chunk_fetches;
        let bytes = fetches.once(&key, self.complete(&key, &span, fragment)).await;
        match bytes {
            Some(bytes) => Ok(Placed { start: span.start, bytes }),
            None => {
                self.forget().await;
                Err(BodyError::PartMissing)
            }
        }
    }

    /// Whether these bytes of the whole are there, as far as memory and fragments tell.
    async fn has(&self, wanted: Range<u64>) -> bool {
        let Some(store) = &self.worker.shared.store else { return false };
        for number in wanted.start / CHUNK_BYTES..wanted.end.div_ceil(CHUNK_BYTES) {
            let span = self.span(number);
            let within = wanted.start.max(span.start)..wanted.end.min(span.end);
            if !store.may_contain(&key::chunk_key(&self.key, self.representation, number))
                && !self.read_fragment(number, &span).await.is_some_and(|fragment| covers(&fragment.span(), &within))
            {
                return false;
            }
        }
        true
    }

    /// The bytes of the whole that are chunk `number`.
    fn span(&self, number: u64) -> Range<u64> {
        let start = number * CHUNK_BYTES;
        let end = start + CHUNK_BYTES;
        start..self.len.map_or(end, |len| end.min(len).max(start))
    }

    /// A chunk from memory or store.
    async fn read_chunk(&self, key: &[u8], span: &Range<u64>) -> Option<Bytes> {
        let expected = span.end - span.start;
        if let Some(Hot::Chunk(bytes)) = self.worker.shared.hot.find(key)
            && bytes.len() as u64 == expected
        {
            return Some(bytes);
        }
        self.read_stored(key).await.filter(|bytes| bytes.len() as u64 == expected)
    }

    /// The fragment of a chunk, if one is stored.
    async fn read_fragment(&self, number: u64, span: &Range<u64>) -> Option<Placed> {
        let key = key::fragment_key(&self.key, self.representation, number);
        let store = self.worker.shared.store.as_ref().filter(|store| store.may_contain(&key))?;
        let (reader, bytes) = lookup::read(&self.worker, store, &key).await?;
        let start = u64::from_le_bytes(reader.head().as_ref().try_into().ok()?);
        let fragment = Placed { start, bytes };
        covers(span, &fragment.span()).then_some(fragment)
    }

    /// Fetches what a fragment lacks of its chunk, or all of it, and stores the chunk.
    async fn complete(&self, key: &[u8], span: &Range<u64>, fragment: Option<Placed>) -> Option<Bytes> {
        // Somebody may have done it since this was looked for.
        if let Some(bytes) = self.read_chunk(key, span).await {
            return Some(bytes);
        }
        let bytes = match fragment {
            Some(fragment) if fragment.start == span.start => {
                let rest = self.fetch(fragment.span().end..span.end).await?;
                [fragment.bytes, rest].concat().into()
            }
            Some(fragment) if fragment.span().end == span.end => {
                let rest = self.fetch(span.start..fragment.start).await?;
                [rest, fragment.bytes].concat().into()
            }
            _ => self.fetch(span.clone()).await?,
        };
        // If it cannot be stored again, that is counted, and the next reader fetches it again.
        storing::commit_chunk(&self.worker, &self.primary, key, vec![bytes.clone()]).await;
        Some(bytes)
    }

    /// Stores what arrived of the body, chunk by chunk; of a chunk that is not all there, as its fragment.
    pub(crate) async fn keep(&self, arrived: &Placed) {
        let mut start = arrived.start;
        while start < arrived.span().end {
            let number = start / CHUNK_BYTES;
            let span = self.span(number);
            let end = arrived.span().end.min(span.end);
            let Some(bytes) = arrived.slice(start..end) else { return };
            if start == span.start && end == span.end {
                let key = key::chunk_key(&self.key, self.representation, number);
                storing::commit_chunk(&self.worker, &self.primary, &key, vec![bytes]).await;
            } else {
                let key = key::fragment_key(&self.key, self.representation, number);
                storing::commit_fragment(&self.worker, &self.primary, &key, (start, bytes)).await;
            }
            start = end;
        }
    }

    async fn read_stored(&self, key: &[u8]) -> Option<Bytes> {
        let hot = &self.worker.shared.hot;
        let store = self.worker.shared.store.as_ref()?;
        let moment = hot.moment();
        let (_, bytes) = lookup::read(&self.worker, store, key).await?;
        hot.insert(key, Hot::Chunk(bytes.clone()), moment);
        Some(bytes)
    }

    /// Asks the origin for a span of the same representation.
    async fn fetch(&self, span: Range<u64>) -> Option<Bytes> {
        let (len, entity_tag) = (self.len?, self.entity_tag.as_ref()?);
        let (first, last) = (span.start, span.end.checked_sub(1)?);
        let to = if span.end == len { String::new() } else { last.to_string() };
        let range = HeaderValue::try_from(format!("bytes={first}-{to}")).ok()?;
        let added = vec![(header::RANGE, range), (header::IF_RANGE, entity_tag.clone())];
        let edits = Edits { whole: true, added };
        let outgoing = Outgoing {
            origin: self.asked.origin.clone(),
            choice: self.asked.choice.clone(),
            repeat: Repeat::Safe,
            make: || self.asked.outgoing(&self.worker.shared, &edits),
        };
        self.worker.metrics.origin_requests.add(1);
        let (response, lease) = pool::send(&self.worker, outgoing).await.ok()?;
        let (head, incoming) = response.into_parts();
        let expected_range = larder_http::range::content_range(first, last, len);
        let same = head.status == StatusCode::PARTIAL_CONTENT
            && head.headers.get(header::CONTENT_RANGE) == Some(&expected_range)
            && head.headers.get(header::ETAG) == Some(entity_tag);
        if !same {
            return None;
        }
        let body = OriginBody::new(incoming, lease, Arc::clone(&self.worker));
        collect(body, usize::try_from(span.end - span.start).ok()?).await
    }

    /// Drops the head: what it promises is not all there any more.
    async fn forget(&self) {
        if self.len.is_none() {
            return;
        }
        storing::remove(&self.worker, &self.key).await;
    }
}

impl Placed {
    pub(crate) fn span(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }

    /// The bytes at these places of the whole, if they are all here.
    pub(crate) fn slice(&self, span: Range<u64>) -> Option<Bytes> {
        let first = usize::try_from(span.start.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(span.end.checked_sub(self.start)?).ok()?;
        (first <= end && end <= self.bytes.len()).then(|| self.bytes.slice(first..end))
    }
}

fn covers(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// All of a body that must have exactly `len` bytes.
pub(crate) async fn collect(mut body: OriginBody, len: usize) -> Option<Bytes> {
    let mut collected = BytesMut::with_capacity(len);
    while let Some(piece) = std::future::poll_fn(|context| body.poll_data(context)).await {
        let piece = piece.ok()?;
        if collected.len() + piece.len() > len {
            return None;
        }
        collected.extend_from_slice(&piece);
    }
    (collected.len() == len).then(|| collected.freeze())
}
