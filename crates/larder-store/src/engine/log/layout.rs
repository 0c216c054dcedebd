//! The segmented log: which record goes where, what must be written now, what is not yet on the device.
//!
//! Owns: the open unit and segment, units on their way, the order of segments. Does not: do I/O (it
//! hands out [`Action`]s) or know the index. Invariants: records stand on the volume in the order
//! they were appended; a segment is used again only after every older one was, so that the volume
//! always holds an unbroken end of the log, and a tombstone outlives what it buries.
//! Idea: STREAM and its packetizer (Markatos et al., USITS 1999), whole segments as in CacheLib's large-object cache.

mod check;
pub(crate) mod checkpoint;
mod closing;
mod groups;
mod open;
mod pending;
pub(crate) mod segments;

use crate::{
    clock::Moment,
    device::AlignedBuffer,
    engine::kit::room::NoRoom,
    format::{
        VolumeId,
        record::{Decoded, Record},
        trailer::Listing,
    },
    hash::KeyHash,
    units::{BLOCK_BYTES, Geometry, SECTOR_BYTES, Sector, SegmentId},
    volume::waiters::{Waiters, Woken},
};
use closing::{Closing, TrailerInFlight};
pub(crate) use groups::Moved;
use open::{OpenSegment, OpenUnit};
use segments::SegmentTable;
use std::{collections::VecDeque, sync::Arc};

/// A unit is sent off when it has this many bytes.
pub(crate) const UNIT_BYTES: u64 = 1 << 20;
/// Most bytes of segments begun without a sync between: a crash of the machine may lose or keep them in any
/// order, so recovery looks this far behind the last one it finds.
const UNSYNCED_BYTES_MAX: u64 = 4 << 30;
/// The last sequence that is used.
pub(crate) const SEQUENCE_LAST: u32 = u32::MAX - 1;
/// From this sequence on it is time to see to it that the volume's next start begins anew: enough are left for whoever runs now.
pub(crate) const SEQUENCE_NEAR_END: u32 = SEQUENCE_LAST - (1 << 28);
/// Unit buffers kept for reuse.
const SPARE_COUNT_MAX: usize = 1;

/// The state of the log.
pub(crate) struct Log {
    geometry: Geometry,
    volume: VolumeId,
    segments: Arc<SegmentTable>,
    /// Segments to be used next, in this order.
    free: VecDeque<SegmentId>,
    /// Full segments, oldest first.
    sealed: VecDeque<SegmentId>,
    open: Option<OpenSegment>,
    closing: Vec<Closing>,
    in_flight: Vec<UnitInFlight>,
    next_sequence: u32,
    /// The greatest sequence begun.
    last_sequence: u32,
    /// Segments of sequences before this were begun before the last sync.
    synced_sequence: u32,
    next_ticket: u64,
    dirty_bytes: u64,
    dirty_bytes_max: u64,
    failed_units: u64,
    trailers_in_flight: Vec<TrailerInFlight>,
    /// Whether it is known which segments are free, and which sequences.
    ready: bool,
    /// Whether there is no sequence to be used: nothing is appended or reclaimed until one is there.
    is_barred: bool,
    /// Free segments of which the last so many, and what is left of the open one then, are for reclaim.
    reclaim_only_count: usize,
    spare: Vec<AlignedBuffer>,
    /// A closed segment's list, emptied: its memory serves the next segment.
    spare_listings: Vec<Listing>,
    waiting: Waiters,
    /// Whether records of one group are put side by side.
    grouped: bool,
    /// What that moved since it was last taken.
    moved: Vec<Moved>,
}

/// A transfer to be made; its outcome comes back by [`Log::unit_written`] or [`Log::trailer_written`].
pub(crate) enum Action {
    WriteUnit { ticket: u64, offset_bytes: u64, buffer: Arc<AlignedBuffer> },
    WriteTrailer { segment: SegmentId, offset_bytes: u64, buffer: Arc<AlignedBuffer> },
}

/// Who appends: reclaim may use the last free segment, others may not, so that it always can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appender {
    Client,
    Reclaim,
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) position: Sector,
    /// The unit it went to, for [`Log::is_pending`].
    pub(crate) ticket: u64,
    pub(crate) short_lived: bool,
}

/// A record that could not be written.
pub(crate) struct Lost {
    pub(crate) key_hash: KeyHash,
    pub(crate) position: Sector,
    pub(crate) key: Box<[u8]>,
}

/// A sealed unit until the device has it.
struct UnitInFlight {
    ticket: u64,
    segment: SegmentId,
    start: Sector,
    used_bytes: u64,
    listings: Vec<Listing>,
    buffer: Arc<AlignedBuffer>,
}

