//! How much memory this machine has for the process, and what follows from it.
//!
//! Owns: the bound on waiting requests where none was said. Does not: allocate or watch. A container's own limit counts where it
//! is lower than the machine's.

use std::{fs, path::Path};

/// The bytes of memory that this process may come to have: the machine's, or what its control group allows.
fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    group_limit().map_or(machine, |limit| limit.min(machine))
}

/// Most requests that may wait where nothing was said.
pub(super) fn waiting_count_max() -> usize {
    let count = machine_memory_bytes() / WAITING_SHARE / WAITING_BYTES;
    usize::try_from(count).unwrap_or(usize::MAX).max(WAITING_COUNT_MIN)
}

/// The limit of the control group, version 2 or 1.
fn group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some((Path::new("/sys/fs/cgroup"), path, "memory.max")),
            "memory" => Some((Path::new("/sys/fs/cgroup/memory"), path, "memory.limit_in_bytes")),
            _ => None,
        }
    });
    // Inside a container the group's path may be that of outside, and its files are at the root.
    limits.filter_map(|(root, path, name)| limit(&root.join(path).join(name)).or_else(|| limit(&root.join(name)))).min()
}

/// What a request that waits takes, its connections to client and origin included, in bytes: what was measured
/// (docs/measurements.md), and room for long heads.
const WAITING_BYTES: u64 = 64 << 10;
/// The part of the machine's memory that requests may wait in.
const WAITING_SHARE: u64 = 4;
/// So many may wait on the smallest machine.
const WAITING_COUNT_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_on_waiting_requests_follows_from_memory() {
        let machine = machine_memory_bytes();
        assert!(machine > 64 << 20, "{machine}");
        let waiting = waiting_count_max() as u64;
        assert!(waiting * WAITING_BYTES <= machine / 4 || waiting == 1024, "{waiting}");
    }
}
