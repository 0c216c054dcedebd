//! Tests Larder's engine against a model that may only forget. Operations, faults and crashes are drawn from a seed.
//!
//! Owns: the law as code ([`History`]), the trial that checks a store against it ([`Trial`]), and schedules of
//! concurrent work ([`schedule`]). It uses only the engine's public API, so that it judges what users see. Everything
//! runs on one thread in virtual time: the same seed always gives the same result.

pub mod content;
pub mod faults;
pub mod laws;
pub mod schedule;

mod drive;
mod history;
mod trial;

pub use drive::{Stuck, drive};
pub use history::{History, SeenEntry};
pub use trial::{Crash, Operation, SIZE_BYTES, Tally, Trial, options, varied_options};
