//! The segmented log: places records, and returns the writes that are due.
//!
//! Owns: the open unit and segment, units in flight, and the order of segments. It does no I/O (it returns
//! [`LogTransfer`]s) and does not know the index. Invariants: records are on the volume in the order of their appends.
//! A segment is reused only after every older one of its generation, and a main one only after every older one, so that
//! a tombstone outlives the record it removes (see [`generations`]). Idea: STREAM and its packetizer (Markatos et al.,
//! USITS 1999), whole segments as in CacheLib's large-object cache.

mod buffers;
mod check;
pub(crate) mod checkpoint;
mod closing;
mod generations;
mod groups;
mod open;
mod parts;
mod pending;
mod room;
pub(crate) mod segments;
mod syncing;

use crate::{
    clock::ClockMoment,
    device::AlignedBuffer,
    engine::{
        kit::{effects::Effects, room::NoRoom},
        log::eviction::quarters::SHARE_AT_FIRST,
    },
    format::{
        SegmentRow, SegmentUse, VolumeId,
        record::{DecodedRecord, RecordParts},
        trailer::{ListedKind, TrailerRecord},
        unit::unit_header_bytes,
    },
    hash::KeyHash,
    units::{BLOCK_BYTES, Sector, SegmentGeometry, SegmentId},
    volume::waiters::{TaskWaiters, WokenTasks},
};
use buffers::{buffer_of, spare_buffer};
use closing::{ClosingSegment, TrailerInFlight};
use groups::GroupBuffers;
pub(crate) use groups::{FlushedGroups, MovedRecord, group_bytes_max, is_of_buffers, place_after};
use open::{AppendPlace, OpenSegment, OpenUnit, UnitStart};
use segments::SegmentTable;
use std::{collections::VecDeque, sync::Arc, time::Duration};
pub(crate) use syncing::{SequenceTraces, unknown_count_max};

/// Size in bytes at which a unit is written.
pub(crate) const UNIT_BYTES: u64 = 1 << 20;
/// Groups that wait for more records may take this many quarters of the memory for unwritten records.
const BUFFERED_QUARTERS: u64 = 3;
/// Minimum size of a unit, in bytes. It applies to volumes of small segments, where a unit is half a segment. In
/// shorter units, headers and padding would take too large a share.
const UNIT_BYTES_MIN: u64 = 64 << 10;
/// Minimum number of free segments that reclaim maintains, on any volume: one for reclaim alone, and one of each
/// generation for entries that are written while reclaim waits for the device.
pub(crate) const RESERVE_SEGMENTS_MIN: usize = 3;
/// The last sequence that a segment may get.
pub(crate) const SEQUENCE_LAST: u32 = u32::MAX - 1;
/// Once the sequences reach this number, the volume's next start numbers segments from the beginning. The remaining
/// sequences suffice until then.
pub(crate) const SEQUENCE_NEAR_END: u32 = SEQUENCE_LAST - (1 << 28);

/// The segments, units and positions of the log.
pub(crate) struct LogState {
    geometry: SegmentGeometry,
    volume: VolumeId,
    segments: Arc<SegmentTable>,
    /// Free segments, in the order of their next use.
    free: VecDeque<SegmentId>,
    /// Full segments of each generation, oldest first.
    sealed: [VecDeque<SegmentId>; 2],
    /// The segment of each generation that is being filled.
    open: [Option<OpenSegment>; 2],
    has_probation: bool,
    /// Maximum share of the segments in use that probation takes.
    probation_share: f64,
    closing: Vec<ClosingSegment>,
    in_flight: Vec<UnitInFlight>,
    next_sequence: u32,
    /// The greatest sequence that was used so far.
    last_sequence: u32,
    /// All segments with sequences below this one were begun before the last sync.
    synced_sequence: u32,
    /// Sequences of this run that may have left nothing on the volume, because writes failed. In ascending order. The
    /// superblock does not record them yet.
    untraced: Vec<u32>,
    next_ticket: u64,
    dirty_bytes: u64,
    dirty_bytes_max: u64,
    failed_units: u64,
    trailers_in_flight: Vec<TrailerInFlight>,
    /// Whether the free segments and the sequences are known, so that records can be appended.
    ready: bool,
    /// Whether no sequence may be used yet, so that nothing is appended or reclaimed.
    is_barred: bool,
    /// Number of free segments that only reclaim may use. Once only these are left, the remaining space of the open
    /// segment is also kept for reclaim.
    reclaim_only_count: usize,
    /// Buffers of written units, kept for the next units: one for each generation.
    spare: Vec<AlignedBuffer>,
    /// Emptied list of a full segment, whose memory the next segment reuses.
    spare_listings: Vec<TrailerRecord>,
    waiting: TaskWaiters,
    /// The groups that wait in memory for more records; `None` if the policy does not place groups together.
    groups: Option<GroupBuffers>,
    /// Whether a segment was reclaimed in this run.
    has_reclaimed: bool,
    /// Size in bytes at which a unit of this volume is written.
    unit_bytes: u64,
    /// Records that have moved since the last [`Self::take_moved`]. The records of each inner list moved at the same
    /// time.
    moved: Vec<Vec<MovedRecord>>,
    effects: Effects<LogTransfer>,
}

