//! Basics that all parts of the program use: values and their spelling, output, failures, and the machine's resources.
//!
//! These modules use no other module of the program.

pub(crate) mod duration;
pub(crate) mod failure;
pub(crate) mod machine;
pub(crate) mod open_files;
pub(crate) mod output;
pub(crate) mod panics;
pub(crate) mod progress;
pub(crate) mod size;
pub(crate) mod value;
