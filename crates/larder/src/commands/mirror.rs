//! `larder mirror`: lists the package registries that can be mirrored, and the settings for their clients.
//!
//! Owns: the output. The registries are in `mirrors`.

use crate::{
    ground::{
        failure::Failure,
        output::{print_line, tell},
    },
    run::control::{ControlAnswer, ControlPath, ControlRequest},
    settings::mirrors::{self, REGISTRIES, Registry},
};
use clap::Subcommand;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

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

/// The proxy's address in the printed settings if no Larder of this user runs. It is the default of `larder run`.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// Runs `larder mirror`.
///
/// # Errors
/// Standard output cannot be written, or the running Larder does not respond.
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
    let listener = running_listener()?.unwrap_or_else(|| {
        tell!("no larder of yours is running: with another --listen, write its address in place of {DEFAULT_ADDRESS}");
        DEFAULT_ADDRESS
    });
    let address = format!("http://{listener}");
    for server in registry.servers {
        print_line!("{address}{} is {}", registry.path_of(server), server.url)?;
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
    let usage = registry.usage.replace("{}", &address).replace("{host}", &listener.ip().to_string());
    print_line!("clients: {usage}")?;
    if listener.ip().is_loopback() {
        return print_line!("on other machines, write this machine's name in place of {}", listener.ip());
    }
    Ok(())
}

/// Returns the address of the running Larder's first listener without TLS. `None` if no Larder runs, or if all its
/// listeners use TLS.
fn running_listener() -> Result<Option<SocketAddr>, Failure> {
    let Some(mut control) = ControlPath::connect_any()? else { return Ok(None) };
    Ok(match control.ask_or_fail(&ControlRequest::About)? {
        Ok(ControlAnswer::About(about)) => about.listener,
        _ => None,
    })
}
