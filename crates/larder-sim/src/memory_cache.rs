//! The memory cache of the proxy and of `larder-cache`, to compare its evictions with the published ones, and in front
//! of a simulated store.
//!
//! Owns: nothing of its own; it is the shipping cache with values that only have a length. They weigh what the proxy's
//! own functions compute for responses of this length with a usual head and key, with the cache's own tables, which the
//! published evictions do not count. Each cache seeds its hashes, so hits differ by up to 0.2 points between runs.

use crate::pipeline::Lru;
use larder_cache::{MemoryCache, Weigh, http::hot::HotItem};
use larder_http::{BodyPlace, ReceivedHead, SelectingFields, StoredHead, TargetList, Timestamp};
use larder_store::MemoryHits;
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// The memory cache of Larder's proxy, fed with simulated requests.
pub(crate) struct MemoryCacheSimulation {
    cache: MemoryCache<ValueOfLength>,
}

/// A value of which only the length is kept.
#[derive(Clone, Copy, Debug)]
struct ValueOfLength(u64);

impl Weigh for ValueOfLength {
    fn weight_bytes(&self) -> u64 {
        weight_of::<Self>(self.0)
    }
}

/// Returns the weight of a response whose fields and body have `len_bytes` on the wire. `V` is the value that stands
/// for it, with a shorter key and a smaller slot.
fn weight_of<V: Weigh>(len_bytes: u64) -> u64 {
    let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
    let head_len = USUAL_HEAD.packed_len.min(len);
    let item_bytes = HotItem::weight_of_lengths(head_len, len.saturating_sub(USUAL_HEAD.wire_len));
    let proxy_bytes = MemoryCache::<HotItem>::entry_bytes(USUAL_KEY.len(), item_bytes);
    proxy_bytes - MemoryCache::<V>::entry_bytes(size_of::<u64>(), 0)
}

/// The lengths of a usual response's fields in bytes.
struct HeadLengths {
    wire_len: usize,
    packed_len: usize,
}

static USUAL_HEAD: LazyLock<HeadLengths> = LazyLock::new(|| {
    let now = Timestamp::from_secs(1_800_000_000);
    let fields = USUAL_FIELDS.into_iter();
    let fields = fields.map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect();
    let received = ReceivedHead { status: http::StatusCode::OK, fields, request_time: now, response_time: now };
    let place = BodyPlace::Whole { len: 20_000 };
    let head = StoredHead::new(received, place, SelectingFields::default(), &TargetList::default());
    let line_len = |(name, value): (&str, &str)| name.len() + value.len() + ": \r\n".len();
    HeadLengths { wire_len: USUAL_FIELDS.map(line_len).iter().sum(), packed_len: head.pack().len() }
});

impl MemoryCacheSimulation {
    /// Creates a cache of `size_bytes`.
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self { cache: MemoryCache::new(size_bytes) }
    }

    /// Requests an object. After a miss, stores the object if the cache admits it. Returns whether it was a hit.
    pub(crate) fn request(&self, key: u64, size_bytes: u64) -> bool {
        let key = key.to_le_bytes();
        let is_hit = self.cache.get(&key).is_some();
        if !is_hit && self.cache.admits(&key, size_bytes) {
            self.cache.insert(&key, ValueOfLength(size_bytes), self.cache.moment());
        }
        is_hit
    }
}

/// The kind of the memory cache in front of a simulated store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// An LRU cache, as in the proxies of the papers.
    Lru,
    /// The memory cache of Larder's proxy.
    Proxy,
}

/// The memory cache in front of a simulated store.
pub(crate) enum MemoryFront {
    Lru {
        lru: Lru,
        /// Number of hits of each entry since it came into memory.
        hits: HashMap<u64, MemoryHits>,
        len_bytes_max: u64,
    },
    Proxy(MemoryCache<CountedValue>),
}

/// A value of which only the length is kept, and the number of its hits.
#[derive(Clone, Debug)]
pub(crate) struct CountedValue {
    len_bytes: u64,
    hits: Arc<MemoryHits>,
}

impl CountedValue {
    fn new(len_bytes: u64) -> Self {
        Self { len_bytes, hits: Arc::default() }
    }
}

impl Weigh for CountedValue {
    fn weight_bytes(&self) -> u64 {
        weight_of::<Self>(self.len_bytes)
    }
}

