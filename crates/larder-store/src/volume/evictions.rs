//! Entries that are about to be evicted, and the receiver that may keep them elsewhere.

use crate::Hints;
use bytes::Bytes;
use std::{fmt, pin::Pin};

/// An entry that is about to be evicted, see [`crate::Store::set_evictions`].
#[derive(Clone, Debug)]
pub struct EvictedEntry {
    /// The entry's key.
    pub key: Bytes,
    /// The entry's head.
    pub head: Bytes,
    /// The entry's body, verified by its checksums.
    pub body: Bytes,
    /// The hints with which the entry was stored.
    pub hints: Hints,
}

/// Takes the entries of one batch, see [`crate::Store::set_evictions`].
pub type EvictionSink = Box<dyn FnMut(EvictedEntry) + Send>;

/// The last step of a batch, see [`crate::Store::set_evictions`].
pub type EvictionFinish = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Receives entries that are about to be evicted, see [`crate::Store::set_evictions`].
pub struct EvictionReceiver {
    /// Returns whether to receive an entry with this number of hits and this length in bytes. Called for each entry
    /// before it is read.
    pub wants: Box<dyn Fn(u8, u64) -> bool + Send + Sync>,
    /// Creates a sink for a batch. Called before the entries of the batch are read, so that the sink can refuse those
    /// that were replaced or removed since.
    pub begin: Box<dyn Fn() -> EvictionSink + Send + Sync>,
    /// Ends a batch. The store waits for it before it overwrites the batch's entries, so that the receiver can still
    /// read entries that belong to them.
    pub finish: Box<dyn Fn() -> EvictionFinish + Send + Sync>,
}

impl fmt::Debug for EvictionReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvictionReceiver").finish_non_exhaustive()
    }
}
