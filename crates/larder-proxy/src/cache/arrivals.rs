//! Long bodies that are still arriving, although their heads are stored already.
//!
//! Such a head makes the part that has arrived usable after a kill. Until the body is complete, or has broken off, this
//! process does not show it: requests share the fetch instead. Cost: for a stored response in chunks that is not in
//! memory, one lock.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The representations that still arrive.
#[derive(Default)]
pub(crate) struct Arrivals(Mutex<HashSet<u64>>);

/// An arriving body, until this is dropped.
pub(crate) struct Arrival {
    arrivals: Arc<Arrivals>,
    representation: u64,
}

impl Arrivals {
    pub(crate) fn begin(self: &Arc<Self>, representation: u64) -> Arrival {
        let is_new = self.lock().insert(representation);
        debug_assert!(is_new, "a representation arrives once");
        Arrival { arrivals: Arc::clone(self), representation }
    }

    pub(crate) fn has(&self, representation: u64) -> bool {
        self.lock().contains(&representation)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.arrivals.lock().remove(&self.representation);
    }
}
