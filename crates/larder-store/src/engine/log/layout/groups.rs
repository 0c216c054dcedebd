//! Buffers of groups: the records of a page wait here for the others of it, and are written next to each other.
//!
//! Owns: a buffer for each group, and the decision when it is complete. A buffered record has a place in a segment
//! that is kept free for this, so that the index finds it as any other. Nothing is written to that segment. When a
//! buffer is released, its records are appended to the open unit, and the index follows them to their final places.
//!
//! Invariants: every buffered record finds room when it is released, because clients leave as many segments
//! ([`LogState::segments_for_groups`]). A record waits for no other of its key: the older one is released first. A
//! flush releases the buffers that it covers. Cost: the records in memory, which count as bytes to be written, a
//! segment of the volume, and up to [`VIEW_MAX`] until a record is written. Source: HashCache (NSDI 2009), which
//! buffers each group.

use super::{AppendRole, AppendedRecord, LogState, SEQUENCE_LAST, open::BufferedRecord, syncing::unsynced_count_max};
use crate::{
    clock::ClockMoment,
    format::{
        SegmentRow, SegmentUse,
        record::{RecordKind, RecordParts},
        trailer::ListedKind,
    },
    hash::KeyHash,
    units::{SECTOR_BYTES, Sector, SegmentGeometry, SegmentId},
};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

/// Longest time from a group's first record until it is written. Page views of up to ten seconds are stored together.
const VIEW_MAX: Duration = Duration::from_secs(12);
/// Most bytes of a group. One read takes them all.
const GROUP_BYTES_MAX: u64 = 1 << 20;
/// Divisor of a segment's length that gives the most bytes of a group. The end of a segment may stay empty by that
/// length.
const GROUP_DIVISOR: u64 = 16;
/// The sequence of the segment that gives places to buffered records. Their order is after all others of their key.
const BUFFERS_SEQUENCE: u32 = SEQUENCE_LAST + 1;

/// A record that was moved, or the first of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedRecord {
    pub(crate) key_hash: KeyHash,
    pub(crate) from: Sector,
    pub(crate) to: Sector,
    /// Sectors to read there: the record and the remainder of its group.
    pub(crate) sectors: u64,
}

/// The groups that a flush writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushedGroups {
    /// Those with a record from this time or before.
    BegunBy(Duration),
    /// None: the flush is for a record without a group.
    None,
}

/// Returns where the record that was at `position` is after these steps of moves.
pub(crate) fn place_after(steps: &[Vec<MovedRecord>], position: Sector) -> Sector {
    let follow = |at, step: &Vec<MovedRecord>| step.iter().find(|moved| moved.from == at).map_or(at, |moved| moved.to);
    steps.iter().fold(position, follow)
}

/// Returns whether a segment with this sequence gives places to buffered records.
pub(crate) fn is_of_buffers(sequence: u32) -> bool {
    sequence == BUFFERS_SEQUENCE
}

/// The buffers of all groups of a volume.
pub(super) struct GroupBuffers {
    /// Time that a group waits for another record after its last one.
    window: Duration,
    /// The segment whose places buffered records have, once the log has begun.
    pub(super) segment: Option<SegmentId>,
    group_bytes_max: u64,
    /// Most bytes of all groups together.
    bytes_max: u64,
    bytes: u64,
    groups: BTreeMap<u32, GroupBuffer>,
    /// The group at each place, which is a sector of the segment.
    places: HashMap<u64, u32>,
    /// The group of each key.
    keys: HashMap<KeyHash, u32>,
    last_place: u64,
    place_count: u64,
}

struct GroupBuffer {
    first_at: Duration,
    last_at: Duration,
    len_bytes: u64,
    records: Vec<BufferedRecord>,
}

