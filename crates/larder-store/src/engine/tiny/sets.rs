//! The summaries of the sets of `tiny`. Each has a Bloom filter, hit bits, and the version on disk.
//!
//! Owns: which set may hold a key, which entries of a set were hit since it was written, and whether bytes read from a
//! set are the last ones written. Positions and keys are unknown here. Invariant: a set that was neither written nor
//! read since the store was opened is unknown, and a set whose version differs from the one on disk counts as empty.
//! Cost: 32 bits per set (or a multiple of that, see [`SetSummaries::new`]), with about 3 filter bits and 1 hit bit per
//! entry; a lookup accesses one word. Idea: Kangaroo's KSet (SOSP 2021), with hit bits addressed by hash, so that a hit
//! in the memory cache counts without a read.

use crate::{hash::KeyHash, units::SetNumber};

/// The summaries of all sets.
pub(crate) struct SetSummaries {
    words: Vec<u32>,
    words_per_set: usize,
    set_count: u32,
    hit_bits_per_word: u32,
}

/// A summary's answer to whether a set may have an entry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayHold {
    No,
    Maybe,
    /// Nothing is known, because the set was not read yet.
    Unknown,
}

impl SetSummaries {
    /// Creates the summaries of `set_count` sets, each for about `entries_per_set` entries. A summary has one word of
    /// 32 bits for every seven entries. In a summary of several words, each word has more hit bits, because only the
    /// first word needs a version.
    pub(crate) fn new(set_count: u32, entries_per_set: u64) -> Self {
        let words_per_set = entries_per_set.div_ceil(ENTRIES_PER_WORD).clamp(1, WORDS_PER_SET_MAX) as usize;
        let hit_bits_per_word = if words_per_set < WORDS_MANY { HIT_BITS_PER_WORD } else { HIT_BITS_PER_WORD_OF_MANY };
        Self { words: vec![0; words_per_set * set_count as usize], words_per_set, set_count, hit_bits_per_word }
    }

    /// Returns a number that identifies the layout of a summary's bits. A snapshot contains this number, and must not
    /// be loaded if the layout has changed.
    pub(crate) fn layout(&self) -> u32 {
        self.hit_bits_per_word - HIT_BITS_PER_WORD
    }

    /// Returns the number of sets.
    pub(crate) fn set_count(&self) -> u32 {
        self.set_count
    }

    /// Returns the set to which a key belongs.
    pub(crate) fn set_of(&self, key_hash: KeyHash) -> SetNumber {
        set_of_prefix(key_hash.prefix(), self.set_count)
    }

    /// Returns the first and the last prefix (high half of the hash) of the keys that belong to a set.
    pub(crate) fn prefixes(&self, set: SetNumber) -> (u32, u32) {
        let first = |set: u64| (set << u32::BITS).div_ceil(u64::from(self.set_count));
        (first(set.0) as u32, (first(set.0 + 1) - 1) as u32)
    }

    pub(crate) fn may_hold(&self, key_hash: KeyHash) -> MayHold {
        let set = self.set_of(key_hash);
        if self.version(set) == VERSION_UNKNOWN {
            return MayHold::Unknown;
        }
        let filter_bits = self.filter_bits();
        let all = filter_places(key_hash, filter_bits).iter().all(|&place| self.bit(set, self.filter_start() + place));
        if all { MayHold::Maybe } else { MayHold::No }
    }

    /// Returns whether a set is known to have no entry.
    pub(crate) fn holds_nothing(&self, set: SetNumber) -> bool {
        let filter = self.filter_start()..u32::BITS * self.words_per_set as u32;
        self.version(set) != VERSION_UNKNOWN && !filter.into_iter().any(|bit| self.bit(set, bit))
    }

    /// Returns whether a set is known to have much space left, because its filter is at most a quarter full.
    pub(crate) fn is_sparse(&self, set: SetNumber) -> bool {
        let filter = self.filter_start()..u32::BITS * self.words_per_set as u32;
        let ones = filter.into_iter().filter(|&bit| self.bit(set, bit)).count() as u32;
        self.version(set) != VERSION_UNKNOWN && ones * 100 <= self.filter_bits() * SPARSE_PERCENT
    }

