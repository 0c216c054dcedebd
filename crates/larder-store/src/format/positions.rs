//! The position file: for every set of the index, the positions of entries that do not fit in memory.
//!
//! Layout: a sheet per set, as many as fit in a block. A sheet contains a checksum, the set's number, and pairs of a
//! tag and a position. Invariant: a sheet is trusted only if its checksum is valid and its set's number matches. A pair
//! without a tag is unused. Source: HashCache (NSDI 2009), LogLRU: a small contiguous file per set.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
};
use crate::units::{BLOCK_BYTES, SetNumber};

const HEADER_BYTES: u64 = 8;
const PAIR_BYTES: u64 = 7;
const PLACE_BYTES: usize = 5;

/// The tag of an entry in a set, and its position in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagPlace {
    pub(crate) tag: u16,
    pub(crate) position: u64,
}

/// Returns the bytes of a sheet for sets of `ways` ways.
pub(crate) fn sheet_bytes(ways: u32) -> u64 {
    (HEADER_BYTES + u64::from(ways) * PAIR_BYTES).next_power_of_two()
}

/// Returns the number of sheets in a block.
pub(crate) fn sheets_per_block(ways: u32) -> u64 {
    BLOCK_BYTES / sheet_bytes(ways)
}

/// Writes the sheet of `set`, which fills `target`.
pub(crate) fn encode(volume: VolumeId, set: SetNumber, pairs: &[TagPlace], target: &mut [u8]) {
    target.fill(0);
    let mut fields = FieldsMut::new(target);
    fields.put(&0_u32.to_le_bytes()).put(&(set.0 as u32).to_le_bytes());
    for pair in pairs {
        fields.put(&pair.tag.to_le_bytes()).put(&pair.position.to_le_bytes()[..PLACE_BYTES]);
    }
    let checksum = volume.checksum(&[&target[4..]]);
    target[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes the pairs of `set`. Returns `None` if `sheet` is not a valid sheet of this set.
pub(crate) fn decode(volume: VolumeId, set: SetNumber, sheet: &[u8]) -> Option<Vec<TagPlace>> {
    let mut fields = FieldReader::new(sheet);
    if fields.u32()? != volume.checksum(&[sheet.get(4..)?]) || fields.u32()? != set.0 as u32 {
        return None;
    }
    let mut pairs = Vec::new();
    while let (Some(tag), Some(low)) = (fields.u16(), fields.array::<PLACE_BYTES>()) {
        let mut position = [0; 8];
        position[..PLACE_BYTES].copy_from_slice(&low);
        if tag != 0 {
            pairs.push(TagPlace { tag, position: u64::from_le_bytes(position) });
        }
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_is_read_back_by_its_own_set_and_every_flipped_bit_of_it_noticed() {
        let volume = VolumeId([5; 16]);
        let pairs: Vec<_> = (1..=8).map(|tag| TagPlace { tag, position: (1 << 35) - u64::from(tag) }).collect();
        let mut sheet = vec![9; sheet_bytes(8) as usize];
        assert_eq!((sheet.len(), sheets_per_block(8), sheets_per_block(16)), (64, 64, 32));
        encode(volume, SetNumber(77), &pairs, &mut sheet);
        assert_eq!(decode(volume, SetNumber(77), &sheet), Some(pairs));
        assert_eq!(decode(volume, SetNumber(78), &sheet), None, "another set's");
        assert_eq!(decode(VolumeId([6; 16]), SetNumber(77), &sheet), None, "another volume's");
        for bit in 0..sheet.len() * 8 {
            sheet[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(volume, SetNumber(77), &sheet), None, "bit {bit}");
            sheet[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!((decode(volume, SetNumber(0), &[0; 64]), decode(volume, SetNumber(0), &[0; 3])), (None, None));
    }
}
