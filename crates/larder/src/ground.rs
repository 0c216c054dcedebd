//! What all parts of the program use: values and their spelling, output, failures, and the machine.
//!
//! It uses nothing above it.

pub(crate) mod duration;
pub(crate) mod failure;
pub(crate) mod machine;
pub(crate) mod open_files;
pub(crate) mod output;
pub(crate) mod panics;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod value;
