//! Fields of any width, packed without gaps into bytes.
//!
//! The meaning of fields is unknown here. Invariant: writing a field does not change its neighbors' bits. Cost: two
//! unaligned word accesses per field. The system allocates the memory when it is first written.

/// Maximum width of a field, in bits. A field of this width fits in one word at any bit offset within a byte.
pub(crate) const FIELD_BITS_MAX: u32 = u64::BITS - 7;

/// An array of bit fields, packed without gaps and initially zero.
pub(crate) struct PackedBits {
    /// The fields, and padding so that the last one can be read as a whole word.
    bytes: Box<[u8]>,
}

impl PackedBits {
    /// Creates an array of `len_bits` bits, all zero.
    pub(crate) fn new(len_bits: u64) -> Self {
        let len_bytes = len_bits.div_ceil(8) as usize + size_of::<u64>();
        Self { bytes: vec![0; len_bytes].into_boxed_slice() }
    }

    /// Returns the memory that the array takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the field of `width` bits that begins at bit `at`.
    pub(crate) fn read(&self, at: u64, width: u32) -> u64 {
        (self.word(at) >> (at % 8)) & mask(width)
    }

    /// Replaces the field of `width` bits that begins at bit `at` by `value`.
    pub(crate) fn write(&mut self, at: u64, width: u32, value: u64) {
        assert!(value <= mask(width), "{value} has more than {width} bits");
        let shift = at % 8;
        let word = self.word(at) & !(mask(width) << shift) | value << shift;
        let byte = (at / 8) as usize;
        self.bytes[byte..byte + size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
    }

    fn word(&self, at: u64) -> u64 {
        let bytes = &self.bytes[(at / 8) as usize..];
        u64::from_le_bytes(*bytes.first_chunk().expect("the fields end with a word of fill"))
    }
}

/// Reads or writes fields one after the other.
pub(crate) struct BitCursor {
    at: u64,
}

impl BitCursor {
    /// Creates a cursor at bit `at`.
    pub(crate) fn at(at: u64) -> Self {
        Self { at }
    }

    /// Returns the next field of `width` bits. Returns 0 if `width` is 0.
    pub(crate) fn read(&mut self, bits: &PackedBits, width: u32) -> u64 {
        let value = bits.read(self.at, width);
        debug_assert!(
            value.checked_shr(width).is_none_or(|rest| rest == 0),
            "a field has no more bits than it is wide"
        );
        self.at += u64::from(width);
        value
    }

    /// Replaces the next field of `width` bits by `value`.
    pub(crate) fn write(&mut self, bits: &mut PackedBits, width: u32, value: u64) {
        bits.write(self.at, width, value);
        debug_assert_eq!(bits.read(self.at, width), value, "what is written is read");
        self.at += u64::from(width);
    }
}

fn mask(width: u32) -> u64 {
    assert!(width <= FIELD_BITS_MAX);
    (1 << width) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_of_any_widths_keep_their_values(fields in prop::collection::vec((0..=FIELD_BITS_MAX, any::<u64>()), 1..100)) {
            let len_bits = fields.iter().map(|&(width, _)| u64::from(width)).sum();
            let mut bits = PackedBits::new(len_bits);
            // Twice, so that the second round overwrites.
            for flip in [u64::MAX, 0] {
                let mut cursor = BitCursor::at(0);
                for &(width, value) in &fields {
                    cursor.write(&mut bits, width, (value ^ flip) & mask(width));
                }
            }
            let mut cursor = BitCursor::at(0);
            for (width, value) in fields {
                prop_assert_eq!(cursor.read(&bits, width), value & mask(width));
            }
        }
    }
}
