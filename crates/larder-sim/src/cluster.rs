//! Computes how evenly keys and requests spread over the nodes of a cluster, and which keys move when a node joins or
//! leaves.
//!
//! Owns: [`ClusterTest`] and its report. The owner of a key is the one of `larder_http::owner`, which the program uses.
//! Invariant: every key is hashed, none is sampled. Requests are not drawn: each key counts with its probability, so
//! the result has no noise. Cost: one hash per key, 16 bytes per slot and thread, and one table per node that joins or
//! leaves.

use crate::{Report, Table, parallel};
use larder_http::owner::{OwnerError, OwnerNode, OwnerTable, SLOT_COUNT, slot_of};
use std::ops::Range;

/// Settings for computing how keys spread over the nodes of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterTest {
    /// Number of nodes.
    pub node_count: usize,
    /// Number of keys.
    pub key_count: u64,
    /// Exponent of Zipf's law, by which requests are spread over keys.
    pub exponent: f64,
    /// Number of the most popular keys that are copied to every node. No request for them goes to the owner.
    pub kept_count: u64,
    /// Number of cases in which one node leaves, and in which one joins.
    pub move_count: usize,
    /// Number of threads to use.
    pub jobs: usize,
}

/// The number of keys and requests in each slot.
struct SlotLoads(Vec<SlotLoad>);

/// The number of keys and requests in one slot. Both are in one struct, so that counting a key accesses a single cache
/// line.
#[derive(Clone, Copy, Default)]
struct SlotLoad {
    /// Requests for keys that only the owner has. The unit is the number of requests for the most popular key.
    requests: f64,
    keys: u32,
}

/// The number of keys whose owner changed when one node joined or left.
struct Movement {
    /// Keys that moved to or from this node.
    own: u64,
    /// Keys that moved between two other nodes.
    other: u64,
}

impl ClusterTest {
    /// Computes how keys spread and which of them move. Calls `progress` with the number of keys hashed since the last
    /// call, and the number of all keys.
    ///
    /// # Errors
    /// There are too many or too few nodes.
    pub fn run(&self, progress: &dyn Fn(u64, u64)) -> Result<Report, OwnerError> {
        let nodes = nodes(self.node_count);
        let table = OwnerTable::new(&nodes)?;
        let loads = self.loads(progress);
        let mut report = Report::new(format!(
            "{} nodes, {} keys, requests by Zipf's law with exponent {}",
            self.node_count, self.key_count, self.exponent
        ));
        report.tables.push(self.spread(&table, &loads));
        report.tables.push(self.movements(&nodes, &table, &loads)?);
        report.remarks.push(format!(
            "Every key is hashed, and each counts with its probability; nothing is sampled. {SLOT_COUNT} slots."
        ));
        Ok(report)
    }

    /// Hashes all keys, and counts keys and requests by slot.
    fn loads(&self, progress: &dyn Fn(u64, u64)) -> SlotLoads {
        let jobs = self.jobs.max(1);
        let mut total = SlotLoads::new();
        let ranges: Vec<Range<u64>> = (1..=self.key_count)
            .step_by(RANGE_KEYS as usize)
            .map(|start| start..(start + RANGE_KEYS).min(self.key_count + 1))
            .collect();
        // One round per batch of ranges, because each result takes megabytes.
        for batch in ranges.chunks(jobs) {
            for loads in parallel::map(batch, jobs, |ranks| self.loads_of(ranks.clone())) {
                total.add(&loads);
            }
            progress(batch.iter().map(|ranks| ranks.end - ranks.start).sum(), self.key_count);
        }
        assert_eq!(total.key_count(), self.key_count, "every key has a slot");
        total
    }

    /// Hashes the keys of these ranks, and counts keys and requests by slot. The most popular key has rank 1.
    fn loads_of(&self, ranks: Range<u64>) -> SlotLoads {
        let mut loads = SlotLoads::new();
        let mut key = NumberedKey::new(ranks.start);
        let mut slots = [0; BATCH];
        let mut rank = ranks.start;
        while rank < ranks.end {
            // Ranks this close have nearly the same weight: its relative error is below 1e-8.
            let end = (rank + (rank / RANKS_PER_WEIGHT).max(1)).min(ranks.end);
            let weight = if rank <= self.kept_count { 0.0 } else { self.weight((rank + end - 1) as f64 / 2.0) };
            // A block begins and ends on one side of the kept keys only if blocks there have one rank.
            assert!(rank > self.kept_count || end - rank == 1, "blocks of kept keys have one rank");
            for start in (rank..end).step_by(BATCH) {
                // All hashes of a batch first: the processor then waits for several lines of memory at once.
                let slots = &mut slots[..(end - start).min(BATCH as u64) as usize];
                for slot in &mut *slots {
                    *slot = slot_of(key.bytes());
                    key.advance();
                }
                for slot in slots {
                    let load = &mut loads.0[*slot as usize];
                    load.keys += 1;
                    load.requests += weight;
                }
            }
            rank = end;
        }
        loads
    }

