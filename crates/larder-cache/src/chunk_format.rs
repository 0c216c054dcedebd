//! The form in which the store has a long body or a long value: an entry with its head, and one for each MiB of bytes.
//!
//! Owns: the keys of the chunks, their places, and the read of one. The two faces decide when a head is stored, and
//! what happens if a chunk is missing.
//!
//! Invariant: the key of a chunk contains a number that distinguishes these bytes from others under the same key, so a
//! chunk of an older body is never taken for one of a newer body. Cost: one device read per chunk.

use bytes::Bytes;
use larder_store::{Hints, Result, Store, Writer};
use std::ops::Range;

/// Length in bytes of every chunk of a body except for the last.
pub const CHUNK_BYTES: u64 = Writer::BODY_MAX_BYTES;
/// The first byte of a chunk's key.
pub const KIND_CHUNK: u8 = b'C';
/// The first byte of a fragment's key. A fragment is a part of a chunk.
pub const KIND_FRAGMENT: u8 = b'F';
/// Number of attempts to read an entry that is overwritten while it is being read.
///
/// The store may have moved the entry to another place, because it is pinned, protected or often used. The next attempt
/// then finds it there.
pub(crate) const READ_ATTEMPTS: u32 = 3;

/// Returns the key of chunk `number` of a body. `entry` is the key of the entry with the head, and `representation`
/// distinguishes the body from others of the same entry.
///
/// ```
/// use larder_cache::chunk_format::{chunk_key, chunk_span, chunks_of, split_chunk_key};
///
/// // The bytes from 1.5 to 2.5 MiB are in two chunks.
/// assert_eq!(chunks_of(&(1_572_864..2_621_440)), 1..3);
/// assert_eq!(chunk_span(2, Some(2_621_440)), 2_097_152..2_621_440);
/// let key = chunk_key(b"entry", 77, 2);
/// assert_eq!(split_chunk_key(&key), (&b"entry"[..], Some(77)));
/// ```
pub fn chunk_key(entry: &[u8], representation: u64, number: u64) -> Vec<u8> {
    [&[KIND_CHUNK], entry, &representation.to_le_bytes()[..], &number.to_le_bytes()].concat()
}

/// Returns the key of the fragment of chunk `number`: an entry with a part of the chunk, until the whole chunk is
/// stored.
pub fn fragment_key(entry: &[u8], representation: u64, number: u64) -> Vec<u8> {
    let mut key = chunk_key(entry, representation, number);
    key[0] = KIND_FRAGMENT;
    key
}

/// Splits the key of a chunk or fragment into two: the key of the entry with the head, and the representation number.
/// Returns any other key as it is, with `None`.
pub fn split_chunk_key(key: &[u8]) -> (&[u8], Option<u64>) {
    let parts = || {
        let rest = key.strip_prefix(&[KIND_CHUNK]).or_else(|| key.strip_prefix(&[KIND_FRAGMENT]))?;
        let (rest, _) = rest.split_last_chunk::<8>()?;
        rest.split_last_chunk::<8>()
    };
    parts().map_or((key, None), |(entry, representation)| (entry, Some(u64::from_le_bytes(*representation))))
}

/// Returns the numbers of the chunks that contain bytes of `span`, a range of a body.
pub fn chunks_of(span: &Range<u64>) -> Range<u64> {
    span.start / CHUNK_BYTES..span.end.div_ceil(CHUNK_BYTES)
}

/// Returns the range of a body that chunk `number` contains. `len` is the length of the body, which may shorten the
/// last chunk. With `None`, the chunk counts as full.
pub fn chunk_span(number: u64, len: Option<u64>) -> Range<u64> {
    let start = number * CHUNK_BYTES;
    let end = start + CHUNK_BYTES;
    start..len.map_or(end, |len| end.min(len).max(start))
}

/// Reads a part of a chunk from the store. `span` is the chunk's range of its body, and `range` is the range to read.
/// Returns `None` if the store does not have the chunk.
///
/// # Errors
/// The store failed.
pub async fn read_chunk(store: &Store, key: &[u8], span: &Range<u64>, range: &Range<u64>) -> Result<Option<Bytes>> {
    for _ in 0..READ_ATTEMPTS {
        let found = if range == span { store.get(key).await? } else { store.front(key).await? };
        let Some(reader) = found.filter(|reader| reader.len() == span.end - span.start) else { return Ok(None) };
        if let Some(bytes) = reader.read(range.start - span.start..range.end - span.start).await? {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Returns a writer that has an entry's head and body. Nothing is stored until it is committed.
///
/// # Errors
/// The entry is too long, or the store failed. Nothing is stored.
pub(crate) fn filled(
    store: &Store,
    key: &[u8],
    head: Bytes,
    body: impl IntoIterator<Item = Bytes>,
    hints: Hints,
) -> Result<Writer> {
    let mut writer = store.insert(key, head, hints)?;
    body.into_iter().try_for_each(|piece| writer.write(piece))?;
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_a_body() {
        for len in [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 17] {
            let spans = chunks_of(&(0..len)).map(|number| chunk_span(number, Some(len)));
            assert_eq!(spans.map(|span| span.end - span.start).sum::<u64>(), len);
        }
        assert!(chunks_of(&(0..0)).is_empty());
        assert_eq!(chunks_of(&(CHUNK_BYTES - 1..CHUNK_BYTES + 1)), 0..2);
    }

    #[test]
    fn each_chunk_has_a_key_of_its_own_that_tells_its_head() {
        let chunk = chunk_key(b"Pkey", 7, 3);
        for other in [chunk_key(b"Pkey", 7, 4), chunk_key(b"Pkey", 8, 3), chunk_key(b"P", 7, 3), b"Pkey".to_vec()] {
            assert_ne!(other, chunk);
        }
        assert_eq!(split_chunk_key(&chunk), (&b"Pkey"[..], Some(7)));
        assert_eq!(split_chunk_key(&fragment_key(b"Pkey", 7, 3)), (&b"Pkey"[..], Some(7)));
        assert_eq!(split_chunk_key(b"Pa long key without a number"), (&b"Pa long key without a number"[..], None));
    }
}
