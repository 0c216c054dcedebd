//! The position file: for every set of the index, the positions of entries that do not fit in memory.
//!
//! Layout: a sheet per set, as many as fit in a block. A sheet contains a checksum, the set's number, and a position in
//! sectors for each way; 0 means none. Invariant: a sheet is trusted only if its checksum is valid and its set's number
//! matches. Source: HashCache (NSDI 2009), LogLRU: a small contiguous file per set.

use super::{
    VolumeId,
    bytes::{FieldReader, FieldsMut},
};
use crate::units::{BLOCK_BYTES, SetNumber};

const HEADER_BYTES: u64 = 8;
const POSITION_BYTES: usize = 5;

/// Returns the length in bytes of a sheet, which has the positions of one set. `ways` is the number of entries in a
/// set.
pub(crate) fn sheet_bytes(ways: u32) -> u64 {
    (HEADER_BYTES + u64::from(ways) * POSITION_BYTES as u64).next_power_of_two()
}

/// Returns the number of sheets (each with the positions of one set) per block. `ways` is the number of entries in a
/// set.
pub(crate) fn sheets_per_block(ways: u32) -> u64 {
    BLOCK_BYTES / sheet_bytes(ways)
}

/// Writes the sheet of `set`, its entries' positions, into `target`. `positions` has one position for each way (place
/// for an entry in the set).
pub(crate) fn encode(volume: VolumeId, set: SetNumber, positions: &[Option<u64>], target: &mut [u8]) {
    target.fill(0);
    let mut fields = FieldsMut::new(target);
    fields.put(&0_u32.to_le_bytes()).put(&(set.0 as u32).to_le_bytes());
    for position in positions {
        fields.put(&position.unwrap_or(0).to_le_bytes()[..POSITION_BYTES]);
    }
    let checksum = volume.checksum(&[&target[4..]]);
    target[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes the positions from the `sheet` of `set`, one for each way. The unused end of the sheet may add further
/// `None`s. Returns `None` if this is not a valid sheet of this set.
pub(crate) fn decode(volume: VolumeId, set: SetNumber, sheet: &[u8]) -> Option<Vec<Option<u64>>> {
    let mut fields = FieldReader::new(sheet);
    if fields.u32()? != volume.checksum(&[sheet.get(4..)?]) || fields.u32()? != set.0 as u32 {
        return None;
    }
    let mut positions = Vec::new();
    while let Some(low) = fields.array::<POSITION_BYTES>() {
        let mut position = [0; 8];
        position[..POSITION_BYTES].copy_from_slice(&low);
        positions.push(Some(u64::from_le_bytes(position)).filter(|&position| position != 0));
    }
    Some(positions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_is_read_back_by_its_own_set_and_every_flipped_bit_of_it_noticed() {
        let volume = VolumeId([5; 16]);
        let of_way = |way: u64| (way != 3).then_some((1 << 35) - way);
        // A sheet of 64 bytes has room for three more.
        let positions: Vec<_> = (0..8).map(of_way).chain([None; 3]).collect();
        let mut sheet = vec![9; sheet_bytes(8) as usize];
        assert_eq!((sheet.len(), sheets_per_block(8), sheets_per_block(16)), (64, 64, 32));
        encode(volume, SetNumber(77), &positions[..8], &mut sheet);
        assert_eq!(decode(volume, SetNumber(77), &sheet), Some(positions));
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