    /// Returns the number of requests for the key of this rank. The unit is the number for the most popular key.
    fn weight(&self, rank: f64) -> f64 {
        rank.powf(-self.exponent)
    }

    /// Returns the slot and the requests of each key that every node has.
    fn kept(&self) -> impl Iterator<Item = (u32, f64)> {
        (1..=self.kept_count.min(self.key_count))
            .map(|rank| (slot_of(NumberedKey::new(rank).bytes()), self.weight(rank as f64)))
    }

    /// Returns a table of how evenly keys and requests spread over nodes.
    fn spread(&self, table: &OwnerTable, loads: &SlotLoads) -> Table {
        let mut keys = vec![0.0; self.node_count];
        let mut requests = vec![0.0; self.node_count];
        for slot in 0..SLOT_COUNT {
            let owner = table.owner(slot);
            let load = loads.0[slot as usize];
            keys[owner] += f64::from(load.keys);
            requests[owner] += load.requests;
        }
        let kept_requests: f64 = self.kept().map(|(_, weight)| weight).sum();
        // Each node answers an equal part of the requests for kept keys, as a balancer distributes them.
        let evened: Vec<f64> =
            requests.iter().map(|requests| requests + kept_requests / self.node_count as f64).collect();
        self.kept().for_each(|(slot, weight)| requests[table.owner(slot)] += weight);
        let mut table = Table::new("", &["of a node, relative to the mean", "least", "most"]);
        table.push("keys", relative(&keys));
        table.push("requests, all at the owner", relative(&requests));
        table.push(format!("requests, the {} most popular keys at all nodes", self.kept_count), relative(&evened));
        table
    }

    /// Returns a table of which keys move when one node leaves or joins.
    fn movements(&self, nodes: &[OwnerNode], before: &OwnerTable, loads: &SlotLoads) -> Result<Table, OwnerError> {
        let count = self.move_count.min(nodes.len().saturating_sub(1));
        let leaving: Vec<usize> = (0..count).map(|number| number * nodes.len() / count).collect();
        let joining: Vec<usize> = (0..count).map(|number| nodes.len() + number).collect();
        let changes: Vec<usize> = leaving.into_iter().chain(joining).collect();
        let moved = parallel::map(&changes, self.jobs, |&changed| movement(nodes, changed, before, loads));
        let columns = ["change", "moved, % of all keys", "even share, %", "moved elsewhere, keys"];
        let mut table = Table::new("", &columns);
        for (changed, moved) in changes.into_iter().zip(moved) {
            let moved = moved?;
            let (verb, share) = match changed < nodes.len() {
                true => ("leaves", nodes.len()),
                false => ("joins", nodes.len() + 1),
            };
            let values =
                vec![moved.own as f64 * 100.0 / self.key_count as f64, 100.0 / share as f64, moved.other as f64];
            table.push(format!("{} {verb}", name_of(changed)), values);
        }
        Ok(table)
    }
}

/// Returns the number of keys that move when the node `changed` leaves. If `changed` is not among `nodes`, returns the
/// number of keys that move when it joins.
fn movement(
    nodes: &[OwnerNode],
    changed: usize,
    before: &OwnerTable,
    loads: &SlotLoads,
) -> Result<Movement, OwnerError> {
    let mut names: Vec<usize> = (0..nodes.len()).filter(|&node| node != changed).collect();
    names.extend((changed >= nodes.len()).then_some(changed));
    let list: Vec<OwnerNode> = names.iter().map(|&node| node_of(node)).collect();
    let after = OwnerTable::new(&list)?;
    let mut moved = Movement { own: 0, other: 0 };
    for slot in 0..SLOT_COUNT {
        let from = before.owner(slot);
        let to = names[after.owner(slot)];
        let keys = u64::from(loads.0[slot as usize].keys);
        if from == changed || to == changed {
            moved.own += keys;
        } else if from != to {
            moved.other += keys;
        }
    }
    Ok(moved)
}

/// Returns the least and the greatest of the values, each divided by the mean of all values.
fn relative(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    vec![least / mean, most / mean]
}

fn nodes(count: usize) -> Vec<OwnerNode> {
    (0..count).map(node_of).collect()
}

