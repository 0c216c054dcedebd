//! Makes a map survive a kill: a snapshot taken while the store is in use, and the journal of later changes.
//!
//! Owns: the headers, the places of snapshots, the ring of the journal, and the order in which they are written. The
//! content of a map is unknown here: the engine collects its listings ([`CheckpointSource`]) and reads them back.
//!
//! Invariants: before the first change of a run is written, the header marks the last close's snapshot as outdated. A
//! snapshot takes effect once all of it is durable, and only then are the pages that it replaces reused. A snapshot
//! does not show a single moment: changes made while it was written are in the journal, after the page at which it
//! began, and a start reads them after the snapshot.
//!
//! Cost: a start reads both once. In use, 24 bytes per change, and 24 bytes per entry whenever the journal has grown by
//! half of the ring, written in bounded pieces. Source: docs/internals/rfcs/0007-journal-of-the-map.md.

mod phase;
mod reading;
mod source;

pub(crate) use self::{
    reading::{MapCheckpointArea, read_header, read_journal, read_snapshot},
    source::{CheckpointEngine, CheckpointSource, MapPart},
};
use super::{
    effects::completion_for,
    journal::{JournalWrite, MapJournal},
};
use crate::{
    Error, ErrorKind, Result,
    device::AlignedBuffer,
    format::snapshot::{MapRecovery, PAGE_LISTING_COUNT, SnapshotHeader, encode_page},
    units::BLOCK_BYTES,
    volume::{Volume, turn::TaskTurn, waiters::wait_for},
};
use phase::{CheckpointPhase, SnapshotWalk};
use reading::write_headers;
use std::{io, sync::Arc};

/// Pages of a snapshot that are written in one step.
const STEP_PAGE_COUNT: u64 = 64;

/// The snapshots and the journal of one volume.
pub(crate) struct MapCheckpoint {
    area: MapCheckpointArea,
    pub(crate) journal: MapJournal,
    /// The header that was last written.
    header: SnapshotHeader,
    phase: CheckpointPhase,
}

impl MapCheckpoint {
    pub(crate) fn new(volume: &Volume) -> Self {
        let area = MapCheckpointArea::of(&volume.shape);
        let header = SnapshotHeader {
            generation: 0,
            whole: false,
            listing_count: 0,
            next_write: 0,
            pointer: 0,
            slot_counts: Vec::new(),
            recovery: (area.journal_pages > 0).then(MapRecovery::default),
        };
        let journal = MapJournal::new(volume.id, area.journal_start_bytes(), area.journal_pages);
        Self { area, journal, header, phase: CheckpointPhase::InEffect }
    }

    /// Continues with `header`, which an earlier run wrote.
    pub(crate) fn take_over(&mut self, header: SnapshotHeader) {
        assert_eq!(header.recovery.is_some(), self.journal.is_kept(), "a header says what its volume has");
        self.header = header;
    }

    /// Drops everything from earlier runs. The next header will describe an empty snapshot, and a journal that begins
    /// with page `next`.
    pub(crate) fn start_over(&mut self, next: u64) {
        (self.header.listing_count, self.header.slot_counts, self.header.pointer) = (0, Vec::new(), 0);
        if let Some(recovery) = &mut self.header.recovery {
            recovery.journal_from = next;
        }
        self.phase = CheckpointPhase::StartsOver;
        self.journal.go_on(next, next);
        assert!(!self.journal.is_begun(), "what is not believed is not written on");
    }

    /// Notes that memory lacks entries that the header's snapshot has, because the start could not load them. A removal
    /// of such an entry would have no effect at the next start. So a snapshot must be written before any change is
    /// acknowledged ([`renew`]).
    pub(crate) fn note_outdated(&mut self) {
        assert!(!self.journal.is_begun(), "before anything is acknowledged");
        if self.journal.is_kept() {
            self.phase = CheckpointPhase::Outdated;
        }
    }

    /// Returns a page number beyond all pages of the journal that the header describes.
    pub(crate) fn first_page_never_used(&self) -> u64 {
        self.header.recovery.map_or(0, |recovery| recovery.journal_from + self.area.journal_pages)
    }
}

