//! Recovery: restores the index of an earlier run from its checkpoint and from newer segments.
//!
//! First, `discovery` finds the segments' present uses, and the log continues. Then the records of segments beyond the
//! checkpoint's stamp are replayed, newest first. Then the checkpoint's images are loaded below them. Without a
//! checkpoint, or for partitions with a damaged image, all segments are replayed. The store is in use meanwhile: an
//! entry that is not loaded yet misses, and new changes of a key take precedence over data loaded for it. `checkpoint`
//! explains why no older entry resurfaces. If a segment's list is cut off, the missing part may have removed anything
//! older. Then nothing older is loaded, and its segments are freed. Cost: a trailer per replayed segment; images are
//! read once, from start to end.

use super::{
    LogEngine,
    discovery::{DiscoveredSegments, discover},
    index::{IndexSlot, LoadedRecord, LogIndex, SizeClass},
    layout::{
        RESERVE_SEGMENTS_MIN, SEQUENCE_LAST, SEQUENCE_NEAR_END,
        checkpoint::{CheckpointArea, CheckpointPlaces},
        unknown_count_max,
    },
    listing::{ListedRecords, listings, read_blocks},
};
use crate::{
    Error, ErrorKind, Result,
    device::AlignedBuffer,
    engine::{Engine, kit::room::spent},
    format::{
        SegmentUse,
        checkpoint::{CheckpointRoot, ImageAt, ImageOf, frame_bytes, image_of},
        record::SPAN_SECTORS_MAX,
        trailer::{ListedKind, TrailerRecord},
        written::WrittenSequences,
    },
    hash::KeyHash,
    units::SegmentId,
    volume::{counters::add, superblocks},
};
use futures_util::{StreamExt, future::join, stream};
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

/// Number of trailers or images that are read at the same time.
const DEPTH: usize = 32;
/// Number of records in the first batch that is added to the index. The batch is small, so that the newest entries are
/// found early.
const NEWS_FIRST: usize = 1 << 10;
const NEWS_MAX: usize = 1 << 18;

/// Finds the segments of earlier runs, makes the log accept records, and loads the index.
pub(super) async fn run(engine: &Arc<LogEngine>) {
    let found = match engine.checkpoints.area {
        Some(area) => newest_root(engine, &area).await.map(|(root, second)| (area, root, second)),
        None => None,
    };
    let root = found.as_ref().map(|(_, root, _)| root);
    let used = begin(engine, root).await;
    start_over_when_spent(engine).await;
    let stamp = root.map_or(0, |root| root.stamp);
    let (covered, newer): (Vec<_>, Vec<_>) = used.iter().partition(|(_, of)| of.sequence <= stamp);
    let newer: Vec<SegmentId> = newer.into_iter().map(|&(segment, _)| segment).collect();
    engine.volume.counters.recoverable_segments.store(newer.len() as u64, Ordering::Relaxed);
    let cut = replay(engine, &newer, |_| true).await;
    if let Some(segment) = cut {
        forget_before(engine, segment);
    }
    if let Some((area, root, second)) = found {
        let damaged = if cut.is_none() { load_images(engine, &area, &root).await } else { Vec::new() };
        let is_damaged =
            |key_hash| damaged.binary_search(&engine.index.buckets().shape().partition_of(key_hash)).is_ok();
        let shape = engine.index.buckets().shape();
        let images = root.images.iter().map(|&image| (image, shape.image_bytes(image.bucket_count).unwrap_or(0)));
        engine.checkpoints.resume(CheckpointPlaces::found(&area, images, stamp, second));
        if !damaged.is_empty() {
            let covered: Vec<SegmentId> = covered.into_iter().map(|&(segment, _)| segment).collect();
            add(&engine.volume.counters.recoverable_segments, covered.len() as u64);
            replay(engine, &covered, is_damaged).await;
        }
    }
    engine.index.end_loading();
    // An entry that was pinned before it was loaded has no hits yet.
    for key_hash in engine.volume.pins.keys() {
        (0..IndexSlot::HITS_MAX).for_each(|_| engine.touch(key_hash));
    }
}

