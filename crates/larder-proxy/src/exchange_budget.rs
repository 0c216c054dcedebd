//! Limits the memory of connections and exchanges: what each of them holds besides the counted bytes of its body.
//!
//! Owns: the count of reserved bytes, and the capacity that they leave to the memory cache. A place is reserved before
//! its memory is used, because a thousand requests can arrive between two checks of the governor. Invariants: nobody
//! waits for a place whose owner is a client, so a client that stands still takes memory from the others, but not their
//! turn. Cheap uses are admitted longer than expensive ones. Cost: an atomic addition per place; the memory cache is
//! resized once per [`STEP_BYTES`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use larder_cache::MemoryCache;
use tokio::{sync::Notify, time::timeout};

use crate::cache::hot::HotItem;

/// The memory for connections, exchanges and the memory cache, of all workers together.
pub(crate) struct ExchangeBudget {
    held_bytes: AtomicU64,
    connection_bytes: AtomicU64,
    /// The memory for all places and the memory cache.
    max_bytes: AtomicU64,
    hot: Arc<MemoryCache<HotItem>>,
    freed: Notify,
}

/// The use of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceUse {
    /// A client's connection without a request.
    Connection,
    /// The state of a connection with HTTP/2.
    Http2,
    /// A request that waits for its response.
    Exchange,
    /// A response whose body is sent in pieces. Replaces the exchange.
    Streaming,
    /// A fetch of a body that did not arrive with its head.
    Fetch,
}

/// Reserved memory.
pub(crate) struct ExchangePlace {
    used_for: PlaceUse,
    /// The bytes of the request's head, which stays in memory while the exchange waits.
    head_bytes: u64,
    budget: Arc<ExchangeBudget>,
}

impl ExchangeBudget {
    /// Creates an unused budget of `max_bytes` for places and `hot` together.
    pub(crate) fn new(max_bytes: u64, hot: Arc<MemoryCache<HotItem>>) -> Self {
        let (held_bytes, connection_bytes, freed) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
        Self { held_bytes, connection_bytes, max_bytes: AtomicU64::new(max_bytes), hot, freed }
    }

    /// Changes the limit.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Relaxed);
    }

    /// Returns the reserved bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Returns the limit of the reserved bytes.
    pub(crate) fn places_bytes_max(&self) -> u64 {
        self.max_bytes.load(Relaxed).saturating_sub(CACHE_BYTES_MIN)
    }

    /// Returns the bytes that the reserved ones leave to the memory cache.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        self.max_bytes.load(Relaxed).saturating_sub(self.held_bytes()).max(CACHE_BYTES_MIN)
    }

    /// Reserves a place, or returns `None` if there is no memory for it.
    pub(crate) fn take(self: &Arc<Self>, used_for: PlaceUse) -> Option<ExchangePlace> {
        let place = self.take_anyway(used_for);
        place.is_within_limit().then_some(place)
    }

    /// Reserves the place of an exchange whose request has a head of `head_bytes`.
    pub(crate) fn begin_exchange(self: &Arc<Self>, head_bytes: u64) -> Option<ExchangePlace> {
        self.add(PlaceUse::Exchange, head_bytes);
        let place = ExchangePlace { used_for: PlaceUse::Exchange, head_bytes, budget: Arc::clone(self) };
        place.is_within_limit().then_some(place)
    }

    /// Reserves a place even if there is no memory for it.
    pub(crate) fn take_anyway(self: &Arc<Self>, used_for: PlaceUse) -> ExchangePlace {
        self.add(used_for, 0);
        ExchangePlace { used_for, head_bytes: 0, budget: Arc::clone(self) }
    }

    /// Waits briefly for a place, because fetches end by themselves.
    pub(crate) async fn take_soon(self: &Arc<Self>, used_for: PlaceUse) -> Option<ExchangePlace> {
        let taking = async {
            loop {
                // Registered first, so that no place that is given back meanwhile is missed.
                let freed = self.freed.notified();
                if let Some(place) = self.take(used_for) {
                    return place;
                }
                freed.await;
            }
        };
        timeout(PLACE_PATIENCE, taking).await.ok()
    }

    fn add(&self, used_for: PlaceUse, head_bytes: u64) {
        let bytes = used_for.bytes() + head_bytes;
        let before = self.held_bytes.fetch_add(bytes, Relaxed);
        if used_for == PlaceUse::Connection {
            self.connection_bytes.fetch_add(bytes, Relaxed);
        }
        if before / STEP_BYTES != (before + bytes) / STEP_BYTES {
            let capacity = self.cache_bytes_max();
            if capacity < self.hot.capacity_bytes() {
                self.hot.set_capacity_bytes(capacity);
            }
        }
    }

    fn give_back(&self, used_for: PlaceUse, head_bytes: u64) {
        let bytes = used_for.bytes() + head_bytes;
        let before = self.held_bytes.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "{bytes} bytes were reserved for {used_for:?}, of all only {before}");
        if used_for == PlaceUse::Connection {
            self.connection_bytes.fetch_sub(bytes, Relaxed);
        }
        self.freed.notify_one();
    }
}

