//! Fetches that several requests share.

mod carrier;
mod carry;
pub(crate) mod fetch;
mod hold_up;
pub(crate) mod part;
pub(crate) mod reader;
pub(crate) mod rest;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod window;
