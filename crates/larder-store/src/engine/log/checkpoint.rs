//! Checkpoints: writes the index's image in pieces while the store works, and completely when it closes.
//!
//! A checkpoint has a *stamp*: the sequence up to which every segment was on the device and synced when the checkpoint
//! began. Each partition is copied in turn, without the slots that lie in newer segments. Then come a sync, the root
//! that names the images, and another sync.
//!
//! A slot restored from a checkpoint is correct wherever the machine stops. Consider a key when its partition was
//! copied:
//!
//! 1. Its slot lay in a segment up to the stamp. No newer record of the key existed then. All later ones are in
//!    segments beyond the stamp. Recovery replays these *before* it loads images, and they take precedence.
//! 2. It had a newer slot, or was removed by a newer tombstone. The image has nothing for it, or an older slot not yet
//!    recognized as the key's (see `index`). The replay brings the durable newer record, which is found first.
//! 3. The slot's segment was reused since. Its sequence is beyond the stamp now, and recovery drops the slot.
//!
//! A record that the replay needs cannot disappear before the slots it supersedes: replacements and removals are in
//! main segments, which are reused after all older ones. Everything in the images is older
//! ([`crate::format::SegmentUse::order`]) than everything replayed, because the stamp is below the anchors of all
//! segments that are not clean.
//!
//! Owns: the start of a checkpoint, and its I/O. `layout::checkpoint` decides where each part is stored, and `recovery`
//! loads them. Cost: the share `checkpoint_share` of the log's bytes. The maintenance thread writes at most
//! [`STEP_BYTES`] every [`STEP`], so that reads are not slowed. A partition's lock is held while 128 KiB are copied.

use super::{
    LogEngine,
    index::{IndexSlot, LogIndex},
    layout::checkpoint::{CheckpointArea, CheckpointPlaces},
};
use crate::sync::IgnorePoison;
use crate::{
    Result,
    device::AlignedBuffer,
    format::{
        SegmentRow,
        checkpoint::{CheckpointRoot, ImageOf, ListedSegment, frame_bytes, image_of},
        superblock::VolumeShape,
    },
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    units::{BLOCK_BYTES, SegmentGeometry},
    volume::{
        Volume,
        waiters::{TaskWaiters, wait_for},
    },
};
use futures_util::future::join_all;
use std::{sync::Arc, time::Duration};

/// Bytes of images that one step of a checkpoint writes.
const STEP_BYTES: u64 = 512 << 10;
/// Time between the steps of a checkpoint.
const STEP: Duration = Duration::from_millis(20);
/// Number of images that are written at the same time when the store closes.
const CLOSE_BATCH: usize = 16;

/// The checkpoints of the index of one volume.
pub(super) struct LogCheckpoints {
    /// Place of checkpoints on the volume; `None` on a volume without space for checkpoints.
    pub(super) area: Option<CheckpointArea>,
    shared: Mutex<CheckpointShared>,
    writing: AtomicBool,
    /// Bytes that the log has written since the volume was opened.
    log_bytes: AtomicU64,
}

struct CheckpointShared {
    /// The progress of checkpoints; `None` while a task works on it.
    state: Option<CheckpointState>,
    /// Tasks that wait until `state` is available.
    waiting: TaskWaiters,
}

struct CheckpointState {
    places: CheckpointPlaces,
    sweep: Option<CheckpointSweep>,
    /// Bytes that checkpoints have written since the volume was opened.
    spent_bytes: u64,
    /// Last watermark for which a checkpoint was considered, and found not to be worth its cost.
    considered: u32,
    stepped_at: Duration,
}

/// The image of a partition that is being written.
struct PartitionFrame {
    buffer: AlignedBuffer,
    image_bytes: usize,
    bucket_count: u32,
}

/// A checkpoint that is being written.
#[derive(Clone, Copy)]
struct CheckpointSweep {
    stamp: u32,
    next_partition: u32,
}

