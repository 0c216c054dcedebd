//! A slot of the index: its fields, and their packing into as few bits as the volume allows.
//!
//! Owns: [`VolumeWidths`] and [`SlotWidths`], the only place that decides widths. Invariant: a packed slot is never 0,
//! which marks an empty one.

use super::WAYS;
use crate::{format::record::SPAN_SECTORS_MAX, hash::INDEX_HASH_BITS_MIN, units::Sector};

/// The data that the index has of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexSlot {
    /// The sector in which the record begins.
    pub(crate) position: Sector,
    pub(crate) size: SizeClass,
    /// Number of hits since the record was written, at most [`IndexSlot::HITS_MAX`].
    pub(crate) hits: u8,
    /// Whether the entry expires soon after it was written. If so, the segment's deadline for short-lived entries
    /// applies ([`super::super::layout::segments`]).
    pub(crate) short_lived: bool,
}

impl IndexSlot {
    pub(crate) const HITS_MAX: u8 = (1 << HIT_BITS) - 1;
}

/// The length of a record as one of 32 classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass(u8);

/// Length of each class in sectors. From 3 to 192 sectors, each class is at most a third longer than the previous
/// class; above, at most half longer. The class of 2056 sectors fits a body of 1 MiB with 4 KiB of header, so that
/// chunks of long bodies are read exactly.
const CLASS_SECTORS: [u16; 1 << SIZE_BITS] = [
    1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 288, 424, 632,
    936, 1384, 2056, 2224,
];
const _: () = assert!(CLASS_SECTORS[CLASS_SECTORS.len() - 1] as u64 >= SPAN_SECTORS_MAX);
const _: () = assert!(VolumeWidths::ALL[VolumeWidths::ALL.len() - 1].hash_bits >= INDEX_HASH_BITS_MIN);

impl SizeClass {
    /// Returns the smallest class of at least `sectors`.
    pub(crate) fn holding(sectors: u64) -> Self {
        assert!(sectors <= SPAN_SECTORS_MAX);
        Self(CLASS_SECTORS.partition_point(|&class| u64::from(class) < sectors) as u8)
    }

    /// Returns the number of sectors to read for a record of this class.
    pub(crate) fn sectors(self) -> u64 {
        u64::from(CLASS_SECTORS[usize::from(self.0)])
    }
}

const SIZE_BITS: u32 = 5;
const HIT_BITS: u32 = 2;
const SHORT_LIVED_BITS: u32 = 1;
const FIXED_BITS: u32 = SIZE_BITS + HIT_BITS + SHORT_LIVED_BITS;

impl IndexSlot {
    /// Returns the fields as one number. A packed slot has this number above the bits of the tag.
    pub(crate) fn to_bits(self) -> u64 {
        assert!(self.position.0 > 0, "no record begins in the first sector");
        let mut bits = self.position.0;
        bits = bits << SHORT_LIVED_BITS | u64::from(self.short_lived);
        bits = bits << HIT_BITS | u64::from(self.hits);
        bits << SIZE_BITS | u64::from(self.size.0)
    }

    /// Returns the slot whose fields [`Self::to_bits`] returned as `bits`.
    pub(crate) fn from_bits(bits: u64) -> Self {
        let hits = bits >> SIZE_BITS;
        let short_lived = hits >> HIT_BITS;
        Self {
            position: Sector(short_lived >> SHORT_LIVED_BITS),
            size: SizeClass((bits & ((1 << SIZE_BITS) - 1)) as u8),
            hits: (hits & ((1 << HIT_BITS) - 1)) as u8,
            short_lived: short_lived & 1 == 1,
        }
    }
}

/// Widths of addresses and positions on a volume, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeWidths {
    pub(crate) position_bits: u32,
    pub(crate) hash_bits: u32,
}

impl VolumeWidths {
    /// The widths for volumes of up to 8 GiB, 128 GiB, 1 TiB and 16 TiB. On larger volumes positions take more bits, so
    /// fewer are left for the hash, and an entry takes at most 60 bits. This causes more false matches only if entries
    /// are far shorter than on the web.
    pub(super) const ALL: [Self; 4] = [Self::new(24, 22), Self::new(28, 22), Self::new(31, 21), Self::new(35, 20)];

