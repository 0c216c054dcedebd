//! The other nodes of the fleet as siblings: a request first goes to the node that owns its key, and only then to the
//! origin. So the fleet as a whole fetches and stores each resource once.
//!
//! Owns: which nodes are probed, and which resources were changed. `members` has the nodes and the owner of each key,
//! `message` the fields of the requests, and `origins::fetcher::sibling` sends them. Invariant: an excluded node owns
//! nothing here until a probe succeeds; meanwhile its keys belong to the next node by the same function.
//!
//! Cost: one hash of the key, one lock and one load. The table has two bytes for each of 2^20 slots.

mod changes;
mod differences;
mod members;
mod message;
mod pieces;

use larder_device::IgnorePoison;
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, RwLock},
    time::Duration,
};

use http::Uri;
use tokio::task::JoinSet;

use self::{
    changes::ChangedResources,
    differences::PeerDifferences,
    members::{ListedNodes, SiblingMembers},
    pieces::Pieces,
};
pub(crate) use self::{
    members::{SiblingNode, SiblingOutcome},
    message::{PEER_FIELD, PeerClaim, PeerDifference, PeerProof, PeerRequest, PeerWords},
};
use crate::{
    fleet::{message::PATH, secret::FleetSecret},
    ground::{
        config::{Fleet, FleetName, ProxyConfig},
        digest::short_digest,
    },
    origins::{access::OriginRouter, checks},
};

/// The nodes of a fleet that share their entries, as this node sees them.
pub(crate) struct Siblings {
    pub(crate) own_name: Arc<str>,
    pub(crate) secret: Arc<FleetSecret>,
    /// The digest of the settings that must be the same on all nodes: the nodes, the key rules and the length of
    /// pieces.
    rules: Box<str>,
    pub(crate) differences: PeerDifferences,
    /// The nodes. `None` until the name of the fleet has been resolved for the first time.
    members: RwLock<Option<Arc<SiblingMembers>>>,
    /// The host name whose DNS addresses are the nodes. `None` if the configuration lists the nodes.
    dns: Option<FleetName>,
    /// Whether connections between nodes use TLS with certificates.
    pub(crate) uses_tls: bool,
    /// The addresses on which this node listens. They show which of the nodes it is.
    own_addresses: Vec<SocketAddr>,
    /// The name of the fleet's shared log of purges. `None` if there is none.
    shared_log: Option<String>,
    /// The path for health checks, with which excluded nodes are probed. `None` if health checks are off.
    ready_path: Option<String>,
    /// Maximum time until another node's first interim response, which shows that it works on the request.
    pub(crate) patience: Duration,
    pub(crate) pieces: Pieces,
    /// Resources that clients changed through this node. Their owners must still drop their stored responses.
    changed: ChangedResources,
}

impl Siblings {
    /// Creates the siblings for a configuration. `None` if the nodes of its fleet do not share entries.
    pub(crate) fn new(
        fleet: &Fleet,
        own_name: &Arc<str>,
        secret: &Arc<FleetSecret>,
        own_addresses: &[SocketAddr],
        rules: u64,
    ) -> Option<Arc<Self>> {
        let is_alone = fleet.dns.is_none() && fleet.nodes.len() < 2;
        if !fleet.shares_entries || is_alone {
            return None;
        }
        let uses_tls = fleet.tls.is_some();
        let listed = ListedNodes { nodes: &fleet.nodes, uses_tls };
        let members = SiblingMembers::new(&listed, |node| node.name == **own_name, None);
        Some(Arc::new(Self {
            own_name: Arc::clone(own_name),
            secret: Arc::clone(secret),
            rules: format!("{rules:016x}").into(),
            differences: PeerDifferences::default(),
            members: RwLock::new(members.map(Arc::new)),
            dns: fleet.dns.clone(),
            uses_tls,
            own_addresses: own_addresses.to_vec(),
            shared_log: fleet.log.as_ref().map(ToString::to_string),
            ready_path: fleet.ready_path.clone(),
            patience: fleet.sibling_patience,
            pieces: Pieces::new(fleet.piece_bytes),
            changed: ChangedResources::default(),
        }))
    }

