//! Lists the keys of a store that is in use.
//!
//! Owns: [`ScanSummary`], and the order: the dirty data of a volume is flushed, then the volume is scanned from its
//! start. [`Store::get`] decides which of several records of a key counts, and whether it is still useful. Invariants:
//! every key that had an entry when the scan began, and has not changed since, is listed at least once. The engine's
//! code runs inside the fence of its volume, the caller's code outside. Cost: reads the whole store, except segments
//! that the default policy has not used, with one segment in memory at a time.

use super::Store;
use crate::{
    Error, ErrorKind, Result,
    device::block_on,
    engine::kit::walk::WalkItem,
    families,
    volume::failure::{CallersPanic, unfenced},
};
use std::cell::Cell;

/// One report of [`Store::scan`] to its caller.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Hints, ScanSummary, Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// store.insert(b"key", "the head".into(), Hints::default())?.commit().await?;
/// let mut keys = Vec::new();
/// store.scan(&mut |summary| {
///     match summary {
///         ScanSummary::Key(key) => keys.push(key.to_vec()),
///         ScanSummary::Passed { bytes, of } => println!("{bytes} of {of} bytes"),
///         _ => {}
///     }
///     true
/// })?;
/// assert_eq!(keys, [b"key"]);
/// # store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanSummary<'a> {
    /// A record under this key. A key is listed once for each of its records, including older ones that were replaced
    /// or removed.
    Key(&'a [u8]),
    /// The progress of the scan.
    Passed {
        /// Bytes scanned since the scan began.
        bytes: u64,
        /// Total bytes that the scan reads.
        of: u64,
    },
}

impl_debug!(Store {});

impl Store {
    /// Returns whether all policies of this store can list their keys while the store is open.
    pub fn can_scan(&self) -> bool {
        self.volumes.all().all(|engine| engine.volume().policy.can_scan())
    }

    /// Calls `meet` with the keys of all entries, and with the progress. Reads the used part of the store, except
    /// excluded volumes. Stops when `meet` returns `false` or the store is closed. Blocks, so do not call it from a
    /// thread that serves requests.
    ///
    /// # Errors
    /// `Invalid` if a policy cannot list its keys ([`Store::can_scan`]), `Unavailable` if dirty data cannot be flushed
    /// or an assertion of an engine fails during the scan, `Closed` if the store is closed.
    pub fn scan(&self, meet: &mut dyn FnMut(ScanSummary<'_>) -> bool) -> Result<()> {
        self.check_open()?;
        if !self.can_scan() {
            return Err(Error::new(ErrorKind::Invalid, "a store of this policy cannot tell its keys while it is open"));
        }
        let of = self.volumes.sound().map(|engine| engine.volume().size_bytes()).sum();
        let goes_on = Cell::new(true);
        let panic = Cell::new(None);
        let mut passed_bytes = 0;
        let mut meet_item = |item: WalkItem<'_>| {
            let Some(summary) = summary_of(item, &mut passed_bytes, of).filter(|_| goes_on.get()) else { return };
            // A panic of the caller's code is no failure of the engine.
            let outcome = unfenced(|| meet(summary)).map_err(|caught| panic.set(Some(caught)));
            goes_on.set(outcome.unwrap_or(false));
        };
        for engine in self.volumes.sound() {
            let volume = engine.volume();
            let may_go_on = || goes_on.get() && !volume.is_closed() && !volume.failure.is_set();
            block_on(engine.sync())?;
            let walked = volume.fence(|| families::walk(volume, &may_go_on, &mut meet_item));
            if let Some(panic) = panic.take() {
                CallersPanic::resume(panic);
            }
            walked?;
            if !goes_on.get() {
                break;
            }
        }
        self.check_open()
    }
}

/// Converts an item of a volume's scan into a report for the caller, and adds the bytes scanned to `passed_bytes`.
/// Returns `None` for items that are not reported.
fn summary_of<'a>(item: WalkItem<'a>, passed_bytes: &mut u64, of: u64) -> Option<ScanSummary<'a>> {
    match item {
        WalkItem::Record { key, .. } => Some(ScanSummary::Key(key)),
        WalkItem::Passed(bytes) => {
            *passed_bytes += bytes;
            Some(ScanSummary::Passed { bytes: *passed_bytes, of })
        }
        WalkItem::Segment | WalkItem::Removal | WalkItem::Part | WalkItem::Lost | WalkItem::Damage { .. } => None,
    }
}
