//! Small files next to the store, each replaced as a whole.
//!
//! Owns: the order of writing and renaming. The content is known elsewhere. Invariant: a reader of such a file finds
//! the complete last version, or the complete version before. The file is readable by its owner only.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Replaces a file with a new one that only its owner can read. Blocks until it is on the disk.
///
/// # Errors
/// The error of the system or of `write`. The old file is then still in place.
pub(crate) fn replace(path: &Path, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
    let new = new_path(path);
    let mut file = create(&new)?;
    write(&mut file)?;
    file.sync_data()?;
    fs::rename(&new, path)
}

/// Returns the path of the file in which a proxy keeps something next to the store whose files begin with `base`.
pub(crate) fn beside(base: &Path, kind: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(".");
    name.push(kind);
    name.into()
}

/// Makes a file, empty, for its owner alone.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Returns the path of the new version that is to replace the file at `path`.
pub(crate) fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
