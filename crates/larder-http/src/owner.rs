//! Decides which of several nodes owns a key, so that every Larder, load balancer and program agrees.
//!
//! The module does not know which nodes are alive; the caller excludes the others. Invariants: the owner depends only
//! on the key and on the names and weights of the nodes, not on their order, the machine or the Rust version. When a
//! node joins or leaves, only its own share of the keys moves. Cost: one SipHash of the key and one load. Building the
//! table takes one multiplication per slot and node.
//!
//! docs/reference/owner.md describes the function for other programs, and `fixtures/owner.tsv` has test vectors.
//! Sources: Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates" (1998), for rendezvous hashing;
//! Schindelhauer and Schomaker (2005) for the weights.

use std::{fmt, hash::Hasher as _};

use siphasher::sip::SipHasher13;

use crate::key::KIND_PRIMARY;

/// Number of slots that keys are hashed into. More slots even out the shares of many nodes: with 100 nodes the largest
/// share is 1.03 times the mean.
pub const SLOT_COUNT: u32 = 1 << SLOT_BITS;
/// Largest number of nodes in one table.
pub const NODE_COUNT_MAX: usize = u16::MAX as usize;
/// Largest weight of a node.
pub const WEIGHT_MAX: u32 = 100;

/// A node and its weight, from which an [`OwnerTable`] is made. A node with weight 2 owns twice as many keys as one
/// with weight 1.
///
/// ```
/// use larder_http::owner::{OwnerNode, OwnerTable, SLOT_COUNT};
///
/// let nodes = [("a:8080", 1), ("b:8080", 3)].map(|(name, weight)| OwnerNode { name: name.to_owned(), weight });
/// let table = OwnerTable::new(&nodes)?;
/// let share = (0..SLOT_COUNT).filter(|slot| table.owner(*slot) == 1).count() as f64 / f64::from(SLOT_COUNT);
/// assert!((share - 0.75).abs() < 0.05);
/// # Ok::<(), larder_http::owner::OwnerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerNode {
    /// The node's name, such as `10.0.0.1:8080`. All programs that choose an owner must use the same name.
    pub name: String,
    /// The node's share of the keys, from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
}

/// The owner of every key among the nodes of a fleet, as a table of slots.
///
/// ```
/// use larder_http::{key::primary_key, owner::{OwnerNode, OwnerTable, slot_of}};
///
/// let nodes = ["a:8080", "b:8080", "c:8080"].map(|name| OwnerNode { name: name.to_owned(), weight: 1 });
/// let table = OwnerTable::new(&nodes)?;
/// let slot = slot_of(&primary_key("https", "a.example", "/x")?);
/// let owner = table.owner(slot);
/// // While the owner is down, another node owns the key.
/// let stand_in = table.owner_among(slot, |node| node != owner).expect("two nodes are up");
/// assert_ne!(stand_in, owner);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnerTable {
    /// The nodes, grouped by weight. The group with the smallest weight comes first.
    groups: Vec<WeightGroup>,
    /// The owner of each slot, as an index in the list of nodes.
    owners: Box<[u16]>,
}

impl fmt::Debug for OwnerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnerTable").finish_non_exhaustive()
    }
}

/// Why a list of nodes is invalid. For example, two nodes have the same name, so that keys cannot be divided between
/// them.
///
/// ```
/// use larder_http::owner::{OwnerError, OwnerNode, OwnerTable};
///
/// let node = |weight| OwnerNode { name: "a:8080".to_owned(), weight };
/// assert_eq!(OwnerTable::new(&[node(1), node(1)]).unwrap_err(), OwnerError::Twice("a:8080".to_owned()));
/// assert_eq!(OwnerTable::new(&[node(0)]).unwrap_err(), OwnerError::Weight(node(0)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerError {
    /// The list is empty.
    NoNode,
    /// There are more nodes than [`NODE_COUNT_MAX`].
    TooMany(usize),
    /// A name is empty.
    NoName,
    /// Two nodes have this name.
    Twice(String),
    /// The weight of this node is out of range.
    Weight(OwnerNode),
}

/// The nodes of one weight, sorted by name.
///
/// The node with the largest rank wins within a group, so logarithms are needed only to compare the winners of
/// different groups. If ranks are equal, the first name wins.
struct WeightGroup {
    weight: f64,
    /// The hashes of the nodes' names.
    hashes: Vec<u64>,
    /// Indexes of the nodes in the list that the table was made from.
    places: Vec<u16>,
}

/// Returns the slot of a resource.
///
/// `primary_key` is the result of [`KeyRules::key`](crate::key_rules::KeyRules::key). Its first byte does not count,
/// only the URL in it.
pub fn slot_of(primary_key: &[u8]) -> u32 {
    slot_of_piece(primary_key, 0)
}

/// Returns the slot of a piece of a resource's body. Siblings divide long bodies into pieces, counted from 0. Piece 0
/// has the slot of the resource.
pub fn slot_of_piece(primary_key: &[u8], number: u64) -> u32 {
    let url = primary_key.strip_prefix(&[KIND_PRIMARY]).unwrap_or(primary_key);
    let hash = match number {
        0 => sip_hash(url),
        // No URL contains a space.
        _ => sip_hash(&[url, format!(" {number}").as_bytes()].concat()),
    };
    (hash >> (u64::BITS - SLOT_BITS)) as u32
}

