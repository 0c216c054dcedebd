//! Fetches that several requests share.

pub(crate) mod fetch;
pub(crate) mod reader;
pub(crate) mod shared;
pub(crate) mod table;
