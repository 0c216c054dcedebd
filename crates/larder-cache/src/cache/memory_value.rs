//! A value in the memory cache. Cheap to clone.

use crate::{Weigh, head::ValueHead, memory::allocated_bytes};
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
        let parts = size_of::<MemoryValueParts>() + COUNTS_BYTES;
        let tags = size_of_val(self.head.tags.as_slice());
        [parts, self.bytes.len(), BUFFER_COUNT_BYTES, tags].map(allocated_bytes).iter().sum()
    }
}

/// Memory in bytes of the two counts of shared parts.
const COUNTS_BYTES: usize = 16;
/// Memory in bytes of the count of a shared buffer, with its location.
const BUFFER_COUNT_BYTES: usize = 24;
