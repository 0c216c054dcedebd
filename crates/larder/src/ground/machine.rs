//! The machine's resources, which settings must not exceed.
//!
//! Owns: the comparison of `--memory` with the machine, and the resident memory of a process. Reserves nothing.

use crate::ground::{failure::Failure, size};
use larder_proxy::MachineMemory;
use std::fs;

/// Returns the host's name. `None` if it is unreadable or empty.
pub(crate) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Refuses a memory size greater than the memory that this machine and the control groups of this process permit.
///
/// # Errors
/// A usage failure that says how much memory is available.
pub(crate) fn check_memory(wanted_bytes: u64) -> Result<(), Failure> {
    match MachineMemory::of_this_process().total_bytes() {
        Some(there) if wanted_bytes > there => Err(Failure::usage(
            format!("--memory is more than the {} available here: {}", size::show(there), size::show(wanted_bytes)),
            "give less: the system needs memory too",
        )),
        _ => Ok(()),
    }
}

/// Returns the resident memory of a process, in bytes. `None` if there is no such process.
pub(crate) fn resident_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    resident.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_is_refused() {
        assert!(check_memory(1 << 20).is_ok() && check_memory(u64::MAX).is_err());
    }

    #[test]
    fn process_of_the_test_has_memory() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
        assert_eq!(resident_bytes(u32::MAX), None);
    }
}
