//! Admission: which of the entries that are offered get the room of others, once there is no free room.
//!
//! Pure decision over plain data. An entry that was offered before, within a while, is let in; one that is offered for the first
//! time only where that pays ([`Duel`]); a long one with the probability that its length leaves it, because a hit of it costs the
//! hits of all the short ones that would have its room. Owns: what was offered lately ([`Seen`]), the duel, and the addresses the
//! index dropped although their records are still in the log. Invariant: an entry is refused only if no older record of its
//! address can come back after a crash: those of a dropped address would, so it is admitted. Cost: [`Seen`]'s bits
//! for every entry the index has room for, 90 KB at most for the duel, and 128 bits for each dropped address (fewer than 0.5% of
//! the entries). No constant is to be tuned by anybody.
//! Ideas: the bloom filter rule of Maggs and Sitaraman (CCR 2015), AdaptSize's odds by size (NSDI 2017), set dueling (DIP, ISCA 2007).

mod duel;
mod seen;

use crate::{Dice, hash::KeyHash};
use duel::Duel;
pub(crate) use duel::Taste;
use seen::Seen;
use std::collections::HashMap;

/// Index and admission together take this for an entry at most, on volumes up to 1 TiB.
const BITS_PER_ENTRY_MAX: u64 = 60;
const INDEX_FILL_PERCENT: u64 = 95;
/// Of the mean length, each offer's share.
const MEAN_SHARE: f64 = 1.0 / 1024.0;

/// For how large a store admission decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Entries the index has room for.
    pub(crate) entries: u64,
    /// Sectors there are for them.
    pub(crate) sectors: u64,
    /// Memory of what was offered, in bits for each of the entries.
    pub(crate) bits_per_entry: u64,
}

/// Returns how many bits for each entry remember what was offered, where a slot of the index takes `slot_bits`: what is left of 60 bits
/// an entry, at least 4.
pub(crate) fn seen_bits_per_entry(slot_bits: u32) -> u64 {
    let index_bits = (u64::from(slot_bits) * 100).div_ceil(INDEX_FILL_PERCENT);
    BITS_PER_ENTRY_MAX.saturating_sub(index_bits).clamp(4, 12)
}

/// Returns the memory of a store's admission besides those bits, in bytes.
pub(crate) fn fixed_bytes() -> u64 {
    duel::MEMORY_BYTES
}

/// An entry that somebody wants to store, or that was hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Its key's key_hash.
    pub(crate) key_hash: KeyHash,
    pub(crate) sectors: u64,
}

/// Decides which entries are stored.
pub(crate) struct Admission {
    seen: Seen,
    duel: Duel,
    mean_sectors: f64,
    dice: Dice,
    /// Dropped addresses, and the sequence of the segment that has their record.
    dropped: HashMap<u64, u32>,
}

impl Admission {
    pub(crate) fn new(scale: Scale) -> Self {
        assert!(scale.entries > 0 && scale.sectors > 0);
        Self {
            seen: Seen::new(scale.entries, scale.bits_per_entry),
            duel: Duel::new(scale),
            mean_sectors: scale.sectors as f64 / scale.entries as f64,
            dice: Dice::new(scale.sectors),
            dropped: HashMap::new(),
        }
    }

    /// Returns whether an entry that the index does not have, of this address, is stored; remembers that it was offered.
    /// `has_room`: no other entry has to go for it.
    pub(crate) fn admits(&mut self, offer: Offer, address: u64, has_room: bool) -> bool {
        self.note_asked(offer);
        self.mean_sectors += (offer.sectors as f64 - self.mean_sectors) * MEAN_SHARE;
        assert!(self.mean_sectors.is_finite() && self.mean_sectors >= 0.0, "a mean of lengths");
        let was_seen = self.seen.note(offer.key_hash);
        if self.dropped.remove(&address).is_some() || has_room {
            return true;
        }
        let newcomer = Newcomer { was_seen, sectors: offer.sectors, mean_sectors: self.mean_sectors as u64 };
        newcomer.is_admitted(self.duel.taste(), &mut self.dice)
    }

