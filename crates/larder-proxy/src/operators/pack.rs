//! Packs stored responses into one portable file, and unpacks such files: WARC 1.1 (ISO 28500), the format of web
//! archives.
//!
//! Owns: the layout of a stored response in the file. `admin` has the command. A response consists of a `request`
//! record, which has the selecting fields, and a `response` record. The time of receipt is the record's WARC-Date, and
//! the received Age is written as a field, so that an unpacked response has the same age.
//!
//! Invariants: responses stored for one client alone, or selected by a client's cookies or credentials, are not packed.
//! A record with a wrong digest or length is not stored. Cost: one segment or one chunk in memory at a time. The crate
//! `warc` is not used, because it brings its own gzip and the format takes only a hundred lines.

mod into;
mod out;
pub(crate) mod warc;

/// Field of a `response` record that names the origin of the response, unless that is the server in the URL.
const ORIGIN_FIELD: &str = "Larder-Origin";

pub(crate) use into::{UnpackSummary, unpack};
pub(crate) use out::{PackOutlet, PackSelection, pack};
