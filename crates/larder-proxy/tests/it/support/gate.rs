//! Lets one side of a test wait for the other.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

/// Closed until opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits longer than [`PATIENCE`], because the side that opens may first have many steps to take.
    pub(crate) fn wait(&self) {
        let open = self.0.0.lock().unwrap();
        let (open, _) = self.0.1.wait_timeout_while(open, PATIENCE * 4, |open| !*open).unwrap();
        assert!(*open, "nobody opened the gate");
    }
}

/// How long anything may take before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