impl Log {
    /// A log that accepts nothing until [`Log::begin`].
    pub(crate) fn new(geometry: Geometry, volume: VolumeId, segments: Arc<SegmentTable>, dirty_bytes_max: u64) -> Self {
        let spare = (0..SPARE_COUNT_MAX)
            .map(|_| {
                let mut buffer = AlignedBuffer::with_len(unit_bytes(&geometry) as usize);
                // Touched now, so that memory does not grow later.
                buffer.as_mut_slice().fill(1);
                buffer
            })
            .collect();
        Self {
            geometry,
            volume,
            segments,
            free: VecDeque::new(),
            sealed: VecDeque::new(),
            open: None,
            closing: Vec::new(),
            in_flight: Vec::new(),
            next_sequence: 1,
            last_sequence: 0,
            synced_sequence: 1,
            next_ticket: 1,
            dirty_bytes: 0,
            dirty_bytes_max,
            failed_units: 0,
            trailers_in_flight: Vec::new(),
            ready: false,
            is_barred: false,
            reclaim_only_count: 0,
            spare,
            spare_listings: Vec::new(),
            waiting: Waiters::default(),
            grouped: false,
            moved: Vec::new(),
        }
    }

    /// Puts records of one group side by side; what that moves must be taken by [`Self::take_moved`].
    pub(crate) fn group_records(&mut self) {
        self.grouped = true;
    }

