//! Fetches that several requests share.

mod asking;
mod carrier;
mod carry;
pub(crate) mod chunk_reader;
mod continuation;
mod copying;
pub(crate) mod fetch;
pub(crate) mod flights;
mod hold_up;
mod opening;
pub(crate) mod part;
pub(crate) mod parts;
pub(crate) mod presence;
pub(crate) mod reader;
pub(crate) mod rest;
pub(crate) mod shared;
mod sibling;
pub(crate) mod source;
pub(crate) mod stage;
pub(crate) mod table;
pub(crate) mod window;