fn node_of(number: usize) -> OwnerNode {
    OwnerNode { name: name_of(number), weight: 1 }
}

fn name_of(number: usize) -> String {
    format!("node-{number}")
}

impl SlotLoads {
    fn new() -> Self {
        Self(vec![SlotLoad::default(); SLOT_COUNT as usize])
    }

    fn add(&mut self, other: &Self) {
        for (sum, load) in self.0.iter_mut().zip(&other.0) {
            sum.keys += load.keys;
            sum.requests += load.requests;
        }
    }

    fn key_count(&self) -> u64 {
        self.0.iter().map(|load| u64::from(load.keys)).sum()
    }
}

/// A URL that ends with a number.
///
/// The number is incremented in place, because formatting a billion numbers would take longer than hashing them.
struct NumberedKey([u8; URL.len() + DIGITS]);

impl NumberedKey {
    fn new(number: u64) -> Self {
        let mut bytes = [0; URL.len() + DIGITS];
        bytes.copy_from_slice(format!("{URL}{number:0DIGITS$}").as_bytes());
        Self(bytes)
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn advance(&mut self) {
        for digit in self.0[URL.len()..].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }
}

const URL: &str = "http://www.example.com/";
/// Number of digits of a key's number.
const DIGITS: usize = 12;
/// Number of keys that a thread hashes before it adds its results to the total.
const RANGE_KEYS: u64 = 10_000_000;
/// Number of keys that are hashed before their slots are accessed.
const BATCH: usize = 256;
/// From rank `r`, about `r / RANKS_PER_WEIGHT` consecutive ranks get the same weight.
const RANKS_PER_WEIGHT: u64 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    fn test(node_count: usize, key_count: u64) -> ClusterTest {
        ClusterTest { node_count, key_count, exponent: 0.9, kept_count: 100, move_count: 2, jobs: 2 }
    }

    /// Returns the values of the row with this name in a report.
    fn row<'a>(report: &'a Report, name: &str) -> &'a [f64] {
        let rows = report.tables.iter().flat_map(|table| &table.rows);
        let row = rows.into_iter().find(|(row, _)| row.starts_with(name));
        &row.unwrap_or_else(|| panic!("there is a row {name}")).1
    }

    /// Protects the loads of nodes, which blocks of ranks with the same weight could distort.
    #[test]
    fn blocks_of_ranks_have_the_requests_of_their_keys() {
        let test = ClusterTest { kept_count: 0, ..test(3, 300_000) };
        let loads = test.loads(&|_, _| {});
        let mut expected = vec![0.0; SLOT_COUNT as usize];
        for rank in 1..=test.key_count {
            let key = format!("{URL}{rank:0DIGITS$}");
            expected[slot_of(key.as_bytes()) as usize] += (rank as f64).powf(-0.9);
        }
        for (slot, (found, expected)) in loads.0.iter().zip(expected).enumerate() {
            let found = found.requests;
            assert!((found - expected).abs() <= 1e-4 * expected, "{slot}: {found} {expected}");
        }
        let found = loads.0.iter().map(|load| load.requests).sum::<f64>();
        let expected = (1..=300_000).map(|r| f64::from(r).powf(-0.9)).sum::<f64>();
        assert!((found / expected - 1.0).abs() < 1e-8, "{found} {expected}");
    }

    #[test]
    fn only_the_keys_of_the_node_that_joins_or_leaves_move() {
        let report = test(16, 200_000).run(&|_, _| {}).unwrap();
        for (name, share) in
            [("node-0 leaves", 100.0 / 16.0), ("node-8 leaves", 100.0 / 16.0), ("node-17 joins", 100.0 / 17.0)]
        {
            let moved = row(&report, name);
            assert!((moved[0] / share - 1.0).abs() < 0.05, "{name}: {moved:?}");
            assert_eq!(moved[2], 0.0, "{name}");
        }
    }

    #[test]
    fn popular_keys_at_all_nodes_even_out_the_load() {
        let report = ClusterTest { move_count: 0, ..test(20, 500_000) }.run(&|_, _| {}).unwrap();
        let [keys, owner, kept] = ["keys", "requests, all", "requests, the 100"].map(|name| row(&report, name));
        assert!(keys[1] < 1.1 && owner[1] > 1.5 && kept[1] < owner[1] - 0.3, "{keys:?} {owner:?} {kept:?}");
        assert!(kept[0] <= 1.0 && kept[1] >= 1.0);
        assert!(test(0, 10).run(&|_, _| {}).is_err());
    }
}
