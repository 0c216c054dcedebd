//! An approximate set of the origins that responded recently.
//!
//! Owns: a table of fixed size, in which one origin may displace another. Invariant: an origin that did not respond is
//! mistaken for one that did only if 32 bits of a keyed hash agree. Cost: one store per response, no lock.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::ground::target::Origin;

/// An approximate set of the origins that responded recently.
pub(super) struct RecentAnswers {
    /// Each slot holds 32 bits of an origin's hash, and the time of its response in seconds since the set was created.
    /// 0 is an empty slot.
    slots: Box<[AtomicU64]>,
    hashes: RandomState,
    start: Instant,
}

impl RecentAnswers {
    pub(super) fn new() -> Self {
        let slots = (0..SLOT_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self { slots, hashes: RandomState::new(), start: Instant::now() }
    }

    /// Records that an origin responded.
    pub(super) fn note(&self, origin: &Origin) {
        let (slot, mark) = self.place(origin);
        slot.store(u64::from(mark) << 32 | self.second(Instant::now()), Relaxed);
    }

    /// Returns whether an origin responded within the last `time`.
    pub(super) fn has_within(&self, origin: &Origin, time: Duration) -> bool {
        let (slot, mark) = self.place(origin);
        let seen = slot.load(Relaxed);
        let oldest = self.second(Instant::now()).saturating_sub(time.as_secs());
        seen != 0 && seen >> 32 == u64::from(mark) && seen & SECOND_MASK >= oldest
    }

    /// Returns approximately how many origins have responded since the time `since`.
    pub(super) fn count_since(&self, since: Instant) -> usize {
        let oldest = self.second(since);
        let is_since = |slot: &&AtomicU64| {
            let seen = slot.load(Relaxed);
            seen != 0 && seen & SECOND_MASK >= oldest
        };
        self.slots.iter().filter(is_since).count()
    }

    fn place(&self, origin: &Origin) -> (&AtomicU64, u32) {
        let hash = self.hashes.hash_one((&origin.host, origin.port));
        (&self.slots[hash as usize % SLOT_COUNT], (hash >> 32) as u32)
    }

    /// Returns the time in whole seconds since this set was created, plus 1, because 0 marks empty slots.
    fn second(&self, moment: Instant) -> u64 {
        (moment.saturating_duration_since(self.start).as_secs() + 1).min(SECOND_MASK)
    }
}

const SLOT_COUNT: usize = 256;
const SECOND_MASK: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_that_answered_are_known_and_counted() {
        let answers = RecentAnswers::new();
        let start = Instant::now();
        let origins = ["a.example", "b.example"].map(|host| Origin::of_client(host, 80));
        assert!(!answers.has_within(&origins[0], Duration::from_secs(60)));
        for _ in 0..3 {
            answers.note(&origins[0]);
        }
        assert!(answers.has_within(&origins[0], Duration::from_secs(60)));
        assert!(!answers.has_within(&origins[1], Duration::from_secs(60)));
        assert_eq!(answers.count_since(start), 1);
        assert_eq!(answers.count_since(start + Duration::from_secs(9)), 0);
    }
}
