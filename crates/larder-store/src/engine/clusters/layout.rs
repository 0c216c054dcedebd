//! The clusters of `ucfs`: the free ones, those being filled, and the order of use of the full ones.
//!
//! Owns: the cluster table (24 bytes per cluster), the open clusters, those in flight, and the LRU list. I/O is done
//! elsewhere, and keys are unknown: the caller keeps the entries, and each cluster's chain begins at
//! [`ClusterTable::first`]. Invariants: a full cluster is written whole; before that, only the filled part is. A
//! cluster is not reused before all of it is evicted. An entry longer than half a cluster has consecutive clusters of
//! its own. Cost: the memory of one cluster per open one. Source: UCFS (IEEE TC 2002), as described in its abstract:
//! there is no cleaner because there is no garbage.

mod check;
mod partial;

use crate::{
    device::AlignedBuffer,
    engine::kit::{
        numbers::RunNumbers,
        pack::{OpenPack, PackRecord, PackShape, SealedPack},
    },
    format::VolumeId,
    units::SECTOR_BYTES,
};
use partial::PartialWrite;
use std::time::Duration;

/// The place of the clusters on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterArea {
    pub(crate) start_bytes: u64,
    pub(crate) cluster_bytes: u64,
    pub(crate) count: u32,
}

/// The state of all clusters. `F` identifies the first entry in a cluster's list of entries.
pub(crate) struct ClusterTable<F> {
    area: ClusterArea,
    volume: VolumeId,
    table: Vec<ClusterLine<F>>,
    open: Vec<Option<(u32, OpenPack)>>,
    /// For each group of sites, when an entry began to wait in the group's open cluster; `None` if no entry waits.
    waiting_since: Vec<Option<Duration>>,
    in_flight: Vec<(u32, SealedPack)>,
    partial_writes: Vec<PartialWrite>,
    /// Free clusters. The list may still contain clusters that are in use again.
    free: Vec<u32>,
    free_count: u32,
    /// First of the adjacent clusters that were freed or chosen last, where a search for free clusters begins.
    made_free: u32,
    /// The most recently used full cluster. `oldest` is the least recently used one.
    newest: u32,
    oldest: u32,
    /// The numbers that this run may use. A cluster's sequence is the low half of such a number.
    pub(crate) numbers: RunNumbers,
}

/// The line of the cluster table for one cluster.
#[derive(Clone, Copy)]
struct ClusterLine<F> {
    sequence: u32,
    first: Option<F>,
    /// The full clusters that were used next after this one (`newer`) and before it (`older`).
    newer: u32,
    older: u32,
    live_sectors: u16,
    entry_count: u16,
    /// Number of clusters of the entry that begins here. It is 1 if the cluster can have several entries.
    span: u8,
    state: ClusterState,
    /// For an open cluster, the number of sectors that are on the device.
    written_sectors: u16,
}

const _: () = assert!(size_of::<ClusterLine<std::num::NonZeroU32>>() <= 24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClusterState {
    Free,
    Open,
    /// Closed to further entries, and being written.
    Sealed,
    Full,
    /// Contains only the continuation of an entry that begins in an earlier cluster.
    Continued,
}

/// The place at which an entry was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterPlace {
    pub(crate) cluster: u32,
    pub(crate) offset_sectors: u16,
    pub(crate) sectors: u16,
}

/// The error if no run of this many adjacent clusters is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRun(pub(crate) u32);

const NONE: u32 = u32::MAX;
/// Maximum number of clusters around which a search looks for adjacent clusters before it gives up.
const PLACES_TRIED: usize = 64;

impl ClusterArea {
    /// Returns the bytes that are reserved for the directory at the start of a cluster.
    pub(crate) fn directory_bytes(&self) -> u64 {
        (self.cluster_bytes / 32).next_multiple_of(SECTOR_BYTES)
    }

    pub(crate) fn offset_bytes(&self, cluster: u32) -> u64 {
        self.start_bytes + u64::from(cluster) * self.cluster_bytes
    }

    /// Returns how many clusters an entry of `len_bytes` takes for itself; `None` if it shares a cluster.
    fn span(&self, len_bytes: u64) -> Option<u32> {
        let whole = (self.directory_bytes() + len_bytes).div_ceil(self.cluster_bytes);
        (len_bytes > self.cluster_bytes / 2).then_some(whole as u32)
    }

