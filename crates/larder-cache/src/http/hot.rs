//! The items of the memory cache: responses, in front of the store.
//!
//! Owns: one buffer for each response, with its head and its body in the form of [`StoredHead::pack`]. A lookup unpacks
//! it. Invariant: an item weighs what the allocator takes for it, so its buffer is never part of a longer one.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use larder_http::{StoredHead, TargetList};
use larder_store::MemoryHits;

use crate::{
    Weigh,
    http::{
        entry::{CachedEntry, EntryBody, ResourceMarker},
        hot_buffer::{buffer, buffer_bytes},
    },
    memory::allocated_bytes,
};

/// An item of the memory cache in front of the store.
pub struct HotItem(ItemPlace);

/// Two variants only, so that the second needs no bytes of its own: each slot of the memory cache is as large as this.
enum ItemPlace {
    Response(HotResponse),
    Other(Box<OtherItem>),
}

enum OtherItem {
    /// A response whose body is in a buffer of its own.
    Split(HotResponse, Bytes),
    Marker(Arc<ResourceMarker>),
    Chunk(Bytes),
}

/// The packed head and body of a stored response, and the counters of its requests.
struct HotResponse {
    packed: Bytes,
    hits: MemoryHits,
    /// Number of purges that were already applied. The largest number stands for itself and all larger ones.
    judged_count: AtomicU32,
}

/// The content of a [`HotItem`], which shares its memory.
pub enum HotContent {
    /// A stored response with its head, and its body if that is short.
    Response(PackedResponse),
    /// The marker that lists the variants of a resource.
    Marker(Arc<ResourceMarker>),
    /// A chunk of a long body.
    Chunk(Bytes),
}

/// A stored response in the form that it has in memory.
pub struct PackedResponse {
    packed: Bytes,
    /// The body, if it is not in `packed`.
    body: Option<Bytes>,
    judged_count: u32,
}

impl HotItem {
    /// Creates an item from a response, which is copied.
    pub fn response(entry: &CachedEntry) -> Self {
        let body = match &entry.body {
            EntryBody::Whole(bytes) => Some(&bytes[..]),
            EntryBody::Chunks { .. } => None,
        };
        Self::packed(&entry.head, body.into_iter(), entry.judged_count())
    }

    /// Creates an item from a head and the pieces of its body, which are copied. `judged_count` purges were applied to
    /// the response.
    pub(super) fn packed<'a>(
        head: &StoredHead,
        body: impl Iterator<Item = &'a [u8]> + Clone,
        judged_count: u64,
    ) -> Self {
        Self(ItemPlace::Response(HotResponse::new(head, body, judged_count)))
    }

    /// Creates an item from a response that has a new head.
    ///
    /// Used after a 304. A short body is copied. A long body stays where it is, because copying it would cost more than
    /// all other work for the 304.
    pub(super) fn renewed(entry: &CachedEntry) -> Self {
        match &entry.body {
            EntryBody::Whole(body) if body.len() >= LONG_BODY_BYTES => {
                let head = HotResponse::new(&entry.head, iter::empty(), entry.judged_count());
                Self(ItemPlace::Other(Box::new(OtherItem::Split(head, body.clone()))))
            }
            EntryBody::Whole(_) | EntryBody::Chunks { .. } => Self::response(entry),
        }
    }

    /// Creates an item from a marker.
    pub(super) fn marker(marker: Arc<ResourceMarker>) -> Self {
        Self(ItemPlace::Other(Box::new(OtherItem::Marker(marker))))
    }

    /// Creates an item from a chunk of a long body, in a buffer of its own length.
    pub(super) fn chunk(bytes: Bytes) -> Self {
        Self(ItemPlace::Other(Box::new(OtherItem::Chunk(bytes))))
    }

    /// Returns the content, which shares memory with this item.
    pub fn content(&self) -> HotContent {
        match &self.0 {
            ItemPlace::Response(response) => HotContent::Response(response.entry(None)),
            ItemPlace::Other(other) => match &**other {
                OtherItem::Split(response, body) => HotContent::Response(response.entry(Some(body))),
                OtherItem::Marker(marker) => HotContent::Marker(Arc::clone(marker)),
                OtherItem::Chunk(bytes) => HotContent::Chunk(bytes.clone()),
            },
        }
    }

    /// Returns the counter of the requests that this response answered from memory. `None` if it is not a response.
    pub fn hits(&self) -> Option<&MemoryHits> {
        self.as_response().map(|response| &response.hits)
    }

    /// Records that the first `purge_count` purges were applied to this response.
    pub(super) fn note_judged(&self, purge_count: u64) {
        if let Some(response) = self.as_response() {
            response.judged_count.fetch_max(saturated(purge_count), Relaxed);
        }
    }

    fn as_response(&self) -> Option<&HotResponse> {
        match &self.0 {
            ItemPlace::Response(response) => Some(response),
            ItemPlace::Other(other) => match &**other {
                OtherItem::Split(response, _) => Some(response),
                OtherItem::Marker(_) | OtherItem::Chunk(_) => None,
            },
        }
    }

    /// Returns the weight of a response whose head and body have `octets_len` bytes, if its head is a usual one.
    pub fn weight_of(octets_len: usize) -> u64 {
        buffer_bytes(octets_len.saturating_sub(SHORTENED_BYTES) + FACTS_BYTES)
    }
}

impl HotResponse {
    fn new<'a>(head: &StoredHead, body: impl Iterator<Item = &'a [u8]> + Clone, judged_count: u64) -> Self {
        Self {
            packed: buffer(head.pack(body)),
            hits: MemoryHits::default(),
            judged_count: AtomicU32::new(saturated(judged_count)),
        }
    }

    fn entry(&self, body: Option<&Bytes>) -> PackedResponse {
        let judged_count = self.judged_count.load(Relaxed);
        PackedResponse { packed: self.packed.clone(), body: body.cloned(), judged_count }
    }
}

impl PackedResponse {
    /// Returns the response. Later updates of its head read directives from the fields in `targets`.
    pub fn unpack(self, targets: &TargetList) -> CachedEntry {
        let (head, body) = StoredHead::unpack(self.packed, targets);
        let entry = CachedEntry::unpacked(head, self.body.unwrap_or(body));
        entry.note_judged(self.judged_count.into());
        entry
    }
}

impl Weigh for HotItem {
    fn weight_bytes(&self) -> u64 {
        match &self.0 {
            ItemPlace::Response(response) => buffer_bytes(response.packed.len()),
            ItemPlace::Other(other) => {
                let content = match &**other {
                    OtherItem::Split(response, body) => {
                        buffer_bytes(response.packed.len()) + buffer_bytes(body.len() + SPLIT_HEAD_BYTES)
                    }
                    OtherItem::Marker(_) => MARKER_BYTES,
                    OtherItem::Chunk(bytes) => buffer_bytes(bytes.len()),
                };
                allocated_bytes(size_of::<OtherItem>()) + content
            }
        }
    }
}

fn saturated(purge_count: u64) -> u32 {
    u32::try_from(purge_count).unwrap_or(u32::MAX)
}

const MARKER_BYTES: u64 = 256;
/// Minimum length in bytes of a body that is not copied when its response gets a new head.
const LONG_BODY_BYTES: usize = 16 << 10;
/// Assumed length of the older head that the buffer of a split body still has, in bytes.
const SPLIT_HEAD_BYTES: usize = 512;
/// Bytes by which the fields of a usual head are shorter in memory.
const SHORTENED_BYTES: usize = 128;
/// Length in bytes of the facts of a usual packed head.
const FACTS_BYTES: usize = 36;