    /// Returns the version that a set must have on the volume. A set with another version there counts as empty. 0
    /// means that the set was not read yet.
    pub(crate) fn version(&self, set: SetNumber) -> u8 {
        (self.words[set.0 as usize * self.words_per_set] & VERSION_MASK) as u8
    }

    /// Returns the version for the next write of a set.
    pub(crate) fn next_version(&self, set: SetNumber) -> u8 {
        after(self.version(set))
    }

    pub(crate) fn note_hit(&mut self, key_hash: KeyHash) {
        let set = self.set_of(key_hash);
        assert!(set.0 < u64::from(self.set_count), "{set:?} of {}", self.set_count);
        for place in hit_places(key_hash, self.hit_bits()) {
            self.set_bit(set, VERSION_BITS + place);
        }
    }

    pub(crate) fn was_hit(&self, key_hash: KeyHash) -> bool {
        let set = self.set_of(key_hash);
        hit_places(key_hash, self.hit_bits()).iter().all(|&place| self.bit(set, VERSION_BITS + place))
    }

    /// Notes the new content of a set, without hits.
    pub(crate) fn note(&mut self, set: SetNumber, version: u8, key_hashes: impl IntoIterator<Item = KeyHash>) {
        assert!(version != VERSION_UNKNOWN && u32::from(version) <= VERSION_MASK);
        assert!(set.0 < u64::from(self.set_count));
        let words = self.words_of(set);
        words.fill(0);
        words[0] = u32::from(version);
        for key_hash in key_hashes {
            for place in filter_places(key_hash, self.filter_bits()) {
                self.set_bit(set, self.filter_start() + place);
            }
        }
    }

