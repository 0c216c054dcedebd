//! The worth of a value: how likely a request for it is, judged by its earlier requests.
//!
//! The worth is the sum of two terms. One counts the requests, each of which counts half after [`COUNT_HALVING`]
//! requests per value of the shard, so it knows popularity that lasts. The other depends on the last request only and
//! halves 48 times as fast, so it knows values that are requested again soon or never. Published policies with one term
//! serve one of these well: the first alone loses to LRU on product pages, the second to LFU on Zipf's law.
//!
//! A score never changes with time: it is the logarithm of the count plus the time, in ticks of 1/1024 halving. Time is
//! compared as a wrapping difference. Logarithms are linear between powers of two, as the bits of a float are, and
//! [`exp2`] and [`log2`] are inverse. Idea: LRFU (Lee et al., IEEE Transactions on Computers 2001).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The clock of a shard, which requests move on instead of time.
#[derive(Debug, Default)]
pub(super) struct Clock {
    tick: AtomicU32,
    /// Progress within the current tick. The next tick begins when it reaches a number that grows with the values in
    /// the shard.
    progress: AtomicU32,
}

/// A moment of a [`Clock`], in ticks.
pub(super) type Tick = u32;

/// The requests for a value: their count, in which older requests count less, and the time of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Score {
    /// The count, expressed as a tick: a single request at that tick would by now count as much.
    count: Tick,
    last: Tick,
}

/// A [`Score`] that several readers of a shard may change at once. If two changes coincide, one request may not be
/// counted.
#[derive(Debug)]
pub(super) struct SharedScore(AtomicU64);

impl Clock {
    pub(super) fn now(&self) -> Tick {
        self.tick.load(Relaxed)
    }

    /// Counts a request to a shard that has `value_count` values.
    pub(super) fn advance(&self, value_count: usize) {
        let requests_of_halving = u32::try_from(value_count).unwrap_or(u32::MAX).saturating_mul(COUNT_HALVING);
        let needed = requests_of_halving.max(HALVING_TICKS);
        let progress = self.progress.load(Relaxed).saturating_add(HALVING_TICKS);
        if progress >= needed {
            self.tick.fetch_add(1, Relaxed);
        }
        self.progress.store(if progress >= needed { progress - needed } else { progress }, Relaxed);
    }

    /// Converts ticks to requests per value in the shard, the unit of this clock for callers.
    pub(super) fn requests_per_value(ticks: i32) -> f32 {
        ticks as f32 * (COUNT_HALVING as f32 / HALVING_TICKS as f32)
    }
}

impl Score {
    /// Returns the score of a value that is requested for the first time.
    pub(super) fn first(now: Tick) -> Self {
        Self { count: now, last: now }
    }

    /// Returns the score of a value that nobody has requested. Such a value is worth half as much as one that was just
    /// requested for the first time.
    pub(super) fn unrequested(now: Tick) -> Self {
        Self { count: now.wrapping_sub(HALVING_TICKS), last: now.wrapping_sub(HALVING_TICKS / RECENCY_SPEED as u32) }
    }

    /// Returns the score with one more request, at `now`.
    pub(super) fn requested(self, now: Tick) -> Self {
        let count = log2(1.0 + exp2(self.count.wrapping_sub(now).cast_signed()));
        Self { count: now.wrapping_add_signed(count), last: now }
    }

    /// Returns the score with `now` as the time of the last request, for a request that the count already includes.
    pub(super) fn seen(self, now: Tick) -> Self {
        Self { last: now, ..self }
    }

    /// Returns the value's worth at `now`: its request count, plus a bonus for a recent last request.
    pub(super) fn worth(self, now: Tick) -> f32 {
        let age = now.wrapping_sub(self.last).cast_signed().max(0);
        let recency = exp2(age.saturating_mul(-RECENCY_SPEED));
        exp2(self.count.wrapping_sub(now).cast_signed()) + RECENCY_WEIGHT * recency
    }

    /// Returns the count in 16 bits, to be remembered when the value leaves memory. [`Score::of_ghost`] converts it
    /// back.
    pub(super) fn to_ghost(self) -> u16 {
        (self.count >> GHOST_SHIFT) as u16
    }

    /// Returns the score of a value that comes back to memory, from its remembered count (`ghost`). Its last request is
    /// taken to be long ago.
    pub(super) fn of_ghost(ghost: u16, now: Tick) -> Self {
        let count = now.wrapping_sub_signed(ghost_age(ghost, now));
        Self { count, last: now.wrapping_sub(FORGOTTEN_TICKS) }
    }
}

