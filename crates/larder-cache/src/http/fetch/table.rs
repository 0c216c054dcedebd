//! The flights in progress, by key: one fetch per key, however many clients request it.
//!
//! Owns: the map. Invariant: a flight is in the table from before its request is sent until its response is stored or
//! has failed. So a second request always finds either the flight or the stored response. Cost: one hash of
//! the key, and a short lock of one shard when a flight begins and when it ends. Memory: 128 KiB.

use foldhash::fast::RandomState;
use larder_device::IgnorePoison;
use std::{
    hash::BuildHasher as _,
    sync::{Arc, Mutex, MutexGuard},
};

use super::{reader::FlightReader, shared::Flight};
use crate::http::fetcher::Fetcher;

/// The flights in progress: the fetches that requests can share.
pub struct FlightTable<F: Fetcher> {
    hasher: RandomState,
    shards: Box<[Shard<F>]>,
}

/// The flights (shared fetches) of one shard, in no order. There are so many shards that nearly all have one flight or
/// none.
type Shard<F> = Mutex<Vec<TableEntry<F>>>;

struct TableEntry<F: Fetcher> {
    key: Arc<[u8]>,
    flight: Arc<Flight<F>>,
}

/// The flight (the shared fetch) that a request has joined or begun.
pub struct JoinedFlight<F: Fetcher> {
    /// The reader with which the request waits for the flight.
    pub reader: FlightReader<F>,
    /// Whether the request has begun the flight, and must start its fetch.
    pub is_first: bool,
    /// An earlier flight: this one waits until its response head has arrived. `None` unless both flights are reloads.
    ///
    /// While this flight waits, other reloads can join it. So the origin gets one request at a time, however many
    /// clients reload the resource.
    pub after: Option<Arc<Flight<F>>>,
    /// The shard of the table that has the flight. `None` if the flight is not in the table, so that it cannot be
    /// joined.
    pub shard: Option<ShardIndex>,
}

/// The index of a key's shard, kept so that the key is hashed only once.
#[derive(Clone, Copy, Debug)]
pub struct ShardIndex(usize);

impl<F: Fetcher> FlightTable<F> {
    /// Joins the flight (the shared fetch) for a key if `is_current` accepts it. Otherwise replaces it with a new
    /// flight from `begin`.
    ///
    /// A reload (`is_reload`) joins only a flight whose request to the origin has not been sent yet.
    pub fn join(
        &self,
        key: &Arc<[u8]>,
        is_reload: bool,
        is_current: impl Fn(&Flight<F>) -> bool,
        begin: impl FnOnce() -> Flight<F>,
    ) -> JoinedFlight<F> {
        let index = self.index_of(key);
        let shard = Some(index);
        let mut flights = self.shard(index);
        let at = flights.iter().position(|entry| entry.key == *key);
        let present = at.map(|at| &flights[at].flight).filter(|flight| is_current(flight));
        if let Some(reader) = present.filter(|flight| !is_reload || !flight.has_left()).and_then(FlightReader::join) {
            return JoinedFlight { reader, is_first: false, after: None, shard };
        }
        let after = present.filter(|flight| is_reload && flight.is_reload()).cloned();
        let flight = Arc::new(begin());
        match at {
            Some(at) => flights[at].flight = Arc::clone(&flight),
            None => flights.push(TableEntry { key: Arc::clone(key), flight: Arc::clone(&flight) }),
        }
        JoinedFlight { reader: FlightReader::first(flight), is_first: true, after, shard }
    }

    /// Returns whether a flight (a shared fetch) for a key is in progress.
    pub fn is_flying(&self, key: &Arc<[u8]>) -> bool {
        self.shard(self.index_of(key)).iter().any(|entry| entry.key == *key)
    }

    fn index_of(&self, key: &Arc<[u8]>) -> ShardIndex {
        ShardIndex(self.hasher.hash_one(key) as usize % SHARD_COUNT)
    }

    /// Returns whether this flight is in the table, so that requests can join it.
    pub(super) fn has(&self, shard: ShardIndex, flight: &Arc<Flight<F>>) -> bool {
        self.shard(shard).iter().any(|entry| Arc::ptr_eq(&entry.flight, flight))
    }

    /// Removes a flight from the table. Does nothing if another flight has replaced it there.
    pub(super) fn remove(&self, shard: ShardIndex, flight: &Arc<Flight<F>>) {
        let mut flights = self.shard(shard);
        if let Some(at) = flights.iter().position(|entry| Arc::ptr_eq(&entry.flight, flight)) {
            flights.swap_remove(at);
        }
    }

    fn shard(&self, index: ShardIndex) -> MutexGuard<'_, Vec<TableEntry<F>>> {
        self.shards[index.0].lock().ignore_poison()
    }
}

impl<F: Fetcher> Default for FlightTable<F> {
    fn default() -> Self {
        Self { hasher: RandomState::default(), shards: (0..SHARD_COUNT).map(|_| Shard::default()).collect() }
    }
}

/// Number of shards. A lookup compares all keys of a shard, so there should be about as many shards as flights in
/// progress.
const SHARD_COUNT: usize = 4096;