    /// Notes a request that was hit, or is about to be answered by storing.
    pub(crate) fn note_asked(&mut self, offer: Offer) {
        self.duel.note_asked(offer, self.mean_sectors as u64);
    }

    /// Returns which requests the duel wants to hear of: those of hashes for which these bits are zero.
    pub(crate) fn sampled_by(&self) -> u64 {
        self.duel.sampled_by()
    }

    /// Notes that the index dropped an address whose record, in a segment of `sequence`, stays.
    pub(crate) fn note_dropped(&mut self, address: u64, sequence: u32) {
        self.dropped.insert(address, sequence);
    }

    /// Notes that segments up to `sequence` are over, and their records with them.
    pub(crate) fn forget_through(&mut self, sequence: u32) {
        self.dropped.retain(|_, &mut kept| kept > sequence);
    }

    /// Returns the memory it takes when it is full, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.seen.memory_bytes() + fixed_bytes()
    }
}

/// What is known of an entry that would have others' room.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    /// Whether it was offered before, within a while.
    was_seen: bool,
    sectors: u64,
    /// Mean length of what is offered.
    mean_sectors: u64,
}

impl Newcomer {
    /// The decision.
    fn is_admitted(self, taste: Taste, dice: &mut Dice) -> bool {
        // Where popularity lasts, an entry of the mean length comes again if it is worth it, and the shorter ones gain.
        let surely_sectors = match taste {
            Taste::First => self.mean_sectors,
            Taste::Second if self.was_seen => self.mean_sectors / 2,
            Taste::Second => return false,
        };
        dice.below(self.sectors.max(1)) < surely_sectors.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { entries: 10_000, sectors: 160_000, bits_per_entry: 12 };

    /// Of an entry so short that only the memory of offers decides.
    fn offer(n: u64) -> Offer {
        Offer { key_hash: KeyHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ n << 40), sectors: 1 }
    }

    #[test]
    fn where_there_is_no_room_the_second_offer_within_a_while_is_admitted() {
        let mut admission = Admission::new(SCALE);
        let mut admits = |n| admission.admits(offer(n), n, false);
        let first = (0..2_000).filter(|&n| admits(n)).count();
        assert!(first <= 40, "{first} of 2000 taken for seen");
        assert!((0..2_000).all(&mut admits));
        (100_000..130_000).for_each(|n| _ = admits(n));
        let remembered = (0..2_000).filter(|&n| admits(n)).count();
        assert!(remembered <= 80, "{remembered} of 2000 remembered for longer");
    }

    #[test]
    fn where_there_is_room_everything_is_admitted() {
        let mut admission = Admission::new(SCALE);
        assert!((0..2_000).all(|n| admission.admits(Offer { sectors: 2_000, ..offer(n) }, n, true)));
    }

    #[test]
    fn a_long_entry_gets_in_as_often_as_its_length_allows() {
        let mut dice = Dice::new(1);
        let newcomer = |sectors| Newcomer { was_seen: true, sectors, mean_sectors: 16 };
        let mut admitted =
            |sectors| (0..10_000).filter(|_| newcomer(sectors).is_admitted(Taste::Second, &mut dice)).count();
        assert_eq!((admitted(1), admitted(8)), (10_000, 10_000));
        let (twice, tenfold) = (admitted(16), admitted(80));
        assert!((4_700..5_300).contains(&twice) && (800..1_200).contains(&tenfold), "{twice} {tenfold}");
        let fresh = Newcomer { was_seen: false, ..newcomer(1) };
        assert!(fresh.is_admitted(Taste::First, &mut dice) && !fresh.is_admitted(Taste::Second, &mut dice));
    }

    #[test]
    fn a_dropped_address_is_admitted_until_its_segment_is_over() {
        let mut admission = Admission::new(SCALE);
        admission.note_dropped(1, 5);
        admission.note_dropped(2, 6);
        admission.forget_through(5);
        assert!(!admission.admits(offer(1), 1, false));
        assert!(admission.admits(offer(2), 2, false));
    }
}
