//! The open segment and its open unit, which take the next record.
//!
//! Invariant: units follow each other from the segment's start without gaps, and there is always room left for the
//! trailer.

use super::{RecordParts, UnitInFlight};
use crate::{
    device::AlignedBuffer,
    format::{
        SegmentUse, VolumeId, record,
        trailer::{LISTING_BYTES, ListedKind, TrailerRecord, listing_bytes, trailer_bytes},
        unit::{UnitGenerations, UnitHeader, unit_header_bytes},
    },
    hash::KeyHash,
    units::{BLOCK_BYTES, SECTOR_BYTES, Sector, SegmentGeometry, SegmentId, sectors_spanned},
};
use std::{sync::Arc, time::Duration};

/// A segment that is being filled.
pub(super) struct OpenSegment {
    pub(super) segment: SegmentId,
    pub(super) of: SegmentUse,
    oldest: OldestInUse,
    pub(super) listings: Vec<TrailerRecord>,
    /// Bytes that the listings of the records so far take in the trailer.
    pub(super) list_bytes: u64,
    pub(super) unit: Option<OpenUnit>,
    /// Number of the segment's first unit, if it could not be written. Recovery then finds the later units only by the
    /// trailer.
    pub(super) hidden_from: Option<u64>,
    /// Start of the open unit or, if none is open, of the next unit, in bytes from the start of the segment.
    unit_start_bytes: u64,
    unit_count: u32,
}

/// For each generation, the oldest sequence that was in use when a segment's use began.
#[derive(Clone, Copy)]
pub(super) struct OldestInUse {
    pub(super) main: u32,
    /// Oldest sequence in use of a probation segment; `None` on volumes without probation.
    pub(super) probation: Option<u32>,
}

/// The number of a unit, and the time when it was opened.
#[derive(Clone, Copy)]
pub(super) struct UnitStart {
    pub(super) ticket: u64,
    pub(super) opened_at: Duration,
}

/// The place at which a record was appended.
pub(super) struct AppendPlace {
    pub(super) position: Sector,
    /// Number of sectors that the record touches.
    pub(super) sectors: u64,
    /// Sectors from the start of the run (the adjacent records of a group) to the end of this record. Equal to
    /// `sectors` if this is the first record of its run.
    pub(super) run_sectors: u64,
    /// Bytes of the unit that the record takes, including the gap before it.
    pub(super) taken_bytes: u64,
    pub(super) ticket: u64,
}

/// A unit that is being filled.
pub(super) struct OpenUnit {
    buffer: AlignedBuffer,
    capacity_bytes: u64,
    used_bytes: u64,
    record_count: usize,
    pub(super) ticket: u64,
    pub(super) opened_at: Duration,
}

/// A record that waits in memory for others of its group.
pub(super) struct BufferedRecord {
    /// The place that stands for the record's position until the record is written.
    pub(super) place: u64,
    pub(super) key_hash: KeyHash,
    pub(super) kind: ListedKind,
    pub(super) expires_at: u32,
    /// Whether reclaim is rewriting the record, which is also on the device.
    pub(super) is_rewritten: bool,
    pub(super) bytes: Vec<u8>,
}

impl OpenUnit {
    /// Creates an empty unit. It has a header of `header_bytes` and can grow to `capacity_bytes`, including the header.
    pub(super) fn new(buffer: AlignedBuffer, [header_bytes, capacity_bytes]: [u64; 2], start: UnitStart) -> Self {
        assert!(buffer.len() as u64 >= capacity_bytes && capacity_bytes > header_bytes);
        let UnitStart { ticket, opened_at } = start;
        Self { buffer, capacity_bytes, used_bytes: header_bytes, record_count: 0, ticket, opened_at }
    }
}

impl OpenSegment {
    /// Creates an empty open segment. `listings` must be empty; its memory is reused.
    pub(super) fn new(segment: SegmentId, of: SegmentUse, oldest: OldestInUse, listings: Vec<TrailerRecord>) -> Self {
        assert!(listings.is_empty() && oldest.main.max(oldest.probation.unwrap_or(0)) <= of.sequence);
        Self {
            segment,
            of,
            oldest,
            listings,
            list_bytes: 0,
            unit: None,
            hidden_from: None,
            unit_start_bytes: 0,
            unit_count: 0,
        }
    }

    /// Forgets the first unit of the segment, because that unit could not be written. The next unit takes its place.
    /// Returns `false` if the segment has another unit.
    pub(super) fn begin_again(&mut self) -> bool {
        if self.unit_count != 1 || self.unit.is_some() {
            return false;
        }
        assert!(self.hidden_from.is_none(), "a segment whose first unit failed is begun again, or full");
        self.listings.clear();
        (self.list_bytes, self.unit_start_bytes, self.unit_count) = (0, 0, 0);
        true
    }

