//! A planned panic in the middle of the engine's code, as if an assertion had failed.
//!
//! Owns: the device that panics. It is armed at the start of each life of the store until it has struck. Invariant: no
//! other assertion fails. What a store with a failed engine may forget is in `excuses`.

use super::Trial;
use larder_device::{Device, PanickingDevice};
use larder_store::{Store, contains_panics};
use std::sync::Arc;

/// A panic that the schedule prescribes in the engine, if any.
#[derive(Default)]
pub(super) struct PlannedFailure {
    /// Number of device operations of the engine after which it panics, counted from each start of the store.
    after: Option<u64>,
    /// The device that makes the engine of the present life panic.
    armed: Option<Arc<PanickingDevice>>,
    /// Whether the panic happened in an earlier life of the store.
    is_over: bool,
}

impl PlannedFailure {
    /// Returns `device`, wrapped so that the engine panics if the panic is still to come.
    pub(super) fn arm(&mut self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        self.is_over |= self.has_struck_now();
        self.armed = None;
        let Some(after) = self.after.filter(|_| !self.is_over) else { return device };
        let armed = Arc::new(PanickingDevice::new(device, contains_panics));
        armed.panic_after(after);
        self.armed = Some(Arc::clone(&armed));
        armed
    }

    /// Returns whether the engine has panicked since the store was opened.
    pub(super) fn has_struck_now(&self) -> bool {
        self.armed.as_ref().is_some_and(|device| device.has_panicked())
    }

    /// Returns how often the engine has panicked in this trial: 0 or 1.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.is_over || self.has_struck_now())
    }
}

impl Trial {
    /// Makes the engine panic once, after `count` device operations since the store was opened.
    pub(crate) fn panic_after(&mut self, count: u64) {
        self.panics.after = Some(count);
    }

    /// Checks that the engine has panicked only where it was prescribed.
    ///
    /// # Errors
    /// A text that says that another assertion failed.
    pub(super) fn check_failures(&self) -> Result<(), String> {
        let planned = u64::from(self.panics.has_struck_now());
        match self.store.as_ref().map(Store::stats) {
            Some(stats) if stats.failed_assertions > planned => Err("an assertion of the engine failed".to_owned()),
            _ => Ok(()),
        }
    }
}