/// Returns the newer of the roots that are valid for this volume and index, and `true` if it is in the second place.
/// Returns `None` if neither root is valid.
async fn newest_root(engine: &LogEngine, area: &CheckpointArea) -> Option<(CheckpointRoot, bool)> {
    let shape = engine.index.buckets().shape();
    let read = async |second| {
        let bytes = read_blocks(engine, area.root_offset(second), area.root_bytes).await?;
        let root =
            CheckpointRoot::decode(engine.volume.id, engine.geometry.segment_count, shape.partition_count, &bytes)?;
        (root.bits == shape.bits()).then_some((root, second))
    };
    let (first, second) = join(read(false), read(true)).await;
    first.into_iter().chain(second).max_by_key(|(root, _)| root.stamp)
}

/// Finds the segments, and makes the log accept records. Returns the segments in use, from the oldest to the newest.
async fn begin(engine: &LogEngine, root: Option<&CheckpointRoot>) -> Vec<(SegmentId, SegmentUse)> {
    let found = discover(engine, root).await;
    let first_sequence = match reserve_sequences(engine, RunStart::after(&found)).await {
        Ok(first_sequence) => Some(first_sequence),
        Err(error) => {
            tracing::error!("{error}");
            None
        }
    };
    let DiscoveredSegments { mut free, mut used, last_sequence, .. } = found;
    // Writers need room at once, so the oldest segments are freed unread. While entries are pinned, enough segments are
    // reserved that this frees none.
    let missing = RESERVE_SEGMENTS_MIN.saturating_sub(free.len()).min(used.len());
    free.extend(used.drain(..missing).map(|(segment, _)| segment));
    let woken = engine.lock_log().begin(free, &used, last_sequence, first_sequence);
    for state in root.iter().flat_map(|root| &root.segments) {
        if state.sequence > 0 && engine.segments.sequence(state.segment) == state.sequence {
            let (short, long) = state.deadlines;
            engine.segments.note_deadlines(state.segment, short, long);
        }
    }
    woken.wake();
    used
}

/// Reserves sequences for this run if that failed when the store was opened.
pub(super) async fn retry(engine: &LogEngine) {
    if engine.lock_log().is_barred().is_none() {
        return;
    }
    let Some(_turn) = engine.volume.start_turn() else { return };
    // Checks the present state, because another task may just have finished.
    let Some(last_sequence) = engine.lock_log().is_barred() else { return };
    if let Ok(first_sequence) = reserve_sequences(engine, RunStart { last_sequence, ..RunStart::default() }).await {
        let woken = engine.lock_log().lift_bar(first_sequence);
        woken.wake();
    }
}

/// Reserves sequences for this run, and returns the first one.
///
/// After a power loss the volume may have parts of segments without their first unit, whose sequences are unknown. If a
/// later run reused these sequences, recovery would take the parts for new ones. So no two runs share a sequence. The
/// superblock has the first sequence of the last run, and that run can have used only a limited number of sequences
/// beyond those that are found.
///
/// The superblock then also records which segments were found, so that a later start notices if one was erased.
///
/// # Errors
/// If the superblock cannot be written, or no sequence is left.
async fn reserve_sequences(engine: &LogEngine, start: RunStart<'_>) -> Result<u32> {
    let first = first_sequence_after(engine, start.last_sequence).ok_or_else(spent)?;
    // If no sequence is left above this floor, the volume's sequences are used up.
    let next_floor = first.saturating_add(unknown_count(engine));
    let RunStart { void_through, oldest_sequence, .. } = start;
    let sequences = start.sequences.to_vec();
    let changed = superblocks::change(&engine.volume, move |superblock| {
        superblock.sequence_floor = next_floor;
        let written = &mut superblock.written;
        written.void_through = written.void_through.max(void_through);
        written.begin_run(&sequences, first);
        written.forget_before(oldest_sequence);
    });
    changed.await.map_err(|source| {
        add(&engine.volume.counters.io_errors, 1);
        engine.volume.note_failed_start();
        Error::io(ErrorKind::Unavailable, "the store accepts no entries: its superblock cannot be written", source)
    })?;
    Ok(first)
}

