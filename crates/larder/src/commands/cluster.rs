//! `larder cluster`: prints which of several nodes owns a key, and configurations of balancers in front of them.
//!
//! Owns: the flags, and the nodes that they or a configuration name. `larder_http::owner` decides. Invariant: nothing
//! is contacted, so the output is the same on every machine.

mod balancer;
mod envoy;
mod haproxy;
mod nginx;

use crate::{
    ground::{
        failure::{Failure, page},
        output::print_line,
        value::BadValue,
    },
    settings::{RunSettings, config},
};
use balancer::BalancerFlags;
use clap::{Args, Subcommand};
use http::Uri;
use larder_http::{
    key_rules::KeyRules,
    owner::{OwnerNode, OwnerTable, slot_of},
};
use larder_proxy::{Balance, ProxyConfig, origins_of};
use std::path::PathBuf;

const OWNER_EXAMPLES: &str = concat!(
    "\
Examples:
  larder cluster owner --nodes a.example:80,b.example:80 http://c.example/x.css
  larder cluster owner --config edge.toml http://c.example/a?utm_source=mail

Without --nodes, the nodes are the origins of the site that the configuration has for each URL. The key rules of the \
configuration apply to the URLs. The function is described in ",
    page!("reference/owner.md"),
    "."
);

/// The subcommands of `larder cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Print the node that owns the key of each URL
    #[command(after_help = OWNER_EXAMPLES)]
    Owner(OwnerFlags),
    /// Print the configuration of a balancer in front of several Larders
    #[command(after_help = balancer::EXAMPLES)]
    Config(BalancerFlags),
}

/// The flags of `larder cluster owner`.
#[derive(Debug, Args)]
pub(crate) struct OwnerFlags {
    /// Nodes, each with a weight if it is not 1, such as 10.0.0.1:8080,10.0.0.2:8080=2
    #[arg(long, value_name = "NODE[=WEIGHT],..", value_delimiter = ',', value_parser = parse_node)]
    nodes: Vec<OwnerNode>,

    /// Configuration file with the key rules, and with the sites if no nodes are given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// URLs as clients request them
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
}

/// Runs `larder cluster`.
///
/// # Errors
/// A usage failure for an invalid URL or list of nodes, or for a configuration without nodes; a runtime failure if a
/// file cannot be read or standard output cannot be written.
pub(crate) fn run(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Owner(flags) => print_owners(&flags),
        ClusterCommand::Config(flags) => balancer::print(&flags),
    }
}

fn print_owners(flags: &OwnerFlags) -> Result<(), Failure> {
    let mut settings = RunSettings::default();
    if let Some(file) = &flags.config {
        config::apply(file, &mut settings)?;
    }
    let proxy = settings.proxy_config();
    let mut known: Option<(Vec<OwnerNode>, OwnerTable)> = None;
    for text in &flags.urls {
        let url = CheckedUrl::parse(text)?;
        let nodes = if flags.nodes.is_empty() { url.nodes(&proxy)? } else { flags.nodes.clone() };
        // Making the table of owners takes longer than a lookup, so it is reused for all URLs of a site.
        let (nodes, table) = match known.take().filter(|(of, _)| *of == nodes) {
            Some(known) => known,
            None => {
                let table = OwnerTable::new(&nodes).map_err(|error| Failure::usage(error.to_string(), NODES_HELP))?;
                (nodes, table)
            }
        };
        let slot = url.slot(&proxy.policy.cache.http.key_rules)?;
        print_line!("{}  slot {slot}  {text}", nodes[table.owner(slot)].name)?;
        known = Some((nodes, table));
    }
    Ok(())
}

/// A URL whose syntax was checked, and its parts.
struct CheckedUrl<'a> {
    text: &'a str,
    scheme: String,
    authority: String,
    path: String,
}

impl<'a> CheckedUrl<'a> {
    fn parse(text: &'a str) -> Result<Self, Failure> {
        let uri: Option<Uri> = text.parse().ok();
        let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?, uri.path_and_query())));
        let Some((scheme, authority, path)) = parts else {
            let help = "a URL begins with http:// or https://, such as http://www.example.com/style.css";
            return Err(Failure::usage(format!("not a URL: `{text}`"), help));
        };
        let path = path.map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { text, scheme: scheme.to_owned(), authority: authority.as_str().to_owned(), path })
    }

    /// Returns the nodes of the site that serves this URL. That site distributes requests among its nodes by key.
    ///
    /// # Errors
    /// A usage failure if no site with origins matches the URL, or if the site does not choose by key.
    fn nodes(&self, proxy: &ProxyConfig) -> Result<Vec<OwnerNode>, Failure> {
        let Some(origins) = origins_of(proxy, &self.authority, &self.path) else {
            return Err(Failure::usage(
                format!("no nodes given, and no [[site]] has origins for {}", self.text),
                NODES_HELP,
            ));
        };
        if origins.rules.balance != Balance::ConsistentHash && origins.members.len() > 1 {
            let help = "set `balance = \"consistent_hash\"` in that [[site]], or name the nodes with --nodes";
            return Err(Failure::usage(
                format!("no node owns a key, because the origins for {} take turns", self.text),
                help,
            ));
        }
        Ok(origins.nodes())
    }

    fn slot(&self, rules: &KeyRules) -> Result<u32, Failure> {
        let key = rules.key(&self.scheme, &self.authority, &self.path);
        let refuse = |error| {
            Failure::usage(
                format!("the cache cannot store `{}`: {error}", self.text),
                "give a URL that Larder would store",
            )
        };
        key.map(|key| slot_of(&key)).map_err(refuse)
    }
}

/// Parses a node of `--nodes`: a name, and after `=` a weight if it is not 1.
pub(crate) fn parse_node(text: &str) -> Result<OwnerNode, BadValue> {
    let (name, weight) = text.rsplit_once('=').unwrap_or((text, "1"));
    let bad = |why: &str| BadValue::new(format!("{why}: `{text}`"), NODES_HELP);
    let weight = weight.parse().map_err(|_| bad("not a weight from 1 to 100"))?;
    let node = OwnerNode { name: name.to_owned(), weight };
    if node.name.contains(char::is_whitespace) {
        return Err(bad("the node's name contains a space"));
    }
    match OwnerTable::fault(std::slice::from_ref(&node)) {
        Some(fault) => Err(bad(&fault.to_string())),
        None => Ok(node),
    }
}

const NODES_HELP: &str = "name each node once, such as --nodes 10.0.0.1:8080,10.0.0.2:8080=2, or give a --config whose site has several origins";