/// A write that the log requests. Its outcome is reported by [`LogState::unit_written`] or
/// [`LogState::trailer_written`].
pub(crate) enum LogTransfer {
    WriteUnit { ticket: u64, offset_bytes: u64, buffer: Arc<AlignedBuffer> },
    WriteTrailer { segment: SegmentId, offset_bytes: u64, buffer: Arc<AlignedBuffer> },
}

/// The caller that appends a record. Only reclaim may use the last free segments, so that reclaim can always continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendRole {
    Client,
    /// A client that stores an entry for which nothing shows demand yet. The entry goes to a probation segment.
    Newcomer,
    Reclaim,
    /// The buffers of groups, when they write waiting records to this generation. Clients and reclaim leave space for
    /// them.
    Buffers(SegmentRow),
}

impl AppendRole {
    fn generation(self) -> SegmentRow {
        match self {
            Self::Client | Self::Reclaim => SegmentRow::Main,
            Self::Newcomer => SegmentRow::Probation,
            Self::Buffers(row) => row,
        }
    }
}

/// The place at which a record was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendedRecord {
    pub(crate) position: Sector,
    /// Number of sectors that the record touches.
    pub(crate) sectors: u64,
    /// Number of the unit that contains the record, for [`LogState::is_pending`].
    pub(crate) ticket: u64,
    pub(crate) short_lived: bool,
}

/// A record whose unit could not be written.
pub(crate) struct LostRecord {
    pub(crate) key_hash: KeyHash,
    pub(crate) position: Sector,
    pub(crate) key: Box<[u8]>,
}

/// A complete unit that is being written.
struct UnitInFlight {
    ticket: u64,
    segment: SegmentId,
    start: Sector,
    used_bytes: u64,
    listings: Vec<TrailerRecord>,
    buffer: Arc<AlignedBuffer>,
}

impl LogState {
    /// Creates the state of a log. It accepts nothing until [`LogState::begin`].
    pub(crate) fn new(
        geometry: SegmentGeometry,
        volume: VolumeId,
        segments: Arc<SegmentTable>,
        dirty_bytes_max: u64,
    ) -> Self {
        Self {
            geometry,
            volume,
            segments,
            free: VecDeque::new(),
            sealed: <[VecDeque<SegmentId>; 2]>::default(),
            open: [None, None],
            has_probation: false,
            probation_share: SHARE_AT_FIRST,
            closing: Vec::new(),
            in_flight: Vec::new(),
            next_sequence: 1,
            last_sequence: 0,
            synced_sequence: 1,
            untraced: Vec::new(),
            next_ticket: 1,
            dirty_bytes: 0,
            dirty_bytes_max,
            failed_units: 0,
            trailers_in_flight: Vec::new(),
            ready: false,
            is_barred: false,
            reclaim_only_count: 0,
            spare: vec![spare_buffer(unit_bytes(&geometry))],
            spare_listings: Vec::new(),
            waiting: TaskWaiters::default(),
            groups: None,
            has_reclaimed: false,
            unit_bytes: unit_bytes(&geometry),
            moved: Vec::new(),
            effects: Effects::default(),
        }
    }