/// Findings at the start of the store that are recorded in the superblock.
#[derive(Default)]
struct RunStart<'a> {
    /// The greatest sequence that any segment may have had.
    last_sequence: u32,
    /// The sequences that were found when the store started ([`DiscoveredSegments::sequences`]). Empty in a retry of a
    /// failed write of the superblock: the superblock then does not record the segments of the previous run.
    sequences: &'a [u32],
    /// Sequence of the newest main segment that was erased ([`DiscoveredSegments::void_through`]); 0 if none was.
    void_through: u32,
    /// The oldest sequence in use; 0 if there is none.
    oldest_sequence: u32,
}

impl<'a> RunStart<'a> {
    fn after(found: &'a DiscoveredSegments) -> Self {
        let DiscoveredSegments { used, last_sequence, sequences, void_through, .. } = found;
        let oldest_sequence = used.iter().map(|(_, of)| of.sequence).min().unwrap_or(0);
        Self { last_sequence: *last_sequence, sequences, void_through: *void_through, oldest_sequence }
    }
}

/// Returns the first sequence for a run if the greatest sequence of the previous run was `last_sequence`. Returns
/// `None` if no sequence is left.
fn first_sequence_after(engine: &LogEngine, last_sequence: u32) -> Option<u32> {
    let floor = engine.volume.superblock().sequence_floor;
    let after_last = if last_sequence == 0 { Some(1) } else { last_sequence.checked_add(unknown_count(engine)) };
    after_last.map(|first| first.max(floor)).filter(|&first| first <= SEQUENCE_LAST)
}

/// Returns how many sequences beyond the last one found may have been used without leaving anything on the volume.
fn unknown_count(engine: &LogEngine) -> u32 {
    unknown_count_max(&engine.geometry)
}

/// Writes a new identity to the volume before its sequences are used up. This run continues with the old identity. The
/// next start finds no entries and numbers segments from the beginning.
pub(super) async fn start_over_when_spent(engine: &LogEngine) {
    let next = {
        let log = engine.lock_log();
        log.is_barred().map_or(Some(log.next_sequence()), |last_sequence| first_sequence_after(engine, last_sequence))
    };
    let is_near_end = next.is_none_or(|next| next >= SEQUENCE_NEAR_END);
    if !is_near_end || engine.volume.starts_over() {
        return;
    }
    let Some(_turn) = engine.volume.start_turn() else { return };
    let renewed = superblocks::change(&engine.volume, |superblock| {
        superblock.id = superblock.id.successor(&superblock.hash_key);
        superblock.sequence_floor = 0;
        superblock.written = WrittenSequences::default();
    });
    match renewed.await {
        Ok(()) => {
            tracing::warn!("the store has used nearly all its sequence numbers: it will be empty after the next start")
        }
        Err(source) => {
            let place = "the store has used nearly all its sequence numbers, and its superblock cannot be written";
            engine.volume.note_failure(&Error::io(ErrorKind::Unavailable, place, source));
        }
    }
}

/// Discards everything older than `segment`. This segment is damaged, so it may have contained removals of older
/// entries.
fn forget_before(engine: &LogEngine, segment: SegmentId) {
    tracing::error!("discarding all entries older than a damaged segment, because removals in it may be lost");
    let woken = engine.lock_log().forget_before(engine.segments.order(segment));
    woken.wake();
    if let LogIndex::Buckets(index) = &engine.index {
        (0..index.shape().partition_count).for_each(|partition| index.set_changed(partition));
    }
}

