//! Buffers of groups: the records of a page wait here for the others of it, and are written next to each other.
//!
//! Owns: the places of buffered records. They are in a segment that is kept free for this, so that the index finds a
//! record as any other. Nothing is written to that segment. It is set aside when the first record of a group comes,
//! because it costs hits on a volume of few segments. When a buffer is released, its records are appended to the open
//! unit, and the index follows them to their final places. [`WaitingGroups`] decides when a group is complete.
//!
//! Invariants: every buffered record finds room when it is released, because clients and reclaim leave as many segments
//! ([`LogState::segments_for_groups`]). A record waits for no other of its key: the older one is released first. A
//! flush releases the buffers that it covers. The records of a group that go to different generations wait apart, and
//! those that reclaim rewrites only until it has read its segment. Cost: the records in memory, which count as bytes to
//! be written, and once there are groups, a segment of the volume. Source: HashCache (NSDI 2009), which buffers each
//! group.

use super::{
    AppendRole, AppendedRecord, LogState, RESERVE_SEGMENTS_MIN, SEQUENCE_LAST,
    open::{AppendPlace, BufferedRecord},
    syncing::unsynced_count_max,
};
use crate::{
    clock::ClockMoment,
    engine::kit::gathering::{GatheredGroup, WaitingGroups},
    format::{
        SegmentRow, SegmentUse,
        record::{RecordKind, RecordParts},
        trailer::{LISTING_BYTES, ListedKind},
    },
    hash::KeyHash,
    units::{SECTOR_BYTES, Sector, SegmentGeometry, SegmentId, sectors},
};
use std::{collections::HashMap, time::Duration};

/// Maximum length of a group, in bytes. One read fetches a whole group.
const GROUP_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a group on packed volumes, in bytes. The index there cannot tell the first record of a group from
/// a single long record, so lookups that need only the front of a record read it whole.
const PACKED_GROUP_BYTES_MAX: u64 = 128 << 10;
/// A group may take at most 1/`GROUP_DIVISOR` of a segment.
const GROUP_DIVISOR: u64 = 4;
/// A buffered record may take at most 1/`RECORD_DIVISOR` of a segment. The end of a segment may stay empty up to this
/// length.
const RECORD_DIVISOR: u64 = 16;
/// Maximum number of bytes that a record takes in addition to its own length: the gap before it, and its listing.
const RECORD_EXCESS_BYTES: u64 = SECTOR_BYTES + LISTING_BYTES;
/// Sequence of the segment whose positions are given to buffered records until these are written. It is the highest
/// sequence, so that buffered records count as newer than all other records of their keys.
const BUFFERS_SEQUENCE: u32 = SEQUENCE_LAST + 1;

/// A record that moved to another position. It may be the first record of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedRecord {
    pub(crate) key_hash: KeyHash,
    pub(crate) from: Sector,
    pub(crate) to: Sector,
    /// Sectors to read at the new position to get the record and the remainder of its group.
    pub(crate) sectors: u64,
    pub(crate) short_lived: bool,
}

/// The buffered groups that a flush writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushedGroups {
    /// Writes the groups whose first record was buffered at or before this time.
    BegunBy(Duration),
    /// Writes no group, because the flush is for a record without a group.
    None,
}

/// Follows the moves in `steps`. Returns the present position of the record that was at `position` before these moves.
pub(crate) fn place_after(steps: &[Vec<MovedRecord>], position: Sector) -> Sector {
    let follow = |at, step: &Vec<MovedRecord>| step.iter().find(|moved| moved.from == at).map_or(at, |moved| moved.to);
    steps.iter().fold(position, follow)
}

/// Returns the maximum length of a group on this volume, in bytes.
pub(crate) fn group_bytes_max(geometry: &SegmentGeometry) -> u64 {
    let most_bytes = if geometry.is_packed() { PACKED_GROUP_BYTES_MAX } else { GROUP_BYTES_MAX };
    most_bytes.min(geometry.segment_bytes / GROUP_DIVISOR)
}

/// Returns whether `sequence` is that of the segment whose positions are given to buffered records.
pub(crate) fn is_of_buffers(sequence: u32) -> bool {
    sequence == BUFFERS_SEQUENCE
}

/// Identifies the records of one group that will be written to the same generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId {
    row: SegmentRow,
    group: u32,
}

