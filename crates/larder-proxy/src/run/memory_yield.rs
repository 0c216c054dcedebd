//! The memory limit of a process that yields memory to other programs: it falls when memory is short, and rises again
//! slowly.
//!
//! Owns: the decision, from figures that are passed in. `machine_memory` reads them, and `governor` shrinks the memory
//! cache. Design: like the window of a TCP sender, the limit falls by a large part at once and rises in small steps, so
//! that several such programs converge. Stalls alone do not lower it: a group at its own limit stalls threads although
//! the machine has memory left, and yielding would not help that group.
//!
//! Invariant: the limit never falls below the memory of all other parts, so only the memory cache shrinks.

use std::time::Duration;

use tokio::time::Instant;

use crate::ground::machine_memory::MemoryLevel;

/// The current memory limit of the process, and the measurements that determine its next change.
#[derive(Debug)]
pub(super) struct YieldingLimit {
    limit: u64,
    limit_max: u64,
    /// The memory of the machine and of its control groups at the last check.
    levels: Vec<MemoryLevel>,
    /// The time of the last check that found memory short.
    short_at: Option<Instant>,
    /// The time when the limit last changed.
    changed_at: Option<Instant>,
}

/// Memory that this process uses, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessMemory {
    pub(super) resident: u64,
    /// The part of `resident` that the memory cache uses.
    pub(super) cached: u64,
}

impl YieldingLimit {
    /// Creates a limit that starts at `limit_max` bytes and never exceeds it.
    pub(super) fn new(limit_max: u64) -> Self {
        Self { limit: limit_max, limit_max, levels: Vec::new(), short_at: None, changed_at: None }
    }

    /// Returns the memory limit until the next check, in bytes. `levels` and `process` are the measurements of this
    /// check.
    pub(super) fn next_limit(&mut self, levels: Vec<MemoryLevel>, process: ProcessMemory, now: Instant) -> u64 {
        let wanted = levels.iter().filter_map(|level| shortage(level, self.before(level))).max();
        let has_room = levels.iter().all(|level| level.available_bytes > ROOM_RESERVES * reserve_bytes(level));
        self.levels = levels;
        let changed_since = |limit: &Self, time| limit.changed_at.is_some_and(|at| now.duration_since(at) < time);
        if let Some(wanted) = wanted {
            self.short_at = Some(now);
            // Memory that the cache has just freed may not have reached the system yet. It must not be demanded twice.
            if !changed_since(self, SETTLING) {
                self.yield_bytes(wanted, process);
                self.changed_at = Some(now);
            }
        } else if self.limit < self.limit_max
            && has_room
            && !self.is_recently_short(now)
            && !changed_since(self, STEP_EACH)
        {
            self.limit = (self.limit + self.limit_max / STEP_SHARE).min(self.limit_max);
            self.changed_at = Some(now);
        }
        assert!(self.limit <= self.limit_max, "{} of {}", self.limit, self.limit_max);
        self.limit
    }

    /// Lowers the limit below the memory in use: by `wanted` bytes or half of the memory cache, whichever is more, but
    /// at most by the whole cache.
    fn yield_bytes(&mut self, wanted: u64, process: ProcessMemory) {
        let ProcessMemory { resident, cached } = process;
        let limit = self.limit.min(resident).saturating_sub(wanted.max(cached / 2));
        self.limit = limit.max(resident.saturating_sub(cached)).min(self.limit);
    }

    fn is_recently_short(&self, now: Instant) -> bool {
        self.short_at.is_some_and(|at| now.duration_since(at) < CALM)
    }

    /// Returns the measurement of `level` at the last check. If there is none, returns `level` itself.
    fn before<'a>(&'a self, level: &'a MemoryLevel) -> &'a MemoryLevel {
        self.levels.iter().find(|before| before.name == level.name).unwrap_or(level)
    }
}

/// Returns how many bytes must be freed in `level`, because memory is short or soon will be. `None` if there is no
/// shortage.
fn shortage(level: &MemoryLevel, before: &MemoryLevel) -> Option<u64> {
    let reserve = reserve_bytes(level);
    let available = level.available_bytes;
    let stalled_us = level.stalled_us.saturating_sub(before.stalled_us);
    let is_strained = stalled_us >= STALL_US_MIN || level.reached_count > before.reached_count;
    // Without swap, a group that reaches its limit stalls at once. So a fast fall of the available memory counts before
    // that.
    let is_scarce = available < level.total_bytes / SCARCE_SHARE;
    let fall = if is_scarce { before.available_bytes.saturating_sub(available) } else { 0 };
    let expected = available.saturating_sub(LOOKS_AHEAD * fall);
    let is_short = expected < reserve || is_strained && available < level.total_bytes / STRAINED_SHARE;
    is_short.then(|| (2 * reserve).saturating_sub(expected))
}

/// Returns how much memory should stay available, in bytes.
fn reserve_bytes(level: &MemoryLevel) -> u64 {
    (level.total_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX)
}

