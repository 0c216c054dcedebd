//! Entries that are read along with a requested one, and the sink that takes them.

use super::Reader;
use crate::volume::neighbours::{BeginNeighbours, NeighbourRecord};
use bytes::Bytes;
use std::sync::Arc;

/// An entry that was read along with a requested one, see [`crate::Store::set_neighbours`].
#[derive(Debug)]
pub struct NeighbourEntry {
    /// The entry's key.
    pub key: Bytes,
    /// The entry, read as a whole. Its body is verified when it is read from this reader.
    pub reader: Reader,
}

/// Receives the entries that came with one read, see [`crate::Store::set_neighbours`].
pub type NeighbourSink = Box<dyn Fn(NeighbourEntry) + Send + Sync>;

/// Returns the volumes' form of `begin`: their sinks take records, and know no readers.
pub(crate) fn begin_records(begin: Arc<dyn Fn() -> NeighbourSink + Send + Sync>) -> BeginNeighbours {
    Arc::new(move || {
        let sink = begin();
        Box::new(move |NeighbourRecord { volume, key, record, decoded }| {
            sink(NeighbourEntry { key, reader: Reader::whole(volume, record, decoded) });
        })
    })
}
