//! The engine of `ucfs`: clusters that are written, read and evicted as a whole.
//!
//! Owns: the entry table and clusters of one volume, and the order in which they change. Entries of one site go to the
//! same open cluster, so that they are adjacent. A read brings the whole cluster, and its other entries go to the
//! neighbors' sink. Nothing is moved on the device.
//!
//! Invariants: every table is in memory. After a crash it is restored from the last snapshot and the journal of later
//! changes (`engine::kit::map_checkpoint`); on volumes without a journal, only the snapshot of a clean close restores
//! it. A cluster's sequence differs from that of any earlier use, even in earlier runs, because sequences are reserved
//! in the header before they are used. No lock is held across I/O.
//!
//! Cost: one read of a cluster per hit, none per miss (`a_hit_is_one_read_of_a_cluster_and_a_miss_none`); one write per
//! cluster for all its entries (`a_cluster_is_one_write_for_all_its_entries`), and one every three seconds while it is
//! being filled; `an_entry_takes_200_bits_and_a_cluster_24_bytes`.

mod append;
mod check;
pub(crate) mod costs;
pub(crate) mod entries;
pub(crate) mod layout;
mod read;
mod recovery;
mod session;
mod walk;

use super::{
    Engine, EngineGauges, FlushExtent, Location, ReadExtent,
    kit::{
        map_checkpoint::{self, MapCheckpoint, MapCheckpointArea},
        numbers::RunNumbers,
        snapshot,
        state_lock::{CheckedState, LockedState, StateLock},
    },
};
use crate::{
    Error, ErrorKind, Reader, Result, StoreOptions,
    format::{
        record::RecordParts,
        superblock::{LogForm, PARAMETER_COUNT, VolumeShape},
    },
    hash::KeyHash,
    units::{DATA_START_BYTES, last_superblock_bytes},
    volume::{START_RETRY_PAUSE, Volume, cannot_begin, waiters::TaskWaiters, wakeup::TICK},
};
use entries::{EntryId, EntryPlace, EntryTable};
use layout::{ClusterArea, ClusterTable};
use read::FoundInCluster;
use std::{sync::Arc, time::Duration};

pub(crate) use walk::walk;

/// Minimum number of clusters in a volume.
const CLUSTER_COUNT_MIN: u64 = 8;
/// Minimum number of clusters in a volume for each cluster that can be open at the same time.
const CLUSTERS_PER_GROUP: u32 = 8;

/// Returns the layout of a new volume of `ucfs`.
///
/// # Errors
/// `Invalid` if the options do not suit the policy.
pub(crate) fn shape_of(options: &StoreOptions) -> Result<VolumeShape> {
    let cluster_bytes = options.tuning.ucfs_cluster_bytes;
    let (index_bytes, journal_pages) = if options.tuning.map_journal {
        MapCheckpointArea::lengths(recovery::listings_max(entries_of(options)), true)
    } else {
        let words = session::word_count_max(options.size_bytes / cluster_bytes, entries_of(options));
        (snapshot::area_bytes(words), 0)
    };
    let data = last_superblock_bytes(options.size_bytes).checked_sub(DATA_START_BYTES + index_bytes);
    let count = data.unwrap_or_default() / cluster_bytes;
    if count < CLUSTER_COUNT_MIN || count > u64::from(u32::MAX / 2) {
        let place =
            format!("store size has no room for eight clusters of {cluster_bytes} bytes: {}", options.size_bytes);
        return Err(Error::new(ErrorKind::Invalid, place));
    }
    let mut parameters = [0; PARAMETER_COUNT];
    parameters[..2].copy_from_slice(&[cluster_bytes, count]);
    Ok(VolumeShape {
        row: options.policy.code,
        size_bytes: options.size_bytes,
        segment_bytes: 0,
        index_bytes,
        parameters,
        journal_pages,
        form: LogForm::Plain,
    })
}

fn entries_of(options: &StoreOptions) -> u64 {
    options.size_bytes / options.mean_entry_bytes
}

/// The engine of one volume of `ucfs`.
pub(crate) struct ClustersEngine {
    volume: Arc<Volume>,
    area: ClusterArea,
    state: StateLock<ClustersState>,
}

/// The state of the engine, behind its only lock.
pub(crate) struct ClustersState {
    clusters: ClusterTable<EntryId>,
    entries: EntryTable,
    groups: usize,
    /// Whether entries can be stored: sequence numbers are reserved, and the store is open.
    ready: bool,
    /// Number of clusters whose write failed since the volume was opened.
    failed: u64,
    /// The snapshot and the journal of the tables.
    checkpoint: MapCheckpoint,
    /// Whether the tables are being rebuilt after a crash. Until the whole journal is read, they may contain removed
    /// entries.
    is_recovering: bool,
    /// Place of the clusters on the volume.
    area: ClusterArea,
    volume: Arc<Volume>,
    waiting: TaskWaiters,
}

impl ClustersEngine {
    /// Creates the engine.
    ///
    /// # Errors
    /// `Corrupt` if the superblock's parameters are invalid.
    pub(crate) fn new(volume: Arc<Volume>) -> Result<Self> {
        let area = area_of(&volume.shape)
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "the superblock's layout makes no sense"))?;
        let groups = (volume.options.tuning.ucfs_groups as u32).min(area.count / CLUSTERS_PER_GROUP).max(1) as usize;
        let state = ClustersState {
            clusters: ClusterTable::new(area, volume.id, groups, RunNumbers::new(0, session::NUMBERS_PER_BATCH)),
            entries: EntryTable::new(entries_of(&volume.options)),
            groups,
            ready: false,
            failed: 0,
            checkpoint: MapCheckpoint::new(&volume),
            is_recovering: false,
            area,
            volume: Arc::clone(&volume),
            waiting: TaskWaiters::default(),
        };
        let state = StateLock::new(state, volume.failure.mark());
        Ok(Self { volume, area, state })
    }

    fn lock(&self) -> LockedState<'_, ClustersState> {
        self.state.lock()
    }
}

