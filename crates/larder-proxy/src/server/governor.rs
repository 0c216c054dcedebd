//! Keeps the process within its memory limit: the memory cache shrinks when other parts grow, then requests are
//! refused.
//!
//! Owns: the current capacities of the memory cache, exchanges and bodies in transfer. The other parts have their own
//! limits.
//! Design: the governor compares the process's resident memory with the limit. The system reports that figure, so it
//! includes everything, even fragmentation. Memory that the cache frees returns to the system after a few seconds;
//! until then the cache does not shrink further for the same limit. If the limit gives way to other programs
//! (`memory_yield`), an alarm of the kernel starts a check at once. Cost: one small file read per second, and about ten
//! if the limit gives way.

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
use crate::{exchange_budget::CACHE_BYTES_MIN, exposition, machine_memory::MachineMemory, shared::ProxyState};

/// The state between two checks.
#[derive(Debug, Default)]
struct Governor {
    /// The limit at the last check.
    limit: u64,
    /// The time by which freed memory has returned to the system.
    settled_at: Option<Instant>,
}

/// The figures of one check, in bytes.
#[derive(Clone, Copy, Debug)]
struct MemoryLook {
    now: Instant,
    resident: u64,
    /// The memory limit of the process.
    limit: u64,
    /// The bytes in the memory cache.
    cached: u64,
    /// The memory cache's current capacity.
    capacity: u64,
    /// The memory cache's largest capacity.
    capacity_max: u64,
}

/// Adjusts the capacity of the memory cache once a second, and when memory is short, if the process has a memory limit.
pub(super) async fn keep_within(shared: Arc<ProxyState>) {
    let Some(limit_max) = shared.config.memory_bytes else { return };
    let source = shared.config.memory_yields.as_ref();
    let alarm = Arc::new(Notify::new());
    // Aborted with this task.
    let _alarms = source.map(|source| watch_alarms(source, &alarm));
    let mut governor = Governor::default();
    let mut yielding = YieldingLimit::new(limit_max);
    let mut interval = time::interval(if source.is_some() { YIELDING_INTERVAL } else { INTERVAL });
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
        shared.cache.places.set_excess_bytes(resident.saturating_sub(limit));
        let capacity_max = shared.config.hot_bytes.min(shared.cache.places.cache_bytes_max());
        let look = MemoryLook { now, resident, limit, cached, capacity: hot.capacity_bytes(), capacity_max };
        let capacity = governor.next_capacity(&look);
        if capacity != look.capacity {
            hot.set_capacity_bytes(capacity);
        }
    }
}

/// Publishes the limit, and sets the shares of exchanges and of bodies in flight.
fn adopt_limit(shared: &ProxyState, limit: u64, limit_max: u64) {
    let before = shared.counts.memory_bytes.swap(limit, Relaxed);
    if limit == before {
        return;
    }
    // A lower limit may also come from the configuration.
    if limit < before && limit < limit_max {
        shared.counts.memory_yields.fetch_add(1, Relaxed);
        tracing::info!(bytes = limit, before, "memory is short: the memory limit of this process falls");
    }
    let bodies = share_of(shared.config.window_bytes(), limit, limit_max);
    shared.cache.bodies.set_max_bytes(bodies.max(BODIES_BYTES_MIN.min(shared.config.window_bytes())));
    shared.cache.places.set_max_bytes(share_of(shared.config.exchange_bytes(), limit, limit_max));
}

/// Returns the share of a part that has `bytes` under the highest limit.
fn share_of(bytes: u64, limit: u64, limit_max: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(limit) / u128::from(limit_max.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Notifies `alarm` whenever the kernel reports that memory is short. Without such reports, one check per second
/// suffices.
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
        // A file of events sends no further alarm until it is read. The check reads its figures.
        if file.get_ref().read_at(&mut [0; 256], 0).is_err() {
            return;
        }
        alarm.notify_one();
        time::sleep(ALARM_PAUSE).await;
    }
}

impl Governor {
    /// Returns the capacity of the memory cache until the next check.
    fn next_capacity(&mut self, look: &MemoryLook) -> u64 {
        let MemoryLook { now, resident, limit, cached, capacity, capacity_max } = *look;
        let has_fallen = limit < self.limit;
        self.limit = limit;
        if resident <= limit {
            return capacity.saturating_add((limit - resident) / GROWTH_SHARE).min(capacity_max);
        }
        if !has_fallen && self.settled_at.is_some_and(|at| now < at) {
            return capacity;
        }
        self.settled_at = Some(now + SETTLING);
        cached.min(capacity).saturating_sub(resident - limit).max(CACHE_BYTES_MIN).min(capacity_max)
    }
}

const INTERVAL: Duration = Duration::from_secs(1);
/// The interval between checks while memory may be given back. Without swap, little time passes between a shortage and
/// the end of the process, so a fast decline must be noticed early.
const YIELDING_INTERVAL: Duration = Duration::from_millis(250);
/// Shortest time between two alarms of one file.
const ALARM_PAUSE: Duration = Duration::from_millis(100);
/// The time until freed memory has returned to the system.
const SETTLING: Duration = Duration::from_secs(3);
/// Divisor of the free memory that gives the growth of the memory cache per check.
const GROWTH_SHARE: u64 = 8;
/// Smallest room for bodies in transfer, in bytes.
const BODIES_BYTES_MIN: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(resident: u64, cached: u64, capacity: u64) -> MemoryLook {
        let [resident, cached, capacity] = [resident, cached, capacity].map(|mib| mib * MIB);
        MemoryLook { now: Instant::now(), resident, limit: 64 * MIB, cached, capacity, capacity_max: 32 * MIB }
    }

    #[test]
    fn memory_cache_gives_way_by_what_is_too_much_and_then_waits_until_that_is_free() {
        let mut governor = Governor::default();
        let first = look(74, 30, 32);
        assert_eq!(governor.next_capacity(&first), 20 * MIB);
        let later = |time| MemoryLook { now: first.now + time, ..look(72, 20, 20) };
        assert_eq!(governor.next_capacity(&later(SETTLING / 2)), 20 * MIB);
        let lower = MemoryLook { limit: 62 * MIB, ..later(SETTLING / 2) };
        assert_eq!(governor.next_capacity(&lower), 10 * MIB, "a limit that has fallen counts at once");
        let mut governor = Governor { settled_at: Some(first.now + SETTLING), ..Governor::default() };
        assert_eq!(governor.next_capacity(&later(SETTLING)), 12 * MIB);
    }

    #[test]
    fn memory_cache_keeps_the_least_and_grows_back_to_what_it_was_given() {
        let mut governor = Governor::default();
        assert_eq!(governor.next_capacity(&look(200, 30, 32)), CACHE_BYTES_MIN);
        let mut capacity = 1;
        for _ in 0..20 {
            capacity = governor.next_capacity(&look(24 + capacity, capacity, capacity)) / MIB;
        }
        assert_eq!(capacity, 32);
    }
}
