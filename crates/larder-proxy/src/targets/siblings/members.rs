//! The nodes among which the keys are divided: those of the configuration, or the addresses of a name.
//!
//! Owns: which node is this one, and the table of owners. Invariant: all nodes with the same list agree on the owner of
//! a key, because a node's name follows from the list alone.
//!
//! A name is resolved again every few seconds. If it cannot be resolved, the last list stays.

use larder_device::IgnorePoison;
use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use larder_http::{
    key::KeyOf,
    owner::{OwnerNode, OwnerTable, slot_of, slot_of_piece},
};

use super::Siblings;
use crate::{
    ground::{
        config::{FleetName, FleetNode},
        errors::Failure,
        target::{Origin, OriginWay},
    },
    origins::{access::OriginRouter, dns::DnsResolver},
};

/// The nodes among which the keys are divided, and the table that gives each key its owner.
pub(super) struct SiblingMembers {
    table: OwnerTable,
    /// The nodes in the order of the owner table, including this one.
    nodes: Vec<Arc<SiblingNode>>,
    /// The index of this node in `nodes`. `None` if this node is missing there.
    own_place: Option<usize>,
}

/// The nodes that the configuration lists, or that the DNS addresses of the fleet's name stand for.
pub(super) struct ListedNodes<'a> {
    pub(super) nodes: &'a [FleetNode],
    /// Whether connections between nodes use TLS with certificates.
    pub(super) uses_tls: bool,
}

/// A node of the fleet (another one or this one), and the state of its health.
pub(crate) struct SiblingNode {
    pub(crate) name: Box<str>,
    pub(crate) origin: Origin,
    failure_count: AtomicU32,
    is_out: AtomicBool,
    times: Mutex<SiblingTimes>,
}

/// When a node was silent, and until when it is not used.
#[derive(Debug, Default)]
struct SiblingTimes {
    /// The time of the last request to which the node did not respond in time.
    silence: Option<Instant>,
    /// The end of the pause in which the node is neither used nor probed.
    rest_end: Option<Instant>,
}

/// The outcome of a request to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiblingOutcome<'a> {
    Answered,
    /// The node broke off its response, or sent an error of its own. The text says why.
    Failed(&'a str),
    /// The node did not respond in time.
    Silent,
    /// The node refuses this node's requests, because their clocks or rules differ.
    Differs,
    /// The node accepts no connection. The text says why.
    Unreachable(&'a str),
}

impl SiblingMembers {
    /// Creates the members. `is_own` recognizes this node. Nodes with the same name as in `before` keep their state.
    pub(super) fn new(
        listed: &ListedNodes<'_>,
        is_own: impl Fn(&FleetNode) -> bool,
        before: Option<&Self>,
    ) -> Option<Self> {
        let ListedNodes { nodes, uses_tls } = *listed;
        let owners: Vec<_> = nodes.iter().map(|node| OwnerNode { name: node.name.clone(), weight: 1 }).collect();
        let table = OwnerTable::new(&owners).ok()?;
        let known = |name: &str| before?.nodes.iter().find(|node| *node.name == *name).cloned();
        let member = |node: &FleetNode| known(&node.name).unwrap_or_else(|| Arc::new(SiblingNode::new(node, uses_tls)));
        let own_place = nodes.iter().position(is_own);
        Some(Self { table, nodes: nodes.iter().map(member).collect(), own_place })
    }

    /// Returns the other node that owns a piece of the resource with this key, not counting excluded nodes. `None` if
    /// this node owns the piece.
    pub(super) fn owner(&self, key: &[u8], piece: u64) -> Option<Arc<SiblingNode>> {
        let may = |place: usize| Some(place) == self.own_place || !self.nodes[place].is_out.load(Relaxed);
        let owner = self.table.owner_among(slot_of_piece(url_of(key), piece), may)?;
        (Some(owner) != self.own_place).then(|| Arc::clone(&self.nodes[owner]))
    }

    /// Returns whether at least one other node is in use.
    pub(super) fn has_others(&self) -> bool {
        self.others().any(|node| !node.is_out.load(Relaxed))
    }

    /// Returns the other node that owns a key while no node is excluded. `None` if this node owns the key.
    pub(super) fn home(&self, key: &[u8]) -> Option<&SiblingNode> {
        let home = self.table.owner(slot_of(url_of(key)));
        (Some(home) != self.own_place).then(|| &*self.nodes[home])
    }

    /// Returns all nodes except this one.
    pub(super) fn others(&self) -> impl Iterator<Item = &Arc<SiblingNode>> {
        self.nodes.iter().enumerate().filter(|(place, _)| Some(*place) != self.own_place).map(|(_, node)| node)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| &*node.name)
    }
}

