//! The origins of a site: how requests are divided among them, and when a failing one is left out.

use std::time::Duration;

use http::uri::Authority;
use larder_http::owner::{OwnerNode, OwnerTable, WEIGHT_MAX};

use super::OriginUrl;

/// The origins of a site. All have the same content. Their URLs differ only in scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Each origin with its weight, from 1 to 100. With weight 2 it gets twice as many requests as with 1.
    pub members: Vec<(OriginUrl, u32)>,
    /// Rules for the choice among them.
    pub rules: GroupRules,
}

/// Rules for the choice among the members of a group: the origins of a site, or parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRules {
    /// The order in which members get requests. Default [`Balance::RoundRobin`].
    pub balance: Balance,
    /// Consecutive failures after which a member is left out. Default 3.
    pub failure_count_max: u32,
    /// Time for which a failing member is left out. Longer: fewer requests are tried on a dead member. Shorter: a
    /// recovered member is used sooner. Default 10 s.
    pub out: Duration,
    /// A path to request at intervals. A member that does not respond, or responds with a status of 400 or more, is
    /// left out until it recovers. Default none.
    pub check: Option<(String, Duration)>,
}

/// The rule that divides requests among the members of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// To each member in turn, by weight.
    #[default]
    RoundRobin,
    /// To the owner of the request's key after the key rules ([`larder_http::owner`]), so that each member gets the
    /// same resources again.
    ConsistentHash,
}

/// The Host that an origin gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// The origin's own host over TLS, because most public servers need it. Otherwise the client's.
    #[default]
    ByScheme,
    /// The host that the client requested.
    Client,
    /// The host in the origin's URL.
    Origin,
    /// A fixed host, with or without port.
    Named(Authority),
}

impl Origins {
    /// Returns the error in the settings, if there is one.
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

    /// Returns the nodes that own keys: each origin by its host and port.
    pub fn nodes(&self) -> Vec<OwnerNode> {
        let node = |(url, weight): &(OriginUrl, u32)| OwnerNode {
            name: format!("{}:{}", url.host, url.port),
            weight: *weight,
        };
        self.members.iter().map(node).collect()
    }
}

impl GroupRules {
    /// Returns the error in these rules or in the nodes of their group, if there is one. A message calls the group
    /// `group`, and each node by the name that `label` gives its place.
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
