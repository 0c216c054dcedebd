//! Small files next to the store, each replaced as a whole.
//!
//! Owns: the order of writing and renaming. Invariant: a reader finds the complete latest version, or the complete
//! version before it. Only the owner can read the file.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Replaces a file with a new one that only its owner can read. Blocks until the file is durable.
///
/// # Errors
/// The error of the system or of `write`. The old file is still in place in that case.
pub(crate) fn replace(path: &Path, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
    let new = new_path(path);
    let mut file = create(&new)?;
    write(&mut file)?;
    file.sync_data()?;
    fs::rename(&new, path)
}

/// Returns the path of the file that keeps this kind of state next to the store. `base` is the prefix of the store's
/// files.
pub(crate) fn beside(base: &Path, kind: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(".");
    name.push(kind);
    name.into()
}

/// Creates an empty file that only its owner can read.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Returns the temporary path of the new version of a file.
pub(crate) fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
