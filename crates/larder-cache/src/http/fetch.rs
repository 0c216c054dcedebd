//! Fetches that several requests share: one request to an origin for each key, whose response is shared and stored.
//!
//! Owns: everything from the request to the commit. [`Fetcher`](super::fetcher::Fetcher) has the way to the origin, and
//! [`larder_http`] decides what may be shared and stored.

mod opening;
pub(crate) mod part;
pub mod presence;
pub(crate) mod reader;
pub(crate) mod shared;
pub(crate) mod stage;
pub mod table;
pub mod task;
