//! The head of a stored value: its lifetime, its tags, and where its bytes are.
//!
//! Invariant: every byte of a head is checked before it is used. A head of another version, or with a length other than
//! the stated one, is a miss.

use crate::tags::TagHash;
use std::time::Duration;

/// The head of a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueHead {
    pub(crate) len_bytes: u64,
    /// The number that the keys of a long value's chunks contain. `None` for a short value, whose bytes are in the
    /// entry of its head.
    pub(crate) chunks: Option<u64>,
    /// Number of purges that were recorded when the value's fetch or write began.
    pub(crate) purge_count: u64,
    pub(crate) lifetime: Lifetime,
    pub(crate) tags: Vec<TagHash>,
}

/// When a value was stored, and until when it is fresh and usable, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) stored_at_ms: u64,
    pub(crate) fresh_until_ms: u64,
    pub(crate) usable_until_ms: u64,
}

/// The freshness of a value at some moment, which decides how the value may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    Fresh,
    /// The value may be used only while a new one is being fetched, or if that fetch fails.
    Stale,
    Expired,
}

/// The version of the head's format. A cache of another version does not find the values of this one, and stores its
/// own.
const FORMAT_VERSION: u8 = 1;
/// The form byte of a value whose bytes are in the same entry as its head.
const WHOLE: u8 = 0;
/// The form byte of a value in chunks. Form 1 was that of an earlier format, whose values are no longer found.
const IN_CHUNKS: u8 = 2;
/// Tolerance in milliseconds for values whose time of storing is ahead of the clock. Such a value was stored before the
/// clock was set back. If it is further ahead, it counts as expired, because it could outlive its lifetime by any
/// amount.
const CLOCK_TOLERANCE_MS: u64 = 60_000;
/// Maximum number of tags of a value.
pub(crate) const TAG_COUNT_MAX: usize = 256;

impl Lifetime {
    /// Returns the lifetime of a value that is stored at `now_ms`. If `fresh_for` is `None`, the value never expires.
    pub(crate) fn new(now_ms: u64, fresh_for: Option<Duration>, stale_for: Duration) -> Self {
        let after =
            |start: u64, time: Duration| start.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let fresh_until_ms = fresh_for.map_or(u64::MAX, |time| after(now_ms, time));
        Self { stored_at_ms: now_ms, fresh_until_ms, usable_until_ms: after(fresh_until_ms, stale_for) }
    }

    pub(crate) fn at(&self, now_ms: u64) -> Freshness {
        if now_ms > self.usable_until_ms || self.stored_at_ms > now_ms.saturating_add(CLOCK_TOLERANCE_MS) {
            Freshness::Expired
        } else if now_ms > self.fresh_until_ms {
            Freshness::Stale
        } else {
            Freshness::Fresh
        }
    }

    /// Returns the time after which the store may drop the value, in seconds since the Unix epoch. 0 means never.
    pub(crate) fn expires_at_s(&self) -> u32 {
        u32::try_from(self.usable_until_ms.div_ceil(1000)).unwrap_or(0)
    }
}

impl ValueHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.tags.len() <= TAG_COUNT_MAX, "the number of tags is checked where they are set");
        let mut bytes = vec![FORMAT_VERSION, if self.chunks.is_some() { IN_CHUNKS } else { WHOLE }];
        let Lifetime { stored_at_ms, fresh_until_ms, usable_until_ms } = self.lifetime;
        let chunks = self.chunks.unwrap_or(0);
        for number in [self.len_bytes, chunks, self.purge_count, stored_at_ms, fresh_until_ms, usable_until_ms] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for tag in &self.tags {
            bytes.extend_from_slice(&tag.0.to_le_bytes());
        }
        bytes
    }

    /// Decodes a head. Returns `None` if the bytes are not a head of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[version, form], bytes) = bytes.split_first_chunk()?;
        if version != FORMAT_VERSION || ![WHOLE, IN_CHUNKS].contains(&form) {
            return None;
        }
        let (numbers, tags) = bytes.split_first_chunk::<48>()?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        let (tags, rest) = tags.as_chunks::<16>();
        if !rest.is_empty() || tags.len() > TAG_COUNT_MAX {
            return None;
        }
        Some(Self {
            len_bytes: number(0),
            chunks: (form == IN_CHUNKS).then(|| number(1)),
            purge_count: number(2),
            lifetime: Lifetime { stored_at_ms: number(3), fresh_until_ms: number(4), usable_until_ms: number(5) },
            tags: tags.iter().map(|tag| TagHash(u128::from_le_bytes(*tag))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(tags: Vec<u128>, chunks: Option<u64>) -> ValueHead {
        ValueHead {
            len_bytes: 12,
            chunks,
            purge_count: 5,
            lifetime: Lifetime::new(1000, Some(Duration::from_secs(1)), Duration::from_secs(2)),
            tags: tags.into_iter().map(TagHash).collect(),
        }
    }

    proptest! {
        #[test]
        fn head_is_read_as_it_was_written(tags in prop::collection::vec(any::<u128>(), 0..20), chunks: Option<u64>) {
            let head = head(tags, chunks);
            prop_assert_eq!(ValueHead::decode(&head.encode()), Some(head));
        }

        #[test]
        fn arbitrary_bytes_are_a_head_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(head) = ValueHead::decode(&bytes) {
                prop_assert_eq!(ValueHead::decode(&head.encode()), Some(head));
            }
        }
    }

    #[test]
    fn truncated_head_is_none() {
        let bytes = head(vec![1, 2], None).encode();
        for len in (0..bytes.len()).filter(|len| *len != 50 && *len != 66) {
            assert_eq!(ValueHead::decode(&bytes[..len]), None, "{len}");
        }
    }

    #[test]
    fn long_value_of_the_former_form_is_none() {
        let mut bytes = head(vec![1], Some(7)).encode();
        bytes[1] = 1;
        assert_eq!(ValueHead::decode(&bytes), None);
    }

    #[test]
    fn value_is_fresh_then_stale_then_expired() {
        let lifetime = Lifetime::new(10_000, Some(Duration::from_secs(1)), Duration::from_secs(2));
        assert_eq!(lifetime.at(11_000), Freshness::Fresh);
        assert_eq!(lifetime.at(11_001), Freshness::Stale);
        assert_eq!(lifetime.at(13_001), Freshness::Expired);
        assert_eq!(lifetime.expires_at_s(), 13);
        assert_eq!(Lifetime::new(10_000, None, Duration::ZERO).at(u64::MAX - 1), Freshness::Fresh);
        assert_eq!(Lifetime::new(10_000, None, Duration::ZERO).expires_at_s(), 0);
    }

    #[test]
    fn value_from_before_the_clock_was_set_back_is_expired() {
        let lifetime = Lifetime::new(10_000_000, None, Duration::ZERO);
        assert_eq!(lifetime.at(10_000_000 - CLOCK_TOLERANCE_MS), Freshness::Fresh);
        assert_eq!(lifetime.at(10_000_000 - CLOCK_TOLERANCE_MS - 1), Freshness::Expired);
    }
}
