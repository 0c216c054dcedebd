//! The nodes whose clocks or rules differ from this node's.
//!
//! Owns: how many requests were refused for that reason, and that each node is logged once until it agrees again.

use larder_device::IgnorePoison;
use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::message::PeerDifference;

/// The differences in clock or configuration between this node and other nodes, with counts of the refused requests.
#[derive(Default)]
pub(crate) struct PeerDifferences {
    known: Mutex<HashSet<(Box<str>, PeerDifference)>>,
    clock_count: AtomicU64,
    rules_count: AtomicU64,
}

impl PeerDifferences {
    /// Counts a request that this node or `node` refused because of a difference. Logs the first one for each node and
    /// difference.
    pub(super) fn note(&self, node: &str, difference: PeerDifference) {
        self.counter(difference).fetch_add(1, Relaxed);
        let mut known = self.known.lock().ignore_poison();
        if known.len() < KNOWN_COUNT_MAX && known.insert((node.into(), difference)) {
            let why = match difference {
                PeerDifference::Clock => {
                    "its clock differs by more than 30 s, or someone replays its requests: synchronize the clocks"
                }
                PeerDifference::Rules => {
                    "its list of nodes or its [[key]] rules differ: configure the same ones on all nodes"
                }
            };
            tracing::warn!(node, why, "this node and another of the fleet do not share entries");
        }
    }

    /// Records that a node answered a request, which shows that no difference is left.
    pub(super) fn settle(&self, node: &str) {
        let mut known = self.known.lock().ignore_poison();
        if !known.is_empty() {
            known.retain(|(name, _)| **name != *node);
        }
    }

    /// Returns the number of requests that were refused because of one kind of difference.
    pub(crate) fn count(&self, difference: PeerDifference) -> u64 {
        self.counter(difference).load(Relaxed)
    }

    fn counter(&self, difference: PeerDifference) -> &AtomicU64 {
        match difference {
            PeerDifference::Clock => &self.clock_count,
            PeerDifference::Rules => &self.rules_count,
        }
    }
}

/// Maximum number of differences that are remembered as logged. Only nodes that know the secret can add to them.
const KNOWN_COUNT_MAX: usize = 1000;
