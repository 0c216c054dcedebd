//! The flights in progress, by key: one fetch per key, however many clients request it.
//!
//! Owns: the map. Invariant: a flight is in the table from before its request is sent until its response is stored or
//! has failed. So a second request always finds either the flight or the stored response. Cost: one short lock of one
//! shard per miss, shared by all workers.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex},
};

use crate::flight::{reader::FlightReader, shared::Flight};

/// The flights in progress.
pub(crate) struct FlightTable {
    hasher: RandomState,
    shards: Box<[Shard]>,
}

type Shard = Mutex<HashMap<Arc<[u8]>, Arc<Flight>>>;

/// A flight that was joined or begun.
pub(crate) struct JoinedFlight {
    pub(crate) reader: FlightReader,
    /// Whether the flight is new and must be started.
    pub(crate) is_first: bool,
    /// The earlier flight that this reload waits for. Later requests share this flight, so the origin gets one request
    /// at a time, however many clients reload the resource.
    pub(crate) after: Option<Arc<Flight>>,
}

impl FlightTable {
    /// Joins the flight for a key if `is_current` accepts it. Otherwise replaces it with a new one from `begin`.
    ///
    /// A reload joins only a flight whose request has not been sent yet.
    pub(crate) fn join(
        &self,
        key: &Arc<[u8]>,
        is_reload: bool,
        is_current: impl Fn(&Flight) -> bool,
        begin: impl FnOnce() -> Flight,
    ) -> JoinedFlight {
        let mut flights = self.shard(key).lock().ignore_poison();
        let present = flights.get(key).filter(|flight| is_current(flight));
        if let Some(reader) = present.filter(|flight| !is_reload || !flight.has_left()).and_then(FlightReader::join) {
            return JoinedFlight { reader, is_first: false, after: None };
        }
        let after = present.filter(|flight| is_reload && flight.is_reload()).cloned();
        let flight = Arc::new(begin());
        flights.insert(Arc::clone(key), Arc::clone(&flight));
        JoinedFlight { reader: FlightReader::first(flight), is_first: true, after }
    }

    /// Returns whether this flight is the one in the table for its key.
    pub(crate) fn has(&self, key: &Arc<[u8]>, flight: &Arc<Flight>) -> bool {
        let flights = self.shard(key).lock().ignore_poison();
        flights.get(key).is_some_and(|present| Arc::ptr_eq(present, flight))
    }

    /// Removes a flight from the table, unless another has replaced it.
    pub(crate) fn remove(&self, key: &Arc<[u8]>, flight: &Arc<Flight>) {
        let mut flights = self.shard(key).lock().ignore_poison();
        if flights.get(key).is_some_and(|present| Arc::ptr_eq(present, flight)) {
            flights.remove(key);
        }
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one(key) as usize % SHARD_COUNT]
    }
}

impl Default for FlightTable {
    fn default() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Mutex::new(HashMap::new())).collect();
        Self { hasher: RandomState::new(), shards }
    }
}

const SHARD_COUNT: usize = 64;
