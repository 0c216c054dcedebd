//! Keeps the process within its memory limit: when other parts grow, the memory cache shrinks, then the memory for
//! bodies in transfer, then requests are refused.
//!
//! Owns: the current capacities of the memory cache, exchanges and bodies in transfer. The other parts have their own
//! limits.
//! Design: the governor compares the process's resident memory with the limit. The system reports that figure, so it
//! includes everything, even fragmentation and what the allocator has not given back. Freed memory returns to the
//! system within a second; until then nothing shrinks further for the same limit. If the limit gives way to other
//! programs (`memory_yield`), an alarm of the kernel starts a check at once. Cost: four small file reads per second,
//! and about forty if the limit gives way.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
    task::JoinSet,
    time::{self, Instant, MissedTickBehavior},
};

use super::memory_yield::{ProcessMemory, YieldingLimit};
use crate::{
    figures::exposition,
    ground::{exchange_budget::CACHE_BYTES_MIN, machine_memory::MachineMemory},
    run::shared::ProxyState,
};

/// The state that the memory governor keeps from one check to the next.
#[derive(Debug, Default)]
struct Governor {
    /// The memory limit at the last check, in bytes.
    limit: u64,
    /// The time by which freed memory will have returned to the system. Before it, nothing more shrinks.
    settled_at: Option<Instant>,
}

/// The sizes of the parts that shrink when memory is short, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShrinkingParts {
    /// Size of the memory cache.
    cache: u64,
    /// Memory of bodies in transfer.
    bodies: u64,
}

/// The measurements of one check, in bytes.
#[derive(Clone, Copy, Debug)]
struct MemoryLook {
    now: Instant,
    resident: u64,
    /// The current memory limit of the process.
    limit: u64,
    /// Size of the entries in the memory cache.
    cached: u64,
    /// The current limits of the parts.
    present: ShrinkingParts,
    /// The upper limits of the parts, under the current memory limit.
    most: ShrinkingParts,
}

/// Keeps the process within its memory limit, if it has one: checks at intervals, and at once when memory is short.
pub(super) async fn keep_within(shared: Arc<ProxyState>) {
    let Some(limit_max) = shared.config.memory_bytes else { return };
    let source = shared.config.memory_yields.as_ref();
    let alarm = Arc::new(Notify::new());
    // Aborted when this task ends.
    let _alarms = source.map(|source| watch_alarms(source, &alarm));
    let mut governor = Governor::default();
    let mut yielding = YieldingLimit::new(limit_max);
    let mut interval = time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = alarm.notified() => {}
        }
        let Some(resident) = exposition::process::resident_bytes() else { continue };
        let hot = &shared.cache.hot;
        let now = Instant::now();
        let cached = hot.bytes();
        let limit = source
            .map_or(limit_max, |source| yielding.next_limit(source.levels(), ProcessMemory { resident, cached }, now));
        adopt_limit(&shared, limit, limit_max);
        let places = &shared.places;
        let bodies = &shared.cache.bodies;
        places.set_excess_bytes(resident.saturating_sub(limit));
        let window_bytes = shared.config.window_bytes();
        let most = ShrinkingParts {
            cache: shared.config.hot_bytes.min(places.cache_bytes_max()),
            bodies: share_of(window_bytes, limit, limit_max).max(BODIES_BYTES_MIN.min(window_bytes)),
        };
        let present = ShrinkingParts { cache: hot.capacity_bytes(), bodies: bodies.max_bytes() };
        let next = governor.next_parts(&MemoryLook { now, resident, limit, cached, present, most });
        if next.cache != present.cache {
            hot.set_capacity_bytes(next.cache);
        }
        bodies.set_max_bytes(next.bodies);
    }
}

/// Puts a memory limit into force, and adjusts the memory for connections and exchanges to it.
fn adopt_limit(shared: &ProxyState, limit: u64, limit_max: u64) {
    let before = shared.counts.memory_bytes.swap(limit, Relaxed);
    if limit == before {
        return;
    }
    // If `limit` equals `limit_max`, a reload has lowered it, which is not a yield.
    if limit < before && limit < limit_max {
        shared.counts.memory_yields.fetch_add(1, Relaxed);
        tracing::info!(bytes = limit, before, "memory is short: lowering the memory limit of this process");
    }
    shared.places.set_max_bytes(share_of(shared.config.exchange_bytes(), limit, limit_max));
}

