//! Converts a store of an older format to a newer one.
//!
//! Owns: which formats are converted in place, and that conversion. The caller asks the user whether entries may be
//! lost. Invariant: a conversion in place writes only the superblocks, one after the other, so that one of them is
//! always whole.
//!
//! A `log` volume of format 1 has only main segments. Its superblock alone says whether new entries go on probation, so
//! writing it as format 3 suffices. Formats with a journal need room before the entries, and formats in which entries
//! share sectors find them by other rules. A volume without these is formatted again. Cost: a few reads and two writes,
//! or those of [`crate::format()`].

use super::{open, survey};
use crate::{
    Error, ErrorKind, Result, StoreOptions,
    device::block_on,
    format::superblock::{FORMAT_VERSION_PROBATION, LogForm},
    volume::superblocks,
};
use std::path::Path;

/// The outcome that an upgrade of a store would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradePlan {
    /// The store's format.
    pub from: u32,
    /// The format after the upgrade: the newest of its policy, or the newest that loses no entry. Equal to `from` if
    /// there is nothing to do.
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
    let (UpgradePlan { from, to, loses_entries }, newest) = plan(path)?;
    if from == to {
        return Ok(());
    }
    if loses_entries {
        return super::format(&newest);
    }
    let (_, device) = survey::look(path)?;
    let mut superblock = open::read_superblock(&device).map_err(|refusal| open::refused(refusal, path))?;
    superblock.shape.form = LogForm::Probation;
    superblock.generation += 1;
    assert_eq!(superblock.shape.format_version(), to, "probation is what that format adds");
    block_on(superblocks::write(&device, &superblock))
        .map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the store's superblock", source))
}

/// Returns the plan, and the options that create a store of the same policy and size today. The store is no longer
/// locked when this returns.
fn plan(path: &Path) -> Result<(UpgradePlan, StoreOptions)> {
    let (info, _device) = survey::look(path)?;
    let options = survey::options(path, &info)?;
    let newest = open::check(&options)?;
    let gets_probation = newest.has_probation() && !info.has_probation;
    let to = if gets_probation { FORMAT_VERSION_PROBATION } else { newest.format_version().max(info.format) };
    let loses_entries = to != info.format && !gets_probation;
    Ok((UpgradePlan { from: info.format, to, loses_entries }, options))
}
