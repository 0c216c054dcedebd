//! A planned panic in the middle of the engine's code, as if an assertion had failed.
//!
//! Owns: the device that panics. It is armed at the start of each life of the store until it has struck. Invariant: no
//! other assertion fails. What a store with a failed engine may forget is in `excuses`.

use super::Trial;
use larder_device::{Device, PanickingDevice};
use larder_store::{Store, contains_panics};
use std::sync::Arc;

/// The panic of a trial, if one is planned.
#[derive(Default)]
pub(super) struct PlannedFailure {
    /// Number of operations of the engine in a life after which it panics.
    after: Option<u64>,
    /// The device of this life, which panics.
    armed: Option<Arc<PanickingDevice>>,
    /// Whether the panic struck in an earlier life.
    is_over: bool,
}

impl PlannedFailure {
    /// Returns `device`, made to panic if that is planned and has not happened.
    pub(super) fn arm(&mut self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        self.is_over |= self.has_struck_now();
        self.armed = None;
        let Some(after) = self.after.filter(|_| !self.is_over) else { return device };
        let armed = Arc::new(PanickingDevice::new(device, contains_panics));
        armed.panic_after(after);
        self.armed = Some(Arc::clone(&armed));
        armed
    }

    /// Returns whether the engine of this life has panicked.
    pub(super) fn has_struck_now(&self) -> bool {
        self.armed.as_ref().is_some_and(|device| device.has_panicked())
    }

    /// Returns the number of panics so far.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.is_over || self.has_struck_now())
    }
}

impl Trial {
    /// Plans a panic after `count` operations of the engine in a life.
    pub(crate) fn panic_after(&mut self, count: u64) {
        self.panics.after = Some(count);
    }

    /// Checks that no assertion failed but the planned one.
    ///
    /// # Errors
    /// The engine has panicked otherwise.
    pub(super) fn check_failures(&self) -> Result<(), String> {
        let planned = u64::from(self.panics.has_struck_now());
        match self.store.as_ref().map(Store::stats) {
            Some(stats) if stats.failed_assertions > planned => Err("an assertion of the engine failed".to_owned()),
            _ => Ok(()),
        }
    }
}