impl GroupBuffers {
    /// Creates empty buffers of at most `bytes_max` bytes together.
    pub(super) fn new(window: Duration, geometry: &SegmentGeometry, bytes_max: u64) -> Self {
        Self {
            window,
            segment: None,
            group_bytes_max: GROUP_BYTES_MAX.min(geometry.segment_bytes / GROUP_DIVISOR),
            bytes_max,
            bytes: 0,
            groups: BTreeMap::new(),
            places: HashMap::new(),
            keys: HashMap::new(),
            last_place: 0,
            place_count: geometry.segment_bytes / SECTOR_BYTES,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the record at a place of the segment.
    pub(super) fn record_at(&self, place: u64) -> Option<&[u8]> {
        let group = self.groups.get(self.places.get(&place)?)?;
        let record = group.records.iter().find(|record| record.place == place)?;
        Some(&record.bytes)
    }

    /// Checks that every record is counted and found.
    pub(super) fn check(&self) {
        let records = || self.groups.values().flat_map(|group| &group.records);
        let is_found = |record: &BufferedRecord| {
            self.places.get(&record.place) == Some(&record.group)
                && self.keys.get(&record.key_hash) == Some(&record.group)
        };
        assert!(records().all(is_found), "a buffered record is found by its place and its key");
        assert_eq!((records().count(), self.keys.len()), (self.places.len(), self.places.len()));
        let bytes: u64 = records().map(|record| record.bytes.len() as u64).sum();
        assert_eq!(bytes, self.bytes, "bytes of buffered records are counted");
    }

    /// Returns the next free place, or `None` if there is none. Places are used in a circle, so that one is used again
    /// as late as possible.
    fn free_place(&self) -> Option<u64> {
        let after = (1..=self.place_count).map(|step| (self.last_place + step) % self.place_count);
        if self.places.len() as u64 == self.place_count {
            return None;
        }
        after.into_iter().find(|place| !self.places.contains_key(place))
    }

    /// Returns the group that has waited longest for a record, except for `other`.
    fn most_idle(&self, other: u32) -> Option<u32> {
        let others = self.groups.iter().filter(|(group, _)| **group != other);
        others.min_by_key(|(group, buffer)| (buffer.last_at, **group)).map(|(group, _)| *group)
    }

    /// Returns a group that waits no longer, if there is one.
    fn complete(&self, now: Duration) -> Option<u32> {
        let is_complete =
            |buffer: &GroupBuffer| now >= buffer.last_at + self.window || now >= buffer.first_at + VIEW_MAX;
        self.groups.iter().find(|(_, buffer)| is_complete(buffer)).map(|(group, _)| *group)
    }

    fn begun_by(&self, time: Duration) -> Option<u32> {
        self.groups.iter().find(|(_, buffer)| buffer.first_at <= time).map(|(group, _)| *group)
    }

    fn put(&mut self, record: BufferedRecord, now: Duration) {
        let len_bytes = record.bytes.len() as u64;
        self.last_place = record.place;
        self.bytes += len_bytes;
        self.places.insert(record.place, record.group);
        let other = self.keys.insert(record.key_hash, record.group);
        assert_eq!(other, None, "a record waits for no other of its key");
        let empty = || GroupBuffer { first_at: now, last_at: now, len_bytes: 0, records: Vec::new() };
        let buffer = self.groups.entry(record.group).or_insert_with(empty);
        buffer.last_at = now;
        buffer.len_bytes += len_bytes;
        buffer.records.push(record);
    }

    fn take(&mut self, group: u32) -> Option<GroupBuffer> {
        let buffer = self.groups.remove(&group)?;
        self.bytes -= buffer.len_bytes;
        for record in &buffer.records {
            self.places.remove(&record.place);
            self.keys.remove(&record.key_hash);
        }
        Some(buffer)
    }
}

impl LogState {
    /// Buffers a client's record of a group. Returns `None` if it has none, or there is no room: then it is appended.
    pub(super) fn buffer(&mut self, record: &mut RecordParts<'_>, now: ClockMoment) -> Option<AppendedRecord> {
        let len_bytes = self.geometry.stepped(record.len_bytes());
        let group = record.meta.group;
        let groups = self.groups.as_ref()?;
        let bytes_max = groups.bytes_max;
        let group_bytes_max = groups.group_bytes_max.min(bytes_max);
        if group == 0 || record.meta.kind != RecordKind::Entry || len_bytes > group_bytes_max {
            return None;
        }
        if groups.groups.get(&group).is_some_and(|buffer| buffer.len_bytes + len_bytes > group_bytes_max) {
            self.release_group(group, now);
        }
        while let Some(groups) = self.groups.as_ref().filter(|groups| groups.bytes + len_bytes > bytes_max) {
            let idle = groups.most_idle(group).unwrap_or(group);
            self.release_group(idle, now);
        }
        let groups = self.groups.as_ref()?;
        let segment = groups.segment?;
        let place = groups.free_place()?;
        if self.segments_for(groups.bytes + len_bytes) > self.openable_count() {
            return None;
        }
        record.meta.sequence = BUFFERS_SEQUENCE;
        record.meta.place = place as u32;
        let mut bytes = vec![0; len_bytes as usize];
        record.encode(self.volume, &mut bytes[..record.len_bytes() as usize]);
        let key_hash = record.meta.hash.key_hash();
        let expires_at = record.meta.expires_at;
        let short_lived = self.segments.note(segment, expires_at, now.unix_s);
        let kind = ListedKind::of(record.meta.kind);
        let buffered = BufferedRecord { place, key_hash, group, kind, expires_at, bytes };
        self.groups.as_mut()?.put(buffered, now.at);
        self.dirty_bytes += len_bytes;
        let position = self.position_of(segment, place);
        // The first unit that can hold it is the next one.
        Some(AppendedRecord { position, sectors: len_bytes / SECTOR_BYTES, ticket: self.next_ticket, short_lived })
    }

    /// Releases the group with a record of this key.
    pub(super) fn release_key(&mut self, key_hash: KeyHash, now: ClockMoment) {
        let group = self.groups.as_ref().and_then(|groups| groups.keys.get(&key_hash).copied());
        group.into_iter().for_each(|group| self.release_group(group, now));
    }

    /// Releases the groups that wait no longer.
    pub(super) fn release_complete(&mut self, now: ClockMoment) {
        while let Some(group) = self.groups.as_ref().and_then(|groups| groups.complete(now.at)) {
            self.release_group(group, now);
        }
    }

    /// Releases the groups that a flush writes.
    pub(super) fn release_flushed(&mut self, flushed: FlushedGroups, now: ClockMoment) {
        let FlushedGroups::BegunBy(time) = flushed else { return };
        while let Some(group) = self.groups.as_ref().and_then(|groups| groups.begun_by(time)) {
            self.release_group(group, now);
        }
    }

    /// Releases a group, and others if a segment was begun for it that they would need.
    fn release_group(&mut self, group: u32, now: ClockMoment) {
        self.append_buffer(group, now);
        while self.segments_for_groups() > self.openable_count() {
            let idle = self.groups.as_ref().and_then(|groups| groups.most_idle(group));
            self.append_buffer(idle.expect("a group needs the segment"), now);
        }
    }

    /// Appends the records of a group to a unit, next to each other.
    fn append_buffer(&mut self, group: u32, now: ClockMoment) {
        let Some(groups) = &mut self.groups else { return };
        let Some(segment) = groups.segment else { return };
        let Some(GroupBuffer { last_at, len_bytes, records, .. }) = groups.take(group) else { return };
        // A unit has the age of the group that it was opened for.
        let opened_at = now.at.min(last_at + groups.window);
        self.make_room(SegmentRow::Main, records.len() as u64, |_| len_bytes);
        let opened = self.open_unit(AppendRole::Reclaim, len_bytes, opened_at);
        assert!(opened.is_ok(), "clients leave room for buffered records");
        let start = self.geometry.segment_start_bytes(segment) / SECTOR_BYTES;
        let open = self.open[SegmentRow::Main as usize].as_mut().expect("it was opened above");
        for record in &records {
            self.segments.note(open.segment, record.expires_at, now.unix_s);
        }
        let mut moved = open.append_group(&self.geometry, self.volume, records);
        moved.iter_mut().for_each(|moved| moved.from.0 += start);
        self.moved.push(moved);
    }

    /// Returns the number of segments that clients must leave to the buffered records.
    pub(super) fn segments_for_groups(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| self.segments_for(groups.bytes))
    }

    /// Returns the number of empty segments that have room for buffered records of `len_bytes`, at least. A quarter of
    /// each may go to headers, the trailer and the ends of units and of the segment.
    fn segments_for(&self, len_bytes: u64) -> usize {
        len_bytes.div_ceil(self.geometry.segment_bytes / 4 * 3) as usize
    }

    /// Returns how many segments can be begun now.
    pub(super) fn openable_count(&self) -> usize {
        let unsynced = self.next_sequence - self.synced_sequence;
        let syncable = unsynced_count_max(&self.geometry).saturating_sub(unsynced);
        let numbered = BUFFERS_SEQUENCE.saturating_sub(self.next_sequence);
        self.free.len().min(syncable.min(numbered) as usize)
    }

    /// Takes the segment that gives places to buffered records out of the free ones.
    pub(super) fn begin_groups(&mut self) {
        let Some(groups) = &mut self.groups else { return };
        groups.segment = self.free.pop_back();
        if let Some(segment) = groups.segment {
            self.segments.begin(segment, SegmentUse::main(BUFFERS_SEQUENCE), true);
        }
    }

    /// Returns the buffered record at `position`.
    pub(super) fn buffered(&self, position: Sector) -> Option<&[u8]> {
        let groups = self.groups.as_ref()?;
        let segment = groups.segment.filter(|&segment| self.geometry.segment_of(position) == Some(segment))?;
        groups.record_at(position.0 - self.geometry.segment_start_bytes(segment) / SECTOR_BYTES)
    }

    fn position_of(&self, segment: SegmentId, place: u64) -> Sector {
        self.geometry.sector_at(segment, place * SECTOR_BYTES)
    }
}
