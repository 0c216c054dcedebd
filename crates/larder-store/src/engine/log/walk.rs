//! Verifies every record of a log volume, segment by segment, for `store check`.
//!
//! Owns: the distinction between damaged and merely old data. The index is neither needed nor trusted: units and
//! trailers are compared with the records. Invariant: a flipped bit in a record, a unit's header or a trailer in use is
//! found. Cost: one read of each whole segment in use, and two blocks of each other one, so that an empty store costs
//! almost nothing.

use crate::{
    Result,
    device::block_on,
    engine::kit::walk::{WalkItem, verify},
    format::{
        VolumeId,
        record::DecodedRecord,
        trailer::{FOOTER_BYTES, TrailerFooter, TrailerRecord},
        unit::{UnitHeader, unit_header_bytes},
    },
    units::{BLOCK_BYTES, PACKED_STEP_BYTES, SECTOR_BYTES, SegmentGeometry, SegmentId},
    volume::Volume,
};
use bytes::Bytes;

/// Scans all segments while `goes_on` returns `true`, and passes what it finds to `meet`.
pub(crate) fn walk(volume: &Volume, goes_on: &dyn Fn() -> bool, meet: &mut dyn FnMut(WalkItem<'_>)) {
    let Some(geometry) = volume.shape.geometry() else { return };
    for segment in geometry.segments().take_while(|_| goes_on()) {
        let start_bytes = geometry.segment_start_bytes(segment);
        match read_if_used(volume, geometry, segment) {
            Ok(Some(bytes)) => SegmentWalk { id: volume.id, geometry, segment, start_bytes, bytes: &bytes, meet }.run(),
            Ok(None) => {}
            Err(_) => meet(WalkItem::Damage { offset_bytes: start_bytes, what: "a segment cannot be read" }),
        }
        meet(WalkItem::Passed(geometry.segment_bytes));
    }
}

/// Reads a segment. Returns `None` if the segment's first and last blocks show that the volume never used it.
fn read_if_used(volume: &Volume, geometry: SegmentGeometry, segment: SegmentId) -> Result<Option<Bytes>> {
    let start_bytes = geometry.segment_start_bytes(segment);
    let first = block_on(volume.read(start_bytes, BLOCK_BYTES))?;
    let last = block_on(volume.read(start_bytes + geometry.segment_bytes - BLOCK_BYTES, BLOCK_BYTES))?;
    let bytes = [first, last].concat();
    let ends = SegmentWalk { id: volume.id, geometry, segment, start_bytes, bytes: &bytes, meet: &mut |_| {} };
    if !ends.is_used() {
        return Ok(None);
    }
    block_on(volume.read(start_bytes, geometry.segment_bytes)).map(Some)
}

/// The state of the walk over one segment.
struct SegmentWalk<'a> {
    id: VolumeId,
    geometry: SegmentGeometry,
    segment: SegmentId,
    start_bytes: u64,
    bytes: &'a [u8],
    meet: &'a mut dyn FnMut(WalkItem<'_>),
}

