//! Buckets as packed bytes: how one slot is read and written, in a partition or in its image on the volume.
//!
//! Does not: know keys, or which slot may stand where. Cost: one unaligned word a slot.

use super::{
    WAYS,
    slot::{Slot, SlotWidths},
};

/// A slot's bucket and way.
pub(super) type At = (u32, usize);

/// The packed slot at `at`, 0 if it is empty.
pub(super) fn read(bytes: &[u8], widths: SlotWidths, at: At) -> u64 {
    let (byte, shift) = window(widths, at);
    (word(&bytes[byte..]) >> shift) & mask(widths)
}

/// Writes the packed slot at `at`.
pub(super) fn write(bytes: &mut [u8], widths: SlotWidths, at: At, packed: u64) {
    let (byte, shift) = window(widths, at);
    let target = &mut bytes[byte..];
    let word = word(target) & !(mask(widths) << shift) | packed << shift;
    let len = target.len().min(size_of::<u64>());
    target[..len].copy_from_slice(&word.to_le_bytes()[..len]);
}

/// Removes the slots that `keep` does not want; how many.
pub(super) fn retain(image: &mut [u8], widths: SlotWidths, mut keep: impl FnMut(Slot) -> bool) -> u64 {
    let mut removed = 0;
    for bucket in 0..(image.len() / widths.bucket_bytes()) as u32 {
        for at in (0..WAYS).map(|way| (bucket, way)) {
            let packed = read(image, widths, at);
            if packed != 0 && !keep(widths.unpack(packed)) {
                write(image, widths, at, 0);
                removed += 1;
            }
        }
    }
    removed
}

fn window(widths: SlotWidths, (bucket, way): At) -> (usize, u32) {
    let bit = way * widths.slot_bits() as usize;
    (bucket as usize * widths.bucket_bytes() + bit / 8, bit as u32 % 8)
}

fn mask(widths: SlotWidths) -> u64 {
    (1 << widths.slot_bits()) - 1
}

/// The word at the start of `bytes`; zeros follow the end.
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; size_of::<u64>()];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(chunk)
        }
    }
}
