//! The gate of a log volume: its admission behind a lock, and whether room is short.
//!
//! `admit` asks it for each entry offered.

use super::{
    admission::{AdmissionScale, LogAdmission},
    index::LogIndex,
};
use crate::sync::IgnorePoison;
use crate::{
    Objective,
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
    units::{SECTOR_BYTES, SegmentGeometry},
};

/// The admission of one volume, behind a lock.
pub(super) struct LogGate {
    admission: Mutex<LogAdmission>,
    /// Whether storing an entry now evicts useful entries.
    pub(super) is_short_of_room: AtomicBool,
}

impl LogGate {
    /// Creates the gate of a volume. Returns `None` if the index does not report which entries it drops.
    pub(super) fn new(index: &LogIndex, geometry: &SegmentGeometry, objective: Objective) -> Option<Self> {
        let LogIndex::Buckets(buckets) = index else { return None };
        let scale = AdmissionScale {
            sectors: u64::from(geometry.segment_count) * geometry.segment_bytes / SECTOR_BYTES,
            index: buckets.shape(),
        };
        let admission = LogAdmission::new(scale, objective);
        Some(Self { admission: Mutex::new(admission), is_short_of_room: AtomicBool::new(false) })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.lock().memory_bytes()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LogAdmission> {
        self.admission.lock().ignore_poison()
    }
}
