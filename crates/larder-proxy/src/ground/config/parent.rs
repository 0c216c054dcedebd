//! Parents: other proxies through which origins are contacted.

use std::{fmt, net::IpAddr, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, Uri};
use ipnet::IpNet;
use larder_http::owner::OwnerNode;
use percent_encoding::percent_decode_str;

use crate::ground::target::port_of;

use super::{GroupRules, HostPattern, ProxyConfig, normal_host};

/// A proxy through which origins are contacted, written `http://[user:password@]host[:port]`. It is displayed without
/// the password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Parent {
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// The value of Proxy-Authorization for the parent. `None` if it needs no credentials.
    pub(crate) credentials: Option<HeaderValue>,
}

/// The proxies through which origins are contacted, and the hosts that are contacted directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    /// The parents, each with its weight from 1 to 100. Default none.
    pub members: Vec<(Parent, u32)>,
    /// The rules by which a parent is chosen for a request.
    pub rules: GroupRules,
    /// Whether origins are contacted directly while no parent can be reached.
    pub direct: DirectFallback,
    /// Hosts that are always contacted directly.
    pub except: Vec<Direct>,
}

/// Whether origins are contacted directly while no parent can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectFallback {
    /// Requests fail. Suits networks in which the parent is the only way out, or filters requests.
    #[default]
    Never,
    /// Origins are contacted directly while no parent responds. A parent that responds with a refusal is not bypassed.
    OnFailure,
}

/// Hosts that are contacted directly, not through a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Direct {
    /// Hosts that match this pattern.
    Hosts(HostPattern),
    /// Hosts given as an address in this network. Host names do not match, because only the parent resolves them.
    Network(IpNet),
}

/// Error: a text is not a [`Parent`]. The error does not contain the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidParent {
    why: &'static str,
}

impl Parents {
    /// Returns whether `host` is contacted through a parent, if any parent is configured.
    pub(crate) fn lead_to(&self, host: &str) -> bool {
        let host = normal_host(host);
        let address = host.parse().ok().map(|address: IpAddr| address.to_canonical());
        !self.except.iter().any(|direct| match direct {
            Direct::Hosts(pattern) => pattern.matches_normal(&host),
            Direct::Network(network) => address.is_some_and(|address| network.contains(&address)),
        })
    }

    /// Returns the parents, named by host and port, as the nodes among which consistent hashing chooses.
    pub fn nodes(&self) -> Vec<OwnerNode> {
        self.members.iter().map(|(parent, weight)| OwnerNode { name: parent.to_string(), weight: *weight }).collect()
    }

    /// Returns the error in these settings, or `None` if they are valid.
    pub fn fault(&self) -> Option<String> {
        self.rules.fault("parents", &self.nodes(), |at| format!("parent {}", self.members[at].0))
    }
}

impl ProxyConfig {
    /// Returns whether the URL of any parent contains a password.
    pub fn has_parent_password(&self) -> bool {
        let of_sites =
            self.sites.iter().filter_map(|site| site.origins.as_deref()).flat_map(|origins| &origins.members);
        let of_sites = of_sites.filter_map(|(url, _)| url.parent.as_deref());
        let all = self.parents.members.iter().map(|(parent, _)| parent).chain(of_sites);
        all.into_iter().any(|parent| parent.credentials.is_some())
    }
}

impl From<Parent> for Parents {
    fn from(parent: Parent) -> Self {
        Self { members: vec![(parent, 1)], ..Self::default() }
    }
}

impl FromStr for Parent {
    type Err = InvalidParent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why| InvalidParent { why };
        let uri: Uri = text.parse().map_err(|_| invalid("not a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid("must begin with http://"));
        }
        let authority = uri.authority().ok_or_else(|| invalid("has no host"))?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(invalid("must not have a path"));
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err(invalid("has no host"));
        }
        let port = port_of(authority, false).ok_or_else(|| invalid("has no port from 1 to 65535 after the colon"))?;
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
        let credentials =
            user.map(|user| credentials_of(user).ok_or_else(|| invalid("has no user and password before the @")));
        Ok(Self { host: bare.to_ascii_lowercase().into(), port, credentials: credentials.transpose()? })
    }
}

/// Returns the value of Proxy-Authorization for `user:password`, whose characters may be percent-encoded. `None` if
/// malformed.
fn credentials_of(text: &str) -> Option<HeaderValue> {
    let is_escape =
        |after: &str| after.as_bytes().first_chunk::<2>().is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let octets: Vec<u8> = percent_decode_str(text).collect();
    let is_pair = octets.iter().position(|octet| *octet == b':').is_some_and(|at| at > 0);
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(octets))).ok()?;
    value.set_sensitive(true);
    is_pair.then_some(value)
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse() {
            Ok(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.credentials.is_some() { "***@" } else { "" };
        write!(f, "Parent(http://{user}{self})")
    }
}

impl fmt::Display for InvalidParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parent {}", self.why)
    }
}

impl std::error::Error for InvalidParent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_and_show_no_password() {
        let parent: Parent = "http://me:se%40cret@Parent.example:3128/".parse().unwrap();
        assert_eq!((&*parent.host, parent.port), ("parent.example", 3128));
        assert_eq!(parent.credentials.as_ref().unwrap(), "Basic bWU6c2VAY3JldA==");
        for shown in [parent.to_string(), format!("{parent:?}"), format!("{:?}", parent.credentials)] {
            assert!(!shown.contains("cret") && !shown.contains("bWU6"), "{shown}");
        }
        let plain: Parent = "http://[::1]".parse().unwrap();
        assert_eq!((plain.to_string().as_str(), plain.credentials), ("[::1]:80", None));
        for text in
            ["", "parent:3128", "https://a", "http://", "http://a/b", "http://a:0", "http://user@a", "http://u:%zz@a"]
        {
            let problem = text.parse::<Parent>().unwrap_err().to_string();
            assert!(problem.starts_with("parent "), "{problem}");
        }
    }

    #[test]
    fn some_hosts_are_asked_without() {
        let hosts = ["*.company.example", "10.0.0.1"].map(|host| Direct::Hosts(host.parse().unwrap()));
        let networks = ["10.1.0.0/16", "fd00::/8"].map(|network| Direct::Network(network.parse().unwrap()));
        let except = hosts.into_iter().chain(networks).collect();
        let parents = Parents { except, ..Parents::default() };
        assert!(parents.lead_to("a.example") && parents.lead_to("company.example"));
        assert!(!parents.lead_to("a.company.example") && !parents.lead_to("10.0.0.1"));
        for host in ["10.1.2.3", "::ffff:10.1.2.3", "[::ffff:10.1.2.3]", "fd00::1"] {
            assert!(!parents.lead_to(host), "{host}");
        }
        assert!(parents.lead_to("10.2.0.1") && parents.lead_to("fe80::1"));
    }
}
