//! Opens the store that the settings describe: its volumes, sizes and policy.
//!
//! Owns: filling in unset settings from the disk (an existing store has a size and a policy, a block device a size),
//! and the advice when a store does not open. Only blank devices are formatted.
//!
//! Invariants: a given setting is never replaced by a value from the disk. All disks are examined, and every unusable
//! one is named, before any is changed. If one of several disks lacks its store, it is excluded and reported; no new
//! store is created in its place.

mod refusal;

use crate::{
    ground::{failure::Failure, output::tell, size},
    settings::{StoreSettings as Settings, store_path},
};
use larder_store::{Error, ErrorKind, PathContent, Policy, Result, Store, StoreOptions, glance, inspect};
pub(crate) use refusal::{check_room, format_failure, open_failure, unusable_kind};
use rustix::fs::Access;
use std::path::{Path, PathBuf};

/// Default size of a new store in bytes, if its file system has room for it.
pub(crate) const SIZE_BYTES_DEFAULT: u64 = 1_000_000_000;
/// Maximum size of a new store with the size `auto`, in bytes.
const AUTO_SIZE_BYTES_MAX: u64 = 10_000_000_000;

/// A store that was opened, and the disks that are missing from it.
pub(crate) struct OpenedStore {
    pub(crate) store: Store,
    /// The disks that are not in use.
    pub(crate) missing: Vec<MissingDisk>,
}

/// A configured disk that is not in use, and why.
#[derive(Clone, Debug)]
pub(crate) struct MissingDisk {
    pub(crate) path: PathBuf,
    /// The reason, and advice for the user.
    pub(crate) why: String,
}

/// A configured disk, and what is on it.
struct DiskPlace {
    options: StoreOptions,
    there: Result<PathContent>,
}

/// Opens the store of `settings`. Returns `None` for memory only.
///
/// # Errors
/// The store cannot be opened; the failure has advice.
pub(crate) fn open(settings: &Settings) -> std::result::Result<Option<OpenedStore>, Failure> {
    let mut places: Vec<DiskPlace> = Vec::new();
    let mut smaller = Vec::new();
    for (index, disk) in settings.disks.iter().enumerate() {
        let Some(path) = store_path::find(disk, settings.row())? else { continue };
        if let Some(twice) = places.iter().find(|place| is_same(&place.options.path, &path)) {
            return Err(refusal::twice(&twice.options.path, &path));
        }
        let there = inspect(&path);
        // A disk that cannot be inspected cannot be opened either, which reports the reason.
        let content = there.as_ref().unwrap_or(&PathContent::Nothing);
        let options = options_of(&path, content, settings, index);
        let wanted_bytes = said_size(settings, index).unwrap_or_else(|| default_size_bytes(settings));
        if matches!(there, Ok(PathContent::Nothing)) && options.size_bytes < wanted_bytes {
            smaller.push((path.clone(), options.size_bytes, wanted_bytes));
        }
        places.push(DiskPlace { options, there });
    }
    let is_alone = places.len() == 1;
    let has_store = places.iter().any(|place| matches!(place.there, Ok(PathContent::Store(_))));
    let mut options = Vec::new();
    let mut missing = Vec::new();
    for DiskPlace { options: wanted, there } in places {
        match there {
            Ok(PathContent::Nothing) if has_store => missing.push(refusal::missing(wanted.path)),
            Ok(content) => {
                refusal::check(&wanted, &content, settings.row())?;
                options.push(wanted);
            }
            // Of several volumes, the engine excludes those that are unavailable.
            Err(error) if is_alone || error.kind() == ErrorKind::Invalid => return Err(open_failure(&error, &wanted)),
            Err(_) => options.push(wanted),
        }
    }
    if options.is_empty() {
        return Ok(None);
    }
    let opened = match &options[..] {
        [only] if is_alone => Store::open(only.clone()),
        several => Store::open_volumes(several.to_vec()),
    };
    let store = opened.map_err(|error| {
        let told = error.to_string();
        let culprit = options.iter().find(|options| told.contains(&*options.path.to_string_lossy()));
        open_failure(&error, culprit.unwrap_or(&options[0]))
    })?;
    let is_open = |path: &Path| store.volumes().any(|volume| volume.path.starts_with(path));
    for (path, size_bytes, wanted_bytes) in smaller.iter().filter(|(path, ..)| is_open(path)) {
        tell!(
            "the new store takes {} instead of the default {}: its file system has little free space: {}",
            size::show(*size_bytes),
            size::show(*wanted_bytes),
            path.display()
        );
    }
    let unusable = options.iter().filter(|options| !is_open(&options.path));
    missing
        .extend(unusable.map(|options| MissingDisk { path: options.path.clone(), why: "see the error above".into() }));
    Ok(Some(OpenedStore { store, missing }))
}