/// Returns where the clusters of a volume are; `None` if the superblock's parameters are invalid.
fn area_of(shape: &VolumeShape) -> Option<ClusterArea> {
    let [cluster_bytes, count, ..] = shape.parameters;
    let data = shape.data_area();
    let count = u32::try_from(count).ok().filter(|&count| u64::from(count) >= CLUSTER_COUNT_MIN)?;
    let is_size = cluster_bytes.is_power_of_two() && CLUSTER_BYTES_RANGE.contains(&cluster_bytes);
    let end = data.start.checked_add(cluster_bytes.checked_mul(u64::from(count))?)?;
    (is_size && end <= data.end).then_some(ClusterArea { start_bytes: data.start, cluster_bytes, count })
}

/// Allowed lengths of a cluster, in bytes.
const CLUSTER_BYTES_RANGE: std::ops::RangeInclusive<u64> = (32 << 10)..=(1 << 20);

impl ClustersState {
    /// Returns where the key's entry is; `None` if there is none, or while the tables are being rebuilt.
    fn find(&self, key_hash: KeyHash) -> Option<EntryPlace> {
        self.entries.find(key_hash).filter(|_| !self.is_recovering)
    }

    /// Removes an entry from the table, and from the list of entries of its cluster.
    fn forget(&mut self, key_hash: KeyHash, place: EntryPlace) {
        debug_assert_eq!(self.entries.find(key_hash), Some(place), "an entry is forgotten where it stands");
        self.note_gone(key_hash, place);
        let first = self.entries.remove(key_hash, self.clusters.first(place.cluster));
        self.clusters.set_first(place.cluster, first);
        self.clusters.forget(place.cluster, place.sectors);
    }

    /// Removes all entries of a cluster from the table. Returns how many entries were removed.
    fn forget_all(&mut self, cluster: u32) -> u64 {
        let first = self.clusters.first(cluster);
        self.note_all_gone(cluster);
        self.clusters.set_first(cluster, None);
        let count = self.entries.remove_all(first);
        assert_eq!(count, self.clusters.entry_count(cluster) as u64, "all of a cluster goes with it");
        count
    }
}

impl AsMut<TaskWaiters> for ClustersState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

impl Engine for ClustersEngine {
    type Found = FoundInCluster;

    fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    async fn load(self: &Arc<Self>) {
        session::begin(self).await;
    }

    async fn find(
        self: &Arc<Self>,
        key: &[u8],
        extent: ReadExtent,
    ) -> Result<Option<(FoundInCluster, Option<Reader>)>> {
        if extent == ReadExtent::Key {
            self.volume.check_open()?;
            let state = self.lock();
            let place = state.find(self.volume.hash(key).0);
            return Ok(place.map(|place| ((place, state.clusters.sequence(place.cluster)), None)));
        }
        Ok(self.look_up(key).await?.map(|(found, reader)| (found, Some(reader))))
    }

    fn may_contain(&self, key_hash: KeyHash, at: Option<Location>) -> bool {
        at.is_none_or(|at| at == Location::Known) && self.lock().find(key_hash).is_some()
    }

    async fn store(self: &Arc<Self>, record: RecordParts<'_>, found: Option<FoundInCluster>) -> Result<bool> {
        self.append(record, found).await
    }

    async fn remove(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.volume.check_open()?;
        let key_hash = self.volume.hash(key).0;
        let ready = {
            let mut state = self.lock();
            if let Some(place) = state.entries.find(key_hash) {
                state.forget(key_hash, place);
            }
            state.ready
        };
        // A close in progress may already have written its snapshot. And if nothing can be written, the last close's
        // snapshot still counts.
        self.volume.check_open()?;
        if !ready {
            return Err(cannot_begin());
        }
        map_checkpoint::write_down(self).await
    }

    fn touch(&self, key_hash: KeyHash) {
        let mut state = self.lock();
        if let Some(place) = state.entries.find(key_hash) {
            state.clusters.touch(place.cluster);
        }
    }

    async fn maintain(self: &Arc<Self>) {
        session::keep(self).await;
        self.write_waiting();
        map_checkpoint::flush_due(self);
        map_checkpoint::keep_snapshot(self, false, || ()).await;
        if !self.volume.options.background {
            map_checkpoint::await_room(self).await;
        }
        let woken = self.lock().waiting.take();
        woken.wake();
    }

    fn next_due(&self) -> Option<Duration> {
        let (is_ready, is_awaited) = {
            let state = self.lock();
            (state.ready, !state.waiting.is_empty() || state.checkpoint.is_due())
        };
        let reservation = session::reservation_is_due(self).then_some(if is_ready { TICK } else { START_RETRY_PAUSE });
        is_awaited.then_some(TICK).or(reservation).into_iter().chain(self.waiting_due()).min()
    }

    async fn flush(self: &Arc<Self>, extent: FlushExtent) -> Result<()> {
        match extent {
            FlushExtent::CommittedBy(_) => self.flush_all().await,
            FlushExtent::Closing => session::end(self).await,
        }
    }

    fn check(&self) {
        self.lock().check();
    }

    fn gauges(&self) -> EngineGauges {
        let state = self.lock();
        EngineGauges {
            entries: state.entries.len() as u64,
            counts_all: true,
            entries_max: state.entries.capacity() as u64,
            index_bytes: state.entries.memory_bytes() + state.clusters.memory_bytes(),
            dirty_bytes: state.clusters.dirty_bytes(),
            segments_in_use: 0,
        }
    }
}