    /// Returns whether the segment has units that are complete.
    pub(super) fn has_units(&self) -> bool {
        self.unit_count > 0
    }

    /// Returns whether a record of `len_bytes` fits in an empty segment.
    pub(super) fn fits_empty(geometry: &SegmentGeometry, len_bytes: u64) -> bool {
        let unit_bytes = (unit_header_bytes(geometry) + len_bytes).next_multiple_of(BLOCK_BYTES);
        unit_bytes + trailer_bytes(LISTING_BYTES) <= geometry.segment_bytes
    }

    /// Returns how many bytes to leave free in the open unit before a record of this key.
    ///
    /// Two records whose hashes have the same last bits must not begin in the same sector. A slot of the index, which
    /// has the sector and at least these bits, then identifies one record.
    pub(super) fn gap_before(&self, geometry: &SegmentGeometry, key_hash: KeyHash) -> u64 {
        let Some(unit) = self.unit.as_ref().filter(|_| geometry.is_packed()) else { return 0 };
        let end_bytes = self.unit_start_bytes + unit.used_bytes;
        let sector_start = end_bytes / SECTOR_BYTES * SECTOR_BYTES;
        let in_sector = |listing: &&TrailerRecord| u64::from(listing.start_bytes) >= sector_start;
        let mut beside = self.listings.iter().rev().take_while(in_sector);
        if beside.any(|other| other.key_hash.ends_like(key_hash)) { sector_start + SECTOR_BYTES - end_bytes } else { 0 }
    }

    /// Returns the bytes of the longest record that fits in an empty segment.
    pub(super) fn room_empty(geometry: &SegmentGeometry) -> u64 {
        geometry.segment_bytes - trailer_bytes(LISTING_BYTES) - unit_header_bytes(geometry)
    }

    /// Returns the bytes of the longest record of this key that still fits in the segment, in the open unit or in a new
    /// unit.
    pub(super) fn room_bytes(&self, geometry: &SegmentGeometry, key_hash: KeyHash) -> u64 {
        let end_bytes = geometry.segment_bytes - trailer_bytes(self.list_bytes + LISTING_BYTES);
        let in_unit_at = |start_bytes: u64| end_bytes.saturating_sub(start_bytes + unit_header_bytes(geometry));
        let Some(unit) = &self.unit else { return in_unit_at(self.unit_start_bytes) };
        let unit_max = unit.capacity_bytes.min(end_bytes.saturating_sub(self.unit_start_bytes));
        let in_open_unit = unit_max.saturating_sub(unit.used_bytes + self.gap_before(geometry, key_hash));
        let next_start = (self.unit_start_bytes + unit.used_bytes).next_multiple_of(BLOCK_BYTES);
        in_open_unit.max(in_unit_at(next_start))
    }

    /// Returns whether a record of `len_bytes` fits in the open unit. Returns `true` if no unit is open.
    pub(super) fn unit_takes(&self, len_bytes: u64) -> bool {
        self.unit.as_ref().is_none_or(|unit| unit.used_bytes + len_bytes <= unit.capacity_bytes)
    }

    /// Returns whether a record of `len_bytes` fits in the segment, in the open unit or in a new unit.
    pub(super) fn takes(&self, geometry: &SegmentGeometry, len_bytes: u64) -> bool {
        let used = self.unit.as_ref().map_or(unit_header_bytes(geometry), |unit| unit.used_bytes);
        let unit_end = self.unit_start_bytes + (used + len_bytes).next_multiple_of(BLOCK_BYTES);
        unit_end + trailer_bytes(self.list_bytes + LISTING_BYTES) <= geometry.segment_bytes
    }

    /// Returns the capacity in bytes of a new unit: `unit_bytes`, or more if the unit's first record, of `len_bytes`,
    /// is longer.
    pub(super) fn unit_capacity(&self, geometry: &SegmentGeometry, unit_bytes: u64, len_bytes: u64) -> u64 {
        let left = geometry.segment_bytes - self.unit_start_bytes - trailer_bytes(self.list_bytes + LISTING_BYTES);
        let wanted = unit_bytes.max((unit_header_bytes(geometry) + len_bytes).next_multiple_of(BLOCK_BYTES));
        wanted.min(left / BLOCK_BYTES * BLOCK_BYTES)
    }

    /// Copies `record` into the open unit. The record must fit ([`Self::unit_takes`], [`Self::takes`]).
    pub(super) fn append(
        &mut self,
        geometry: &SegmentGeometry,
        volume: VolumeId,
        record: &mut RecordParts<'_>,
    ) -> AppendPlace {
        let listed = TrailerRecord {
            key_hash: record.meta.hash.key_hash(),
            start_bytes: 0,
            len_bytes: geometry.stepped(record.len_bytes()) as u32,
            kind: ListedKind::of(record.meta.kind),
            run_blocks: 0,
            follows: false,
            expires_at: record.meta.expires_at,
        };
        self.place(geometry, listed, |bytes, sequence, place| {
            record.meta.sequence = sequence;
            record.meta.place = place;
            let len_bytes = record.len_bytes() as usize;
            bytes[len_bytes..].fill(0);
            record.encode(volume, bytes);
        })
    }

