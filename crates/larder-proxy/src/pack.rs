//! Stored responses in one portable file, and back: WARC 1.1 (ISO 28500), which archives of the web are kept in.
//!
//! Owns: what of a stored response stands where. Does not: know who asks (see `admin`). A response is a `request` record with the
//! fields by which it was chosen, and then its `response` record; the time it was received is the record's WARC-Date, the Age it came with
//! a field again, so that it is as old where it is unpacked as it was here. Invariants: nothing that was stored for one client alone is
//! packed, nor what a client's cookies or credentials chose; nothing is stored of a record whose digest or length is not right. Cost: one
//! segment, or one chunk, in memory at a time. The crate `warc` is not used: it brings a gzip of its own, and the format is a hundred lines.

mod into;
mod out;
pub(crate) mod warc;

/// The field of a response's record that names the origin that answered, where that is not the URL's own server.
const ORIGIN_FIELD: &str = "Larder-Origin";

pub(crate) use into::{UnpackSummary, unpack};
pub(crate) use out::{PackOutlet, PackSelection, pack};
