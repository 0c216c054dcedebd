//! Entries that are read along with one that was asked for, and where they go.

use crate::Reader;
use bytes::Bytes;

/// An entry that was read along with one that was asked for, see [`crate::Store::set_neighbours`].
pub struct NeighbourEntry {
    /// The entry's key.
    pub key: Bytes,
    /// The entry, read as a whole; its body is verified when it is read from here.
    pub reader: Reader,
}

/// Takes the entries of one read, see [`crate::Store::set_neighbours`].
pub type NeighbourSink = Box<dyn Fn(NeighbourEntry) + Send + Sync>;
