//! The items of the memory cache: responses, in front of the store.
//!
//! Owns: for each response, its head and its body in the form of [`StoredHead::pack`], which a lookup unpacks. Both are
//! in one buffer, or each in its own where the allocator then takes less: it rounds a length up by as much as a
//! quarter. Invariant: an item weighs what the allocator takes for it, so its buffer is never part of a longer one.

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
pub struct HotItem {
    place: ItemPlace,
    /// Number of requests that this item answered from memory. Only responses are counted.
    hits: MemoryHits,
    /// Number of purges that were already applied to a response. The largest number stands for itself and all larger
    /// ones.
    judged_count: AtomicU32,
}

/// Two variants only, so that the second needs no bytes of its own: each slot of the memory cache is as large as this.
enum ItemPlace {
    /// A response: head and body in one buffer.
    Packed(Bytes),
    Other(OtherItem),
}

enum OtherItem {
    /// A response whose body is in a buffer of its own.
    Split {
        buffers: Box<SplitBuffers>,
        /// Bytes that the body's buffer has in addition to the body.
        spare_len: u32,
    },
    Marker(Arc<ResourceMarker>),
    Chunk(Box<Bytes>),
}

struct SplitBuffers {
    head: Bytes,
    body: Bytes,
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
        let head = head.pack();
        // The pieces get the shorter lifetime of the head's octets.
        let body = body.map(|piece| -> &[u8] { piece });
        let body_len = body.clone().map(<[u8]>::len).sum();
        let head_piece = iter::once(&head[..]);
        let place = if split_bytes(head.len(), body_len) < joint_bytes(head.len(), body_len) {
            let buffers = Box::new(SplitBuffers { head: buffer(head_piece), body: buffer(body) });
            ItemPlace::Other(OtherItem::Split { buffers, spare_len: 0 })
        } else {
            ItemPlace::Packed(buffer(head_piece.chain(body)))
        };
        Self::new(place, judged_count)
    }

    /// Creates an item from a response that has a new head.
    ///
    /// Used after a 304. A short body is copied. A long body stays where it is, because copying it would cost more than
    /// all other work for the 304.
    pub(super) fn renewed(entry: &CachedEntry) -> Self {
        match &entry.body {
            EntryBody::Whole(body) if body.len() >= LONG_BODY_BYTES => {
                let head = buffer(iter::once(&entry.head.pack()[..]));
                let buffers = Box::new(SplitBuffers { head, body: body.clone() });
                let place = ItemPlace::Other(OtherItem::Split { buffers, spare_len: OLD_HEAD_BYTES });
                Self::new(place, entry.judged_count())
            }
            EntryBody::Whole(_) | EntryBody::Chunks { .. } => Self::response(entry),
        }
    }

    /// Creates an item from a marker.
    pub(super) fn marker(marker: Arc<ResourceMarker>) -> Self {
        Self::new(ItemPlace::Other(OtherItem::Marker(marker)), 0)
    }

    /// Creates an item from a chunk of a long body, in a buffer of its own length.
    pub(super) fn chunk(bytes: Bytes) -> Self {
        Self::new(ItemPlace::Other(OtherItem::Chunk(Box::new(bytes))), 0)
    }

    fn new(place: ItemPlace, judged_count: u64) -> Self {
        Self { place, hits: MemoryHits::default(), judged_count: AtomicU32::new(saturated(judged_count)) }
    }

    /// Returns the content, which shares memory with this item.
    pub fn content(&self) -> HotContent {
        match &self.place {
            ItemPlace::Packed(packed) => self.response_content(packed, None),
            ItemPlace::Other(OtherItem::Split { buffers, .. }) => {
                self.response_content(&buffers.head, Some(&buffers.body))
            }
            ItemPlace::Other(OtherItem::Marker(marker)) => HotContent::Marker(Arc::clone(marker)),
            ItemPlace::Other(OtherItem::Chunk(bytes)) => HotContent::Chunk(Bytes::clone(bytes)),
        }
    }

    fn response_content(&self, packed: &Bytes, body: Option<&Bytes>) -> HotContent {
        let judged_count = self.judged_count.load(Relaxed);
        HotContent::Response(PackedResponse { packed: packed.clone(), body: body.cloned(), judged_count })
    }

    /// Returns the counter of the requests that this response answered from memory. `None` if it is not a response.
    pub fn hits(&self) -> Option<&MemoryHits> {
        self.is_response().then_some(&self.hits)
    }

    /// Records that the first `purge_count` purges were applied to this response.
    pub(super) fn note_judged(&self, purge_count: u64) {
        self.judged_count.fetch_max(saturated(purge_count), Relaxed);
    }

    fn is_response(&self) -> bool {
        match &self.place {
            ItemPlace::Packed(_) | ItemPlace::Other(OtherItem::Split { .. }) => true,
            ItemPlace::Other(OtherItem::Marker(_) | OtherItem::Chunk(_)) => false,
        }
    }

    /// Returns the weight of a response whose packed head has `head_len` bytes, and its body `body_len`.
    pub fn weight_of_lengths(head_len: usize, body_len: usize) -> u64 {
        split_bytes(head_len, body_len).min(joint_bytes(head_len, body_len))
    }
}