/// Returns the options of each volume that `settings` describe, as far as its disk can be inspected.
///
/// # Errors
/// A path cannot be used.
pub(crate) fn wanted(settings: &Settings) -> std::result::Result<Vec<StoreOptions>, Failure> {
    let mut wanted = Vec::new();
    for (index, disk) in settings.disks.iter().enumerate() {
        let Some(path) = store_path::expect(disk, settings.row())? else { continue };
        wanted.push(options_of(&path, &content_of(&path).unwrap_or(PathContent::Nothing), settings, index));
    }
    Ok(wanted)
}

/// Returns what is at a path, even if it is a store in use.
fn content_of(path: &Path) -> Result<PathContent> {
    match glance(path)? {
        Some(info) => Ok(PathContent::Store(info)),
        None => inspect(path),
    }
}

/// Refuses disks that cannot be the store, as far as this can be known without changing anything.
///
/// # Errors
/// A failure that names every such disk, with advice.
pub(crate) fn check(settings: &Settings) -> std::result::Result<(), Failure> {
    Failure::all((0..settings.disks.len()).map(|index| check_disk(settings, index)))
}

fn check_disk(settings: &Settings, index: usize) -> std::result::Result<(), Failure> {
    let Some(path) = store_path::expect(&settings.disks[index], settings.row())? else { return Ok(()) };
    let content = content_of(&path);
    let options = options_of(&path, content.as_ref().unwrap_or(&PathContent::Nothing), settings, index);
    let content = content.map_err(|error| open_failure(&error, &options))?;
    refusal::check(&options, &content, settings.row())?;
    let target = if matches!(content, PathContent::Nothing) { path.parent() } else { Some(path.as_path()) };
    let target = target.filter(|target| target.exists());
    if let Some(Err(error)) = target.map(|target| rustix::fs::access(target, Access::WRITE_OK)) {
        let place = format!("cannot write {}", path.display());
        return Err(open_failure(&Error::io(ErrorKind::Unavailable, place, error.into()), &options));
    }
    Ok(())
}

/// Refuses a store in use that could not be opened later either, as far as this can be known.
///
/// # Errors
/// A failure with advice.
pub(crate) fn check_in_use(settings: &Settings) -> std::result::Result<(), Failure> {
    for (index, disk) in settings.disks.iter().enumerate() {
        let Some(path) = store_path::find(disk, settings.row())? else { continue };
        let fallback = || options_of(&path, &PathContent::Nothing, settings, index);
        let there = glance(&path).map_err(|error| open_failure(&error, &fallback()))?;
        let Some(info) = there else { continue };
        let there = PathContent::Store(info);
        refusal::check(&options_of(&path, &there, settings, index), &there, settings.row())?;
    }
    Ok(())
}

/// Returns whether both paths lead to the same existing file or device.
fn is_same(first: &Path, second: &Path) -> bool {
    first.canonicalize().is_ok_and(|first| second.canonicalize().is_ok_and(|second| first == second))
}