    /// Returns the other node that owns a piece of the resource with this key. `None` if this node owns the piece, or
    /// if no nodes are known yet.
    pub(crate) fn owner(&self, key: &[u8], piece: u64) -> Option<Arc<SiblingNode>> {
        self.members()?.owner(key, piece)
    }

    /// Returns whether the nodes divide a body of `len` bytes into pieces. `key` is the key of its resource.
    ///
    /// A body whose origin ignores range requests is not divided.
    pub(crate) fn divide(&self, key: &[u8], len: u64) -> bool {
        self.pieces.divide(key, len) && self.members().is_some_and(|members| members.has_others())
    }

    /// Records that a node answered a request from this node.
    pub(crate) fn note_answer(&self, node: &SiblingNode) {
        node.note(SiblingOutcome::Answered);
        self.differences.settle(&node.name);
    }

    /// Records that a node refuses requests from this node, because their clocks or settings differ. The refusing node
    /// is not used for a while.
    pub(crate) fn note_difference(&self, node: &SiblingNode, difference: PeerDifference) {
        node.note(SiblingOutcome::Differs);
        self.differences.note(&node.name, difference);
    }

    /// Records that a client changed the resource with this key, so that the owner of the key must drop its stored
    /// responses.
    pub(crate) fn note_change(&self, key: &[u8]) {
        if self.members().is_some_and(|members| members.home(key).is_some()) {
            self.changed.note(key);
        }
    }

    /// Records that a node has dropped its stored responses of a changed resource.
    ///
    /// If the node only stands in for an excluded owner, the owner must still drop its stored responses.
    fn settle_change(&self, key: &[u8], node: &str) {
        let members = self.members();
        let home = members.as_ref().and_then(|members| members.home(key));
        if home.is_some_and(|home| *home.name == *node) {
            self.changed.settle(key);
        }
    }

    /// Returns whether an address is that of another node. Nodes that are configured by host name are not recognized.
    pub(crate) fn has_address(&self, ip: IpAddr) -> bool {
        let is_at = |node: &Arc<SiblingNode>| node.origin.host.parse::<IpAddr>().is_ok_and(|own| own == ip);
        self.members().is_some_and(|members| members.others().any(is_at))
    }

    fn members(&self) -> Option<Arc<SiblingMembers>> {
        self.members.read().ignore_poison().clone()
    }

    fn set_members(&self, members: SiblingMembers) {
        *self.members.write().ignore_poison() = Some(Arc::new(members));
    }
}

/// Returns the digest of the settings that must be the same on all nodes: the nodes, the key rules and the length of
/// pieces.
///
/// Nodes with different settings would look for an entry at different nodes or under different keys.
pub(crate) fn rules_of(config: &ProxyConfig) -> u64 {
    let mut nodes: Vec<String> =
        config.fleet.nodes.iter().map(|node| format!("{}={}:{}", node.name, node.host, node.port)).collect();
    nodes.sort();
    let dns = config.fleet.dns.as_ref();
    let pieces = config.fleet.piece_bytes;
    let dns = dns.map(|name| (&name.host, name.port));
    short_digest(format!("{nodes:?} {dns:?} {pieces:?} {:?}", config.policy.cache.http.key_rules).as_bytes())
}

/// Starts the tasks that greet and probe the other nodes, and resolve the name of the fleet.
pub(crate) fn look_after(siblings: &Arc<Siblings>, origins: &Arc<OriginRouter>, tasks: &mut JoinSet<()>) {
    tasks.spawn(greet_all(Arc::clone(siblings), Arc::clone(origins)));
    tasks.spawn(probe_all(Arc::clone(siblings), Arc::clone(origins)));
    tasks.spawn(members::follow_name(Arc::clone(siblings), Arc::clone(origins)));
}

/// Greets every other node once. A node that is not running now will greet this one when it starts.
async fn greet_all(siblings: Arc<Siblings>, origins: Arc<OriginRouter>) {
    let members = loop {
        match siblings.members() {
            Some(members) => break members,
            None => tokio::time::sleep(PROBE_INTERVAL).await,
        }
    };
    let mut greetings = JoinSet::new();
    for sibling in members.others() {
        greetings.spawn(greet(Arc::clone(&siblings), Arc::clone(&origins), Arc::clone(sibling)));
    }
    while greetings.join_next().await.is_some() {}
}

