//! `larder cluster config`: the configuration of a balancer that sends each key to one of several Larders.
//!
//! Owns: the flags, and the places whose keys are changed by rules, in a form for all balancers. Each balancer's module
//! writes its text. Invariant: requests with one key under Larder's rules have one input for the balancer's hash. The
//! reverse need not hold: keys that share an input only share a node.

use super::{envoy, haproxy, nginx};
use crate::{
    ground::{
        failure::{Failure, page},
        output,
        value::{self, BadValue},
    },
    settings::{RunSettings, config},
};
use clap::{Args, ValueEnum};
use http::Uri;
use larder_http::key_rules::{KeyRule, KeyRules};
use larder_proxy::FleetNode;
use std::{net::SocketAddr, path::PathBuf};

pub(super) const EXAMPLES: &str = concat!(
    "\
Examples:
  larder cluster config haproxy --nodes a=10.0.0.1:8080,b=10.0.0.2:8080
  larder cluster config nginx --config larder.toml --nodes a=10.0.0.1:8080

The balancer computes the same key as Larder: the [[key]] rules of the configuration apply to its hash. The nodes need \
`trusted_proxies` and `ready_path`. An example with three nodes is in ",
    page!("how-to/fleet.md"),
    "."
);

/// The flags of `larder cluster config`.
#[derive(Debug, Args)]
pub(crate) struct BalancerFlags {
    /// Balancer: haproxy (2.6 or later), nginx (1.18 or later) or envoy (1.26 or later)
    #[arg(value_enum)]
    balancer: Balancer,

    /// Nodes, each with a name, such as a=10.0.0.1:8080,b=10.0.0.2:8080
    #[arg(long, value_name = "NAME=HOST:PORT,..", value_delimiter = ',', required = true, value_parser = node)]
    nodes: Vec<FleetNode>,

    /// Larder's configuration file, for its key rules and the path of health checks
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address where clients connect to the balancer
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:80", value_parser = value::listen_address)]
    listen: SocketAddr,
}

/// A balancer for which a configuration can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Balancer {
    Haproxy,
    Nginx,
    Envoy,
}

/// The facts from which the configuration of any balancer is written.
pub(super) struct BalancerPlan {
    pub(super) listen: SocketAddr,
    pub(super) nodes: Vec<FleetNode>,
    pub(super) ready_path: Option<String>,
    /// Whether clients use the Larders as forward proxies.
    pub(super) forwards: bool,
    /// The parts of sites where a rule changes the keys. The first part that matches a URL applies.
    pub(super) places: Vec<KeyPlace>,
}

/// A part of a site where a rule makes keys differ from URLs: a host, and a path with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPlace {
    /// The host, with its port unless the port is 80.
    pub(super) host: String,
    /// The path, without a slash at its end. It matches whole path segments.
    pub(super) path: String,
    /// The host and the path that take the place of `host` and `path` in keys. `None` if a rule replaces neither.
    pub(super) stands: Option<(String, String)>,
    /// A regular expression that matches the names of the query arguments that keys leave out. `None` if keys contain
    /// all.
    pub(super) stripped: Option<String>,
}

/// Prints the configuration of a balancer.
///
/// # Errors
/// A usage failure for nodes or rules that the configuration cannot express; a runtime failure if a file cannot be
/// read.
pub(super) fn print(flags: &BalancerFlags) -> Result<(), Failure> {
    let mut settings = RunSettings::default();
    if let Some(file) = &flags.config {
        config::apply(file, &mut settings)?;
    }
    let plan = BalancerPlan::new(flags, &settings)?;
    let text = match flags.balancer {
        Balancer::Haproxy => haproxy::text(&plan),
        Balancer::Nginx => nginx::text(&plan),
        Balancer::Envoy => envoy::text(&plan),
    };
    output::print(format_args!("{text}"))
}

impl BalancerPlan {
    fn new(flags: &BalancerFlags, settings: &RunSettings) -> Result<Self, Failure> {
        let nodes = &flags.nodes;
        for (at, node) in nodes.iter().enumerate() {
            let is_same = |other: &FleetNode| (&other.host, other.port) == (&node.host, node.port);
            if nodes[..at].iter().any(|other| other.name == node.name || is_same(other)) {
                let problem = format!("two nodes are the same: {node}");
                return Err(Failure::usage(problem, NODES_HELP));
            }
        }
        Ok(Self {
            listen: flags.listen,
            nodes: nodes.clone(),
            // Without a configuration file, the path of the nodes' health checks is unknown, so the usual one is
            // written.
            ready_path: match flags.config {
                Some(_) => settings.proxy.fleet.ready_path.clone(),
                None => Some(READY_PATH.to_owned()),
            },
            forwards: settings.forwards(),
            places: places(&settings.proxy.policy.cache.http.key_rules)?,
        })
    }

    /// Returns comment lines for the configuration that say how the nodes must be configured.
    pub(super) fn needs(&self) -> String {
        let checks = match &self.ready_path {
            Some(path) => format!("network, and `ready_path = \"{path}\"` for health checks."),
            None => {
                "network. Without `ready_path` in their configuration, they are checked only by connecting.".to_owned()
            }
        };
        format!(
            "# Each key goes to one node, chosen by Larder's own key rules. The nodes need `trusted_proxies` with this machine's\n\
             # {checks}\n"
        )
    }

