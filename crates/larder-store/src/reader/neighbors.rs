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
    /// The entry, read as a whole. Its body is verified when it is read from this reader.
    pub reader: Reader,
}

/// Receives the entries that came with one read, see [`crate::Store::set_neighbors`].
pub type NeighborSink = Box<dyn Fn(NeighborEntry) + Send + Sync>;

/// Returns the volumes' form of `begin`: their sinks take records, and know no readers.
pub(crate) fn begin_records(begin: Arc<dyn Fn() -> NeighborSink + Send + Sync>) -> BeginNeighbors {
    Arc::new(move || {
        let sink = begin();
        Box::new(move |NeighborRecord { volume, key, record, decoded }| {
            sink(NeighborEntry { key, reader: Reader::whole(volume, record, decoded) });
        })
    })
}
