//! The items of the memory cache: whole responses, ready to send, in front of the store.

use std::sync::Arc;

use bytes::Bytes;
use larder_cache::Weigh;

use crate::cache::entry::{CachedEntry, ResourceMarker};

/// An item in the memory cache.
#[derive(Clone)]
pub(crate) enum HotItem {
    Response(Arc<CachedEntry>),
    Marker(Arc<ResourceMarker>),
    Chunk(Bytes),
}

impl Weigh for HotItem {
    fn weight_bytes(&self) -> u64 {
        match self {
            Self::Response(entry) => entry.weight(),
            Self::Marker(_) => MARKER_BYTES,
            Self::Chunk(bytes) => bytes.len() as u64,
        }
    }
}

const MARKER_BYTES: u64 = 256;
