//! Limits the memory of connections and exchanges: what each holds besides the counted bytes of its body.
//!
//! Owns: the number of reserved bytes, and the size that they leave to the memory cache. Memory is reserved before it
//! is used, because a thousand requests can arrive between two checks of the governor. Invariants: only a fetch waits
//! for memory, and only briefly. So clients that do not read take memory from others, but do not block them. Each use
//! has a maximum share, and waiting requests leave memory for the bodies that end their wait. Cost: two atomic
//! additions per reservation; the memory cache is resized once per [`STEP_BYTES`].

use larder_device::IgnorePoison;
use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use crate::{
    ground::cache::{MemoryCache, hot::HotItem},
    origins::stream::SCARCE_HEAD_READ_BYTES,
};

/// The memory budget that connections, exchanges and the memory cache of all workers share.
pub(crate) struct ExchangeBudget {
    held_bytes: AtomicU64,
    /// Number of reserved bytes for each [`PlaceUse`].
    used_bytes: [AtomicU64; PlaceUse::COUNT],
    /// Maximum bytes for all reservations and the memory cache together.
    max_bytes: AtomicU64,
    /// Number of bytes by which the whole process exceeds its memory limit.
    excess_bytes: AtomicU64,
    hot: Arc<MemoryCache<HotItem>>,
    freed: Notify,
    /// Number of fetches that wait for memory.
    waiting_fetch_count: AtomicU64,
}

/// The purpose for which memory is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceUse {
    /// An open client connection, without its requests, which have reservations of their own.
    Connection,
    /// The state of an HTTP/2 connection.
    Http2,
    /// A request that waits for its response.
    Exchange,
    /// A response over HTTP/1.1 that is sent in pieces. It replaces the reservation of its exchange.
    Streaming,
    /// A response over HTTP/2 that is sent in pieces. It replaces the reservation of its exchange.
    StreamingHttp2,
    /// A fetch whose body did not arrive together with the head.
    Fetch,
}

/// Reserved memory, released when this is dropped.
pub(crate) struct ExchangePlace {
    used_for: PlaceUse,
    /// Bytes that are reserved in addition to the usual ones: for a request's head, or a connection's streams.
    more_bytes: u64,
    budget: Arc<ExchangeBudget>,
}

impl ExchangeBudget {
    /// Creates a budget of `max_bytes`, which reservations and the memory cache `hot` share. Nothing is reserved yet.
    pub(crate) fn new(max_bytes: u64, hot: Arc<MemoryCache<HotItem>>) -> Self {
        Self {
            held_bytes: AtomicU64::new(0),
            used_bytes: Default::default(),
            max_bytes: AtomicU64::new(max_bytes),
            excess_bytes: AtomicU64::new(0),
            hot,
            freed: Notify::new(),
            waiting_fetch_count: AtomicU64::new(0),
        }
    }