impl SiblingNode {
    fn new(node: &FleetNode, https: bool) -> Self {
        let way = OriginWay::Sibling;
        let origin = Origin { https, trusted: true, way, ..Origin::of_client(&node.host, node.port) };
        let failure_count = AtomicU32::new(0);
        let is_out = AtomicBool::new(false);
        Self { name: node.name.as_str().into(), origin, failure_count, is_out, times: Mutex::default() }
    }

    /// Records the outcome of a request to the node. Excludes a node that is unreachable or has failed several times in
    /// a row.
    pub(crate) fn note(&self, outcome: SiblingOutcome<'_>) {
        let (is_lost, why) = match outcome {
            SiblingOutcome::Answered => {
                self.failure_count.store(0, Relaxed);
                return;
            }
            SiblingOutcome::Failed(why) => (self.failure_count.fetch_add(1, Relaxed) + 1 >= FAILURE_COUNT_MAX, why),
            SiblingOutcome::Silent => (self.note_silence(Instant::now()), "it did not respond to two requests in time"),
            SiblingOutcome::Differs => {
                // The table of differences logs this.
                self.rest(Instant::now() + DIFFERENCE_REST);
                self.is_out.store(true, Relaxed);
                return;
            }
            SiblingOutcome::Unreachable(why) => (true, why),
        };
        if is_lost && !self.is_out.swap(true, Relaxed) {
            tracing::warn!(
                node = &*self.name,
                why,
                "a node of the fleet is excluded: its URLs belong to the other nodes until it responds"
            );
        }
    }

    /// Records that the node did not respond in time. Returns whether it also failed to respond to another request less
    /// than a second ago.
    ///
    /// In that case, the node is not probed for a while: a frozen node still accepts connections, so a probe would find
    /// it healthy too soon.
    fn note_silence(&self, now: Instant) -> bool {
        let mut times = self.times();
        let is_second = times.silence.is_some_and(|last| now.saturating_duration_since(last) <= SILENCE_INTERVAL);
        times.silence = Some(now);
        if is_second {
            times.rest_end = Some(now + SILENCE_REST);
        }
        is_second
    }

    fn rest(&self, end: Instant) {
        self.times().rest_end = Some(end);
    }

    /// Returns whether the node is excluded and its pause is over, so that it may be probed.
    pub(super) fn may_be_probed(&self) -> bool {
        self.is_out.load(Relaxed) && self.times().rest_end.is_none_or(|end| end <= Instant::now())
    }

    fn times(&self) -> MutexGuard<'_, SiblingTimes> {
        self.times.lock().ignore_poison()
    }

    /// Records that a probe of the node succeeded, so it is used again.
    pub(super) fn readmit(&self) {
        self.failure_count.store(0, Relaxed);
        self.is_out.store(false, Relaxed);
        tracing::info!(node = &*self.name, "a node of the fleet responds again: it is used");
    }
}

/// Resolves the name of the fleet at intervals, until the worker stops.
pub(super) async fn follow_name(siblings: Arc<Siblings>, origins: Arc<OriginRouter>) {
    let Some(name) = &siblings.dns else { return };
    let mut was_resolved = true;
    loop {
        let resolved = siblings.resolve(name, &origins.dns).await;
        if let Err(failure) = &resolved
            && was_resolved
        {
            tracing::warn!(%failure, "cannot resolve the name of the fleet (fleet.dns): the known nodes remain in use");
        }
        was_resolved = resolved.is_ok();
        tokio::time::sleep(RESOLVE_INTERVAL).await;
    }
}

impl Siblings {
    /// Resolves the name of the fleet once, and updates the nodes.
    async fn resolve(&self, name: &FleetName, dns: &DnsResolver) -> Result<(), Failure> {
        self.take_addresses(dns.resolve_all(&name.host, name.port, NODE_COUNT_MAX).await?);
        Ok(())
    }