/// Writes the header of this run. The header marks the snapshot of the last close as outdated, and reserves numbers for
/// writes. The snapshot and the journal for a start after a crash stay valid.
pub(crate) async fn begin_run<E: CheckpointEngine>(engine: &Arc<E>) -> Result<()> {
    let volume = engine.volume();
    let (header, end) = {
        let mut state = engine.lock_map_state();
        let end = state.numbers().next_end();
        let before = &state.checkpoint().header;
        // The time makes generations increase even if both headers were lost.
        let generation = (before.generation + 1).max(volume.clock.since_epoch().as_millis() as u64);
        let mut header = SnapshotHeader { generation, whole: false, next_write: end as u32, ..before.clone() };
        if let (Some(recovery), CheckpointPhase::StartsOver) = (&mut header.recovery, &state.checkpoint().phase) {
            (recovery.run, recovery.epoch) = (generation, volume.epoch());
        }
        (header, end)
    };
    write_headers(volume, &header).await?;
    let mut state = engine.lock_map_state();
    state.numbers().reserve_until(end);
    let checkpoint = state.checkpoint();
    checkpoint.journal.begin(header.generation);
    checkpoint.header = header;
    checkpoint.phase.note_run();
    Ok(())
}

/// Starts the next write of the journal, if one may begin.
pub(crate) fn send<E: CheckpointEngine>(engine: &Arc<E>) {
    let durable = engine.volume().journal.durable_until();
    let due = engine.lock_map_state().checkpoint().journal.next_write(durable, engine.volume().epoch());
    let Some(JournalWrite { offset_bytes, buffer }) = due else { return };
    let written = completion_for(engine, |engine, outcome| handle_written(engine, &outcome));
    engine.volume().submit_write(offset_bytes, buffer, written);
}

fn handle_written<E: CheckpointEngine>(engine: &Arc<E>, outcome: &io::Result<()>) {
    engine.volume().note_write(outcome);
    let woken = {
        let mut state = engine.lock_map_state();
        let journal = &mut state.checkpoint().journal;
        journal.handle_written(outcome.is_ok(), engine.volume().clock.now());
        engine.volume().journal.note_written(journal.written_until());
        state.as_mut().take()
    };
    send(engine);
    woken.wake();
}

/// Seals the journal's open page if its changes have waited for the flush interval. Retries failed writes.
pub(crate) fn flush_due<E: CheckpointEngine>(engine: &Arc<E>) {
    {
        let volume = engine.volume();
        let now = volume.clock.now();
        let mut state = engine.lock_map_state();
        let pointer = state.pointer();
        let journal = &mut state.checkpoint().journal;
        if volume.options.background {
            journal.try_again_at(now);
        } else {
            // A store without a maintenance thread retries whenever its caller does the due work.
            journal.try_again();
        }
        journal.seal_after(volume.options.flush_interval, now, pointer);
    }
    send(engine);
}

/// Waits until every change made before this call is on the volume.
///
/// # Errors
/// `Unavailable` if a change could not be written.
pub(crate) async fn write_down<E: CheckpointEngine>(engine: &Arc<E>) -> Result<()> {
    let (noted, failed_before) = {
        let mut state = engine.lock_map_state();
        let pointer = state.pointer();
        let journal = &mut state.checkpoint().journal;
        if !journal.is_begun() {
            // Nothing may be written yet, and no insertion or removal was acknowledged.
            return Ok(());
        }
        journal.seal(pointer);
        journal.try_again();
        // Waits for these changes only, and ignores earlier failures.
        (journal.noted(), journal.failed())
    };
    loop {
        send(engine);
        make_room(engine).await;
        let outcome = wait_for(
            || engine.lock_map_state(),
            |state: &mut E::State| {
                let journal = &state.checkpoint().journal;
                if journal.is_written_until(noted) {
                    Some(Some(true))
                } else if journal.failed() != failed_before {
                    Some(Some(false))
                } else {
                    // The ring is full and no other task is making room: this one does in the next round.
                    (journal.is_short() && engine.volume().head_is_free()).then_some(None)
                }
            },
        );
        match outcome.await {
            Some(true) => return Ok(()),
            Some(false) => {
                return Err(Error::new(ErrorKind::Unavailable, "what changed in the store could not be written down"));
            }
            None => {}
        }
    }
}

/// Writes a snapshot if the start could not load all entries of the last snapshot.
///
/// # Errors
/// `Unavailable` if the snapshot could not be written. In that case, nothing may be stored or removed.
pub(crate) async fn renew<E: CheckpointEngine>(engine: &Arc<E>) -> Result<()> {
    while engine.lock_map_state().checkpoint().phase.lacks_snapshot() {
        step(engine).await?;
    }
    Ok(())
}

/// Writes the whole snapshot now if the journal is short of space. Afterwards the journal's older pages are free.
pub(crate) async fn make_room<E: CheckpointEngine>(engine: &Arc<E>) {
    let is_short = engine.lock_map_state().checkpoint().journal.is_short();
    if is_short {
        keep_snapshot(engine, true, || ()).await;
    }
}

