//! `larder offline`: prints whether a running proxy contacts origins, and changes the mode.
//!
//! Owns: the flags. The proxy decides. Invariant: the printed state is the proxy's current state.

use crate::{
    commands::admin_client::{self, AdminFlags},
    ground::{failure::Failure, output},
};
use clap::{Args, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  larder offline on        use stored responses only
  larder offline auto      only while origins do not respond
  larder offline status

The mode lasts until the proxy restarts; `offline` in the configuration sets the initial mode. While it \
is on, a request for a response that is not stored gets a 504 and is listed by `larder missing`.";

/// The flags of `larder offline`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct OfflineFlags {
    /// The new mode
    #[arg(value_enum, default_value_t = Word::Status)]
    word: Word,

    #[command(flatten)]
    admin: AdminFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// Contact origins
    Off,
    /// Contact origins, unless several fail and hardly any responds
    Auto,
    /// Contact no origin; serve stored responses of any age, unless their origin forbids it
    On,
    /// Like on, but also serve stored responses whose origin forbids serving them stale
    OnEvenForbidden,
    /// Print the current state
    Status,
}

/// Runs `larder offline`: sets the mode if one is given, and prints the state.
///
/// # Errors
/// The proxy is unreachable.
pub(crate) fn run(flags: &OfflineFlags) -> Result<(), Failure> {
    let word = flags.word.to_possible_value().expect("no word is left out");
    let told = admin_client::ask(flags.admin, &format!("OFFLINE /{}", word.get_name()), "")?;
    output::print(format_args!("{told}"))
}
