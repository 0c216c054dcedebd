//! Long bodies in chunks of their own entries: reading one, and fetching one that is gone.
//!
//! Owns: the chunks' keys and the repair. Does not: stream, see `chunk_reader`. Invariant: a chunk handed out
//! is exactly the bytes of that place in that representation: either the store verified it under the
//! representation's own key, or the origin sent it for the very same strong entity tag and length
//! (RFC 9110 14.4, 15.3.7.3). Where neither is possible it is an error, never other bytes.
//! Cost: one device read per chunk.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use larder_http::{entity_tag::EntityTag, key};
use larder_store::Writer;

use crate::{
    asked::{Asked, Edits},
    cache::{
        entry::{Entry, EntryBody},
        hot::Hot,
        lookup, storing,
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
pub(crate) fn is_servable(worker: &Worker, key: &[u8], entry: &Entry) -> bool {
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

impl ChunkedBody {
    /// The bytes of chunk `number`.
    pub(crate) async fn read(self: Arc<Self>, number: u64) -> Result<Bytes, BodyError> {
        let key = key::chunk_key(&self.key, self.representation, number);
        let span = self.span(number);
        let expected = span.end - span.start;
        if let Some(Hot::Chunk(bytes)) = self.worker.shared.hot.find(&key)
            && bytes.len() as u64 == expected
        {
            return Ok(bytes);
        }
        if let Some(bytes) = self.read_stored(&key).await
            && bytes.len() as u64 == expected
        {
            return Ok(bytes);
        }
        match self.fetch(span).await {
            Some(bytes) => {
                // If it cannot be stored again, that is counted, and the next reader fetches it again.
                storing::commit_chunk(&self.worker, &self.primary, &key, vec![bytes.clone()]).await;
                Ok(bytes)
            }
            None => {
                self.forget().await;
                Err(BodyError::PartMissing)
            }
        }
    }

    /// The bytes of the whole that are chunk `number`.
    fn span(&self, number: u64) -> Range<u64> {
        let start = number * CHUNK_BYTES;
        let end = start + CHUNK_BYTES;
        start..self.len.map_or(end, |len| end.min(len).max(start))
    }

    async fn read_stored(&self, key: &[u8]) -> Option<Bytes> {
        let hot = &self.worker.shared.hot;
        let store = self.worker.shared.store.as_ref()?;
        let epoch = hot.epoch(key);
        let (_, bytes) = lookup::read(&self.worker, store, key).await?;
        hot.insert(key, Hot::Chunk(bytes.clone()), epoch);
        Some(bytes)
    }

    /// Asks the origin for a span of the same representation.
    async fn fetch(&self, span: Range<u64>) -> Option<Bytes> {
        let (len, entity_tag) = (self.len?, self.entity_tag.as_ref()?);
        let (first, last) = (span.start, span.end.checked_sub(1)?);
        let range = HeaderValue::try_from(format!("bytes={first}-{last}")).ok()?;
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
