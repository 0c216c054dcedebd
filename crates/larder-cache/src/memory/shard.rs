//! A part of the memory cache with a lock of its own: the values of some keys, and the choice of what leaves.
//!
//! Slots are dense, so the candidates for eviction are runs of neighbors at random places. Their order is that of the
//! insertions only at first. Of [`RUN_COUNT`] runs, the value with the least worth per square root of its bytes leaves:
//! a compromise between hits of requests and hits of bytes. Compared with an ordered list, a hit moves nothing, and
//! needs the lock for reading only.

use super::{
    ghosts::Ghosts,
    index::SlotIndex,
    worth::{Clock, Score, SharedScore, ghost_age},
};
use larder_device::SplitMix64;

/// A part of a memory cache, with its own lock: the values of the keys whose hash selects it.
pub(super) struct Shard<V> {
    slots: Vec<Slot<V>>,
    index: SlotIndex,
    ghosts: Ghosts,
    clock: Clock,
    chance: SplitMix64,
}

/// A value in memory, with its key.
pub(super) struct Slot<V> {
    key: Box<[u8]>,
    value: V,
    score: SharedScore,
    hash: u32,
    /// Bytes of the cache's capacity that the value takes, with its key and its share of the tables.
    pub(super) weight: u32,
}

/// A key with its hash, so that the hash is computed only once.
#[derive(Clone, Copy)]
pub(super) struct HashedKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
}

/// The result of [`Shard::evict`].
pub(super) enum Eviction<V> {
    Evicted(Slot<V>),
    /// Nothing was evicted: every value that was examined is worth more than the limit.
    Dearer,
    /// Nothing was evicted, because the shard has no values.
    Empty,
}