    /// Makes the volume use probation segments. Without this call, all records go to main segments.
    pub(crate) fn keep_probation(&mut self) {
        assert!(!self.ready && self.open_segments().next().is_none(), "a volume has probation or not");
        self.has_probation = true;
        self.spare.push(spare_buffer(self.unit_bytes));
    }

    pub(crate) fn has_probation(&self) -> bool {
        self.has_probation
    }

    /// Makes the log place the records of a group next to each other. A group waits for `window` after its last record.
    /// The caller must call [`Self::take_moved`] after each change.
    pub(crate) fn group_records(&mut self, window: Duration) {
        let bytes_max = self.dirty_bytes_max / 4 * BUFFERED_QUARTERS;
        self.groups = Some(GroupBuffers::new(window, &self.geometry, bytes_max));
    }

    /// Returns the moves of records since the last call, in steps. The caller must update the index before it releases
    /// the log's lock.
    pub(crate) fn take_moved(&mut self) -> Vec<Vec<MovedRecord>> {
        std::mem::take(&mut self.moved)
    }

    /// Makes the log accept records. Returns the tasks that wait for space.
    ///
    /// `free` lists the free segments in the order of their next use, `sealed` those in use from the oldest to the
    /// newest. `last_sequence` is the greatest known sequence, `first_sequence` the next to use. If `first_sequence` is
    /// `None`, nothing is appended or reclaimed until [`Self::lift_bar`].
    pub(crate) fn begin(
        &mut self,
        free: Vec<SegmentId>,
        sealed: &[(SegmentId, SegmentUse)],
        last_sequence: u32,
        first_sequence: Option<u32>,
    ) -> WokenTasks {
        assert!(!self.ready && sealed.is_sorted_by_key(|(_, of)| of.order()));
        for &(segment, of) in sealed {
            assert!(of.sequence <= last_sequence);
            self.segments.begin(segment, of, false);
            self.sealed[of.generation() as usize].push_back(segment);
        }
        self.last_sequence = last_sequence;
        self.free = free.into();
        self.is_barred = true;
        match first_sequence {
            Some(first_sequence) => self.lift_bar(first_sequence),
            None => self.waiting.take(),
        }
    }

    /// Allows appending, with sequences from `first_sequence` on. Returns the tasks that wait for space.
    pub(crate) fn lift_bar(&mut self, first_sequence: u32) -> WokenTasks {
        assert!(self.is_barred && (self.last_sequence + 1..=SEQUENCE_LAST).contains(&first_sequence));
        (self.next_sequence, self.synced_sequence) = (first_sequence, first_sequence);
        (self.ready, self.is_barred) = (true, false);
        self.waiting.take()
    }

    /// Returns how many bytes of records the device lacks.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    /// Returns the greatest used sequence while no other sequence may be used, so that nothing can be appended;
    /// otherwise `None`.
    pub(crate) fn is_barred(&self) -> Option<u32> {
        self.is_barred.then_some(self.last_sequence)
    }

    /// Returns the writes to start and the tasks to wake because of changes since the last call.
    pub(crate) fn take_effects(&mut self) -> Effects<LogTransfer> {
        std::mem::take(&mut self.effects)
    }

