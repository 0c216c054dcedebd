//! The entries of the shared log that this node has read, to recognize one that is appended again.
//!
//! Anybody with access to the stream can append a recorded entry again, without the fleet's secret. Invariant: reading
//! the same entry once more, for example after a failure, is no repetition.

use std::collections::{HashMap, VecDeque};

/// The nonces of entries that were read, to recognize an entry that was appended twice.
#[derive(Default)]
pub(super) struct SeenEntries {
    /// The number of the first entry with each nonce.
    places: HashMap<u128, u64>,
    /// The nonces, in the order in which they were first read.
    order: VecDeque<u128>,
}

impl SeenEntries {
    /// Records that the entry with the number `place` has this nonce. Returns whether an earlier entry had the same
    /// nonce.
    pub(super) fn is_repeated(&mut self, nonce: u128, place: u64) -> bool {
        if let Some(first) = self.places.get(&nonce) {
            return *first < place;
        }
        self.places.insert(nonce, place);
        self.order.push_back(nonce);
        if self.order.len() > SEEN_COUNT_MAX {
            let oldest = self.order.pop_front().expect("it is longer than that");
            self.places.remove(&oldest);
        }
        false
    }
}

/// Maximum number of nonces that are remembered: all that a stream can contain, see
/// [`STREAM_COUNT_MAX`](super::STREAM_COUNT_MAX).
const SEEN_COUNT_MAX: usize = super::STREAM_COUNT_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_repeated_only_at_a_later_place() {
        let mut seen = SeenEntries::default();
        assert!(!seen.is_repeated(7, 10) && !seen.is_repeated(8, 11));
        assert!(!seen.is_repeated(7, 10), "it is read again after a failure");
        assert!(seen.is_repeated(7, 12) && seen.is_repeated(8, 13) && seen.is_repeated(7, 14));
        assert!(!seen.is_repeated(9, 15));
    }

    #[test]
    fn as_many_entries_are_remembered_as_a_stream_has() {
        let mut seen = SeenEntries::default();
        (0..SEEN_COUNT_MAX as u64 + 1).for_each(|number| assert!(!seen.is_repeated(number.into(), number)));
        assert_eq!((seen.places.len(), seen.order.len()), (SEEN_COUNT_MAX, SEEN_COUNT_MAX));
        assert!(seen.is_repeated(1, 1 << 40) && !seen.is_repeated(0, 1 << 40));
    }
}