impl<V> Shard<V> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            index: SlotIndex::default(),
            ghosts: Ghosts::default(),
            clock: Clock::default(),
            chance: SplitMix64::new(seed),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn contains(&self, wanted: HashedKey<'_>) -> bool {
        self.find(wanted).is_some()
    }

    /// Returns the value of a key, and counts a request for it.
    pub(super) fn get(&self, wanted: HashedKey<'_>) -> Option<&V> {
        let slot = &self.slots[self.find(wanted)?];
        self.clock.advance(self.slots.len());
        slot.score.request(self.clock.now());
        Some(&slot.value)
    }

    /// Returns the value of a key.
    pub(super) fn peek(&self, wanted: HashedKey<'_>) -> Option<&V> {
        self.find(wanted).map(|number| &self.slots[number].value)
    }

    /// Counts a request for a key whose value is not in memory.
    ///
    /// Returns the time since the key's last request, in requests per value in memory, estimated as if there had been
    /// only one. `None` if the key has no ghost (a remembered count).
    pub(super) fn note_miss(&mut self, wanted: HashedKey<'_>) -> Option<f32> {
        self.clock.advance(self.slots.len());
        let now = self.clock.now();
        let ghost = self.ghosts.get(wanted.hash);
        let score = ghost.map_or(Score::first(now), |ghost| Score::of_ghost(ghost, now).requested(now));
        self.ghosts.put(wanted.hash, score, now);
        ghost.map(|ghost| Clock::requests_per_value(ghost_age(ghost, now)))
    }

    /// Inserts a requested value, or replaces the value of its key. Returns the replaced value and its weight.
    pub(super) fn insert(&mut self, wanted: HashedKey<'_>, value: V, weight: u32) -> Option<(V, u32)> {
        if let Some(number) = self.find(wanted) {
            let slot = &mut self.slots[number];
            let before = (std::mem::replace(&mut slot.value, value), slot.weight);
            slot.weight = weight;
            return Some(before);
        }
        let now = self.clock.now();
        let ghost = self.ghosts.get(wanted.hash);
        let score = ghost.map_or(Score::first(now), |ghost| Score::of_ghost(ghost, now).seen(now));
        self.push(wanted, value, weight, score);
        None
    }

    /// Inserts a value that nobody has requested. The shard must have no value of its key.
    pub(super) fn insert_unrequested(&mut self, wanted: HashedKey<'_>, value: V, weight: u32) {
        let score = Score::unrequested(self.clock.now());
        self.push(wanted, value, weight, score);
    }

    /// Returns the worth that a value of this weight has if nobody has requested it. [`Shard::evict`] compares it with
    /// other values.
    pub(super) fn unrequested_worth(&self, weight: u32) -> f32 {
        let now = self.clock.now();
        per_weight(Score::unrequested(now).worth(now), weight)
    }

    /// Removes the value of a key, and remembers the key's request count.
    pub(super) fn remove(&mut self, wanted: HashedKey<'_>) -> Option<Slot<V>> {
        let number = self.find(wanted)?;
        Some(self.take(number, wanted.hash))
    }

    /// Examines some values and removes the one with the least worth, unless that is more than `worth_max`. `hash_of`
    /// returns the hash of a key.
    pub(super) fn evict(&mut self, worth_max: f32, hash_of: impl Fn(&[u8]) -> u64) -> Eviction<V> {
        let Some((number, worth)) = self.candidate() else { return Eviction::Empty };
        if worth > worth_max {
            return Eviction::Dearer;
        }
        let hash = hash_of(&self.slots[number].key);
        Eviction::Evicted(self.take(number, hash))
    }

    /// Removes the values for which `is_wanted` is false, and returns them.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&V) -> bool) -> Vec<Slot<V>> {
        let removed = self.slots.extract_if(.., |slot| !is_wanted(&slot.value)).collect();
        self.shrink();
        removed
    }

    /// Shrinks tables that are much larger than needed.
    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to(self.slots.len() * 2);
        self.index.resize(self.slots.len(), |number| self.slots[number].hash);
    }

    fn find(&self, wanted: HashedKey<'_>) -> Option<usize> {
        let hash = wanted.hash as u32;
        self.index.find(hash, |number| {
            let slot = &self.slots[number];
            slot.hash == hash && *slot.key == *wanted.key
        })
    }

    fn push(&mut self, wanted: HashedKey<'_>, value: V, weight: u32, score: Score) {
        let score = SharedScore::new(score);
        self.slots.push(Slot { key: wanted.key.into(), value, score, hash: wanted.hash as u32, weight });
        self.index.push(self.slots.len(), |number| self.slots[number].hash);
        self.ghosts.reserve(self.slots.len());
    }

    fn take(&mut self, number: usize, hash: u64) -> Slot<V> {
        self.index.swap_remove(number, self.slots.len(), |number| self.slots[number].hash);
        let slot = self.slots.swap_remove(number);
        self.ghosts.put(hash, slot.score.get(), self.clock.now());
        slot
    }

    /// Examines some values. Returns the number of the slot with the least worth, and that worth. `None` if there is no
    /// value.
    fn candidate(&mut self) -> Option<(usize, f32)> {
        let now = self.clock.now();
        let len = self.slots.len();
        let mut least: Option<(usize, f32)> = None;
        for _ in 0..RUN_COUNT {
            let start = self.chance.below(len.max(1) as u64) as usize;
            for (number, slot) in self.slots.iter().enumerate().skip(start).take(RUN_LEN) {
                let worth = per_weight(slot.score.get().worth(now), slot.weight);
                if least.is_none_or(|(_, least)| worth < least) {
                    least = Some((number, worth));
                }
            }
        }
        least
    }
}

/// Returns a rank that compares values of different weights: the worth divided by the square root of the weight, and
/// squared.
fn per_weight(worth: f32, weight: u32) -> f32 {
    worth * worth / weight.max(1) as f32
}

/// To evict one value, this number of runs (contiguous slots) of this length is examined. Half as many slots cost 0.1
/// to 0.3 percentage points of hits.
const RUN_COUNT: usize = 4;
const RUN_LEN: usize = 8;
