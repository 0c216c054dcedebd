//! When transfers happen: what gathers writes and reads before they go to the device.
//!
//! Plain decisions over plain data, no I/O; time is an argument.

pub(crate) mod batches;
pub(crate) mod locality;
pub(crate) mod packets;