impl OwnerTable {
    /// Computes the owner of every slot.
    ///
    /// # Errors
    /// The list is empty or too long, two nodes have the same name, a name is empty, or a weight is out of range.
    ///
    /// # Cost
    /// Two bytes per slot. With 3 nodes it takes a few milliseconds, with 1,000 less than a second.
    pub fn new(nodes: &[OwnerNode]) -> Result<Self, OwnerError> {
        if let Some(error) = Self::fault(nodes) {
            return Err(error);
        }
        let mut sorted: Vec<(&OwnerNode, u16)> = nodes.iter().zip(0..).collect();
        sorted.sort_by(|(a, _), (b, _)| (a.weight, &a.name).cmp(&(b.weight, &b.name)));
        let groups = sorted.chunk_by(|(a, _), (b, _)| a.weight == b.weight).map(|of_weight| WeightGroup {
            weight: f64::from(of_weight[0].0.weight),
            hashes: of_weight.iter().map(|(node, _)| sip_hash(node.name.as_bytes())).collect(),
            places: of_weight.iter().map(|(_, place)| *place).collect(),
        });
        let groups: Vec<WeightGroup> = groups.collect();
        let owners = (0..SLOT_COUNT).map(|slot| best(&groups, slot, |_| true).expect("there is a node"));
        let owners = owners.collect();
        Ok(Self { groups, owners })
    }

    /// Returns why the list of nodes is invalid, or `None` if it is valid.
    pub fn fault(nodes: &[OwnerNode]) -> Option<OwnerError> {
        if nodes.is_empty() {
            return Some(OwnerError::NoNode);
        }
        if nodes.len() > NODE_COUNT_MAX {
            return Some(OwnerError::TooMany(nodes.len()));
        }
        if nodes.iter().any(|node| node.name.is_empty()) {
            return Some(OwnerError::NoName);
        }
        if let Some(node) = nodes.iter().find(|node| !(1..=WEIGHT_MAX).contains(&node.weight)) {
            return Some(OwnerError::Weight(node.clone()));
        }
        let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| OwnerError::Twice(pair[0].to_owned()))
    }

    /// Returns the index of a slot's owner in the list of nodes.
    pub fn owner(&self, slot: u32) -> usize {
        usize::from(self.owners[slot as usize])
    }

    /// Returns the index of the node that owns a slot if only the nodes for which `may` returns true are considered.
    pub fn owner_among(&self, slot: u32, may: impl Fn(usize) -> bool) -> Option<usize> {
        let owner = self.owner(slot);
        if may(owner) {
            return Some(owner);
        }
        best(&self.groups, slot, may).map(usize::from)
    }
}

/// Returns the index of the node with the best weighted rank for a slot among those for which `may` returns true.
fn best(groups: &[WeightGroup], slot: u32, may: impl Fn(usize) -> bool) -> Option<u16> {
    let slot_hash = sip_hash(&slot.to_le_bytes());
    let mut winner: Option<(f64, u16)> = None;
    for group in groups {
        let Some((rank, place)) = group.largest(slot_hash, &may) else { continue };
        // The bound `-ln(u) >= 1 - u` often decides without computing a logarithm.
        let unit = unit(rank);
        let loses = |best: f64| (1.0 - unit) / group.weight > best || -unit.ln() / group.weight >= best;
        if !winner.is_some_and(|(best, _)| loses(best)) {
            winner = Some((-unit.ln() / group.weight, place));
        }
    }
    winner.map(|(_, place)| place)
}

impl WeightGroup {
    /// Returns the largest rank among the nodes for which `may` returns true, and that node's index. Of equal ranks the
    /// first wins.
    fn largest(&self, slot_hash: u64, may: impl Fn(usize) -> bool) -> Option<(u64, u16)> {
        let mut largest: Option<(u64, u16)> = None;
        for (hash, place) in self.hashes.iter().zip(&self.places) {
            let rank = fold(*hash, slot_hash) >> RANK_SHIFT;
            if largest.is_none_or(|(best, _)| rank > best) && may(usize::from(*place)) {
                largest = Some((rank, *place));
            }
        }
        largest
    }
}

/// Converts a rank to a number between 0 and 1.
fn unit(rank: u64) -> f64 {
    (rank as f64 + 0.5) / (1_u64 << (u64::BITS - RANK_SHIFT)) as f64
}

/// Multiplies two hashes and combines the halves of the product with XOR.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> u64::BITS) as u64
}

fn sip_hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&KEY);
    hasher.write(bytes);
    hasher.finish()
}

