//! Tests with real files, devices and sockets. Loopback only; no sleeps.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod device;
mod load;
mod store_rate;
