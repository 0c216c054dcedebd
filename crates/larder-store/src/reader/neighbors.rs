//! Entries that are read along with a requested one, and the sink that takes them.

use super::Reader;
use crate::volume::neighbors::{BeginNeighbors, NeighborRecord};
use bytes::Bytes;
use std::sync::Arc;

/// An entry that was read along with a requested one, see [`crate::Store::set_neighbors`].
#[derive(Debug)]
pub struct NeighborEntry {
    /// The entry's key.
    pub key: Bytes,
    /// Reader of the entry. The whole record was read; its body is verified when it is used.
    pub reader: Reader,
}

/// Receives the entries that one read brought along, see [`crate::Store::set_neighbors`].
pub type NeighborSink = Box<dyn Fn(NeighborEntry) + Send + Sync>;

/// Wraps `begin` for the volumes, which pass records instead of readers.
pub(crate) fn begin_records(begin: Arc<dyn Fn() -> NeighborSink + Send + Sync>) -> BeginNeighbors {
    Arc::new(move || {
        let sink = begin();
        Box::new(move |NeighborRecord { volume, key, record, decoded }| {
            sink(NeighborEntry { key, reader: Reader::whole(volume, record, decoded) });
        })
    })
}
