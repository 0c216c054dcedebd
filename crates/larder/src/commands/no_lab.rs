//! Answers `larder bench`, `larder plan` and `larder sim` in a program without the laboratory.

use crate::ground::failure::Failure;
use std::ffi::OsString;

/// Arguments of a command that this program does not have.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _all: Vec<OsString>,
}

/// Returns the error that says how to get the laboratory.
pub(crate) fn failure() -> Failure {
    Failure::usage(
        "this program was built without its laboratory: bench, plan and sim",
        "use a package of Larder, or build it with `cargo build --release --features lab`",
    )
}
