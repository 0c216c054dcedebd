//! The tree of a file system: directories, inodes, and the I/O of creating, finding and removing files.
//!
//! Cylinder groups as in FFS: inodes at a group's start, directory blocks after them, then data. A file's inode and
//! data are in its directory's group. Owns: the place of every file and directory, the blocks in memory, and the
//! pending writes. [`super::directory`] keeps the files' bytes. Cost: all operations take the same processor time,
//! whatever the directories' size, because the linear search of a directory is computed, not executed. Source: McKusick
//! et al. (FFS, 1984).

use super::{
    disk::{Disk, PieceReads},
    parameters::FileParameters,
    recent::Recent,
};
use larder_workload::Random;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap},
};

/// Number of a directory in the tree.
pub(super) type DirectoryId = u32;

/// Position of a file on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode {
    pub(super) directory: DirectoryId,
    group: usize,
    index: u64,
    pub(super) data: u64,
}

pub(super) struct Tree {
    parameters: FileParameters,
    groups: Vec<Group>,
    directories: HashMap<Box<str>, DirectoryId>,
    by_id: Vec<Directory>,
    /// The group that is being filled, if there is only one directory. Its files then fill one group after the other.
    filling: usize,
    filled_bytes: u64,
    made_in_a_row: usize,
    reads: PieceReads,
    random: Random,
    inodes: Recent,
    blocks: Recent,
    delayed: BTreeSet<u64>,
    delayed_since_ns: u64,
}

struct Group {
    free_inodes: BinaryHeap<Reverse<u64>>,
    inode_count: u64,
    /// Offset of the next free byte, from the start of the group's data.
    data_next: u64,
    directory_next: u64,
}

struct Directory {
    group: usize,
    inode: u64,
    block: u64,
    names: u64,
}

impl Tree {
    pub(super) fn new(parameters: &FileParameters, capacity_bytes: f64) -> Self {
        let count = (capacity_bytes / parameters.group_bytes) as usize;
        let group = || Group { free_inodes: BinaryHeap::new(), inode_count: 0, data_next: 0, directory_next: 0 };
        Self {
            groups: (0..count.max(1)).map(|_| group()).collect(),
            directories: HashMap::new(),
            by_id: Vec::new(),
            filling: 0,
            filled_bytes: 0,
            made_in_a_row: 0,
            reads: PieceReads::default(),
            random: Random::new(0x7265_6531),
            inodes: Recent::new(parameters.inode_cache_blocks as u64),
            blocks: Recent::new(parameters.directory_cache_blocks as u64),
            delayed: BTreeSet::new(),
            delayed_since_ns: 0,
            parameters: parameters.clone(),
        }
    }

    /// Sets how a program divides files into reads.
    pub(super) fn set_reads(&mut self, reads: PieceReads) {
        self.reads = reads;
    }

    /// Creates a file of `len_bytes` at `path`, and writes its data. Returns its inode, and the time that this takes in
    /// nanoseconds.
    pub(super) fn create(&mut self, disk: &mut Disk, path: &str, len_bytes: u64) -> (Inode, u64) {
        let (directory, mut ns) = self.directory_for(disk, path);
        ns += self.search(disk, directory, false);
        self.by_id[directory as usize].names += 1;
        let inode = self.place(directory, len_bytes);
        let places =
            [self.inode_block(inode.group, inode.index), self.name_block(directory), self.own_block(directory)];
        ns += self.settle(disk, &places, self.parameters.create_writes);
        self.inodes.uses(places[0], 1);
        let block = self.parameters.block_bytes as u64;
        let mut at = 0;
        while at < len_bytes {
            ns += disk.write_late(inode.data + at, (len_bytes - at).min(block));
            at += block;
        }
        if len_bytes as f64 > self.parameters.indirect_from_bytes {
            ns += disk.write_late(inode.data + at, block);
        }
        ns += self.settle(disk, &places[..1], self.parameters.create_writes_after);
        self.delay(&[places[0], self.group_start(inode.group)]);
        (inode, ns)
    }

