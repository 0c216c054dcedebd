//! Hosts to intercept, as people name them: a host, a pattern of hosts, or a package world.

use super::{Kind, WORLDS, World, named};
use crate::value::{self, BadValue};
use larder_http::rules::Rule;
use larder_proxy::{HostPattern, OriginUrl};

/// Hosts whose `https://` is looked into.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Intercepted {
    Hosts(HostPattern),
    /// The servers of a package world, by its name.
    World(&'static str),
}

impl Intercepted {
    /// Reads a host, `*.` and a name, `all`, or the name of a package world, which counts before a host of the same name.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        if let Some(world) = WORLDS.iter().find(|world| world.name == text && world.kind == Kind::Files) {
            return Ok(Self::World(world.name));
        }
        value::host_pattern(text).map(Self::Hosts)
    }

    /// Returns the hosts that it stands for.
    pub(crate) fn patterns(&self) -> Vec<HostPattern> {
        match self {
            Self::Hosts(pattern) => vec![pattern.clone()],
            Self::World(name) => world(name).hosts().collect(),
        }
    }

    /// Returns what is known of the files there.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        match self {
            Self::Hosts(_) => Vec::new(),
            Self::World(name) => world(name).rules_for_all(),
        }
    }
}

impl World {
    /// Its servers' hosts.
    fn hosts(&self) -> impl Iterator<Item = HostPattern> {
        let urls =
            self.servers.iter().flat_map(|server| [server.url].into_iter().chain(server.aliases.iter().copied()));
        urls.map(|url| {
            let url: OriginUrl = url.parse().expect("the table holds URLs");
            url.host().parse().expect("a host is a pattern")
        })
    }
}

fn world(name: &str) -> &'static World {
    named(name).expect("it was read from the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_stand_for_their_hosts_and_bring_what_is_known_of_them() {
        let maven = Intercepted::parse("maven").unwrap();
        let hosts: Vec<String> = maven.patterns().iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["repo.maven.apache.org", "repo1.maven.org"]);
        assert!(!maven.rules().is_empty());
        let host = Intercepted::parse("*.debian.org").unwrap();
        assert_eq!((host.patterns().len(), host.rules().len()), (1, 0));
        assert_eq!(Intercepted::parse("intranet").unwrap().patterns()[0].to_string(), "intranet");
        assert!(Intercepted::parse("a b").unwrap_err().help.contains("package world"));
    }
}
