//! Long and arriving bodies: one object for each, which all of its clients share.
//!
//! Owns: the driver of [`crate::object`]. The core decides; tasks here probe, read and write the store, and
//! receive the origin's responses. A client is a [`cursor::BodyCursor`]: it owns no read and no request, so one that
//! stands still delays nobody.
//!
//! A response whose body has a known length and is short ends as one entry of the store, like any other. Its object
//! lives only while it arrives.

mod clients;
pub mod continuation;
pub mod cursor;
pub mod error;
pub mod fill;
mod head;
mod hold_up;
pub(crate) mod long_body;
pub(crate) mod open_body;
mod orders;
pub mod parts;
pub(crate) mod receiving;
mod run_control;
mod state;
pub(crate) mod storage;
pub mod table;
