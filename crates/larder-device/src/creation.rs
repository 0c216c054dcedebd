//! Creates a volume in two steps: it gets its name only when its first bytes are written.
//!
//! Invariant: a file under the volume's own name is a complete volume. An interrupted creation leaves a file under
//! another name, and the next creation removes it.

use crate::VolumeFile;
use crate::{DeviceError, DeviceErrorKind, Result};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// A new volume without its final name. It is removed when dropped.
#[derive(Debug)]
pub struct UnfinishedFile {
    path: PathBuf,
    name: PathBuf,
    is_finished: bool,
}

impl UnfinishedFile {
    /// Creates a file for the volume `name` under a temporary name, with its space reserved unless it is sparse.
    ///
    /// # Errors
    /// As [`VolumeFile::create`]. `Unavailable` also if another process is creating the volume now.
    pub fn create(name: &Path, size_bytes: u64, is_sparse: bool) -> Result<(VolumeFile, Self)> {
        let path = unfinished_path(name);
        if path.exists() {
            // If another store is creating it right now, that store holds the lock.
            drop(VolumeFile::open(&path)?);
            remove(&path)?;
        }
        let create = if is_sparse { VolumeFile::create_sparse } else { VolumeFile::create };
        let file = create(&path, size_bytes)?;
        Ok((file, Self { path, name: name.to_owned(), is_finished: false }))
    }

    /// Gives the volume its name.
    ///
    /// # Errors
    /// `Unavailable` if the file system refuses the name.
    pub fn finish(mut self) -> Result<()> {
        fs::rename(&self.path, &self.name).map_err(|source| {
            DeviceError::io(
                DeviceErrorKind::Unavailable,
                format!("cannot name the new store {}", self.name.display()),
                source,
            )
        })?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = remove(&self.path)
        {
            tracing::warn!("{error}");
        }
    }
}

fn unfinished_path(name: &Path) -> PathBuf {
    let mut path = OsString::from(name);
    path.push(".unfinished");
    PathBuf::from(path)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => {
            Err(DeviceError::io(DeviceErrorKind::Unavailable, format!("cannot remove {}", path.display()), source))
        }
    }
}
