//! Tests of the engine through its public API: the law, crashes, damage.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod block_device;
mod clock;
mod closing;
mod crash;
mod damage;
mod failed_assertion;
mod file;
mod filling;
mod flips;
mod golden;
mod killed;
mod law;
mod loading;
mod locating;
mod lost_sync;
mod outage;
mod parts;
mod pending_removals;
mod pins;
mod refusals;
mod rows;
mod support;
mod survey;
mod volumes;
mod writes;
