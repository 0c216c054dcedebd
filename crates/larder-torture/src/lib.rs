//! Larder's engine on trial: operations, faults and crashes drawn from a seed, against a model that may only forget.
//!
//! Owns: the law as code ([`History`]), the trial that holds a store to it ([`Trial`]), and schedules of concurrent
//! work ([`schedule`]). Knows the engine by its public API alone, so that it judges what users see. Everything runs
//! on one thread in virtual time: the same seed comes to the same end.

pub mod content;
pub mod faults;
pub mod schedule;

mod drive;
mod history;
mod trial;

pub use drive::{Stuck, drive};
pub use history::{History, SeenEntry};
pub use trial::{Crash, Operation, SITE_COUNT, SIZE_BYTES, Tally, Trial, options, varied_options};