    fn shape(&self) -> PackShape {
        PackShape { directory_bytes: self.directory_bytes(), packing_bytes: SECTOR_BYTES, whole: true }
    }
}

impl<F: Copy> ClusterTable<F> {
    /// Creates a table with all clusters free. Up to `groups` clusters can be open at the same time.
    pub(crate) fn new(area: ClusterArea, volume: VolumeId, groups: usize, numbers: RunNumbers) -> Self {
        let free = ClusterLine {
            sequence: 0,
            first: None,
            newer: NONE,
            older: NONE,
            live_sectors: 0,
            entry_count: 0,
            span: 1,
            state: ClusterState::Free,
            written_sectors: 0,
        };
        Self {
            area,
            volume,
            table: vec![free; area.count as usize],
            open: (0..groups).map(|_| None).collect(),
            waiting_since: vec![None; groups],
            in_flight: Vec::new(),
            partial_writes: Vec::new(),
            free: (0..area.count).rev().collect(),
            free_count: area.count,
            made_free: 0,
            newest: NONE,
            oldest: NONE,
            numbers,
        }
    }

    /// Adds a full cluster of an earlier run, as the most recently used one. Returns `false` if it is in use or not on
    /// the volume.
    pub(crate) fn resume(&mut self, cluster: u32, sequence: u32, span: u8) -> bool {
        let range = cluster as usize..cluster as usize + usize::from(span);
        let fits = span > 0
            && self.table.get(range.clone()).is_some_and(|run| run.iter().all(|one| one.state == ClusterState::Free));
        if fits {
            self.take(cluster, u32::from(span), ClusterState::Full, sequence);
            self.link_newest(cluster);
            assert_eq!(self.newest, cluster, "what is taken up last was used last");
        }
        fits
    }

    /// Makes space for an entry of `len_bytes`: in the open cluster of `group` or, for a long entry, in clusters of its
    /// own. If the open cluster must be completed for this, adds that cluster to `sealed`, to be written.
    pub(crate) fn prepare(&mut self, group: usize, len_bytes: u64, sealed: &mut Vec<SealedPack>) -> Result<(), NoRun> {
        if let Some(span) = self.area.span(len_bytes) {
            return match self.free_run(span) {
                Some(start) => {
                    // Before the entry is appended, other room may be freed. It must not hide this run, because only a
                    // limited number of places is tried.
                    self.made_free = start;
                    Ok(())
                }
                None => Err(NoRun(span)),
            };
        }
        if self.open[group].as_ref().is_some_and(|(_, pack)| !pack.takes(len_bytes)) {
            sealed.extend(self.seal(group));
        }
        if self.open[group].is_none() {
            let cluster = self.free_run(1).ok_or(NoRun(1))?;
            let sequence = self.new_sequence();
            self.take(cluster, 1, ClusterState::Open, sequence);
            self.open[group] = Some((cluster, self.open_pack(cluster, 1)));
        }
        let takes = self.open[group].as_ref().is_some_and(|(_, pack)| pack.takes(len_bytes));
        assert!(takes, "an empty cluster takes every entry that shares one");
        Ok(())
    }

    /// Appends an entry for which [`ClusterTable::prepare`] has made space. Calls `write` with the entry's bytes in the
    /// buffer and the cluster's sequence.
    pub(crate) fn append(
        &mut self,
        group: usize,
        parcel: PackRecord,
        sealed: &mut Vec<SealedPack>,
        write: impl FnOnce(&mut [u8], u32),
    ) -> ClusterPlace {
        let sectors = parcel.len_bytes.div_ceil(SECTOR_BYTES) as u16;
        let (cluster, at) = if let Some(span) = self.area.span(parcel.len_bytes) {
            let cluster = self.free_run(span).expect("room was made for it");
            let sequence = self.new_sequence();
            self.take(cluster, span, ClusterState::Sealed, sequence);
            let mut pack = self.open_pack(cluster, span);
            let at = pack.append(parcel, write);
            let pack = pack.seal(self.volume, 0);
            self.in_flight.push((cluster, pack.clone()));
            sealed.push(pack);
            (cluster, at)
        } else {
            let (cluster, pack) = self.open[group].as_mut().expect("room was made for it");
            (*cluster, pack.append(parcel, write))
        };
        let line = &mut self.table[cluster as usize];
        let end_bytes = at + u64::from(sectors) * SECTOR_BYTES;
        assert!(end_bytes <= u64::from(line.span) * self.area.cluster_bytes, "an entry ends within its clusters");
        line.live_sectors += sectors;
        line.entry_count += 1;
        ClusterPlace { cluster, offset_sectors: (at / SECTOR_BYTES) as u16, sectors }
    }

