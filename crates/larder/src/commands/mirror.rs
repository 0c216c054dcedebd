//! `larder mirror`: lists the package registries that can be mirrored, and the settings for their clients.
//!
//! Owns: the output. The registries are in `mirrors`.

use crate::{
    ground::{failure::Failure, output::print_line},
    settings::mirrors::{self, REGISTRIES, Registry},
};
use clap::Subcommand;

/// The subcommands of `larder mirror`.
#[derive(Debug, Subcommand)]
pub(crate) enum MirrorCommand {
    /// List all registries, with their servers
    List,
    /// Describe a registry: its servers, its files that never change, and the settings for its clients
    Show {
        /// Name of the registry
        #[arg(value_parser = |name: &str| mirrors::named(name))]
        name: &'static Registry,
    },
}

/// The proxy's address in the output, if the real one is unknown.
const SHOWN_ADDRESS: &str = "http://127.0.0.1:3128";

/// Runs `larder mirror`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(command: MirrorCommand) -> Result<(), Failure> {
    match command {
        MirrorCommand::List => list(),
        MirrorCommand::Show { name } => show(name),
    }
}

fn list() -> Result<(), Failure> {
    let width = REGISTRIES.iter().map(|registry| registry.name.len()).max().unwrap_or_default();
    for registry in REGISTRIES {
        let servers: Vec<&str> = registry.servers.iter().map(|server| server.url).collect();
        print_line!("{:width$}  {}", registry.name, servers.join(", "))?;
    }
    print_line!("\nlarder run --mirror pypi,npm serves some; larder mirror show NAME prints the settings for clients")
}

fn show(registry: &Registry) -> Result<(), Failure> {
    for server in registry.servers {
        print_line!("{SHOWN_ADDRESS}{} is {}", registry.path_of(server), server.url)?;
        if !server.immutable.is_empty() {
            print_line!("  never changes: {}", server.immutable.join(", "))?;
        }
        if server.follows {
            print_line!("  redirects are followed")?;
        }
        print_line!("  other files are validated after {} s", server.fresh.as_secs())?;
    }
    if !registry.documents.is_empty() {
        print_line!("links in {} are rewritten to the mirror", registry.documents.join(", "))?;
    }
    print_line!("clients: {}", registry.usage.replace("{}", SHOWN_ADDRESS))
}