/// The reserve, the memory that should stay available, is 1/`RESERVE_SHARE` of the whole memory, but at most
/// [`RESERVE_BYTES_MAX`].
const RESERVE_SHARE: u64 = 20;
const RESERVE_BYTES_MAX: u64 = 512 << 20;
/// Memory that must be available before the limit rises, as a multiple of the reserve.
const ROOM_RESERVES: u64 = 3;
/// A fall of the available memory counts only while less than 1/`SCARCE_SHARE` of the whole memory is available.
const SCARCE_SHARE: u64 = 2;
/// Waiting for memory counts as a shortage only while less than 1/`STRAINED_SHARE` of the whole memory is available.
const STRAINED_SHARE: u64 = 4;
/// Minimum time for which threads waited for memory since the last check to count as a shortage, in microseconds.
const STALL_US_MIN: u64 = 15_000;
/// Number of checks for which a fall of the available memory is assumed to continue. They take one second, in which the
/// cache can free memory.
const LOOKS_AHEAD: u64 = 4;
/// Time until freed memory has returned to the system.
const SETTLING: Duration = Duration::from_secs(1);
/// Time without a shortage after which the limit rises.
const CALM: Duration = Duration::from_secs(10);
const STEP_SHARE: u64 = 64;
const STEP_EACH: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BUSY: ProcessMemory = ProcessMemory { resident: 100 * MIB, cached: 60 * MIB };

    /// Returns a control group with 1000 MiB, of which `available` MiB are free.
    fn level(available: u64, stalled_us: u64, reached_count: u64) -> Vec<MemoryLevel> {
        let total_bytes = 1000 * MIB;
        let available_bytes = available * MIB;
        vec![MemoryLevel { name: "group".into(), total_bytes, available_bytes, stalled_us, reached_count }]
    }

    #[test]
    fn half_of_the_cache_goes_at_once_when_threads_wait_for_memory() {
        let mut limit = YieldingLimit::new(200 * MIB);
        let now = Instant::now();
        assert_eq!(limit.next_limit(level(200, 1_000_000, 7), BUSY, now), 200 * MIB, "the past does not count");
        assert_eq!(limit.next_limit(level(200, 1_060_000, 7), BUSY, now), 70 * MIB);
        let mut limit = YieldingLimit::new(200 * MIB);
        limit.next_limit(level(200, 0, 7), BUSY, now);
        assert_eq!(limit.next_limit(level(200, 0, 8), BUSY, now), 70 * MIB, "the limit of its group was reached");
    }

    #[test]
    fn what_is_missing_goes_but_never_more_than_the_memory_cache_has() {
        let now = Instant::now();
        let mut limit = YieldingLimit::new(200 * MIB);
        assert_eq!(limit.next_limit(level(49, 0, 0), BUSY, now), 49 * MIB, "51 are missing to twice the reserve");
        let mut limit = YieldingLimit::new(200 * MIB);
        assert_eq!(limit.next_limit(level(0, 0, 0), BUSY, now), 40 * MIB, "index and connections stay");
    }

    #[test]
    fn waiting_of_others_does_not_count_while_there_is_memory() {
        let mut limit = YieldingLimit::new(200 * MIB);
        let now = Instant::now();
        limit.next_limit(level(600, 0, 0), BUSY, now);
        assert_eq!(limit.next_limit(level(600, 900_000, 5), BUSY, now), 200 * MIB);
    }

    #[test]
    fn memory_that_others_take_fast_is_given_back_before_it_is_gone() {
        let mut limit = YieldingLimit::new(200 * MIB);
        let now = Instant::now();
        limit.next_limit(level(300, 0, 0), BUSY, now);
        assert_eq!(limit.next_limit(level(160, 0, 0), BUSY, now), 40 * MIB, "in a second nothing would be left");
        let mut limit = YieldingLimit::new(200 * MIB);
        limit.next_limit(level(300, 0, 0), BUSY, now);
        assert_eq!(limit.next_limit(level(270, 0, 0), BUSY, now), 200 * MIB);
    }

    #[test]
    fn limit_does_not_fall_again_before_the_memory_is_back() {
        let mut limit = YieldingLimit::new(200 * MIB);
        let mut now = Instant::now();
        let first = limit.next_limit(level(49, 0, 0), BUSY, now);
        assert_eq!(limit.next_limit(level(49, 0, 0), BUSY, now + SETTLING / 2), first);
        now += SETTLING;
        let after = ProcessMemory { resident: 49 * MIB, cached: 9 * MIB };
        assert_eq!(limit.next_limit(level(49, 0, 0), after, now), 40 * MIB);
    }

    #[test]
    fn limit_rises_slowly_once_there_was_no_shortage_for_a_while() {
        let mut limit = YieldingLimit::new(64 * MIB);
        let mut now = Instant::now();
        let few = ProcessMemory { resident: 50 * MIB, cached: 30 * MIB };
        let fallen = limit.next_limit(level(0, 0, 0), few, now);
        assert_eq!(fallen, 20 * MIB);
        for _ in 0..9 {
            now += Duration::from_secs(1);
            assert_eq!(limit.next_limit(level(900, 0, 0), few, now), fallen);
        }
        now += Duration::from_secs(1);
        assert_eq!(limit.next_limit(level(900, 0, 0), few, now), fallen + MIB);
        assert_eq!(limit.next_limit(level(900, 0, 0), few, now), fallen + MIB, "once a second");
        for _ in 0..100 {
            now += Duration::from_secs(1);
            limit.next_limit(level(900, 0, 0), few, now);
        }
        assert_eq!(limit.limit, 64 * MIB);
        limit.levels = level(120, 0, 0);
        assert_eq!(limit.next_limit(level(120, 0, 0), few, now), 64 * MIB, "little memory is no shortage");
    }
}