impl SegmentWalk<'_> {
    /// Returns whether the volume has written to the segment. Only the first and the last block of the segment show
    /// this.
    fn is_used(&self) -> bool {
        self.first_unit().is_some() || self.footer().is_some() || self.is_broken_header(0)
    }

    fn run(&mut self) {
        let footer = self.footer();
        let sequence = match (self.first_unit(), footer) {
            (Some(first), footer) if footer.is_none_or(|footer| footer.sequence <= first.sequence) => first.sequence,
            (_, Some(footer)) => {
                self.damaged(0, "the first unit's header of a segment");
                footer.sequence
            }
            (_, None) => {
                if self.is_broken_header(0) {
                    self.damaged(0, "the first unit's header of a segment");
                }
                return;
            }
        };
        (self.meet)(WalkItem::Segment);
        match footer.filter(|footer| footer.sequence == sequence) {
            Some(footer) => self.walk_sealed(footer, sequence),
            None => {
                if footer.is_none() && self.is_broken_footer() {
                    self.damaged(self.geometry.segment_bytes - FOOTER_BYTES, "the end of a segment's trailer");
                }
                self.walk_units(sequence, None);
            }
        }
    }

    fn walk_sealed(&mut self, footer: TrailerFooter, sequence: u32) {
        let trailer_start = self.geometry.segment_bytes - footer.trailer_bytes();
        let Some(listings) = footer.listings(self.id, &self.geometry, &self.bytes[trailer_start as usize..]) else {
            self.damaged(trailer_start, "the list in a segment's trailer");
            return self.walk_units(sequence, None);
        };
        let mut end = 0;
        for listing in &listings {
            end = end.max(listing.end_bytes().into());
            self.meet_record(listing.start_bytes.into(), sequence, Some(listing));
        }
        self.walk_units(sequence, Some(end));
    }

    /// Scans the units of the segment. Up to `listed_end`, checks only the headers, because the trailer lists the
    /// records there.
    fn walk_units(&mut self, sequence: u32, listed_end: Option<u64>) {
        let mut offset = 0;
        let mut number = 0;
        while offset + BLOCK_BYTES <= self.geometry.segment_bytes && listed_end.is_none_or(|end| offset < end) {
            let unit = self.unit_at(offset);
            let expected = unit.filter(|unit| {
                (unit.segment, unit.sequence, unit.number) == (self.segment, sequence, number)
                    && offset + u64::from(unit.len_bytes) <= self.geometry.segment_bytes
            });
            let Some(unit) = expected else {
                let is_missing = listed_end.is_some() || (unit.is_none() && self.is_broken_header(offset));
                if is_missing && offset > 0 {
                    self.damaged(offset, "a unit's header");
                }
                return;
            };
            if listed_end.is_none() {
                self.walk_records(offset, offset + u64::from(unit.used_bytes), sequence);
            }
            offset += u64::from(unit.len_bytes).max(BLOCK_BYTES);
            number += 1;
        }
    }

    /// Scans the records of a unit that no trailer lists. The unit ends at `end`.
    fn walk_records(&mut self, unit_offset: u64, end: u64, sequence: u32) {
        let mut offset = unit_offset + unit_header_bytes(&self.geometry);
        while offset < end {
            // Some records are preceded by a gap: the unused remainder of a sector.
            if self.geometry.is_packed() && is_free(&self.bytes[offset as usize..end as usize]) {
                offset = (offset + 1).next_multiple_of(SECTOR_BYTES);
                continue;
            }
            let Some(len_bytes) = self.meet_record(offset, sequence, None) else { return };
            offset += len_bytes;
        }
    }

    /// Verifies the record at `offset`. Returns its length, or `None` if its header cannot be read.
    fn meet_record(&mut self, offset: u64, sequence: u32, listing: Option<&TrailerRecord>) -> Option<u64> {
        let found = verify(self.id, &self.bytes[offset as usize..]);
        let is_right = |decoded: &DecodedRecord| {
            decoded.meta.sequence == sequence
                && listing.is_none_or(|listing| {
                    let key_hash = decoded.meta.hash.key_hash();
                    let len_bytes = self.stepped(decoded);
                    listing.key_hash == key_hash && u64::from(listing.len_bytes) == len_bytes
                })
        };
        match found {
            Ok(decoded) if is_right(&decoded) => {
                (self.meet)(WalkItem::of(&decoded, &self.bytes[offset as usize..]));
                Some(self.stepped(&decoded))
            }
            Ok(_) => {
                self.damaged(offset, "a record in the place of another");
                None
            }
            Err(what) => {
                self.damaged(offset, what);
                let decoded = DecodedRecord::decode(self.id, &self.bytes[offset as usize..]).ok()?;
                Some(self.stepped(&decoded))
            }
        }
    }

    fn stepped(&self, decoded: &DecodedRecord) -> u64 {
        self.geometry.stepped(decoded.len_bytes() as u64)
    }

    fn first_unit(&self) -> Option<UnitHeader> {
        self.unit_at(0).filter(|unit| unit.segment == self.segment && unit.number == 0)
    }

    fn footer(&self) -> Option<TrailerFooter> {
        TrailerFooter::decode(self.id, &self.geometry, self.segment, self.bytes)
    }

    fn unit_at(&self, offset: u64) -> Option<UnitHeader> {
        UnitHeader::decode(self.id, &self.geometry, &self.bytes[offset as usize..])
    }

    /// Returns whether a damaged unit header of this volume begins at `offset`. Remains of an earlier volume on the
    /// same device do not count.
    fn is_broken_header(&self, offset: u64) -> bool {
        let bytes = &self.bytes[offset as usize..];
        self.is_ours(bytes, *b"LDRu")
            && owner_of(bytes).is_none_or(|owner| UnitHeader::decode(owner, &self.geometry, bytes).is_none())
    }

    fn is_broken_footer(&self) -> bool {
        let footer = &self.bytes[self.bytes.len() - FOOTER_BYTES as usize..];
        let is_whole = |owner| TrailerFooter::decode(owner, &self.geometry, self.segment, self.bytes).is_some();
        self.is_ours(footer, *b"LDRt") && owner_of(footer).is_none_or(|owner| !is_whole(owner))
    }

    /// Returns whether a header or footer is this volume's. Both consist of a magic, a checksum and the volume's
    /// identity. One flipped bit cannot damage both the magic and the identity.
    fn is_ours(&self, bytes: &[u8], magic: [u8; 4]) -> bool {
        bytes.starts_with(&magic) || owner_of(bytes) == Some(self.id)
    }

    fn damaged(&mut self, offset: u64, what: &'static str) {
        (self.meet)(WalkItem::Damage { offset_bytes: self.start_bytes + offset, what });
    }
}

/// Returns whether `bytes` begin with unused space instead of a record.
fn is_free(bytes: &[u8]) -> bool {
    bytes.iter().take(PACKED_STEP_BYTES as usize).all(|byte| *byte == 0)
}

/// Returns the bytes in which a header or footer has the volume's identity; `None` if `bytes` are too short.
fn owner_of(bytes: &[u8]) -> Option<VolumeId> {
    bytes.get(8..24)?.try_into().ok().map(VolumeId)
}
