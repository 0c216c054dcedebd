//! Opening and closing: reserves sequences, and handles the snapshot of the tables on volumes without a journal
//! (volumes with one use `recovery`).
//!
//! The header in the index area contains the first sequence that was never written, and whether a snapshot follows.
//! Invariants: sequences are reserved durably before they are used; the snapshot is durably removed before anything
//! else is written. Cost: one write and sync at start and every 32,768 clusters.

use super::{
    ClustersEngine, ClustersState,
    entries::{EntryId, EntryPlace, EntryTable},
    layout::{ClusterArea, ClusterTable},
};
use crate::{
    Result,
    engine::kit::{
        map_checkpoint,
        numbers::RunNumbers,
        snapshot::{self, SnapshotPage},
    },
    hash::KeyHash,
};
use std::sync::Arc;

/// Number of sequences that one reservation adds, enough for 8 GiB of clusters.
pub(super) const NUMBERS_PER_BATCH: u64 = 1 << 16;
const WORDS_PER_CLUSTER: u64 = 3;
const WORDS_PER_ENTRY: u64 = 3;
/// First word of a header whose snapshot can be loaded. After [`snapshot::mark_used`], this word is 0.
const IS_CLEAN: u32 = 1;

/// Returns the maximum number of words in a snapshot.
pub(super) fn word_count_max(clusters: u64, entries: u64) -> u64 {
    clusters * WORDS_PER_CLUSTER + entries * WORDS_PER_ENTRY
}

/// Loads the entries of an earlier run, and reserves sequences for this one.
pub(super) async fn begin(engine: &Arc<ClustersEngine>) {
    if engine.keeps_journal() {
        engine.recover().await;
    } else {
        restore_closed(engine).await;
    }
    if let Err(error) = reserve(engine).await {
        tracing::error!("the store accepts no entries: {error}");
        engine.volume.note_failed_start();
        let woken = engine.lock().waiting.take();
        woken.wake();
    }
}

/// Loads the snapshot of a volume without a journal. Such a volume has a snapshot only if the store was closed.
async fn restore_closed(engine: &Arc<ClustersEngine>) {
    let header = snapshot::read_header(&engine.volume).await;
    let (next, words) = match header {
        Some(SnapshotPage { number, words: [IS_CLEAN, low, high] }) => {
            let count = u64::from(high) << u32::BITS | u64::from(low);
            (number, snapshot::read_words(&engine.volume, number, count).await)
        }
        Some(SnapshotPage { number, .. }) => (number, None),
        // A new volume or a damaged header. The time is greater than any sequence used before.
        None => (engine.volume.clock.since_epoch().as_millis() as u32, None),
    };
    {
        let mut state = engine.lock();
        let groups = state.groups;
        let numbers = RunNumbers::new(next.into(), NUMBERS_PER_BATCH);
        let fresh = || ClusterTable::new(engine.area, engine.volume.id, groups, numbers);
        state.clusters = fresh();
        // The options may assume larger entries than the store has.
        let found = words.as_ref().map_or(0, |words| words.len() as u64 / WORDS_PER_ENTRY);
        let capacity = (state.entries.capacity() as u64).max(found);
        state.entries = EntryTable::new(capacity);
        if words.is_some_and(|words| restore(&mut state, &words).is_none()) {
            (state.clusters, state.entries) = (fresh(), EntryTable::new(capacity));
        }
    }
}

/// Reserves sequences if few are left, or if none could be reserved at the start.
pub(super) async fn keep(engine: &Arc<ClustersEngine>) {
    if !reservation_is_due(engine) {
        return;
    }
    let is_start = !engine.lock().ready;
    let turn = if is_start { engine.volume.start_turn() } else { engine.volume.head_turn() };
    // Another task may just have reserved some.
    if turn.is_none() || !reservation_is_due(engine) {
        return;
    }
    if let Err(error) = reserve(engine).await {
        engine.volume.note_failure(&error);
    }
}

/// Returns whether sequences must be reserved now.
pub(super) fn reservation_is_due(engine: &ClustersEngine) -> bool {
    let state = engine.lock();
    (!state.ready || state.clusters.numbers.are_scarce()) && !engine.volume.is_closed()
}

/// Reserves sequences durably. After that, entries can be stored.
async fn reserve(engine: &Arc<ClustersEngine>) -> Result<()> {
    if engine.keeps_journal() {
        map_checkpoint::begin_run(engine).await?;
        map_checkpoint::renew(engine).await?;
    } else {
        let end = engine.lock().clusters.numbers.next_end();
        snapshot::mark_used(&engine.volume, end as u32).await?;
        engine.lock().clusters.numbers.reserve_until(end);
    }
    let mut state = engine.lock();
    state.ready = !engine.volume.is_closed();
    let woken = state.waiting.take();
    drop(state);
    woken.wake();
    Ok(())
}

/// Writes all entries to the device, and then the snapshot for the next start.
pub(super) async fn end(engine: &Arc<ClustersEngine>) -> Result<()> {
    let was_ready = std::mem::replace(&mut engine.lock().ready, false);
    engine.flush_all().await?;
    if !was_ready {
        return Ok(());
    }
    if engine.keeps_journal() {
        return map_checkpoint::close(engine).await;
    }
    let (number, words) = {
        let state = engine.lock();
        (state.clusters.numbers.next() as u32, words_of(&state, &engine.area))
    };
    let count = words.len() as u64;
    let says = [IS_CLEAN, count as u32, (count >> u32::BITS) as u32];
    snapshot::write(&engine.volume, &SnapshotPage { number, words: says }, &words).await
}

/// Returns the words of a snapshot: the full clusters from the least to the most recently used, each with its entries.
fn words_of(state: &ClustersState, area: &ClusterArea) -> Vec<u32> {
    let mut words = Vec::new();
    for cluster in state.clusters.lru() {
        let entries: Vec<_> = state.entries.chain(state.clusters.first(cluster)).collect();
        let span = (state.clusters.len_bytes(cluster) / area.cluster_bytes) as u32;
        words.extend([cluster, state.clusters.sequence(cluster), span << 16 | entries.len() as u32]);
        for (key, place) in entries {
            words.extend([key.0 as u32, key.prefix()]);
            words.push(u32::from(place.offset_sectors) << 16 | u32::from(place.sectors));
        }
    }
    words
}

/// Fills the empty tables from the words of a snapshot. Returns `None` if the words are not valid.
fn restore(state: &mut ClustersState, words: &[u32]) -> Option<()> {
    let mut words = words.iter().copied();
    while let Some(cluster) = words.next() {
        let sequence = words.next()?;
        let spans = words.next()?;
        // A cluster without entries would have been freed.
        if spans & 0xFFFF == 0 || !state.clusters.resume(cluster, sequence, u8::try_from(spans >> 16).ok()?) {
            return None;
        }
        let mut first: Option<EntryId> = None;
        for _ in 0..spans & 0xFFFF {
            let key = KeyHash(u64::from(words.next()?) | u64::from(words.next()?) << u32::BITS);
            let place = words.next()?;
            let place = EntryPlace { cluster, offset_sectors: (place >> 16) as u16, sectors: place as u16 };
            if state.entries.find(key).is_some() || state.entries.is_full() || !place.has_length() {
                return None;
            }
            first = Some(state.entries.insert(key, place, first));
            debug_assert_eq!(state.entries.find(key), Some(place), "what is restored is found");
            state.clusters.set_first(cluster, first);
            state.clusters.count_entry(cluster, place.sectors);
        }
    }
    Some(())
}
