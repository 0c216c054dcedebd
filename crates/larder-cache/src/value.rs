//! A found value, read whole or piece by piece.

use crate::{
    Error, Result,
    chunk_format::{CHUNK_BYTES, READ_ATTEMPTS, chunk_key, chunk_span, chunks_of, read_chunk},
    head::{Freshness, Lifetime},
    keys::value_key,
};
use bytes::{Bytes, BytesMut};
use futures_io::AsyncRead;
use larder_store::{Reader, ReclaimGuard, Store};
use std::{
    fmt,
    future::Future,
    io,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

/// A found value. Cheap to clone.
///
/// A value on disk may be evicted after it was found. Reading it then fails with [`Error::Gone`].
///
/// ```
/// # use larder_cache::Cache;
/// # futures_executor::block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
/// cache.insert("key", "a long value").await?;
/// let value = cache.get_value("key").await?.expect("stored above");
/// assert_eq!((value.len(), value.is_fresh()), (12, true));
/// assert_eq!(value.bytes().await?, "a long value");
/// assert_eq!(value.read(2..6).await?, "long");
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Value {
    body: ValueBody,
    len_bytes: u64,
    lifetime: Lifetime,
    /// The time of the lookup, in milliseconds since the Unix epoch.
    found_at_ms: u64,
}

/// The place of the bytes of a value: in memory, in one entry of the store, or in chunks.
#[derive(Clone)]
pub(crate) enum ValueBody {
    Memory(Bytes),
    Entry(Arc<EntryValue>),
    Chunks(Arc<ChunkedValue>),
}

/// A value that is in one entry of the store, not in chunks.
pub(crate) struct EntryValue {
    store: Store,
    key: Vec<u8>,
    reader: Reader,
}

impl EntryValue {
    /// Creates the body of the value of `key`, whose entry `reader` reads.
    pub(crate) fn new(store: &Store, key: &[u8], reader: Reader) -> Self {
        Self { store: store.clone(), key: value_key(key), reader }
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let mut moved = None;
        for _ in 0..READ_ATTEMPTS {
            if let Some(bytes) = moved.as_ref().unwrap_or(&self.reader).read(range.clone()).await? {
                return Ok(bytes);
            }
            let found = self.store.front(&self.key).await?;
            moved = Some(found.filter(|found| found.is_same_entry(&self.reader)).ok_or(Error::Gone)?);
        }
        Err(Error::Gone)
    }
}

/// A long value, whose bytes are in chunks in the store.
pub(crate) struct ChunkedValue {
    store: Store,
    /// The key under which the store has the value's head.
    key: Vec<u8>,
    representation: u64,
    len_bytes: u64,
    /// Guards that protect the chunks from eviction while the value is in use, as far as the store's limits allow.
    _held: Vec<ReclaimGuard>,
}

impl ChunkedValue {
    pub(crate) fn new(store: &Store, key: &[u8], representation: u64, len_bytes: u64) -> Self {
        let key = value_key(key);
        let chunks = chunks_of(&(0..len_bytes)).map(|number| chunk_key(&key, representation, number));
        let held = chunks.map(|chunk| store.protect(&chunk)).collect();
        Self { store: store.clone(), key, representation, len_bytes, _held: held }
    }

    /// Reads the bytes `range` of the value. They must lie within one chunk.
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let number = range.start / CHUNK_BYTES;
        let key = chunk_key(&self.key, self.representation, number);
        let span = chunk_span(number, Some(self.len_bytes));
        read_chunk(&self.store, &key, &span, &range).await?.ok_or(Error::Gone)
    }
}

impl Value {
    pub(crate) fn new(body: ValueBody, len_bytes: u64, lifetime: Lifetime, found_at_ms: u64) -> Self {
        Self { body, len_bytes, lifetime, found_at_ms }
    }

    /// Returns this value with all its bytes in memory.
    pub(crate) fn with_bytes(self, bytes: Bytes) -> Self {
        debug_assert_eq!(bytes.len() as u64, self.len_bytes);
        Self { body: ValueBody::Memory(bytes), ..self }
    }

    /// Returns the length of the value in bytes.
    pub fn len(&self) -> u64 {
        self.len_bytes
    }