    /// Removes a file, and its directory if that is then empty. Returns the time that this takes, in nanoseconds.
    pub(super) fn remove(&mut self, disk: &mut Disk, path: &str, inode: Inode) -> u64 {
        let mut ns = self.search(disk, inode.directory, true) + self.read_inode(disk, inode);
        let block = self.inode_block(inode.group, inode.index);
        let places = [self.name_block(inode.directory), block, self.own_block(inode.directory)];
        ns += self.settle(disk, &places, self.parameters.remove_writes);
        self.delay(&[block, self.group_start(inode.group)]);
        self.groups[inode.group].free_inodes.push(Reverse(inode.index));
        let directory = &mut self.by_id[inode.directory as usize];
        directory.names -= 1;
        if directory.names == 0
            && let Some((folder, _)) = path.rsplit_once('/')
        {
            let group = directory.group;
            self.groups[group].free_inodes.push(Reverse(directory.inode));
            self.directories.remove(folder);
            self.blocks.forget(u64::from(inode.directory));
            ns += self.settle(disk, &[block, block, block, block], self.parameters.directory_writes);
        }
        ns
    }

    /// Finds a file, and reads `len_bytes` of it from `offset_bytes` on. Returns the time that this takes, in
    /// nanoseconds.
    pub(super) fn read(&mut self, disk: &mut Disk, inode: Inode, offset_bytes: u64, len_bytes: u64) -> u64 {
        let others = disk.head();
        let mut ns = self.search(disk, inode.directory, true) + self.read_inode(disk, inode);
        let reads = self.reads.of_at_least(self.parameters.block_bytes as u64);
        ns += reads.perform(disk, (inode.data + offset_bytes, len_bytes), others, Disk::read);
        if self.parameters.access_times > 0.0 {
            self.delay(&[self.inode_block(inode.group, inode.index)]);
        }
        ns
    }

    /// Writes the blocks that were delayed, if their delay is over. Returns the time that this takes, in nanoseconds.
    pub(super) fn write_delayed(&mut self, disk: &mut Disk, now_ns: u64) -> u64 {
        if now_ns < self.delayed_since_ns + (self.parameters.delay_s * 1e9) as u64 {
            return 0;
        }
        self.delayed_since_ns = now_ns;
        let block_bytes = self.parameters.block_bytes as u64;
        std::mem::take(&mut self.delayed).into_iter().map(|at| disk.write_late(at, block_bytes)).sum()
    }