    /// Appends a buffered record like [`Self::append`]. With `follows`, a read of the previous record also fetches this
    /// record, unless a gap or the end of a unit is between the two.
    pub(super) fn append_buffered(
        &mut self,
        geometry: &SegmentGeometry,
        volume: VolumeId,
        record: &BufferedRecord,
        follows: bool,
    ) -> AppendPlace {
        let BufferedRecord { key_hash, kind, expires_at, ref bytes, .. } = *record;
        let len_bytes = bytes.len() as u32;
        let listed = TrailerRecord { key_hash, start_bytes: 0, len_bytes, kind, run_blocks: 0, follows, expires_at };
        self.place(geometry, listed, |target, sequence, place| {
            target.copy_from_slice(bytes);
            record::set_place(volume, target, sequence, place);
        })
    }

    /// Gives the next bytes of the open unit to a record. Calls `write` with these bytes, the record's sequence and its
    /// place.
    fn place(
        &mut self,
        geometry: &SegmentGeometry,
        mut listed: TrailerRecord,
        write: impl FnOnce(&mut [u8], u32, u32),
    ) -> AppendPlace {
        let gap_bytes = self.gap_before(geometry, listed.key_hash);
        let unit = self.unit.as_mut().expect("the log opens a unit before it appends");
        let gap_start = unit.used_bytes;
        let from = gap_start + gap_bytes;
        let to = from + u64::from(listed.len_bytes);
        assert!(to <= unit.capacity_bytes);
        let start_bytes = self.unit_start_bytes + from;
        listed.start_bytes = start_bytes as u32;
        listed.follows &= gap_bytes == 0 && unit.record_count > 0;
        let bytes = unit.buffer.as_mut_slice();
        bytes[gap_start as usize..from as usize].fill(0);
        let place = (start_bytes / geometry.step_bytes) as u32;
        write(&mut bytes[from as usize..to as usize], self.of.sequence, place);
        self.list_bytes += listing_bytes(geometry, self.listings.last().map_or(0, TrailerRecord::end_bytes), &listed);
        self.listings.push(listed);
        unit.used_bytes = to;
        unit.record_count += 1;
        let ticket = unit.ticket;
        AppendPlace {
            position: geometry.sector_at(self.segment, start_bytes),
            sectors: sectors_spanned(start_bytes, listed.len_bytes.into()),
            run_sectors: TrailerRecord::extend_run(&mut self.listings),
            taken_bytes: to - gap_start,
            ticket,
        }
    }

    /// Completes the open unit, if there is one, and returns it to be written.
    pub(super) fn seal_unit(&mut self, geometry: &SegmentGeometry, volume: VolumeId) -> Option<UnitInFlight> {
        let mut unit = self.unit.take()?;
        assert!(unit.record_count > 0, "a unit is opened only for a record");
        let len_bytes = unit.used_bytes.next_multiple_of(BLOCK_BYTES);
        unit.buffer.truncate(len_bytes as usize);
        let bytes = unit.buffer.as_mut_slice();
        bytes[unit.used_bytes as usize..].fill(0);
        let header = UnitHeader {
            segment: self.segment,
            sequence: self.of.sequence,
            number: self.unit_count,
            len_bytes: len_bytes as u32,
            used_bytes: unit.used_bytes as u32,
            oldest_sequence: self.oldest.main,
            generations: self
                .oldest
                .probation
                .map(|oldest_probation| UnitGenerations { oldest_probation, anchor: self.of.anchor }),
        };
        header.encode(volume, geometry, bytes);
        let start = Sector((geometry.segment_start_bytes(self.segment) + self.unit_start_bytes) / SECTOR_BYTES);
        self.unit_start_bytes += len_bytes;
        self.unit_count += 1;
        Some(UnitInFlight {
            ticket: unit.ticket,
            segment: self.segment,
            start,
            used_bytes: unit.used_bytes,
            listings: self.listings[self.listings.len() - unit.record_count..].to_vec(),
            buffer: Arc::new(unit.buffer),
        })
    }

    /// Returns where the open unit is on the volume, and its bytes so far; `None` if no unit is open.
    pub(super) fn unit_bytes(&self, geometry: &SegmentGeometry) -> Option<(Sector, &[u8])> {
        let unit = self.unit.as_ref()?;
        let start = Sector((geometry.segment_start_bytes(self.segment) + self.unit_start_bytes) / SECTOR_BYTES);
        Some((start, &unit.buffer.as_slice()[..unit.used_bytes as usize]))
    }
}
