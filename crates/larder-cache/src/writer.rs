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

/// A value being written. [`ValueWriter::finish`] makes the whole value visible.
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
    /// The representation of the chunks stored so far.
    chunks: Option<u64>,
    chunk_count: u64,
    /// The bytes that are not stored yet, at most one chunk.
    pieces: Vec<Bytes>,
    pieces_bytes: u64,
    len_bytes: u64,
    /// Set if a chunk could not be stored, if the caller stopped waiting for it, or if the value is too long.
    is_broken: bool,
}

/// A fetched value, and what is to be stored of it.
pub(crate) struct FetchedValue {
    pub(crate) value: Value,
    pub(crate) unstored: UnstoredPart,
}

/// The part of a fetched value that is not stored yet.
pub(crate) enum UnstoredPart {
    /// All bytes, to be written by the writer.
    Whole { writer: ValueWriter, bytes: Bytes },
    /// The head, and the body of a short value.
    Head { new: NewValue, start: WriteStart },
}

impl UnstoredPart {
    /// Returns the bytes that are not stored yet.
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

    /// Creates a writer for a value on which work began at `start`.
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

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.len_bytes
    }

    /// Returns whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Makes the value visible, replacing an older one.
    ///
    /// # Errors
    /// The same as for [`crate::Cache::insert`].
    pub async fn finish(mut self) -> Result<()> {
        let value = self.complete().await?;
        self.cache.replace_value(self.start.work.key(), value).await
    }

    /// Makes the value visible unless its key was replaced or removed, or one of its tags was removed, since the
    /// creation of this writer. Returns whether it became visible.
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

    /// Works like [`Self::finish_if_unchanged`], for the value of a fetch, which callers can join until it is stored.
    pub(crate) async fn finish_fetched(mut self) -> Result<bool> {
        let value = self.complete().await?;
        self.cache.store_value(self.start.work.key(), value, Some(&self.start)).await
    }

    /// Returns the complete value, and what is still to be stored of it. The value becomes visible when that is stored.
    ///
    /// Callers can read the value even if it never becomes visible.
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