impl LogCheckpoints {
    pub(super) fn new(volume: &Volume, geometry: &SegmentGeometry, index: &LogIndex) -> Self {
        let VolumeShape { index_bytes, .. } = volume.shape;
        let shape = match index {
            LogIndex::Buckets(index) => Some(index.shape()),
            LogIndex::Sets(_) => None,
        };
        let area = shape.and_then(|shape| {
            CheckpointArea::new(volume.shape.index_area(), geometry.segment_count, shape.partition_count)
        });
        let partitions = shape.map_or(0, |shape| shape.partition_count);
        if area.is_none() && shape.is_some() && index_bytes > 0 {
            tracing::warn!("the store has no room for checkpoints of its index, starts take longer");
        }
        let state = CheckpointState::new(CheckpointPlaces::new(area.as_ref(), partitions));
        let shared = Mutex::new(CheckpointShared { state: Some(state), waiting: TaskWaiters::default() });
        Self { area, shared, writing: AtomicBool::new(false), log_bytes: AtomicU64::new(0) }
    }

    /// Notes that the log has written `bytes`.
    pub(super) fn note_log_bytes(&self, bytes: u64) {
        self.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Continues after the checkpoint that was found when the store started.
    pub(super) fn resume(&self, places: CheckpointPlaces) {
        self.lock().state = Some(CheckpointState::new(places));
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::Relaxed)
    }

    /// Waits until no other task works on the state, and takes it out.
    async fn take(&self) -> CheckpointState {
        wait_for(|| self.lock(), |shared: &mut CheckpointShared| shared.state.take()).await
    }

    fn put_back(&self, state: CheckpointState) {
        self.writing.store(state.sweep.is_some(), Ordering::Relaxed);
        let mut shared = self.lock();
        assert!(shared.state.is_none(), "one task at a time advances a checkpoint");
        shared.state = Some(state);
        let woken = shared.waiting.take();
        drop(shared);
        woken.wake();
    }

    fn lock(&self) -> MutexGuard<'_, CheckpointShared> {
        self.shared.lock().ignore_poison()
    }
}

impl AsMut<TaskWaiters> for CheckpointShared {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

impl CheckpointState {
    fn new(places: CheckpointPlaces) -> Self {
        Self { places, sweep: None, spent_bytes: 0, considered: 0, stepped_at: Duration::ZERO }
    }
}

impl LogEngine {
    /// Writes the next step of a checkpoint, or begins a checkpoint if one is due.
    pub(super) async fn advance_checkpoint(&self) {
        let Some(area) = self.checkpoints.area else { return };
        let now = self.volume.clock.now();
        let Some(state) = self.checkpoints.lock().state.take() else { return };
        let mut turn = CheckpointTurn { engine: self, state: Some(state) };
        let state = turn.state();
        let outcome = if state.sweep.is_some() {
            if now < state.stepped_at + STEP { Ok(()) } else { self.step(&area, state, now).await }
        } else {
            self.begin_if_due(&area, state).await
        };
        turn.end(outcome);
    }

    /// Writes a whole checkpoint when the store closes. No other I/O may be in flight.
    pub(super) async fn write_checkpoint(&self) -> Result<()> {
        let Some(area) = self.checkpoints.area else { return Ok(()) };
        let mut turn = CheckpointTurn { engine: self, state: Some(self.checkpoints.take().await) };
        self.give_up(turn.state());
        let outcome = self.write_all(&area, turn.state()).await;
        let failed = outcome.is_err();
        turn.end(outcome);
        // Everything is in the log as well, so a failure only makes the next start slower.
        if failed { self.volume.sync().await } else { Ok(()) }
    }

