//! Files that are kept open and written at random places, as `buddy` does with its files of slots.
//!
//! A file's pages get their place on the disk when they are first written, in runs at random places, as FFS spreads
//! large files over cylinder groups. Dirty pages wait, and the oldest is written when there are too many. A page that
//! was written before and is not in the cache is read before it is partly written. Owns: places and dirty pages.
//! [`super::directory`] keeps the bytes. Source: the open files of a Unix kernel of 1999, as described in
//! docs/internals/systems.md.

use super::{
    disk::Disk,
    parameters::{FileParameters, SystemParameters},
    recent::Recent,
};
use larder_workload::Random;
use std::collections::{HashMap, HashSet, VecDeque};

pub(super) struct OpenFiles {
    page_bytes: u64,
    run_bytes: u64,
    run_places: u64,
    dirty_max: usize,
    /// Offset on the disk of each run, by file and number of the run.
    runs: HashMap<(u32, u64), u64>,
    /// Length of each file in bytes.
    ends: HashMap<u32, u64>,
    cached: Recent,
    dirty: HashSet<(u32, u64)>,
    oldest_first: VecDeque<(u32, u64)>,
    random: Random,
}

impl OpenFiles {
    pub(super) fn new(files: &FileParameters, system: &SystemParameters, capacity_bytes: f64) -> Self {
        Self {
            page_bytes: system.page_bytes as u64,
            run_bytes: files.run_bytes as u64,
            // At least one, because disks are scaled down for experiments on a share of the keys.
            run_places: (capacity_bytes / files.run_bytes).max(1.0) as u64,
            dirty_max: files.dirty_pages as usize,
            runs: HashMap::new(),
            ends: HashMap::new(),
            cached: Recent::new(system.page_cache_pages as u64),
            dirty: HashSet::new(),
            oldest_first: VecDeque::new(),
            random: Random::new(0x6675_6c6c),
        }
    }

    /// Executes a system call that writes. Returns its time in nanoseconds.
    pub(super) fn write(&mut self, disk: &mut Disk, file: u32, offset_bytes: u64, len_bytes: u64) -> u64 {
        let end = offset_bytes + len_bytes;
        let before = *self.ends.get(&file).unwrap_or(&0);
        let mut ns = 0;
        for page in offset_bytes / self.page_bytes..end.div_ceil(self.page_bytes) {
            let start = page * self.page_bytes;
            let is_whole = start >= offset_bytes && start + self.page_bytes <= end;
            let is_cached = self.cached.uses(number(file, page), 1);
            if !is_cached && !is_whole && start < before {
                let at = self.place(file, page);
                ns += disk.read(at, self.page_bytes);
            }
            if self.dirty.insert((file, page)) {
                self.oldest_first.push_back((file, page));
            }
            while self.dirty.len() > self.dirty_max {
                ns += self.write_oldest(disk);
            }
        }
        self.ends.insert(file, before.max(end));
        ns
    }

    /// Executes a system call that reads. Returns its time in nanoseconds.
    pub(super) fn read(&mut self, disk: &mut Disk, file: u32, offset_bytes: u64, len_bytes: u64) -> u64 {
        let mut ns = 0;
        for page in offset_bytes / self.page_bytes..(offset_bytes + len_bytes).div_ceil(self.page_bytes) {
            if !self.cached.uses(number(file, page), 1) {
                let at = self.place(file, page);
                ns += disk.read(at, self.page_bytes);
            }
        }
        ns
    }

    fn write_oldest(&mut self, disk: &mut Disk) -> u64 {
        let Some((file, page)) = self.oldest_first.pop_front() else { return 0 };
        self.dirty.remove(&(file, page));
        let at = self.place(file, page);
        disk.write_late(at, self.page_bytes)
    }

    fn place(&mut self, file: u32, page: u64) -> u64 {
        let offset_bytes = page * self.page_bytes;
        let run = offset_bytes / self.run_bytes;
        let random = &mut self.random;
        let places = self.run_places;
        let run_bytes = self.run_bytes;
        let start = self.runs.entry((file, run)).or_insert_with(|| random.below(places) * run_bytes);
        *start + offset_bytes % run_bytes
    }
}

fn number(file: u32, page: u64) -> u64 {
    u64::from(file) << 40 | page
}
