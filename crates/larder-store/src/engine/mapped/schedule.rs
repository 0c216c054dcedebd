//! Schedules I/O: collects writes and reads before they are submitted to the device.
//!
//! Pure decisions over plain data, no I/O; time is an argument.

pub(crate) mod batches;
pub(crate) mod locality;
pub(crate) mod packets;
