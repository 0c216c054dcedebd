//! Fetches that several requests share.

mod carry;
pub(crate) mod fetch;
pub(crate) mod part;
pub(crate) mod reader;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod window;
