//! The items of the memory cache: whole responses, ready to send, in front of the store.

use std::sync::Arc;

use crate::Weigh;
use bytes::Bytes;

use crate::http::entry::{CachedEntry, ResourceMarker};

/// An item of the memory cache in front of the store.
#[derive(Clone)]
pub enum HotItem {
    /// A stored response with its head, and its body if that is short.
    Response(Arc<CachedEntry>),
    /// The marker that lists the variants of a resource.
    Marker(Arc<ResourceMarker>),
    /// A chunk of a long body. Behind a pointer, because each slot of the memory cache is as large as the largest
    /// variant.
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
