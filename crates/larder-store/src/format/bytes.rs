//! Little-endian fields in a byte slice, read and written in order.
//!
//! Invariant: a [`FieldReader`] never reads past its slice; it returns `None` at the end.

use super::steps;

/// Reads fields from a byte slice, one after the other.
pub(crate) struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        steps::take(N);
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }
}

/// Writes fields to a byte slice, one after the other.
pub(crate) struct FieldsMut<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> FieldsMut<'a> {
    /// Creates a writer at the start of `bytes`.
    ///
    /// # Panics
    /// `put` panics if the field does not fit in the remainder of `bytes`. The format fixes all lengths, so that is a
    /// programming error.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }
}
