//! The items of the memory cache: whole responses, ready to send, in front of the store.

use std::sync::Arc;

use crate::Weigh;
use bytes::Bytes;

use crate::http::entry::{CachedEntry, ResourceMarker};

/// An item in the memory cache.
#[derive(Clone)]
pub enum HotItem {
    /// A response.
    Response(Arc<CachedEntry>),
    /// The marker of a resource that varies.
    Marker(Arc<ResourceMarker>),
    /// A chunk of a long body. Behind a pointer, because every slot of the cache is as large as the largest item.
    Chunk(Arc<Bytes>),
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