    /// Appends `record`, and sets its sequence.
    pub(crate) fn append(
        &mut self,
        record: &mut RecordParts<'_>,
        appender: AppendRole,
        now: ClockMoment,
    ) -> Result<AppendedRecord, NoRoom> {
        let len_bytes = self.geometry.stepped(record.len_bytes());
        let key_hash = record.meta.hash.key_hash();
        if !OpenSegment::fits_empty(&self.geometry, len_bytes) {
            return Err(NoRoom::Ever);
        }
        let kept = self.reclaim_only_count + self.segments_for_groups();
        let must_wait = self.dirty_bytes + len_bytes > self.dirty_bytes_max || self.free.len() < kept;
        if !self.ready || (appender != AppendRole::Reclaim && must_wait) {
            return Err(NoRoom::Now);
        }
        self.release_key(key_hash, now);
        if let Some(buffered) = self.buffer(record, appender, now) {
            return Ok(buffered);
        }
        let generation = appender.generation();
        let geometry = self.geometry;
        self.make_room(generation, |open| open.gap_before(&geometry, key_hash) + len_bytes);
        self.open_unit(appender, len_bytes, now.at)?;
        let open = self.open[generation as usize].as_mut().expect("a segment was opened above");
        let short_lived = self.segments.note(open.segment, record.meta.expires_at, now.unix_s);
        let AppendPlace { position, sectors, taken_bytes, ticket, .. } =
            open.append(&self.geometry, self.volume, record);
        self.dirty_bytes += taken_bytes;
        assert_eq!(self.geometry.segment_of(position), Some(open.segment), "a record goes into the open segment");
        Ok(AppendedRecord { position, sectors, ticket, short_lived })
    }

    /// Writes to the log the groups that have waited long enough. Seals the open units if one was opened at least
    /// `interval` ago.
    pub(crate) fn seal_due(&mut self, interval: Duration, now: ClockMoment) {
        self.release_complete(now);
        if self.unit_opened_at().is_some_and(|opened_at| now.at >= opened_at + interval) {
            SegmentRow::ALL.into_iter().for_each(|generation| self.seal_unit_of(generation));
        }
    }

    /// Writes to the log the groups that `groups` selects, and seals the open units, so that they are written.
    pub(crate) fn seal_unit(&mut self, groups: FlushedGroups, now: ClockMoment) {
        self.release_flushed(groups, now);
        SegmentRow::ALL.into_iter().for_each(|generation| self.seal_unit_of(generation));
    }

    /// Seals the open unit of a generation, so that it is written.
    fn seal_unit_of(&mut self, generation: SegmentRow) {
        let Some(open) = &mut self.open[generation as usize] else { return };
        let Some(unit) = open.seal_unit(&self.geometry, self.volume) else { return };
        let offset_bytes = unit.start.byte_offset();
        let end_bytes = self.geometry.segment_end_bytes(unit.segment);
        assert!(offset_bytes + unit.buffer.len() as u64 <= end_bytes, "a unit ends within its segment");
        self.effects.transfers.push(LogTransfer::WriteUnit {
            ticket: unit.ticket,
            offset_bytes,
            buffer: Arc::clone(&unit.buffer),
        });
        self.in_flight.push(unit);
    }

    /// Seals the open units and segments, so that the segments' trailers are written.
    pub(crate) fn seal_segment(&mut self, now: ClockMoment) {
        self.release_flushed(FlushedGroups::BegunBy(now.at), now);
        SegmentRow::ALL.into_iter().for_each(|generation| self.seal_segment_of(generation));
    }

    fn seal_segment_of(&mut self, generation: SegmentRow) {
        self.seal_unit_of(generation);
        let Some(open) = self.open[generation as usize].take() else { return };
        let units_in_flight = self.in_flight.iter().filter(|unit| unit.segment == open.segment).count() as u32;
        let sealed = &mut self.sealed[generation as usize];
        let last = sealed.back().map_or(0, |&last| self.segments.sequence(last));
        assert!(last < open.of.sequence, "segments of a generation are sealed in log order");
        sealed.push_back(open.segment);
        let OpenSegment { segment, of, listings, list_bytes, hidden_from, .. } = open;
        self.closing.push(ClosingSegment { segment, of, listings, list_bytes, units_in_flight, hidden_from });
        self.write_due_trailers();
    }

