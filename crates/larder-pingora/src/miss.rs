//! Stores a response while its body arrives.
//!
//! Invariant: the response becomes visible only when pingora finishes the write, and not if it was purged meanwhile.

use crate::{
    entry::{Entry, EntryBody, INLINE_BYTES_MAX, body_key},
    storage::{storage_error, unusable},
};
use async_trait::async_trait;
use bytes::Bytes;
use larder_cache::{Cache, ValueWriter};
use pingora_cache::storage::{HandleMiss, MissFinishType};
use pingora_error::Result;

/// A response being stored.
pub(crate) struct LarderMiss {
    cache: Cache,
    key: String,
    tags: Vec<String>,
    meta: (Bytes, Bytes),
    /// The writer of the meta data. It notices purges that happen after its creation.
    writer: ValueWriter,
    /// The pieces of the body so far, while it is short enough to be stored with the meta data.
    pieces: Vec<Bytes>,
    /// The writer of a long body, and the body's number. `None` while the body is short.
    long: Option<(ValueWriter, u64)>,
    len_bytes: u64,
}

impl LarderMiss {
    pub(crate) fn new(cache: &Cache, key: String, tags: Vec<String>, meta: (Vec<u8>, Vec<u8>)) -> Result<Self> {
        let writer = meta_writer(cache, &key, &tags)?;
        let meta = (meta.0.into(), meta.1.into());
        Ok(Self { cache: cache.clone(), key, tags, meta, writer, pieces: Vec::new(), long: None, len_bytes: 0 })
    }

    async fn write_pieces(&mut self) -> Result<()> {
        if self.long.is_none() {
            let number = getrandom::u64().map_err(|error| unusable(error.to_string()))?.max(1);
            let mut request = self.cache.entry(body_key(&self.key, number));
            for tag in &self.tags {
                request = request.tag(tag);
            }
            self.long = Some((request.writer().map_err(storage_error)?, number));
        }
        let (writer, _) = self.long.as_mut().expect("set above");
        for piece in self.pieces.drain(..) {
            writer.write(piece).await.map_err(storage_error)?;
        }
        Ok(())
    }
}

/// Creates a writer of meta data.
pub(crate) fn meta_writer(cache: &Cache, key: &str, tags: &[String]) -> Result<ValueWriter> {
    let mut request = cache.entry(crate::entry::meta_key(key));
    for tag in tags {
        request = request.tag(tag);
    }
    request.writer().map_err(storage_error)
}

#[async_trait]
impl HandleMiss for LarderMiss {
    async fn write_body(&mut self, data: Bytes, _eof: bool) -> Result<()> {
        self.len_bytes += data.len() as u64;
        self.pieces.push(data);
        if self.long.is_some() || self.len_bytes > INLINE_BYTES_MAX {
            self.write_pieces().await?;
        }
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<MissFinishType> {
        let Self { meta, tags, mut writer, pieces, long, len_bytes, .. } = *self;
        let body = match long {
            None => EntryBody::Inline(pieces.concat().into()),
            Some((body, number)) => {
                assert!(pieces.is_empty() && body.len() == len_bytes, "all bytes of a long body are written");
                body.finish().await.map_err(storage_error)?;
                EntryBody::Separate { number, len_bytes }
            }
        };
        writer.write(Entry { meta, tags, body }.encode()).await.map_err(storage_error)?;
        if !writer.finish_if_unchanged().await.map_err(storage_error)? {
            tracing::debug!("a response was purged while it was being fetched, and is not stored");
        }
        Ok(MissFinishType::Created(len_bytes as usize))
    }
}
