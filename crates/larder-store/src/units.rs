//! The units of size and position, and the layout of a volume.
//!
//! Owns: sector, block and segment arithmetic ([`SegmentGeometry`]). Invariant: every segment is between the two
//! superblocks. The byte layout is described in docs/internals/format.md.

/// Bytes of a [`Sector`]. Records begin at multiples of this, except on packed volumes.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// On packed volumes, records begin at multiples of this many bytes, so that short records share sectors.
pub(crate) const PACKED_STEP_BYTES: u64 = 8;
/// Units, trailers and superblocks are aligned to this many bytes.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Offset in bytes of the index area, or of the data on volumes without one. The space before it belongs to the first
/// superblock.
pub(crate) const DATA_START_BYTES: u64 = 64 << 10;
/// Bytes of a superblock. There is one at the start and one at the end of the volume.
pub(crate) const SUPERBLOCK_BYTES: u64 = BLOCK_BYTES;
/// Smallest number of segments of a volume: some are being filled, some are free, and the others must be enough to hold
/// entries.
pub(crate) const SEGMENT_COUNT_MIN: u64 = 8;

/// A position on the volume: the number of sectors from its start. No record is at 0, which can therefore mean "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sector(pub(crate) u64);

impl Sector {
    pub(crate) fn byte_offset(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

/// The site of an entry, as in [`crate::Hints::site`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site(pub(crate) u64);

/// The number of a set on the volume, counted from 0 in the order of position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetNumber(pub(crate) u64);

/// The number of a segment on the volume, counted from 0 in the order of position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentId(pub(crate) u32);

impl SegmentId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The place of the segments of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentGeometry {
    pub(crate) size_bytes: u64,
    /// Offset of the first segment in bytes.
    pub(crate) data_start_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) segment_count: u32,
    /// Records begin at multiples of this many bytes.
    pub(crate) step_bytes: u64,
}

impl SegmentGeometry {
    /// Creates the geometry of a volume of `size_bytes`: an index area of `index_bytes`, and behind it as many segments
    /// of `segment_bytes` as fit. Returns `None` if they are too few.
    pub(crate) fn new(size_bytes: u64, index_bytes: u64, segment_bytes: u64) -> Option<Self> {
        let data_start_bytes = DATA_START_BYTES.checked_add(index_bytes)?;
        let data = size_bytes.checked_sub(data_start_bytes.checked_add(SUPERBLOCK_BYTES)?)?;
        let count = data.checked_div(segment_bytes)?;
        let segment_count = u32::try_from(count).ok()?;
        (count >= SEGMENT_COUNT_MIN).then_some(Self {
            size_bytes,
            data_start_bytes,
            segment_bytes,
            segment_count,
            step_bytes: SECTOR_BYTES,
        })
    }

    /// Returns the same geometry for a packed volume, where records share sectors.
    pub(crate) fn packed(self) -> Self {
        Self { step_bytes: PACKED_STEP_BYTES, ..self }
    }

    /// Returns whether several records can begin in the same sector.
    pub(crate) fn is_packed(&self) -> bool {
        self.step_bytes < SECTOR_BYTES
    }

    /// Returns the bytes that a record of `len_bytes` takes in a unit: its length, rounded up to a place where a record
    /// can begin.
    pub(crate) fn stepped(&self, len_bytes: u64) -> u64 {
        len_bytes.next_multiple_of(self.step_bytes)
    }

    pub(crate) fn segment_start_bytes(&self, segment: SegmentId) -> u64 {
        assert!(segment.0 < self.segment_count);
        self.data_start_bytes + u64::from(segment.0) * self.segment_bytes
    }

    pub(crate) fn segment_end_bytes(&self, segment: SegmentId) -> u64 {
        self.segment_start_bytes(segment) + self.segment_bytes
    }

    /// Returns the sector that contains the byte at `start_bytes` of `segment`.
    pub(crate) fn sector_at(&self, segment: SegmentId, start_bytes: u64) -> Sector {
        Sector((self.segment_start_bytes(segment) + start_bytes) / SECTOR_BYTES)
    }

    /// Returns the segment that contains `sector`, or `None` if it is outside of all segments.
    pub(crate) fn segment_of(&self, sector: Sector) -> Option<SegmentId> {
        let segment = sector.byte_offset().checked_sub(self.data_start_bytes)? / self.segment_bytes;
        let segment = u32::try_from(segment).ok()?;
        (segment < self.segment_count).then_some(SegmentId(segment))
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentId> + use<> {
        (0..self.segment_count).map(SegmentId)
    }
}

/// Returns the offset of the second superblock on a volume of `size_bytes`.
pub(crate) fn last_superblock_bytes(size_bytes: u64) -> u64 {
    (size_bytes / BLOCK_BYTES * BLOCK_BYTES).saturating_sub(SUPERBLOCK_BYTES)
}

/// Returns the offsets of both superblocks on a volume of `size_bytes`.
pub(crate) fn superblock_offsets(size_bytes: u64) -> [u64; 2] {
    [0, last_superblock_bytes(size_bytes)]
}

/// Returns the number of sectors that `len_bytes` touch if they begin `start_bytes` from the start of the volume.
pub(crate) fn sectors_spanned(start_bytes: u64, len_bytes: u64) -> u64 {
    sectors(start_bytes % SECTOR_BYTES + len_bytes)
}

/// Returns how many sectors are needed for `len_bytes`.
pub(crate) fn sectors(len_bytes: u64) -> u64 {
    len_bytes.div_ceil(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_lie_between_the_superblocks() {
        for size in [3 << 20, (1 << 30) + 777, 1 << 40] {
            let geometry = SegmentGeometry::new(size, 0, 256 << 10).unwrap();
            let last = SegmentId(geometry.segment_count - 1);
            assert!(geometry.segment_start_bytes(SegmentId(0)) >= SUPERBLOCK_BYTES);
            assert!(geometry.segment_end_bytes(last) <= last_superblock_bytes(size));
            let sector = Sector(geometry.segment_end_bytes(last) / SECTOR_BYTES);
            assert_eq!(geometry.segment_of(sector), None);
            assert_eq!(geometry.segment_of(Sector(sector.0 - 1)), Some(last));
            assert_eq!(geometry.segment_of(Sector(1)), None);
        }
    }

    #[test]
    fn a_volume_with_too_few_segments_is_none() {
        assert_eq!(SegmentGeometry::new(100, 0, 4096), None);
        assert_eq!(SegmentGeometry::new(1 << 20, 0, 1 << 20), None);
    }
}
