//! The memory of each part.

use super::{ProxyStats, process};
use crate::shared::ProxyState;

/// The memory of each part that is counted or known.
pub(crate) struct MemoryParts {
    index_bytes: u64,
    dirty_bytes: u64,
    hot_bytes: u64,
    window_bytes: u64,
    connection_bytes: u64,
    popular_bytes: u64,
    /// The resident memory of the process, from the system.
    pub(super) resident_bytes: Option<u64>,
}

impl MemoryParts {
    pub(crate) fn of(shared: &ProxyState, stats: &ProxyStats, popular_bytes: u64) -> Self {
        let (index_bytes, dirty_bytes) = shared.cache.store.as_ref().map_or((0, 0), |store| {
            let stats = store.stats();
            (stats.index_bytes, stats.dirty_bytes)
        });
        Self {
            index_bytes,
            dirty_bytes,
            hot_bytes: stats.hot_bytes,
            window_bytes: stats.window_bytes,
            connection_bytes: shared.cache.places.held_bytes(),
            popular_bytes,
            resident_bytes: process::resident_bytes(),
        }
    }

    /// Returns each part with its name, and the remainder of the process's memory: the program, the threads' stacks,
    /// and memory kept by the allocator.
    pub(crate) fn named(&self) -> [(&'static str, u64); 7] {
        let Self { index_bytes, dirty_bytes, hot_bytes, window_bytes, connection_bytes, popular_bytes, resident_bytes } =
            *self;
        let known = index_bytes + dirty_bytes + hot_bytes + window_bytes + connection_bytes + popular_bytes;
        [
            ("index", index_bytes),
            ("dirty", dirty_bytes),
            ("hot", hot_bytes),
            ("windows", window_bytes),
            ("connections", connection_bytes),
            ("popular", popular_bytes),
            ("other", resident_bytes.unwrap_or(0).saturating_sub(known)),
        ]
    }
}
