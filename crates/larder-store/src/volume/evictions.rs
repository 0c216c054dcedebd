//! Entries that are about to be evicted, and the receiver that may keep them elsewhere.

use crate::Hints;
use bytes::Bytes;
use std::{fmt, pin::Pin};

/// An entry that is about to be evicted, see [`crate::Store::set_evictions`].
#[derive(Clone, Debug)]
pub struct EvictedEntry {
    /// The entry's key.
    pub key: Bytes,
    /// The entry's head, as it was committed.
    pub head: Bytes,
    /// The entry's body. Its checksums were verified.
    pub body: Bytes,
    /// The hints with which the entry was stored.
    pub hints: Hints,
}

/// Takes the evicted entries of one batch, see [`crate::Store::set_evictions`].
pub type EvictionSink = Box<dyn FnMut(EvictedEntry) + Send>;

/// The future that ends a batch of evicted entries, see [`crate::Store::set_evictions`].
pub type EvictionFinish = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Functions of the store's user that receive entries before they are evicted, see [`crate::Store::set_evictions`].
pub struct EvictionReceiver {
    /// Returns whether the receiver wants an entry. The arguments are its number of hits and its length in bytes.
    /// Called for each entry before it is read.
    pub wants: Box<dyn Fn(u8, u64) -> bool + Send + Sync>,
    /// Creates a sink for a batch. Called before the batch is read, so that the sink can refuse entries that were
    /// replaced or removed since then.
    pub begin: Box<dyn Fn() -> EvictionSink + Send + Sync>,
    /// Ends a batch. The store waits for this future before it overwrites the entries of the batch. Until then, the
    /// receiver can still read entries that belong to the evicted ones, such as the chunks of a body.
    pub finish: Box<dyn Fn() -> EvictionFinish + Send + Sync>,
}

impl fmt::Debug for EvictionReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvictionReceiver").finish_non_exhaustive()
    }
}
