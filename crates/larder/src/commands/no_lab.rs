//! Answers `larder bench`, `larder plan` and `larder sim` in a program without the laboratory.

use crate::ground::failure::Failure;
use std::ffi::OsString;

/// The arguments of a laboratory command. They are ignored, because this program does not have the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _all: Vec<OsString>,
}

/// Returns the failure that says how to get a program with the laboratory.
pub(crate) fn failure() -> Failure {
    Failure::usage(
        "this program was built without its laboratory: bench, plan and sim",
        "use a package of Larder, or build it with `cargo build --release --features lab`",
    )
}
