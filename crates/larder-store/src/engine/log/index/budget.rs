//! How much memory the index may take: what its tables have together, and the most of it.
//!
//! Invariant: no table grows beyond it, but for one bucket of a table that has none. Cost: two atomic operations when a table changes its length.

use crate::sync::atomic::{AtomicU64, Ordering};

/// See the module.
pub(crate) struct IndexBudget {
    used_bytes: AtomicU64,
    max_bytes: u64,
}

impl IndexBudget {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { used_bytes: AtomicU64::new(0), max_bytes }
    }

    /// Returns the most that may be taken, in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Notes that a table of `before` bytes is replaced by one of `after`; `false` if there is no room for what it has more.
    pub(super) fn replace(&self, before: usize, after: usize) -> bool {
        let (before, after) = (before as u64, after as u64);
        if after <= before {
            self.used_bytes.fetch_sub(before - after, Ordering::Relaxed);
            return true;
        }
        let more = after - before;
        let used = self.used_bytes.fetch_add(more, Ordering::Relaxed);
        if used + more <= self.max_bytes {
            return true;
        }
        self.used_bytes.fetch_sub(more, Ordering::Relaxed);
        false
    }

    /// Takes what has to be.
    pub(super) fn overdraw(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}