    /// Returns whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Returns how long ago the value had been stored when it was found.
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.found_at_ms.saturating_sub(self.lifetime.stored_at_ms))
    }

    /// Returns whether the value was fresh when it was found. Use a stale value only if no new one can be fetched.
    pub fn is_fresh(&self) -> bool {
        self.is_fresh_at(self.found_at_ms)
    }

    pub(crate) fn is_fresh_at(&self, now_ms: u64) -> bool {
        self.lifetime.at(now_ms) == Freshness::Fresh
    }

    /// Returns all bytes of the value.
    ///
    /// # Errors
    /// [`Error::Gone`] if a part was evicted since the value was found, or is damaged; [`Error::Store`] if the device
    /// fails.
    pub async fn bytes(&self) -> Result<Bytes> {
        self.read(0..self.len_bytes).await
    }

    /// Returns the bytes `range` of the value.
    ///
    /// # Errors
    /// The same as for [`Value::bytes`].
    ///
    /// # Panics
    /// When `range` is not within the value.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        assert!(range.start <= range.end && range.end <= self.len_bytes, "{range:?} of {} bytes", self.len_bytes);
        match &self.body {
            ValueBody::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            ValueBody::Entry(entry) => entry.read(range).await,
            ValueBody::Chunks(chunks) => {
                let first = piece(&range);
                let bytes = match range.start == range.end {
                    true => return Ok(Bytes::new()),
                    false => chunks.read(first.clone()).await?,
                };
                if first.end == range.end {
                    return Ok(bytes);
                }
                let mut all = BytesMut::with_capacity((range.end - range.start) as usize);
                all.extend_from_slice(&bytes);
                let mut rest = first.end..range.end;
                while !rest.is_empty() {
                    let next = piece(&rest);
                    all.extend_from_slice(&chunks.read(next.clone()).await?);
                    rest.start = next.end;
                }
                Ok(all.freeze())
            }
        }
    }

    /// Returns a reader that starts at the beginning of the value. It needs memory for one chunk (1 MiB), whatever the
    /// length.
    pub fn reader(&self) -> ValueReader {
        self.range_reader(0..self.len_bytes)
    }

    /// Returns a reader of the bytes `range` of the value.
    ///
    /// # Panics
    /// When `range` is not within the value.
    pub fn range_reader(&self, range: Range<u64>) -> ValueReader {
        assert!(range.start <= range.end && range.end <= self.len_bytes, "{range:?} of {} bytes", self.len_bytes);
        ValueReader { value: self.clone(), position: range.start, end: range.end, ready: Bytes::new(), step: None }
    }
}

/// Returns the start of `range`, up to the end of its first chunk.
fn piece(range: &Range<u64>) -> Range<u64> {
    range.start..range.end.min((range.start / CHUNK_BYTES + 1) * CHUNK_BYTES)
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.body {
            ValueBody::Memory(_) => "memory",
            ValueBody::Entry(_) | ValueBody::Chunks(_) => "disk",
        };
        f.debug_struct("Value")
            .field("len", &self.len_bytes)
            .field("place", &place)
            .field("age", &self.age())
            .field("is_fresh", &self.is_fresh())
            .finish()
    }
}

type Step = Pin<Box<dyn Future<Output = Result<Bytes>> + Send>>;

/// Reads a value, or a part of it, from its start to its end.
///
/// [`ValueReader::next`] returns pieces without copying them. `futures_io::AsyncRead` copies; for tokio, wrap the
/// reader with `tokio_util::compat::FuturesAsyncReadCompatExt`.
///
/// ```
/// # use larder_cache::Cache;
/// # futures_executor::block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
/// cache.insert("key", vec![7; 3_000_000]).await?;
/// let mut reader = cache.get_value("key").await?.expect("stored above").reader();
/// let mut len_bytes = 0;
/// while let Some(piece) = reader.next().await? {
///     assert!(piece.len() <= 1 << 20);
///     len_bytes += piece.len();
/// }
/// assert_eq!(len_bytes, 3_000_000);
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct ValueReader {
    value: Value,
    /// Position in the value of the next byte to read.
    position: u64,
    /// Position in the value at which reading ends.
    end: u64,
    ready: Bytes,
    step: Option<Step>,
}

impl ValueReader {
    /// Returns the next bytes of the value, at most 1 MiB. `None` is the end.
    ///
    /// # Errors
    /// The same as for [`Value::bytes`].
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Works like [`ValueReader::next`], but is polled. For implementations of streams and bodies.
    ///
    /// # Errors
    /// The same as for [`Value::bytes`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if !self.ready.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.ready))));
        }
        if self.position == self.end {
            return Poll::Ready(Ok(None));
        }
        let step = self.step.get_or_insert_with(|| {
            let value = self.value.clone();
            let range = piece(&(self.position..self.end));
            Box::pin(async move { value.read(range).await })
        });
        let outcome = ready!(step.as_mut().poll(context));
        self.step = None;
        let bytes = outcome?;
        self.position += bytes.len() as u64;
        Poll::Ready(Ok(Some(bytes)))
    }
}

impl AsyncRead for ValueReader {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, target: &mut [u8]) -> Poll<io::Result<usize>> {
        if target.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(mut bytes) = ready!(self.poll_next(context)).map_err(io::Error::other)? else {
            return Poll::Ready(Ok(0));
        };
        let count = target.len().min(bytes.len());
        target[..count].copy_from_slice(&bytes.split_to(count));
        self.ready = bytes;
        Poll::Ready(Ok(count))
    }
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("value", &self.value).field("position", &self.position).finish()
    }
}
