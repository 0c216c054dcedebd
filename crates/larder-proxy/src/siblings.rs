//! The other nodes of the fleet as siblings: the node that owns a key is contacted before the origin, so that the fleet
//! as a whole fetches and stores each resource once.
//!
//! Owns: which node is contacted for a key, and which nodes are excluded. `message` has the fields of the requests, and
//! `flight::sibling` sends them. Invariants: all nodes with the same list agree on the owner of a key. An excluded node
//! owns nothing here until a probe succeeds; meanwhile its keys belong to the next node by the same function.
//!
//! Cost: one hash of the key and one load. The table has two bytes for each of 2^20 slots.

mod changes;
mod message;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use larder_http::{
    key::KeyOf,
    owner::{OwnerNode, OwnerTable, slot_of},
};

use self::changes::ChangedResources;
pub(crate) use self::message::{PEER_FIELD, PeerRequest, PeerWords};
use crate::{
    config::{Fleet, FleetNode},
    fleet::secret::FleetSecret,
    origin::{
        checks,
        origins::OriginRouter,
        target::{Origin, OriginWay},
    },
};

/// The nodes of the fleet, if they share their entries.
pub(crate) struct Siblings {
    pub(crate) own_name: Arc<str>,
    pub(crate) secret: Arc<FleetSecret>,
    table: OwnerTable,
    /// The nodes in the order of the table, including this one.
    nodes: Vec<SiblingNode>,
    own_place: usize,
    /// The name of the fleet's shared log of purges, if it has one.
    shared_log: Option<String>,
    /// The path of probes, if nodes answer health checks.
    ready_path: Option<String>,
    /// Resources that clients changed through this node and that others store.
    changed: ChangedResources,
}

/// A node of the fleet.
pub(crate) struct SiblingNode {
    pub(crate) name: Box<str>,
    pub(crate) origin: Origin,
    failure_count: AtomicU32,
    is_out: AtomicBool,
}

/// The outcome of a request to a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiblingOutcome {
    Answered,
    /// The node was silent, broke off, or could not answer.
    Failed,
    /// The node accepts no connection.
    Unreachable,
}

impl Siblings {
    /// Creates the siblings of a configuration, if its nodes share their entries.
    pub(crate) fn new(fleet: &Fleet, own_name: &Arc<str>, secret: &Arc<FleetSecret>) -> Option<Arc<Self>> {
        let own_place = fleet.nodes.iter().position(|node| node.name == **own_name)?;
        if !fleet.shares_entries || fleet.nodes.len() < 2 {
            return None;
        }
        let owners: Vec<_> = fleet.nodes.iter().map(|node| OwnerNode { name: node.name.clone(), weight: 1 }).collect();
        Some(Arc::new(Self {
            own_name: Arc::clone(own_name),
            secret: Arc::clone(secret),
            table: OwnerTable::new(&owners).expect("a fleet whose names are not unique is refused"),
            nodes: fleet.nodes.iter().map(SiblingNode::new).collect(),
            own_place,
            shared_log: fleet.log.as_ref().map(ToString::to_string),
            ready_path: fleet.ready_path.clone(),
            changed: ChangedResources::default(),
        }))
    }

    /// Returns the node to contact for the resource with this key, or `None` if it is this node.
    pub(crate) fn owner(&self, key: &[u8]) -> Option<&SiblingNode> {
        let may = |place: usize| place == self.own_place || !self.nodes[place].is_out.load(Relaxed);
        let owner = self.table.owner_among(slot_of_url(key), may)?;
        (owner != self.own_place).then(|| &self.nodes[owner])
    }

    /// Notes that a client changed the resource with this key, so that its owner must drop its stored responses.
    pub(crate) fn note_change(&self, key: &[u8]) {
        if self.home(key) != self.own_place {
            self.changed.note(key);
        }
    }

    /// Notes that a node has dropped its stored responses of a changed resource. If that node is a substitute for the
    /// owner, the owner must still drop its own.
    fn settle_change(&self, key: &[u8], node: &str) {
        if *self.nodes[self.home(key)].name == *node {
            self.changed.settle(key);
        }
    }

