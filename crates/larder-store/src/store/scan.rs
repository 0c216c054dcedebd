//! Lists the keys of a store that is in use.
//!
//! Owns: [`ScanSummary`], and the order: dirty data is flushed first, then each volume is scanned from its start.
//! [`Store::get`] decides which of several records of a key counts, and whether it is still useful. Invariant: every
//! key that had an entry when the scan began, and has not changed since, is listed at least once. Cost: reads the whole
//! store, with one segment in memory at a time.

use super::Store;
use crate::{Error, ErrorKind, Result, device::block_on, engine::kit::walk::WalkItem, families};
use std::cell::Cell;

/// An item of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanSummary<'a> {
    /// A record under this key. A key is listed once for each of its records, including older ones that were replaced
    /// or removed.
    Key(&'a [u8]),
    /// Progress: the bytes scanned and the total.
    Passed {
        /// Bytes scanned so far.
        bytes: u64,
        /// Bytes of the whole store.
        of: u64,
    },
}

impl_debug!(Store {});

impl Store {
    /// Returns whether all its policies can list their keys while the store is open.
    pub fn can_scan(&self) -> bool {
        self.volumes.all().all(|engine| engine.volume().policy.can_scan())
    }

    /// Calls `meet` with the keys of all entries. Reads the whole store. Stops when `meet` returns `false` or the store
    /// is closed. Blocks, so do not call it from a thread that serves requests.
    ///
    /// # Errors
    /// `Invalid` if a policy cannot list its keys ([`Store::can_scan`]), `Unavailable` if dirty data cannot be flushed,
    /// `Closed` if the store is closed.
    pub fn scan(&self, meet: &mut dyn FnMut(ScanSummary<'_>) -> bool) -> Result<()> {
        self.check_open()?;
        if !self.can_scan() {
            return Err(Error::new(ErrorKind::Invalid, "a store of this policy cannot tell its keys while it is open"));
        }
        block_on(self.sync())?;
        let of = self.volumes.sound().map(|engine| engine.volume().size_bytes()).sum();
        let (goes_on, mut bytes) = (Cell::new(true), 0);
        for engine in self.volumes.sound() {
            let volume = engine.volume();
            families::walk(volume, &|| goes_on.get() && !volume.is_closed(), &mut |met| {
                let told = match met {
                    WalkItem::Record { key, .. } => ScanSummary::Key(key),
                    WalkItem::Passed(passed) => {
                        bytes += passed;
                        ScanSummary::Passed { bytes, of }
                    }
                    WalkItem::Segment | WalkItem::Removal | WalkItem::Part | WalkItem::Damage { .. } => return,
                };
                if goes_on.get() && !meet(told) {
                    goes_on.set(false);
                }
            });
        }
        self.check_open()
    }
}
