//! Limits of a machine's values that keep times computable: no division by zero, and no exhaustion of memory.
//!
//! Values within the limits may still be implausible. Invariant: with every value within its limits, and related values
//! in order, no simulation fails because of the machine.

use super::parameters::{DiskParameters, FileParameters, SystemParameters};
use std::ops::RangeInclusive;

/// Maximum number of groups in a file system. Each group takes memory.
const GROUP_COUNT_MAX: f64 = 1e7;

/// Returns the range that a parameter of a machine may have. It depends on the name and unit of the parameter.
pub(super) fn of(name: &str) -> RangeInclusive<f64> {
    match name {
        "capacity_bytes" => 16e6..=1e18,
        "group_bytes" => 1e6..=1e15,
        "page_bytes" | "block_bytes" | "fragment_bytes" => 512.0..=16e6,
        "inode_bytes" | "name_bytes" => 1.0..=512.0,
        "group_inode_bytes" | "group_directory_bytes" => 512.0..=1e12,
        "run_bytes" => 65_536.0..=1e15,
        "channel_count" | "reads_kept_together" => 1.0..=1e6,
        _ if name.ends_with("_per_s") => 1.0..=1e15,
        _ if name.ends_with("_share") => 0.0..=1.0,
        _ => 0.0..=1e9,
    }
}

/// Returns which values contradict each other although each is within its range; `None` if none do.
pub(super) fn disorder(
    disk: &DiskParameters,
    system: &SystemParameters,
    files: &FileParameters,
) -> Option<&'static str> {
    let capacity_bytes = disk.capacity_bytes();
    let wrong = [
        (files.group_bytes > capacity_bytes, "files.group_bytes is more than disk.capacity_bytes"),
        (files.run_bytes > capacity_bytes, "files.run_bytes is more than disk.capacity_bytes"),
        (
            capacity_bytes / files.group_bytes > GROUP_COUNT_MAX,
            "the disk has more than ten million of files.group_bytes",
        ),
        (system.page_bytes > files.run_bytes, "system.page_bytes is more than files.run_bytes"),
        (files.inode_bytes > files.block_bytes, "files.inode_bytes is more than files.block_bytes"),
        (files.block_bytes > files.group_inode_bytes, "files.block_bytes is more than files.group_inode_bytes"),
        (files.block_bytes > files.group_directory_bytes, "files.block_bytes is more than files.group_directory_bytes"),
        (
            2.0 * files.block_bytes + files.group_inode_bytes + files.group_directory_bytes > files.group_bytes,
            "files.group_bytes is less than what a group begins with",
        ),
    ];
    wrong.into_iter().find_map(|(is_wrong, what)| is_wrong.then_some(what))
}
