//! The worth of entries, as the log engine uses it.
//!
//! Owns: the sample of requests, the hits of the oldest quarters, and the lock around the learned values. The decisions
//! are in [`super::eviction`]. The clock is the number of segments begun: an entry is judged by its requests while half
//! as many segments are begun as the volume has. Cost: two loads and comparisons for each lookup, a lock for each
//! reclaimed segment.

use super::{
    LogEngine,
    eviction::{
        EvictionCandidate, EvictionStandard,
        learned::{EntryClass, ExpectedHits, HitsByClass},
        price::RewritePrice,
        quarters::{QuarterEarnings, QuarterHits},
        sample::{EPOCHS, RequestSample},
    },
};
use crate::sync::IgnorePoison;
use crate::{
    format::{SegmentRow, SegmentUse},
    hash::KeyHash,
    sync::{Mutex, MutexGuard},
    units::{SECTOR_BYTES, Sector, SegmentGeometry},
};

/// An entry's requests are counted while 1/`COUNTED_DIVISOR` of the volume's segments are begun.
const COUNTED_DIVISOR: u32 = 2;

/// At first, an entry with one hit is worth rewriting if its length is at most this multiple of the mean length.
const LENGTHS_FOR_A_HIT: f64 = 8.0;

/// The values that the log has learned about the worth of its entries.
pub(super) struct LogWorth {
    sample: RequestSample,
    hits: QuarterHits,
    learned: Mutex<LearnedWorth>,
    /// The exponent with which the objective weighs an entry's length ([`EvictionStandard::length_exponent`]).
    length_exponent: f64,
    /// Number of segments begun in one epoch.
    epoch_segments: u32,
}

/// The values that are learned from requests and hits.
struct LearnedWorth {
    by_class: HitsByClass,
    expected: ExpectedHits,
    /// The price of rewriting; `None` until the first segment is reclaimed.
    price: Option<RewritePrice>,
    earnings: QuarterEarnings,
    /// Number of the present epoch.
    epoch: u32,
    /// Sequence of the first segment of the present epoch.
    epoch_sequence: u32,
    /// Sequence of the segment that was to be begun next when hits were last added to `earnings`.
    counted_sequence: u32,
}

impl LogWorth {
    pub(super) fn new(geometry: &SegmentGeometry, length_exponent: f64) -> Self {
        let learned = LearnedWorth {
            by_class: HitsByClass::default(),
            expected: ExpectedHits::default(),
            price: None,
            earnings: QuarterEarnings::new(),
            epoch: 0,
            epoch_sequence: 0,
            counted_sequence: 0,
        };
        Self {
            sample: RequestSample::new(geometry.size_bytes / SECTOR_BYTES),
            hits: QuarterHits::default(),
            learned: Mutex::new(learned),
            length_exponent,
            epoch_segments: (geometry.segment_count / COUNTED_DIVISOR / EPOCHS).max(1),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.sample.memory_bytes()
    }

    /// Returns the weight of a hit of an entry with a length of `sectors`. Depending on the objective, the weight is 1,
    /// the length, or a value in between.
    fn weight(&self, sectors: u64) -> f64 {
        (sectors as f64).powf(1.0 - self.length_exponent)
    }

    /// Returns the number of segments that are begun while an entry's requests are counted.
    fn counted_segments(&self) -> f64 {
        f64::from(self.epoch_segments * EPOCHS)
    }

    fn lock(&self) -> MutexGuard<'_, LearnedWorth> {
        self.learned.lock().ignore_poison()
    }
}

impl LearnedWorth {
    /// Begins the next epoch if the present one is over. Then learns from the entries whose requests were counted long
    /// enough.
    fn advance_epoch(&mut self, worth: &LogWorth, next_sequence: u32) {
        if next_sequence.saturating_sub(self.epoch_sequence) < worth.epoch_segments {
            return;
        }
        self.epoch_sequence = next_sequence;
        self.epoch = self.epoch.wrapping_add(1);
        worth.sample.take_due(self.epoch, |class, requests| self.by_class.note(class, requests));
        self.expected = self.by_class.expected();
        assert!(worth.epoch_segments > 0, "an epoch ends");
    }
}

impl LogEngine {
    /// Counts a request for a key, even if it has no entry.
    pub(super) fn note_request(&self, key_hash: KeyHash) {
        if let Some(worth) = &self.worth {
            worth.sample.note_request(key_hash);
        }
    }

    /// Counts a hit of the entry at `position`.
    pub(super) fn note_hit(&self, position: Sector, sectors: u64) {
        if let Some(worth) = &self.worth
            && let Some(segment) = self.geometry.segment_of(position)
        {
            worth.hits.note(self.segments.segment_use(segment), || worth.weight(sectors));
        }
    }

    /// Adds the current entries of a reclaimed segment to the sample. Leaves out pinned entries, which are kept in any
    /// case.
    pub(super) fn note_candidates(&self, live: &[EvictionCandidate], standard: &EvictionStandard) {
        let Some(worth) = &self.worth else { return };
        debug_assert!(standard.price > 0.0, "a log that learns has a price");
        for entry in live.iter().filter(|entry| !entry.pinned) {
            worth.sample.note_entry(entry.listing.key_hash, standard.class(entry), standard.epoch);
        }
    }

    /// Returns the standard by which the current entries of a segment are judged when the segment is reclaimed.
    pub(super) fn standard(&self, of: SegmentUse, live: &[EvictionCandidate]) -> EvictionStandard {
        let generation = of.generation();
        let Some(worth) = &self.worth else { return EvictionStandard::of(generation) };
        let next_sequence = self.lock_log().next_sequence();
        let mut learned = worth.lock();
        learned.advance_epoch(worth, next_sequence);
        let expected = learned.expected;
        let price = learned.price.get_or_insert_with(|| {
            let sectors: u64 = live.iter().map(|entry| entry.listing.sectors()).sum();
            let mean_sectors = (sectors as f64 / live.len().max(1) as f64).max(1.0);
            // Before anything is learned, one hit is enough for an entry of eight times the mean length.
            let once = expected.of(EntryClass::of(SegmentRow::Main, 1, mean_sectors as u64));
            RewritePrice::new(once / (LENGTHS_FOR_A_HIT * mean_sectors).powf(worth.length_exponent))
        });
        EvictionStandard {
            price: price.now(),
            expected,
            epoch: learned.epoch,
            length_exponent: worth.length_exponent,
            generation,
        }
    }

    /// Notes that a segment was reclaimed. Adapts the price and, after some segments, probation's share.
    pub(super) fn note_segment_reclaimed(&self) {
        let Some(worth) = &self.worth else { return };
        let SegmentGeometry { segment_bytes, segment_count, .. } = self.geometry;
        let balance_segments = self.write_credit_bytes() as f64 / segment_bytes as f64;
        let log = self.lock_log();
        let next_sequence = log.next_sequence();
        let quarters = log.oldest_quarters();
        drop(log);
        let mut learned = worth.lock();
        let begun_count = next_sequence.saturating_sub(learned.counted_sequence);
        learned.counted_sequence = next_sequence;
        learned.earnings.advance(&worth.hits, begun_count, segment_bytes / SECTOR_BYTES, quarters);
        let earned = learned.earnings.main_earns() * worth.counted_segments();
        assert!(earned.is_finite() && earned >= 0.0, "earnings are counted");
        if let Some(price) = &mut learned.price {
            price.follow(balance_segments, earned);
        }
        let share = learned.earnings.note_reclaimed(segment_count);
        drop(learned);
        if let Some(share) = share {
            self.lock_log().set_probation_share(share);
        }
    }
}