impl ExchangePlace {
    /// Returns whether there was memory for the place.
    pub(crate) fn is_within_limit(&self) -> bool {
        let ExchangeBudget { held_bytes, connection_bytes, .. } = &*self.budget;
        let max = self.budget.places_bytes_max();
        let is_within = |bytes: u64, sixteenths: u64| bytes <= max / SIXTEENTHS * sixteenths;
        match self.used_for {
            // Connections without a request leave room for requests.
            PlaceUse::Connection => is_within(connection_bytes.load(Relaxed), 12) && is_within(held_bytes.load(Relaxed), 16),
            PlaceUse::Fetch => is_within(held_bytes.load(Relaxed), 15),
            PlaceUse::Http2 | PlaceUse::Exchange | PlaceUse::Streaming => is_within(held_bytes.load(Relaxed), 16),
        }
    }

    /// Uses the place of an exchange for the response, whose request is no longer needed. Returns `false` if there is no
    /// memory for it.
    pub(crate) fn begin_streaming(&mut self) -> bool {
        let ExchangePlace { used_for, head_bytes, budget } = self;
        budget.add(PlaceUse::Streaming, 0);
        budget.give_back(*used_for, *head_bytes);
        *used_for = PlaceUse::Streaming;
        *head_bytes = 0;
        self.is_within_limit()
    }
}

impl Drop for ExchangePlace {
    fn drop(&mut self) {
        self.budget.give_back(self.used_for, self.head_bytes);
    }
}

impl PlaceUse {
    /// Returns the measured bytes of a use (`bench/memory.py`), rounded up.
    const fn bytes(self) -> u64 {
        match self {
            // The socket, its state and its task. If there are many, those that do nothing keep nothing else.
            Self::Connection => 2_200,
            Self::Http2 => 32 << 10,
            Self::Exchange => 13 << 10,
            // The HTTP library's two buffers, and the least share of a body.
            Self::Streaming => 32 << 10,
            // The window has the least share of a body, and one piece more.
            Self::Fetch => 24 << 10,
        }
    }
}

/// The memory cache is resized whenever this many more bytes are reserved.
const STEP_BYTES: u64 = 1 << 20;
/// Smallest memory cache, in bytes.
pub(crate) const CACHE_BYTES_MIN: u64 = 1 << 20;
/// Parts in which the limits of the uses are given.
const SIXTEENTHS: u64 = 16;
/// Longest wait for a place.
const PLACE_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max_bytes: u64) -> Arc<ExchangeBudget> {
        Arc::new(ExchangeBudget::new(CACHE_BYTES_MIN + max_bytes, Arc::new(MemoryCache::new(16 << 20))))
    }

    #[test]
    fn places_are_given_until_the_memory_is_reserved_and_again_when_it_is_given_back() {
        let budget = budget(64 << 10);
        let mut places: Vec<_> = std::iter::from_fn(|| budget.begin_exchange(0)).take(100).collect();
        assert_eq!(places.len() as u64, (64 << 10) / PlaceUse::Exchange.bytes());
        places.pop();
        assert!(budget.begin_exchange(0).is_some());
        assert!(budget.begin_exchange(60 << 10).is_none(), "a long head counts");
        drop(places);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn connections_without_a_request_leave_memory_to_requests() {
        let budget = budget(1 << 20);
        let connections: Vec<_> = std::iter::from_fn(|| budget.take(PlaceUse::Connection)).take(1000).collect();
        assert!(budget.held_bytes() > 700 << 10 && budget.held_bytes() <= 768 << 10, "{}", budget.held_bytes());
        let mut place = budget.begin_exchange(0).unwrap();
        assert!(place.begin_streaming() && budget.take(PlaceUse::Fetch).is_some());
        drop((connections, place));
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn memory_cache_gives_way_to_exchanges_before_the_next_check() {
        let budget = budget(16 << 20);
        let places: Vec<_> = std::iter::from_fn(|| budget.begin_exchange(0)).take(500).collect();
        let most = (17 << 20) - 500 * PlaceUse::Exchange.bytes();
        assert_eq!(budget.cache_bytes_max(), most);
        assert!(budget.hot.capacity_bytes() < most + STEP_BYTES, "{}", budget.hot.capacity_bytes());
        drop(places);
    }

    #[test]
    fn fetch_gets_the_place_of_another_that_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = budget(32 << 10);
            let first = budget.take_soon(PlaceUse::Fetch).await.unwrap();
            let second = tokio::spawn({
                let budget = Arc::clone(&budget);
                async move { budget.take_soon(PlaceUse::Fetch).await.is_some() }
            });
            tokio::task::yield_now().await;
            drop(first);
            assert!(second.await.unwrap());
        });
    }
}
