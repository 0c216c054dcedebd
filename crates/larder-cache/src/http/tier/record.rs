//! The records of a pack, which are entries in the form in which the second tier stores them.
//!
//! Owns: their bytes. Invariant: `decode` accepts only the whole record of exactly this key, from exactly this place of
//! exactly this pack, written by a holder of the tier's key. So flipped bits, truncated responses, bytes of another
//! object or version, and records that somebody else stored there are misses. Cost: one SHA-256 over the record.
//!
//! Layout, in little endian: magic (4 bytes), lengths of key, head and body (4 each), salt of the pack (8), offset in
//! the pack (4), `expires_at` (4), site (8), group (8), then key, head and body, then a code of 32 bytes. It is the
//! HMAC-SHA256 of the fields before the key and of the SHA-256 of all after them, which is computed before the place is
//! known.

use bytes::Bytes;
use larder_http::steps;
use larder_store::{EvictedEntry, Hints};
use ring::digest::{Context, Digest, SHA256};

use super::{
    index::RecordPlace,
    signing::{CODE_BYTES, TierKey},
};

/// An entry that was read from the second tier and verified.
#[derive(Clone, Debug)]
pub struct TierEntry {
    /// The head of the entry.
    pub head: Bytes,
    /// The body of the entry.
    pub body: Bytes,
    /// The hints, such as the expiry, with which the entry was stored in the store.
    pub hints: Hints,
    pub(super) place: RecordPlace,
}

/// The digest of an entry's key, head and body. A part of what a record's signature covers.
pub(super) struct ContentDigest(Digest);

/// Computes the digest of an entry's content. It takes most of the time, and does not depend on where the record will
/// be, so it is computed without the lock.
pub(super) fn digest_of(entry: &EvictedEntry) -> ContentDigest {
    ContentDigest(sha256(&[&entry.key, &entry.head, &entry.body]))
}

/// Appends the record of an entry to a pack, whose name has this salt. Returns the offset and the length of the record
/// in the pack.
pub(super) fn append(
    pack: &mut Vec<u8>,
    salt: u64,
    (entry, content): (&EvictedEntry, &ContentDigest),
    tier_key: &TierKey,
) -> (u32, u32) {
    let start = pack.len();
    let length = |bytes: &Bytes| u32::try_from(bytes.len()).expect("keys, heads and bodies of entries are short");
    pack.extend_from_slice(MAGIC);
    for part in [&entry.key, &entry.head, &entry.body] {
        pack.extend_from_slice(&length(part).to_le_bytes());
    }
    let offset = u32::try_from(start).expect("a pack is short");
    pack.extend_from_slice(&salt.to_le_bytes());
    pack.extend_from_slice(&offset.to_le_bytes());
    pack.extend_from_slice(&entry.hints.expires_at.to_le_bytes());
    pack.extend_from_slice(&entry.hints.site.to_le_bytes());
    pack.extend_from_slice(&entry.hints.group.to_le_bytes());
    let code = tier_key.sign([&pack[start..], content.0.as_ref()]);
    for part in [&entry.key, &entry.head, &entry.body] {
        pack.extend_from_slice(part);
    }
    pack.extend_from_slice(&code);
    (offset, u32::try_from(pack.len() - start).expect("a pack is short"))
}

/// Returns the length of the record of an entry, in bytes.
pub(super) fn len_of(entry: &EvictedEntry) -> usize {
    FIXED_BYTES + entry.key.len() + entry.head.len() + entry.body.len() + CODE_BYTES
}

/// Decodes and verifies the record of `key` that was read at `place`. `None` if it is damaged, forged, or the record of
/// another key or place.
pub(super) fn decode(bytes: &Bytes, place: RecordPlace, key: &[u8], tier_key: &TierKey) -> Option<TierEntry> {
    steps::take(bytes.len());
    if bytes.len() != place.len as usize || bytes.len() < FIXED_BYTES + CODE_BYTES {
        return None;
    }
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let lengths = [number(4), number(8), number(12)].map(|length| length as usize);
    let content_end = bytes.len() - CODE_BYTES;
    let is_it = bytes.starts_with(MAGIC)
        && lengths.iter().try_fold(FIXED_BYTES, |sum, length| sum.checked_add(*length)) == Some(content_end)
        && (long(16), number(24)) == (place.pack.salt, place.offset)
        && bytes[FIXED_BYTES..FIXED_BYTES + lengths[0]] == *key
        && {
            let content = sha256(&[&bytes[FIXED_BYTES..content_end]]);
            tier_key.verify([&bytes[..FIXED_BYTES], content.as_ref()], &bytes[content_end..])
        };
    let hints = Hints { site: long(32), group: long(40), expires_at: number(28) };
    let head_start = FIXED_BYTES + lengths[0];
    is_it.then(|| TierEntry {
        head: bytes.slice(head_start..head_start + lengths[1]),
        body: bytes.slice(head_start + lengths[1]..content_end),
        hints,
        place,
    })
}