/// Waits until the journal has space, or until changes cannot be written. Called only in stores without a maintenance
/// thread. When this returns, the work that was due has been submitted, by this task or another one.
pub(crate) async fn await_room<E: CheckpointEngine>(engine: &Arc<E>) {
    loop {
        make_room(engine).await;
        let has_room = wait_for(
            || engine.lock_map_state(),
            |state: &mut E::State| {
                let checkpoint = state.checkpoint();
                let journal = &checkpoint.journal;
                let waits = journal.has_sealed() && journal.is_short() && !journal.is_stalled();
                if !waits || !journal.is_begun() || checkpoint.phase.is_closing() {
                    return Some(true);
                }
                engine.volume().head_is_free().then_some(false)
            },
        );
        if has_room.await {
            return;
        }
    }
}

/// The right to write a snapshot. Dropping it wakes the tasks that wait for space in the journal, even if no snapshot
/// was written, so that they check again.
struct SnapshotGuard<'a, E: CheckpointEngine> {
    engine: &'a Arc<E>,
    turn: Option<TaskTurn<'a>>,
}

impl<E: CheckpointEngine> Drop for SnapshotGuard<'_, E> {
    fn drop(&mut self) {
        assert!(self.turn.is_some(), "a right is given back once");
        self.turn = None;
        send(self.engine);
        let woken = self.engine.lock_map_state().as_mut().take();
        woken.wake();
    }
}

/// Writes as much of a snapshot as is due, or all of it if `is_forced` is set. Does nothing if another task is writing
/// the snapshot. Calls `pass` after each step.
pub(crate) async fn keep_snapshot<E: CheckpointEngine>(engine: &Arc<E>, is_forced: bool, pass: impl Fn()) {
    if !engine.lock_map_state().checkpoint().is_walk_due(is_forced) {
        return;
    }
    let Some(turn) = engine.volume().head_turn() else { return };
    let walking = SnapshotGuard { engine, turn: Some(turn) };
    while engine.lock_map_state().checkpoint().is_walk_due(is_forced) {
        if let Err(error) = step(engine).await {
            engine.volume().note_failure(&error);
            engine.lock_map_state().checkpoint().journal.note_failure(engine.volume().clock.now());
            break;
        }
        pass();
    }
    drop(walking);
}

impl MapCheckpoint {
    /// Returns whether changes wait to be written to the journal, or the next step of a snapshot is due.
    pub(crate) fn is_due(&self) -> bool {
        self.journal.is_dirty() || self.is_walk_due(false)
    }

    /// Returns whether a step of a snapshot is due now, or may be done early because `is_forced` is set.
    fn is_walk_due(&self, is_forced: bool) -> bool {
        let walk = match &self.phase {
            CheckpointPhase::Closing(_) => return false,
            CheckpointPhase::Writing(walk) => Some(walk),
            _ => None,
        };
        if !self.journal.is_begun() || (self.journal.is_stalled() && !is_forced) {
            return false;
        }
        let Some(due) = self.journal.snapshot_due() else { return walk.is_some() && is_forced };
        let Some(walk) = walk else { return true };
        is_forced || self.journal.is_short() || walk.page * 1000 <= due * self.area.snapshot_pages
    }
}

/// Writes the next pages of the snapshot. After the last page, writes the header that puts the snapshot into effect.
async fn step<E: CheckpointEngine>(engine: &Arc<E>) -> Result<()> {
    let volume = engine.volume();
    // If the future that wrote a header was dropped, the header may be in one copy only. It is completed before
    // anything else.
    let unfinished = engine.lock_map_state().checkpoint().phase.unfinished();
    if let Some(header) = unfinished {
        return let_rule(engine, header).await;
    }
    let (walk, area) = {
        let mut state = engine.lock_map_state();
        let generation = state.checkpoint().header.generation + 1;
        let begun = state.checkpoint().phase.take_begun();
        let Some(mut walk) = begun.or_else(|| SnapshotWalk::new(state.checkpoint(), generation)) else { return Ok(()) };
        if !walk.is_gathered {
            let count = (STEP_PAGE_COUNT * PAGE_LISTING_COUNT) as usize;
            let gathered = state.gather(walk.cursor, false, count);
            walk.carried.extend(gathered.listings);
            (walk.cursor, walk.is_gathered) = (gathered.next, gathered.next.is_none());
        }
        (walk, state.checkpoint().area)
    };
    let walk = write_listings(volume, area, walk).await?;
    if !walk.is_gathered {
        engine.lock_map_state().checkpoint().phase.enter(CheckpointPhase::Writing(walk));
        return Ok(());
    }
    // The pages must be durable before a header names them. Otherwise a power loss after the header would leave a
    // snapshot with holes.
    volume.sync().await?;
    let header = {
        let mut state = engine.lock_map_state();
        // Read now, not when the snapshot began: later changes in the journal may be beyond the old pointer.
        let pointer = state.pointer();
        let slot_counts = state.slot_counts();
        let before = &state.checkpoint().header;
        SnapshotHeader {
            generation: walk.recovery.generation.max(before.generation + 1),
            whole: false,
            listing_count: walk.listing_count,
            pointer,
            slot_counts,
            recovery: Some(MapRecovery { epoch: volume.epoch(), ..walk.recovery }),
            next_write: before.next_write,
        }
    };
    let_rule(engine, header).await
}