impl MemoryFront {
    /// Creates a cache of `size_bytes`.
    pub(crate) fn new(kind: MemoryKind, size_bytes: u64) -> Self {
        match kind {
            MemoryKind::Lru => {
                Self::Lru { lru: Lru::new(size_bytes), hits: HashMap::new(), len_bytes_max: size_bytes / LRU_SHARE }
            }
            MemoryKind::Proxy => Self::Proxy(MemoryCache::new(size_bytes)),
        }
    }

    /// Requests an entry. Returns `None` if it is not in memory. Otherwise returns whether the caller should report
    /// this hit to the store.
    pub(crate) fn hit(&mut self, key: u64) -> Option<bool> {
        match self {
            Self::Lru { lru, hits, .. } => lru.touch(key).then(|| hits.get(&key).is_some_and(MemoryHits::count)),
            Self::Proxy(cache) => cache.get(&key.to_le_bytes()).map(|value| value.hits.count()),
        }
    }

    /// Notes that a requested entry was read from the store.
    pub(crate) fn note_read(&mut self, key: u64, len_bytes: u64) {
        match self {
            Self::Lru { .. } => self.keep(key, len_bytes),
            Self::Proxy(cache) => {
                if cache.admits(&key.to_le_bytes(), len_bytes) {
                    cache.insert(&key.to_le_bytes(), CountedValue::new(len_bytes), cache.moment());
                }
            }
        }
    }

    /// Notes that a response came from the origin. If `is_stored` is true, the store has taken the response, and it
    /// comes into memory only when it is read. Otherwise the proxy keeps it in memory.
    pub(crate) fn note_fetched(&mut self, key: u64, len_bytes: u64, is_stored: bool) {
        match self {
            Self::Lru { .. } => self.keep(key, len_bytes),
            Self::Proxy(cache) if is_stored => cache.remove(&key.to_le_bytes()),
            Self::Proxy(cache) => cache.replace(&key.to_le_bytes(), CountedValue::new(len_bytes)),
        }
    }

    /// Notes that an entry was read from the store along with a requested one.
    pub(crate) fn note_neighbor(&mut self, key: u64, len_bytes: u64) {
        match self {
            Self::Lru { lru, .. } => {
                if !lru.touch(key) {
                    self.keep(key, len_bytes);
                }
            }
            Self::Proxy(cache) => {
                cache.insert_unrequested(&key.to_le_bytes(), CountedValue::new(len_bytes), cache.moment());
            }
        }
    }

    /// Stores an entry in an LRU cache, if it is not too long.
    fn keep(&mut self, key: u64, len_bytes: u64) {
        if let Self::Lru { lru, hits, len_bytes_max } = self
            && len_bytes < *len_bytes_max
        {
            hits.insert(key, MemoryHits::default());
            lru.insert(key, len_bytes, |evicted| _ = hits.remove(&evicted));
        }
    }
}

/// The fields of a usual response, without those of its framing.
const USUAL_FIELDS: [(&str, &str); 7] = [
    ("date", "Fri, 15 Jan 2027 08:00:00 GMT"),
    ("server", "nginx"),
    ("content-type", "text/css"),
    ("last-modified", "Sun, 06 Nov 2022 08:49:37 GMT"),
    ("etag", "\"5f3c-1a2b3c4d\""),
    ("cache-control", "max-age=86400"),
    ("accept-ranges", "bytes"),
];
/// A key of a usual length: the URL, and the origin that a reverse proxy adds.
const USUAL_KEY: &str = "Phttp://site.example/object/12345 @http://10.0.0.1:8080";
/// An LRU cache stores entries of up to this fraction (1/n) of its size.
const LRU_SHARE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_weight_is_that_of_the_proxys_buffers() {
        let head = &*USUAL_HEAD;
        assert!(head.packed_len < head.wire_len, "{} {}", head.packed_len, head.wire_len);
        for len in (head.wire_len..70_000).step_by(371) {
            let tables = MemoryCache::<ValueOfLength>::entry_bytes(size_of::<u64>(), 0);
            let weight = (weight_of::<ValueOfLength>(len as u64) + tables) as usize;
            let octets_len = len - head.wire_len + head.packed_len + USUAL_KEY.len();
            assert!((octets_len..octets_len + octets_len / 4 + 300).contains(&weight), "{len}: {weight}");
        }
    }
}