/// Writes a record with these bytes as its content, and reads it back. Also reads the bytes themselves as a record. For
/// fuzzing.
///
/// # Panics
/// If a record is accepted that is not the one that was written.
#[doc(hidden)] // for the fuzz target of larder-proxy
pub fn fuzz(bytes: &[u8]) {
    use super::index::PackName;

    let tier_key = TierKey::new(b"key of a tier");
    let pack = PackName { number: 1, salt: 7 };
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("inputs are short");
    let (key, content) = bytes.split_at(bytes.len() / 3);
    let (head, body) = content.split_at(content.len() / 2);
    let [key, head, body] = [key, head, body].map(Bytes::copy_from_slice);
    let hints = Hints { site: 1, group: 2, expires_at: 3 };
    let entry = EvictedEntry { key: key.clone(), head: head.clone(), body: body.clone(), hints };
    let mut written = Vec::new();
    let (offset, len) = append(&mut written, pack.salt, (&entry, &digest_of(&entry)), &tier_key);
    let place = RecordPlace { pack, offset, len };
    let whole = Bytes::from(written);
    let found = decode(&whole, place, &key, &tier_key).expect("what was written is read");
    assert!(found.head == head && found.body == body, "another entry than was written");
    let mut front = whole.to_vec();
    front[..bytes.len().min(FIXED_BYTES)].copy_from_slice(&bytes[..bytes.len().min(FIXED_BYTES)]);
    let is_changed = front != whole;
    assert!(decode(&front.into(), place, &key, &tier_key).is_none() == is_changed, "a changed record is read");
    let raw = RecordPlace { pack, offset: 0, len: length(bytes) };
    assert!(decode(&Bytes::copy_from_slice(bytes), raw, b"key", &tier_key).is_none(), "bytes without a code are read");
}

fn sha256(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish()
}

const MAGIC: &[u8] = b"LTE2";
/// Length of a record without its key, head and body, in bytes.
const FIXED_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::{super::index::PackName, *};

    fn entry() -> EvictedEntry {
        let hints = Hints { site: 7, group: 8, expires_at: 9 };
        EvictedEntry { key: "key".into(), head: "the head".into(), body: vec![5; 300].into(), hints }
    }

    fn at(offset: u32, len: u32, salt: u64) -> RecordPlace {
        RecordPlace { pack: PackName { number: 1, salt }, offset, len }
    }

    fn key() -> TierKey {
        TierKey::new(b"0123456789abcdef")
    }

    fn appended(pack: &mut Vec<u8>) -> (u32, u32) {
        append(pack, 77, (&entry(), &digest_of(&entry())), &key())
    }

    /// Guards against serving a page that somebody with access to the tier wrote there.
    #[test]
    fn record_under_another_key_is_refused() {
        let mut pack = Vec::new();
        let (offset, len) = appended(&mut pack);
        let bytes = Bytes::from(pack);
        assert!(decode(&bytes, at(offset, len, 77), b"key", &key()).is_some());
        for other in [&b"0123456789abcdeX"[..], b"", &[0; 32]] {
            assert!(decode(&bytes, at(offset, len, 77), b"key", &TierKey::new(other)).is_none());
        }
        assert_ne!(key().mark(), TierKey::new(b"").mark());
    }

    #[test]
    fn record_comes_back_and_every_flipped_bit_is_noticed() {
        let mut pack = b"before".to_vec();
        let (offset, len) = appended(&mut pack);
        assert_eq!((offset, len as usize, pack.len()), (6, len_of(&entry()), 6 + len as usize));
        let bytes = Bytes::from(pack[6..].to_vec());
        let place = at(offset, len, 77);
        let found = decode(&bytes, place, b"key", &key()).unwrap();
        let EvictedEntry { head, body, hints, .. } = entry();
        assert_eq!(format!("{found:?}"), format!("{:?}", TierEntry { head, body, hints, place }));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped.into(), place, b"key", &key()).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn record_of_another_key_pack_or_place_is_refused() {
        let mut pack = Vec::new();
        let (offset, len) = appended(&mut pack);
        let bytes = Bytes::from(pack);
        for (place, key) in [
            (at(offset, len, 77), "kez"),
            (at(offset, len, 78), "key"),
            (at(1, len, 77), "key"),
            (at(0, len - 1, 77), "key"),
        ] {
            assert!(decode(&bytes, place, key.as_bytes(), &tests::key()).is_none(), "{place:?} {key}");
        }
        assert!(decode(&bytes.slice(..len as usize - 1), at(offset, len - 1, 77), b"key", &key()).is_none());
        assert!(decode(&Bytes::new(), at(0, 0, 77), b"", &key()).is_none());
    }

    /// Guards against a panic or a large allocation because of lengths that another program wrote.
    #[test]
    fn record_with_impossible_lengths_is_refused() {
        let mut pack = Vec::new();
        let (offset, len) = appended(&mut pack);
        for field in [4, 8, 12] {
            for length in [0, 1, 299, u32::MAX, u32::MAX - 2, 1 << 31] {
                let mut bytes = pack.clone();
                bytes[field..field + 4].copy_from_slice(&u32::to_le_bytes(length));
                assert!(decode(&bytes.into(), at(offset, len, 77), b"key", &key()).is_none(), "{field} {length}");
            }
        }
    }
}