    async fn write_all(&self, area: &CheckpointArea, state: &mut CheckpointState) -> Result<()> {
        let stamp = self.lock_log().clean_through();
        if stamp <= state.places.stamp() {
            return Ok(());
        }
        assert!(
            state.sweep.is_none_or(|sweep| sweep.stamp <= stamp),
            "a later checkpoint has all that an earlier one has"
        );
        self.volume.sync().await?;
        state.sweep = Some(CheckpointSweep { stamp, next_partition: 0 });
        let changed: Vec<u32> = self.changed_partitions(0).collect();
        for batch in changed.chunks(CLOSE_BATCH) {
            self.write_images(area, state, stamp, batch).await?;
        }
        self.write_root(area, state, stamp).await
    }

    /// Begins a checkpoint if the log has written so much since the last one that another is worth its cost.
    async fn begin_if_due(&self, area: &CheckpointArea, state: &mut CheckpointState) -> Result<()> {
        let log_bytes = self.checkpoints.log_bytes.load(Ordering::Relaxed);
        let budget = log_bytes as f64 * self.volume.options.tuning.checkpoint_share;
        let credit = (budget as u64).saturating_sub(state.spent_bytes);
        if credit < area.root_bytes + BLOCK_BYTES {
            return Ok(());
        }
        let stamp = self.lock_log().clean_through();
        if stamp <= state.places.stamp().max(state.considered) {
            return Ok(());
        }
        assert!(state.considered < stamp, "stamps grow");
        state.considered = stamp;
        let index = self.index.buckets();
        let images: u64 = self.changed_partitions(0).map(|partition| index.table_bytes(partition) + BLOCK_BYTES).sum();
        let cost = area.root_bytes + images;
        if credit < cost {
            return Ok(());
        }
        self.volume.sync().await?;
        state.sweep = Some(CheckpointSweep { stamp, next_partition: 0 });
        Ok(())
    }

    /// Writes the next images of the checkpoint. After the last image, writes the root.
    async fn step(&self, area: &CheckpointArea, state: &mut CheckpointState, now: Duration) -> Result<()> {
        let Some(sweep) = state.sweep else { return Ok(()) };
        state.stepped_at = now;
        // A step is limited, so that reads wait for at most this much I/O of a checkpoint.
        let mut left_bytes = STEP_BYTES;
        let fits = |partition: &u32| {
            let fits = left_bytes > 0;
            left_bytes = left_bytes.saturating_sub(self.index.buckets().table_bytes(*partition) + BLOCK_BYTES);
            fits
        };
        let batch: Vec<u32> = self.changed_partitions(sweep.next_partition).take_while(fits).collect();
        match batch.last() {
            Some(&last) => {
                assert!(last >= sweep.next_partition, "a sweep goes on, from partition {}", sweep.next_partition);
                self.write_images(area, state, sweep.stamp, &batch).await?;
                state.sweep = Some(CheckpointSweep { next_partition: last + 1, ..sweep });
                Ok(())
            }
            // The root comes last. A crash before it leaves the previous checkpoint, whose images are untouched.
            None => self.write_root(area, state, sweep.stamp).await,
        }
    }

    fn changed_partitions(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        (from..self.index.buckets().shape().partition_count)
            .filter(|&partition| self.index.buckets().is_changed(partition))
    }

    async fn write_images(
        &self,
        area: &CheckpointArea,
        state: &mut CheckpointState,
        stamp: u32,
        partitions: &[u32],
    ) -> Result<()> {
        debug_assert!(partitions.is_sorted(), "images are written in the order of their places");
        let mut writes = Vec::with_capacity(partitions.len());
        for &partition in partitions {
            let Some(PartitionFrame { mut buffer, image_bytes, bucket_count }) = self.frame(partition, stamp) else {
                state.places.place_nothing(partition);
                continue;
            };
            let at = state.places.place(partition, stamp, image_bytes, bucket_count);
            let own = ImageOf { partition, bucket_count, stamp };
            own.seal(self.volume.id, image_bytes, buffer.as_mut_slice());
            if at.is_missing() {
                self.index.buckets().set_changed(partition);
            } else if let Some(offset_bytes) = area.frame_offset(at, image_bytes) {
                state.spent_bytes += buffer.len() as u64;
                writes.push(self.volume.write(offset_bytes, Arc::new(buffer)));
            }
        }
        // Waits for all of them: a late transfer must not overwrite a later one to the same place.
        join_all(writes).await.into_iter().collect()
    }

