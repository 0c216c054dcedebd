//! A slot of the index: its fields, and how they are packed into as few bits as the volume allows.
//!
//! Owns: [`SlotWidths`], the one place where widths are decided; a width beyond the budget does not
//! compile. Invariant: a packed slot is never 0, which stands for an empty one.

use super::WAYS;
use crate::{format::record::RECORD_SECTORS_MAX, hash::KeyHash, units::Sector};

/// What the index knows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// First sector of the record.
    pub(crate) position: Sector,
    pub(crate) size: SizeClass,
    /// Hits since it was written, at most [`Slot::HITS_MAX`].
    pub(crate) hits: u8,
    /// Whether it is of no use soon after it was written (see the segment's deadlines).
    pub(crate) short_lived: bool,
}

impl Slot {
    pub(crate) const HITS_MAX: u8 = (1 << HIT_BITS) - 1;
}

/// The length of a record, rounded up to one of 32 steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass(u8);

/// Sectors of each class; neighbours differ by at most half, small ones by a third or less. 2056 are a body of 1 MiB
/// with 4 KiB for what stands before it: the chunks of long bodies are read as they are.
const CLASS_SECTORS: [u16; 1 << SIZE_BITS] = [
    1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 288, 424, 632,
    936, 1384, 2056, 2216,
];
const _: () = assert!(CLASS_SECTORS[CLASS_SECTORS.len() - 1] as u64 >= RECORD_SECTORS_MAX);

impl SizeClass {
    /// The smallest class that holds `sectors`.
    pub(crate) fn holding(sectors: u64) -> Self {
        assert!(sectors <= RECORD_SECTORS_MAX);
        Self(CLASS_SECTORS.partition_point(|&class| u64::from(class) < sectors) as u8)
    }

    /// How many sectors to read.
    pub(crate) fn sectors(self) -> u64 {
        u64::from(CLASS_SECTORS[usize::from(self.0)])
    }
}

const TAG_BITS: u32 = 13;
const SIZE_BITS: u32 = 5;
const HIT_BITS: u32 = 2;
const SHORT_LIVED_BITS: u32 = 1;
const FIXED_BITS: u32 = TAG_BITS + SIZE_BITS + HIT_BITS + SHORT_LIVED_BITS;

/// Widths of a slot's fields for one size of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotWidths {
    position_bits: u32,
}

impl SlotWidths {
    /// Most bits a slot may take on a volume of 1 TiB.
    pub(crate) const BUDGET_BITS: u32 = 52;

    /// Volumes up to 8 GiB, 128 GiB, 1 TiB and 16 TiB.
    pub(super) const ALL: [Self; 4] = [Self::new(24), Self::new(28), Self::new(31), Self::new(35)];

    const fn new(position_bits: u32) -> Self {
        Self { position_bits }
    }

    /// The narrowest widths whose positions reach every sector of a volume.
    ///
    /// # Panics
    /// Beyond 16 TiB, which options refuse before.
    pub(crate) fn for_volume(sectors: u64) -> Self {
        let reaches = |widths: &&Self| sectors <= 1 << widths.position_bits;
        *Self::ALL.iter().find(reaches).expect("sizes over 16 TiB are refused when the volume is opened")
    }

    /// Bits of a slot.
    pub(crate) const fn slot_bits(self) -> u32 {
        FIXED_BITS + self.position_bits
    }

    /// Bytes of a bucket.
    pub(crate) const fn bucket_bytes(self) -> usize {
        self.slot_bits() as usize * WAYS / 8
    }

    /// The tag of a key's hash: bits that do not choose the bucket.
    pub(crate) fn tag(key_hash: KeyHash) -> u16 {
        (key_hash.0 & ((1 << TAG_BITS) - 1)) as u16
    }

    pub(crate) fn pack(self, tag: u16, slot: Slot) -> u64 {
        assert!(slot.position.0 > 0 && slot.position.0 < 1 << self.position_bits);
        let mut packed = slot.position.0;
        packed = packed << SHORT_LIVED_BITS | u64::from(slot.short_lived);
        packed = packed << HIT_BITS | u64::from(slot.hits);
        packed = packed << SIZE_BITS | u64::from(slot.size.0);
        packed << TAG_BITS | u64::from(tag)
    }

    pub(crate) fn unpack(self, packed: u64) -> Slot {
        let size = packed >> TAG_BITS;
        let hits = size >> SIZE_BITS;
        let short_lived = hits >> HIT_BITS;
        Slot {
            position: Sector(short_lived >> SHORT_LIVED_BITS),
            size: SizeClass((size & ((1 << SIZE_BITS) - 1)) as u8),
            hits: (hits & ((1 << HIT_BITS) - 1)) as u8,
            short_lived: short_lived & 1 == 1,
        }
    }

    /// The tag of a packed slot, which has it where a key's hash has its.
    pub(super) fn packed_tag(packed: u64) -> u16 {
        Self::tag(KeyHash(packed))
    }
}

// A width that breaks the budget does not compile; nor one that a slot's 64-bit window cannot hold
// at any bit offset within a byte.
const _: () = assert!(SlotWidths::ALL[2].slot_bits() <= SlotWidths::BUDGET_BITS);
const _: () = assert!(SlotWidths::ALL[3].slot_bits() + 7 <= u64::BITS);
const _: () = assert!(SlotWidths::ALL[2].bucket_bytes() <= 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terabyte_costs_at_most_52_bits_a_slot_and_55_an_entry() {
        let widths = SlotWidths::for_volume((1 << 40) / 512);
        assert!(widths.slot_bits() <= 52, "{} bits", widths.slot_bits());
        assert!(f64::from(widths.slot_bits()) / 0.95 <= 55.0);
        assert!(SlotWidths::for_volume((5 << 30) / 512).slot_bits() <= 48, "small volumes pay less");
    }

    #[test]
    fn packing_keeps_every_field_at_every_width() {
        for widths in SlotWidths::ALL {
            let position = Sector((1 << widths.position_bits) - 1);
            let slot = Slot { position, size: SizeClass(31), hits: 3, short_lived: true };
            assert_eq!(widths.unpack(widths.pack(0x1fff, slot)), slot);
            assert_eq!(SlotWidths::packed_tag(widths.pack(0x0aaa, slot)), 0x0aaa);
            let least = Slot { position: Sector(1), size: SizeClass(0), hits: 0, short_lived: false };
            assert_eq!(widths.unpack(widths.pack(0, least)), least);
            assert_ne!(widths.pack(0, least), 0);
        }
    }

    #[test]
    fn a_class_holds_what_it_is_chosen_for() {
        for sectors in 1..=RECORD_SECTORS_MAX {
            let class = SizeClass::holding(sectors).sectors();
            assert!(class >= sectors && (class <= sectors + 1 || class * 2 <= sectors * 3), "{sectors} in {class}");
        }
    }
}