/// The groups of a volume whose records wait in memory for more records.
pub(super) struct GroupBuffers {
    waiting: WaitingGroups<GroupId, BufferedRecord>,
    /// Segment that gives buffered records their positions until they are written; `None` until it is wanted and a free
    /// segment can be spared for it.
    pub(super) segment: Option<SegmentId>,
    /// Whether a record of a group was to be buffered in this run.
    is_wanted: bool,
    record_bytes_max: u64,
    /// For each generation, the maximum number of bytes that the buffered records take when they are written.
    room_bytes: [u64; 2],
    /// The group of the record at each place. A place is the number of a sector in `segment`.
    places: HashMap<u64, GroupId>,
    /// The group of each buffered key.
    keys: HashMap<KeyHash, GroupId>,
    last_place: u64,
    place_count: u64,
}

impl GroupBuffers {
    /// Creates empty buffers for up to `bytes_max` bytes of records in total.
    pub(super) fn new(window: Duration, geometry: &SegmentGeometry, bytes_max: u64) -> Self {
        let group_bytes_max = group_bytes_max(geometry).min(bytes_max);
        Self {
            waiting: WaitingGroups::new(window, group_bytes_max, bytes_max),
            segment: None,
            is_wanted: false,
            record_bytes_max: group_bytes_max.min(geometry.segment_bytes / RECORD_DIVISOR),
            room_bytes: [0; 2],
            places: HashMap::new(),
            keys: HashMap::new(),
            last_place: 0,
            place_count: geometry.segment_bytes / SECTOR_BYTES,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.waiting.bytes()
    }

    /// Returns the record at a place, which is the number of a sector in the segment.
    pub(super) fn record_at(&self, place: u64) -> Option<&[u8]> {
        let group = self.waiting.group(*self.places.get(&place)?)?;
        let record = group.records.iter().find(|record| record.place == place)?;
        Some(&record.bytes)
    }

    /// Checks that every record is counted, and is found by its key and its place.
    pub(super) fn check(&self) {
        let is_found = |(id, record): (GroupId, &BufferedRecord)| {
            self.places.get(&record.place) == Some(&id) && self.keys.get(&record.key_hash) == Some(&id)
        };
        assert!(self.waiting.records().all(is_found), "a buffered record is found by its place and its key");
        let count = self.waiting.records().count();
        assert_eq!((count, self.keys.len()), (self.places.len(), self.places.len()));
        self.waiting.check(|record| record.bytes.len() as u64);
        let room_bytes = self.bytes() + count as u64 * RECORD_EXCESS_BYTES;
        assert_eq!(room_bytes, self.room_bytes.iter().sum::<u64>(), "the room of records is counted");
    }

    /// Returns the next free place; `None` if all places are used. A place is used again only after all others.
    fn free_place(&self) -> Option<u64> {
        let mut after = (1..=self.place_count).map(|step| (self.last_place + step) % self.place_count);
        if self.places.len() as u64 == self.place_count {
            return None;
        }
        after.find(|place| !self.places.contains_key(place))
    }

    fn put(&mut self, id: GroupId, record: BufferedRecord, now: Duration) {
        let len_bytes = record.bytes.len() as u64;
        self.last_place = record.place;
        self.room_bytes[id.row as usize] += len_bytes + RECORD_EXCESS_BYTES;
        self.places.insert(record.place, id);
        let other = self.keys.insert(record.key_hash, id);
        assert_eq!(other, None, "a record waits for no other of its key");
        self.waiting.put(id, record, len_bytes, now);
    }

    fn take(&mut self, id: GroupId) -> Option<GatheredGroup<BufferedRecord>> {
        let group = self.waiting.take(id)?;
        self.room_bytes[id.row as usize] -= group.len_bytes + group.records.len() as u64 * RECORD_EXCESS_BYTES;
        for record in &group.records {
            self.places.remove(&record.place);
            self.keys.remove(&record.key_hash);
        }
        Some(group)
    }
}

impl LogState {
    /// Returns whether a record will wait in memory for others of its group, if there is space.
    pub(super) fn is_buffered(&self, record: &RecordParts<'_>) -> bool {
        let len_bytes = self.geometry.stepped(record.len_bytes());
        let fits = self.groups.as_ref().is_some_and(|groups| len_bytes <= groups.record_bytes_max);
        fits && record.meta.group != 0 && record.meta.kind == RecordKind::Entry
    }

