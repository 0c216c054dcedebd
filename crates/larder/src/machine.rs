//! The machine's resources, which settings must not exceed.
//!
//! Owns: reading the amount of memory. Nothing is reserved.

use crate::{failure::Failure, size};
use std::fs;

/// Returns the host's name, if it has one.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Refuses a memory size that exceeds this machine's memory.
///
/// # Errors
/// A usage failure that says how much memory there is.
pub(crate) fn check_memory(wanted_bytes: u64) -> Result<(), Failure> {
    let there = memory_bytes(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"));
    match there {
        Some(there) if wanted_bytes > there => Err(Failure::usage(
            format!("--memory is more than the {} available here: {}", size::show(there), size::show(wanted_bytes)),
            "give less: the system needs some too",
        )),
        _ => Ok(()),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the machine's memory, or the limit of this process's control group if that is lower. Returns `None` if
/// neither is known.
fn memory_bytes(meminfo: &str, group_max: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map(|kib| kib << 10);
    // `max` means that there is no limit.
    let group_max = group_max.trim().parse().ok();
    [total, group_max].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_of_machine_and_group_counts() {
        let meminfo = "MemTotal:       24000000 kB\nMemFree:        1 kB\n";
        assert_eq!(memory_bytes(meminfo, "max\n"), Some(24_000_000 << 10));
        assert_eq!(memory_bytes(meminfo, "1000000\n"), Some(1_000_000));
        assert_eq!(memory_bytes("", ""), None);
        assert!(check_memory(1 << 20).is_ok() && check_memory(u64::MAX).is_err());
    }
}
