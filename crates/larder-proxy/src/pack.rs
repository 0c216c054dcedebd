//! Stored responses in one portable file, and back: WARC 1.1 (ISO 28500), the format of web archives.
//!
//! Owns: the layout of a stored response in the file. The command is in `admin`. A response is a `request` record with
//! the fields that selected it, and then its `response` record. The time of receipt is the record's WARC-Date, and the
//! Age that it arrived with is a field again, so that an unpacked response is as old as it was here.
//!
//! Invariants: responses stored for one client alone, or selected by a client's cookies or credentials, are not packed.
//! A record with a wrong digest or length is not stored. Cost: one segment, or one chunk, in memory at a time. The
//! crate `warc` is not used: it brings a gzip of its own, and the format takes a hundred lines.

mod into;
mod out;
pub(crate) mod warc;

/// The field of a response's record that names the origin that answered, where that is not the URL's own server.
const ORIGIN_FIELD: &str = "Larder-Origin";

pub(crate) use into::{UnpackSummary, unpack};
pub(crate) use out::{PackOutlet, PackSelection, pack};