    /// Returns the directory of the file at `path`, which is created if it does not exist. Also returns the time that
    /// this takes, in nanoseconds.
    fn directory_for(&mut self, disk: &mut Disk, path: &str) -> (DirectoryId, u64) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if let Some(id) = self.directories.get(folder) {
            return (*id, 0);
        }
        // Nested directories are created in sequence when a store is created, others at any time.
        let is_in_a_row = folder.contains('/');
        let group = match (folder, is_in_a_row) {
            ("", _) => 0,
            (_, true) => self.made_in_a_row * self.parameters.group_step as usize % self.groups.len(),
            (_, false) => self.random.below(self.groups.len() as u64) as usize,
        };
        self.made_in_a_row += usize::from(is_in_a_row);
        let inode = self.take_inode(group);
        let id = self.by_id.len() as DirectoryId;
        let block = self.directory_block(group);
        self.by_id.push(Directory { group, inode, block, names: 0 });
        self.directories.insert(folder.into(), id);
        let places = [self.inode_block(group, inode), block, self.group_start(group), self.inode_block(group, inode)];
        let count = if folder.is_empty() { 0.0 } else { self.parameters.directory_writes };
        (id, self.settle(disk, &places, count))
    }

    /// Searches a directory for a name. If `is_there` is set, the name is found after half of the names on average.
    /// Returns the time that this takes, in nanoseconds.
    fn search(&mut self, disk: &mut Disk, directory: DirectoryId, is_there: bool) -> u64 {
        let block_bytes = self.parameters.block_bytes as u64;
        let own = self.own_block(directory);
        let mut ns = if self.inodes.uses(own, 1) { 0 } else { disk.read(own, block_bytes) };
        let names = self.by_id[directory as usize].names as f64;
        let passed = if is_there { names / 2.0 } else { names };
        ns += (passed * self.parameters.name_us * 1e3) as u64;
        let block_count = ((names * self.parameters.name_bytes) as u64).div_ceil(block_bytes).max(1);
        let is_only_one = self.by_id.len() == 1;
        let bound = if is_only_one { self.parameters.one_directory_cache_blocks } else { f64::INFINITY };
        let is_cached =
            if is_only_one { block_count as f64 <= bound } else { self.blocks.uses(u64::from(directory), block_count) };
        if !is_cached {
            ns += disk.read(self.by_id[directory as usize].block, block_count * block_bytes);
        }
        ns
    }

    fn read_inode(&mut self, disk: &mut Disk, inode: Inode) -> u64 {
        let block = self.inode_block(inode.group, inode.index);
        if self.inodes.uses(block, 1) { 0 } else { disk.read(block, self.parameters.block_bytes as u64) }
    }

    /// Writes the first `count` of the blocks at `places` now, and delays the others. Returns the time that this takes,
    /// in nanoseconds.
    fn settle(&mut self, disk: &mut Disk, places: &[u64], count: f64) -> u64 {
        let count = (count as usize).min(places.len());
        self.delay(&places[count..]);
        let block_bytes = self.parameters.block_bytes as u64;
        places[..count].iter().map(|at| disk.write(*at, block_bytes)).sum()
    }

    fn delay(&mut self, places: &[u64]) {
        self.delayed.extend(places);
    }

    fn place(&mut self, directory: DirectoryId, len_bytes: u64) -> Inode {
        let taken = len_bytes.next_multiple_of(self.parameters.fragment_bytes as u64);
        let room = self.data_room();
        let mut group = self.by_id[directory as usize].group;
        if self.by_id.len() == 1 {
            self.filled_bytes += taken;
            if self.filled_bytes > room {
                (self.filling, self.filled_bytes) = ((self.filling + 1) % self.groups.len(), taken);
            }
            group = self.filling;
        }
        let index = self.take_inode(group);
        let data_start = self.group_start(group)
            + (self.parameters.group_inode_bytes + self.parameters.group_directory_bytes) as u64;
        let next = &mut self.groups[group].data_next;
        if *next + taken > room {
            *next = 0;
        }
        let data = data_start + *next;
        *next += taken;
        Inode { directory, group, index, data }
    }

    fn take_inode(&mut self, group: usize) -> u64 {
        let group = &mut self.groups[group];
        group.free_inodes.pop().map_or_else(
            || {
                group.inode_count += 1;
                group.inode_count - 1
            },
            |Reverse(index)| index,
        )
    }

    fn data_room(&self) -> u64 {
        let FileParameters { group_bytes, group_inode_bytes, group_directory_bytes, .. } = self.parameters;
        (group_bytes - group_inode_bytes - group_directory_bytes) as u64
    }

    fn group_start(&self, group: usize) -> u64 {
        (group as f64 * self.parameters.group_bytes) as u64 / 512 * 512
    }

    /// Returns the offset of the block that has an inode. If a group has more inodes than fit, their area is used again
    /// from its start.
    fn inode_block(&self, group: usize, index: u64) -> u64 {
        let block_bytes = self.parameters.block_bytes as u64;
        let offset = index * self.parameters.inode_bytes as u64 % self.parameters.group_inode_bytes as u64;
        self.group_start(group) + block_bytes + offset / block_bytes * block_bytes
    }

    fn own_block(&self, directory: DirectoryId) -> u64 {
        let Directory { group, inode, .. } = self.by_id[directory as usize];
        self.inode_block(group, inode)
    }

    /// Returns the offset of the block to which a new name is written.
    fn name_block(&self, directory: DirectoryId) -> u64 {
        let Directory { block, names, .. } = self.by_id[directory as usize];
        let block_bytes = self.parameters.block_bytes as u64;
        block + (names as f64 * self.parameters.name_bytes) as u64 / block_bytes * block_bytes
    }

    fn directory_block(&mut self, group: usize) -> u64 {
        let start = self.group_start(group);
        let block_bytes = self.parameters.block_bytes as u64;
        let inodes = self.parameters.group_inode_bytes as u64;
        let room = self.parameters.group_directory_bytes as u64;
        let next = &mut self.groups[group].directory_next;
        let block = start + inodes + *next % room;
        *next += block_bytes;
        block
    }
}