/// Loads the records of `segments` whose keys are `wanted`, the newest first. `segments` are ordered from the oldest to
/// the newest. Stops after a segment from which records may be missing, and returns that segment.
async fn replay(engine: &LogEngine, segments: &[SegmentId], wanted: impl Fn(KeyHash) -> bool) -> Option<SegmentId> {
    let mut newest_first = segments.iter().rev();
    let list = async |&segment: &SegmentId| (segment, listings(engine, segment).await);
    // The newest segment has no trailer, so all of it is read. It is requested first and alone.
    let newest = stream::iter(newest_first.next()).then(list);
    let mut listed = pin!(newest.chain(stream::iter(newest_first).map(list).buffered(DEPTH)));
    let mut news = Vec::new();
    let mut limit = NEWS_FIRST;
    let mut cut = None;
    while let Some((segment, ListedRecords { records, is_cut })) = listed.next().await {
        // Parts of bodies are found through their entries.
        let is_news = |listing: &&TrailerRecord| listing.kind != ListedKind::Part && wanted(listing.key_hash);
        let records = records.iter().rev().filter(is_news);
        let now_s = engine.volume.clock.now_s();
        news.extend(records.map(|listing| loaded(engine, segment, listing, now_s)));
        if news.len() >= limit {
            engine.index.load(&news);
            engine.write_positions().await;
            news.clear();
            limit = (limit * 4).min(NEWS_MAX);
        }
        add(&engine.volume.counters.recovered_segments, 1);
        if is_cut {
            cut = Some(segment);
            break;
        }
    }
    engine.index.load(&news);
    engine.write_positions().await;
    cut
}

fn loaded(engine: &LogEngine, segment: SegmentId, listing: &TrailerRecord, now_s: u32) -> LoadedRecord {
    let is_removal = listing.kind == ListedKind::Tombstone;
    // The slot covers the group's adjacent records, or only this record if it has no group.
    let slot = IndexSlot {
        position: engine.geometry.sector_at(segment, listing.start_bytes.into()),
        size: SizeClass::holding(listing.run_sectors().min(SPAN_SECTORS_MAX)),
        hits: 0,
        short_lived: !is_removal && engine.segments.note(segment, listing.expires_at, now_s),
    };
    LoadedRecord::new(listing.key_hash, slot, is_removal)
}

/// Loads the images that `root` names. Returns the partitions whose images are missing or invalid, in ascending order.
async fn load_images(engine: &LogEngine, area: &CheckpointArea, root: &CheckpointRoot) -> Vec<u32> {
    let shape = engine.index.buckets().shape();
    let named = (0..).zip(&root.images).filter(|(_, image)| image.stamp > 0);
    let (missing, named): (Vec<_>, Vec<_>) = named.partition(|(_, image)| image.is_missing());
    let read = named.into_iter().map(async |(partition, image)| {
        let ImageAt { stamp, bucket_count, .. } = *image;
        let image_bytes = shape.image_bytes(bucket_count);
        let place = image_bytes.and_then(|bytes| Some((area.frame_offset(*image, bytes)?, frame_bytes(bytes))));
        let frame = match place {
            Some((offset_bytes, len_bytes)) => engine.volume.read_for_start(offset_bytes, len_bytes).await.ok(),
            None => None,
        };
        (ImageOf { partition, bucket_count, stamp }, frame)
    });
    let mut frames = stream::iter(read).buffered(DEPTH);
    let mut left: Vec<u32> = missing.into_iter().map(|(partition, _)| partition).collect();
    while let Some((image, frame)) = frames.next().await {
        if !frame.is_some_and(|frame| load_image(engine, image, root.stamp, frame)) {
            add(&engine.volume.counters.corrupt, 1);
            engine.index.buckets().set_changed(image.partition);
            left.push(image.partition);
        }
    }
    left.sort_unstable();
    left
}