    /// Buffers a record of a group. Returns `None` if the record is not to be buffered, or if there is no space; the
    /// caller then appends the record to the log.
    pub(super) fn buffer(
        &mut self,
        record: &mut RecordParts<'_>,
        appender: AppendRole,
        now: ClockMoment,
    ) -> Option<AppendedRecord> {
        if !self.is_buffered(record) {
            return None;
        }
        self.begin_groups();
        let len_bytes = self.geometry.stepped(record.len_bytes());
        let id = GroupId { row: appender.generation(), group: record.meta.group };
        let groups = self.groups.as_ref()?;
        let segment = groups.segment?;
        if groups.waiting.is_over(id, len_bytes, now.at) {
            self.release_group(id, now);
        }
        let is_full = |groups: &&GroupBuffers| {
            groups.waiting.is_full(len_bytes) || groups.places.len() as u64 == groups.place_count
        };
        while let Some(groups) = self.groups.as_ref().filter(is_full) {
            let idle = groups.waiting.most_idle(Some(id))?;
            self.release_group(idle, now);
        }
        let groups = self.groups.as_ref()?;
        let place = groups.free_place()?;
        let mut room_bytes = groups.room_bytes;
        room_bytes[id.row as usize] += len_bytes + RECORD_EXCESS_BYTES;
        let is_rewritten = appender == AppendRole::Reclaim;
        let kept = if is_rewritten { 0 } else { self.reclaim_only_count };
        if self.segments_for(room_bytes) + kept > self.openable_count() {
            return None;
        }
        record.meta.sequence = BUFFERS_SEQUENCE;
        record.meta.place = (place * SECTOR_BYTES / self.geometry.step_bytes) as u32;
        let mut bytes = vec![0; len_bytes as usize];
        record.encode(self.volume, &mut bytes[..record.len_bytes() as usize]);
        let key_hash = record.meta.hash.key_hash();
        let expires_at = record.meta.expires_at;
        let short_lived = self.segments.note(segment, expires_at, now.unix_s);
        let kind = ListedKind::of(record.meta.kind);
        let buffered = BufferedRecord { place, key_hash, kind, expires_at, is_rewritten, bytes };
        self.groups.as_mut()?.put(id, buffered, now.at);
        self.dirty_bytes += len_bytes;
        let position = self.position_of(segment, place);
        // The first unit that can hold it is the next one.
        Some(AppendedRecord { position, sectors: sectors(len_bytes), ticket: self.next_ticket, short_lived })
    }

    /// Writes to the log the group that contains the record of this key.
    pub(super) fn release_key(&mut self, key_hash: KeyHash, now: ClockMoment) {
        let id = self.groups.as_ref().and_then(|groups| groups.keys.get(&key_hash).copied());
        id.into_iter().for_each(|id| self.release_group(id, now));
    }

    /// Writes to the log the groups that have waited long enough.
    pub(super) fn release_complete(&mut self, now: ClockMoment) {
        while let Some(id) = self.groups.as_ref().and_then(|groups| groups.waiting.complete(now.at)) {
            self.release_group(id, now);
        }
    }

    /// Writes to the log the groups that `flushed` selects.
    pub(super) fn release_flushed(&mut self, flushed: FlushedGroups, now: ClockMoment) {
        let FlushedGroups::BegunBy(time) = flushed else { return };
        self.release_all(|group| group.first_at <= time, now);
    }

    /// Writes to the log the groups with records that reclaim has rewritten.
    pub(crate) fn release_rewritten(&mut self, now: ClockMoment) {
        self.release_all(|group| group.records.iter().any(|record| record.is_rewritten), now);
    }

    fn release_all(&mut self, is_one: impl Fn(&GatheredGroup<BufferedRecord>) -> bool, now: ClockMoment) {
        let ids = self.groups.as_ref().map(|groups| groups.waiting.ids(is_one)).unwrap_or_default();
        ids.into_iter().for_each(|id| self.release_group(id, now));
    }

    /// Writes a group to the log. If this uses a segment that other groups need, writes more groups until the remaining
    /// segments suffice.
    fn release_group(&mut self, id: GroupId, now: ClockMoment) {
        self.append_buffer(id, now);
        while self.segments_for_groups() > self.openable_count() {
            let idle = self.groups.as_ref().and_then(|groups| groups.waiting.most_idle(None));
            self.append_buffer(idle.expect("a group needs the segment"), now);
        }
    }

