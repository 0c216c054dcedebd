//! Reads what this process has packed into memory, so nothing is checked.

/// Reads the numbers of a packed head, and its fields in their short form.
pub(super) struct PackedReader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> PackedReader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// Reads bytes after their length.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        bytes
    }

    /// Reads a number of `LEN` bytes, the lowest first.
    pub(super) fn fixed<const LEN: usize>(&mut self) -> u64 {
        let (bytes, rest) = self.rest.split_first_chunk::<LEN>().expect(COMPLETE);
        self.rest = rest;
        let mut number = [0; size_of::<u64>()];
        number[..LEN].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    }

    pub(super) fn number(&mut self) -> u64 {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let byte = self.byte().expect(COMPLETE);
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    pub(super) fn signed(&mut self) -> i64 {
        let value = self.number();
        (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
    }
}

/// The reason why a read cannot fail.
pub(super) const COMPLETE: &str = "the same process has packed it";