    /// Completes the open cluster of a group, and returns it to be written. Returns `None` if no cluster is open, or if
    /// a write of its filled part is in flight; [`Self::partially_written`] then returns the cluster.
    pub(crate) fn seal(&mut self, group: usize) -> Option<SealedPack> {
        let (cluster, pack) = self.open[group].take()?;
        self.waiting_since[group] = None;
        let pack = pack.seal(self.volume, 0);
        assert_eq!(self.table[cluster as usize].state, ClusterState::Open, "an open cluster is sealed");
        self.table[cluster as usize].state = ClusterState::Sealed;
        self.in_flight.push((cluster, pack.clone()));
        let is_writing = self.is_partly_writing(pack.sequence);
        (!is_writing).then_some(pack)
    }

    /// Notes that the write of a cluster has ended, whether or not it succeeded. Returns the cluster.
    pub(crate) fn written(&mut self, sequence: u32) -> Option<u32> {
        let at = self.in_flight.iter().position(|(_, pack)| pack.sequence == sequence)?;
        let (cluster, _) = self.in_flight.swap_remove(at);
        assert_eq!(self.table[cluster as usize].state, ClusterState::Sealed, "what is written was sealed");
        self.table[cluster as usize].state = ClusterState::Full;
        self.table[cluster as usize].written_sectors = 0;
        self.link_newest(cluster);
        if self.table[cluster as usize].entry_count == 0 {
            self.release(cluster);
        }
        Some(cluster)
    }

    /// Returns full clusters near the least recently used one, whose eviction frees `span` adjacent clusters. Returns
    /// `None` if nothing can be evicted now.
    pub(crate) fn victims(&mut self, span: u32) -> Option<Vec<u32>> {
        assert!((1..=self.area.count).contains(&span), "a row of clusters on the volume: {span}");
        let windows = self.lru().take(PLACES_TRIED).flat_map(|cluster| [cluster, (cluster + 1).saturating_sub(span)]);
        let mut found = windows.filter_map(|start| Some((start, self.evictable(start, span)?)));
        let (start, victims) = found.next()?;
        drop(found);
        self.made_free = start;
        Some(victims)
    }

    /// Frees a full cluster, and the clusters that continue its entry. Its entries must have been removed before.
    pub(crate) fn release(&mut self, cluster: u32) {
        let line = self.table[cluster as usize];
        assert_eq!(line.state, ClusterState::Full, "only full clusters are freed");
        self.unlink(cluster);
        for own in cluster..cluster + u32::from(line.span) {
            self.table[own as usize].state = ClusterState::Free;
            self.free.push(own);
            self.free_count += 1;
        }
        if self.free.len() > 2 * self.table.len() {
            let is_free = |cluster: &u32| self.table[*cluster as usize].state == ClusterState::Free;
            self.free = (0..self.area.count).rev().filter(is_free).collect();
        }
        let line = &mut self.table[cluster as usize];
        (line.first, line.live_sectors, line.entry_count, line.span) = (None, 0, 0, 1);
    }

    /// Notes that an entry of a cluster was removed. Frees the cluster if it is full and has no other entry.
    pub(crate) fn forget(&mut self, cluster: u32, sectors: u16) {
        let line = &mut self.table[cluster as usize];
        assert!(line.entry_count > 0 && line.live_sectors >= sectors, "what goes was counted");
        line.live_sectors -= sectors;
        line.entry_count -= 1;
        if line.entry_count == 0 && line.state == ClusterState::Full {
            self.release(cluster);
        }
    }

    /// Makes a full cluster the most recently used one.
    pub(crate) fn touch(&mut self, cluster: u32) {
        if self.table[cluster as usize].state == ClusterState::Full && self.newest != cluster {
            self.unlink(cluster);
            self.link_newest(cluster);
            debug_assert_eq!(self.newest, cluster, "what is touched is the newest");
        }
    }