/// Asks a node whether its clock and rules agree with this node's.
///
/// Both nodes then log a difference at the start, before it affects a client's request.
async fn greet(siblings: Arc<Siblings>, origins: Arc<OriginRouter>, sibling: Arc<SiblingNode>) {
    let Some(words) = PeerWords::of_greeting() else { return };
    let target = Uri::from_static(PATH);
    let make = || {
        let mut request = checks::request(&sibling.origin, &target);
        words.put(&siblings, (&sibling.name, None), &target, request.headers_mut());
        request
    };
    let Some(mut response) = checks::answer(&origins, &sibling.origin, make).await else { return };
    let status = response.status();
    if let PeerProof::Refused(difference) = words.take_proof(&siblings, status, response.headers_mut()) {
        siblings.note_difference(&sibling, difference);
    }
}

/// Probes the excluded nodes at intervals, until the worker stops.
async fn probe_all(siblings: Arc<Siblings>, origins: Arc<OriginRouter>) {
    let mut interval = tokio::time::interval(PROBE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(members) = siblings.members() else { continue };
        for sibling in members.others().filter(|sibling| sibling.may_be_probed()) {
            let is_back = match &siblings.ready_path {
                Some(path) => checks::is_well(&origins, &sibling.origin, path).await,
                // Without health checks there is no probe, so the node is used again and its next request shows whether
                // it works.
                None => true,
            };
            if is_back {
                sibling.readmit();
            }
        }
    }
}

/// Interval at which excluded nodes are probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use larder_http::key::primary_key;

    use super::*;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn siblings(own: &str) -> Arc<Siblings> {
        let nodes = NAMES.map(|name| format!("{name}=10.0.0.1:{}", 1 + u16::from(name.as_bytes()[0])).parse().unwrap());
        let fleet = Fleet { nodes: nodes.into(), shares_entries: true, ..Fleet::default() };
        Siblings::new(&fleet, &own.into(), &Arc::new(FleetSecret::new("0123456789abcdef")), &[], 0).unwrap()
    }

    fn keys() -> impl Iterator<Item = Vec<u8>> {
        (0..300).map(|number| primary_key("http", "a.example", &format!("/{number}")).unwrap())
    }

    fn owner(siblings: &Siblings, key: &[u8]) -> String {
        siblings.owner(key, 0).map_or_else(|| siblings.own_name.to_string(), |sibling| sibling.name.to_string())
    }

    #[test]
    fn all_nodes_agree_on_the_owner_whatever_answers_for_the_url() {
        let all = NAMES.map(siblings);
        let mut counts = [0; 3];
        for key in keys() {
            let owners: Vec<String> = all.iter().map(|siblings| owner(siblings, &key)).collect();
            assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
            let marked = [&key[..], b" @http://10.0.0.9:80"].concat();
            assert_eq!(owner(&all[0], &marked), owners[0]);
            counts[NAMES.iter().position(|name| *name == owners[0]).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (70..140).contains(count)), "{counts:?}");
    }

    #[test]
    fn keys_of_a_node_that_is_left_out_go_to_the_others_and_no_other_key_moves() {
        let siblings = siblings("a");
        let owners = || keys().map(|key| owner(&siblings, &key)).collect::<Vec<_>>();
        let before = owners();
        let lost = siblings.members().unwrap().others().find(|sibling| &*sibling.name == "b").unwrap().clone();
        lost.note(SiblingOutcome::Failed(""));
        lost.note(SiblingOutcome::Failed(""));
        lost.note(SiblingOutcome::Answered);
        lost.note(SiblingOutcome::Failed(""));
        lost.note(SiblingOutcome::Failed(""));
        assert_eq!(owners(), before, "it did not fail often enough in a row");
        lost.note(SiblingOutcome::Failed(""));
        for (before, after) in before.iter().zip(owners()) {
            assert!(after != "b" && (*before == after || before == "b"));
        }
        lost.readmit();
        assert_eq!(owners(), before);
        lost.note(SiblingOutcome::Unreachable(""));
        assert!(!owners().contains(&"b".to_owned()));
    }
}
