//! The memory and open files available to the process, and the limits derived from them.
//!
//! Owns: the default limits on waiting requests and on connections to an origin. Nothing is allocated or watched. A
//! container's limit counts if it is lower than the machine's.

use rustix::process::{Resource, getrlimit};

use crate::machine_memory::MachineMemory;

/// Returns the bytes of memory that this process can have: the machine's, or a lower limit of its control groups.
fn machine_memory_bytes() -> u64 {
    MachineMemory::of_this_process().total_bytes().unwrap_or(0)
}

/// Returns the default limit on waiting requests.
pub(super) fn waiting_count_max() -> usize {
    let count = machine_memory_bytes() / WAITING_SHARE / WAITING_BYTES;
    usize::try_from(count).unwrap_or(usize::MAX).max(WAITING_COUNT_MIN)
}

/// Returns the default limit on connections to one origin.
pub(super) fn origin_connection_count_max() -> usize {
    // The program raises its limit on open files as far as it may.
    connections_of(getrlimit(Resource::Nofile).maximum, waiting_count_max())
}

/// Returns half of the descriptors, because clients need the other half. The number is at most that of waiting
/// requests: a request that cannot wait needs no connection.
fn connections_of(descriptor_count_max: Option<u64>, waiting_count_max: usize) -> usize {
    let half = usize::try_from(descriptor_count_max.unwrap_or(u64::MAX) / 2).unwrap_or(usize::MAX);
    half.min(waiting_count_max).clamp(CONNECTION_COUNT_MIN, CONNECTION_COUNT_MAX)
}

/// Memory of a waiting request, including its connections to client and origin, in bytes: the measured value
/// (docs/internals/measurements.md), and room for long heads.
const WAITING_BYTES: u64 = 64 << 10;
/// The part of the machine's memory that requests may wait in.
const WAITING_SHARE: u64 = 4;
/// Limit on waiting requests on the smallest machine.
const WAITING_COUNT_MIN: usize = 1024;
/// Number of connections to an origin on the smallest machine, and on the largest: Linux has 28,000 ports for one
/// address, some of which are still taken by ended connections.
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
