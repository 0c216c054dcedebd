//! Long bodies that are still arriving although their heads are already stored.
//!
//! The early head makes the received part usable after a crash. Until the body is complete or has broken off, this
//! process hides the head, and requests share the fetch instead. Cost: one lock for a stored response in chunks that is
//! not in memory.

use larder_device::IgnorePoison;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard},
};

/// The representations (versions of a response) whose bodies are still arriving.
#[derive(Default)]
pub struct Arrivals(Mutex<HashSet<u64>>);

/// A mark that the body of a representation is arriving. Dropping it removes the mark.
pub struct ArrivalMark {
    arrivals: Arc<Arrivals>,
    representation: u64,
}

impl Arrivals {
    /// Records that the body of a representation is arriving, until the returned mark is dropped.
    pub fn begin(self: &Arc<Self>, representation: u64) -> ArrivalMark {
        let is_new = self.lock().insert(representation);
        debug_assert!(is_new, "a representation arrives once");
        ArrivalMark { arrivals: Arc::clone(self), representation }
    }

    /// Returns whether the body of a representation is arriving.
    pub fn has(&self, representation: u64) -> bool {
        self.lock().contains(&representation)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().ignore_poison()
    }
}

impl Drop for ArrivalMark {
    fn drop(&mut self) {
        self.arrivals.lock().remove(&self.representation);
    }
}
