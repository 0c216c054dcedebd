//! Creates a volume in two steps: it gets its name only when its first bytes are written.
//!
//! Invariants: a file under the volume's own name is a complete volume, and it is never replaced by another. An
//! interrupted creation leaves a file under another name, and the next creation removes it. Only the process that has
//! the lock on a file removes or renames it.

use crate::VolumeFile;
use crate::{DeviceError, DeviceErrorKind, Result};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// A new volume file under a temporary name. Dropping it removes the file, unless [`Self::finish`] has given the file
/// its own name.
///
/// With it, a crash while the first bytes are written leaves no file that looks like a volume.
///
/// ```
/// use larder_device::UnfinishedFile;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let name = folder.path().join("volume");
/// let (file, unfinished) = UnfinishedFile::create(&name, 1 << 20, true)?;
/// assert!(!name.exists());
/// // Write the volume's header here.
/// unfinished.finish()?;
/// assert_eq!(std::fs::metadata(&name)?.len(), file.len_bytes());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UnfinishedFile {
    path: PathBuf,
    name: PathBuf,
    is_finished: bool,
}

impl UnfinishedFile {
    /// Creates a file for the volume `name` under a temporary name. Reserves its space on the disk, unless it is
    /// sparse.
    ///
    /// # Errors
    /// As [`VolumeFile::create`]. `InUse` also if another process is creating the volume now.
    pub fn create(name: &Path, size_bytes: u64, is_sparse: bool) -> Result<(VolumeFile, Self)> {
        let path = unfinished_path(name);
        if path.exists() {
            // If another store is creating it right now, that store holds the lock.
            let left_over = VolumeFile::open(&path)?;
            remove(&path)?;
            drop(left_over);
        }
        let create = if is_sparse { VolumeFile::create_sparse } else { VolumeFile::create };
        let file = create(&path, size_bytes)?;
        Ok((file, Self { path, name: name.to_owned(), is_finished: false }))
    }

    /// Gives the volume its name.
    ///
    /// # Errors
    /// `InUse` if another process has created a volume with this name meanwhile. `Unavailable` if the file cannot be
    /// renamed.
    pub fn finish(mut self) -> Result<()> {
        rename_new(&self.path, &self.name).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                let place = format!("another process has just created the store {}", self.name.display());
                return DeviceError::new(DeviceErrorKind::InUse, place);
            }
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

/// Renames a file. Fails if a file with the new name exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rename_exclusively(from, to) {
        // The file system cannot do both at once.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            if to.exists() { Err(io::ErrorKind::AlreadyExists.into()) } else { fs::rename(from, to) }
        }
        outcome => outcome,
    }
}

#[cfg(target_os = "linux")]
fn rename_exclusively(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(target_os = "linux"))]
fn rename_exclusively(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a store whose file another process replaces while it is in use.
    #[test]
    fn volume_that_another_process_has_just_created_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("volume");
        let (_file, unfinished) = UnfinishedFile::create(&name, 1 << 20, true).unwrap();
        fs::write(&name, "of another process").unwrap();
        assert_eq!(unfinished.finish().unwrap_err().kind(), DeviceErrorKind::InUse);
        assert_eq!(fs::read(&name).unwrap(), b"of another process");
        assert!(!unfinished_path(&name).exists());
    }
}
