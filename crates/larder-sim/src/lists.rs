//! Objects in doubly linked lists over one slab, found by key.
//!
//! Owns: [`Lists`], any number of lists, and the bytes in each. Invariant: an object is in exactly one list. Cost: 32
//! bytes per object and 11 to 21 for the hash table. All operations take constant time; a search reads one cache line
//! of the table and one of the slab.

mod table;

use std::hint::black_box;
use table::NumberTable;

/// Number of an object in the slab of [`Lists`].
pub(crate) type NodeId = u32;

const NONE: NodeId = NodeId::MAX;
/// Maximum number of keys for which memory is prefetched at the same time.
pub(crate) const APPROACHED_MAX: usize = 16;

/// An object with its key, its size and its place in a list. It takes one cache line at most.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Node {
    pub(crate) key: u64,
    pub(crate) size_bytes: u64,
    /// A counter that the user of the lists may use.
    pub(crate) count: u32,
    list: u32,
    /// Next object in the direction of the head.
    newer: NodeId,
    /// Next object in the direction of the tail.
    older: NodeId,
}

#[derive(Clone, Copy)]
struct Ends {
    head: NodeId,
    tail: NodeId,
    bytes: u64,
}

/// `COUNT` doubly linked lists of objects, which are found by key.
pub(crate) struct Lists<const COUNT: usize> {
    nodes: Vec<Node>,
    spare: Vec<NodeId>,
    table: NumberTable,
    ends: [Ends; COUNT],
}

impl<const COUNT: usize> Lists<COUNT> {
    pub(crate) fn new() -> Self {
        let ends = Ends { head: NONE, tail: NONE, bytes: 0 };
        Self { nodes: Vec::new(), spare: Vec::new(), table: NumberTable::new(), ends: [ends; COUNT] }
    }

    /// Adds an object that is in no list, at the head of `list`.
    pub(crate) fn insert(&mut self, list: usize, key: u64, size_bytes: u64) -> NodeId {
        let node = Node { key, size_bytes, count: 0, list: list as u32, newer: NONE, older: NONE };
        let id = match self.spare.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as NodeId
            }
        };
        self.table.insert(key, id);
        self.link(list, id);
        id
    }

    /// Removes an object from its list, and returns it.
    pub(crate) fn remove(&mut self, id: NodeId) -> Node {
        let node = self.nodes[id as usize];
        self.unlink(id);
        self.table.remove(node.key, id);
        self.spare.push(id);
        node
    }

    /// Moves an object to the head of `list`.
    pub(crate) fn move_to_head(&mut self, list: usize, id: NodeId) {
        if self.ends[list].head == id {
            return;
        }
        self.unlink(id);
        self.link(list, id);
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub(crate) fn find(&self, key: u64) -> Option<NodeId> {
        self.table.find(key, |id| self.nodes[id as usize].key == key)
    }

    /// Prefetches the memory that requests for `keys` will access. Otherwise, each request would wait for its own
    /// memory accesses.
    pub(crate) fn approach(&self, keys: impl Iterator<Item = u64>) {
        let mut ids = [NONE; APPROACHED_MAX];
        for (id, key) in ids.iter_mut().zip(keys) {
            *id = self.table.first(key).unwrap_or(NONE);
        }
        let mut around = [(NONE, NONE); APPROACHED_MAX];
        for (around, id) in around.iter_mut().zip(ids) {
            if let Some(node) = self.nodes.get(id as usize) {
                *around = (node.newer, node.older);
            }
        }
        let list = |id: NodeId| self.nodes.get(id as usize).map_or(0, |node| node.list);
        black_box(around.iter().fold(0, |all, (newer, older)| all ^ list(*newer) ^ list(*older)));
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// Returns in which list an object is.
    pub(crate) fn list_of(&self, id: NodeId) -> usize {
        self.nodes[id as usize].list as usize
    }

    pub(crate) fn tail(&self, list: usize) -> Option<NodeId> {
        some(self.ends[list].tail)
    }

    /// Returns the next object in the direction of the head; `None` if there is none.
    pub(crate) fn newer(&self, id: NodeId) -> Option<NodeId> {
        some(self.nodes[id as usize].newer)
    }

    pub(crate) fn bytes(&self, list: usize) -> u64 {
        self.ends[list].bytes
    }

    fn link(&mut self, list: usize, id: NodeId) {
        let ends = &mut self.ends[list];
        let before = ends.head;
        ends.head = id;
        if before == NONE {
            ends.tail = id;
        }
        let node = &mut self.nodes[id as usize];
        ends.bytes += node.size_bytes;
        (node.list, node.newer, node.older) = (list as u32, NONE, before);
        if before != NONE {
            self.nodes[before as usize].newer = id;
        }
    }

    fn unlink(&mut self, id: NodeId) {
        let Node { newer, older, list, size_bytes, .. } = self.nodes[id as usize];
        let ends = &mut self.ends[list as usize];
        ends.bytes -= size_bytes;
        match some(newer) {
            Some(newer) => self.nodes[newer as usize].older = older,
            None => ends.head = older,
        }
        match some(older) {
            Some(older) => self.nodes[older as usize].newer = newer,
            None => ends.tail = newer,
        }
    }
}

fn some(id: NodeId) -> Option<NodeId> {
    (id != NONE).then_some(id)
}

const _: () = assert!(size_of::<Node>() == 32);
