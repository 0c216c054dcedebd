//! Writes of clusters that are not full yet.
//!
//! An open cluster with waiting entries is copied, and its filled part is written. The cluster stays open, and is
//! written again later at the same place. Invariants: a cluster has at most one write in flight, because the older of
//! two could land last. The bytes of a record never change, so a torn write damages no record that an earlier one
//! wrote. I/O is done elsewhere.

use super::{ClusterState, ClusterTable};
use crate::{engine::kit::pack::SealedPack, units::SECTOR_BYTES};
use std::{ops::Range, time::Duration};

/// An in-flight write of the filled part of an open cluster.
#[derive(Clone, Copy)]
pub(super) struct PartialWrite {
    pub(super) cluster: u32,
    pub(super) sequence: u32,
    pub(super) end_sectors: u16,
}

/// The result of writing the filled part of an open cluster.
pub(crate) struct PartialOutcome {
    pub(crate) cluster: u32,
    /// The sectors that are newly on the device because of this write; empty if the write failed.
    pub(crate) sectors: Range<u16>,
    /// The whole cluster, if it was completed while its filled part was being written. The caller must write it now.
    pub(crate) completed: Option<SealedPack>,
}

impl<F: Copy> ClusterTable<F> {
    /// Notes that an entry waits in the open cluster of a group of sites.
    pub(crate) fn note_waiting(&mut self, group: usize, now: Duration) {
        if self.open[group].is_some() {
            self.waiting_since[group].get_or_insert(now);
        }
    }

    /// Returns the time when the oldest of the entries that wait in open clusters was appended; `None` if no entry
    /// waits.
    pub(crate) fn oldest_waiting(&self) -> Option<Duration> {
        self.waiting_since.iter().flatten().min().copied()
    }

    /// Copies the filled parts of open clusters in which an entry has waited since `until` or longer. Skips a cluster
    /// with a write in flight, because the device could execute its two writes in the wrong order.
    pub(crate) fn copy_waiting(&mut self, until: Duration) -> Vec<SealedPack> {
        let mut copies = Vec::new();
        for (open, waiting_since) in self.open.iter().zip(&mut self.waiting_since) {
            let Some((cluster, pack)) = open else { continue };
            let is_writing = self.partial_writes.iter().any(|write| write.sequence == pack.sequence);
            if waiting_since.is_some_and(|since| since <= until) && !is_writing {
                let end_sectors = (pack.bytes().len() as u64 / SECTOR_BYTES) as u16;
                self.partial_writes.push(PartialWrite { cluster: *cluster, sequence: pack.sequence, end_sectors });
                assert_eq!(self.table[*cluster as usize].state, ClusterState::Open, "only an open cluster is copied");
                copies.push(pack.sealed_copy(self.volume, 0));
                *waiting_since = None;
            }
        }
        copies
    }

    /// Notes the outcome of writing the filled part of an open cluster. A failed write is retried later. Returns `None`
    /// if no such write was in flight.
    pub(crate) fn partially_written(&mut self, sequence: u32, is_ok: bool, now: Duration) -> Option<PartialOutcome> {
        let at = self.partial_writes.iter().position(|write| write.sequence == sequence)?;
        let PartialWrite { cluster, end_sectors, .. } = self.partial_writes.swap_remove(at);
        let line = &mut self.table[cluster as usize];
        assert_eq!(line.sequence, sequence, "a cluster is not used again while it is written");
        assert!(matches!(line.state, ClusterState::Open | ClusterState::Sealed), "a full cluster has no partial write");
        let start_sectors = line.written_sectors;
        assert!(start_sectors <= end_sectors, "each write reaches further than the last");
        if is_ok {
            line.written_sectors = end_sectors;
        } else if let Some(group) =
            self.open.iter().position(|open| open.as_ref().is_some_and(|open| open.0 == cluster))
        {
            self.note_waiting(group, now);
        }
        let completed = self.in_flight.iter().find(|(sealed, _)| *sealed == cluster).map(|(_, pack)| pack.clone());
        let sectors = if is_ok { start_sectors..end_sectors } else { 0..0 };
        Some(PartialOutcome { cluster, sectors, completed })
    }

    /// Returns whether a write of the open cluster with this sequence is in flight.
    pub(super) fn is_partly_writing(&self, sequence: u32) -> bool {
        self.partial_writes.iter().any(|write| write.sequence == sequence)
    }
}