/// Returns the size that was given for the disk with this index. `None` if none was given.
pub(crate) fn said_size(settings: &Settings, index: usize) -> Option<u64> {
    let one_for_all = if settings.sizes.len() == 1 { settings.sizes.first() } else { None };
    settings.sizes.get(index).or(one_for_all).copied().flatten()
}

/// Returns the size of a new store without a given size, if there is room for it.
fn default_size_bytes(settings: &Settings) -> u64 {
    if settings.sizes.is_empty() { SIZE_BYTES_DEFAULT } else { AUTO_SIZE_BYTES_MAX }
}

/// Returns the size of a new store without a given size: `most_bytes`, or four fifths of the free space if that is
/// less.
pub(crate) fn fitting_size_bytes(path: &Path, most_bytes: u64) -> u64 {
    let Some(free_bytes) = free_bytes(path) else { return most_bytes };
    // In whole MiB, so that the plan of the memory and the store agree although other programs write meanwhile.
    let fitting_bytes = (free_bytes / 5 * 4) >> 20 << 20;
    most_bytes.min(fitting_bytes.max(*size::STORE_BYTES.start()))
}

/// Returns the free space of the file system for `path`, which need not exist. `None` if there is no limit.
fn free_bytes(path: &Path) -> Option<u64> {
    let is_folder = |folder: &&Path| !folder.as_os_str().is_empty() && folder.is_dir();
    let folder = path.ancestors().find(is_folder).unwrap_or(Path::new("."));
    // A file system without a limit of its own reports 0 blocks.
    let space = rustix::fs::statvfs(folder).ok().filter(|space| space.f_blocks > 0)?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Returns the options for the disk at `path`, which has this index in the settings and contains `there`.
pub(crate) fn options_of(path: &Path, there: &PathContent, settings: &Settings, index: usize) -> StoreOptions {
    let (size_there, policy_there) = match there {
        PathContent::Store(info) => (Some(info.size_bytes), info.policy),
        PathContent::Blank(size_bytes) | PathContent::OtherDevice { size_bytes, .. } => (Some(*size_bytes), None),
        _ => (None, None),
    };
    let fitting = || fitting_size_bytes(path, default_size_bytes(settings));
    let size_bytes = said_size(settings, index).or(size_there).unwrap_or_else(fitting);
    let defaults = StoreOptions::new(path, size_bytes);
    StoreOptions {
        is_sparse: settings.is_sparse,
        policy: settings.row().or(policy_there).unwrap_or_else(Policy::default_policy),
        tuning: settings.tuning.clone(),
        mean_entry_bytes: settings.mean_entry_bytes(size_bytes),
        io: settings.io,
        dirty_bytes_max: settings.dirty_bytes_max.unwrap_or(defaults.dirty_bytes_max),
        index_bytes_max: defaults.index_bytes_max.min(settings.index_bytes_max.unwrap_or(u64::MAX)),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a package whose service does not start on a small machine.
    #[test]
    fn new_store_without_a_size_leaves_a_fifth_of_the_free_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/there/yet.larder");
        let space = rustix::fs::statvfs(folder.path()).unwrap();
        let free_bytes = space.f_bavail * space.f_frsize;
        let size_bytes = fitting_size_bytes(&path, u64::MAX);
        assert!(size_bytes < free_bytes || size_bytes == 64 << 20, "{size_bytes} of {free_bytes}");
        assert_eq!(fitting_size_bytes(&path, 64 << 20), 64 << 20);
    }

    #[test]
    fn size_auto_is_larger_than_the_default_and_a_given_size_is_kept() {
        let of = |sizes: Vec<Option<u64>>| {
            let settings = Settings { sizes, ..crate::settings::RunSettings::default().store };
            (said_size(&settings, 0), default_size_bytes(&settings))
        };
        assert_eq!(of(vec![]), (None, 1_000_000_000));
        assert_eq!(of(vec![None]), (None, 10_000_000_000));
        assert_eq!(of(vec![Some(5)]).0, Some(5));
    }
}
