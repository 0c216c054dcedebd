//! Keeps the process within its memory limit: the memory cache shrinks when other parts grow.
//!
//! Owns: the memory cache's current capacity. The other parts have their own limits. Design: the governor compares the
//! process's resident memory with the limit. The system reports that figure, so it includes everything, even
//! fragmentation. Memory that the cache frees returns to the system after a few seconds; until then the cache does not
//! shrink further. Cost: one small file read per second.

use std::{sync::Arc, time::Duration};

use tokio::time::MissedTickBehavior;

use crate::{exposition, shared::ProxyState};

/// The state between two checks.
#[derive(Debug, Default)]
struct Governor {
    /// Checks to skip until freed memory has returned to the system.
    settling: u32,
}

/// The figures of one check, in bytes.
#[derive(Clone, Copy, Debug)]
struct MemoryLook {
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

/// Adjusts the capacity of the memory cache once a second, if the process has a memory limit.
pub(super) async fn keep_within(shared: Arc<ProxyState>) {
    let Some(limit) = shared.config.memory_bytes else { return };
    let (hot, capacity_max) = (&shared.cache.hot, shared.config.hot_bytes);
    let mut governor = Governor::default();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(resident) = exposition::resident_bytes() else { continue };
        let look = MemoryLook { resident, limit, cached: hot.bytes(), capacity: hot.capacity(), capacity_max };
        let capacity = governor.next_capacity(&look);
        if capacity != look.capacity {
            hot.set_capacity(capacity);
        }
    }
}

impl Governor {
    /// Returns the capacity of the memory cache until the next check.
    fn next_capacity(&mut self, look: &MemoryLook) -> u64 {
        let MemoryLook { resident, limit, cached, capacity, capacity_max } = *look;
        if resident <= limit {
            self.settling = self.settling.saturating_sub(1);
            return capacity.saturating_add((limit - resident) / GROWTH_SHARE).min(capacity_max);
        }
        if self.settling > 0 {
            self.settling -= 1;
            return capacity;
        }
        self.settling = SETTLING_LOOKS;
        cached.min(capacity).saturating_sub(resident - limit).max(CAPACITY_MIN).min(capacity_max)
    }
}

const INTERVAL: Duration = Duration::from_secs(1);
/// Number of checks until freed memory has returned to the system.
const SETTLING_LOOKS: u32 = 3;
/// At each check, the memory cache may grow by the free memory divided by this.
const GROWTH_SHARE: u64 = 8;
/// Smallest capacity of the memory cache, in bytes.
const CAPACITY_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(resident: u64, cached: u64, capacity: u64) -> MemoryLook {
        let [resident, cached, capacity] = [resident, cached, capacity].map(|mib| mib * MIB);
        MemoryLook { resident, limit: 64 * MIB, cached, capacity, capacity_max: 32 * MIB }
    }

    #[test]
    fn memory_cache_gives_way_by_what_is_too_much_and_then_waits_until_that_is_free() {
        let mut governor = Governor::default();
        assert_eq!(governor.next_capacity(&look(74, 30, 32)), 20 * MIB);
        for _ in 0..SETTLING_LOOKS {
            assert_eq!(governor.next_capacity(&look(72, 20, 20)), 20 * MIB);
        }
        assert_eq!(governor.next_capacity(&look(72, 20, 20)), 12 * MIB);
    }

    #[test]
    fn memory_cache_keeps_the_least_and_grows_back_to_what_it_was_given() {
        let mut governor = Governor::default();
        assert_eq!(governor.next_capacity(&look(200, 30, 32)), CAPACITY_MIN);
        let mut capacity = 1;
        for _ in 0..20 {
            capacity = governor.next_capacity(&look(24 + capacity, capacity, capacity)) / MIB;
        }
        assert_eq!(capacity, 32);
    }
}
