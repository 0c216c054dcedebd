//! Greedy dual size with frequency (Cherkasova, 1998): evicts the object with the fewest hits per byte. The remaining
//! objects age as the price of the evicted ones rises.

use super::eviction::Eviction;
use crate::lists::{Lists, NodeId};
use std::collections::BTreeSet;

/// Factor of hits per byte in a price, as in libCacheSim.
const SCALE: f64 = 1.0e6;

/// A cache with GDSF.
pub(super) struct Gdsf {
    objects: Lists<1>,
    /// All objects in the order of their price, and for the same price in the order in which it was set.
    order: BTreeSet<(Price, u64, NodeId)>,
    priced: Vec<(Price, u64)>,
    paid: f64,
    clock: u64,
    size_bytes: u64,
}

/// A price, which is never negative or NaN, so that prices can be ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price(f64);

impl Eq for Price {}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Price {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Gdsf {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { objects: Lists::new(), order: BTreeSet::new(), priced: Vec::new(), paid: 0.0, clock: 0, size_bytes }
    }

    fn price(&mut self, id: NodeId) {
        let node = self.objects.node(id);
        let price = Price(self.paid + f64::from(node.count) * SCALE / node.size_bytes.max(1) as f64);
        self.order.insert((price, self.clock, id));
        if self.priced.len() <= id as usize {
            self.priced.resize(id as usize + 1, (Price(0.0), 0));
        }
        self.priced[id as usize] = (price, self.clock);
    }
}

impl Eviction for Gdsf {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        self.clock += 1;
        if let Some(id) = self.objects.find(key) {
            self.objects.node_mut(id).count += 1;
            let (price, since) = self.priced[id as usize];
            self.order.remove(&(price, since, id));
            self.price(id);
            return true;
        }
        if size_bytes > self.size_bytes {
            return false;
        }
        while self.objects.bytes(0) + size_bytes > self.size_bytes {
            let Some((Price(price), _, cheapest)) = self.order.pop_first() else { return false };
            self.paid = price;
            self.objects.remove(cheapest);
        }
        let id = self.objects.insert(0, key, size_bytes);
        self.objects.node_mut(id).count = 1;
        self.price(id);
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.objects.approach(keys.iter().copied());
    }
}
