//! Schedules I/O: collects writes before they are submitted to the device. Reads wait in
//! [`crate::volume::read_batches`].
//!
//! Pure decisions over plain data, no I/O; time is an argument.

pub(crate) mod locality;
pub(crate) mod packets;