    /// Changes the limit of the budget.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.max_bytes.store(max_bytes, Relaxed);
    }

    /// Sets by how many bytes the process exceeds its memory limit.
    ///
    /// These bytes are taken from new requests and connections. Responses that have begun keep their memory, because
    /// they end by themselves.
    pub(crate) fn set_excess_bytes(&self, excess_bytes: u64) {
        self.excess_bytes.store(excess_bytes, Relaxed);
    }

    /// Returns the number of reserved bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Returns whether over a sixteenth of the memory is reserved. Responses then should not keep buffers longer than
    /// their bodies.
    pub(crate) fn are_many(&self) -> bool {
        self.held_bytes() > self.places_bytes_max() / SIXTEENTHS
    }

    /// Returns the maximum number of reserved bytes.
    fn places_bytes_max(&self) -> u64 {
        self.max_bytes.load(Relaxed).saturating_sub(CACHE_BYTES_MIN)
    }

    /// Returns the size that reservations leave to the memory cache, in bytes.
    pub(crate) fn cache_bytes_max(&self) -> u64 {
        self.max_bytes.load(Relaxed).saturating_sub(self.held_bytes()).max(CACHE_BYTES_MIN)
    }

    /// Reserves memory for a use, or returns `None` if none is left.
    pub(crate) fn take(self: &Arc<Self>, used_for: PlaceUse) -> Option<ExchangePlace> {
        self.add(used_for, used_for.bytes());
        if !self.is_within_limit(used_for) {
            // Waiting fetches are not woken, because they have no more memory than before.
            self.subtract(used_for, used_for.bytes());
            return None;
        }
        Some(ExchangePlace { used_for, more_bytes: 0, budget: Arc::clone(self) })
    }

    /// Reserves memory for an exchange, including the `head_bytes` of its request's head. Returns `None` if too little
    /// is left.
    pub(crate) fn begin_exchange(self: &Arc<Self>, head_bytes: u64) -> Option<ExchangePlace> {
        let mut place = self.take_anyway(PlaceUse::Exchange);
        place.grow(head_bytes);
        place.is_within_limit().then_some(place)
    }

    /// Reserves memory for a use even if none is left.
    pub(crate) fn take_anyway(self: &Arc<Self>, used_for: PlaceUse) -> ExchangePlace {
        self.add(used_for, used_for.bytes());
        ExchangePlace { used_for, more_bytes: 0, budget: Arc::clone(self) }
    }

    /// Reserves memory for a fetch, and waits up to [`PLACE_PATIENCE`] for it, because other fetches end by themselves.
    ///
    /// Returns `None` at once if the fetches that wait are as many as those that have memory. Waiting fetches hold
    /// other memory, which the running ones need.
    pub(crate) async fn take_for_fetch(self: &Arc<Self>) -> Option<ExchangePlace> {
        if let Some(place) = self.take(PlaceUse::Fetch) {
            return Some(place);
        }
        let _waiting = WaitingFetch::begin(self)?;
        let taking = async {
            loop {
                // Registered before the attempt, so that no memory that is released meanwhile is missed.
                let mut freed = pin!(self.freed.notified());
                freed.as_mut().enable();
                if let Some(place) = self.take(PlaceUse::Fetch) {
                    return place;
                }
                freed.await;
            }
        };
        timeout(PLACE_PATIENCE, taking).await.ok()
    }

    fn add(&self, used_for: PlaceUse, bytes: u64) {
        let before = self.held_bytes.fetch_add(bytes, Relaxed);
        self.used_bytes[used_for as usize].fetch_add(bytes, Relaxed);
        if before / STEP_BYTES != (before + bytes) / STEP_BYTES {
            let capacity = self.cache_bytes_max();
            if capacity < self.hot.capacity_bytes() {
                self.hot.set_capacity_bytes(capacity);
            }
        }
    }

    fn subtract(&self, used_for: PlaceUse, bytes: u64) {
        let before = self.held_bytes.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "{bytes} bytes were reserved for {used_for:?}, of all only {before}");
        self.used_bytes[used_for as usize].fetch_sub(bytes, Relaxed);
    }

    /// Returns whether the bytes that are reserved for a use are within the limit for that use.
    fn is_within_limit(&self, used_for: PlaceUse) -> bool {
        let max = self.places_bytes_max();
        // The excess may have other causes, so at least half remains.
        let excess = if used_for.is_for_body() { 0 } else { self.excess_bytes.load(Relaxed).min(max / 2) };
        let used = self.used(used_for);
        let (kept, shared) = match used_for {
            // Waiting requests share what HTTP/2 connections leave, and must leave a part of it to the bodies that end
            // their wait.
            PlaceUse::Exchange => (0, max - max.min(self.used(PlaceUse::Http2))),
            PlaceUse::Connection | PlaceUse::Http2 => (0, max),
            PlaceUse::Streaming | PlaceUse::StreamingHttp2 | PlaceUse::Fetch => (max / SIXTEENTHS, max),
        };
        self.held_bytes() <= max - excess - kept && used <= shared / SIXTEENTHS * used_for.sixteenths_max()
    }

    fn used(&self, used_for: PlaceUse) -> u64 {
        self.used_bytes[used_for as usize].load(Relaxed)
    }

    /// Returns how many concurrent streams a new HTTP/2 connection may have, at most `limit`.
    ///
    /// While memory is in demand, further streams are refused before they use memory.
    pub(crate) fn stream_count_max(&self, limit: u32) -> u32 {
        let is_in_demand = self.held_bytes() > self.places_bytes_max() / SIXTEENTHS * DEMAND_SIXTEENTHS;
        if is_in_demand { limit.min(DEMAND_STREAM_COUNT) } else { limit }
    }
}

impl ExchangePlace {
    /// Returns whether all reservations for the same use, including this one, are within their limit.
    pub(crate) fn is_within_limit(&self) -> bool {
        self.budget.is_within_limit(self.used_for)
    }

