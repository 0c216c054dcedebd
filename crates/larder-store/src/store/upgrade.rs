//! Bringing a store of an older format to a newer one.
//!
//! Owns: which formats are converted in place, and that conversion. Does not: ask whether entries may be lost, its
//! caller does. Invariant: a conversion in place writes superblocks only, one after the other, so that one of them
//! is whole whenever the machine stops. A `log` volume of format 1 is one whose segments are all main ones: only
//! its superblock says that new entries go on probation, and it is of format 3 then. A journal needs room in front of
//! the entries, and entries that share sectors are found by other rules, so that a volume without either is formatted
//! again. Cost: a few reads and two writes, or those of [`crate::format()`].

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
    /// The format that it would have: the newest of its policy, or the newest to which no entry is lost. If it is the
    /// same, there is nothing to do.
    pub to: u32,
    /// Whether the store has to be formatted again, which loses all its entries.
    pub loses_entries: bool,
}

/// Says what [`upgrade`] would do with the store at `path`. Changes nothing.
///
/// # Errors
/// As [`crate::inspect`]; `Invalid` when there is no store, or its policy is not known.
pub fn plan_upgrade(path: &Path) -> Result<UpgradePlan> {
    plan(path).map(|(plan, _)| plan)
}

/// Brings the store at `path` to the format that [`plan_upgrade`] says, and destroys its entries where [`plan_upgrade`]
/// says so.
///
/// # Errors
/// As [`plan_upgrade`]; `Unavailable`: it cannot be written.
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

/// Returns the plan, and the options that make a store of the same policy and size today. The store is free again
/// then.
fn plan(path: &Path) -> Result<(UpgradePlan, StoreOptions)> {
    let (info, _device) = survey::look(path)?;
    let options = survey::options(path, &info)?;
    let newest = open::check(&options)?;
    let gets_probation = newest.has_probation() && !info.has_probation;
    let to = if gets_probation { FORMAT_VERSION_PROBATION } else { newest.format_version().max(info.format) };
    let loses_entries = to != info.format && !gets_probation;
    Ok((UpgradePlan { from: info.format, to, loses_entries }, options))
}
