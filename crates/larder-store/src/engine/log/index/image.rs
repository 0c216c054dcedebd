//! Buckets as packed bytes: reads and writes single slots, in a partition or in its image on the volume.
//!
//! This module knows neither keys nor how a slot's bucket is chosen. Cost: one unaligned word per slot.

use super::{
    WAYS,
    slot::{IndexSlot, SlotWidths},
};

/// The place of a slot: the number of its bucket, and its place (way) in the bucket.
pub(super) type SlotPlace = (u32, usize);

/// Padding behind the buckets of a partition, so that the last slot can be read as a whole word.
pub(super) const FILL_BYTES: usize = size_of::<u128>();

/// Returns which ways of a bucket have a slot with this tag: bit n stands for way n. `bytes` must end with
/// [`FILL_BYTES`] of padding.
pub(super) fn ways_with_tag(bytes: &[u8], widths: SlotWidths, bucket: u32, tag: u32) -> u16 {
    let tag_mask = widths.tag_mask();
    let tag = u64::from(tag);
    let with_tag = ways_where(bytes, widths, bucket, |word| (word ^ tag) & tag_mask == 0);
    // Only an empty slot has no bit, so another tag is never one's.
    if tag == 0 { with_tag & ways_in_use(bytes, widths, bucket) } else { with_tag }
}

/// Returns which ways of a bucket are used: bit n stands for way n. `bytes` must end with [`FILL_BYTES`] of padding.
pub(super) fn ways_in_use(bytes: &[u8], widths: SlotWidths, bucket: u32) -> u16 {
    let slot_mask = mask(widths);
    ways_where(bytes, widths, bucket, |word| word & slot_mask != 0)
}

/// Returns for which ways of a bucket `is_meant` is true, as one bit for each way. `is_meant` gets a word with the
/// packed slot in its lowest bits.
///
/// The slots of the first eight ways take a whole number of bytes. So way 8 begins at the same bit of its byte as way
/// 0, way 9 as way 1, and both are read with one shift. Every lookup calls this twice, with 16 slots each time. The
/// last buckets are read slot by slot, because too few octets follow them.
#[inline]
fn ways_where(bytes: &[u8], widths: SlotWidths, bucket: u32, is_meant: impl Fn(u64) -> bool) -> u16 {
    let start = bucket as usize * widths.bucket_bytes();
    let half = widths.bucket_bytes() / 2;
    let mut set = 0;
    if let (Some(first), Some(second)) = (bytes[start..].first_chunk(), bytes[start + half..].first_chunk())
        && fits_word(widths)
    {
        for way in 0..WAYS / 2 {
            // The mask shows the compiler that every word is in its half.
            let bit = way * (widths.slot_bits() as usize & 63);
            let shift = bit % 8;
            set |= u16::from(is_meant(word(first, bit / 8) >> shift)) << way;
            set |= u16::from(is_meant(word(second, bit / 8) >> shift)) << (way + WAYS / 2);
        }
        return set;
    }
    let window = &bytes[start..start + widths.bucket_bytes() + FILL_BYTES];
    for way in 0..WAYS {
        let bit = way * widths.slot_bits() as usize;
        let word = (wide_word(&window[bit / 8..]) >> (bit % 8)) as u64;
        set |= u16::from(is_meant(word)) << way;
    }
    set
}

/// Returns the packed slot at `at`; 0 if there is none.
pub(super) fn read(bytes: &[u8], widths: SlotWidths, at: SlotPlace) -> u64 {
    let (byte, shift) = window(widths, at);
    match bytes[byte..].first_chunk() {
        Some(chunk) if fits_word(widths) => u64::from_le_bytes(*chunk) >> shift & mask(widths),
        _ => (wide_word(&bytes[byte..]) >> shift) as u64 & mask(widths),
    }
}

/// Writes the packed slot at `at`.
pub(super) fn write(bytes: &mut [u8], widths: SlotWidths, at: SlotPlace, packed: u64) {
    assert!(packed <= mask(widths), "a slot has no more bits than its width");
    let (byte, shift) = window(widths, at);
    let target = &mut bytes[byte..];
    if fits_word(widths)
        && let Some(chunk) = target.first_chunk_mut()
    {
        *chunk = (u64::from_le_bytes(*chunk) & !(mask(widths) << shift) | packed << shift).to_le_bytes();
        return;
    }
    let word = wide_word(target) & !(u128::from(mask(widths)) << shift) | u128::from(packed) << shift;
    let len = target.len().min(size_of::<u128>());
    target[..len].copy_from_slice(&word.to_le_bytes()[..len]);
}

/// Removes the slots of `image` for which `keep` returns `false`. Returns how many slots were removed.
pub(super) fn retain(image: &mut [u8], widths: SlotWidths, mut keep: impl FnMut(IndexSlot) -> bool) -> u64 {
    let mut removed = 0;
    debug_assert!(image.len() >= widths.bucket_bytes(), "an image has a bucket");
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

fn window(widths: SlotWidths, (bucket, way): SlotPlace) -> (usize, u32) {
    let bit = way * widths.slot_bits() as usize;
    (bucket as usize * widths.bucket_bytes() + bit / 8, bit as u32 % 8)
}

/// Returns whether eight bytes have the whole of a slot, at whatever bit of the first byte it begins.
fn fits_word(widths: SlotWidths) -> bool {
    widths.slot_bits() + 7 <= u64::BITS
}

fn mask(widths: SlotWidths) -> u64 {
    u64::MAX >> (u64::BITS - widths.slot_bits())
}

/// Maximum number of bytes that are read for the slots of half a bucket.
const HALF_BYTES_MAX: usize = 64 + size_of::<u64>();

/// Returns the eight bytes from `byte` on as a little-endian number.
fn word(half: &[u8; HALF_BYTES_MAX], byte: usize) -> u64 {
    u64::from_le_bytes(*half[byte..].first_chunk().expect("the bytes of eight slots end before their last word"))
}

/// Returns the first sixteen bytes as a little-endian number. Missing bytes count as zeros.
fn wide_word(bytes: &[u8]) -> u128 {
    match bytes.first_chunk() {
        Some(chunk) => u128::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; size_of::<u128>()];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(chunk)
        }
    }
}
