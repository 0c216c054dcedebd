//! Larder's storage engine: a disk cache of entries (key, head, body) with a printed memory bound.
//!
//! A cache may forget; it may never lie: whatever [`Store::get`] returns is byte for byte what was
//! committed under exactly that key, or nothing.

pub mod device;

mod error;
mod options;
mod reader;
mod store;
mod writer;

pub use error::{Error, ErrorKind, Result};
pub use options::{Hints, IoChoice, StoreOptions};
pub use reader::Reader;
pub use store::{Invalidation, Stats, Store};
pub use writer::Writer;