    /// Adds bytes to the reservation, even if none are left.
    pub(crate) fn grow(&mut self, bytes: u64) {
        self.budget.add(self.used_for, bytes);
        self.more_bytes += bytes;
    }

    /// Replaces the reservation of an exchange by one for its response, because the request is no longer needed.
    ///
    /// Returns `false` if no memory is left for the response.
    pub(crate) fn begin_streaming(&mut self, is_http2: bool) -> bool {
        let used_for = if is_http2 { PlaceUse::StreamingHttp2 } else { PlaceUse::Streaming };
        let streaming = self.budget.take_anyway(used_for);
        *self = streaming;
        self.is_within_limit()
    }
}

/// A fetch that counts as waiting for memory until this is dropped.
struct WaitingFetch<'a>(&'a ExchangeBudget);

impl<'a> WaitingFetch<'a> {
    /// Begins the wait. Returns `None` if too many fetches wait already.
    fn begin(budget: &'a ExchangeBudget) -> Option<Self> {
        let with_place = budget.used(PlaceUse::Fetch) / PlaceUse::Fetch.bytes();
        let before = budget.waiting_fetch_count.fetch_add(1, Relaxed);
        let waiting = Self(budget);
        (before < with_place).then_some(waiting)
    }
}

impl Drop for WaitingFetch<'_> {
    fn drop(&mut self) {
        self.0.waiting_fetch_count.fetch_sub(1, Relaxed);
    }
}

/// The memory that h2 keeps for the streams of one connection.
pub(crate) struct StreamMemory {
    /// Largest number of concurrent streams so far.
    count_max: AtomicU32,
    place: Mutex<ExchangePlace>,
}

impl StreamMemory {
    pub(crate) fn new(place: ExchangePlace) -> Self {
        Self { count_max: AtomicU32::new(0), place: Mutex::new(place) }
    }

    /// Reserves memory for further streams if `count`, the number of concurrent streams, is a new maximum.
    pub(crate) fn note(&self, count: u32) {
        let before = self.count_max.fetch_max(count, Relaxed);
        if count > before {
            let mut place = self.place.lock().ignore_poison();
            place.grow(u64::from(count - before) * HTTP2_STREAM_BYTES);
        }
    }
}

impl Drop for ExchangePlace {
    fn drop(&mut self) {
        self.budget.subtract(self.used_for, self.used_for.bytes() + self.more_bytes);
        self.budget.freed.notify_one();
    }
}

impl PlaceUse {
    const COUNT: usize = 6;

    /// Returns the maximum share of a use, in sixteenths of all reservable memory.
    ///
    /// Idle clients leave memory for requests. Waiting requests leave memory for the responses that end their wait.
    const fn sixteenths_max(self) -> u64 {
        match self {
            Self::Connection | Self::Http2 => 12,
            Self::Exchange => 10,
            Self::Streaming | Self::StreamingHttp2 | Self::Fetch => 15,
        }
    }

    /// Returns whether the memory is for the body of a response that has begun. Such memory ends the wait of a request.
    const fn is_for_body(self) -> bool {
        matches!(self, Self::Streaming | Self::StreamingHttp2 | Self::Fetch)
    }

    /// Returns the memory that one reservation for this use needs, in bytes, measured with `bench/memory.py` and
    /// rounded up.
    const fn bytes(self) -> u64 {
        match self {
            // The socket, its state and its task. While many connections are open, idle ones keep no buffers.
            Self::Connection => 2_200,
            Self::Http2 => 20 << 10,
            // The exchange, the connection to the origin, and a little of a body that arrived with its head.
            Self::Exchange => (10 << 10) + SCARCE_HEAD_READ_BYTES as u64,
            // The data that the client has not accepted yet, and the minimum share of a body.
            Self::Streaming => 26 << 10,
            // The state of the stream, and the minimum share of a body. Data is taken only when the stream's window has
            // room.
            Self::StreamingHttp2 => 10 << 10,
            // The minimum share of a body, and one more piece.
            Self::Fetch => 32 << 10,
        }
    }
}