impl PackedResponse {
    /// Returns the response. Later updates of its head read directives from the fields in `targets`.
    #[inline]
    pub fn unpack(self, targets: &TargetList) -> CachedEntry {
        let (head, body) = StoredHead::unpack(self.packed, targets);
        let entry = CachedEntry::unpacked(head, self.body.unwrap_or(body));
        entry.note_judged(self.judged_count.into());
        entry
    }
}

impl Weigh for HotItem {
    fn weight_bytes(&self) -> u64 {
        match &self.place {
            ItemPlace::Packed(packed) => buffer_bytes(packed.len()),
            ItemPlace::Other(OtherItem::Split { buffers, spare_len }) => {
                split_bytes(buffers.head.len(), buffers.body.len() + *spare_len as usize)
            }
            ItemPlace::Other(OtherItem::Marker(_)) => MARKER_BYTES,
            ItemPlace::Other(OtherItem::Chunk(bytes)) => {
                allocated_bytes(size_of::<Bytes>()) + buffer_bytes(bytes.len())
            }
        }
    }
}

/// Returns how many bytes the allocator takes for a packed head and a body in one buffer.
fn joint_bytes(head_len: usize, body_len: usize) -> u64 {
    buffer_bytes(head_len.saturating_add(body_len))
}

/// Returns how many bytes the allocator takes for a packed head and a body with a buffer each.
fn split_bytes(head_len: usize, body_len: usize) -> u64 {
    allocated_bytes(size_of::<SplitBuffers>()) + buffer_bytes(head_len) + buffer_bytes(body_len)
}

fn saturated(purge_count: u64) -> u32 {
    u32::try_from(purge_count).unwrap_or(u32::MAX)
}

const MARKER_BYTES: u64 = 256;
/// Minimum length in bytes of a body that is not copied when its response gets a new head.
const LONG_BODY_BYTES: usize = 16 << 10;
/// Assumed length of the older head that the buffer of a renewed response's body still has, in bytes.
const OLD_HEAD_BYTES: u32 = 512;

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode, header::CACHE_CONTROL};
    use larder_http::{BodyPlace, ReceivedHead, SelectingFields, Timestamp};

    use super::*;
    use crate::memory::jemalloc_bytes;

    #[test]
    fn response_of_any_length_weighs_what_the_allocator_takes_and_keeps_its_octets() {
        let mut joint_count = 0;
        let mut split_count = 0;
        for len in (0..4000).step_by(7).chain((4000..70_000).step_by(331)) {
            let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let entry = entry(body.clone());
            let head_len = entry.head.pack().len();
            let item = HotItem::response(&entry);
            let joint = counted(head_len + len);
            let split = 64 + counted(head_len) + counted(len);
            assert_eq!(item.weight_bytes(), joint.min(split), "{len} bytes");
            assert_eq!(HotItem::weight_of_lengths(head_len, len), item.weight_bytes());
            match &item.place {
                ItemPlace::Packed(_) => joint_count += 1,
                ItemPlace::Other(_) => split_count += 1,
            }
            let HotContent::Response(packed) = item.content() else { panic!("it is a response") };
            let unpacked = packed.unpack(&TargetList::default());
            assert!(matches!(&unpacked.body, EntryBody::Whole(found) if *found == body), "{len} bytes");
            assert!(unpacked.head == entry.head, "{len} bytes");
            assert!(item.hits().is_some());
        }
        assert!(joint_count > 100 && split_count > 20, "{joint_count} {split_count}");
    }

    #[test]
    fn renewed_response_shares_its_long_body_and_copies_a_short_one() {
        for len in [100, 2000, LONG_BODY_BYTES, 50_000] {
            let entry = entry(vec![7; len]);
            let EntryBody::Whole(body) = &entry.body else { panic!("it is whole") };
            let item = HotItem::renewed(&entry);
            let HotContent::Response(PackedResponse { packed, body: own, .. }) = item.content() else {
                panic!("it is a response")
            };
            let own_len = own.as_ref().map_or(0, Bytes::len);
            let is_shared = own.is_some_and(|own| own.as_ptr() == body.as_ptr());
            assert_eq!(is_shared, len >= LONG_BODY_BYTES, "{len} bytes");
            assert!(item.weight_bytes() >= (packed.len() + own_len) as u64, "{len} bytes");
        }
    }

    #[test]
    fn item_takes_as_much_as_a_buffer_and_two_counters() {
        assert_eq!(size_of::<HotItem>(), size_of::<Bytes>() + size_of::<MemoryHits>() + size_of::<AtomicU32>());
        assert_eq!(allocated_bytes(size_of::<SplitBuffers>()), 64);
        assert!(HotItem::chunk(Bytes::from_static(b"part")).hits().is_none());
    }

    fn entry(body: Vec<u8>) -> CachedEntry {
        let now = Timestamp::from_secs(1_800_000_000);
        let fields = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("max-age=86400"))]);
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
        let place = BodyPlace::Whole { len: body.len() as u64 };
        let head = StoredHead::new(received, place, SelectingFields::default(), &TargetList::default());
        CachedEntry::whole(head, body.into()).expect("the head has the body's length")
    }

    /// Returns the memory of a buffer with its count, by the allocator's own list of sizes.
    fn counted(len: usize) -> u64 {
        let allocations = if len <= 4088 { [len + 8, 0] } else { [len, 32] };
        allocations.into_iter().map(jemalloc_bytes).sum()
    }
}
