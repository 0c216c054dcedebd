//! A value that is written in pieces.

use crate::{
    Cache, Result, Value,
    cache::{NewValue, ValueOptions, WriteStart},
    chunk_format::{CHUNK_BYTES, chunk_key, filled},
    keys::{random, value_key},
    value::{ChunkedValue, ValueBody},
};
use bytes::Bytes;
use std::{fmt, sync::Arc};

/// Writes a value in pieces. [`ValueWriter::finish`] makes the whole value visible to lookups.
///
/// If the writer is dropped before that, the key keeps its old value. Of several writers of one key, the one that
/// finishes last replaces the others. A writer needs memory for one chunk (1 MiB), whatever the length. It does not
/// implement `AsyncWrite`: read pieces from your source, and pass each to [`ValueWriter::write`].
///
/// ```
/// # use larder_cache::Cache;
/// # futures_executor::block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
/// let mut writer = cache.entry("film").writer()?;
/// writer.write("first, ").await?;
/// writer.write("second").await?;
/// assert_eq!(cache.get("film").await?, None);
/// writer.finish().await?;
/// assert_eq!(cache.get("film").await?.expect("finished"), "first, second");
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct ValueWriter {
    cache: Cache,
    options: ValueOptions,
    start: WriteStart,
    /// The number that the keys of this value's chunks contain. `None` until the first chunk is stored.
    chunks: Option<u64>,
    chunk_count: u64,
    /// Bytes that are not stored yet, together at most one chunk.
    pieces: Vec<Bytes>,
    pieces_bytes: u64,
    len_bytes: u64,
    /// Whether the value can no longer be finished: it is too long, or a chunk was not stored because the store failed
    /// or the caller stopped waiting.
    is_broken: bool,
}

/// A fetched value, and the part of it that is still to be stored.
pub(crate) struct FetchedValue {
    pub(crate) value: Value,
    pub(crate) unstored: UnstoredPart,
}

/// The part of a fetched value that is not stored yet.
pub(crate) enum UnstoredPart {
    /// All bytes of a value. `writer` will write them.
    Whole { writer: ValueWriter, bytes: Bytes },
    /// The head of a value and, if the value is short, its bytes. The chunks of a long value are already stored.
    Head { new: NewValue, start: WriteStart },
}

impl UnstoredPart {
    /// Returns the number of bytes that are not stored yet.
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::Whole { bytes, .. } => bytes.len() as u64,
            Self::Head { new, .. } => new.pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }
}

impl ValueWriter {
    pub(crate) fn new(cache: &Cache, key: &[u8], options: ValueOptions) -> Self {
        Self::since(cache.write_start(key), cache, options)
    }

    /// Creates a writer for the value of a fetch or write that began at `start`.
    pub(crate) fn since(start: WriteStart, cache: &Cache, options: ValueOptions) -> Self {
        Self {
            start,
            cache: cache.clone(),
            options,
            chunks: None,
            chunk_count: 0,
            pieces: Vec::new(),
            pieces_bytes: 0,
            len_bytes: 0,
            is_broken: false,
        }
    }