/// The published key of the hash. It spreads load and protects nothing: a client that wants to reach a certain owner
/// can connect to that node directly.
const KEY: [u8; 16] = *b"larder owner key";
const SLOT_BITS: u32 = 20;
/// Low bits of a hash that its rank drops, so that `rank + 0.5` is exact in an `f64`.
const RANK_SHIFT: u32 = 12;

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode => f.write_str("no nodes given"),
            Self::TooMany(count) => write!(f, "{count} nodes given, at most {NODE_COUNT_MAX} are allowed"),
            Self::NoName => f.write_str("a node has no name"),
            Self::Twice(name) => write!(f, "two nodes have the name {name}"),
            Self::Weight(node) => {
                write!(f, "weight of {} must be from 1 to {WEIGHT_MAX}: {}", node.name, node.weight)
            }
        }
    }
}

impl std::error::Error for OwnerError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::primary_key;

    fn nodes(weights: &[u32]) -> Vec<OwnerNode> {
        let node = |(at, weight): (usize, &u32)| OwnerNode { name: format!("10.0.0.{at}:8080"), weight: *weight };
        weights.iter().enumerate().map(node).collect()
    }

    fn shares(table: &OwnerTable, count: usize) -> Vec<f64> {
        let mut counts = vec![0_u32; count];
        (0..SLOT_COUNT).for_each(|slot| counts[table.owner(slot)] += 1);
        counts.iter().map(|count| f64::from(*count) / f64::from(SLOT_COUNT)).collect()
    }

    /// Other implementations are checked against `owner.tsv` too. If owners changed, the keys of every fleet would
    /// move.
    #[test]
    fn owners_are_those_of_the_published_vectors() {
        let text = include_str!("../../../fixtures/owner.tsv");
        let mut table = None;
        let mut count = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["nodes", listed] => {
                    let node = |text: &str| {
                        let (name, weight) = text.split_once('=').unwrap();
                        OwnerNode { name: name.to_owned(), weight: weight.parse().unwrap() }
                    };
                    let nodes: Vec<OwnerNode> = listed.split(' ').map(node).collect();
                    table = Some((OwnerTable::new(&nodes).unwrap(), nodes));
                }
                [url, slot, owner] => {
                    let (scheme, rest) = url.split_once("://").unwrap();
                    let (authority, path) = rest.split_at(rest.find('/').unwrap());
                    let found = slot_of(&primary_key(scheme, authority, path).unwrap());
                    assert_eq!(found.to_string(), slot, "{url}");
                    let (table, nodes) = table.as_ref().unwrap();
                    assert_eq!(nodes[table.owner(found)].name, owner, "{url}");
                    count += 1;
                }
                _ => panic!("not a vector: {line}"),
            }
        }
        assert!(count >= 60, "{count}");
    }

    #[test]
    fn shares_are_weights() {
        for weights in [&[3, 1][..], &[100, 50, 50, 1]] {
            let table = OwnerTable::new(&nodes(weights)).unwrap();
            let total: u32 = weights.iter().sum();
            for (share, weight) in shares(&table, weights.len()).iter().zip(weights) {
                let ideal = f64::from(*weight) / f64::from(total);
                assert!((share - ideal).abs() < 0.003, "{weights:?}: {share} instead of {ideal}");
            }
        }
    }

    #[test]
    fn fourth_node_takes_its_share_and_moves_nothing_else() {
        let three = OwnerTable::new(&nodes(&[1, 1, 1])).unwrap();
        let four = OwnerTable::new(&nodes(&[1, 1, 1, 1])).unwrap();
        let moved: Vec<u32> = (0..SLOT_COUNT).filter(|slot| three.owner(*slot) != four.owner(*slot)).collect();
        assert!(moved.iter().all(|slot| four.owner(*slot) == 3));
        let share = moved.len() as f64 / f64::from(SLOT_COUNT);
        assert!((share - 0.25).abs() < 0.003, "{share}");
        // A node that is left out must have the same effect as a node that does not exist.
        for slot in (0..SLOT_COUNT).step_by(97) {
            assert_eq!(four.owner_among(slot, |place| place != 3), Some(three.owner(slot)));
        }
        assert_eq!(four.owner_among(0, |_| false), None);
    }

    #[test]
    fn order_of_the_list_makes_no_difference() {
        let listed = nodes(&[1, 2, 1]);
        let turned: Vec<OwnerNode> = listed.iter().rev().cloned().collect();
        let one = OwnerTable::new(&listed).unwrap();
        let other = OwnerTable::new(&turned).unwrap();
        assert!((0..SLOT_COUNT).all(|slot| listed[one.owner(slot)] == turned[other.owner(slot)]));
    }

    #[test]
    fn nodes_that_make_no_table_are_refused() {
        let refused = |nodes: &[OwnerNode]| OwnerTable::new(nodes).err().unwrap().to_string();
        assert_eq!(refused(&[]), "no nodes given");
        assert_eq!(refused(&nodes(&[1, 0])), "weight of 10.0.0.1:8080 must be from 1 to 100: 0");
        assert_eq!(refused(&nodes(&[101])), "weight of 10.0.0.0:8080 must be from 1 to 100: 101");
        let twice = [nodes(&[1]), nodes(&[2])].concat();
        assert_eq!(refused(&twice), "two nodes have the name 10.0.0.0:8080");
        assert_eq!(refused(&[OwnerNode { name: String::new(), weight: 1 }]), "a node has no name");
    }
}