    /// The records that moved since this was last asked: to be followed before the log's lock is given up.
    pub(crate) fn take_moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moved)
    }

    /// Starts the log on what is known of the volume: `free` segments in the order of their use,
    /// `sealed` ones with their sequences, oldest first; `last_sequence` is the greatest that is known,
    /// `first_sequence` the next to be used, without which nothing is appended or reclaimed.
    /// Returns those that wait for room.
    pub(crate) fn begin(
        &mut self,
        free: Vec<SegmentId>,
        sealed: &[(SegmentId, u32)],
        last_sequence: u32,
        first_sequence: Option<u32>,
    ) -> Woken {
        assert!(!self.ready && sealed.is_sorted_by_key(|&(_, sequence)| sequence));
        for &(segment, sequence) in sealed {
            assert!(sequence <= last_sequence);
            self.segments.begin(segment, sequence, false);
        }
        self.last_sequence = last_sequence;
        self.sealed = sealed.iter().map(|&(segment, _)| segment).collect();
        self.free = free.into();
        self.is_barred = true;
        match first_sequence {
            Some(first_sequence) => self.lift_bar(first_sequence),
            None => self.waiting.take(),
        }
    }

    /// Begins to append, from `first_sequence` on. Returns those that wait for room.
    pub(crate) fn lift_bar(&mut self, first_sequence: u32) -> Woken {
        assert!(self.is_barred && (self.last_sequence + 1..=SEQUENCE_LAST).contains(&first_sequence));
        (self.next_sequence, self.synced_sequence) = (first_sequence, first_sequence);
        (self.ready, self.is_barred) = (true, false);
        self.waiting.take()
    }

    /// Returns how many bytes of records are not on the device yet.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Whether nothing can be appended for want of a sequence; the greatest that was used.
    pub(crate) fn is_barred(&self) -> Option<u32> {
        self.is_barred.then_some(self.last_sequence)
    }

    /// Appends `record` (its sequence is filled in here). The transfers this makes due go to `actions`.
    pub(crate) fn append(
        &mut self,
        record: &mut Record<'_>,
        appender: Appender,
        now: Moment,
        actions: &mut Vec<Action>,
    ) -> Result<Appended, NoRoom> {
        let len_bytes = record.len_sectors() * SECTOR_BYTES;
        if !OpenSegment::fits_empty(&self.geometry, len_bytes) {
            return Err(NoRoom::Ever);
        }
        let must_wait =
            self.dirty_bytes + len_bytes > self.dirty_bytes_max || self.free.len() < self.reclaim_only_count;
        if !self.ready || (appender == Appender::Client && must_wait) {
            return Err(NoRoom::Now);
        }
        if self.open.as_ref().is_some_and(|open| !open.unit_takes(len_bytes)) {
            self.seal_unit(actions);
        }
        if self.open.as_ref().is_some_and(|open| !open.takes(&self.geometry, len_bytes)) {
            self.seal_segment(actions);
        }
        if self.open.is_none() {
            self.open_segment(appender)?;
        }
        let open = self.open.as_mut().expect("a segment was opened above");
        if open.unit.is_none() {
            let capacity = open.unit_capacity(&self.geometry, len_bytes);
            let buffer = buffer_of(&mut self.spare, capacity);
            open.unit = Some(OpenUnit::new(buffer, capacity, self.next_ticket, now.at));
            self.next_ticket += 1;
        }
        self.dirty_bytes += len_bytes;
        let short_lived = self.segments.note(open.segment, record.meta.expires_at, now.unix_s);
        let (position, ticket) = open.append(&self.geometry, self.volume, record);
        assert_eq!(self.geometry.segment_of(position), Some(open.segment), "a record goes into the open segment");
        Ok(Appended { position, ticket, short_lived })
    }

    /// Sends off the open unit, if there is one with records.
    pub(crate) fn seal_unit(&mut self, actions: &mut Vec<Action>) {
        let Some(open) = &mut self.open else { return };
        if self.grouped {
            self.moved.extend(open.gather_groups(&self.geometry, self.volume, &mut self.spare));
        }
        let Some(unit) = open.seal_unit(&self.geometry, self.volume) else { return };
        let offset_bytes = unit.start.byte_offset();
        let end_bytes = self.geometry.segment_end_bytes(unit.segment);
        assert!(offset_bytes + unit.buffer.len() as u64 <= end_bytes, "a unit ends within its segment");
        actions.push(Action::WriteUnit { ticket: unit.ticket, offset_bytes, buffer: Arc::clone(&unit.buffer) });
        self.in_flight.push(unit);
    }

    /// Sends off the open unit and ends the open segment, so that its trailer will be written.
    pub(crate) fn seal_segment(&mut self, actions: &mut Vec<Action>) {
        self.seal_unit(actions);
        let Some(open) = self.open.take() else { return };
        let units_in_flight = self.in_flight.iter().filter(|unit| unit.segment == open.segment).count() as u32;
        let last = self.sealed.back().map_or(0, |&last| self.segments.sequence(last));
        assert!(last < open.sequence, "segments are sealed in log order");
        self.sealed.push_back(open.segment);
        let OpenSegment { segment, sequence, listings, hidden_from, .. } = open;
        self.closing.push(Closing { segment, sequence, listings, units_in_flight, hidden_from });
        self.write_due_trailers(actions);
    }

    /// Notes the outcome of a unit's write. Returns who waits; when it failed, what it held is in `lost`.
    pub(crate) fn unit_written(
        &mut self,
        ticket: u64,
        ok: bool,
        actions: &mut Vec<Action>,
        lost: &mut Vec<Lost>,
    ) -> Woken {
        let Some(at) = self.in_flight.iter().position(|unit| unit.ticket == ticket) else { return Woken::default() };
        let unit = self.in_flight.swap_remove(at);
        let record_bytes = unit.used_bytes - crate::format::unit::UNIT_HEADER_BYTES;
        assert!(record_bytes <= self.dirty_bytes, "what is written was counted");
        self.dirty_bytes -= record_bytes;
        if let Some(closing) = self.closing.iter_mut().find(|closing| closing.segment == unit.segment) {
            assert!(closing.units_in_flight > 0, "a unit that is written was on its way");
            closing.units_in_flight -= 1;
        }
        if !ok {
            self.failed_units += 1;
            if unit.start.byte_offset() == self.geometry.segment_start_bytes(unit.segment) {
                self.hide(unit.segment, unit.ticket);
            }
            lost.extend(unit.listings.iter().filter_map(|listing| self.lost(&unit, listing)));
            // Behind a hole, units of an unsealed segment are not found again; a trailer lists them.
            if self.open.as_ref().is_some_and(|open| open.segment == unit.segment) {
                self.seal_segment(actions);
            }
        }
        self.write_due_trailers(actions);
        self.keep_for_reuse(unit.buffer);
        self.waiting.take()
    }

    /// A record of a unit that could not be written.
    fn lost(&self, unit: &UnitInFlight, listing: &Listing) -> Option<Lost> {
        let start = self.geometry.segment_start_bytes(unit.segment) / SECTOR_BYTES;
        let position = Sector(start + u64::from(listing.sector));
        let record = &unit.buffer.as_slice()[(position.byte_offset() - unit.start.byte_offset()) as usize..];
        let key = Decoded::decode(self.volume, record).ok()?.key;
        Some(Lost { key_hash: listing.key_hash, position, key: record[key].into() })
    }

    /// Gives back the oldest segment, whose records are no longer needed.
    pub(crate) fn release_oldest(&mut self, segment: SegmentId) -> Woken {
        assert_eq!(self.sealed.pop_front(), Some(segment), "segments are reclaimed oldest first");
        self.free.push_back(segment);
        self.waiting.take()
    }

    /// Gives back all segments used before `sequence`: nothing in them counts any more.
    pub(crate) fn forget_before(&mut self, sequence: u32) -> Woken {
        assert!(sequence <= self.last_sequence, "what counts from now on was begun");
        while let Some(&segment) = self.sealed.front()
            && self.segments.sequence(segment) < sequence
        {
            self.sealed.pop_front();
            self.segments.begin(segment, 0, false);
            self.free.push_back(segment);
        }
        self.waiting.take()
    }

    /// The sequence up to which everything is with the device, and will not change.
    pub(crate) fn clean_through(&self) -> u32 {
        let open = self.open.iter().map(|open| open.sequence);
        let closing = self.closing.iter().map(|closing| closing.sequence);
        let trailers = self.trailers_in_flight.iter().map(|trailer| self.segments.sequence(trailer.segment));
        open.chain(closing).chain(trailers).min().map_or(self.last_sequence, |unclean| unclean - 1)
    }

    /// All segments in the order of their next use, with the sequences of those in use.
    pub(crate) fn order(&self) -> Vec<(SegmentId, Option<u32>)> {
        let used = self.sealed.iter().copied().chain(self.open.as_ref().map(|open| open.segment));
        let used = used.map(|segment| (segment, Some(self.segments.sequence(segment))));
        self.free.iter().map(|&segment| (segment, None)).chain(used).collect()
    }

    /// The first sequence not begun yet: what [`Self::synced_before`] is told once a sync is done.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// Notes that a sync was made when `sequence` was the next one.
    pub(crate) fn synced_before(&mut self, sequence: u32) {
        assert!(sequence <= self.next_sequence, "a sync covers nothing that is to come");
        self.synced_sequence = self.synced_sequence.max(sequence);
    }

    /// Whether a sync is needed soon, lest [`UNSYNCED_BYTES_MAX`] keeps writers waiting.
    pub(crate) fn needs_sync(&self) -> bool {
        self.next_sequence - self.synced_sequence > unsynced_count_max(&self.geometry) / 2
    }

    /// Takes all that wait.
    pub(crate) fn take_waiting(&mut self) -> Woken {
        self.waiting.take()
    }

    /// The oldest segment, if it can be reclaimed now.
    pub(crate) fn oldest_clean(&self) -> Option<SegmentId> {
        self.sealed.front().copied().filter(|&segment| self.ready && !self.segments.is_dirty(segment))
    }

    /// Has clients append only while so many segments are free: reclaim then finds room for all of a segment, whatever else is appended.
    /// Returns who waits, if fewer than before are kept.
    pub(crate) fn keep_for_reclaim(&mut self, free_count: usize) -> Woken {
        let is_lowered = free_count < std::mem::replace(&mut self.reclaim_only_count, free_count);
        if is_lowered { self.waiting.take() } else { Woken::default() }
    }

    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    fn open_segment(&mut self, appender: Appender) -> Result<(), NoRoom> {
        if self.next_sequence > SEQUENCE_LAST {
            return Err(NoRoom::Spent);
        }
        let kept = if appender == Appender::Reclaim { 0 } else { 1 };
        if self.free.len() <= kept {
            return Err(NoRoom::Now);
        }
        if self.next_sequence - self.synced_sequence >= unsynced_count_max(&self.geometry) {
            return Err(NoRoom::Now);
        }
        let segment = self.free.pop_front().ok_or(NoRoom::Now)?;
        let sequence = self.next_sequence;
        assert!(sequence > self.last_sequence, "no two segments share a sequence");
        self.next_sequence = sequence + 1;
        self.last_sequence = sequence;
        let oldest_sequence = self.sealed.front().map_or(sequence, |&oldest| self.segments.sequence(oldest));
        self.segments.begin(segment, sequence, true);
        let listings = std::mem::take(&mut self.spare_listings);
        self.open = Some(OpenSegment::new(segment, sequence, oldest_sequence, listings));
        Ok(())
    }

    /// Keeps a written buffer, unless the device or a reader still has it.
    fn keep_for_reuse(&mut self, buffer: Arc<AlignedBuffer>) {
        if let Ok(mut buffer) = Arc::try_unwrap(buffer)
            && self.spare.len() < SPARE_COUNT_MAX
        {
            buffer.extend_to_capacity();
            self.spare.push(buffer);
        }
    }
}

impl AsMut<Waiters> for Log {
    fn as_mut(&mut self) -> &mut Waiters {
        &mut self.waiting
    }
}

/// A spare buffer of at least `len_bytes`, or a new one.
fn buffer_of(spare: &mut Vec<AlignedBuffer>, len_bytes: u64) -> AlignedBuffer {
    assert!(len_bytes > 0, "a unit has bytes");
    match spare.pop() {
        Some(buffer) if buffer.len() as u64 >= len_bytes => buffer,
        _ => AlignedBuffer::with_len(len_bytes as usize),
    }
}

/// Most segments that are begun without a sync between.
pub(crate) fn unsynced_count_max(geometry: &Geometry) -> u32 {
    (UNSYNCED_BYTES_MAX / geometry.segment_bytes) as u32
}

/// Bytes a unit gathers, less on volumes of small segments.
fn unit_bytes(geometry: &Geometry) -> u64 {
    UNIT_BYTES.min(geometry.segment_bytes / 4).next_multiple_of(BLOCK_BYTES)
}
