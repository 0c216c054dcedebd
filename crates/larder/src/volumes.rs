//! From the settings of the store to an opened one: which volumes, how large, of which row.
//!
//! Owns: filling in what was not said from what is there (an existing store knows its size and its row, a block
//! device its size), and what to tell when a store does not open. Does not: format anything that is not blank.
//! Invariant: what was said is never replaced by what is there; the engine refuses it if the two differ.

use crate::{failure::Failure, settings::Store as Settings, size, store_path};
use larder_store::{Content, Error, ErrorKind, Policy, Store, StoreOptions, inspect};
use std::path::Path;

/// Size of a new store unless another is asked for.
pub(crate) const SIZE_BYTES_DEFAULT: u64 = 1_000_000_000;

/// Opens the store of `settings`; `None` for memory only.
///
/// # Errors
/// A failure that says what to do.
pub(crate) fn open(settings: &Settings) -> Result<Option<Store>, Failure> {
    let mut options = Vec::new();
    for (index, disk) in settings.disks.iter().enumerate() {
        if let Some(path) = store_path::find(disk, settings.row())? {
            // What cannot be looked at cannot be opened either, and then the reason is told.
            let there = inspect(&path).unwrap_or(Content::Nothing);
            options.push(options_of(&path, there, settings, index));
        }
    }
    let Some(first) = options.first().cloned() else { return Ok(None) };
    let opened = if options.len() == 1 { Store::open(first.clone()) } else { Store::open_volumes(options) };
    opened.map(Some).map_err(|error| open_failure(&error, &first))
}

/// The size that was said for the `index`-th disk, if one was.
pub(crate) fn said_size(settings: &Settings, index: usize) -> Option<u64> {
    let one_for_all = if settings.sizes.len() == 1 { settings.sizes.first() } else { None };
    settings.sizes.get(index).or(one_for_all).copied()
}

/// Options for the disk at `path`, the `index`-th of the settings, where `there` was found.
pub(crate) fn options_of(path: &Path, there: Content, settings: &Settings, index: usize) -> StoreOptions {
    let (size_there, policy_there) = match there {
        Content::Store(info) => (Some(info.size_bytes), info.policy),
        Content::Blank(size_bytes) | Content::OtherDevice { size_bytes, .. } => (Some(size_bytes), None),
        _ => (None, None),
    };
    let size_bytes = said_size(settings, index).or(size_there).unwrap_or(SIZE_BYTES_DEFAULT);
    StoreOptions {
        policy: settings.row().or(policy_there).unwrap_or_else(Policy::default_row),
        tuning: settings.tuning.clone(),
        mean_entry_size_bytes: settings.mean_entry_bytes(size_bytes),
        io: settings.io,
        ..StoreOptions::new(path, size_bytes)
    }
}

/// What the user can do about a store that does not open.
pub(crate) fn open_failure(error: &Error, options: &StoreOptions) -> Failure {
    let shown = options.path.display();
    let problem = format!("cannot use {shown} as the store: {error}");
    match error.kind() {
        ErrorKind::Invalid if !options.path.exists() => {
            let (size, mean) = (size::show(options.size_bytes), size::show(options.mean_entry_size_bytes));
            let ranges = format!(
                "--size is {size} and can be from 64MiB to 16TiB; --mean-object-size is {mean} and can be from 512B to 1MiB"
            );
            Failure::usage(problem, ranges)
        }
        ErrorKind::Invalid => Failure::runtime(
            problem,
            format!(
                "nothing was changed; if this is your store, start it without --size and --policy (it knows its own), \
                 or make it anew with larder store format {shown}; if it is something else, choose another --disk path"
            ),
        ),
        ErrorKind::Corrupt => Failure::runtime(
            problem,
            format!(
                "nothing was changed; it cannot be read any more: make it anew with larder store format {shown} --force, \
                 or move it away"
            ),
        ),
        _ => Failure::runtime(
            problem,
            format!(
                "check that {shown} can be read and written, that its disk has room for {}, and that no other larder \
                 uses it; or choose another --disk path",
                size::show(options.size_bytes)
            ),
        ),
    }
}