    /// Drops the content of a set. The set's version becomes one that neither the volume nor a write in flight has.
    pub(crate) fn forget(&mut self, set: SetNumber) {
        let version = after(after(self.version(set)));
        self.note(set, version, []);
        debug_assert!(self.holds_nothing(set), "what is forgotten is not found");
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    /// Returns the words of all summaries, for a snapshot.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// Loads the words of all summaries from a snapshot.
    pub(crate) fn load(&mut self, words: &[u32]) {
        assert_eq!(words.len(), self.words.len(), "a snapshot is of all sets");
        self.words.copy_from_slice(words);
    }

    fn words_of(&mut self, set: SetNumber) -> &mut [u32] {
        &mut self.words[set.0 as usize * self.words_per_set..][..self.words_per_set]
    }

    fn hit_bits(&self) -> u32 {
        self.hit_bits_per_word * self.words_per_set as u32
    }

    fn filter_start(&self) -> u32 {
        VERSION_BITS + self.hit_bits()
    }

    fn filter_bits(&self) -> u32 {
        u32::BITS * self.words_per_set as u32 - self.filter_start()
    }

    fn bit(&self, set: SetNumber, bit: u32) -> bool {
        self.words[set.0 as usize * self.words_per_set + (bit / u32::BITS) as usize] >> (bit % u32::BITS) & 1 == 1
    }

    fn set_bit(&mut self, set: SetNumber, bit: u32) {
        self.words_of(set)[(bit / u32::BITS) as usize] |= 1 << (bit % u32::BITS);
    }
}

/// Returns the set for the keys with this prefix, if there are `set_count` sets.
fn set_of_prefix(prefix: u32, set_count: u32) -> SetNumber {
    SetNumber((u64::from(prefix) * u64::from(set_count)) >> u32::BITS)
}

/// Share of a filter's bits that are set, in percent, up to which its set has much space left. A full set has about
/// 65%.
const SPARSE_PERCENT: u32 = 25;
const ENTRIES_PER_WORD: u64 = 7;
const WORDS_PER_SET_MAX: u64 = 16;
const VERSION_BITS: u32 = 4;
const VERSION_MASK: u32 = (1 << VERSION_BITS) - 1;
const VERSION_UNKNOWN: u8 = 0;
const HIT_BITS_PER_WORD: u32 = 8;
/// Minimum number of words of a summary for which each word has [`HIT_BITS_PER_WORD_OF_MANY`] hit bits.
const WORDS_MANY: usize = 3;
const HIT_BITS_PER_WORD_OF_MANY: u32 = 12;

/// Returns the version after `version`: 1 to 15, then 1 again.
fn after(version: u8) -> u8 {
    if u32::from(version) == VERSION_MASK { 1 } else { version + 1 }
}

/// Returns the two bits of the filter that a key sets. They depend on bits of the key's hash that do not select the
/// set.
fn filter_places(key_hash: KeyHash, filter_bits: u32) -> [u32; 2] {
    let low = key_hash.0 & 0xFFFF;
    let high = key_hash.0 >> 16 & 0xFFFF;
    [low, high].map(|part| ((part * u64::from(filter_bits)) >> 16) as u32)
}

/// Returns the two bits that a hit of a key sets. With one bit, a dozen hits would also mark a tenth of the set's other
/// entries, and these would then stay in the set without being used.
fn hit_places(key_hash: KeyHash, hit_bits: u32) -> [u32; 2] {
    let mixed = (key_hash.0 as u32).wrapping_mul(0x9E37_79B1);
    [mixed >> 16, mixed & 0xFFFF].map(|part| (part * hit_bits) >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;

    /// Returns the hash of one of several keys of `set`. Different numbers give different low halves.
    fn key_hash(set: SetNumber, number: u64, summaries: &SetSummaries) -> KeyHash {
        let (first, _) = summaries.prefixes(set);
        KeyHash(u64::from(first) << 32 | SplitMix64::new(number + set.0 * 10_000).next_u64() >> 32)
    }

    #[test]
    fn prefixes_of_a_set_are_those_that_lead_to_it() {
        for set_count in [1, 3, 128, 1_000_003] {
            let summaries = SetSummaries::new(set_count, 7);
            for set in [0, set_count / 2, set_count - 1].map(u64::from) {
                let (first, last) = summaries.prefixes(SetNumber(set));
                assert_eq!([first, last].map(|prefix| set_of_prefix(prefix, set_count)), [SetNumber(set); 2]);
                assert!(first == 0 || set_of_prefix(first - 1, set_count) == SetNumber(set - 1));
                assert!(last == u32::MAX || set_of_prefix(last + 1, set_count) == SetNumber(set + 1));
            }
        }
    }

    #[test]
    fn what_a_set_holds_may_be_held_and_little_else() {
        for entries in [4_u64, 7, 14, 28] {
            let mut summaries = SetSummaries::new(64, entries);
            let mut false_count = 0;
            for set in (0..64).map(SetNumber) {
                assert_eq!(summaries.may_hold(key_hash(set, 0, &summaries)), MayHold::Unknown);
                let key_hashes: Vec<_> = (0..entries).map(|number| key_hash(set, number, &summaries)).collect();
                summaries.note(set, 3, key_hashes.iter().copied());
                assert!(key_hashes.iter().all(|&key_hash| summaries.may_hold(key_hash) == MayHold::Maybe));
                let others = (1000..1100).map(|number| key_hash(set, number, &summaries));
                false_count += others.filter(|&other| summaries.may_hold(other) == MayHold::Maybe).count();
            }
            assert!(false_count < 6400 * 30 / 100, "{false_count} of 6400 at {entries} entries");
        }
    }

    #[test]
    fn hits_are_counted_until_the_set_is_written_again() {
        let mut summaries = SetSummaries::new(8, 7);
        let hit = key_hash(SetNumber(2), 5, &summaries);
        summaries.note(SetNumber(2), 1, [hit]);
        assert!(!summaries.was_hit(hit));
        summaries.note_hit(hit);
        assert!(summaries.was_hit(hit) && summaries.may_hold(hit) == MayHold::Maybe);
        assert_eq!(summaries.version(SetNumber(2)), 1);
        summaries.note(SetNumber(2), 2, [hit]);
        assert!(!summaries.was_hit(hit));
    }

    #[test]
    fn a_forgotten_set_has_a_version_that_no_write_on_its_way_has() {
        let mut summaries = SetSummaries::new(8, 7);
        for version in 1..=15 {
            summaries.note(SetNumber(4), version, [KeyHash(0)]);
            let on_its_way = summaries.next_version(SetNumber(4));
            summaries.forget(SetNumber(4));
            let now = summaries.version(SetNumber(4));
            assert!(now != version && now != on_its_way && now != VERSION_UNKNOWN);
        }
    }

    #[test]
    fn seven_entries_take_a_word() {
        assert_eq!(SetSummaries::new(1000, 7).memory_bytes(), 4000);
        assert_eq!(SetSummaries::new(1000, 8).memory_bytes(), 8000);
    }
}