/// Writes `header`, which puts a durable snapshot into effect.
async fn let_rule<E: CheckpointEngine>(engine: &Arc<E>, header: SnapshotHeader) -> Result<()> {
    let recovery = header.recovery.expect("volumes with a journal have snapshots of a store in use");
    engine.lock_map_state().checkpoint().phase.enter(CheckpointPhase::Unfinished(header.clone()));
    write_headers(engine.volume(), &header).await?;
    let mut state = engine.lock_map_state();
    let checkpoint = state.checkpoint();
    assert!(header.generation > checkpoint.header.generation, "generations grow");
    checkpoint.header = header;
    checkpoint.phase.enter(CheckpointPhase::InEffect);
    checkpoint.journal.release_before(recovery.journal_from);
    checkpoint.journal.begin(checkpoint.header.generation);
    Ok(())
}

/// Writes the collected listings, as far as they fill whole pages. After the last listing, also writes the page that is
/// not full. Returns the updated state of the snapshot.
async fn write_listings(volume: &Volume, area: MapCheckpointArea, mut walk: SnapshotWalk) -> Result<SnapshotWalk> {
    let full = walk.carried.len() as u64 / PAGE_LISTING_COUNT * PAGE_LISTING_COUNT;
    let count = if walk.is_gathered { walk.carried.len() } else { full as usize };
    let page_count = (count as u64).div_ceil(PAGE_LISTING_COUNT);
    if walk.page + page_count > area.snapshot_pages {
        return Err(Error::new(ErrorKind::Full, "a snapshot of the store has no room on the volume"));
    }
    if count == 0 {
        return Ok(walk);
    }
    let mut buffer = AlignedBuffer::with_len((page_count * BLOCK_BYTES) as usize);
    let pages = walk.carried[..count].chunks(PAGE_LISTING_COUNT as usize);
    for ((number, listings), block) in
        (walk.page as u32..).zip(pages).zip(buffer.as_mut_slice().chunks_mut(BLOCK_BYTES as usize))
    {
        encode_page(volume.id, walk.recovery.generation, number, listings, block);
    }
    volume.write(area.page_bytes(walk.recovery.place, walk.page), Arc::new(buffer)).await?;
    walk.carried.drain(..count);
    walk.page += page_count;
    walk.listing_count += count as u64;
    Ok(walk)
}

/// Writes a snapshot when the store is closed. The next start loads the map from this snapshot. Its listings are in the
/// order of use, because the map no longer changes.
pub(crate) async fn close<E: CheckpointEngine>(engine: &Arc<E>) -> Result<()> {
    let volume = engine.volume();
    engine.lock_map_state().checkpoint().phase.close();
    let turn = wait_for(|| engine.lock_map_state(), |_| volume.head_turn()).await;
    let unfinished = engine.lock_map_state().checkpoint().phase.unfinished();
    if let Some(header) = unfinished {
        let_rule(engine, header).await?;
    }
    let (mut walk, mut header, area) = {
        let mut state = engine.lock_map_state();
        let header = SnapshotHeader {
            generation: state.checkpoint().header.generation + 1,
            whole: true,
            listing_count: state.entry_count(),
            next_write: state.numbers().next() as u32,
            pointer: state.pointer(),
            slot_counts: state.slot_counts(),
            recovery: None,
        };
        let place = MapRecovery { generation: header.generation, ..MapRecovery::default() };
        let mut walk =
            SnapshotWalk::new(state.checkpoint(), header.generation).unwrap_or_else(|| SnapshotWalk::of(place));
        (walk.recovery.run, walk.recovery.epoch) = (header.generation, volume.epoch());
        (walk, header, state.checkpoint().area)
    };
    while !walk.is_gathered {
        let MapPart { listings, next } =
            engine.lock_map_state().gather(walk.cursor, true, (STEP_PAGE_COUNT * PAGE_LISTING_COUNT) as usize);
        walk.carried.extend(listings);
        (walk.cursor, walk.is_gathered) = (next, next.is_none());
        walk = write_listings(volume, area, walk).await?;
    }
    assert_eq!(walk.listing_count, header.listing_count, "a closed store does not change");
    header.recovery = engine.lock_map_state().checkpoint().journal.is_kept().then_some(walk.recovery);
    volume.sync().await?;
    let outcome = write_headers(volume, &header).await;
    drop(turn);
    outcome
}
