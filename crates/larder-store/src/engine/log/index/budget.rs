//! The memory budget of the index, which its tables share.
//!
//! Invariant: the tables together never exceed it, except by one bucket of a table that has none. Cost: two atomic
//! operations when a table changes its length.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The memory that all tables of an index take, and its limit.
pub(crate) struct IndexBudget {
    used_bytes: AtomicU64,
    max_bytes: u64,
}

impl IndexBudget {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { used_bytes: AtomicU64::new(0), max_bytes }
    }

    /// Returns the limit in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Counts the replacement of a table of `before` bytes by a table of `after` bytes. Returns `false`, without
    /// counting, if the limit does not allow the growth.
    pub(super) fn replace(&self, before: usize, after: usize) -> bool {
        let before = before as u64;
        let after = after as u64;
        if after <= before {
            self.give_back((before - after) as usize);
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

    /// Adds bytes to the used memory even if this exceeds the limit.
    pub(super) fn overdraw(&self, bytes: usize) {
        let used = self.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        assert!(used.checked_add(bytes as u64).is_some(), "memory is counted without overflow");
    }

    /// Subtracts the bytes of a dropped table from the used memory.
    pub(super) fn give_back(&self, bytes: usize) {
        let used = self.used_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        assert!(used >= bytes as u64, "what is given back was taken");
    }
}