    /// Appends bytes to the value. Waits while too many bytes are being written to disk.
    ///
    /// # Errors
    /// [`crate::Error::Store`] if the store fails or has no room; [`crate::Error::Invalid`] if the value gets longer
    /// than half of the disk. The value cannot be finished after an error, or if the returned future was dropped before
    /// it completed.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> Result<()> {
        let mut bytes = bytes.into();
        self.check_whole()?;
        self.check_room_for(bytes.len() as u64)?;
        while !bytes.is_empty() {
            if self.pieces_bytes == CHUNK_BYTES {
                self.store_chunk().await?;
            }
            let room_bytes = (CHUNK_BYTES - self.pieces_bytes).min(bytes.len() as u64);
            self.pieces.push(bytes.split_to(room_bytes as usize));
            self.pieces_bytes += room_bytes;
            self.len_bytes += room_bytes;
        }
        assert!(self.pieces_bytes <= CHUNK_BYTES);
        Ok(())
    }

    /// Returns the number of bytes that were written so far.
    pub fn len(&self) -> u64 {
        self.len_bytes
    }

    /// Returns whether no bytes were written so far.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Makes the value visible to lookups, in place of an older one.
    ///
    /// # Errors
    /// The same as for [`crate::Cache::insert`].
    pub async fn finish(mut self) -> Result<()> {
        let value = self.complete().await?;
        self.cache.replace_value(self.start.work.key(), value).await
    }

    /// Makes the value visible to lookups, unless its key or one of its tags has changed since this writer was created:
    /// the key was replaced or removed, or the tag was removed. Returns whether the value became visible.
    ///
    /// Create the writer before you fetch the value. A removal during the fetch then covers the value, too. Changes of
    /// other keys do not matter.
    ///
    /// # Errors
    /// The same as for [`crate::Cache::insert`].
    pub async fn finish_if_unchanged(self) -> Result<bool> {
        let cache = self.cache.clone();
        let key = Arc::clone(self.start.work.key());
        let is_stored = self.finish_fetched().await?;
        if is_stored {
            cache.detach_fetch(&key);
        }
        Ok(is_stored)
    }

    /// Works like [`Self::finish_if_unchanged`], for a value that was fetched. Callers can join its fetch until the
    /// value is stored.
    pub(crate) async fn finish_fetched(mut self) -> Result<bool> {
        let value = self.complete().await?;
        self.cache.store_value(self.start.work.key(), value, Some(&self.start)).await
    }

    /// Returns the complete value, and the part of it that is still to be stored. Lookups find the value once that part
    /// is stored.
    ///
    /// The callers of the fetch can read the value even if it is never stored.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if this is the writer of another key; [`crate::Error::Store`] if the last chunk of a
    /// long value cannot be stored.
    pub(crate) async fn into_fetched(mut self, key: &[u8]) -> Result<FetchedValue> {
        if **self.start.work.key() != *key {
            return Err(crate::Error::Invalid("the fetch returned the writer of another value".to_owned()));
        }
        let new = self.complete().await?;
        let NewValue { head, pieces } = &new;
        let len_bytes = head.len_bytes;
        let lifetime = head.lifetime;
        let body = match head.chunks {
            Some(chunks) => ValueBody::Chunks(Arc::new(ChunkedValue::new(self.cache.store(), key, chunks, len_bytes))),
            None => ValueBody::Memory(pieces.concat().into()),
        };
        let value = Value::new(body, len_bytes, lifetime, self.cache.now_ms());
        Ok(FetchedValue { value, unstored: UnstoredPart::Head { new, start: self.start } })
    }

    /// Stores the last chunk of a long value. Returns the head, and the body if the value is short.
    async fn complete(&mut self) -> Result<NewValue> {
        self.check_whole()?;
        if self.chunks.is_some() && self.pieces_bytes > 0 {
            self.store_chunk().await?;
        }
        let head = self.options.head(&self.cache, self.start.begun.purge_count(), self.len_bytes, self.chunks);
        Ok(NewValue { head, pieces: std::mem::take(&mut self.pieces) })
    }

    async fn store_chunk(&mut self) -> Result<()> {
        assert!(self.pieces_bytes > 0 && (self.pieces_bytes == CHUNK_BYTES || self.chunks.is_some()));
        let representation = *self.chunks.get_or_insert_with(random);
        let key = chunk_key(&value_key(self.start.work.key()), representation, self.chunk_count);
        let hints = self.options.hints(&self.cache);
        let writer = filled(self.cache.store(), &key, Bytes::new(), self.pieces.drain(..), hints)?;
        self.pieces_bytes = 0;
        self.chunk_count += 1;
        self.is_broken = true;
        writer.commit().await?;
        self.is_broken = false;
        Ok(())
    }

    /// Refuses bytes that make the value too long to be stored. From then on, the value cannot be finished.
    fn check_room_for(&mut self, bytes: u64) -> Result<()> {
        let max_bytes = self.cache.value_bytes_max();
        if self.len_bytes.saturating_add(bytes) > max_bytes {
            self.is_broken = true;
            let problem = format!("a value of more than {max_bytes} bytes is not stored: it may take half of the disk");
            return Err(crate::Error::Invalid(problem));
        }
        Ok(())
    }

    fn check_whole(&self) -> Result<()> {
        if self.is_broken {
            return Err(crate::Error::Invalid("an earlier write to this value failed or was abandoned".to_owned()));
        }
        Ok(())
    }
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("len", &self.len_bytes).finish_non_exhaustive()
    }
}
