//! A device that panics once, as if an assertion of its caller had failed; for tests of what that does.
//!
//! Owns: the moment of the panic. Everything else is done by another device. Invariant: it panics once at most.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::{Device, Transfer};

/// Payload with which a [`PanickingDevice`] panics. Code that catches panics can tell by this payload that a test has
/// planned the panic, and need not report a fault of the program.
///
/// ```
/// use larder_device::PlannedPanic;
/// use std::panic::{catch_unwind, panic_any};
///
/// let panic = catch_unwind(|| panic_any(PlannedPanic)).unwrap_err();
/// assert!(panic.is::<PlannedPanic>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPanic;

/// A device for tests that panics once in [`Device::submit`], and otherwise passes operations to another device.
///
/// It shows what is lost when an assertion fails between two operations.
///
/// ```
/// use larder_device::{Device, MemoryDevice, PanickingDevice, PlannedPanic, block_on};
/// use std::{panic::{AssertUnwindSafe, catch_unwind}, sync::Arc};
///
/// let panicking = Arc::new(PanickingDevice::new(Arc::new(MemoryDevice::new(8192)), || true));
/// let device: Arc<dyn Device> = panicking.clone();
/// panicking.panic_after(1);
/// assert!(block_on(device.read(0, 4096)).is_ok());
/// let outcome = catch_unwind(AssertUnwindSafe(|| block_on(device.read(0, 4096))));
/// assert!(outcome.unwrap_err().is::<PlannedPanic>());
/// assert!(block_on(device.read(0, 4096)).is_ok());
/// ```
pub struct PanickingDevice {
    inner: Arc<dyn Device>,
    counts: fn() -> bool,
    /// Number of operations before the panic, including the one that panics. 0 if no panic is planned.
    left: AtomicU64,
    has_panicked: AtomicBool,
}

impl_debug!(PanickingDevice { left, has_panicked });

impl PanickingDevice {
    /// Creates a device on `inner`. Operations only count, and only panic, while `counts` returns `true`.
    pub fn new(inner: Arc<dyn Device>, counts: fn() -> bool) -> Self {
        Self { inner, counts, left: AtomicU64::new(0), has_panicked: AtomicBool::new(false) }
    }

    /// Plans a panic in the operation that follows the next `count` operations.
    pub fn panic_after(&self, count: u64) {
        self.left.store(count + 1, Ordering::SeqCst);
    }

    /// Returns whether the device has panicked.
    pub fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::SeqCst)
    }

    /// Counts an operation. Returns whether it must panic.
    fn is_struck(&self) -> bool {
        let is_planned = self.left.load(Ordering::SeqCst) > 0 && (self.counts)();
        let fewer = |left: u64| left.checked_sub(1);
        is_planned && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) == Ok(1)
    }
}

impl Device for PanickingDevice {
    fn submit(&self, transfer: Transfer) {
        if self.is_struck() {
            self.has_panicked.store(true, Ordering::SeqCst);
            panic::panic_any(PlannedPanic);
        }
        self.inner.submit(transfer);
    }

    crate::delegate_device!(inner);
}
