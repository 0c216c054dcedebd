//! The memory and open files available to the process, and the limits derived from them.
//!
//! Owns: the default limits on waiting requests and on connections to an origin. A container's limit counts if it is
//! lower than the machine's.

use rustix::process::{Resource, getrlimit};

use crate::ground::machine_memory::MachineMemory;

/// Returns the memory that this process can have, in bytes: the machine's, or less if its control groups have a lower
/// limit.
fn machine_memory_bytes() -> u64 {
    MachineMemory::of_this_process().total_bytes().unwrap_or(0)
}

/// Returns the default limit on waiting requests, from the machine's memory.
pub(super) fn waiting_count_max() -> usize {
    let count = machine_memory_bytes() / WAITING_SHARE / WAITING_BYTES;
    usize::try_from(count).unwrap_or(usize::MAX).max(WAITING_COUNT_MIN)
}

/// Returns the default limit on connections to one origin, from the limit on open files.
pub(super) fn origin_connection_count_max() -> usize {
    // The program raises its limit on open files as far as the system permits.
    connections_of(getrlimit(Resource::Nofile).maximum, waiting_count_max())
}

/// Returns the limit on connections for a process with `descriptor_count_max` descriptors.
///
/// Half of the descriptors are left to clients. More connections than waiting requests are never needed.
fn connections_of(descriptor_count_max: Option<u64>, waiting_count_max: usize) -> usize {
    let half = usize::try_from(descriptor_count_max.unwrap_or(u64::MAX) / 2).unwrap_or(usize::MAX);
    half.min(waiting_count_max).clamp(CONNECTION_COUNT_MIN, CONNECTION_COUNT_MAX)
}

/// Memory of a waiting request with its two connections, in bytes: as measured (docs/internals/measurements.md), and
/// room for a long head.
const WAITING_BYTES: u64 = 64 << 10;
/// Waiting requests get 1/`WAITING_SHARE` of the machine's memory.
const WAITING_SHARE: u64 = 4;
/// Minimum default limit on waiting requests, for a machine with little memory.
const WAITING_COUNT_MIN: usize = 1024;
/// Smallest default limit on connections to an origin, for a process that may open few files.
const CONNECTION_COUNT_MIN: usize = 1000;
const CONNECTION_COUNT_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_on_connections_to_an_origin_follows_from_descriptors_and_memory() {
        for (descriptors, waiting, connections) in [
            (Some(1024), 8192, 1000),
            (Some(8192), 8192, 4096),
            (Some(1 << 20), 8192, 8192),
            (None, 1 << 20, 16_384),
            (None, 10, 1000),
        ] {
            assert_eq!(connections_of(descriptors, waiting), connections, "{descriptors:?} {waiting}");
        }
    }

    #[test]
    fn bound_on_waiting_requests_follows_from_memory() {
        let machine = machine_memory_bytes();
        assert!(machine > 64 << 20, "{machine}");
        let waiting = waiting_count_max() as u64;
        assert!(waiting * WAITING_BYTES <= machine / 4 || waiting == 1024, "{waiting}");
    }
}