    /// Returns the image of a partition in a frame, without slots newer than the watermark `stamp`. Returns `None` if
    /// the partition is empty.
    fn frame(&self, partition: u32, stamp: u32) -> Option<PartitionFrame> {
        let index = self.index.buckets();
        let mut frame = index.take_image(partition, |image, bucket_count| {
            let mut buffer = AlignedBuffer::apart(frame_bytes(image.len()) as usize);
            image_of(buffer.as_mut_slice(), image.len()).copy_from_slice(image);
            (!image.is_empty()).then_some(PartitionFrame { buffer, image_bytes: image.len(), bucket_count })
        })?;
        let image = image_of(frame.buffer.as_mut_slice(), frame.image_bytes);
        if index.shape().retain(image, frame.bucket_count, |slot| self.is_of_stamp(slot, stamp)) > 0 {
            index.set_changed(partition);
        }
        Some(frame)
    }

    /// Returns whether the record of a slot is in a segment that the watermark `stamp` covers.
    pub(super) fn is_of_stamp(&self, slot: IndexSlot, stamp: u32) -> bool {
        let sequence = self.geometry.segment_of(slot.position).map(|segment| self.segments.sequence(segment));
        sequence.is_some_and(|sequence| (1..=stamp).contains(&sequence))
    }

    async fn write_root(&self, area: &CheckpointArea, state: &mut CheckpointState, stamp: u32) -> Result<()> {
        let order = self.lock_log().order();
        let segments = order.into_iter().map(|(segment, of)| ListedSegment {
            segment,
            sequence: of.sequence,
            is_probation: of.generation() == SegmentRow::Probation,
            deadlines: self.segments.deadlines(segment),
        });
        let shape = self.index.buckets().shape();
        assert!(stamp > state.places.stamp(), "a root is newer than the one it replaces");
        let root = CheckpointRoot {
            stamp,
            bits: shape.bits(),
            images: state.places.next_images(),
            segments: segments.collect(),
        };
        let mut buffer = AlignedBuffer::with_len(area.root_bytes as usize);
        root.encode(self.volume.id, buffer.as_mut_slice());
        self.volume.sync().await?;
        self.volume.write(area.root_offset(state.places.next_root_second()), Arc::new(buffer)).await?;
        self.volume.sync().await?;
        state.spent_bytes += area.root_bytes;
        state.places.commit(stamp);
        state.sweep = None;
        Ok(())
    }

    fn give_up(&self, state: &mut CheckpointState) {
        state.sweep = None;
        for partition in state.places.abandon() {
            assert!(partition < self.index.buckets().shape().partition_count, "an image is one of a partition");
            self.index.buckets().set_changed(partition);
        }
    }
}

/// The exclusive right of a task to work on checkpoints. Dropping it before [`Self::end`] abandons the checkpoint,
/// because the outcome of its writes is unknown.
struct CheckpointTurn<'a> {
    engine: &'a LogEngine,
    state: Option<CheckpointState>,
}

impl CheckpointTurn<'_> {
    fn state(&mut self) -> &mut CheckpointState {
        self.state.as_mut().expect("it is there until the turn ends")
    }

    /// Makes the state available again. Abandons the checkpoint if `outcome` is an error.
    fn end(mut self, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.state.take().into_iter().for_each(|state| self.engine.checkpoints.put_back(state)),
            Err(error) => {
                tracing::warn!("a checkpoint of the index failed, so the next start may take longer: {error}");
            }
        }
    }
}

impl Drop for CheckpointTurn<'_> {
    fn drop(&mut self) {
        if let Some(mut state) = self.state.take() {
            self.engine.give_up(&mut state);
            self.engine.checkpoints.put_back(state);
        }
    }
}
