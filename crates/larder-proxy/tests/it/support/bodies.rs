//! Bodies of any length.

/// Returns bytes in which no megabyte equals another one within 16. Generated eight at a time, because tests need
/// gigabytes.
pub(crate) fn body(len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|word| {
        let index = word * 8;
        let base = (index ^ (index >> 8) ^ (index >> 16)) & 0xFF;
        (0x0706_0504_0302_0100 ^ (REPEAT * base)).to_le_bytes()
    });
    let mut bytes = Vec::with_capacity(len + 8);
    words.for_each(|word| bytes.extend_from_slice(&word));
    bytes.truncate(len);
    bytes
}

/// A byte times this is eight of it.
const REPEAT: u64 = 0x0101_0101_0101_0101;

#[test]
fn bytes_tell_where_they_are() {
    let found = body(200_001);
    let told = (0..200_001_usize).map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8);
    assert!(found.iter().copied().eq(told));
}
