//! The path of the store.
//!
//! Owns: turning the user's setting into a path, and creating the default directory. The file is opened elsewhere.
//! Invariant: only Larder's own directory in the user's cache is ever created here, for its owner alone.

use crate::{ground::failure::Failure, settings::DiskSettings};
use etcetera::BaseStrategy;
use larder_store::{ErrorKind, PathContent, Policy, inspect};
use rustix::fs::{Access, access};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// File name of a store in a directory.
const FILE_NAME: &str = "store.larder";

/// Name of the default store's directory, for policies that keep files.
const DIRECTORY_NAME: &str = "store";

/// Returns the path of the store, which is a directory if its policy keeps files. `None` for memory only.
///
/// # Errors
/// The path cannot be used; the error says why.
pub(crate) fn find(disk: &DiskSettings, policy: Option<&Policy>) -> Result<Option<PathBuf>, Failure> {
    let keeps_files = policy.map(|policy| policy.layout.keeps_files());
    match disk {
        DiskSettings::None => Ok(None),
        DiskSettings::At(path) => at(path, keeps_files).map(Some),
        DiskSettings::UserCache => in_user_cache(keeps_files.unwrap_or_default()).map(Some),
    }
}

/// Returns the same path as [`find`], without creating a directory.
///
/// # Errors
/// The path cannot be used; the error says why.
pub(crate) fn expect(disk: &DiskSettings, policy: Option<&Policy>) -> Result<Option<PathBuf>, Failure> {
    match disk {
        DiskSettings::UserCache => {
            let keeps_files = policy.is_some_and(|policy| policy.layout.keeps_files());
            Ok(Some(user_folder()?.join(default_name(keeps_files))))
        }
        DiskSettings::None | DiskSettings::At(_) => find(disk, policy),
    }
}

/// Returns the name of the default store in its directory.
fn default_name(keeps_files: bool) -> &'static str {
    if keeps_files { DIRECTORY_NAME } else { FILE_NAME }
}

/// Returns `path` itself or, if it is a directory and not a store, the path of a store's file in it.
///
/// `keeps_files` says whether the policy keeps files; `None` without a given policy. An existing store is used whatever
/// the policy, so that no second store is created inside it.
fn at(path: &Path, keeps_files: Option<bool>) -> Result<PathBuf, Failure> {
    if path.is_dir() {
        return Ok(existing_in(path).unwrap_or_else(|| match keeps_files {
            Some(true) => path.to_owned(),
            _ => path.join(FILE_NAME),
        }));
    }
    let named_as_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/") && keeps_files != Some(true);
    let parent = if named_as_directory { path } else { path.parent().unwrap_or(path) };
    if named_as_directory || !(parent.as_os_str().is_empty() || parent.is_dir()) {
        let parent = parent.display();
        return Err(Failure::runtime(
            format!("no such directory for the store: {parent}"),
            format!("create it first (mkdir -p {parent}), or give another --disk path, or --disk none for memory only"),
        ));
    }
    Ok(path.to_owned())
}

/// Returns the store in a directory: the file with the usual name, or otherwise the directory itself if it is a store.
/// `None` if neither exists.
fn existing_in(folder: &Path) -> Option<PathBuf> {
    let file = folder.join(FILE_NAME);
    // A store that cannot be inspected is in use.
    let is_store = || !matches!(inspect(folder), Ok(PathContent::Nothing | PathContent::OtherFile));
    if file.exists() { Some(file) } else { is_store().then(|| folder.to_owned()) }
}

/// Returns the path of an existing store, for commands that only read it. For a directory, this is the path that
/// [`find`] would return.
pub(crate) fn existing(path: &Path) -> PathBuf {
    let inside = if path.is_dir() { existing_in(path) } else { None };
    inside.unwrap_or_else(|| path.to_owned())
}

/// Returns the path prefix of the files with the proxy's state, next to the store at `path`.
///
/// For a block device, they are in the directory of the default store. `None` if that directory cannot be created.
pub(crate) fn state_base(path: &Path) -> Option<PathBuf> {
    if !path.starts_with("/dev") {
        return Some(path.to_owned());
    }
    let folder = user_folder().ok()?;
    let name = path.file_name()?;
    make_private(&folder).ok()?;
    Some(folder.join(name))
}

/// Returns the directory of the default store, which may not exist yet.
///
/// # Errors
/// The user has no cache directory.
pub(crate) fn user_folder() -> Result<PathBuf, Failure> {
    let strategy = etcetera::choose_base_strategy()
        .map_err(|error| Failure::runtime(format!("cannot find your cache directory: {error}"), USER_CACHE_HELP))?;
    Ok(strategy.cache_dir().join("larder"))
}

/// Returns why the default store cannot be used, or `None` if it can.
///
/// With `may_be_in_use`, a store that another process uses counts as a reason too.
pub(crate) fn default_fault(may_be_in_use: bool) -> Option<String> {
    let path = match find(&DiskSettings::UserCache, None) {
        Ok(path) => path?,
        Err(failure) => return Some(failure.told().0.to_owned()),
    };
    let place = if path.exists() { Some(&*path) } else { path.parent() }?;
    if let Err(error) = access(place, Access::WRITE_OK) {
        return Some(format!("{error}: {}", place.display()));
    }
    let is_in_use = may_be_in_use && inspect(&path).is_err_and(|error| error.kind() == ErrorKind::InUse);
    is_in_use.then(|| format!("another larder uses it: {}", path.display()))
}

/// Returns the path of the default store, which may not exist: a file, or a directory for policies that keep files.
///
/// # Errors
/// The user has no cache directory.
pub(crate) fn default_store() -> Result<PathBuf, Failure> {
    let folder = user_folder()?;
    let [file, directory] = [FILE_NAME, DIRECTORY_NAME].map(|name| folder.join(name));
    Ok(if !file.exists() && directory.exists() { directory } else { file })
}

fn in_user_cache(keeps_files: bool) -> Result<PathBuf, Failure> {
    let folder = user_folder()?;
    let help = USER_CACHE_HELP;
    make_private(&folder)
        .map_err(|error| Failure::runtime(format!("cannot create directory {}: {error}", folder.display()), help))?;
    Ok(folder.join(default_name(keeps_files)))
}

const USER_CACHE_HELP: &str = "choose a place for the store with --disk PATH, or use --disk none for memory only";

/// Creates `folder` and its missing parents for their owner alone. Existing directories do not change.
pub(crate) fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_holds_the_file_and_a_file_is_the_file() {
        let scratch = tempfile::tempdir().unwrap();
        assert_eq!(at(scratch.path(), None).unwrap(), scratch.path().join(FILE_NAME));
        let file = scratch.path().join("my.store");
        assert_eq!(at(&file, None).unwrap(), file);
        assert_eq!(at(Path::new("my.store"), None).unwrap(), Path::new("my.store"));
        assert_eq!(at(scratch.path(), Some(true)).unwrap(), scratch.path());
        assert_eq!(at(&file, Some(true)).unwrap(), file);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_is_not_made() {
        let scratch = tempfile::tempdir().unwrap();
        for path in ["gone/my.store", "gone/"] {
            let problem = at(&scratch.path().join(path), None).unwrap_err().to_string();
            assert!(problem.starts_with("no such directory for the store: "), "{problem}");
        }
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_default_directory_is_for_its_owner_alone() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("cache/larder");
        make_private(&folder).unwrap();
        make_private(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
