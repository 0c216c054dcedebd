//! Entries whose bytes all follow from key and version, so that every byte that is read can be checked.
//!
//! The head contains key and version. The body begins with its version; its words depend on key, version and position.

use bytes::Bytes;
use std::ops::Range;

/// Returns the key that has the number `key`: a URL that ends with the number.
pub fn key_bytes(key: u64) -> Vec<u8> {
    format!("http://example.test/{key}").into_bytes()
}

/// Returns the number of a key that [`key_bytes`] made, or `None` for other bytes.
pub fn key_number(key: &[u8]) -> Option<u64> {
    str::from_utf8(key).ok()?.strip_prefix("http://example.test/")?.parse().ok()
}

/// Returns the head of the entry that stores version `version` of key `key`. It contains both numbers as text.
pub fn head(key: u64, version: u64) -> Bytes {
    // The lengths differ, so that bodies begin at any offset.
    let fill = "x".repeat((version % 97) as usize);
    format!("{key} {version} {fill}").into_bytes().into()
}

/// Returns key and version as a head states them, or `None` if [`head`] cannot have made the bytes.
pub fn parse_head(head: &[u8]) -> Option<(u64, u64)> {
    let mut fields = str::from_utf8(head).ok()?.splitn(3, ' ');
    let key = fields.next()?.parse().ok()?;
    let version = fields.next()?.parse().ok()?;
    (self::head(key, version) == head).then_some((key, version))
}

/// Returns the body of version `version` of key `key`, `len` bytes long.
pub fn body(key: u64, version: u64, len: u64) -> Bytes {
    let mut body = Vec::with_capacity(len.next_multiple_of(WORD_BYTES) as usize);
    for index in 0..len.div_ceil(WORD_BYTES) {
        body.extend_from_slice(&word(key, version, index).to_le_bytes());
    }
    body.truncate(len as usize);
    body.into()
}

/// Returns whether `bytes` equal the bytes in `range` of the body that [`body`] makes for `key` and `version`.
pub fn is_body(key: u64, version: u64, range: Range<u64>, bytes: &[u8]) -> bool {
    let from = range.start / WORD_BYTES * WORD_BYTES;
    let skip = (range.start - from) as usize;
    let mut words = (from / WORD_BYTES..range.end.div_ceil(WORD_BYTES)).map(|index| word(key, version, index));
    if bytes.len() as u64 != range.end - range.start {
        return false;
    }
    let Some(first) = words.next() else { return true };
    let first = &first.to_le_bytes()[skip..];
    let (begin, rest) = bytes.split_at(first.len().min(bytes.len()));
    begin == &first[..begin.len()]
        && rest.chunks(WORD_BYTES as usize).zip(words).all(|(chunk, word)| *chunk == word.to_le_bytes()[..chunk.len()])
}

const WORD_BYTES: u64 = 8;

fn word(key: u64, version: u64, index: u64) -> u64 {
    if index == 0 {
        return version;
    }
    // Not the store's own mixing function, because the fixtures of released formats contain these words.
    let mixed = (key << 40 ^ version << 17 ^ index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_body_is_known_and_no_other_is_taken_for_it() {
        for len in [0, 1, 7, 8, 9, 1000] {
            let whole = body(3, 9, len);
            for from in 0..len {
                for to in [from, (from + 13).min(len), len] {
                    let part = whole.slice(from as usize..to as usize);
                    assert!(is_body(3, 9, from..to, &part));
                    // A few bytes may be equal by chance.
                    if to - from > 16 {
                        assert!(!is_body(4, 9, from..to, &part) && !is_body(3, 8, from..to, &part));
                        assert!(!is_body(3, 9, from..to, &part[1..]));
                    }
                }
            }
        }
        assert_eq!(parse_head(&head(5, 70)), Some((5, 70)));
        assert_eq!(parse_head(&head(5, 70)[1..]), None);
        assert_eq!(key_number(&key_bytes(8)), Some(8));
    }
}
