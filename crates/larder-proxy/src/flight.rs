//! Fetches that several requests share.

mod asking;
pub(crate) mod copying;
pub(crate) mod fetch;
mod fetcher;
pub(crate) mod flights;
mod opening;
pub(crate) mod part;
pub(crate) mod presence;
pub(crate) mod reader;
pub(crate) mod shared;
mod sibling;
pub(crate) mod source;
pub(crate) mod stage;
pub(crate) mod table;