    /// Returns the first entry in a cluster's list of entries.
    pub(crate) fn first(&self, cluster: u32) -> Option<F> {
        self.table[cluster as usize].first
    }

    pub(crate) fn set_first(&mut self, cluster: u32, first: Option<F>) {
        let line = &mut self.table[cluster as usize];
        assert!(first.is_none() || line.state != ClusterState::Free, "no entry is in a free cluster");
        line.first = first;
    }

    /// Updates the counts of a cluster for an entry of an earlier run.
    pub(crate) fn count_entry(&mut self, cluster: u32, sectors: u16) {
        let line = &mut self.table[cluster as usize];
        assert_eq!(line.state, ClusterState::Full, "what an earlier run left is complete");
        line.live_sectors = line.live_sectors.saturating_add(sectors);
        line.entry_count = line.entry_count.saturating_add(1);
    }

    /// Returns whether a cluster is complete and on the device.
    pub(crate) fn is_full(&self, cluster: u32) -> bool {
        self.table[cluster as usize].state == ClusterState::Full
    }

    /// Returns whether the device has the record that begins at this sector of a cluster.
    pub(crate) fn is_with_device(&self, cluster: u32, offset_sectors: u16) -> bool {
        let line = self.table[cluster as usize];
        line.state == ClusterState::Full || offset_sectors < line.written_sectors
    }

    /// Returns the full cluster that was used next after this one; `None` if it is the most recently used one.
    pub(crate) fn next_used(&self, cluster: u32) -> Option<u32> {
        Some(self.table[cluster as usize].newer).filter(|&newer| newer != NONE)
    }

    /// Sorts the order of use by the ages of the sequences, counted back from `next`, the next cluster's sequence.
    pub(crate) fn order_by_age(&mut self, next: u32) {
        let mut full: Vec<_> = self.lru().collect();
        full.sort_by_key(|&cluster| std::cmp::Reverse(next.wrapping_sub(self.sequence(cluster))));
        (self.oldest, self.newest) = (NONE, NONE);
        let count = full.len();
        full.into_iter().for_each(|cluster| self.link_newest(cluster));
        assert_eq!(self.lru().count(), count, "the order of use is that of all that are full");
    }

    /// Returns the number of entries in a cluster.
    pub(crate) fn entry_count(&self, cluster: u32) -> usize {
        usize::from(self.table[cluster as usize].entry_count)
    }

    /// Returns whether any cluster is open.
    pub(crate) fn is_any_open(&self) -> bool {
        self.open.iter().any(Option::is_some)
    }

    /// Returns the sequence of a cluster's present use.
    pub(crate) fn sequence(&self, cluster: u32) -> u32 {
        self.table[cluster as usize].sequence
    }

    /// Returns the length in bytes of a cluster, together with the clusters that continue its entry.
    pub(crate) fn len_bytes(&self, cluster: u32) -> u64 {
        u64::from(self.table[cluster as usize].span) * self.area.cluster_bytes
    }

    /// Returns the bytes of the record at `place`, if the device does not have them yet.
    pub(crate) fn dirty_copy(&self, place: ClusterPlace) -> Option<Vec<u8>> {
        let from = usize::from(place.offset_sectors) * SECTOR_BYTES as usize;
        let range = from..from + usize::from(place.sectors) * SECTOR_BYTES as usize;
        let open = self.open.iter().flatten().map(|(cluster, pack)| (*cluster, pack.bytes()));
        let in_flight = self.in_flight.iter().map(|(cluster, pack)| (*cluster, pack.buffer.as_slice()));
        let (_, bytes) = open.chain(in_flight).find(|(cluster, _)| *cluster == place.cluster)?;
        bytes.get(range).map(<[u8]>::to_vec)
    }

    pub(crate) fn dirty_bytes(&self) -> u64 {
        let open = self.open.iter().flatten().map(|(_, pack)| pack.len_bytes());
        open.chain(self.in_flight.iter().map(|(_, pack)| pack.len_bytes())).sum()
    }

