//! Whether an entry is stored when it is offered for the first time, or for the second: two small caches in memory, of keys
//! without bytes, get a sample of the requests and try both; the store does as the better one.
//!
//! Where popularity lasts, who waits for the second request keeps out what never comes again; where what was asked for just now
//! is asked for again soon, who waits is late. Owns: the two caches and their score. Invariant: neither has more than
//! [`ENTRIES_MAX`] entries. Cost: two hash table lookups for each request of the sample, none for the others.

use super::{Newcomer, Offer, Scale, seen::Seen};
use crate::{Dice, hash::KeyHash};
use std::collections::{HashMap, VecDeque};

/// Entries that a cache of the duel is made for, unless the store has fewer, and most it has.
const ENTRIES: u64 = 512;
const ENTRIES_MAX: usize = 1024;
/// What the duel takes at most, in bytes: for each entry two slots of 17 bytes in a hash table, a place in the queue, and its bits of the
/// filter.
pub(super) const MEMORY_BYTES: u64 = 2 * ENTRIES_MAX as u64 * 44;
const BITS_PER_ENTRY: u64 = 12;
/// So many hits more than the other's make a cache the better one; the score goes up to four times that.
const LEAD: i64 = 32;
const HITS_MAX: u8 = 3;
/// Bits of a key's hash from here on choose the sample: others choose places in the index.
const SAMPLE_SHIFT: u32 = 13;

/// When an entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taste {
    /// When it is offered for the first time.
    First,
    /// When it is offered for the second time within a while.
    Second,
}

/// The two caches.
pub(super) struct Duel {
    first: Shadow,
    second: Shadow,
    /// Above 0: the hits that `first` is ahead.
    score: i64,
    taste: Taste,
    sampled_by: u64,
}

/// A cache of keys: a queue whose end goes round once for each hit, like the log.
struct Shadow {
    taste: Taste,
    seen: Seen,
    dice: Dice,
    entries: HashMap<KeyHash, Entry>,
    queue: VecDeque<KeyHash>,
    sectors: u64,
    sectors_max: u64,
}

struct Entry {
    sectors: u32,
    hits: u8,
}

impl Duel {
    pub(super) fn new(scale: Scale) -> Self {
        let sampled_of = (scale.entries / ENTRIES).max(1).next_power_of_two();
        let sectors = (scale.sectors / sampled_of).max(1);
        let shadow = |taste| Shadow::new(taste, scale.entries / sampled_of, sectors);
        Self {
            first: shadow(Taste::First),
            second: shadow(Taste::Second),
            score: 0,
            taste: Taste::Second,
            sampled_by: (sampled_of - 1) << SAMPLE_SHIFT,
        }
    }

    pub(super) fn taste(&self) -> Taste {
        self.taste
    }

    pub(super) fn sampled_by(&self) -> u64 {
        self.sampled_by
    }

    /// Lets both caches answer a request, if it is in the sample.
    pub(super) fn note_asked(&mut self, offer: Offer, mean_sectors: u64) {
        if offer.key_hash.0 & self.sampled_by != 0 {
            return;
        }
        let first = self.first.is_hit_by(offer, mean_sectors);
        let second = self.second.is_hit_by(offer, mean_sectors);
        self.score = (self.score + i64::from(first) - i64::from(second)).clamp(-4 * LEAD, 4 * LEAD);
        assert!(self.score.abs() <= 4 * LEAD, "a lead can be lost again");
        if self.score >= LEAD {
            self.taste = Taste::First;
        } else if self.score <= -LEAD {
            self.taste = Taste::Second;
        }
    }
}

impl Shadow {
    fn new(taste: Taste, entries: u64, sectors_max: u64) -> Self {
        let (seen, dice) = (Seen::new(entries.max(1), BITS_PER_ENTRY), Dice::new(entries));
        Self { taste, seen, dice, entries: HashMap::new(), queue: VecDeque::new(), sectors: 0, sectors_max }
    }

    /// Returns whether a request is a hit. What is not is stored, if there is room or it is let in.
    fn is_hit_by(&mut self, offer: Offer, mean_sectors: u64) -> bool {
        if let Some(entry) = self.entries.get_mut(&offer.key_hash) {
            entry.hits = (entry.hits + 1).min(HITS_MAX);
            return true;
        }
        let was_seen = self.seen.note(offer.key_hash);
        let newcomer = Newcomer { was_seen, sectors: offer.sectors, mean_sectors };
        let fits = offer.sectors <= self.sectors_max;
        assert!(!self.entries.contains_key(&offer.key_hash), "what is here was a hit");
        if fits && (self.has_room_for(offer.sectors) || newcomer.is_admitted(self.taste, &mut self.dice)) {
            self.store(offer);
        }
        false
    }

    fn store(&mut self, Offer { key_hash, sectors }: Offer) {
        while !self.has_room_for(sectors) {
            let Some(oldest) = self.queue.pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&oldest) else { continue };
            if entry.hits > 0 {
                entry.hits -= 1;
                self.queue.push_back(oldest);
            } else {
                self.sectors -= u64::from(entry.sectors);
                self.entries.remove(&oldest);
            }
        }
        self.sectors += sectors;
        self.queue.push_back(key_hash);
        let sectors = u32::try_from(sectors).expect("what fits the cache is shorter than a sample of the volume");
        self.entries.insert(key_hash, Entry { sectors, hits: 0 });
        assert!(self.entries.len() <= ENTRIES_MAX && self.entries.len() == self.queue.len());
    }

    fn has_room_for(&self, sectors: u64) -> bool {
        self.sectors + sectors <= self.sectors_max && self.entries.len() < ENTRIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taste_after(requests: impl Iterator<Item = u64>) -> Taste {
        let mut duel = Duel::new(Scale { entries: 500, sectors: 500 * 16, bits_per_entry: 12 });
        let key_hash = |n: u64| KeyHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        requests.for_each(|n| duel.note_asked(Offer { key_hash: key_hash(n), sectors: 16 }, 16));
        duel.taste()
    }

    #[test]
    fn the_better_of_both_is_followed() {
        // Everything is asked for twice in a row, and never again.
        assert_eq!(taste_after((0..10_000).map(|n| n / 2)), Taste::First);
        // A few are wanted for ever, among many that are asked for once.
        let mut dice = Dice::new(3);
        let mixed = (0..40_000).map(|n| if n % 2 == 0 { dice.below(600) } else { 10_000 + n });
        assert_eq!(taste_after(mixed), Taste::Second);
    }
}
