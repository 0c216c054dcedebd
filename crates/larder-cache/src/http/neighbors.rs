//! Keeps neighbors in memory: entries that the store read together with a requested one.
//!
//! Invariants: an entry that was replaced or removed since the read is not kept, because the memory cache's moment is
//! taken before the store determines which entries are current. An entry that was requested twice is never evicted for
//! a neighbor; see
//! [`MemoryCache::insert_unrequested`].
//!
//! Cost: a copy and a decoded head per entry kept, on the thread that read; one lookup per entry that is already in
//! memory. Idea: HashCache-Log's groups (NSDI'09), UCFS's clusters.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use crate::{MemoryCache, chunk_format::KIND_CHUNK};
use bytes::Bytes;
use larder_http::TargetList;
use larder_store::{NeighborEntry, NeighborSink, Reader, Store};

use crate::http::{hot::HotItem, lookup};

/// Connects a memory cache to a store. The store passes on the neighbors of each read (entries that it read along), and
/// `hot` keeps them.
///
/// This goes on for as long as `hot` lives. `targets` is used to decode the neighbors' heads.
pub fn connect(store: &Store, hot: &Arc<MemoryCache<HotItem>>, targets: &TargetList) {
    let hot = Arc::downgrade(hot);
    let targets = targets.clone();
    store.set_neighbors(Arc::new(move || begin(&hot, &targets)));
}

/// Creates the sink for the neighbors of one read: the entries that the store read along.
fn begin(hot: &Weak<MemoryCache<HotItem>>, targets: &TargetList) -> NeighborSink {
    let moment = hot.upgrade().map(|hot| hot.moment());
    let hot = Weak::clone(hot);
    let targets = targets.clone();
    Box::new(move |neighbor| {
        if let (Some(hot), Some(moment)) = (hot.upgrade(), moment)
            && hot.can_keep(neighbor.reader.head().len() as u64 + neighbor.reader.len())
            && !hot.contains(&neighbor.key)
            && let Some(content) = content_of(&neighbor, &targets)
        {
            hot.insert_unrequested(&neighbor.key, content, moment);
        }
    })
}

/// Returns a neighbor (an entry that the store read along) as an item for the memory cache, in memory of its own.
/// `None` if it is not usable.
fn content_of(neighbor: &NeighborEntry, targets: &TargetList) -> Option<HotItem> {
    let body = body_at_hand(&neighbor.reader)?;
    if neighbor.key.first() == Some(&KIND_CHUNK) {
        return Some(HotItem::chunk(Bytes::copy_from_slice(&body)));
    }
    lookup::decode(neighbor.reader.head(), body, targets).map(|content| content.hot_item())
}

/// Returns the whole body of an entry if it is available without waiting.
fn body_at_hand(reader: &Reader) -> Option<Bytes> {
    let mut reading = pin!(reader.read(0..reader.len()));
    match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(body)) => body,
        Poll::Ready(Err(_)) | Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use larder_device::MemoryDevice;
    use larder_http::{BodyPlace, ReceivedHead, SelectingFields, StoredHead, Timestamp, key};
    use larder_store::{Hints, StoreOptions};

    use super::*;
    use crate::{chunk_format::chunk_key, http::hot::HotContent};

    #[test]
    fn neighbors_are_found_as_hits_would_find_them() {
        let bench = Bench::new();
        let page = primary("/");
        let chunk = chunk_key(&primary("/long"), 7, 0);
        bench.commit(&page, response(4), b"body");
        bench.commit(&chunk, Vec::new(), b"part");
        let sink = bench.sink();
        for key in [&page, &chunk] {
            sink(bench.neighbor(key));
        }
        let found = |key: &[u8]| bench.hot.get_with(key, HotItem::content).expect("it is kept");
        let HotContent::Response(page) = found(&page) else { panic!("it is a response") };
        assert_eq!(page.unpack(&TargetList::default()).body_len(), 4);
        assert!(matches!(found(&chunk), HotContent::Chunk(bytes) if bytes == b"part"[..]));
    }

    #[test]
    fn neighbor_that_was_replaced_or_removed_since_the_read_is_not_kept() {
        let bench = Bench::new();
        bench.commit(&primary("/"), response(3), b"old");
        let sink = bench.sink();
        let neighbor = bench.neighbor(&primary("/"));
        bench.hot.remove(&primary("/"));
        sink(neighbor);
        assert!(!bench.hot.contains(&primary("/")));
        bench.sink()(bench.neighbor(&primary("/")));
        assert!(bench.hot.contains(&primary("/")), "a change before the read does not count");
    }

    #[test]
    fn head_and_body_that_do_not_belong_together_are_left() {
        let bench = Bench::new();
        bench.commit(&primary("/"), response(5), b"four");
        bench.commit(&primary("/no-head"), Vec::new(), b"four");
        let sink = bench.sink();
        sink(bench.neighbor(&primary("/")));
        sink(bench.neighbor(&primary("/no-head")));
        assert_eq!(bench.hot.len(), 0);
    }

    #[test]
    fn sink_does_not_keep_the_tier_alive() {
        let bench = Bench::new();
        bench.commit(&primary("/"), response(4), b"body");
        let sink = bench.sink();
        let neighbor = bench.neighbor(&primary("/"));
        let left = Arc::downgrade(&bench.hot);
        drop(bench);
        sink(neighbor);
        assert!(left.upgrade().is_none());
    }

    /// A store in memory with a memory cache in front of it. The test calls the sink directly, because only some
    /// policies read entries along.
    struct Bench {
        store: Store,
        hot: Arc<MemoryCache<HotItem>>,
        runtime: tokio::runtime::Runtime,
    }

    impl Bench {
        fn new() -> Self {
            let device = Arc::new(MemoryDevice::new(64 << 20));
            let store = Store::open_on(device, &StoreOptions::new("memory", 64 << 20)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            Self { store, hot: Arc::new(MemoryCache::new(1 << 20)), runtime }
        }

        fn commit(&self, key: &[u8], head: Vec<u8>, body: &'static [u8]) {
            let mut writer = self.store.insert(key, head.into(), Hints::default()).unwrap();
            writer.write(Bytes::from_static(body)).unwrap();
            self.runtime.block_on(writer.commit()).unwrap();
        }

        fn neighbor(&self, key: &[u8]) -> NeighborEntry {
            let reader = self.runtime.block_on(self.store.get(key)).unwrap().unwrap();
            NeighborEntry { key: Bytes::copy_from_slice(key), reader }
        }

        fn sink(&self) -> NeighborSink {
            begin(&Arc::downgrade(&self.hot), &TargetList::default())
        }
    }

    fn primary(path: &str) -> Vec<u8> {
        key::primary_key("http", "site.example", path).unwrap()
    }

    fn response(len: u64) -> Vec<u8> {
        let now = Timestamp::from_secs(0);
        let status = http::StatusCode::OK;
        let fields = http::HeaderMap::new();
        let received = ReceivedHead { status, fields, request_time: now, response_time: now };
        StoredHead::new(received, BodyPlace::Whole { len }, SelectingFields::default(), &TargetList::default()).encode()
    }
}
