//! Finds and repairs one flipped bit under a checksum.
//!
//! The effect of a flipped bit on a CRC depends only on its distance from the end, and no two bits of a block have the
//! same effect. So the bit is found by searching from the end. Only structures that locate records or list removals are
//! repaired, so that one bit never costs more than its own record. Data for clients is never repaired.
//!
//! Invariant: the result has a valid checksum. If several bits are wrong, the probability of a false repair is the
//! number of bits in the block divided by 2^32; the records located by it are still checked by their own checksums.
//! Cost, only for damaged blocks: one table lookup per byte, and one checksum for each bit of the lengths.

use super::VolumeId;
use std::ops::Range;

/// Position of the checksum in a block, behind the magic. The checksum covers everything behind itself.
const CHECKSUM: Range<usize> = 4..8;

/// Repairs one flipped bit in the block at the start of `bytes`. Returns `None` if the damage is different. `extent`
/// computes the block's length from its first bytes. It reads the bytes in the range `lengths`, which may contain the
/// flipped bit.
pub(crate) fn mended(
    volume: VolumeId,
    magic: [u8; 4],
    bytes: &[u8],
    lengths: Range<usize>,
    extent: impl Fn(&[u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    if let Some(block) = extent(bytes).and_then(|len| bytes.get(..len))
        && let Some(mended) = mended_block(volume, magic, block)
    {
        return Some(mended);
    }
    let front = bytes.get(..lengths.end)?;
    if !front.starts_with(&magic) {
        return None;
    }
    lengths.flat_map(|byte| (0..u8::BITS).map(move |bit| (byte, 1_u8 << bit))).find_map(|(byte, bit)| {
        let mut other = front.to_vec();
        other[byte] ^= bit;
        let mut block = bytes.get(..extent(&other)?)?.to_vec();
        block[byte] ^= bit;
        let sum = volume.checksum(&[block.get(CHECKSUM.end..)?]);
        (block[CHECKSUM] == sum.to_le_bytes()).then_some(block)
    })
}

/// Repairs one flipped bit in `block`, like [`mended`] but for a block of known length.
pub(crate) fn mended_block(volume: VolumeId, magic: [u8; 4], block: &[u8]) -> Option<Vec<u8>> {
    let covered = block.get(CHECKSUM.end..)?;
    let mut mended = block.to_vec();
    let wrong_magic: u32 = block.iter().zip(magic).map(|(found, right)| (found ^ right).count_ones()).sum();
    let stored = u32::from_le_bytes(block[CHECKSUM].try_into().ok()?);
    let difference = stored ^ volume.checksum(&[covered]);
    match (wrong_magic, difference) {
        (0 | 1, 0) => mended[..CHECKSUM.start].copy_from_slice(&magic),
        (0, _) if difference.is_power_of_two() => {
            mended[CHECKSUM].copy_from_slice(&(stored ^ difference).to_le_bytes());
        }
        (0, _) => {
            let (distance, bit) = flipped_bit(difference, covered.len())?;
            mended[block.len() - 1 - distance] ^= bit;
        }
        _ => return None,
    }
    Some(mended)
}

/// Returns which flipped bit changes the checksum of a block of `len` bytes by `difference`: its byte, counted from the
/// end, and a mask with the bit.
fn flipped_bit(mut difference: u32, len: usize) -> Option<(usize, u8)> {
    for distance in 0..len {
        if let Some(bit) = (0..u8::BITS).find(|bit| STEPS[1 << bit] == difference) {
            return Some((distance, 1 << bit));
        }
        // The difference one byte earlier. The highest byte of a step identifies the step.
        let step = usize::from(STEP_BY_HIGH[(difference >> 24) as usize]);
        difference = (difference ^ STEPS[step]) << 8 | step as u32;
    }
    None
}

/// Table of CRC32C: how each value of a byte changes the remainder.
const STEPS: [u32; 256] = {
    const POLYNOMIAL_REFLECTED: u32 = 0x82F6_3B78;
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 };
            bit += 1;
        }
        steps[byte] = remainder;
        byte += 1;
    }
    steps
};

/// Inverse of [`STEPS`]: maps the highest byte of a value to the value's index. No two values have the same highest
/// byte.
const STEP_BY_HIGH: [u8; 256] = {
    let mut by_high = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        by_high[(STEPS[byte] >> 24) as usize] = byte as u8;
        byte += 1;
    }
    by_high
};

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId([7; 16]);
    const MAGIC: [u8; 4] = *b"LDR?";

    /// Returns a valid block of `len` bytes. Its ninth byte states the length.
    fn block(len: u8) -> Vec<u8> {
        let mut block: Vec<u8> = (0..len).map(|n| n.wrapping_mul(37)).collect();
        block[..4].copy_from_slice(&MAGIC);
        block[8] = len;
        let checksum = VOLUME.checksum(&[&block[8..]]);
        block[4..8].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    fn mend(bytes: &[u8]) -> Option<Vec<u8>> {
        mended(VOLUME, MAGIC, bytes, 8..9, |bytes| bytes.get(8).map(|&len| usize::from(len)).filter(|len| *len > 8))
    }

    #[test]
    fn every_flipped_bit_is_undone_wherever_it_is() {
        let whole = block(200);
        let mut bytes = [&whole[..], &[9; 80]].concat();
        assert_eq!(mend(&bytes).as_ref(), Some(&whole));
        for bit in 0..whole.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(mend(&bytes).as_ref(), Some(&whole), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn two_flipped_bits_and_what_is_no_block_are_left_alone() {
        let whole = block(60);
        for (one, other) in (0..480).flat_map(|one| [(one, (one + 1) % 480), (one, (one * 7 + 100) % 480)]) {
            let mut bytes = whole.clone();
            bytes[one / 8] ^= 1 << (one % 8);
            bytes[other / 8] ^= 1 << (other % 8);
            assert!(one == other || mend(&bytes).is_none(), "bits {one} and {other}");
        }
        assert_eq!((mend(&[]), mend(&[0; 100]), mend(&MAGIC)), (None, None, None));
    }
}
