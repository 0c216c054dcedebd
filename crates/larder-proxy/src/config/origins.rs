//! Several origins of one site: who gets which request, and when one is left out.

use std::time::Duration;

use http::uri::Authority;
use larder_http::owner::{OwnerNode, OwnerTable, WEIGHT_MAX};

use super::OriginUrl;

/// The origins of a site. All hold the same; their URLs differ in scheme, host and port only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Each with its weight: with 2, it gets twice as many requests as with 1. From 1 to 100.
    pub members: Vec<(OriginUrl, u32)>,
    /// Rules for the choice among them.
    pub rules: GroupRules,
}

/// Rules for the choice among the members of a group: the origins of a site, or parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRules {
    /// The order in which members get requests. Default [`Balance::RoundRobin`].
    pub balance: Balance,
    /// Failures in a row after which a member is left out. Default 3.
    pub failure_count_max: u32,
    /// Time for which it is left out. Longer: clients meet a dead member less often. Shorter: one that is well again
    /// is used sooner. Default 10 s.
    pub out: Duration,
    /// A path that is requested at intervals; a member that does not answer it with a status below 400 is left out
    /// until it does. Default none.
    pub check: Option<(String, Duration)>,
}

/// Who gets which request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other, by weight.
    #[default]
    RoundRobin,
    /// By the key of the request after the key rules, so that each member sees the same resources again: it goes to
    /// the key's owner ([`larder_http::owner`]).
    ConsistentHash,
}

/// The Host that an origin gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// Over TLS the origin's own, which it needs to know what it is asked for; else the client's.
    #[default]
    ByScheme,
    /// The one that the client asked for.
    Client,
    /// The one of the origin's URL.
    Origin,
    /// This one, with or without port.
    Named(Authority),
}

impl Origins {
    /// Returns the error in the settings, if there is one.
    pub fn fault(&self) -> Option<String> {
        let Some((first, _)) = self.members.first() else { return Some("a site has no origin".into()) };
        if let Some((url, _)) = self.members.iter().find(|(url, _)| url.prefix != first.prefix) {
            return Some(format!("origins of one site must have the same base path: {url}"));
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