    /// Returns the number of each node on the ring. It is derived from the node's name, so that it does not change when
    /// nodes are listed in another order.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::new();
        for node in &self.nodes {
            let mut number = larder_http::owner::slot_of(node.name.as_bytes()) + 1;
            while numbers.contains(&number) {
                number += 1;
            }
            numbers.push(number);
        }
        numbers
    }
}

/// Returns the hosts and paths whose keys are changed by `rules`. Balancers speak plain HTTP with the nodes, so rules
/// for `https://` URLs are left out.
fn places(rules: &KeyRules) -> Result<Vec<KeyPlace>, Failure> {
    let mut places = Vec::new();
    for rule in rules.rules() {
        for prefix in rule.prefixes().filter(|prefix| prefix.starts_with("http://")) {
            let (host, path) = place_of(prefix)?;
            let stands = rule.stands().map(place_of).transpose()?;
            places.push(KeyPlace { host, path, stands, stripped: stripped(rule)? });
        }
    }
    Ok(places)
}

/// Returns the host and the path of a URL prefix.
fn place_of(prefix: &str) -> Result<(String, String), Failure> {
    let uri: Uri = prefix.parse().expect("a rule's URL was parsed");
    let host = uri.authority().expect("a rule's URL has a host").as_str().to_owned();
    let path = uri.path().trim_end_matches('/').to_owned();
    check(prefix, &format!("{host}{path}"))?;
    Ok((host, path))
}

/// Returns a regular expression that matches the names of query arguments that `rule` strips. `None` if it strips none.
fn stripped(rule: &KeyRule) -> Result<Option<String>, Failure> {
    let mut names = Vec::new();
    for (name, is_beginning) in rule.stripped() {
        check(name, name)?;
        names.push(pattern(name) + if is_beginning { "[^&=]*" } else { "" });
    }
    Ok(Some(names.join("|")).filter(|_| !names.is_empty()))
}

/// Refuses a text with characters that have a special meaning in any of the balancers' configurations. `whole` is the
/// part of the rule that the message shows.
fn check(whole: &str, text: &str) -> Result<(), Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_~.%+,:@!*()[]".contains(&byte);
    if text.bytes().all(is_plain) {
        return Ok(());
    }
    let help = "remove that [[key]] from this command's configuration; the balancer then spreads its keys by their \
                whole URLs";
    Err(Failure::usage(format!("a balancer's configuration cannot express this key rule: `{whole}`"), help))
}

/// Returns a regular expression that matches exactly `text`. Brackets take the place of backslashes, which the
/// configurations would treat differently.
pub(super) fn pattern(text: &str) -> String {
    let is_literal = |letter: char| letter.is_ascii_alphanumeric() || "/-_~%,:@!".contains(letter);
    let parts = text.chars().map(|letter| match letter {
        ']' => "[]]".to_owned(),
        _ if is_literal(letter) => letter.to_string(),
        _ => format!("[{letter}]"),
    });
    parts.collect()
}

/// Returns a regular expression that matches the separators of a query, and the arguments that keys leave out. When its
/// matches are removed, queries with the same key become equal, whatever the number and order of such arguments.
///
/// Each argument is matched together with the separator after it, because not every balancer supports lookahead.
pub(super) fn queries(stripped: &str) -> String {
    format!("[?&](({stripped})(=[^&]*)?(&|$))+|[?&]")
}

/// Parses a node of `--nodes`.
fn node(text: &str) -> Result<FleetNode, BadValue> {
    value::fleet_node(text).map_err(|bad| BadValue::new(bad.problem, NODES_HELP))
}

/// The path of health checks in the files of deploy/ and in the documentation.
const READY_PATH: &str = "/-/ready";

const NODES_HELP: &str = "give each node once, such as --nodes a=10.0.0.1:8080,b=10.0.0.2:8080,c=10.0.0.3:8080";

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Vec<KeyPlace>, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("larder.toml");
        std::fs::write(&file, text).unwrap();
        let mut settings = RunSettings::default();
        config::apply(&file, &mut settings).unwrap();
        places(&settings.proxy.policy.cache.http.key_rules)
    }

    #[test]
    fn places_are_those_of_plain_http_in_order() {
        let text = "[[key]]\nurls = [\"http://A.example/pub/\", \"https://a.example/\"]\nstrip = [\"utm_*\", \"s.id\"]\n\
                    [[key]]\nurls = [\"http://b.example:8080\"]\nas = \"http://a.example/x\"\n";
        let place = |host: &str, path: &str, stands: Option<(&str, &str)>, stripped: Option<&str>| KeyPlace {
            host: host.to_owned(),
            path: path.to_owned(),
            stands: stands.map(|(host, path)| (host.to_owned(), path.to_owned())),
            stripped: stripped.map(str::to_owned),
        };
        let expected = [
            place("a.example", "/pub", None, Some("utm_[^&=]*|s[.]id")),
            place("b.example:8080", "", Some(("a.example", "/x")), None),
        ];
        assert_eq!(rules(text).unwrap_or_default(), expected);
    }

    #[test]
    fn rule_that_would_break_out_of_a_file_is_refused() {
        for name in ["a'b", "a\\\"b", "a$b", "a;b", "a{b"] {
            let text = format!("[[key]]\nurls = [\"http://a.example\"]\nstrip = [\"{name}\"]\n");
            assert!(rules(&text).is_err(), "{name}");
        }
    }
}