    const fn new(position_bits: u32, hash_bits: u32) -> Self {
        Self { position_bits, hash_bits }
    }

    /// Returns the narrowest widths with which positions reach every sector of a volume.
    ///
    /// # Panics
    /// If the volume is larger than 16 TiB. The options refuse this earlier.
    pub(crate) fn for_volume(sectors: u64) -> Self {
        let reaches = |widths: &&Self| sectors <= 1 << widths.position_bits;
        *Self::ALL.iter().find(reaches).expect("sizes over 16 TiB are refused when the volume is opened")
    }

    /// Returns the widths of a slot's fields in a table with `bucket_count` buckets. With more buckets, the bucket
    /// determines more bits of the address, so the tag is shorter.
    pub(super) fn in_table(self, bucket_count: u32) -> SlotWidths {
        assert!(bucket_count > 0, "a table has buckets");
        SlotWidths { position_bits: self.position_bits, tag_bits: self.hash_bits - bucket_count.ilog2() + 1 }
    }
}

/// Widths of a slot's fields in one table, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotWidths {
    position_bits: u32,
    /// Number of bits of the tag: the address bits that the bucket does not determine, and one bit for which of the
    /// address's two buckets has the slot.
    tag_bits: u32,
}

impl SlotWidths {
    /// Returns the number of bits of a packed slot.
    pub(crate) const fn slot_bits(self) -> u32 {
        FIXED_BITS + self.position_bits + self.tag_bits
    }

    /// Returns the number of bytes of a bucket.
    pub(crate) const fn bucket_bytes(self) -> usize {
        self.slot_bits() as usize * WAYS / 8
    }

    pub(super) fn pack(self, tag: u32, slot_bits: u64) -> u64 {
        debug_assert!(tag < 1 << self.tag_bits && slot_bits < 1 << (FIXED_BITS + self.position_bits));
        slot_bits << self.tag_bits | u64::from(tag)
    }

    /// Returns the fields of a packed slot without its tag, as [`IndexSlot::to_bits`] does.
    pub(super) fn slot_bits_of(self, packed: u64) -> u64 {
        packed >> self.tag_bits
    }

    pub(super) fn unpack(self, packed: u64) -> IndexSlot {
        IndexSlot::from_bits(self.slot_bits_of(packed))
    }

    pub(super) fn tag_of(self, packed: u64) -> u32 {
        (packed & self.tag_mask()) as u32
    }

    pub(super) const fn tag_mask(self) -> u64 {
        (1 << self.tag_bits) - 1
    }
}

// The widest slot, in a table of one bucket, fits into 64 bits.
const _: () = assert!(FIXED_BITS + 35 + 20 < u64::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_every_field_at_every_width() {
        for (volume, bucket_count) in
            VolumeWidths::ALL.into_iter().flat_map(|volume| [1, 2, 300, 5000].map(|n| (volume, n)))
        {
            let widths = volume.in_table(bucket_count);
            let position = Sector((1 << volume.position_bits) - 1);
            let slot = IndexSlot { position, size: SizeClass(31), hits: 3, short_lived: true };
            let tag = widths.tag_mask() as u32;
            let packed = widths.pack(tag, slot.to_bits());
            assert_eq!((widths.unpack(packed), widths.tag_of(packed)), (slot, tag));
            let least = IndexSlot { position: Sector(1), size: SizeClass(0), hits: 0, short_lived: false };
            assert_eq!(widths.unpack(widths.pack(0, least.to_bits())), least);
            assert_ne!(widths.pack(0, least.to_bits()), 0);
        }
    }

    #[test]
    fn a_class_holds_what_it_is_chosen_for() {
        for sectors in 1..=SPAN_SECTORS_MAX {
            let class = SizeClass::holding(sectors).sectors();
            assert!(class >= sectors && (class <= sectors + 1 || class * 2 <= sectors * 3), "{sectors} in {class}");
        }
    }
}