    /// Notes the outcome of writing a unit. If the write failed, returns the records of the unit.
    pub(crate) fn unit_written(&mut self, ticket: u64, ok: bool) -> Vec<LostRecord> {
        let Some(at) = self.in_flight.iter().position(|unit| unit.ticket == ticket) else {
            return Vec::new();
        };
        let mut lost = Vec::new();
        let unit = self.in_flight.swap_remove(at);
        let record_bytes = unit.used_bytes - unit_header_bytes(&self.geometry);
        assert!(record_bytes <= self.dirty_bytes, "what is written was counted");
        self.dirty_bytes -= record_bytes;
        if let Some(closing) = self.closing.iter_mut().find(|closing| closing.segment == unit.segment) {
            assert!(closing.units_in_flight > 0, "a unit that is written was on its way");
            closing.units_in_flight -= 1;
        }
        if !ok {
            self.failed_units += 1;
            let is_first_again = self.begin_again(&unit);
            if !is_first_again && unit.start.byte_offset() == self.geometry.segment_start_bytes(unit.segment) {
                self.hide(unit.segment, unit.ticket);
            }
            lost.extend(unit.listings.iter().filter_map(|listing| self.lost(&unit, listing)));
            // Recovery finds no units of an unsealed segment after a hole. A trailer lists them.
            let open = self.open_segments().find(|open| open.segment == unit.segment).map(|open| open.of.generation());
            if let Some(generation) = open.filter(|_| !is_first_again) {
                self.seal_segment_of(generation);
            }
        }
        self.write_due_trailers();
        self.keep_for_reuse(unit.buffer);
        self.effects.wake(self.waiting.take());
        lost
    }

    /// Makes the next unit take the place of `failed`, a unit that could not be written, if its segment is open and has
    /// no other unit.
    ///
    /// Without this, a device that fails for a while would use up all segments. Reclaim would then lose the oldest
    /// entries, because it could not rewrite them either.
    fn begin_again(&mut self, failed: &UnitInFlight) -> bool {
        let open = self.open.iter_mut().flatten().find(|open| open.segment == failed.segment);
        open.is_some_and(OpenSegment::begin_again)
    }

    /// Returns a record of a failed unit, to be removed from the index. Returns `None` for a part of a body.
    fn lost(&self, unit: &UnitInFlight, listing: &TrailerRecord) -> Option<LostRecord> {
        if listing.kind == ListedKind::Part {
            // A lookup that reads its entry will notice.
            return None;
        }
        let start_bytes = u64::from(listing.start_bytes);
        let position = self.geometry.sector_at(unit.segment, start_bytes);
        let unit_start_bytes = unit.start.byte_offset() - self.geometry.segment_start_bytes(unit.segment);
        let record = &unit.buffer.as_slice()[(start_bytes - unit_start_bytes) as usize..];
        let key = DecodedRecord::decode(self.volume, record).ok()?.key;
        Some(LostRecord { key_hash: listing.key_hash, position, key: record[key].into() })
    }

    /// Returns all tasks that wait for space.
    pub(crate) fn take_waiting(&mut self) -> WokenTasks {
        self.waiting.take()
    }

    /// Makes clients wait unless more than `free_count` segments are free, so that reclaim has space to rewrite a whole
    /// segment. If the number was greater before, returns the tasks to wake.
    pub(crate) fn keep_for_reclaim(&mut self, free_count: usize) -> WokenTasks {
        assert!(free_count < self.geometry.segment_count as usize, "not every segment is kept for reclaim");
        let is_lowered = free_count < std::mem::replace(&mut self.reclaim_only_count, free_count);
        if is_lowered { self.waiting.take() } else { WokenTasks::default() }
    }

    /// Returns the number of segments that hold records.
    pub(crate) fn segments_in_use(&self) -> u64 {
        let sealed: usize = self.sealed.iter().map(VecDeque::len).sum();
        (sealed + self.open_segments().count()) as u64
    }

    /// Returns the number of free segments. Does not count a segment that is still to be taken for the places of
    /// buffered records.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len() - usize::from(self.lacks_places()).min(self.free.len())
    }
}

impl AsMut<TaskWaiters> for LogState {
    fn as_mut(&mut self) -> &mut TaskWaiters {
        &mut self.waiting
    }
}

/// Returns the size of a unit in bytes. It is smaller on volumes of small segments.
fn unit_bytes(geometry: &SegmentGeometry) -> u64 {
    let half = geometry.segment_bytes / 2 / BLOCK_BYTES * BLOCK_BYTES;
    half.clamp(UNIT_BYTES_MIN, UNIT_BYTES).min(geometry.segment_bytes)
}