/// Memory that h2 keeps for each concurrent stream, in bytes. h2 reuses it, but frees it only when the connection
/// closes.
const HTTP2_STREAM_BYTES: u64 = 2 << 10;
/// Number of newly reserved bytes after which the memory cache is resized.
const STEP_BYTES: u64 = 1 << 20;
/// Minimum size of the memory cache, in bytes.
pub(crate) const CACHE_BYTES_MIN: u64 = 1 << 20;
/// Share of reserved memory, in sixteenths, above which new HTTP/2 connections get fewer streams.
const DEMAND_SIXTEENTHS: u64 = 4;
/// Maximum concurrent streams of a connection that is opened while memory is in demand. Browsers rarely need more.
const DEMAND_STREAM_COUNT: u32 = 16;
/// The unit in which the shares of the uses are given.
const SIXTEENTHS: u64 = 16;
/// Maximum time that a fetch waits for memory.
const PLACE_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max_bytes: u64) -> Arc<ExchangeBudget> {
        Arc::new(ExchangeBudget::new(CACHE_BYTES_MIN + max_bytes, Arc::new(MemoryCache::new(16 << 20))))
    }

    #[test]
    fn places_are_given_until_the_memory_is_reserved_and_again_when_it_is_given_back() {
        let budget = budget(1 << 20);
        let mut places: Vec<_> = std::iter::from_fn(|| budget.begin_exchange(0)).take(100).collect();
        let share = (1 << 20) / SIXTEENTHS * PlaceUse::Exchange.sixteenths_max();
        assert_eq!(places.len() as u64, share / PlaceUse::Exchange.bytes());
        places.pop();
        assert!(budget.begin_exchange(60 << 10).is_none(), "a long head counts");
        assert!(budget.begin_exchange(0).is_some() && budget.are_many());
        drop(places);
        assert!(budget.held_bytes() == 0 && !budget.are_many());
    }

    #[test]
    fn connections_without_a_request_leave_memory_to_requests() {
        let budget = budget(1 << 20);
        let connections: Vec<_> = std::iter::from_fn(|| budget.take(PlaceUse::Connection)).take(1000).collect();
        assert!(budget.held_bytes() > 700 << 10 && budget.held_bytes() <= 768 << 10, "{}", budget.held_bytes());
        let mut place = budget.begin_exchange(0).unwrap();
        assert!(place.begin_streaming(false) && budget.take(PlaceUse::Fetch).is_some());
        drop((connections, place));
        assert_eq!(budget.held_bytes(), 0);
    }

    #[test]
    fn waiting_requests_and_streams_leave_memory_to_the_bodies_that_end_their_wait() {
        let budget = budget(16 << 20);
        let streams: Vec<_> = (0..40).map(|_| StreamMemory::new(budget.take(PlaceUse::Http2).unwrap())).collect();
        assert_eq!(budget.stream_count_max(100), 100);
        streams.iter().for_each(|memory| memory.note(100));
        assert_eq!(budget.stream_count_max(100), DEMAND_STREAM_COUNT);
        let waiting: Vec<_> = std::iter::from_fn(|| budget.begin_exchange(0)).take(1000).collect();
        let fetches: Vec<_> = std::iter::from_fn(|| budget.take(PlaceUse::Fetch)).take(1000).collect();
        assert!(waiting.len() > 200 && fetches.len() > 40, "{} wait, {} are fetched", waiting.len(), fetches.len());
        assert!(budget.take(PlaceUse::Http2).is_some(), "a client may still connect");
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
    fn excess_of_the_process_is_taken_from_new_requests_up_to_half_of_their_memory() {
        let budget = budget(1 << 20);
        let take = || std::iter::from_fn(|| budget.begin_exchange(0)).take(1000).collect::<Vec<_>>();
        let all = take().len();
        budget.set_excess_bytes(512 << 10);
        let mut half = take();
        assert!(half.len() < all && !half.is_empty(), "{} of {all}", half.len());
        budget.set_excess_bytes(u64::MAX);
        assert!(half.pop().is_some() && budget.begin_exchange(0).is_some());
        assert!(half[0].begin_streaming(false) && budget.take(PlaceUse::Fetch).is_some(), "what has begun goes on");
    }

    #[test]
    fn fetch_gets_the_place_of_another_that_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let budget = budget(PlaceUse::Fetch.bytes() * 5 / 4);
            let first = budget.take_for_fetch().await.unwrap();
            let second = tokio::spawn({
                let budget = Arc::clone(&budget);
                async move { budget.take_for_fetch().await.is_some() }
            });
            tokio::task::yield_now().await;
            let third = timeout(Duration::ZERO, budget.take_for_fetch()).await;
            assert!(third.is_ok_and(|place| place.is_none()), "as many wait as have a place");
            drop(first);
            assert!(second.await.unwrap());
        });
    }
}