    pub(crate) fn is_writing(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the full clusters, from the least to the most recently used.
    pub(crate) fn lru(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(self.oldest).filter(|&oldest| oldest != NONE), |&cluster| {
            Some(self.table[cluster as usize].newer).filter(|&newer| newer != NONE)
        })
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.table.len() * size_of::<ClusterLine<F>>() + self.free.capacity() * size_of::<u32>()) as u64
    }

    fn open_pack(&mut self, cluster: u32, span: u32) -> OpenPack {
        let len_bytes = u64::from(span) * self.area.cluster_bytes;
        assert_eq!(u32::from(self.table[cluster as usize].span), span, "a pack is as long as what was taken for it");
        let sequence = self.table[cluster as usize].sequence;
        // A cluster stays open until it is full: if it were closed half full, the other half would be unused until it
        // is evicted.
        let opened_at = Duration::ZERO;
        let buffer = AlignedBuffer::with_len(len_bytes as usize);
        OpenPack::new(self.area.shape(), self.area.offset_bytes(cluster), buffer, sequence, opened_at)
    }

    /// Takes the next sequence, for a new use of a cluster.
    fn new_sequence(&mut self) -> u32 {
        self.numbers.take().expect("numbers are reserved before a cluster is prepared") as u32
    }

    /// Begins a new use of the `span` free clusters that start at `cluster`.
    fn take(&mut self, cluster: u32, span: u32, state: ClusterState, sequence: u32) {
        for own in cluster..cluster + span {
            assert_eq!(self.table[own as usize].state, ClusterState::Free, "only free clusters are taken");
            self.table[own as usize].state = ClusterState::Continued;
        }
        assert!(span <= self.free_count, "free clusters are counted");
        self.free_count -= span;
        let line = &mut self.table[cluster as usize];
        (line.sequence, line.span, line.state, line.written_sectors) = (sequence, span as u8, state, 0);
    }

    /// Returns the first of `span` adjacent free clusters. Returns `None` if the places that are tried have none.
    fn free_run(&mut self, span: u32) -> Option<u32> {
        while let Some(&last) = self.free.last() {
            if self.table[last as usize].state == ClusterState::Free {
                break;
            }
            self.free.pop();
        }
        if self.free_count < span {
            return None;
        }
        let candidates = self.free.iter().rev().take(PLACES_TRIED);
        let runs = candidates.flat_map(|&cluster| [cluster, (cluster + 1).saturating_sub(span)]);
        assert!(self.made_free < self.area.count, "room was made on the volume");
        let mut free = std::iter::once(self.made_free).chain(runs).filter(|&start| {
            let run = self.table.get(start as usize..(start + span) as usize);
            run.is_some_and(|run| run.iter().all(|line| line.state == ClusterState::Free))
        });
        free.next()
    }

    /// Returns the full clusters to evict so that the `span` clusters from `start` on become free. Returns `None` if
    /// one of these clusters cannot be evicted.
    fn evictable(&self, start: u32, span: u32) -> Option<Vec<u32>> {
        if start + span > self.area.count {
            return None;
        }
        let mut heads = Vec::new();
        for cluster in start..start + span {
            match self.table[cluster as usize].state {
                ClusterState::Free => {}
                ClusterState::Full => heads.push(cluster),
                ClusterState::Continued if cluster > start => {}
                ClusterState::Continued => heads.push(self.head_of(cluster)?),
                ClusterState::Open | ClusterState::Sealed => return None,
            }
        }
        Some(heads)
    }

    /// Returns the first cluster of the entry that `cluster` continues; `None` if the entry cannot be evicted.
    fn head_of(&self, cluster: u32) -> Option<u32> {
        let head = (0..cluster).rev().find(|&before| self.table[before as usize].state != ClusterState::Continued)?;
        (self.table[head as usize].state == ClusterState::Full).then_some(head)
    }

    fn link_newest(&mut self, cluster: u32) {
        let older = self.newest;
        let line = &mut self.table[cluster as usize];
        assert_eq!(line.state, ClusterState::Full, "the order of use is that of full clusters");
        (line.newer, line.older) = (NONE, older);
        match older {
            NONE => self.oldest = cluster,
            older => self.table[older as usize].newer = cluster,
        }
        self.newest = cluster;
    }

    fn unlink(&mut self, cluster: u32) {
        let ClusterLine { newer, older, state, .. } = self.table[cluster as usize];
        assert_eq!(state, ClusterState::Full, "the order of use is that of full clusters");
        match newer {
            NONE => self.newest = older,
            newer => self.table[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.table[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests;