    /// Returns the index of the node that owns a key while all nodes respond.
    fn home(&self, key: &[u8]) -> usize {
        self.table.owner(slot_of_url(key))
    }

    /// Returns the nodes other than this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = &SiblingNode> {
        self.nodes.iter().enumerate().filter(|(place, _)| *place != self.own_place).map(|(_, node)| node)
    }
}

impl SiblingNode {
    fn new(node: &FleetNode) -> Self {
        let origin = Origin { trusted: true, way: OriginWay::Sibling, ..Origin::of_client(&node.host, node.port) };
        let (failure_count, is_out) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { name: node.name.as_str().into(), origin, failure_count, is_out }
    }

    /// Notes the outcome of a request to the node. Excludes the node if it is unreachable or failed several times in a
    /// row.
    pub(crate) fn note(&self, outcome: SiblingOutcome) {
        let is_lost = match outcome {
            SiblingOutcome::Answered => {
                self.failure_count.store(0, Relaxed);
                return;
            }
            SiblingOutcome::Failed => self.failure_count.fetch_add(1, Relaxed) + 1 >= FAILURE_COUNT_MAX,
            SiblingOutcome::Unreachable => true,
        };
        if is_lost && !self.is_out.swap(true, Relaxed) {
            tracing::warn!(node = &*self.name, "a node of the fleet is not asked for its entries until it responds");
        }
    }
}

/// Probes the excluded nodes, for as long as the worker runs.
pub(crate) async fn probe_all(siblings: Arc<Siblings>, origins: Arc<OriginRouter>) {
    let mut interval = tokio::time::interval(PROBE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        for sibling in siblings.others().filter(|sibling| sibling.is_out.load(Relaxed)) {
            let is_back = match &siblings.ready_path {
                Some(path) => checks::is_well(&origins, &sibling.origin, path).await,
                // Without health checks, the next request is the probe.
                None => true,
            };
            if is_back {
                sibling.failure_count.store(0, Relaxed);
                sibling.is_out.store(false, Relaxed);
                tracing::info!(node = &*sibling.name, "a node of the fleet is asked for its entries again");
            }
        }
    }
}

/// Returns the slot of the URL in a key. No other program knows the rest of a key.
fn slot_of_url(key: &[u8]) -> u32 {
    slot_of(KeyOf::parse(key).and_then(|key| key.url()).map_or(key, str::as_bytes))
}

/// Consecutive failures after which a node is excluded.
const FAILURE_COUNT_MAX: u32 = 3;
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
        Siblings::new(&fleet, &own.into(), &Arc::new(FleetSecret::new("0123456789abcdef"))).unwrap()
    }

    fn keys() -> impl Iterator<Item = Vec<u8>> {
        (0..300).map(|number| primary_key("http", "a.example", &format!("/{number}")).unwrap())
    }

    fn owner<'a>(siblings: &'a Siblings, key: &[u8]) -> &'a str {
        siblings.owner(key).map_or(&*siblings.own_name, |sibling| &*sibling.name)
    }

    #[test]
    fn all_nodes_agree_on_the_owner_whatever_answers_for_the_url() {
        let all = NAMES.map(siblings);
        let mut counts = [0; 3];
        for key in keys() {
            let owners: Vec<&str> = all.iter().map(|siblings| owner(siblings, &key)).collect();
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
        let owners = || keys().map(|key| owner(&siblings, &key).to_owned()).collect::<Vec<_>>();
        let before = owners();
        let lost = siblings.others().find(|sibling| &*sibling.name == "b").unwrap();
        lost.note(SiblingOutcome::Failed);
        lost.note(SiblingOutcome::Failed);
        lost.note(SiblingOutcome::Answered);
        lost.note(SiblingOutcome::Failed);
        lost.note(SiblingOutcome::Failed);
        assert_eq!(owners(), before, "it did not fail often enough in a row");
        lost.note(SiblingOutcome::Failed);
        for (before, after) in before.iter().zip(owners()) {
            assert!(after != "b" && (*before == after || before == "b"));
        }
        lost.is_out.store(false, Relaxed);
        assert_eq!(owners(), before);
        lost.note(SiblingOutcome::Unreachable);
        assert!(!owners().contains(&"b".to_owned()));
    }
}
