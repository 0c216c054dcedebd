//! Converts a store of an older format to the newest one of its policy.
//!
//! Owns: the plan. The caller asks the user whether entries may be lost. A store of an older format is formatted again:
//! formats with a journal need room before the entries, and formats in which entries share sectors find them by other
//! rules. Rejected: a conversion in place to a format between the two, because the store then still is not of the
//! newest. Cost: a few reads, and those of [`crate::format()`].

use super::{open, survey};
use crate::{Result, StoreOptions};
use std::path::Path;

/// The effect that an upgrade of a store would have.
///
/// ```
/// use larder_store::{StoreOptions, UpgradePlan};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// larder_store::format(&StoreOptions::new(&path, 16 << 20))?;
/// let UpgradePlan { from, to, loses_entries } = larder_store::plan_upgrade(&path)?;
/// // It has the newest format already.
/// assert!(from == to && !loses_entries);
/// # Ok::<(), larder_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// The store's present format.
    pub from: u32,
    /// The format after the upgrade: the newest of its policy. Equal to `from` if there is nothing to do.
    pub to: u32,
    /// Whether the store must be formatted again, which loses all its entries.
    pub loses_entries: bool,
}

/// Returns what [`upgrade`] would do with the store at `path`. Changes nothing.
///
/// # Errors
/// As [`crate::inspect`], and `Invalid` if there is no store or its policy is unknown.
pub fn plan_upgrade(path: &Path) -> Result<UpgradePlan> {
    plan(path).map(|(plan, _)| plan)
}

/// Converts the store at `path` to the format that [`plan_upgrade`] returns. Destroys its entries if the plan says so.
///
/// # Errors
/// As [`plan_upgrade`], and `Unavailable` if the store cannot be written.
pub fn upgrade(path: &Path) -> Result<()> {
    let (plan, newest) = plan(path)?;
    if plan.loses_entries { super::format(&newest) } else { Ok(()) }
}

/// Returns what an upgrade would do, and the options with which this version creates a store of the same policy and
/// size. The store is no longer locked when this returns.
fn plan(path: &Path) -> Result<(UpgradePlan, StoreOptions)> {
    let (info, _device) = survey::look(path)?;
    let options = survey::options(path, &info)?;
    let to = open::check(&options)?.format_version().max(info.format);
    Ok((UpgradePlan { from: info.format, to, loses_entries: to != info.format }, options))
}
