//! A value in the memory cache. Cheap to clone.

use crate::{Weigh, head::ValueHead};
use bytes::Bytes;
use larder_store::MemoryHits;
use std::{ops::Deref, sync::Arc};

/// A value in memory, with its head. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MemoryValue(Arc<MemoryValueParts>);

/// The shared parts of a [`MemoryValue`].
pub(crate) struct MemoryValueParts {
    pub(super) head: ValueHead,
    pub(super) bytes: Bytes,
    pub(super) hits: MemoryHits,
}

impl MemoryValue {
    pub(super) fn new(head: ValueHead, bytes: Bytes) -> Self {
        Self(Arc::new(MemoryValueParts { head, bytes, hits: MemoryHits::default() }))
    }
}

impl Deref for MemoryValue {
    type Target = MemoryValueParts;

    fn deref(&self) -> &MemoryValueParts {
        &self.0
    }
}

impl Weigh for MemoryValue {
    fn weight_bytes(&self) -> u64 {
        (self.bytes.len() + size_of_val(self.head.tags.as_slice()) + size_of::<MemoryValueParts>()) as u64
    }
}
