//! The origins of a site: how requests are distributed among them, and when a failing one is excluded.

use std::time::Duration;

use http::uri::Authority;
use larder_http::owner::{OwnerNode, OwnerTable, WEIGHT_MAX};

use super::OriginUrl;

/// The origins of a site, which all serve the same content. Their URLs differ only in scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Each origin with its weight, from 1 to 100. An origin with weight 2 gets twice as many requests as one with 1.
    pub members: Vec<(OriginUrl, u32)>,
    /// The rules by which an origin is chosen.
    pub rules: GroupRules,
}

/// The rules by which one member of a group is chosen: one of a site's origins, or one of the parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRules {
    /// The rule by which requests are distributed among the members. Default [`Balance::RoundRobin`].
    pub balance: Balance,
    /// Number of consecutive failures after which a member is excluded. Default 3.
    pub failure_count_max: u32,
    /// Time for which a failing member is excluded. Default 10 s.
    ///
    /// With a longer time, fewer requests are tried on a dead member. With a shorter one, a recovered member is used
    /// sooner.
    pub out: Duration,
    /// A path to request from each member at intervals, as a health check. Default none.
    ///
    /// A member that does not respond, or that responds with a status of 400 or more, is excluded until it recovers.
    pub check: Option<(String, Duration)>,
}

/// The rule by which requests are distributed among the members of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Members take turns, by weight.
    #[default]
    RoundRobin,
    /// Each request goes to the owner of its key ([`larder_http::owner`]), so a member always gets the same resources.
    ConsistentHash,
}

/// The Host field that an origin gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// Over TLS, the origin's own host, which most public servers require. Without TLS, the host that the client
    /// requested.
    #[default]
    ByScheme,
    /// The host that the client requested.
    Client,
    /// The host in the origin's URL.
    Origin,
    /// A fixed host, with or without a port.
    Named(Authority),
}

impl Origins {
    /// Returns the error in these settings, or `None` if they are valid.
    pub fn fault(&self) -> Option<String> {
        let Some((first, _)) = self.members.first() else { return Some("a site has no origin".into()) };
        if let Some((url, _)) = self.members.iter().find(|(url, _)| url.prefix != first.prefix) {
            return Some(format!("origins of one site must have the same base path: {url}"));
        }
        if let Some((url, _)) = self.members.iter().find(|(url, _)| url.sends_proxy_header && url.parent.is_some()) {
            return Some(format!("a PROXY header cannot reach an origin through a parent: {url}"));
        }
        self.rules.fault("origins of one site", &self.nodes(), |at| self.members[at].0.to_string())
    }

    /// Returns the origins, named by host and port, as the nodes among which consistent hashing chooses.
    pub fn nodes(&self) -> Vec<OwnerNode> {
        let node = |(url, weight): &(OriginUrl, u32)| OwnerNode {
            name: format!("{}:{}", url.host, url.port),
            weight: *weight,
        };
        self.members.iter().map(node).collect()
    }
}

impl GroupRules {
    /// Returns the error in these rules or in the members of their group, or `None` if they are valid.
    ///
    /// In the error, the group is called `group`, and the member with index `i` is called `label(i)`.
    pub(super) fn fault(&self, group: &str, nodes: &[OwnerNode], label: impl Fn(usize) -> String) -> Option<String> {
        if let Some(at) = nodes.iter().position(|node| !(1..=WEIGHT_MAX).contains(&node.weight)) {
            return Some(format!("weight of {} must be from 1 to {WEIGHT_MAX}: {}", label(at), nodes[at].weight));
        }
        if self.balance == Balance::ConsistentHash
            && !nodes.is_empty()
            && let Some(fault) = OwnerTable::fault(nodes)
        {
            return Some(format!("{group}: {fault}"));
        }
        let path = self.check.as_ref().map(|(path, _)| path).filter(|path| !path.starts_with('/'));
        path.map(|path| format!("path of a health check must begin with a slash: {path}"))
    }
}

impl Default for GroupRules {
    fn default() -> Self {
        Self { balance: Balance::default(), failure_count_max: 3, out: Duration::from_secs(10), check: None }
    }
}

impl From<OriginUrl> for Origins {
    fn from(url: OriginUrl) -> Self {
        Self { members: vec![(url, 1)], rules: GroupRules::default() }
    }
}
