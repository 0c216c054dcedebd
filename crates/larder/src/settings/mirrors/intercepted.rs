//! The settings of interception, and the parser of hosts to intercept: a host, a pattern, or a package registry.

use super::{REGISTRIES, Registry, RegistryKind, named};
use crate::ground::value::{self, BadValue};
use larder_http::rules::Rule;
use larder_proxy::{HostPattern, HostRules, OriginUrl};
use std::path::PathBuf;

/// The settings of interception, before the files of the CA are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interception {
    pub(crate) hosts: HostRules,
    /// Caching rules of the registries that were given in place of hosts.
    pub(crate) rules: Vec<Rule>,
    /// Directory of the CA. `None`: the default one.
    pub(crate) authority: Option<PathBuf>,
}

impl Interception {
    /// Sets the hosts to intercept, and the rules of the registries among them.
    pub(crate) fn set_hosts(&mut self, named: &[InterceptedHosts]) {
        self.hosts.hosts = named.iter().flat_map(InterceptedHosts::patterns).collect();
        self.rules = named.iter().flat_map(InterceptedHosts::rules).collect();
    }

    /// Sets the hosts to leave out of the hosts to intercept.
    pub(crate) fn set_except(&mut self, named: &[InterceptedHosts]) {
        self.hosts.except = named.iter().flat_map(InterceptedHosts::patterns).collect();
    }
}

/// Hosts to intercept: those of a pattern, or those of a registry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InterceptedHosts {
    Hosts(HostPattern),
    /// The servers of the package registry with this name.
    Registry(&'static str),
}

impl InterceptedHosts {
    /// Parses a host, `*.` and a name, `all`, or the name of a package registry.
    ///
    /// A registry takes precedence over a host with the same name.
    ///
    /// # Errors
    /// The text is none of these, or a word that looks like a misspelt registry: as a host, it would match nothing.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match REGISTRIES.iter().find(|registry| registry.name == text) {
            Some(Registry { name, kind: RegistryKind::Files, .. }) => return Ok(Self::Registry(name)),
            Some(Registry { kind: RegistryKind::Registries, .. }) => {
                let help = format!("mirror it with --mirror {text}, or name its hosts, such as ghcr.io");
                return Err(BadValue::new(format!("not a registry that can be intercepted: `{text}`"), help));
            }
            None => {}
        }
        if is_misspelt(text) {
            let names = value::names_help("registries", text, registry_names());
            let help = format!("{names}; write a host of this name with a dot at its end, as in {text}.");
            return Err(BadValue::new(format!("neither a registry nor a host with a domain: `{text}`"), help));
        }
        value::host_pattern(text).map(Self::Hosts)
    }

    /// Returns the host patterns.
    pub(crate) fn patterns(&self) -> Vec<HostPattern> {
        match self {
            Self::Hosts(pattern) => vec![pattern.clone()],
            Self::Registry(name) => registry(name).hosts().collect(),
        }
    }

    /// Returns the caching rules for files on these hosts: those of the registry, or none if the hosts are not a
    /// registry's.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        match self {
            Self::Hosts(_) => Vec::new(),
            Self::Registry(name) => registry(name).rules_for_all(),
        }
    }
}

impl Registry {
    /// Returns the hosts of the registry's servers.
    fn hosts(&self) -> impl Iterator<Item = HostPattern> {
        let urls =
            self.servers.iter().flat_map(|server| [server.url].into_iter().chain(server.aliases.iter().copied()));
        urls.map(|url| {
            let url: OriginUrl = url.parse().expect("the table holds URLs");
            url.host().parse().expect("a host is a pattern")
        })
    }
}

/// Returns the names of the registries that can be intercepted.
fn registry_names() -> impl Iterator<Item = &'static str> + Clone {
    REGISTRIES.iter().filter(|registry| registry.kind == RegistryKind::Files).map(|registry| registry.name)
}

/// Returns whether a word without a dot resembles the name of a registry too closely to be a host.
fn is_misspelt(text: &str) -> bool {
    let is_word = text != "all" && !text.contains(['.', ':', '*', '[']);
    is_word && registry_names().any(|name| value::is_slip(text, name))
}

fn registry(name: &str) -> &'static Registry {
    named(name).expect("it was read from the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_stand_for_their_hosts_and_bring_what_is_known_of_them() {
        let maven = InterceptedHosts::parse("maven").unwrap();
        let hosts: Vec<String> = maven.patterns().iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["repo.maven.apache.org", "repo1.maven.org"]);
        assert!(!maven.rules().is_empty());
        let host = InterceptedHosts::parse("*.debian.org").unwrap();
        assert_eq!((host.patterns().len(), host.rules().len()), (1, 0));
        assert_eq!(InterceptedHosts::parse("intranet").unwrap().patterns()[0].to_string(), "intranet");
        assert!(InterceptedHosts::parse("a b").unwrap_err().help.contains("package registry"));
        for host in ["nexus", "git", "mirror", "localhost", "pypy.org", "*.npn", "pypy.", "10.0.0.1", "[::1]", "all"] {
            assert!(matches!(InterceptedHosts::parse(host), Ok(InterceptedHosts::Hosts(_))), "{host}");
        }
        for (text, meant) in
            [("pypy", "pypi"), ("pipy", "pypi"), ("nmp", "npm"), ("crago", "cargo"), ("maven2", "maven")]
        {
            let help = InterceptedHosts::parse(text).unwrap_err().help;
            assert!(
                help.contains(&format!("did you mean `{meant}`?")) && help.contains("huggingface"),
                "{text}: {help}"
            );
        }
        assert!(InterceptedHosts::parse("oci").unwrap_err().help.contains("--mirror oci"));
    }
}