/// Loads the image in `frame`. Returns `false` if the image is incomplete or invalid.
fn load_image(engine: &LogEngine, image: ImageOf, stamp: u32, mut frame: AlignedBuffer) -> bool {
    let shape = engine.index.buckets().shape();
    let Some(image_bytes) = shape.image_bytes(image.bucket_count) else { return false };
    if !image.is_in(engine.volume.id, image_bytes, frame.as_slice()) {
        return false;
    }
    let bytes = image_of(frame.as_mut_slice(), image_bytes);
    let dropped = shape.retain(bytes, image.bucket_count, |slot| engine.is_of_stamp(slot, stamp));
    if !engine.index.buckets().load_image(image.partition, bytes, image.bucket_count) {
        return false;
    }
    if dropped > 0 {
        engine.index.buckets().set_changed(image.partition);
    }
    // Newer segments were replayed before.
    engine.index.buckets().end_loading_of(image.partition);
    engine.volume.note_loaded_part();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Clock, Hints, Policy, Store, StoreOptions,
        device::{MemoryDevice, block_on},
        families::AnyEngine,
    };
    use std::time::Duration;

    fn options() -> StoreOptions {
        StoreOptions {
            policy: Policy::named("log").unwrap(),
            segment_size_bytes: Some(256 << 10),
            identity_seed: Some(1),
            background: false,
            clock: Clock::manual(Duration::from_secs(1_700_000_000)),
            ..StoreOptions::new("", 8 << 20)
        }
    }

    fn put(store: &Store, key: &[u8]) -> Result<()> {
        let mut writer = store.insert(key, "head".into(), Hints::default())?;
        writer.write(vec![7; 100_000].into())?;
        block_on(writer.commit())
    }

    fn has(store: &Store, key: &[u8]) -> bool {
        block_on(store.get(key)).unwrap().is_some()
    }

    /// Creates a volume with one entry, "kept", whose next run has sequences from `floor` on.
    fn volume_with_floor(floor: u32) -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        let store = Store::open_on(Arc::clone(&device) as _, &options()).unwrap();
        put(&store, b"kept").unwrap();
        let volume = Arc::clone(store.first_engine().volume());
        superblocks::change_blocking(&volume, move |superblock| superblock.sequence_floor = floor).unwrap();
        block_on(store.close()).unwrap();
        device
    }

    /// Stores entries until the store refuses one. Returns the number of the last stored entry, and the error.
    fn fill(store: &Store) -> (u32, Error) {
        let mut stored = (0_u32..500).map(|n| (n, put(store, &n.to_le_bytes())));
        let (end, error) = stored.find_map(|(n, outcome)| Some((n, outcome.err()?))).expect("sequences end");
        (end - 1, error)
    }

    /// Guards against an abort of the running process, and against a store that never accepts an entry again.
    #[test]
    fn when_sequences_end_hits_go_on_and_the_next_start_begins_anew() {
        let device = volume_with_floor(u32::MAX - 40);
        let store = Store::open_on(Arc::clone(&device) as _, &options()).unwrap();
        assert!(has(&store, b"kept"), "what there is counts in this run");
        let (last, error) = fill(&store);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("start it again, and it begins empty"), "{error}");
        // New entries went to probation, so main segments may still have room for a replacement.
        while put(&store, &last.to_le_bytes()).is_ok() {}
        assert!(last > 20, "every sequence is used: {last}");
        assert!(has(&store, &last.to_le_bytes()), "hits go on");
        assert!(block_on(store.remove(&last.to_le_bytes())).is_err(), "it cannot be written");
        assert!(!has(&store, &last.to_le_bytes()));
        block_on(store.maintain());
        block_on(store.close()).unwrap();
        let again = Store::open_on(Arc::clone(&device) as _, &options()).unwrap();
        assert!(!has(&again, b"kept") && !has(&again, &(last - 1).to_le_bytes()), "nothing of the old numbers counts");
        put(&again, b"new").unwrap();
        block_on(again.close()).unwrap();
        let later = Store::open_on(Arc::clone(&device) as _, &options()).unwrap();
        let AnyEngine::Log(engine) = later.first_engine() else { panic!("another engine") };
        assert!(has(&later, b"new") && engine.lock_log().next_sequence() < 1 << 20 && !engine.volume.starts_over());
    }

    /// Guards against a store that never accepts an entry again.
    #[test]
    fn start_for_which_no_sequence_is_left_serves_hits_and_says_what_to_do() {
        let device = volume_with_floor(u32::MAX);
        let store = Store::open_on(Arc::clone(&device) as _, &options()).unwrap();
        assert!(has(&store, b"kept"));
        let error = put(&store, b"new").unwrap_err();
        assert!(error.to_string().contains("start it again, and it begins empty"), "{error}");
        block_on(store.maintain());
        assert!(put(&store, b"new").is_err() && has(&store, b"kept"));
        block_on(store.close()).unwrap();
        let again = Store::open_on(device as _, &options()).unwrap();
        assert!(!has(&again, b"kept"));
        put(&again, b"new").unwrap();
        assert!(has(&again, b"new"));
    }
}
