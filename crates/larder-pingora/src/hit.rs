//! Reads a stored body for a hit, whole or in ranges.

use crate::storage::{storage_error, unusable};
use async_trait::async_trait;
use bytes::Bytes;
use larder_cache::{IgnorePoison, Value, ValueReader};
use pingora_cache::{
    CacheKey,
    storage::{HandleHit, Storage},
    trace::SpanHandle,
};
use pingora_error::Result;
use std::{
    any::Any,
    sync::Mutex,
};

/// A body being read.
pub(crate) enum LarderHit {
    Inline {
        bytes: Bytes,
        /// The bytes to return next. `None` once they were returned.
        left: Option<Bytes>,
    },
    Separate {
        value: Value,
        /// The reader of the body. The lock only makes the handler shareable between threads, as pingora requires.
        reader: Mutex<ValueReader>,
    },
}

impl LarderHit {
    pub(crate) fn inline(bytes: Bytes) -> Self {
        Self::Inline { left: Some(bytes.clone()).filter(|bytes| !bytes.is_empty()), bytes }
    }

    pub(crate) fn separate(value: Value) -> Self {
        Self::Separate { reader: Mutex::new(value.reader()), value }
    }

    fn len_bytes(&self) -> u64 {
        match self {
            Self::Inline { bytes, .. } => bytes.len() as u64,
            Self::Separate { value, .. } => value.len(),
        }
    }
}

#[async_trait]
impl HandleHit for LarderHit {
    async fn read_body(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Inline { left, .. } => Ok(left.take()),
            Self::Separate { reader, .. } => {
                let reader = reader.get_mut().ignore_poison();
                reader.next().await.map_err(storage_error)
            }
        }
    }

    async fn finish(
        self: Box<Self>,
        _storage: &'static (dyn Storage + Sync),
        _key: &CacheKey,
        _trace: &SpanHandle,
    ) -> Result<()> {
        Ok(())
    }

    fn can_seek(&self) -> bool {
        true
    }

    fn seek(&mut self, start: usize, end: Option<usize>) -> Result<()> {
        let len_bytes = self.len_bytes();
        let end = end.map_or(len_bytes, |end| len_bytes.min(end as u64));
        if start as u64 >= len_bytes || end < start as u64 {
            return Err(unusable(format!("a range from {start} to {end} of a body of {len_bytes} bytes")));
        }
        match self {
            Self::Inline { bytes, left } => *left = Some(bytes.slice(start..end as usize)),
            Self::Separate { value, reader } => *reader = Mutex::new(value.range_reader(start as u64..end)),
        }
        Ok(())
    }

    fn get_eviction_weight(&self) -> usize {
        self.len_bytes() as usize
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }

    fn as_any_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self
    }
}