    /// Appends the records of a group to the open unit, next to each other. Continues in another unit if the segment is
    /// full.
    fn append_buffer(&mut self, id: GroupId, now: ClockMoment) {
        let Some(groups) = &mut self.groups else { return };
        let Some(segment) = groups.segment else { return };
        let Some(GatheredGroup { last_at, len_bytes, records, .. }) = groups.take(id) else { return };
        // A unit has the age of the group that it was opened for.
        let opened_at = now.at.min(last_at + groups.waiting.window());
        let geometry = self.geometry;
        let start = geometry.segment_start_bytes(segment) / SECTOR_BYTES;
        if self.open[id.row as usize].as_ref().is_some_and(|open| !open.unit_takes(len_bytes)) {
            self.seal_unit_of(id.row);
        }
        let mut moved: Vec<MovedRecord> = Vec::with_capacity(records.len());
        let mut first = 0;
        for record in records {
            let key_hash = record.key_hash;
            let len_bytes = record.bytes.len() as u64;
            self.make_room(id.row, |open| open.gap_before(&geometry, key_hash) + len_bytes);
            let opened = self.open_unit(AppendRole::Buffers(id.row), len_bytes, opened_at);
            assert!(opened.is_ok(), "clients leave room for buffered records");
            let open = self.open[id.row as usize].as_mut().expect("it was opened above");
            let short_lived = self.segments.note(open.segment, record.expires_at, now.unix_s);
            let AppendPlace { position, sectors, run_sectors, taken_bytes, .. } =
                open.append_buffered(&geometry, self.volume, &record, !moved.is_empty());
            self.dirty_bytes += taken_bytes - len_bytes;
            if run_sectors == sectors {
                first = moved.len();
            }
            let from = Sector(record.place + start);
            moved.push(MovedRecord { key_hash, from, to: position, sectors, short_lived });
            moved[first].sectors = run_sectors;
        }
        self.moved.push(moved);
    }

    /// Returns how many free segments clients and reclaim must leave for writing the buffered records.
    pub(super) fn segments_for_groups(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| self.segments_for(groups.room_bytes))
    }

    /// Returns a number of empty segments that is certainly enough for these bytes of records in each generation.
    /// Assumes that headers, trailers and unused ends take up to a quarter of a segment.
    fn segments_for(&self, room_bytes: [u64; 2]) -> usize {
        let in_segment = self.geometry.segment_bytes / 4 * 3;
        room_bytes.map(|bytes| bytes.div_ceil(in_segment) as usize).iter().sum()
    }

    /// Returns how many segments can still be begun before the next sync. The sequences that are left also limit this
    /// number.
    pub(super) fn openable_count(&self) -> usize {
        let unsynced = self.next_sequence - self.synced_sequence;
        let syncable = unsynced_count_max(&self.geometry).saturating_sub(unsynced);
        let numbered = BUFFERS_SEQUENCE.saturating_sub(self.next_sequence);
        self.free.len().min(syncable.min(numbered) as usize)
    }

    /// Makes the log set a segment aside whose positions are given to buffered records. If no segment can be spared
    /// now, the next reclaim sets one aside. Until then, nothing is buffered.
    fn begin_groups(&mut self) {
        self.groups.iter_mut().for_each(|groups| groups.is_wanted = true);
        self.take_lacking_places();
    }

    /// Takes the wanted segment for buffered records, if a free one can be spared.
    fn take_lacking_places(&mut self) {
        if self.lacks_places() && self.free.len() > RESERVE_SEGMENTS_MIN.max(self.reclaim_only_count) {
            self.take_places();
        }
    }

    /// Takes the segment that was just reclaimed for the places of buffered records, if the present segment for this
    /// may never have been written. All other segments were used twice by then, so a start could mistake the unwritten
    /// one for an erased segment.
    pub(super) fn change_places(&mut self, now: ClockMoment) {
        let unused = self.segment_of_groups().filter(|_| !self.has_reclaimed);
        self.has_reclaimed = true;
        self.take_lacking_places();
        let Some(unused) = unused else { return };
        self.release_all(|_| true, now);
        self.take_places();
        self.segments.begin(unused, SegmentUse::default(), false);
        self.free.push_front(unused);
    }

    fn take_places(&mut self) {
        let Some(groups) = &mut self.groups else { return };
        assert!(groups.places.is_empty(), "the places of buffered records do not change");
        groups.segment = self.free.pop_back();
        if let Some(segment) = groups.segment {
            self.segments.begin(segment, SegmentUse::main(BUFFERS_SEQUENCE), true);
        }
    }

    /// Returns whether a segment is wanted for the positions of buffered records, but none could be spared yet.
    pub(super) fn lacks_places(&self) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.is_wanted && groups.segment.is_none())
    }

    /// Returns the segment whose positions are given to buffered records; `None` if there is none.
    pub(super) fn segment_of_groups(&self) -> Option<SegmentId> {
        self.groups.as_ref().and_then(|groups| groups.segment)
    }

    /// Returns the bytes of the buffered record at `position`; `None` if there is none.
    pub(super) fn buffered(&self, position: Sector) -> Option<&[u8]> {
        let groups = self.groups.as_ref()?;
        let segment = groups.segment.filter(|&segment| self.geometry.segment_of(position) == Some(segment))?;
        groups.record_at(position.0 - self.geometry.segment_start_bytes(segment) / SECTOR_BYTES)
    }

    fn position_of(&self, segment: SegmentId, place: u64) -> Sector {
        self.geometry.sector_at(segment, place * SECTOR_BYTES)
    }
}