    /// Makes the nodes with these addresses the members of the fleet, unless they are the members already.
    fn take_addresses(&self, addresses: Vec<SocketAddr>) {
        let nodes = nodes_of(addresses);
        let before = self.members();
        if before.as_ref().is_some_and(|before| before.names().eq(nodes.iter().map(|node| &*node.name))) {
            return;
        }
        let is_own = |node: &FleetNode| self.is_own_name(&node.name);
        let listed = ListedNodes { nodes: &nodes, uses_tls: self.uses_tls };
        let Some(members) = SiblingMembers::new(&listed, is_own, before.as_deref()) else { return };
        let names: Vec<&str> = members.names().collect();
        tracing::info!(nodes = names.join(" "), "the list of the fleet's nodes changed");
        if members.own_place.is_none() {
            tracing::warn!("this node is not in the list of the fleet's nodes, so it owns no entries: check fleet.dns");
        }
        self.set_members(members);
    }

    /// Returns whether `name` is the name by which other nodes know this one.
    pub(super) fn is_own_name(&self, name: &str) -> bool {
        match &self.dns {
            None => name == &*self.own_name,
            Some(_) => name.parse().is_ok_and(|address| is_own_address(address, &self.own_addresses)),
        }
    }
}

/// Returns the nodes with these addresses. Each address is also its node's name.
///
/// If there are IPv4 and IPv6 addresses, only the IPv4 addresses count, because each node probably has one of each
/// kind.
fn nodes_of(mut addresses: Vec<SocketAddr>) -> Vec<FleetNode> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(NODE_COUNT_MAX);
    let node = |address: SocketAddr| {
        let host = if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() };
        FleetNode { name: address.to_string(), host, port: address.port() }
    };
    addresses.into_iter().map(node).collect()
}

/// Returns whether an address belongs to this machine and this proxy listens on it.
fn is_own_address(address: SocketAddr, listeners: &[SocketAddr]) -> bool {
    let is_wildcard = |own: &SocketAddr| own.ip().is_unspecified() && own.port() == address.port();
    listeners.contains(&address) || (listeners.iter().any(is_wildcard) && is_of_this_machine(address.ip()))
}

/// Returns whether an address belongs to this machine: only then can a socket be bound to it.
fn is_of_this_machine(ip: IpAddr) -> bool {
    TcpListener::bind((ip, 0)).is_ok()
}

/// Returns the URL in a key. Owners are chosen by URL, because the remainder of a key differs between programs.
fn url_of(key: &[u8]) -> &[u8] {
    KeyOf::parse(key).and_then(|key| key.url()).map_or(key, str::as_bytes)
}

