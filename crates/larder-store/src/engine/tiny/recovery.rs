//! Loads the data of an earlier run of `tiny`: the front's entries, the write positions of its rings, the content of
//! sets.
//!
//! The whole front is read. The sequences of packs show which segment is the newest; loading begins with the oldest.
//! Until that is done, every lookup misses and nothing is stored. The summaries come from the snapshot of a clean
//! close. Without one, all sets are read in the background, and a set that is not known yet misses. Invariant: of two
//! records of a key in the front, the newer counts, and both take precedence over one in a set. Cost: a read of each
//! segment of the front, and one block of each segment of the long ring; without a snapshot, one pass over the sets.

use super::{
    TinyEngine, contents,
    front::{FrontIndex, FrontSlot, FrontState},
    outgoing::packs_in,
    prefix_of,
    ring::RingArea,
    snapshot,
};
use crate::{
    format::pack::{self, PackHeader, PackedKind},
    hash::KeyHash,
    units::SetNumber,
    volume::{counters::add, waiters::WokenTasks},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::{Arc, atomic::Ordering};

/// Number of reads that are in flight at the same time.
const READS_AT_ONCE: u32 = 32;
/// Number of sets that one read fetches.
const SETS_PER_READ: u32 = 64;
/// Number of sequences that are skipped after an earlier run. It exceeds the number of packs that can have been in
/// flight.
const SEQUENCE_MARGIN: u64 = 1024;

/// Findings about the ring, a circular log of packs, that an earlier run left on the volume.
struct FoundRing {
    /// Sequence of the first pack in each segment; 0 if there is none.
    first_sequences: Vec<u64>,
    /// The greatest sequence of a pack.
    last_sequence: u64,
    /// Smallest sequence of a pack that is not outdated. Older packs are ignored.
    oldest_sequence: u64,
    widening: SequenceWidening,
}

/// Converts the 32-bit sequences on the volume, which wrap around, to comparable 64-bit numbers. All packs of a ring, a
/// circular log, are less than 2^31 sequences apart, so later packs get greater numbers.
#[derive(Clone, Copy, Default)]
struct SequenceWidening(Option<u32>);

impl SequenceWidening {
    fn of(&mut self, sequence: u32) -> u64 {
        let origin = *self.0.get_or_insert(sequence);
        let ahead = sequence.wrapping_sub(origin) as i32;
        let widened = ((1 << u32::BITS) + u64::from(origin)).wrapping_add_signed(i64::from(ahead));
        assert_eq!(widened as u32, sequence, "the lower half is the sequence itself");
        widened
    }
}

/// An entry that was found in the front, the log before the sets, and the sequence of its pack.
struct FoundEntry {
    sequence: u64,
    key_hash: KeyHash,
    offset_bytes: u64,
    state: FrontState,
}

/// Loads the entries of an earlier run, and then allows entries to be stored.
pub(super) async fn run(engine: &Arc<TinyEngine>) {
    let long = probe(engine, &engine.plan.long).await;
    let front = probe(engine, &engine.plan.front).await;
    let (front, entries) = read_front(engine, front).await;
    let known = snapshot::take(engine, front.last_sequence).await;
    let woken = begin(engine, &front, &long, &entries, known);
    woken.wake();
    scan_sets(engine).await;
}

/// Reads the first block of each segment of a ring, a circular log, and the whole newest segment.
async fn probe(engine: &TinyEngine, area: &RingArea) -> FoundRing {
    let mut firsts = Vec::with_capacity(area.segment_count as usize);
    for from in (0..area.segment_count).step_by(READS_AT_ONCE as usize) {
        let batch = from..area.segment_count.min(from + READS_AT_ONCE);
        let probes = batch.map(async |segment| {
            let start = area.segment_start_bytes(segment);
            let bytes = read(engine, start, RingArea::DIRECTORY_BYTES).await?;
            pack::decode_header(engine.volume.id, start, &bytes).ok().map(|header| header.sequence)
        });
        firsts.extend(join_all(probes).await);
    }
    let mut widening = SequenceWidening::default();
    let first_sequences: Vec<u64> =
        firsts.into_iter().map(|first| first.map_or(0, |sequence| widening.of(sequence))).collect();
    let mut found = FoundRing { last_sequence: 0, oldest_sequence: 0, first_sequences, widening };
    let newest = (0..area.segment_count).max_by_key(|&segment| found.first_sequences[segment as usize]);
    if let Some(segment) = newest {
        let start = area.segment_start_bytes(segment);
        let bytes = read(engine, start, area.segment_bytes).await.unwrap_or_default();
        for pack in packs_in(engine.volume.id, start, &bytes) {
            found.note(&pack.header);
        }
    }
    let oldest = found.oldest_sequence;
    found.first_sequences.iter_mut().filter(|first| **first < oldest).for_each(|first| *first = 0);
    found
}

impl FoundRing {
    /// Notes a pack that was found in the ring, a circular log of packs. Returns the pack's sequence as a comparable
    /// number.
    fn note(&mut self, header: &PackHeader) -> u64 {
        let sequence = self.widening.of(header.sequence);
        self.last_sequence = self.last_sequence.max(sequence);
        self.oldest_sequence = self.oldest_sequence.max(self.widening.of(header.oldest_sequence));
        assert!(sequence <= self.last_sequence, "the last is the greatest");
        sequence
    }
}

/// Reads the whole front, the log before the sets. Returns the findings about it, and the entries of packs that are not
/// outdated.
async fn read_front(engine: &TinyEngine, mut found: FoundRing) -> (FoundRing, Vec<FoundEntry>) {
    let area = &engine.plan.front;
    let mut packs = Vec::new();
    for segment in 0..area.segment_count {
        let start = area.segment_start_bytes(segment);
        let bytes = read(engine, start, area.segment_bytes).await.unwrap_or_default();
        for pack in packs_in(engine.volume.id, start, &bytes) {
            packs.push((segment, found.note(&pack.header), pack));
        }
    }
    // Only now is it known which packs count: the newest segment may have lost its first pack.
    packs.retain(|(_, sequence, _)| *sequence >= found.oldest_sequence);
    let mut entries = Vec::new();
    found.first_sequences.fill(0);
    for (segment, sequence, pack) in packs {
        let first = &mut found.first_sequences[segment as usize];
        *first = if *first == 0 { sequence } else { sequence.min(*first) };
        let offset = pack.header.offset_bytes;
        entries.extend(pack.listings.iter().map(|listing| FoundEntry {
            sequence,
            key_hash: listing.key_hash,
            offset_bytes: offset + u64::from(listing.at),
            state: if listing.kind == PackedKind::Tombstone { FrontState::Removed } else { FrontState::Unused },
        }));
    }
    entries.sort_by_key(|entry| (entry.sequence, entry.offset_bytes));
    (found, entries)
}

/// Starts the front, the log before the sets, and the long ring, the log of long entries. Fills the index of the front
/// with the entries that were found.
fn begin(
    engine: &TinyEngine,
    front: &FoundRing,
    long: &FoundRing,
    entries: &[FoundEntry],
    known: Option<snapshot::KnownFront>,
) -> WokenTasks {
    let mut state = engine.lock();
    let state = &mut *state;
    assert!(!state.ready, "the front is found once");
    for (ring, found) in [(&mut state.front, front), (&mut state.long, long)] {
        if found.last_sequence > 0 {
            ring.resume(found.first_sequences.clone(), found.last_sequence + SEQUENCE_MARGIN);
        }
    }
    let usual = engine.plan.front_slots(engine.volume.options.mean_entry_bytes);
    if entries.len() as u64 > usual {
        // Some of these were already moved to sets. Until they are moved again, the index is larger than usual.
        state.index = FrontIndex::new(entries.len() as u64);
    }
    for entry in entries {
        let slot = FrontSlot {
            prefix: prefix_of(entry.key_hash),
            granule: engine.granule(entry.offset_bytes),
            state: entry.state,
        };
        if state.index.insert(slot).is_err() {
            state.forget_key(entry.key_hash);
        }
    }
    if let Some(known) = known {
        state.sets.load(&known.words);
        state.set_entries = known.set_entries;
    }
    state.ready = true;
    state.waiting.take()
}

/// Reads the sets whose content is not known from a snapshot.
async fn scan_sets(engine: &TinyEngine) {
    let set_count = engine.plan.set_count;
    let total = u64::from(set_count.div_ceil(SETS_PER_READ));
    engine.volume.counters.recoverable_segments.store(total, Ordering::Relaxed);
    for first in (0..set_count).step_by(SETS_PER_READ as usize) {
        let end = set_count.min(first + SETS_PER_READ);
        let sets = (first..end).map(|set| SetNumber(u64::from(set)));
        let first = SetNumber(u64::from(first));
        let unknown = {
            let state = engine.lock();
            sets.clone().any(|set| state.sets.version(set) == 0)
        };
        if unknown && !engine.volume.is_closed() {
            let len = (u64::from(end) - first.0) * engine.plan.set_bytes;
            let bytes = read(engine, engine.plan.set_start_bytes(first), len).await.unwrap_or_default();
            sets.for_each(|set| note_set(engine, set, first, &bytes));
        }
        add(&engine.volume.counters.recovered_segments, 1);
    }
}

/// Notes the content of `set`. `bytes` are the bytes of several sets, beginning with the set `first`.
fn note_set(engine: &TinyEngine, set: SetNumber, first: SetNumber, bytes: &Bytes) {
    let at = ((set.0 - first.0) * engine.plan.set_bytes) as usize;
    let own = bytes.get(at..at + engine.plan.set_bytes as usize);
    let found = own.and_then(|own| {
        let directory = contents::directory(engine.volume.id, engine.plan.set_start_bytes(set), own)?;
        let key_hashes = directory.listings.iter().map(|listing| listing.key_hash(&engine.volume, own));
        Some((directory.version, key_hashes.collect::<Vec<_>>()))
    });
    let mut state = engine.lock();
    // The set was written since, so its content is known.
    if state.sets.version(set) != 0 {
        return;
    }
    match found {
        Some((version @ 1..=15, key_hashes)) => {
            state.set_entries += key_hashes.len() as u64;
            state.sets.note(set, version, key_hashes);
        }
        // The set was never written.
        _ if own.is_some_and(|own| own.iter().all(|&byte| byte == 0)) => state.sets.forget(set),
        _ => state.forget_set(set),
    }
}

/// Reads `len_bytes` at `offset_bytes`. Returns `None` if that fails; the failure is counted.
async fn read(engine: &TinyEngine, offset_bytes: u64, len_bytes: u64) -> Option<Bytes> {
    engine.volume.read_for_start(offset_bytes, len_bytes).await.ok().map(Bytes::from_owner)
}