/// Returns the age of a remembered count in ticks: how long ago a single request would have left the same count.
pub(super) fn ghost_age(ghost: u16, now: Tick) -> i32 {
    let age = ((now >> GHOST_SHIFT) as u16).wrapping_sub(ghost).cast_signed();
    i32::from(age) << GHOST_SHIFT
}

impl SharedScore {
    pub(super) fn new(score: Score) -> Self {
        Self(AtomicU64::new(score.to_bits()))
    }

    pub(super) fn get(&self) -> Score {
        Score::of_bits(self.0.load(Relaxed))
    }

    /// Counts a request at `now`.
    pub(super) fn request(&self, now: Tick) {
        let before = self.0.load(Relaxed);
        let after = Score::of_bits(before).requested(now).to_bits();
        // A popular value's score rarely changes, and the other processors keep their copies of it.
        if after != before {
            self.0.store(after, Relaxed);
        }
    }
}

impl Score {
    fn to_bits(self) -> u64 {
        u64::from(self.count) << 32 | u64::from(self.last)
    }

    fn of_bits(bits: u64) -> Self {
        Self { count: (bits >> 32) as u32, last: bits as u32 }
    }
}

/// Returns 2 to the power of `ticks / HALVING_TICKS`.
fn exp2(ticks: i32) -> f32 {
    f32::from_bits((ONE_BITS + (ticks.clamp(-EXPONENT_MAX, EXPONENT_MAX) << TICK_SHIFT)).cast_unsigned())
}

/// Returns the binary logarithm of a number of at least 1, multiplied by `HALVING_TICKS`.
fn log2(number: f32) -> i32 {
    (number.to_bits().cast_signed() - ONE_BITS) >> TICK_SHIFT
}

/// Number of requests per value in the shard in which a request's part of a count halves.
const COUNT_HALVING: u32 = 24;
/// Ratio of two speeds: the bonus for a recent request halves this many times while the count halves once.
const RECENCY_SPEED: i32 = 48;
/// The bonus for a recent request in the worth of a value that was requested just now.
const RECENCY_WEIGHT: f32 = 3.0;
/// Number of ticks in which a count halves.
const HALVING_TICKS: u32 = 1 << 10;
/// The bits of the `f32` 1.0, and the position within the bits of an `f32` of what one tick changes.
const ONE_BITS: i32 = 127 << 23;
const TICK_SHIFT: u32 = 13;
const EXPONENT_MAX: i32 = 100 << 10;
/// Age in ticks at which a value's last request no longer adds to the value's worth.
const FORGOTTEN_TICKS: u32 = 100 << 10;
/// Number of low bits of a tick that a remembered count leaves out. The remaining ones distinguish 16 steps for each
/// halving.
const GHOST_SHIFT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_add_up_and_each_halves() {
        let start = u32::MAX - 500;
        let two = Score::first(start).requested(start);
        assert_eq!(two.worth(start), 2.0 + RECENCY_WEIGHT);
        let later = start.wrapping_add(HALVING_TICKS);
        assert_eq!(two.worth(later), 1.0);
        assert_eq!(two.requested(later).worth(later), 2.0 + RECENCY_WEIGHT);
        let unrequested = Score::unrequested(start).worth(start);
        assert!((unrequested - (1.0 + RECENCY_WEIGHT) / 2.0).abs() < 0.05, "{unrequested}");
        let many = (0..5000).fold(two, |score, _| score.requested(later));
        assert!(many.worth(later) > 500.0 && many.requested(later) == many, "{}", many.worth(later));
        let forgotten = later.wrapping_add(1 << 30);
        assert!(many.worth(forgotten) < 1e-20 && many.requested(forgotten).worth(forgotten) == 1.0 + RECENCY_WEIGHT);
    }

    #[test]
    fn ghost_has_the_count_of_its_value() {
        for now in [70_000, u32::MAX - 3] {
            let score = (0..7).fold(Score::first(now), |score, _| score.requested(now));
            let later = now.wrapping_add(3 * HALVING_TICKS);
            let returned = Score::of_ghost(score.to_ghost(), later);
            assert!((0.95..=1.05).contains(&returned.worth(later)), "{}", returned.worth(later));
            assert!((0..1 << GHOST_SHIFT).contains(&ghost_age(Score::first(now).to_ghost(), now)));
        }
    }

    #[test]
    fn clock_advances_with_the_requests_per_value() {
        let clock = Clock::default();
        (0..100 * COUNT_HALVING).for_each(|_| clock.advance(100));
        assert_eq!(clock.now(), HALVING_TICKS);
        (0..10).for_each(|_| clock.advance(0));
        assert_eq!(clock.now(), HALVING_TICKS + 10);
    }
}