/// Number of consecutive failures after which a node is excluded.
const FAILURE_COUNT_MAX: u32 = 3;
/// A node that leaves two requests unanswered within this time is excluded for [`SILENCE_REST`].
const SILENCE_INTERVAL: Duration = Duration::from_secs(1);
const SILENCE_REST: Duration = Duration::from_secs(10);
/// Time after which a node that was excluded because its clock or rules differ is probed again.
const DIFFERENCE_REST: Duration = Duration::from_secs(60);
/// Maximum number of DNS addresses of the fleet's name that are used.
const NODE_COUNT_MAX: usize = 256;
/// Interval at which the name of the fleet is resolved. DNS records with a longer lifetime come from the resolver's
/// cache.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use larder_http::key::primary_key;

    use super::*;
    use crate::{fleet::secret::FleetSecret, ground::config::Fleet, origins::dns::tests::name_server};

    /// Guards against a node that joins the fleet but gets no requests, or one that left and still gets them.
    #[tokio::test]
    async fn nodes_follow_the_addresses_of_a_name() {
        let addresses = Arc::new(Mutex::new(vec![Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 1)]));
        let dns = DnsResolver::asking(name_server(Arc::clone(&addresses)));
        let name: FleetName = "nodes.example.:8080".parse().unwrap();
        let fleet = Fleet { dns: Some(name.clone()), shares_entries: true, ..Fleet::default() };
        let own = ["127.0.0.1:8080".parse().unwrap()];
        let secret = Arc::new(FleetSecret::new("0123456789abcdef"));
        let siblings = Siblings::new(&fleet, &"a".into(), &secret, &own, 0).unwrap();
        let key = |number: u32| primary_key("http", "a.example", &format!("/{number}")).unwrap();
        let owners = || {
            let named = |number| siblings.owner(&key(number), 0).map_or("own".to_owned(), |node| node.name.to_string());
            (0..100).map(named).collect::<std::collections::BTreeSet<String>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(owners(), ["own"], "nothing is known");
        siblings.resolve(&name, &dns).await.unwrap();
        assert_eq!(owners(), ["127.0.0.3:8080", "own"]);
        let node = (0..100).find_map(|number| siblings.owner(&key(number), 0)).unwrap();
        node.note(SiblingOutcome::Unreachable(""));
        addresses.lock().unwrap().push(Ipv4Addr::new(127, 0, 0, 2));
        siblings.resolve(&name, &dns).await.unwrap();
        assert_eq!(owners(), ["127.0.0.2:8080", "own"], "a node that is out stays out");
        node.readmit();
        assert_eq!(owners(), ["127.0.0.2:8080", "127.0.0.3:8080", "own"]);
        // An error of the name server changes nothing.
        addresses.lock().unwrap().clear();
        assert!(siblings.resolve(&name, &dns).await.is_err());
        assert_eq!(owners().len(), 3);
        *addresses.lock().unwrap() = vec![Ipv4Addr::new(127, 0, 0, 2)];
        siblings.resolve(&name, &dns).await.unwrap();
        assert_eq!(owners(), ["127.0.0.2:8080"], "this node is not among them");
        assert!(siblings.is_own_name("127.0.0.1:8080") && !siblings.is_own_name("a"));
    }

    /// Guards against requests that one after the other wait for a frozen node.
    #[test]
    fn node_that_is_silent_twice_within_a_second_is_out_of_use_and_not_probed() {
        let node = SiblingNode::new(&"b=10.0.0.2:80".parse().unwrap(), false);
        let start = Instant::now();
        assert!(!node.note_silence(start) && !node.note_silence(start + Duration::from_millis(1001)));
        assert!(node.note_silence(start + Duration::from_millis(2001)));
        let node = SiblingNode::new(&"b=10.0.0.2:80".parse().unwrap(), false);
        node.note(SiblingOutcome::Silent);
        assert!(!node.is_out.load(Relaxed));
        node.note(SiblingOutcome::Silent);
        assert!(node.is_out.load(Relaxed) && !node.may_be_probed());
        node.rest(start);
        assert!(node.may_be_probed());
        node.readmit();
        assert!(!node.is_out.load(Relaxed) && !node.may_be_probed());
    }

    fn names(addresses: &[&str]) -> Vec<String> {
        let parsed = addresses.iter().map(|address| address.parse().unwrap()).collect();
        nodes_of(parsed).into_iter().map(|node| node.name).collect()
    }

    #[test]
    fn addresses_of_a_name_are_nodes_in_one_order_and_each_only_once() {
        let expected = ["10.0.0.1:80", "10.0.0.2:80"];
        for addresses in [
            &["10.0.0.2:80", "10.0.0.1:80"][..],
            &["10.0.0.1:80", "10.0.0.2:80", "10.0.0.1:80"],
            &["10.0.0.1:80", "[fd00::1]:80", "10.0.0.2:80", "[fd00::2]:80"],
        ] {
            assert_eq!(names(addresses), expected);
        }
        assert_eq!(names(&["[fd00::2]:80", "[fd00::1]:80"]), ["[fd00::1]:80", "[fd00::2]:80"]);
    }

    #[test]
    fn own_address_is_one_on_which_this_program_listens() {
        let own = |address: &str, listeners: &[&str]| {
            let listeners: Vec<_> = listeners.iter().map(|listener| listener.parse().unwrap()).collect();
            is_own_address(address.parse().unwrap(), &listeners)
        };
        assert!(own("127.0.0.1:80", &["10.0.0.1:80", "127.0.0.1:80"]));
        assert!(own("127.0.0.1:80", &["0.0.0.0:80"]) && own("127.0.0.9:80", &["0.0.0.0:80"]));
        // Another port is another node, and 192.0.2.1 is an address that no machine has (RFC 5737).
        for (address, listener) in
            [("127.0.0.1:80", "0.0.0.0:81"), ("127.0.0.1:80", "127.0.0.2:80"), ("192.0.2.1:80", "0.0.0.0:80")]
        {
            assert!(!own(address, &[listener]), "{address} {listener}");
        }
    }
}