/// Returns the share of `bytes` that a part keeps when the memory limit falls from `limit_max` to `limit`.
fn share_of(bytes: u64, limit: u64, limit_max: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(limit) / u128::from(limit_max.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Starts to notify `alarm` whenever the kernel reports that memory is short.
///
/// On systems without such reports, the regular checks suffice.
fn watch_alarms(source: &MachineMemory, alarm: &Arc<Notify>) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    for file in source.open_alarms() {
        // A file that cannot be polled gives no alarm.
        let Ok(file) = registered(file) else { continue };
        watching.spawn(watch_alarm(file, Arc::clone(alarm)));
    }
    watching
}

#[expect(deprecated, reason = "its successor is unsafe to call; the file lives as long as its registration")]
fn registered(file: File) -> io::Result<AsyncFd<File>> {
    AsyncFd::with_interest(file, Interest::PRIORITY)
}

async fn watch_alarm(file: AsyncFd<File>, alarm: Arc<Notify>) {
    loop {
        let Ok(mut ready) = file.ready(Interest::PRIORITY).await else { return };
        ready.clear_ready();
        // A file gives no further alarm until it is read. The check reads the figures themselves.
        if file.get_ref().read_at(&mut [0; 256], 0).is_err() {
            return;
        }
        alarm.notify_one();
        time::sleep(ALARM_PAUSE).await;
    }
}

impl Governor {
    /// Returns the sizes of the parts until the next check.
    ///
    /// The memory cache shrinks before the bodies in transfer, because bodies in transfer are in use.
    fn next_parts(&mut self, look: &MemoryLook) -> ShrinkingParts {
        let MemoryLook { now, resident, limit, cached, present, most } = *look;
        let has_fallen = limit < self.limit;
        self.limit = limit;
        let bodies = present.bodies.min(most.bodies);
        if resident <= limit {
            let growth = (limit - resident) / GROWTH_SHARE;
            return ShrinkingParts {
                cache: present.cache.saturating_add(growth).min(most.cache),
                bodies: bodies.saturating_add(growth).min(most.bodies),
            };
        }
        if !has_fallen && self.settled_at.is_some_and(|at| now < at) {
            return ShrinkingParts { bodies, ..present };
        }
        self.settled_at = Some(now + SETTLING);
        let excess = resident - limit;
        let cached = cached.min(present.cache);
        let cache = cached.saturating_sub(excess).max(CACHE_BYTES_MIN).min(most.cache);
        let left = excess.saturating_sub(cached.saturating_sub(cache));
        ShrinkingParts { cache, bodies: bodies.saturating_sub(left).max(BODIES_BYTES_MIN).min(most.bodies) }
    }
}

/// Interval between checks. Between two checks, memory can grow by megabytes when many clients arrive at once.
const INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time between two alarms from the same file.
const ALARM_PAUSE: Duration = Duration::from_millis(100);
/// Time until freed memory has returned to the system.
const SETTLING: Duration = Duration::from_secs(1);
/// A part may grow by 1/`GROWTH_SHARE` of the free memory in one check.
const GROWTH_SHARE: u64 = 8;
/// Minimum memory for bodies in transfer, in bytes.
const BODIES_BYTES_MIN: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const MOST: ShrinkingParts = ShrinkingParts { cache: 32 * MIB, bodies: 8 * MIB };

    fn look(resident: u64, cached: u64, present: ShrinkingParts) -> MemoryLook {
        let [resident, cached] = [resident, cached].map(|mib| mib * MIB);
        MemoryLook { now: Instant::now(), resident, limit: 64 * MIB, cached, present, most: MOST }
    }

    fn parts(cache: u64, bodies: u64) -> ShrinkingParts {
        ShrinkingParts { cache: cache * MIB, bodies: bodies * MIB }
    }

    #[test]
    fn memory_cache_gives_way_by_what_is_too_much_and_then_waits_until_that_is_free() {
        let mut governor = Governor::default();
        let first = look(74, 30, MOST);
        assert_eq!(governor.next_parts(&first), parts(20, 8));
        let later = |time| MemoryLook { now: first.now + time, ..look(72, 20, parts(20, 8)) };
        assert_eq!(governor.next_parts(&later(SETTLING / 2)), parts(20, 8));
        let lower = MemoryLook { limit: 62 * MIB, ..later(SETTLING / 2) };
        assert_eq!(governor.next_parts(&lower), parts(10, 8), "a limit that has fallen counts at once");
        let mut governor = Governor { settled_at: Some(first.now + SETTLING), ..Governor::default() };
        assert_eq!(governor.next_parts(&later(SETTLING)), parts(12, 8));
    }

    #[test]
    fn bodies_in_transfer_give_way_by_what_the_memory_cache_does_not_have() {
        let next = |resident| Governor::default().next_parts(&look(resident, 4, parts(10, 8)));
        assert_eq!(next(66), parts(2, 8));
        assert_eq!(next(70), parts(1, 5), "3 of 6 are in the memory cache");
        assert_eq!(next(100), parts(1, BODIES_BYTES_MIN / MIB));
        let fallen = ShrinkingParts { bodies: 6 * MIB, ..MOST };
        let look = MemoryLook { most: fallen, ..look(60, 4, parts(10, 8)) };
        assert_eq!(Governor::default().next_parts(&look).bodies, 6 * MIB, "the highest limit has fallen");
    }

    #[test]
    fn parts_keep_the_least_and_grow_back_to_what_they_were_given() {
        let mut governor = Governor::default();
        let mut present = governor.next_parts(&look(200, 30, MOST));
        assert_eq!(present, ShrinkingParts { cache: CACHE_BYTES_MIN, bodies: BODIES_BYTES_MIN });
        for _ in 0..20 {
            let resident = 24 + present.cache / MIB;
            present = governor.next_parts(&look(resident, present.cache / MIB, present));
        }
        assert_eq!(present, MOST);
    }
}
