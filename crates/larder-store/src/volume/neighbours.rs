//! Entries that are read along with a requested one, and the sink that takes them.

use crate::Reader;
use bytes::Bytes;

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
